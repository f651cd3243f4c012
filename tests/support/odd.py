"""A Source of a test's own below one path of a server: documents as a test writes them."""

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from aiohttp import web

from tests.support.sources import Source

NAMES = tuple(f"r{number}" for number in range(20))
SITEMAP = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
RS = 'xmlns:rs="http://www.openarchives.org/rs/terms/"'


Seen = TypeVar("Seen")
Case = TypeVar("Case", bound=Callable[..., Any])


class OddCases(Generic[Case]):
    """Sources that are right but odd, and Sources that lie, each with what is said of it."""

    def __init__(self) -> None:
        self.are_right: list[Case] = []
        self.said: dict[Case, str] = {}

    def right(self, case: Case) -> Case:
        self.are_right.append(case)
        return case

    def lie(self, said: str) -> Callable[[Case], Case]:
        def noted(case: Case) -> Case:
            self.said[case] = said
            return case

        return noted


def named(case: Any) -> str:
    return str(case.__name__)


class OddSource(Generic[Seen]):
    """`has` is what there is in truth; each case says in its own words what the Source says."""

    def __init__(self, source: Source, name: str) -> None:
        self.source, self.name = source, name
        self.address = self.loc("list")
        self.options: dict[str, Any] = {}
        self.has: list[str] = []
        self.locs: dict[str, str] = {}  # of those that are published by another address
        self.ever_gone: set[str] = set()
        self.put(*NAMES)

    async def look(self) -> Seen:
        """What whoever reads it makes of all that there is."""
        raise NotImplementedError

    def loc(self, name: str) -> str:
        return f"{self.source.url}/{self.name}/{name}"

    def put(self, *names: str) -> None:
        for name in names:
            self.has.append(name)
            self.source.resources[f"/{self.name}/{name}"] = f"{name} is there".encode()

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


def offers(odd: OddSource[Any], *lists: tuple[str, str], at: str = "2026-11-01T00:00:00Z") -> None:
    """A Capability List, and a Resource List of all that there is."""
    odd.address = odd.loc("capabilities")
    entries = "".join(
        f'<url><loc>{odd.loc(name)}</loc><rs:md capability="{capability}"/></url>'
        for capability, name in (("resourcelist", "list"), *lists)
    )
    head = '<rs:md capability="capabilitylist"/>'
    odd.write(f"<urlset {SITEMAP} {RS}>{head}{entries}</urlset>", "capabilities")
    odd.write(odd.sitemap(head=f'<rs:md capability="resourcelist" at="{at}"/>'))


def changes(odd: OddSource[Any], *done: tuple[str, str, int], begin: int = 0, end: int = 0) -> str:
    """Each change at its second; 0: it does not say."""
    at = "2026-11-02T00:00:{:02}Z"
    until = f' until="{at.format(end)}"' if end else ""
    entries = "".join(
        f'<url><loc>{odd.loc(name)}</loc><rs:md change="{change}"'
        + (f' datetime="{at.format(second)}"/></url>' if second else "/></url>")
        for change, name, second in done
    )
    begins = f' from="{at.format(begin)}"' if any(second for *_, second in done) else ""
    head = f'<rs:md capability="changelist"{begins}{until}/>'
    return f"<urlset {SITEMAP} {RS}>{head}{entries}</urlset>"


# --- what a mirror and a bridge are both shown ---------------------------------------------------


async def a_list_that_was_empty(odd: OddSource[Seen]) -> Seen:
    odd.write(f"<urlset {SITEMAP}/>")
    names, odd.has = odd.has, []
    await odd.look()
    odd.has = names
    odd.write(odd.sitemap())
    return await odd.look()


async def a_list_that_is_empty_now(odd: OddSource[Seen]) -> Seen:
    odd.write(odd.sitemap())
    await odd.look()
    odd.write(f"<urlset {SITEMAP}></urlset>")
    return await odd.look()
