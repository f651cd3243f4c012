"""From any address that a person might have to what a Source offers.

Rules that hold here: a document is recognised by its content, not by its name; the ways to find one
are tried in the order of the specification: links, then the well-known URI, then robots.txt. A
missing document, or set of a hub, leads nowhere: whatever else its site offers is another set. Pure
functions decide what was found; `discover` only fetches.
"""

import logging
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from urllib.parse import urlsplit

import msgspec

from rsnotify.errors import PROBLEM, Rejected, TryAgain
from rsnotify.gunzip import PIECE_BYTES
from rsnotify.resourcesync.stream import DocumentStream, Head
from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_client.address import joined, without_tokens
from rsnotify_client.web import (
    PAGE_BYTES,
    FetchedPage,
    Refused,
    Unpacker,
    Web,
    detail_of,
    refused,
)

log = logging.getLogger(__name__)

WELL_KNOWN = "/.well-known/resourcesync"
STEPS = 8  # from an address to a Capability List; a longer way goes in a circle
DESCRIPTIONS = ("description", "resourcesync")  # the latter until 0.9
UP = ("up", "resourcesync", "top")  # the second until 0.9, the last in the draft of 2013
OFFERS = {
    "resourcelist": "resourcelist",
    "resourcedump": "resourcedump",
    "changelist": "changelist",
    "changedump": "changedump",
    "changelist-archive": "archive",
}
"""The capabilities, by their names in a Capability List, and in `Capabilities`."""
NAMED_SETS = 3
MAX_SETS = 1_000  # of a Source, where all are asked for
MAX_SITEMAPS = 1_000  # that a robots.txt names
MAX_SETS_ASKED = 100  # of a hub, for the one that has a topic
BEGINNING_PIECES = PAGE_BYTES // PIECE_BYTES  # are read of a document that is compressed
SOCKETS = ("ws://", "wss://")
DOCUMENTS = (".xml", ".xml.gz")
LOOK = "look whether it is right"


class NotOneSet(Refused):
    """The Source has several sets of resources, and one was asked for."""

    def __init__(self, url: str, step: "DiscoveryStep") -> None:
        found = step.sets
        more = len(found) - NAMED_SETS
        named = ", ".join(found[:NAMED_SETS])
        named = f", such as {named} ({more:,} more)" if more > 0 else f": {named}"
        count = f"{len(found):,}" if len(found) <= MAX_SETS else f"more than {MAX_SETS:,}"
        super().__init__(
            f"{url} names its sets of resources in {count} Source Descriptions: "
            f"give the address of a set{named}"
            if step.are_descriptions
            else f"{url} offers {count} sets of resources: give the address of one{named}"
        )


class NotASource(Refused):
    """An address has nothing, or no ResourceSync document; `problem` is that without advice."""

    def __init__(self, asked: str, page: FetchedPage, problem: str, advice: str) -> None:
        is_there = page.status == 200
        super().__init__(f"{problem}; {advice}", status=400 if is_there else page.status)
        self.addresses = {asked, page.url}
        self.problem = without_tokens(problem)


@contextmanager
def of_known(url: str, known: Collection[str]) -> Iterator[None]:
    """At an address where a Source was found before, it will pass that there is none now."""
    try:
        yield
    except NotASource as error:
        if error.addresses.isdisjoint(known) and url not in known:
            raise
        said = f"{error.problem}, but a Source was found there before: try again later"
        raise TryAgain(said) from None


class Capabilities(msgspec.Struct, frozen=True):
    """What a Source offers for one set of resources; each an address, or None."""

    url: str  # the Capability List, or the one document that there is
    resourcelist: str | None = None
    resourcedump: str | None = None
    changelist: str | None = None
    changedump: str | None = None
    archive: str | None = None
    topic: str | None = None
    socket: str | None = None
    repeated: str | None = None  # capabilities of which there are several documents
    other_sitemaps: tuple[str, ...] = ()  # of a site whose robots.txt names several, for one state
    by_site: bool = False  # nothing at the address led to it: its site offers it

    @property
    def doubt(self) -> str | None:
        """What is wrong with a Capability List that does not say which document is meant."""
        if self.repeated is None:
            return None
        return (
            f"{self.url} names several documents as its {self.repeated}: the first is read; "
            "name one, or an index of them"
        )


class DiscoveryStep(msgspec.Struct, frozen=True):
    """What a page turned out to be: a Capability List, or where to look next."""

    found: Capabilities | None = None
    next: str | None = None
    sets: tuple[str, ...] = ()  # where there are several of them
    are_descriptions: bool = False  # those that an index names, instead of sets
    missing: str | None = None  # an address that is not there, and what it answers
    other_sitemaps: tuple[str, ...] = ()  # besides the one that is next
    by_site: bool = False  # by the well-known URI, or robots.txt


# Deciding ---------------------------------------------------------------------------------------

_LINK = re.compile(r"<([^>]*)>([^<]*)")
_REL = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^\s;,"]+))', re.IGNORECASE)
_SITEMAP = re.compile(r"^[\ufeff \t]*sitemap[ \t]*:[ \t]*(\S+)", re.IGNORECASE | re.MULTILINE)


def linked(header: str, relation: str) -> str | None:
    """The first target of a relation in a `Link` header.

    >>> linked('</a>; rel="self", </b>; rel="hub resourcesync"', "resourcesync")
    '/b'
    """
    return next(all_linked(header, relation), None)


def all_linked(header: str, relation: str) -> Iterator[str]:
    for target, parameters in _LINK.findall(header[:8192]):
        rel = _REL.search(parameters)
        if rel and relation in (rel[1] or rel[2] or "").lower().split():
            yield str(target)


def linked_in_html(text: str, relation: str = "resourcesync") -> str | None:
    """The target of a `<link>` of this relation."""
    from html.parser import HTMLParser  # noqa: PLC0415 - seldom needed

    class Links(HTMLParser):
        found: str | None = None

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            named = dict(attrs)
            is_ours = tag == "link" and relation in (named.get("rel") or "").lower().split()
            if is_ours and self.found is None:
                self.found = named.get("href")

    parser = Links()
    parser.feed(text)
    return parser.found


def sitemaps_of(robots: str) -> list[str]:
    """The sitemaps that `Sitemap:` lines of a robots.txt name, each once."""
    return list(dict.fromkeys(_SITEMAP.findall(robots.replace("\r", "\n"))))


def offered(url: str, entries: Sequence[Entry]) -> Capabilities:
    """What a Capability List offers: 1.0.1 with alternates, 0.8 with `ws://` addresses, or 1.1."""
    found: dict[str, str] = {}
    repeated: list[str] = []
    for entry in entries:
        capability = entry.md.capability if entry.md else None
        loc = joined(url, entry.loc)
        if capability in OFFERS:
            if found.setdefault(OFFERS[capability], loc) != loc:
                repeated.append(capability)
        elif capability == "change-notification":
            _channel(found, url, entry, loc)
    repeatedly = " and ".join(dict.fromkeys(repeated)) or None
    return msgspec.structs.replace(Capabilities(url, repeated=repeatedly), **found)


def _channel(found: dict[str, str], url: str, entry: Entry, loc: str) -> None:
    if loc.startswith(SOCKETS):
        found.setdefault("socket", loc)
        return
    found.setdefault("topic", loc)
    for link in entry.links:
        href = joined(url, link.href)
        if link.rel == "alternate" and href.startswith(SOCKETS):
            found.setdefault("socket", href)


def found_in(url: str, head: Head, entries: Sequence[Entry]) -> DiscoveryStep:
    """Where a ResourceSync document belongs, by its own links."""
    capability = head.md.capability
    if capability == "capabilitylist" and head.root == "urlset":
        return DiscoveryStep(found=offered(url, entries))
    if capability in ("capabilitylist", *DESCRIPTIONS):  # 0.9 has indexes of Capability Lists
        step = _sets_of(url, [joined(url, entry.loc) for entry in entries])
        is_index = capability in DESCRIPTIONS and head.root == "sitemapindex"
        return msgspec.structs.replace(step, are_descriptions=is_index)
    up = head.link(*UP)
    if up is not None and joined(url, up) != url:
        return DiscoveryStep(next=joined(url, up))
    if capability in ("changelist", "changedump", "resourcedump"):
        return DiscoveryStep(found=msgspec.structs.replace(Capabilities(url), **{capability: url}))
    if capability in (None, "resourcelist"):  # a plain sitemap lists resources, too
        return DiscoveryStep(found=Capabilities(url, resourcelist=url))
    raise Refused(f"{url} is a {capability}, from which nothing leads to a Capability List")


def _sets_of(url: str, lists: Sequence[str]) -> DiscoveryStep:
    lists = list(dict.fromkeys(lists))
    if not lists:
        raise Refused(f"{url} offers no set of resources yet")
    if len(lists) == 1:
        return DiscoveryStep(next=lists[0])
    return DiscoveryStep(sets=tuple(lists))


# Fetching ---------------------------------------------------------------------------------------


async def discover(web: Web, url: str) -> Capabilities:
    """What the Source at this address offers; `Refused` says why nothing was found."""
    if url.startswith(SOCKETS):
        return await _of_channel(web, url)
    if not url.startswith(("http://", "https://")):
        raise Refused(
            f"{url!r} is no address: give one that begins with http://, https:// or ws://"
        )
    return await _walk(web, url)


async def _walk(web: Web, url: str, seen: int = 0) -> Capabilities:
    step = await _last_step(web, url, STEPS - seen)
    if step.found is None:
        raise NotOneSet(url, step)
    if step.missing is not None:
        said = f"{step.missing}; taking {step.found.url}, to which its site leads"
        log.warning("%s", without_tokens(said))
    return step.found


async def _last_step(web: Web, url: str, steps: int = STEPS) -> DiscoveryStep:
    """Where the links from an address lead in the end: to a Source, or to several sets."""
    begun, missing = url, None
    others: tuple[str, ...] = ()
    by_site = False
    for _ in range(steps):
        step = await one_step(web, url)
        missing, others = missing or step.missing, others or step.other_sitemaps
        by_site |= step.by_site
        if step.next is None:
            found = step.found and _with_others(step.found, others)
            found = found and msgspec.structs.replace(found, by_site=by_site)
            return msgspec.structs.replace(step, found=found, missing=missing)
        url = step.next
    raise Refused(f"the links from {begun} lead in a circle, never to a Capability List")


def _with_others(found: Capabilities, others: tuple[str, ...]) -> Capabilities:
    """A plain sitemap is one of those that its site has; a Capability List names all there is."""
    if others and found.url != found.resourcelist:
        said = f"robots.txt names {len(others)} more sitemaps: taking {found.url} alone"
        log.warning("%s", without_tokens(said))
        return found
    return msgspec.structs.replace(found, other_sitemaps=others)


async def discover_sets(web: Web, url: str) -> list[str]:
    """The Capability Lists of all sets that the Source at this address offers.

    One that cannot be read is among them; whoever reads it learns what is wrong.
    """
    seen, waiting, found = set[str](), [url], dict[str, None]()
    while waiting:
        each = waiting.pop(0)
        if each in seen:
            continue
        seen.add(each)
        try:
            step = await _last_step(web, each)
            inside = list(step.sets) if step.found is None else [step.found.url]
        except (Rejected, TryAgain):
            if each == url:
                raise
            inside = [each]
        if len(inside) == 1:
            found[inside[0]] = None
        else:
            waiting += inside
        if len(found) + len(waiting) > MAX_SETS:
            raise Refused(f"{url} offers more than {MAX_SETS} sets: mirror some by their addresses")
    return list(found)


async def one_step(web: Web, url: str) -> DiscoveryStep:
    """What is at this address, or where it leads next; `Rejected` if nowhere."""
    page = await web.page(url)
    if page.status == 200 and (found := _read(page)) is not None:
        return found
    if _link_of(page) is None and (by_hub := await _named_by_hub(web, page)) is not None:
        return DiscoveryStep(found=by_hub)
    if not (is_front := urlsplit(url).path in ("", "/", WELL_KNOWN)):
        _check_right(web, url, page)  # a front that has no page is 403 with many servers
    if urlsplit(url).path.rstrip("/").lower().endswith(DOCUMENTS):
        return _beside_document(url, page)
    if page.status == 200 or is_front:
        return await _from_its_site(web, url, page)
    if _is_of_hub(page):
        return await _below(web, url, page)
    found = await _from_its_site(web, url, page)
    return msgspec.structs.replace(found, missing=f"{url} answers {page.status}")


def _check_right(web: Web, url: str, page: FetchedPage) -> None:
    """Raise the refusal of a token: only the server knows what is wrong with it."""
    if page.status in (401, 403):
        detail = detail_of(page.body) if web.headers(page.url) else None
        raise refused(url, page.status, detail, page.challenge)


def _is_of_hub(page: FetchedPage) -> bool:
    """Whether a hub answered: it gives its reason in a form that hardly anybody else uses."""
    return page.headers.get("content-type", "").startswith(PROBLEM)


def _beside_document(url: str, page: FetchedPage) -> DiscoveryStep:
    """Follow the links of what came instead of a document, perhaps a login page."""
    if page.status == 404 and not _is_of_hub(page):  # a hub knows which sets it has
        raise NotASource(url, page, f"{url}: there is nothing at this address", LOOK)
    if page.status != 200:
        raise refused(url, page.status, detail_of(page.body), page.challenge)
    if (link := _link_of(page)) is not None and joined(page.url, link) != url:
        return DiscoveryStep(next=joined(page.url, link))
    moved = "" if page.url == url else f" (it is redirected to {page.url})"
    if b"<html" not in page.body[:1024].lower():
        _document(page, asked=url)
    problem = f"{url} is no ResourceSync document{moved} and links to none"
    raise NotASource(url, page, problem, LOOK)


async def _below(web: Web, url: str, page: FetchedPage) -> DiscoveryStep:
    """Look for the Capability List that a hub has below this address.

    That is `http://hub/a/capabilitylist.xml` for `http://hub/a`.
    """
    name = urlsplit(page.url).path.strip("/")
    listed = await web.page(joined(page.url, f"/{name}/capabilitylist.xml"))
    _check_right(web, url, listed)
    if listed.status == 200 and (found := _read(listed)) is not None:
        return found
    said = None if "/" in name else detail_of(listed.body)  # no set has a name with a slash
    raise refused(url, page.status, said or detail_of(page.body), page.challenge)


def _document(page: FetchedPage, *, asked: str | None = None) -> tuple[Head, list[Entry]] | None:
    """The page as a ResourceSync document; if it is none, None, or an error if it must be one."""
    stream, entries = DocumentStream(), list[Entry]()
    try:
        for piece in islice(Unpacker().feed(page.body), BEGINNING_PIECES):
            entries += stream.feed(piece)
        entries += stream.close()
    except Rejected as error:
        if not stream.has_head or not _says_enough(page, stream.head, entries):
            if asked is not None:
                problem = f"{page.url} is no ResourceSync document: {error}"
                raise NotASource(asked, page, problem, LOOK) from None
            return None
    return stream.head, entries


def _says_enough(page: FetchedPage, head: Head, entries: Sequence[Entry]) -> bool:
    """Whether a document that cannot be read to its end does: a list by its head, a Source
    Description if it is long and has named more sets than anybody can choose from."""
    if head.md.capability in DESCRIPTIONS:
        return len(page.body) >= PAGE_BYTES and len(entries) > MAX_SETS
    return head.md.capability != "capabilitylist"


def _read(page: FetchedPage) -> DiscoveryStep | None:
    """Where a ResourceSync document leads, or None."""
    if (document := _document(page)) is None:
        return None
    head, entries = document
    if head.md.capability in ("change-notification", "framework-notification"):
        return None  # its Link header says more
    return found_in(page.url, head, entries)


def _link_of(page: FetchedPage, relation: str = "resourcesync") -> str | None:
    found = linked(page.headers.get("link", ""), relation)
    if found is None and "html" in page.headers.get("content-type", ""):
        found = linked_in_html(page.body.decode(errors="replace"), relation)
    return found


async def _from_its_site(web: Web, url: str, page: FetchedPage) -> DiscoveryStep:
    """Look for a link in the page, then at the well-known URI, then in robots.txt."""
    if (link := _link_of(page)) is not None and joined(page.url, link) != url:
        return DiscoveryStep(next=joined(page.url, link))
    described = await web.page(joined(url, WELL_KNOWN))
    if described.status == 200 and (found := _read(described)) is not None:
        return msgspec.structs.replace(found, by_site=True)
    robots = await web.page(joined(url, "/robots.txt"), accept="text/plain, */*;q=0.1")
    if robots.status == 200 and (maps := sitemaps_of(robots.body.decode(errors="replace"))):
        if len(maps) > MAX_SITEMAPS:
            raise Refused(
                f"{robots.url} names more than {MAX_SITEMAPS:,} sitemaps: give one of them"
            )
        first, *others = (joined(url, each) for each in maps)
        return DiscoveryStep(next=first, other_sitemaps=tuple(others), by_site=True)
    _check_right(web, url, page)
    _check_right(web, described.url, described)
    raise _nothing_found(url, page, described, robots)


def _nothing_found(
    url: str, page: FetchedPage, described: FetchedPage, robots: FetchedPage
) -> Refused:
    """The refusal of an address from which no way leads on; it names the ways that were tried."""
    if page.status not in (200, 404):
        return refused(url, page.status, None, page.challenge)
    is_there = page.status == 200
    found = (
        " leads to no ResourceSync document" if is_there else ": there is nothing at this address"
    )
    of_known = "which is no ResourceSync document" if described.status == 200 else described.status
    of_robots = "which names no sitemap" if robots.status == 200 else robots.status
    problem = (
        f"{url}{found}: tried were a link in the page or its header, {joined(url, WELL_KNOWN)} "
        f"({of_known}) and {joined(url, '/robots.txt')} ({of_robots})"
    )
    advice = "give the address of its Capability List or its sitemap"
    return NotASource(url, page, problem, advice)


async def socket_of_topic(web: Web, topic: str) -> str | None:
    """Ask the hub of a topic for the WebSocket beside it, if a Capability List names none."""
    try:
        found = await _named_by_hub(web, await web.page(topic))
    except (Rejected, TryAgain):
        return None
    return None if found is None else found.socket


async def _named_by_hub(web: Web, page: FetchedPage) -> Capabilities | None:
    """A topic is at its Source's own address, its set on the hub that the page names."""
    if page.status != 200:
        return None
    hub, topic = _link_of(page, "hub"), _link_of(page, "self")
    if hub is None or topic is None:
        return None
    topic = joined(page.url, topic)
    for url in await _sets_of_hub(web, joined(page.url, hub)):
        listed = await web.page(url)
        document = _document(listed) if listed.status == 200 else None
        if document is not None and (found := offered(listed.url, document[1])).topic == topic:
            return found
    return None


async def _sets_of_hub(web: Web, hub: str) -> list[str]:
    found, descriptions = await _described(web, joined(hub, WELL_KNOWN))
    for each in descriptions[:MAX_SETS_ASKED]:
        found += (await _described(web, each))[0]
        if len(found) > MAX_SETS_ASKED:
            break
    if max(len(found), len(descriptions)) > MAX_SETS_ASKED:
        log.warning("%s has more than %d sets: only so many are asked", hub, MAX_SETS_ASKED)
    return found[:MAX_SETS_ASKED]


async def _described(web: Web, url: str) -> tuple[list[str], list[str]]:
    """The Capability Lists that a Source Description names, or the descriptions that its index
    names."""
    page = await web.page(url)
    document = _document(page) if page.status == 200 else None
    if document is None or document[0].md.capability not in DESCRIPTIONS:
        return [], []
    found = [joined(page.url, entry.loc) for entry in document[1]]
    return ([], found) if document[0].root == "sitemapindex" else (found, [])


async def _of_channel(web: Web, url: str) -> Capabilities:
    """A channel by its ws address: its http twin may link to the Capability List."""
    twin = http_twin(url)
    page = await web.page(twin)
    _check_right(web, url, page)
    if page.status == 404 and _is_of_hub(page):
        raise refused(url, page.status, detail_of(page.body), page.challenge)
    link = _link_of(page) if page.status == 200 else None
    if link is None:
        return Capabilities(url, socket=url)
    found = await _walk(web, joined(twin, link), 1)
    return msgspec.structs.replace(found, socket=url)


def http_twin(url: str) -> str:
    """The http address of a channel's ws address."""
    return f"http{url.removeprefix('ws')}" if url.startswith(SOCKETS) else url
