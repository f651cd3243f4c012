"""Sources whose pages are made when they are asked for: each kind by offsets into what is there."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from aiohttp import web

from rsnotify.resourcesync.change import Link, Position
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, render_document
from tests.support.sources import Source

PAGE = 10
OAI = '<OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/"><responseDate>{}</responseDate>{}</OAI-PMH>'


class Moving:
    """What there is in its order, each with when it changed; an act follows each page."""

    before = 2  # the first page of a reading so many requests are made

    def __init__(self, source: Source, *, count: int = 35) -> None:
        self.source = source
        self.now = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)
        self.state: dict[str, datetime] = {}
        self.acts: list[Callable[[], None]] = []  # one after each page
        self.always: Callable[[], None] | None = None
        for number in range(count):
            self.put(f"r{number}")
        source.handlers["/list"] = self._serve
        self.address = source.loc("list")

    def put(self, name: str) -> None:
        """At the end, even if it is there."""
        self.now += timedelta(seconds=1)
        self.state.pop(name, None)
        self.state[name] = self.now
        self.source.resources[f"/{name}"] = b"there"

    def delete(self, name: str) -> None:
        if self.state.pop(name, None) is not None:
            del self.source.resources[f"/{name}"]

    def delete_one(self) -> None:
        self.delete(next(iter(self.state)))

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        answer = self.answer(request)
        if self.acts:
            self.acts.pop(0)()
        elif self.always is not None:
            self.always()
        return answer

    def answer(self, request: web.Request) -> web.Response:
        number = int(request.query.get("page", 0))
        return self.page(number, self.names()[number * PAGE : (number + 1) * PAGE])

    def names(self) -> list[str]:
        return list(self.state)

    def page(self, number: int, names: list[str]) -> web.Response:
        raise NotImplementedError

    def next_of(self, number: int) -> str | None:
        has_more = (number + 1) * PAGE < len(self.state)
        return f"{self.address}?page={number + 1}" if has_more else None

    def entries(self, names: list[str]) -> tuple[Entry, ...]:
        return tuple(Entry(self.source.loc(n), stamp(self.state[n])) for n in names)


def stamp(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


class Resources(Moving):
    """A Resource List as Heratio has it: each page is of its own moment."""

    def md(self) -> Md | None:
        return Md(
            capability="resourcelist", at=str(Position(int(datetime.now().timestamp() * 1e6)))
        )

    def page(self, number: int, names: list[str]) -> web.Response:
        url = self.next_of(number)
        links = (Link("next", url),) if url else ()
        body = render_document(Document("urlset", self.md(), links, self.entries(names)))
        return web.Response(body=body, content_type="application/xml")


class ResourcesOfASecond(Resources):
    """All pages say the same second, in which they are read."""

    def __init__(self, source: Source, **given: int) -> None:
        super().__init__(source, **given)
        self.read_at = datetime.now(UTC)

    def md(self) -> Md | None:
        return Md(
            capability="resourcelist", at=stamp(datetime.now(UTC) + timedelta(seconds=1))[:19] + "Z"
        )


class Sitemap(Resources):
    """Pages without a time."""

    def md(self) -> Md | None:
        return None


class Index(Moving):
    """An index whose parts are made when they are asked for."""

    before = 3

    def answer(self, request: web.Request) -> web.Response:
        if "page" in request.query:
            return super().answer(request)
        pages = range((len(self.state) + PAGE - 1) // PAGE)
        entries = tuple(Entry(f"{self.address}?page={number}") for number in pages)
        body = render_document(Document("sitemapindex", None, (), entries))
        return web.Response(body=body, content_type="application/xml")

    def page(self, _: int, names: list[str]) -> web.Response:
        body = render_document(Document("urlset", None, (), self.entries(names)))
        return web.Response(body=body, content_type="application/xml")


class IndexWithoutTimes(Index):
    def entries(self, names: list[str]) -> tuple[Entry, ...]:
        return tuple(Entry(self.source.loc(n)) for n in names)


class Feed(Moving):
    """Newest first, each page with its link to older ones."""

    before = 1

    def delete_one(self) -> None:
        self.delete(next(reversed(self.state)))

    def names(self) -> list[str]:
        return list(self.state)[::-1]

    def page(self, number: int, names: list[str]) -> web.Response:
        url = self.next_of(number)
        older = f'<link rel="next" href="{url}"/>' if url else ""
        entries = "".join(
            f"<entry><id>{self.source.loc(n)}</id><link href='{self.source.loc(n)}'/>"
            f"<updated>{stamp(self.state[n])}</updated></entry>"
            for n in names
        )
        text = f'<feed xmlns="http://www.w3.org/2005/Atom">{older}{entries}</feed>'
        return web.Response(text=text, content_type="application/atom+xml")


class Activities(Feed):
    def page(self, number: int, names: list[str]) -> web.Response:
        content = {
            "type": "OrderedCollectionPage",
            "orderedItems": [
                {
                    "type": "Update",
                    "endTime": stamp(self.state[n]),
                    "object": {"id": self.source.loc(n)},
                }
                for n in reversed(names)
            ],
        }
        if url := self.next_of(number):
            content["prev"] = {"id": url}
        return web.Response(text=json.dumps(content), content_type="application/json")


class Records(Moving):
    """OAI-PMH with offsets in its tokens, which forgets what was deleted."""

    deleted, has_size = "no", True

    def __init__(self, source: Source, **given: int) -> None:
        super().__init__(source, **given)
        self.address = f"oai:{self.address}"

    def answer(self, request: web.Request) -> web.Response:
        asked = request.query
        return web.Response(text=self.told(dict(asked)), content_type="text/xml")

    def told(self, asked: dict[str, str]) -> str:
        now = stamp(datetime.now(UTC))
        if asked["verb"] == "Identify":
            said = (
                "<repositoryName>R</repositoryName><granularity>YYYY-MM-DDThh:mm:ssZ</granularity>"
            )
            keeps = f"<deletedRecord>{self.deleted}</deletedRecord>"
            return OAI.format(now, f"<Identify>{said}{keeps}</Identify>")
        if asked["verb"] == "GetRecord":
            name = asked["identifier"]
            found = f"<GetRecord><record>{self.header(name)}</record></GetRecord>"
            missing = '<error code="idDoesNotExist"/>'
            return OAI.format(now, found if name in self.state else missing)
        at, since = 0, asked.get("from", "")
        if token := asked.get("resumptionToken"):
            at, since = int(token.partition("!")[0]), token.partition("!")[2]
        names = [n for n, when in self.state.items() if stamp(when) >= since]
        if not names[at:]:
            return OAI.format(now, '<error code="noRecordsMatch"/>')
        size = f' completeListSize="{len(names)}"' if self.has_size else ""
        token = f"{at + PAGE}!{since}" if at + PAGE < len(names) else ""
        headers = "".join(map(self.header, names[at : at + PAGE]))
        token = f"<resumptionToken{size}>{token}</resumptionToken>"
        return OAI.format(now, f"<ListIdentifiers>{headers}{token}</ListIdentifiers>")

    def header(self, name: str) -> str:
        when = stamp(self.state[name]) if name in self.state else ""
        return f"<header><identifier>{name}</identifier><datestamp>{when}</datestamp></header>"


class RecordsWithoutSize(Records):
    has_size = False


class RecordsOnceMore(Records):
    """It keeps what is deleted for a while, and what changes goes to the end."""

    deleted = "transient"

    def delete_one(self) -> None:
        name = next(iter(self.state))
        self.now = datetime.now(UTC) + timedelta(seconds=1)
        self.put(name)


LISTS = (Resources, ResourcesOfASecond, Sitemap, Index, IndexWithoutTimes)
HARVESTS = (Records, RecordsWithoutSize, RecordsOnceMore)
FEEDS = (Feed, Activities)
