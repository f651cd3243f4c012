"""A Source of a test's own below one path of a server that many share, and a bridge from it."""

from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

from aiohttp import web

from rsnotify_bridge.memory import BridgeStore, Facts
from tests.bridge.bridging import Bridging
from tests.support.sources import Source

NAMES = tuple(f"r{number}" for number in range(20))
SITEMAP = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
RS = 'xmlns:rs="http://www.openarchives.org/rs/terms/"'


class OddSource:
    """`has` is what there is in truth; each case says in its own words what the Source says."""

    def __init__(self, source: Source, bridging: Bridging, name: str) -> None:
        self.source, self.bridging, self.name = source, bridging, name
        self.address = self.loc("list")
        self.options: dict[str, Any] = {}
        self.has: list[str] = []
        self.locs: dict[str, str] = {}  # of those that are published by another address
        self.ever_gone: set[str] = set()
        self.put(*NAMES)

    def loc(self, name: str) -> str:
        return f"{self.source.url}/{self.name}/{name}"

    def put(self, *names: str) -> None:
        for name in names:
            self.has.append(name)
            self.source.resources[f"/{self.name}/{name}"] = b"there"

    def delete(self, name: str, *, is_there: bool = False) -> None:
        """It is gone; or it is called so, and still answers."""
        self.has.remove(name)
        self.ever_gone.add(name)
        if not is_there:
            del self.source.resources[f"/{self.name}/{name}"]

    def write(self, body: str | bytes, name: str = "list", **headers: str) -> None:
        body = body.encode() if isinstance(body, str) else body
        kind = {"Content-Type": "application/xml"}

        async def answer(_: web.Request) -> web.Response:
            return web.Response(body=body, headers=kind | headers)

        self.source.handlers[f"/{self.name}/{name}"] = answer

    def answer(self, name: str, **answer: Any) -> None:
        self.source.answer(f"/{self.name}/{name}", **answer)

    def serve(self, name: str, handler: Callable[[web.Request], Awaitable[web.Response]]) -> None:
        self.source.handlers[f"/{self.name}/{name}"] = handler

    def urls(self, *names: str, lastmod: str | None = None) -> str:
        when = f"<lastmod>{lastmod}</lastmod>" if lastmod else ""
        return "".join(f"<url><loc>{self.loc(name)}</loc>{when}</url>" for name in names)

    def sitemap(self, *names: str, head: str = "", lastmod: str | None = None) -> str:
        """Of these; of all that there is, if none is named."""
        urls = self.urls(*(names or self.has), lastmod=lastmod)
        return f"<urlset {SITEMAP} {RS}>{head}{urls}</urlset>"

    def index(self, *names: str) -> str:
        parts = "".join(f"<sitemap><loc>{self.loc(name)}</loc></sitemap>" for name in names)
        return f"<sitemapindex {SITEMAP}>{parts}</sitemapindex>"

    async def look(self) -> Facts:
        """At all that there is."""
        if self.bridging.state.exists():
            self.bridging.forget_comparison()
        facts = await self.bridging.once(self.address, **self.options)
        self.check_deletions()
        return facts

    def release(self) -> None:
        with closing(BridgeStore(self.bridging.state, is_writer=False)) as memory:
            memory.all()[0].release()

    def check_deletions(self) -> None:
        called = {loc for change, loc in self.bridging.told() if change == "deleted"}
        assert called <= self.ever_gone, f"{called - self.ever_gone} is not deleted"

    def check_state(self) -> None:
        """What is published is what there is."""
        set_name = self.bridging.set_name
        self.bridging.hub.ask("POST", f"/api/sets/{set_name}/snapshot")
        assert {*self.bridging.resources()} == {self.locs.get(n, self.loc(n)) for n in self.has}
