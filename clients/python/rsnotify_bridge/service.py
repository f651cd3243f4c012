"""Several bridges in one process, each by itself.

Rules that hold here: trouble in one bridge stops no other.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from rsnotify_bridge.bridge import Bridge
from rsnotify_bridge.memory import BridgeStore
from rsnotify_bridge.options import BridgeOptions
from rsnotify_bridge.polite import Hosts, Webs
from rsnotify_bridge.sources import find_source
from rsnotify_bridge.target import HubTarget
from rsnotify_client.network import Network
from rsnotify_client.token import HeldToken, Token

AT_ONCE = 16  # bridges that begin at the same time


class HubAddress(NamedTuple):
    """Where the bridges publish to."""

    url: str
    token: Token | None


class Bridges:
    """The bridges of one process."""

    def __init__(
        self,
        options: Sequence[BridgeOptions],
        hub: HubAddress,
        memory: BridgeStore,
        network: Network,
        *,
        token: Token | None = None,
    ) -> None:
        self._hosts = {robots: Hosts(obeys_robots=robots) for robots in (True, False)}
        self._network = network
        self._webs: list[Webs] = []
        self._targets: dict[str, HubTarget] = {}
        self._hub, self._memory = hub, memory
        self._token, self._hub_token = HeldToken.of(token), HeldToken.of(hub.token)
        self._to_create = {each.set_name for each in options if each.create}
        self.bridges = [self._bridge(each) for each in options]

    def _bridge(self, options: BridgeOptions) -> Bridge:
        token = options.token() or self._token
        webs = Webs.of(options.source, token, self._network, self._hosts[options.robots])
        self._webs.append(webs)
        name = options.set_name
        if name not in self._targets:
            creates = name in self._to_create
            self._targets[name] = HubTarget(self._hub.url, self._hub_token, name, creates=creates)
        return Bridge(
            options,
            lambda: find_source(webs, options.source, options.rule),
            self._targets[name],
            self._memory,
        )

    async def check(self) -> None:
        """What the hub refuses is reported at once."""
        for target in self._targets.values():
            await target.check()

    async def once(self) -> bool:
        """Each once; whether all went well."""
        room = asyncio.Semaphore(AT_ONCE)

        async def one(bridge: Bridge) -> bool:
            async with room:
                return await bridge.once()

        return all([*await asyncio.gather(*map(one, self.bridges))])

    async def keep(self) -> None:
        await asyncio.gather(*(bridge.keep() for bridge in self.bridges))

    async def close(self) -> None:
        for webs in self._webs:
            await webs.close()
        for target in self._targets.values():
            target.close()
