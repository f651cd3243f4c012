"""Renders a set's current state as the entries of its Resource List.

`append.lua` keeps the state of a resource under its loc: the position of its last change in digits,
then the rest of the change's fragment, from `</loc>` on.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from rsnotify.resourcesync.change import render_datetime
from rsnotify.resourcesync.xml_reader import change_of, parse_document
from rsnotify.resourcesync.xml_writer import HOLE, close_root, open_root, resource_entries

Resource = tuple[bytes, bytes]  # its escaped loc, and what is kept of its last change


def render_resources(resources: Iterable[Resource]) -> bytes:
    """The `<url>` elements of a Resource List."""
    return resource_entries(b"".join([_filled(loc, kept) for loc, kept in resources]))


def _filled(loc: bytes, kept: bytes) -> bytes:
    """The fragment as it was stored; if no lastmod was given, it is the position."""
    digits, end, rest = kept.partition(_END_AND_HOLE)
    if end:
        end = b"</loc><lastmod>" + render_datetime(int(digits)).encode()
    else:
        rest = kept[kept.index(b"<") :]
    return b"".join((b"<url><loc>", loc, end, rest))


_END_AND_HOLE = b"</loc><lastmod>" + HOLE


def described(loc: bytes, kept: bytes) -> dict[str, Any]:
    """One resource in the form in which it is published, with the position of its last change."""
    entries = render_resources([(loc, kept)])
    document = parse_document(open_root("urlset") + entries + close_root("urlset"))
    fields: dict[str, Any] = msgspec.to_builtins(change_of(document.entries[0]))
    del fields["change"]
    return fields | {"datetime": render_datetime(int(kept.partition(b"<")[0]))}
