"""A fragment: the finished `<url>` of a change, with a hole (a NUL byte) wherever its position
belongs.

It is written twice: as XML, which readers get, and in the short form (`short_form`), which Redis
keeps.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from operator import attrgetter

import msgspec

from rsnotify.resourcesync.change import ATTRIBUTES, ELEMENTS, USUAL, Change, Link, is_usual
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
_ELEMENTS = ELEMENTS[2:]  # every entry has the others
_ATTRIBUTES = tuple(name for name in ATTRIBUTES if name not in USUAL)
_TEXTS = tuple(name for name in (*ELEMENTS, *ATTRIBUTES) if name not in ("length", "priority"))
_texts = attrgetter(*_TEXTS)


Forms = tuple[bytes, bytes]  # of one fragment: XML, short form


def render_forms(change: Change, *, foreign: Mapping[str, str] | None = None) -> Forms:
    """Its XML and its short form. `foreign`: attributes of other namespaces for its `rs:md`.

    Publishing spends most of its time here, so one check of all texts together decides whether any
    needs escaping, and what most changes have is not searched for: it is written in both forms.
    """
    c = change
    usual = is_usual(c) and not foreign
    texts = (c.loc, c.change, c.lastmod, c.hash, c.type) if usual else _texts(c)
    if not is_plain("".join(filter(None, texts))):
        c = _escaped(c)
    if usual:
        return _xml(c).encode(), _short(c).encode()
    elements = "".join(
        f"<{name}>{value}</{name}>" for name in _ELEMENTS if (value := getattr(c, name)) is not None
    )
    attributes = "".join(
        f' {name}="{value}"' for name in _ATTRIBUTES if (value := getattr(c, name)) is not None
    )
    xml = _xml(c, elements, attributes + render_foreign(foreign or {}), _links(c)).encode()
    return xml, shorten(xml)


def _xml(c: Change, elements: str = "", attributes: str = "", links: str = "") -> str:
    return (
        f"<url><loc>{c.loc}</loc><lastmod>{c.lastmod or _HOLE}</lastmod>{elements}"
        f'<rs:md change="{c.change}" datetime="{_HOLE}"'
        f"""{f' hash="{c.hash}"' if c.hash else ""}"""
        f"""{f' length="{c.length}"' if c.length is not None else ""}"""
        f"""{f' type="{c.type}"' if c.type else ""}"""
        f"{attributes}/>{links}</url>"
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
    texts = zip(_TEXTS, _texts(change), strict=True)
    return msgspec.structs.replace(change, **{name: escape(text) for name, text in texts if text})


@lru_cache(maxsize=256)
def _short_type(media_type: str) -> str:
    return shorten(f'" type="{media_type}'.encode()).decode()


def _links(change: Change) -> str:
    index = (Link(rel="index", href=change.index),) if change.index else ()
    return "".join(map(render_link, (*index, *change.links)))


_PATCH = re.compile(rb'<rs:ln rel="http://www\.openarchives\.org/rs/terms/patch"[^>]*/>')
_EMPTY_MD = re.compile(rb'<rs:md change="[^"]*" datetime="[^"]*"/>')
_CHANGE_ONLY = re.compile(rb'<rs:md change="[^"]*" datetime="[^"]*"')


def resource_entries(entries: bytes) -> bytes:
    """The entries of resources in the Resource List, made from the fragments of their last changes.

    What describes only the change is removed: `change`, `datetime`, links to patches.
    """
    return _CHANGE_ONLY.sub(b"<rs:md", _EMPTY_MD.sub(b"", _PATCH.sub(b"", entries)))
