"""Changes as an Atom feed: RFC 4287, with archives (RFC 5005) and deleted entries (RFC 6721).

An entry stands for a resource at the time of a change; its id is the address of the resource. It is
made of the change as the journal has it, whose text is escaped already.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.change_filter import FORMER
from rsnotify.resourcesync.forms import Form
from rsnotify.resourcesync.notification import Row, render_datetime_bytes
from rsnotify.resourcesync.xml_writer import escape

ATOM = Form("atom", "application/atom+xml")
OPENING = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<feed xmlns="http://www.w3.org/2005/Atom" xmlns:fh="http://purl.org/syndication/history/1.0"'
    ' xmlns:at="http://purl.org/atompub/tombstones/1.0">'
)
CLOSING = b"</feed>\n"

_LOC = re.compile(rb"<url><loc>([^<]*)</loc>")
_CHANGE = re.compile(rb'<rs:md change="([^"]*)"([^>]*)/>')
_TYPE = re.compile(rb' type="([^"]*)"')
_LENGTH = re.compile(rb' length="([^"]*)"')
_LINK = re.compile(rb'<rs:ln rel="([^"]*)" href="([^"]*)"([^>]*)/>')
_PATCH = b"http://www.openarchives.org/rs/terms/patch"
_FORMER = FORMER.encode()


class FeedHead(NamedTuple):
    """What a document of a feed says before its entries; `links` by their relations."""

    id: str
    title: str
    updated: Position
    links: Mapping[str, str]
    is_archive: bool = False


def render_feed(head: FeedHead, rows: Sequence[Row]) -> bytes:
    """A document of a feed; the newest change stands first."""
    links = "".join(
        f'<link rel="{rel}" type="{ATOM.media_type}" href="{escape(href)}"/>'
        for rel, href in head.links.items()
    )
    title = escape(head.title)
    said = (
        f"{OPENING}<id>{escape(head.id)}</id><title>{title}</title>"
        f"<updated>{head.updated}</updated><author><name>{title}</name></author>{links}"
        f"{'<fh:archive/>' if head.is_archive else ''}"
    )
    return b"".join((said.encode(), *(_entry(row) for row in reversed(rows)), CLOSING))


def _entry(row: Row) -> bytes:
    at, fragment = row
    when = render_datetime_bytes(at)
    loc, change = _LOC.match(fragment), _CHANGE.search(fragment)
    if loc is None or change is None:
        raise ValueError(f"the change at {at} is none")
    if change[1] == b"deleted":
        return b'<at:deleted-entry ref="%b" when="%b"/>' % (loc[1], when)
    links = b"".join(_links(loc[1], change[2], fragment))
    return b"<entry><id>%b</id><title>%b</title><updated>%b</updated>%b</entry>" % (
        loc[1],
        loc[1],
        when,
        links,
    )


def _links(loc: bytes, md: bytes, fragment: bytes) -> Iterator[bytes]:
    attributes = b"".join(found[0] for name in (_TYPE, _LENGTH) if (found := name.search(md)))
    yield b'<link rel="alternate" href="%b"%b/>' % (loc, attributes)
    for rel, href, rest in _LINK.findall(fragment):
        if rel not in (_PATCH, _FORMER, b"alternate"):
            kind = _TYPE.search(rest)
            yield b'<link rel="%b" href="%b"%b/>' % (rel, href, kind[0] if kind else b"")
