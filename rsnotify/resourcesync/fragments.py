"""A fragment: the finished `<url>` of a change, with a hole (a NUL byte) wherever its position
belongs.

It is written twice: as XML, which is told, and in the short form (`short_form`), which Redis keeps.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from rsnotify.resourcesync.change import Change, Link
from rsnotify.resourcesync.short_form import (
    HOLE,
    KIND,
    LENGTH,
    MD5,
    SHA_256,
    shorten,
)
from rsnotify.resourcesync.xml_writer import escape, is_plain, render_foreign, render_link

_HOLE = HOLE.decode()
_TEXT_FIELDS = (
    "loc",
    "change",
    "lastmod",
    "changefreq",
    "capability",
    "hash",
    "type",
    "encoding",
)


Forms = tuple[bytes, bytes]  # of one fragment: XML, short form


def render_forms(change: Change, *, foreign: Mapping[str, str] | None = None) -> Forms:
    """Its XML and its short form. `foreign`: attributes of other namespaces for its `rs:md`.

    Publishing spends most of its time here, so one check of all texts together decides whether any
    needs escaping, and what most changes have is not searched for: it is written in both forms.
    """
    c = change
    texts = (c.loc, c.change, c.lastmod, c.changefreq, c.capability, c.hash, c.type, c.encoding)
    if not is_plain("".join(filter(None, texts))):
        c = _escaped(c)
    xml = _xml(c, foreign).encode()
    has_more = foreign or c.links or c.index or c.changefreq or c.capability or c.encoding
    return xml, shorten(xml) if has_more else _short(c).encode()


def _xml(c: Change, foreign: Mapping[str, str] | None) -> str:
    md = (
        f' change="{c.change}" datetime="{_HOLE}"'
        f"""{f' capability="{c.capability}"' if c.capability else ""}"""
        f"""{f' hash="{c.hash}"' if c.hash else ""}"""
        f"""{f' length="{c.length}"' if c.length is not None else ""}"""
        f"""{f' type="{c.type}"' if c.type else ""}"""
        f"""{f' encoding="{c.encoding}"' if c.encoding else ""}"""
        f"{render_foreign(foreign) if foreign else ''}"
    )
    return (
        f"<url><loc>{c.loc}</loc><lastmod>{c.lastmod or _HOLE}</lastmod>"
        f"{f'<changefreq>{c.changefreq}</changefreq>' if c.changefreq else ''}"
        f"<rs:md{md}/>{_links(c) if c.links or c.index else ''}</url>"
    )


def _short(c: Change) -> str:
    """What `shorten` would make of it."""
    return (
        f"\x01{c.loc}\x02{c.lastmod or _HOLE}{KIND[c.change]}"
        f"{_short_hash(c.hash) if c.hash else ''}"
        f"{f'{LENGTH}{c.length}' if c.length is not None else ''}"
        f"{_short_type(c.type) if c.type else ''}\x03"
    )


def _short_hash(digests: str) -> str:
    if digests[:4] == "md5:":
        return MD5 + digests[4:]
    if digests[:8] == "sha-256:":
        return SHA_256 + digests[8:]
    return shorten(f'" hash="{digests}'.encode()).decode()


def _escaped(change: Change) -> Change:
    texts = {name: getattr(change, name) for name in _TEXT_FIELDS}
    return msgspec.structs.replace(
        change, **{name: escape(text) for name, text in texts.items() if text}
    )


@lru_cache(maxsize=256)
def _short_type(media_type: str) -> str:
    return shorten(f'" type="{media_type}'.encode()).decode()


def _links(change: Change) -> str:
    index = (Link(rel="index", href=change.index),) if change.index else ()
    return "".join(map(render_link, (*index, *change.links)))


_PATCH = re.compile(rb'<rs:ln rel="http://www\.openarchives\.org/rs/terms/patch"[^>]*/>')
_EMPTY_MD = re.compile(rb'<rs:md change="[^"]*" datetime="[^"]*"(?: capability="[^"]*")?/>')
_CHANGE_ONLY = re.compile(rb'<rs:md change="[^"]*" datetime="[^"]*"(?: capability="[^"]*")?')


def resource_entries(entries: bytes) -> bytes:
    """The entries of resources in the Resource List, made from the fragments of their last changes.

    What describes only the change is removed: `change`, `datetime`, `capability`, links to patches.
    """
    return _CHANGE_ONLY.sub(b"<rs:md", _EMPTY_MD.sub(b"", _PATCH.sub(b"", entries)))
