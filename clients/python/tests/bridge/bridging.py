"""Bridges for tests, in the test's own process; and what a set holds in the end."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, nullcontext
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec

from rsnotify.resourcesync.xml_reader import parse_document
from rsnotify_bridge.memory import BridgeStore, Facts
from rsnotify_bridge.options import BridgeOptions
from rsnotify_bridge.service import Bridges, HubAddress
from rsnotify_client.network import Network
from tests.support.hub_processes import HubProcess
from tests.support.running import TOKEN


class Bridging:
    """Bridges of one state file to one set."""

    def __init__(self, hub: HubProcess, set_name: str, state: Path) -> None:
        self.hub, self.set_name, self.state = hub, set_name, state

    async def once(self, source: str, **options: Any) -> Facts:
        """One look; what is known afterwards."""
        async with self.running(source, **options) as bridges:
            await bridges.once()
            return bridges.bridges[0].state.facts

    @asynccontextmanager
    async def running(
        self, *sources: str, store: BridgeStore | None = None, **options: Any
    ) -> AsyncIterator[Bridges]:
        given = {"set": self.set_name, "interval": 1.0, "max-interval": 1.0, **options}
        chosen = [msgspec.convert({"from": each, **given}, BridgeOptions) for each in sources]
        opened = nullcontext(store) if store else closing(BridgeStore(self.state))
        with opened as memory, memory.checked():
            address = HubAddress(self.hub.url, TOKEN)
            bridges = Bridges(chosen, address, memory, Network())
            try:
                yield bridges
            finally:
                await bridges.close()

    def forget_comparison(self) -> None:
        """As if the whole state had been compared a year ago."""
        with closing(BridgeStore(self.state)) as memory:
            (state,) = memory.all()
            state.facts.compared_at = (state.facts.compared_at or 0) - 365 * 86_400
            state.save()

    def told(self) -> list[tuple[str, str]]:
        return self.hub.told(self.set_name)

    def resources(self) -> dict[str, str | None]:
        """What the set's Resource List has: each address with its lastmod."""
        url = f"{self.hub.url}/{self.set_name}/resourcelist.xml"
        with urlopen(url) as answer:
            document = parse_document(answer.read())
        return {entry.loc: entry.lastmod for entry in document.entries}

    def count(self) -> int:
        with urlopen(f"{self.hub.url}/api/sets/{self.set_name}/resources") as answer:
            return int(json.load(answer)["resources"])
