"""Several bridges in one process, each by itself: what answers at an address, and how to follow it.

Rules that hold here: the trouble of one bridge is its own.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from rsnotify_bridge.bridge import Bridge
from rsnotify_bridge.memory import BridgeStore
from rsnotify_bridge.oaipmh import PREFIX
from rsnotify_bridge.options import BridgeOptions
from rsnotify_bridge.polite import Hosts, PoliteWeb
from rsnotify_bridge.rules import LocRule
from rsnotify_bridge.sources import (
    ACTIVITIES,
    FEED,
    TOPIC,
    ChannelSource,
    FeedSource,
    ListedSource,
    OaiSource,
    SourceAdapter,
)
from rsnotify_bridge.target import HubTarget
from rsnotify_client.discovery import SOCKETS, Source, discover
from rsnotify_client.network import Network
from rsnotify_client.web import Refused, Web

# --- what answers at an address ------------------------------------------------------------------


class Webs(NamedTuple):
    """The clients of one bridge: one takes its turn, the other holds a channel open."""

    polite: PoliteWeb
    channel: Web

    @classmethod
    def of(cls, url: str, token: str | None, network: Network, hosts: Hosts) -> "Webs":
        address = url.removeprefix(PREFIX)
        polite = PoliteWeb(token, address, network, hosts)
        return cls(polite, Web(token, address, network=network))

    async def close(self) -> None:
        await self.polite.close()
        await self.channel.close()


async def find_source(webs: Webs, url: str, rule: LocRule) -> SourceAdapter:
    """Raises `Refused` where nothing that can be followed answers."""
    web = webs.polite
    if url.startswith(PREFIX):
        return await OaiSource.find(web, url, rule)
    page = None if url.startswith(SOCKETS) else await web.page(url)
    body = page.body if page is not None and page.status == 200 else b""
    for kind in (FEED, ACTIVITIES):
        if kind.is_in(body):
            return FeedSource(web, url, kind, body)
    is_topic = TOPIC.is_in(body)
    try:
        source = await discover(web, url)
    except Refused:
        if not is_topic:
            raise
        source = Source(url, topic=url)
    if is_topic and not (source.socket or source.changelist):
        return FeedSource(web, url, TOPIC, body)
    if source.socket or source.topic:
        return ChannelSource(web, webs.channel, source)
    return ListedSource(web, source)


# --- bridges -------------------------------------------------------------------------------------

AT_ONCE = 16  # bridges that begin at the same time


class HubAddress(NamedTuple):
    """Where the bridges publish to."""

    url: str
    token: str | None


class Bridges:
    """The bridges of one process."""

    def __init__(
        self,
        options: Sequence[BridgeOptions],
        hub: HubAddress,
        memory: BridgeStore,
        network: Network,
        *,
        token: str | None = None,
    ) -> None:
        self._hosts = {robots: Hosts(obeys_robots=robots) for robots in (True, False)}
        self._network = network
        self._webs: list[Webs] = []
        self._targets: dict[str, HubTarget] = {}
        self._hub, self._memory, self._token = hub, memory, token
        self.bridges = [self._bridge(each) for each in options]

    def _bridge(self, options: BridgeOptions) -> Bridge:
        token = options.token() or self._token
        webs = Webs.of(options.source, token, self._network, self._hosts[options.robots])
        self._webs.append(webs)
        name = options.set_name
        if name not in self._targets:
            self._targets[name] = HubTarget(self._hub.url, self._hub.token, name)
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
