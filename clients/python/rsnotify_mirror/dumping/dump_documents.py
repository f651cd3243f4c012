"""The documents of a generation of dumps: what it names, and where. Pure.

Rules that hold here: a package and the documents of a generation have addresses of their own, which
never change; only the documents that Destinations know have the address of the newest. An index is
made where one document may not hold all. A state without a resource has no Resource Dump: the
schema refuses a document, and a manifest, that lists nothing.
"""

from collections.abc import Sequence
from itertools import takewhile

import msgspec
from msgspec.structs import replace

from rsnotify.resourcesync.change import Link
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, render_document
from rsnotify_mirror.dumping.package_writer import XML, ZIP, MadePackage

MAX_ENTRIES = 50_000
RESOURCE_DUMP, CHANGE_DUMP = "resourcedump.xml", "changedump.xml"
ARCHIVES = {RESOURCE_DUMP: "resourcedump-archive.xml", CHANGE_DUMP: "changedump-archive.xml"}
STRETCH = "changes.xml"  # the Change Dump of one generation alone
PACKAGES, GENERATIONS = "packages", "generations"


class Generation(msgspec.Struct, frozen=True):
    """One dump: the state of the copy at one moment, and what has changed since the one before."""

    name: str
    source: str
    up: str
    base: str
    at: str
    completed: str
    packages: tuple[MadePackage, ...]
    changes: tuple[MadePackage, ...] | None = None  # None: nothing says what has changed
    told: tuple[str, ...] = ()  # names of the packages of its Change Dump
    same_since: str | None = None  # if nothing has: since when, for the next Change Dump
    addresses: str | None = None  # of the copy's own files begin so; None: those of the Source

    @property
    def is_in_parts(self) -> bool:
        """Whether the Resource Dump is an index."""
        return len(self.packages) > MAX_ENTRIES


def documents_of(kept: Sequence[Generation], *, most: int = MAX_ENTRIES) -> dict[str, bytes]:
    """The documents of the newest of these generations, by name."""
    newest, stretches = kept[-1], stretches_of(kept)
    found = _resource_dump(newest, most) if newest.packages else {}
    past = [
        Entry(address(newest, each, RESOURCE_DUMP), md=Md(at=each.at, completed=each.completed))
        for each in kept[:-1]
        if each.packages
    ]
    if past:
        found[ARCHIVES[RESOURCE_DUMP]] = _archive("resourcedump", newest, past)
    if newest.changes:
        found[STRETCH] = _changes(newest, newest.changes, until=newest.at)
    if stretches:
        packages = [package for each in stretches for package in each.changes or ()]
        found[CHANGE_DUMP] = _changes(newest, packages)
        past = [Entry(address(newest, each, STRETCH), md=_span(each)) for each in stretches]
        found[ARCHIVES[CHANGE_DUMP]] = _archive("changedump", newest, past)
    return found


def stretches_of(kept: Sequence[Generation]) -> list[Generation]:
    """The last of them that say without a gap what has changed, where anything has."""
    row = takewhile(lambda each: each.changes is not None, reversed(kept))
    return [each for each in row if each.changes][::-1]


def address(newest: Generation, generation: Generation, name: str) -> str:
    """Where a document of a generation stays."""
    return f"{newest.base}{GENERATIONS}/{generation.name}/{name}"


def _resource_dump(newest: Generation, most: int) -> dict[str, bytes]:
    """One document, or an index and its parts."""
    md = Md(capability="resourcedump", at=newest.at, completed=newest.completed)
    up, entries = Link("up", newest.up), [_package(newest.base, each) for each in newest.packages]
    if len(entries) <= most:
        return {RESOURCE_DUMP: render_document(Document("urlset", md, (up,), tuple(entries)))}
    index = Link("index", f"{newest.base}{RESOURCE_DUMP}")
    parts = {
        f"resourcedump-{start // most + 1}.xml": render_document(
            Document("urlset", md, (up, index), tuple(entries[start : start + most]))
        )
        for start in range(0, len(entries), most)
    }
    named = tuple(Entry(address(newest, newest, name)) for name in parts)
    return {RESOURCE_DUMP: render_document(Document("sitemapindex", md, (up,), named)), **parts}


def _package(base: str, made: MadePackage) -> Entry:
    times = replace(made.md, capability=None)
    md = replace(times, hash=made.hash, length=made.length, type="application/zip")
    contents = Link("contents", f"{base}{PACKAGES}/{made.name}{XML}", type="application/xml")
    return Entry(f"{base}{PACKAGES}/{made.name}{ZIP}", md=md, links=(contents,))


def _changes(
    newest: Generation, packages: Sequence[MadePackage], until: str | None = None
) -> bytes:
    md = Md(capability="changedump", from_=packages[0].md.from_, until=until)
    entries = tuple(_package(newest.base, each) for each in packages)
    return render_document(Document("urlset", md, (Link("up", newest.up),), entries))


def _span(generation: Generation) -> Md:
    assert generation.changes  # noqa: S101
    return Md(from_=generation.changes[0].md.from_, until=generation.at)


def _archive(capability: str, newest: Generation, entries: Sequence[Entry]) -> bytes:
    md = Md(capability=f"{capability}-archive")
    return render_document(Document("urlset", md, (Link("up", newest.up),), tuple(entries)))
