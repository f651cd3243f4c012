"""Renders a set's current state as the entries of its Resource List.

`append.lua` keeps the state of a resource under its loc: the position of its last change in digits,
then the rest of the change's fragment, from `</loc>` on, in its short form.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from rsnotify.resourcesync.change import render_datetime, render_datetime_bytes
from rsnotify.resourcesync.fragments import resource_entries
from rsnotify.resourcesync.short_form import HOLE, LOC, LOC_END, shorten, spell_out
from rsnotify.resourcesync.xml_reader import change_of, parse_document
from rsnotify.resourcesync.xml_writer import close_root, open_root

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
