"""Walks over the documents of a Source and the packages of its dumps, and judges each.

Rules that hold here: what a Source may have us read and unpack is bounded in number, depth and
bytes, of all packages together too; a document is fetched once; what could not be fetched is a
violation only if the document that named it still does, for a Source changes while it is looked at.
"""

import asyncio
import zipfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import aclosing
from tempfile import TemporaryFile
from typing import BinaryIO, NamedTuple, cast

import msgspec

from rsnotify.errors import Rejected, TryAgain
from rsnotify.gunzip import BrokenGzip
from rsnotify.resourcesync.change import Link
from rsnotify.resourcesync.document_rules import Violation, Violations, judge_document
from rsnotify.resourcesync.tables import ARCHIVES, LISTS, MAX_BYTES, as_of_today
from rsnotify.resourcesync.xml_reader import parse_document
from rsnotify.resourcesync.xml_writer import Document, Entry, Md
from rsnotify_client.discovery import UP, linked
from rsnotify_client.documents import next_after
from rsnotify_client.dumps import MANIFEST, Package, Packed
from rsnotify_client.resource import Check
from rsnotify_client.web import XML_FIRST, FetchedPage, check_status, unpacked
from rsnotify_mirror.inspection import relations
from rsnotify_mirror.inspection.contents import NAMED, Contents, Found
from rsnotify_mirror.inspection.relations import (
    NamedDocument,
    NamedPackage,
    Span,
    capability_of,
    is_index,
    link_of,
    named_in,
)
from rsnotify_mirror.inspection.samples import (
    PACKAGE,
    Asking,
    Bounds,
    Checked,
    LinkedResource,
    Sample,
    Unjudged,
    linked_from,
    sampled,
)
from rsnotify_mirror.plan import media_type

BELOW = (*LISTS, *ARCHIVES)  # whose `up` is the Capability List
RESOURCES = ("resourcelist", "changelist", "resourcedump-manifest", "changedump-manifest")
UNTYPED = ("", "text/plain", "application/octet-stream", "binary/octet-stream")
PACKED = ("application/gzip", "application/x-gzip")

Report = Callable[[Checked], None]


class TooLong(Rejected):
    """A document that is longer than may be read."""


class _Place(NamedTuple):
    """Where to look, and why."""

    named: NamedDocument
    namer: str  # the address of the document that names it; nothing for where we began
    depth: int


class Documents:
    """The documents of a Source, as far as they were reached."""

    def __init__(self, asking: Asking, bounds: Bounds, report: Report, contents: Contents) -> None:
        self.read: dict[str, Document] = {}  # lists of resources and changes without their entries
        self.checked: dict[str, Checked] = {}
        self.relations: list[Found] = []
        self._related: set[tuple[str, str, str]] = set()
        self.samples: list[list[Sample]] = []  # of each document
        self.links: list[list[LinkedResource]] = []
        self.beyond = 0  # documents that are named, but beyond the bounds
        self.report = report
        self.asking = asking
        self._bounds = bounds
        self._contents = contents
        self._left_bytes = bounds.total_bytes
        self._left_entries = bounds.entries
        self._namer: dict[str, str] = {}
        self._waiting: deque[_Place] = deque()

    def begin_at(self, url: str, capability: str = "", *, namer: str = "") -> None:
        """Look here; a sitemap without a capability is no document of ResourceSync, nor wrong."""
        self._waiting.append(_Place(NamedDocument(url, capability, "begin"), namer, 0))

    async def walk(self) -> None:
        """Read all that can be reached, the nearest first."""
        while self._waiting:
            place = self._waiting.popleft()
            if place.named.url in self.checked:
                self._compare(place)
            elif self._is_beyond(place):
                self.beyond += 1
            else:
                await self._visit(place)

    def _is_beyond(self, place: _Place) -> bool:
        is_full = len(self.checked) >= self._bounds.documents or self._left_bytes <= 0
        return is_full or place.depth > self._bounds.depth

    async def _visit(self, place: _Place) -> None:
        url = place.named.url
        checked = self.checked[url] = Checked(url, place.named.capability or "document")
        self.report(checked)
        self._namer[url] = place.namer
        try:
            page = await fetched(self.asking, url, min(MAX_BYTES, self._left_bytes))
        except Unjudged as error:
            checked.error = str(error)
        except TooLong as error:
            self._too_long(checked, error)
        except Rejected as error:
            if await self._is_still_named(place):
                checked.violations.append(_not_there(error.detail))
            else:
                checked.note = "it was replaced meanwhile"
        except TryAgain as error:
            checked.violations.append(_not_there(error.detail))
        else:
            self._left_bytes -= len(page.body)
            self._judge(place, checked, page)

    def _too_long(self, checked: Checked, error: TooLong) -> None:
        """Say of a document that it is too long, or that too much was read before it."""
        if self._left_bytes < MAX_BYTES:
            checked.error = "it was not read to its end: too many bytes together"
            self.beyond += 1
        else:
            checked.violations.append(_not_there(error.detail))
        self._left_bytes = max(0, self._left_bytes - MAX_BYTES)

    async def _is_still_named(self, place: _Place) -> bool:
        document = await self.again(place.namer) if place.namer else None
        if document is None:
            return True
        return place.named.url in {each.url for each in named_in(place.namer, document)}

    async def again(self, url: str) -> Document | None:
        """The document as it is now, if it can be read."""
        try:
            return parsed(await fetched(self.asking, url, MAX_BYTES))
        except (Rejected, TryAgain, Unjudged):
            return None

    def _judge(self, place: _Place, checked: Checked, page: FetchedPage) -> None:
        url = place.named.url
        try:
            document = parsed(page)
        except Rejected:
            checked.violations += judge_document(page.body).violations
            return
        if relations.is_plain_sitemap(document) and place.named.relation == "begin":
            checked.kind = "sitemap"
            return
        checked.kind, checked.edition, violations = judge_document(page.body)
        elsewhere = list(page_elsewhere(page, document))
        checked.violations += [*violations, *relations.names_nothing(document)]
        checked.violations += [*served_as(page, document), *elsewhere]
        if place.namer:
            self._relate(url, relations.unlike(place.named, document, place.namer))
        if place.named.relation == "next" and place.namer in self.read:
            self._relate(url, relations.no_page(self.read[place.namer], document))
        self._keep(url, document, checked)
        for named in named_in(url, document) if url in self.read else ():
            is_page = named.relation == "next"
            if is_page and elsewhere:
                continue
            depth = place.depth if is_page else place.depth + 1
            self._waiting.append(_Place(named, url, depth))

    def _keep(self, url: str, document: Document, checked: Checked) -> None:
        """What is needed to hold it against others."""
        self.samples.append(sampled(document, self._bounds.samples))
        self.links.append(linked_from(url, document, self._bounds.links))
        if document.root == "urlset" and capability_of(document) in RESOURCES:
            by_lastmod = checked.edition in ("0.9", "draft of 2013")
            self._contents.add(url, document.entries, by_lastmod=by_lastmod)
            document = msgspec.structs.replace(document, entries=())
        elif len(document.entries) > self._left_entries:
            checked.error = "its entries were not followed: too many of all documents together"
            self.beyond += len(document.entries)
            return
        self._left_entries -= len(document.entries)
        self.read[url] = document

    def _compare(self, place: _Place) -> None:
        """Compare a document that was read already with one more that names it."""
        document = self.read.get(place.named.url)
        if document is not None and place.namer:
            self._relate(place.named.url, relations.unlike(place.named, document, place.namer))

    # The whole ----------------------------------------------------------------------------------

    def look_at_all(self) -> list[Found]:
        """What documents say of each other, and does not fit."""
        self.relations += relations.round_in_circles(self.read)
        for url, document in self.read.items():
            up = link_of(url, document, *UP)
            if up is not None and capability_of(document) in BELOW:
                self._relate(url, relations.wrong_way_up(up, list(self._chain(url)), self.read))
            self._relate(url, relations.not_in_its_index(url, document, self.read))
            spans = self._spans(url, document)
            self._relate(url, relations.not_consecutive(document, spans))
            self._relate(url, relations.unlike_its_lists(document, spans))
            is_snapshot = capability_of(document) in relations.SNAPSHOTS
            for named in named_in(url, document) if is_snapshot else ():
                if named.relation in ("contained", "contents"):
                    part = self.read.get(named.url)
                    found = relations.before_the_whole(document, named, part.md if part else None)
                    self._relate(url if part is None else named.url, found)
            if capability_of(document) == "capabilitylist":
                self._archives_of(url, document)
        sets = {url: self._set_of(url) for url in self.read}
        self.relations += self._contents.compared(self.read, sets)
        return self.relations

    def _relate(self, url: str, found: Violations) -> None:
        """One is enough of what several documents say of the same place."""
        for each in found:
            key = url, each.clause, each.path
            if key not in self._related:
                self._related.add(key)
                self.relations.append((url, each))

    def _chain(self, url: str) -> Iterator[str]:
        seen = {""}
        while url not in seen:
            yield url
            seen.add(url)
            if url in self.read and capability_of(self.read[url]) == "capabilitylist":
                return
            url = self._namer.get(url, "")

    def _set_of(self, url: str) -> str:
        """The Capability List that it belongs to."""
        named = (link_of(url, self.read[url], each) for each in reversed(UP))
        for each in (*named, *self._chain(url)):
            if each in self.read and capability_of(self.read[each]) == "capabilitylist":
                return each
        return ""

    def _spans(self, url: str, document: Document) -> list[Span]:
        """Of each list that an index or an archive names, on its next pages, too."""
        if link_of(url, document, "prev") is not None:
            return []
        return [
            self._span(named)
            for page in relations.pages(url, self.read)
            for named in named_in(page, self.read[page])
            if named.relation == "contained"
        ]

    def _span(self, named: NamedDocument) -> Span:
        """What its namer says of a list, else what the list says of itself."""
        stated = relations.span_of(named.entry.md if named.entry else None)
        own = relations.span_of(self.read[named.url].md if named.url in self.read else None)
        return stated[0] or own[0], stated[1] or own[1]

    def _archives_of(self, url: str, document: Document) -> None:
        named = {each.capability: each.url for each in named_in(url, document)}
        for capability in ("changelist", "changedump"):
            begun, archive = named.get(capability), named.get(capability + relations.ARCHIVE)
            if begun not in self.read or archive not in self.read:
                continue
            index = link_of(begun, self.read[begun], "index") or begun
            whole = self.read.get(index, self.read[begun])
            archives = [archive, *relations.parts_of(archive, self.read[archive])]
            spans = [
                span
                for each in archives
                if each in self.read and not is_index(self.read[each])
                for span in self._spans(each, self.read[each])
            ]
            own = [relations.span_of(whole.md), *self._spans(index, whole)]
            begins = min((begin for begin, _ in own if begin is not None), default=None)
            self._relate(index, relations.archive_apart(capability, begins, spans))


def parsed(page: FetchedPage) -> Document:
    """The document, with the next page that the header names if it names none itself."""
    document = parse_document(as_of_today(page.body)[0])
    after = linked(page.headers.get("link", ""), "next")
    if after is None or link_of(page.url, document, "next") is not None:
        return document
    return msgspec.structs.replace(document, links=(*document.links, Link("next", after)))


def page_elsewhere(page: FetchedPage, document: Document) -> Violations:
    """Whether the next page is one that clients go to; those that go round are found later."""
    after = link_of(page.url, document, "next")
    try:
        if after is not None and after != page.url:
            next_after([page.url], page.url, after)
    except Rejected as error:
        path = f"/{document.root}/rs:ln[@rel='next']"
        yield Violation("RFC 8288", path, error.detail, "Let all pages be at one host.")


def served_as(page: FetchedPage, document: Document) -> Violations:
    """Whether a document is served as something else; what says nothing is not wrong."""
    kind = media_type(page.headers.get("content-type"))
    is_xml = kind.endswith(("/xml", "+xml")) and kind != "application/xhtml+xml"
    if not is_xml and kind not in (*UNTYPED, *PACKED):
        message = f"it is served as {kind}"
        yield Violation("Core 7", f"/{document.root}", message, "Serve it as application/xml.")


def _not_there(detail: str) -> Violation:
    return Violation("Core 7", "/", detail, "Serve it, or name it no longer.")


async def fetched(asking: Asking, url: str, cap: int) -> FetchedPage:
    """A document, unpacked if it is packed; `Rejected` says why there is none."""
    body = bytearray()
    async with asking.ask(url, headers={"Accept": XML_FIRST, "Accept-Encoding": "gzip"}) as answer:
        check_status(url, answer)
        try:
            async with aclosing(unpacked(answer)) as pieces:
                async for piece in pieces:
                    body += piece
                    if len(body) > cap:
                        raise TooLong(f"{url} has more than {cap} bytes when it is unpacked")
        except BrokenGzip as error:
            raise Rejected(f"{url}: {error.detail}") from None
        return FetchedPage(url, answer.status, answer.headers, bytes(body))


ADVICE = "Write the package, its manifest and its dump together."


class Packages:
    """The packages of all dumps that were read."""

    def __init__(self, documents: Documents, contents: Contents, bounds: Bounds) -> None:
        self.unopened = 0
        self._documents = documents
        self._contents = contents
        self._bounds = bounds
        self._left_bytes = bounds.package_bytes
        self._left_unpacked = bounds.unpacked_bytes

    async def check(self) -> list[Checked]:
        read = self._documents.read.items()
        named = [each for url, document in read for each in relations.packages_in(url, document)]
        self.unopened = max(0, len(named) - self._bounds.packages)
        return [await self._checked(each) for each in named[: self._bounds.packages]]

    async def _checked(self, named: NamedPackage) -> Checked:
        checked = Checked(named.url, PACKAGE)
        self._documents.report(checked)
        try:
            with TemporaryFile() as opened:
                file = cast("BinaryIO", opened)
                differs = await self._fetch(named, file)
                found = [] if differs else await asyncio.to_thread(self._inside, named, file)
        except Unjudged as error:
            checked.error = str(error)
        except (Rejected, TryAgain) as error:
            checked.violations = [_wrong(error.detail)]
        else:
            checked.violations = [*differs, *found]
        if checked.violations and not await self._is_still_named(named):
            checked.violations, checked.note = [], "it was replaced meanwhile"
        return checked

    async def _is_still_named(self, named: NamedPackage) -> bool:
        document = await self._documents.again(named.dump)
        return document is None or named in relations.packages_in(named.dump, document)

    async def _fetch(self, named: NamedPackage, file: BinaryIO) -> list[Violation]:
        """Fetch it into the file; return where it differs from what the dump says."""
        check = Check(named.md.length, named.md.hash)
        async with self._documents.asking.ask(named.url) as answer:
            check_status(named.url, answer)
            async for piece in answer.pieces():
                self._left_bytes -= len(piece)
                if self._left_bytes < 0:
                    raise Unjudged("it was not read to its end: the packages are too long together")
                file.write(piece)
                check.update(piece)
        wrong = check.problem()
        return [_wrong(wrong)] if wrong else []

    # What is in it ------------------------------------------------------------------------------

    def _inside(self, named: NamedPackage, file: BinaryIO) -> list[Violation]:
        """In a thread, which is waited for."""
        package = Package(file, named.url)
        found = self._manifest(named, file, package)
        members = (self._member(package, each) for each in package.resources())
        wrong = [each for each in members if each is not None]
        wrong += [_wrong(each.removeprefix(f"{named.url} ")) for each in package.refused]
        found += wrong[:NAMED]
        if len(wrong) > NAMED:
            found.append(_wrong(f"the same of {len(wrong) - NAMED} more resources"))
        return found

    def _manifest(self, named: NamedPackage, file: BinaryIO, package: Package) -> list[Violation]:
        """Judge the manifest in the package; compare it with its copy outside, if there is one."""
        body = _manifest_of(file)
        if body is None:
            return []  # `Package` says so
        found = [_inside_of(each) for each in judge_document(body).violations]
        try:
            document = parse_document(as_of_today(body)[0])
        except Rejected:
            return found
        stated = NamedDocument(named.url, named.capability, "contents", Entry(md=named.md))
        found += [_inside_of(each) for each in relations.unlike(stated, document, named.dump)]
        read = self._documents.read
        self._contents.add(named.url, document.entries)
        if named.contents is None:
            read[named.url] = msgspec.structs.replace(document, entries=())
        elif named.contents in read and not found:
            loc = self._contents.differ(named.url, named.contents)
            if loc is not None:
                found.append(
                    _wrong(f"{MANIFEST} does not say the same of {loc} as {named.contents}")
                )
        unnamed = package.unnamed(document.entries)
        if unnamed:
            more = f" and {len(unnamed) - 1} more" if len(unnamed) > 1 else ""
            found.append(
                _wrong(f"it holds {unnamed[0][:200]!r}{more}, which {MANIFEST} does not name")
            )
        return found

    def _member(self, package: Package, packed: Packed) -> Violation | None:
        md = packed.entry.md or Md()
        check = Check(md.length, md.hash)
        try:
            for piece in package.content(packed):
                self._left_unpacked -= len(piece)
                if self._left_unpacked < 0:
                    raise Unjudged("not all that is in it was unpacked: too many bytes together")
                check.update(piece)
        except Rejected as error:
            return _wrong(error.detail)
        wrong = check.problem()
        return _wrong(f"{packed.path}: {wrong}") if wrong else None


def _manifest_of(file: BinaryIO) -> bytes | None:
    """`Package` has judged the file before, and reads it again."""
    with zipfile.ZipFile(file) as package:
        names = {name.lstrip("/"): name for name in package.namelist()}
        if MANIFEST not in names:
            return None
        with package.open(names[MANIFEST]) as member:
            return member.read(MAX_BYTES + 1)


def _inside_of(found: Violation) -> Violation:
    return msgspec.structs.replace(found, path=f"{MANIFEST}{found.path}")


def _wrong(detail: str) -> Violation:
    return Violation("Core 11.1", "/", detail, ADVICE)
