"""The documents that a Destination can fetch: their paths and their content, and what is announced.

Paths get their base URL when a document is rendered. For Change Lists and Resource Lists, only what
comes before the entries is here: there may be 50,000 entries.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Self

import msgspec

from rsnotify.access.base_url import BASE_BYTES
from rsnotify.journal.window import Window
from rsnotify.resourcesync.change import Change, ChangeKind, Link, Position, render_datetime
from rsnotify.resourcesync.forms import JSON, JSONLD, TURTLE, XML, Form
from rsnotify.resourcesync.json_writer import json_frame
from rsnotify.resourcesync.notification import (
    FROM_HEADER,
    HOLE,
    KINDS,
    LOC,
    LOC_END,
    SOURCE_DESCRIPTION,
    ChannelName,
    Kind,
    capability_list,
    change_list_index,
    render_datetime_bytes,
    resource_entries,
    shorten,
    spell_out,
)
from rsnotify.resourcesync.tables import ARCHIVES, FRAMEWORK_CHANGES, LISTS, MAX_BYTES, MAX_ENTRIES
from rsnotify.resourcesync.xml_reader import change_of, parse_document
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, close_root, escape, open_root
from rsnotify.sets.options import SetRecord


class Offered(NamedTuple):
    """What a set offers: what its Source has chosen, and what the hub has made of it."""

    record: SetRecord
    has_resource_list: bool = False
    has_resource_list_archive: bool = False
    has_change_list_archive: bool = False
    changed: Position = Position(0)  # since when it has been this


class Snapshot(NamedTuple):
    """What is known of a snapshot: all changes up to `at` are in it; its parts are numbered from
    1."""

    name: str
    at: Position
    completed: Position
    parts: int
    resources: int
    counted: int = 0  # changes that the open window had when it was begun

    @property
    def begun(self) -> Position:
        """When it was begun, by the clock of Redis; snapshots are named after that."""
        return Position(int(self.name))

    @classmethod
    def from_fields(cls, fields: dict[bytes, bytes]) -> Self | None:
        if not fields:
            return None
        at, completed, parts, resources = (int(fields[name.encode()]) for name in cls._fields[1:5])
        name, counted = fields[b"name"].decode(), int(fields.get(b"counted", 0))
        return cls(name, Position(at), Position(completed), parts, resources, counted)

    def to_fields(self) -> dict[str, str | int]:
        return {
            name: int(value) if isinstance(value, int) else value
            for name, value in self._asdict().items()
        }


# Where each document is ------------------------------------------------------------------------


def source_description_part(number: int) -> str:
    """One of several Source Descriptions, whose index is then where the only one would be."""
    return f"{SOURCE_DESCRIPTION}/{number}.xml"


def socket_capability_list(set_name: str) -> str:
    """The Capability List of version 0.8."""
    return f"/{set_name}/capabilitylist-ws.xml"


def resource_list(set_name: str) -> str:
    return f"/{set_name}/resourcelist.xml"


def resource_list_archive(set_name: str) -> str:
    return f"/{set_name}/resourcelist-archive.xml"


def past_resource_list(set_name: str, snapshot: str) -> str:
    """One list, or an index of its parts; this path never changes."""
    return f"/{set_name}/resourcelist/{snapshot}.xml"


def resource_list_part(set_name: str, snapshot: str, number: int) -> str:
    return f"/{set_name}/resourcelist/{snapshot}-{number}.xml"


def open_list(set_name: str) -> str:
    return f"/{set_name}/changelist.xml"


def change_list(set_name: str, from_: Position) -> str:
    """The open or closed list of the window that begins here; this path never changes."""
    return f"/{set_name}/changelist/{from_}.xml"


def change_list_archive(set_name: str) -> str:
    return f"/{set_name}/changelist-archive.xml"


# Discovery -------------------------------------------------------------------------------------


OF_SET = len('<url><loc>/capabilitylist.xml</loc><rs:md capability="capabilitylist"/></url>')
OF_ALTERNATE = len('<rs:ln rel="alternate" href="/capabilitylist.xml" type="application/xml"/>')
OF_DESCRIBEDBY = len('<rs:ln rel="describedby" href=""/>')
HEAD_BYTES = 64 * 1024  # what stands around the entries, and to spare
MOST_DESCRIBED = MAX_BYTES - HEAD_BYTES  # bytes of entries in one Source Description


def most_bytes_of(record: SetRecord) -> int:
    """The entry of a set in a Source Description has no more bytes, whatever the base URL."""
    at = BASE_BYTES + len(f"/{record.name}")
    size = OF_SET + at
    if record.sockets_first:
        size += OF_ALTERNATE + at + len("-ws")
    if record.describedby is not None:
        size += OF_DESCRIBEDBY + len(escape(record.describedby).encode())
    return size


class DescribedSets(NamedTuple):
    """The names of all public sets in their order, in as many Source Descriptions as they need."""

    names: Sequence[str]
    firsts: Sequence[int] = (0,)  # where in the names each description begins

    @classmethod
    def of(
        cls, records: Iterable[SetRecord], most: int = MAX_ENTRIES, size: int = MOST_DESCRIBED
    ) -> Self:
        """`most`: sets that one description names; `size`: bytes of its entries."""
        public = sorted([each for each in records if not each.private], key=attrgetter("name"))
        firsts, left = [0], size
        for number, record in enumerate(public):
            taken = most_bytes_of(record)
            if number - firsts[-1] == most or taken > left:
                firsts.append(number)
                left = size
            left -= taken
        return cls([record.name for record in public], firsts)

    @property
    def parts(self) -> int:
        """How many Source Descriptions there are; several have an index."""
        return len(self.firsts)

    def part(self, number: int) -> Sequence[str]:
        """Those that this one names; they are numbered from 1."""
        first, *after = self.firsts[number - 1 : number + 1]
        return self.names[first : after[0] if after else None]

    def described_in(self, name: str) -> str:
        """The path of the Source Description that names this set, or would if it were public."""
        if self.parts == 1:
            return SOURCE_DESCRIPTION
        before = bisect_left(self.names, name)
        return source_description_part(bisect_right(self.firsts, before))


def source_description(
    base: str, sets: Iterable[SetRecord], describedby: str | None, *, is_part: bool = False
) -> Document:
    index = (Link(rel="index", href=base + SOURCE_DESCRIPTION),) if is_part else ()
    return Document(
        root="urlset",
        md=Md(capability="description"),
        links=(*index, *_about_hub(base, describedby)),
        entries=tuple(_of_set(base, record) for record in sets),
    )


def source_description_index(base: str, parts: int, describedby: str | None) -> Document:
    """The index of several Source Descriptions."""
    numbers = range(1, parts + 1)
    return Document(
        root="sitemapindex",
        md=Md(capability="description"),
        links=_about_hub(base, describedby),
        entries=tuple(Entry(loc=base + source_description_part(number)) for number in numbers),
    )


def _about_hub(base: str, describedby: str | None) -> tuple[Link, ...]:
    return _described(describedby) or tuple(_in_dcat(base))


def _of_set(base: str, record: SetRecord) -> Entry:
    """A set, by the Capability List that is named first; if it is not
    the usual one, that is its alternate."""
    loc = base + capability_list(record.name)
    links = _described(record.describedby)
    if record.sockets_first:
        links = (Link(rel="alternate", href=loc, type=XML.media_type), *links)
        loc = base + socket_capability_list(record.name)
    return Entry(loc=loc, md=Md(capability="capabilitylist"), links=links)


def _described(href: str | None) -> tuple[Link, ...]:
    return () if href is None else (Link(rel="describedby", href=href),)


def _in_dcat(of: str) -> Iterator[Link]:
    """What the hub itself says of this."""
    for form in (JSONLD, TURTLE):
        yield Link(rel="describedby", href=of + dcat_path(form), type=form.media_type)


def dcat_path(form: Form) -> str:
    """Behind the address of what is described."""
    return "/dcat.ttl" if form is TURTLE else "/dcat.jsonld"


def capabilities(base: str, offered: Offered, up: str = SOURCE_DESCRIPTION) -> Document:
    """The set's Capability List: WebSub topics, their WebSocket addresses as alternates. `up`: the
    path of the Source Description that names it."""
    return _capability_list(base, offered, up, socket_capability_list, _channel)


def socket_capabilities(base: str, offered: Offered, up: str = SOURCE_DESCRIPTION) -> Document:
    """The Capability List in version 0.8, where the URL of a channel is its WebSocket."""
    return _capability_list(base, offered, up, capability_list, _socket_channel)


def _capability_list(
    base: str,
    offered: Offered,
    up: str,
    twin: Callable[[str], str],
    channel: Callable[[str, SetRecord, Kind], Entry],
) -> Document:
    record = offered.record
    above = Link(rel="up", href=base + up)
    alternate = Link(rel="alternate", href=base + twin(record.name), type=XML.media_type)
    channels = (channel(base, record, kind) for kind in KINDS)
    of_set = f"{base}/{record.name}"
    return Document(
        root="urlset",
        md=Md(capability="capabilitylist"),
        links=(above, alternate, *(_described(record.describedby) or _in_dcat(of_set))),
        entries=(*_documents(base, offered), *channels),
    )


def _documents(base: str, offered: Offered) -> Iterator[Entry]:
    """The Source's own documents; where it has none, the hub's."""
    record = offered.record
    hubs = (
        ("resourcelist", resource_list, offered.has_resource_list),
        ("changelist", change_list_index, True),
        ("resourcelist-archive", resource_list_archive, offered.has_resource_list_archive),
        ("changelist-archive", change_list_archive, offered.has_change_list_archive),
    )
    found = {
        capability: base + path(record.name) for capability, path, is_there in hubs if is_there
    }
    found |= record.own_documents
    for capability in (*LISTS, *ARCHIVES):
        if capability in found:
            yield Entry(loc=found[capability], md=Md(capability=capability))


def _channel(base: str, record: SetRecord, kind: Kind) -> Entry:
    """The address of the Source's own channel, else of the hub's, as the Source calls it."""
    channel, own = ChannelName(record.name, kind), record.own_channel(kind)
    md = Md(capability=channel.capability)
    if own is not None:
        hub = record.channel_hub if own.startswith("http") else None
        return Entry(loc=own, md=md, links=() if hub is None else (Link(rel="hub", href=hub),))
    links = (
        Link(rel="hub", href=f"{base}/hub"),
        Link(rel="alternate", href=socket_address(base, channel)),
    )
    return Entry(loc=record.own_topic(kind) or base + channel.path, md=md, links=links)


def _socket_channel(base: str, record: SetRecord, kind: Kind) -> Entry:
    channel, own = ChannelName(record.name, kind), record.own_channel(kind) or ""
    loc = own if own.startswith("ws") else socket_address(base, channel)
    return Entry(loc=loc, md=Md(capability=channel.capability))


def socket_address(base: str, channel: ChannelName) -> str:
    scheme, separator, rest = base.partition("://")
    return f"{'wss' if scheme == 'https' else 'ws'}{separator}{rest}{channel.path}"


def robots(base: str, resource_lists: Iterable[str]) -> str:
    """The robots.txt for crawlers: all may be read, and here the resources are listed."""
    rules = ("User-agent: *", "Disallow:")
    maps = (f"Sitemap: {loc if '://' in loc else base + loc}" for loc in resource_lists)
    return "\n".join((*rules, *maps, ""))


# Change Lists ----------------------------------------------------------------------------------


def change_list_index_document(
    base: str,
    set_name: str,
    windows: Sequence[Window],
    open_from: Position,
    *,
    has_archive: bool = False,
) -> Document:
    """The Change List Index: the closed lists, oldest first, and the open one."""
    begin = windows[0].from_ if windows else open_from
    archive = Link(rel="archives", href=base + change_list_archive(set_name))
    opened = Entry(loc=base + change_list(set_name, open_from), md=Md(from_=str(open_from)))
    return Document(
        root="sitemapindex",
        md=Md(capability="changelist", from_=str(begin)),
        links=(up_link(base, set_name), archive) if has_archive else (up_link(base, set_name),),
        entries=(*_of_windows(base, set_name, windows), opened),
    )


def change_list_archive_document(base: str, set_name: str, windows: Sequence[Window]) -> Document:
    """The Change List Archive: closed lists that have left the index."""
    begin, end = windows[0].from_, windows[-1].until
    return Document(
        root="urlset",
        md=Md(capability="changelist-archive", from_=str(begin), until=str(end)),
        links=(up_link(base, set_name),),
        entries=tuple(_of_windows(base, set_name, windows)),
    )


def _of_windows(base: str, set_name: str, windows: Iterable[Window]) -> Iterator[Entry]:
    for window in windows:
        md = Md(from_=str(window.from_), until=str(window.until))
        yield Entry(loc=base + change_list(set_name, window.from_), md=md)


# Resource Lists --------------------------------------------------------------------------------


def resource_list_index_document(base: str, set_name: str, snapshot: Snapshot) -> Document:
    """The Resource List Index of a snapshot too large for one list."""
    md = Md(at=str(snapshot.at), completed=str(snapshot.completed))
    return Document(
        root="sitemapindex",
        md=snapshot_md(snapshot),
        links=(up_link(base, set_name),),
        entries=tuple(
            Entry(loc=base + resource_list_part(set_name, snapshot.name, number), md=md)
            for number in range(1, snapshot.parts + 1)
        ),
    )


def resource_list_archive_document(base: str, set_name: str, past: Iterable[Snapshot]) -> Document:
    """The Resource List Archive: lists that were replaced."""
    entries = (
        Entry(
            loc=base + past_resource_list(set_name, snapshot.name),
            md=Md(at=str(snapshot.at), completed=str(snapshot.completed)),
        )
        for snapshot in past
    )
    return Document(
        root="urlset",
        md=Md(capability="resourcelist-archive"),
        links=(up_link(base, set_name),),
        entries=tuple(entries),
    )


def snapshot_md(snapshot: Snapshot) -> Md:
    return Md(capability="resourcelist", at=str(snapshot.at), completed=str(snapshot.completed))


def up_link(base: str, set_name: str) -> Link:
    return Link(rel="up", href=base + capability_list(set_name))


AT_HEADER, UNTIL_HEADER = "Rsnotify-At", "Rsnotify-Until"


class Frame(NamedTuple):
    """What a document has before and after its entries."""

    head: bytes
    foot: bytes


class Neighbours(NamedTuple):
    """The addresses of the pages before and after."""

    prev: str | None = None
    next: str | None = None


class ListHead(NamedTuple):
    """The interval or the moment of a list, and its links."""

    md: Md
    links: Sequence[Link]
    entries: str  # how they are called in JSON

    def frame(self, form: Form) -> Frame:
        if form is XML:
            return Frame(open_root("urlset", self.links, self.md), close_root("urlset"))
        if form is JSON:
            return Frame(*json_frame(self.md, self.links, self.entries))
        return Frame(b"", b"")

    def headers(self) -> Mapping[str, str]:
        """The interval or moment as HTTP headers: a list in lines has no other place for it."""
        headers = {FROM_HEADER: self.md.from_, UNTIL_HEADER: self.md.until, AT_HEADER: self.md.at}
        return {name: value for name, value in headers.items() if value is not None}


def change_list_head(
    base: str,
    set_name: str,
    from_: Position,
    until: Position | None,
    pages: Neighbours = Neighbours(),  # noqa: B008
    whole: str | None = None,
) -> ListHead:
    """The head of a list of the changes in `(from_, until]`; without `until` it is open. `whole`:
    the address of the list of which this one has a part, which that says of itself (RFC 6596)."""
    md = Md(capability="changelist", from_=str(from_), until=None if until is None else str(until))
    index = Link(rel="index", href=base + change_list_index(set_name))
    links = (up_link(base, set_name), index, *_to(base, pages))
    if whole is not None:
        links = (*links, Link(rel="canonical", href=base + whole))
    return ListHead(md, links, "changes")


def resource_list_head(
    base: str,
    set_name: str,
    snapshot: Snapshot,
    pages: Neighbours = Neighbours(),  # noqa: B008
    *,
    is_part: bool,
) -> ListHead:
    index = Link(rel="index", href=base + resource_list(set_name))
    links = (up_link(base, set_name), *([index] if is_part else []), *_to(base, pages))
    return ListHead(snapshot_md(snapshot), links, "resources")


def _to(base: str, pages: Neighbours) -> Sequence[Link]:
    found = zip(("prev", "next"), pages, strict=True)
    return [Link(rel=rel, href=base + path) for rel, path in found if path is not None]


StoredResource = tuple[bytes, bytes]  # its escaped loc, and what is kept of its last change


def render_resources(resources: Iterable[StoredResource]) -> bytes:
    """The `<url>` elements of a Resource List."""
    return resource_entries(spell_out(b"".join([_filled(loc, kept) for loc, kept in resources])))


def _filled(loc: bytes, kept: bytes) -> bytes:
    """The entry of a stored fragment; if no lastmod was given, it is the position."""
    digits, end, rest = _short(kept).partition(LOC_END)
    if rest.startswith(HOLE):
        rest = render_datetime_bytes(int(digits)) + rest[len(HOLE) :]
    return b"".join((LOC, loc, end, rest))


def _short(kept: bytes) -> bytes:
    """Read what is kept of a resource; development versions kept it as XML."""
    return kept if LOC_END in kept else shorten(kept)


def described(loc: bytes, kept: bytes) -> dict[str, Any]:
    """One resource in the form in which it is published, with the position of its last change."""
    entries = render_resources([(loc, kept)])
    document = parse_document(open_root("urlset") + entries + close_root("urlset"))
    fields: dict[str, Any] = msgspec.to_builtins(change_of(document.entries[0]))
    del fields["change"]
    return fields | {"datetime": render_datetime(kept_position(kept))}


def kept_position(kept: bytes) -> Position:
    """The position of the last change of a resource of which this is kept."""
    return Position(int(_short(kept).partition(LOC_END)[0]))


# --- what of a set's documents has been announced, and what is to be announced next --------------


class Announced(msgspec.Struct, frozen=True):
    """A set's documents as they were announced."""

    number: int  # how often something was announced
    digest: str  # of the Capability List's bytes
    archive: str = ""  # what the hub's Change List Archive covers; nothing if there is none
    own: Mapping[str, str] = {}  # the Source's own documents, by capability

    def is_same(self, other: "Announced") -> bool:
        return msgspec.structs.replace(other, number=self.number) == self


def framework_changes(
    announced: Announced, now: Announced, base: str, set_name: str
) -> Iterator[Change]:
    """The changes to announce; a document of the Source is new at each new address."""
    if now.digest != announced.digest:
        loc = base + capability_list(set_name)
        yield Change(loc, "updated", capability="capabilitylist")
    if now.archive != announced.archive:
        change: ChangeKind = (
            "deleted" if not now.archive else "updated" if announced.archive else "created"
        )
        loc = base + change_list_archive(set_name)
        yield Change(loc, change, capability="changelist-archive")
    for capability, loc in now.own.items():
        if announced.own.get(capability) != loc:
            yield Change(loc, FRAMEWORK_CHANGES[capability][0], capability=capability)
