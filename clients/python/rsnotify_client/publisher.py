"""Publish changes to a hub: each exactly once, however often the network fails.

Rules that hold here: every request carries an idempotency key, and is repeated with it until the
hub has answered.
"""

import secrets
from collections.abc import Sequence

import msgspec

from rsnotify.core.change import Change
from rsnotify_client.connection import Connection


class Accepted(msgspec.Struct, frozen=True):
    """The hub has made the changes durable; they stand in `(from_, until]`."""

    accepted: int
    from_: str = msgspec.field(name="from")
    until: str


class Publisher(Connection):
    """Publishes to the sets that its token allows."""

    async def publish(
        self, set_name: str, changes: Sequence[Change], *, key: str | None = None
    ) -> Accepted:
        """Publish these changes together: all are accepted, or none."""
        body = msgspec.json.encode(changes)
        return await self.publish_body(set_name, body, "application/json", key=key)

    async def publish_body(
        self, set_name: str, body: bytes, content_type: str, *, key: str | None = None
    ) -> Accepted:
        """Publish changes in any form that the hub reads."""
        headers = {"Content-Type": content_type, "Idempotency-Key": key or secrets.token_hex(16)}
        answer = await self.ask("POST", f"/api/sets/{set_name}/changes", body=body, headers=headers)
        return msgspec.convert(answer, Accepted)
