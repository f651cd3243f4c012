"""What Change Lists and Resource Lists say before their entries, in every form.

The entries themselves are not here: a list may have 50,000.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from rsnotify.documents.documents import SnapshotTimes, resource_list, snapshot_md, up_link
from rsnotify.resourcesync.change import Link, Position, render_datetime, render_datetime_bytes
from rsnotify.resourcesync.forms import JSON, XML, Form
from rsnotify.resourcesync.fragments import resource_entries
from rsnotify.resourcesync.json_writer import json_frame
from rsnotify.resourcesync.notification import FROM_HEADER, change_list_index
from rsnotify.resourcesync.short_form import HOLE, LOC, LOC_END, shorten, spell_out
from rsnotify.resourcesync.xml_reader import change_of, parse_document
from rsnotify.resourcesync.xml_writer import Md, close_root, open_root

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
        """The same as HTTP headers, without the links: a list in lines has no other place."""
        told = {FROM_HEADER: self.md.from_, UNTIL_HEADER: self.md.until, AT_HEADER: self.md.at}
        return {name: value for name, value in told.items() if value is not None}


def change_list_head(
    base: str,
    set_name: str,
    from_: Position,
    until: Position | None,
    pages: Neighbours = Neighbours(),  # noqa: B008
) -> ListHead:
    """Of the changes in `(from_, until]`; without `until` the list is open."""
    md = Md(capability="changelist", from_=str(from_), until=None if until is None else str(until))
    index = Link(rel="index", href=base + change_list_index(set_name))
    return ListHead(md, (up_link(base, set_name), index, *_to(base, pages)), "changes")


def resource_list_head(
    base: str,
    set_name: str,
    times: SnapshotTimes,
    pages: Neighbours = Neighbours(),  # noqa: B008
    *,
    is_part: bool,
) -> ListHead:
    index = Link(rel="index", href=base + resource_list(set_name))
    links = (up_link(base, set_name), *([index] if is_part else []), *_to(base, pages))
    return ListHead(snapshot_md(times), links, "resources")


def _to(base: str, pages: Neighbours) -> Sequence[Link]:
    found = zip(("prev", "next"), pages, strict=True)
    return [Link(rel=rel, href=base + path) for rel, path in found if path is not None]


Resource = tuple[bytes, bytes]  # its escaped loc, and what is kept of its last change


def render_resources(resources: Iterable[Resource]) -> bytes:
    """The `<url>` elements of a Resource List."""
    return resource_entries(spell_out(b"".join([_filled(loc, kept) for loc, kept in resources])))


def _filled(loc: bytes, kept: bytes) -> bytes:
    """The fragment as it was stored; if no lastmod was given, it is the position."""
    digits, end, rest = _short(kept).partition(LOC_END)
    if rest.startswith(HOLE):
        rest = render_datetime_bytes(int(digits)) + rest[len(HOLE) :]
    return b"".join((LOC, loc, end, rest))


def _short(kept: bytes) -> bytes:
    """Development versions kept it as XML."""
    return kept if LOC_END in kept else shorten(kept)


def described(loc: bytes, kept: bytes) -> dict[str, Any]:
    """One resource in the form in which it is published, with the position of its last change."""
    entries = render_resources([(loc, kept)])
    document = parse_document(open_root("urlset") + entries + close_root("urlset"))
    fields: dict[str, Any] = msgspec.to_builtins(change_of(document.entries[0]))
    del fields["change"]
    return fields | {"datetime": render_datetime(int(_short(kept).partition(LOC_END)[0]))}
