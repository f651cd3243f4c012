"""What answers at an address, and how it can be followed."""

from typing import NamedTuple

from rsnotify_bridge.feeds import ACTIVITIES, FEED, TOPIC, FeedSource
from rsnotify_bridge.lists import ChannelSource, ListedSource
from rsnotify_bridge.oai import OaiSource
from rsnotify_bridge.rules import LocRule
from rsnotify_bridge.sources import SourceAdapter
from rsnotify_client.discovery import SOCKETS, Source, discover
from rsnotify_client.network import Network
from rsnotify_client.oaipmh import PREFIX
from rsnotify_client.polite import Hosts, PoliteWeb
from rsnotify_client.web import Refused, Web


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


async def find_source(webs: Webs, url: str, rule: LocRule | None = None) -> SourceAdapter:
    """Raises `Refused` where nothing that can be followed answers."""
    web = webs.polite
    if url.startswith(PREFIX):
        return await OaiSource.find(web, url, rule or LocRule())
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
