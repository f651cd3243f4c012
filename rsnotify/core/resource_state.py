"""Renders a set's current state as the entries of its Resource List.

`append.lua` keeps the state of a resource under its loc: the position of its last change in digits,
then the rest of the change's fragment, from `</loc>` on.
"""

from collections.abc import Iterable

from rsnotify.resourcesync.change import render_datetime
from rsnotify.resourcesync.xml_writer import HOLE, resource_fragment

Resource = tuple[bytes, bytes]  # its escaped loc, and what is kept of its last change


def render_resources(resources: Iterable[Resource]) -> bytes:
    """The `<url>` elements of a Resource List."""
    return b"".join([_render(loc, kept) for loc, kept in resources])


def _render(loc: bytes, kept: bytes) -> bytes:
    digits, end, rest = kept.partition(b"</loc>")
    entry = resource_fragment(b"".join((b"<url><loc>", loc, end, rest)))
    if HOLE in entry:  # no lastmod was given: it is the position
        return entry.replace(HOLE, render_datetime(int(digits)).encode())
    return entry
