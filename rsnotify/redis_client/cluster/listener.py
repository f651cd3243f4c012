"""A connection to any node of a Cluster: all of them hear what is published at one."""

from random import sample
from typing import Any

from redis.asyncio.connection import Connection, SSLConnection

from rsnotify.redis_client.address import Host


class ToAnyNode(Connection):
    """To another one each time, until one answers."""

    def __init__(self, *, nodes: tuple[Host, ...], **options: Any) -> None:
        super().__init__(**options)
        self._nodes = nodes

    async def _connect(self) -> None:
        trouble: Exception | None = None
        for host, port in sample(self._nodes, len(self._nodes)):
            self.host, self.port = host, port
            try:
                return await super()._connect()  # type: ignore[no-untyped-call, no-any-return]
            except (TimeoutError, OSError) as error:
                trouble = error
        assert trouble is not None  # noqa: S101 - an address names one node at least
        raise trouble


class ToAnyNodeWithTLS(ToAnyNode, SSLConnection):
    """The same with TLS."""
