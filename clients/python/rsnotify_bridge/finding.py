"""What answers at an address, and how it can be followed."""

import re
from typing import NamedTuple

import msgspec

from rsnotify_bridge.feeds import ActivitySource, FeedSource
from rsnotify_bridge.lists import ChannelSource, ListedSource
from rsnotify_bridge.oai import OaiSource
from rsnotify_bridge.records import LocRule
from rsnotify_bridge.sources import SourceAdapter
from rsnotify_client.discovery import SOCKETS, discover
from rsnotify_client.feeds import is_collection
from rsnotify_client.network import Network
from rsnotify_client.oaipmh import PREFIX
from rsnotify_client.polite import Hosts, PoliteWeb
from rsnotify_client.web import Web

_FEED = re.compile(rb"<(?:\w+:)?(feed|rss|RDF)\b")
BEGINNING_BYTES = 2_048


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
    if url.startswith(PREFIX):
        return await OaiSource.find(webs.polite, url, rule or LocRule())
    if not url.startswith(SOCKETS):
        page = await webs.polite.page(url)
        if page.status == 200 and _FEED.search(page.body[:BEGINNING_BYTES]):
            return FeedSource(webs.polite, url)
        if page.status == 200 and _is_collection(page.body):
            return ActivitySource(webs.polite, url)
    source = await discover(webs.polite, url)
    if source.socket or source.topic:
        return ChannelSource(webs.polite, webs.channel, source)
    return ListedSource(webs.polite, source)


def _is_collection(body: bytes) -> bool:
    if body.lstrip()[:1] != b"{":
        return False
    try:
        return is_collection(msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
