"""A fragment: the finished `<url>` of a change, with a hole (a NUL byte) wherever its position
belongs.

It is written twice: as XML, which readers get, and in the short form, which Redis keeps: with a
control character for each phrase that many fragments have.

XML never holds these characters, so nothing else can be meant by them. What is in Redis is written
with this table: it may grow, but nothing in it may ever change.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter

import msgspec

from rsnotify.resourcesync.change import ATTRIBUTES, ELEMENTS, USUAL, Change, Link, is_usual
from rsnotify.resourcesync.xml_writer import escape, is_plain, render_foreign, render_link

HOLE = b"\0"
"""Marks in a fragment where the position is inserted; XML can never contain this byte."""

LOC = b"\x01"
LOC_END = b"\x02"
END = b"\x03"

KINDS = ("created", "updated", "deleted")
KIND = dict(zip(KINDS, "\x04\x05\x06", strict=True))
KIND_AND_CHANGEFREQ = dict(zip(KINDS, "\x0e\x0f\x10", strict=True))
KIND_AND_PRIORITY = dict(zip(KINDS, "\x1b\x1c\x1d", strict=True))
"""What says how a resource changed, behind its `lastmod`, its `changefreq` or its `priority`."""

MD5, SHA_256, SHA_1 = "\x07", "\x08", "\x12"
LENGTH, TYPE, ENCODING = "\x0b", "\x0c", "\x17"
CHANGEFREQ, CAPABILITY = "\x11", "\x13"


def _behind(name: str, kind: str) -> str:
    return f'</{name}><rs:md change="{kind}" datetime="{HOLE.decode()}'


_TABLE = {
    "\x18": '" type="application/',
    "\x19": '" type="text/',
    "\x1a": '" type="image/',
    "\x16": '"/><rs:ln rel="http://www.openarchives.org/rs/terms/patch" href="',
    "\x14": '"/><rs:ln rel="',
    "\x15": '" href="',
    SHA_1: '" hash="sha-1:',
    ENCODING: '" encoding="',
    CAPABILITY: '" capability="',
    CHANGEFREQ: "</lastmod><changefreq>",
    **{short: _behind("changefreq", kind) for kind, short in KIND_AND_CHANGEFREQ.items()},
    **{short: _behind("priority", kind) for kind, short in KIND_AND_PRIORITY.items()},
    **{short: _behind("lastmod", kind) for kind, short in KIND.items()},
    MD5: '" hash="md5:',
    SHA_256: '" hash="sha-256:',
    LENGTH: '" length="',
    TYPE: '" type="',
    END.decode(): '"/></url>',
    LOC_END.decode(): "</loc><lastmod>",
    LOC.decode(): "<url><loc>",
}
PHRASES = tuple((short.encode(), phrase.encode()) for short, phrase in _TABLE.items())
"""In the order in which they are looked for: what begins with another phrase comes before it."""

_FREQUENT = tuple(pair for pair in PHRASES if pair[0] < b"\x0e")
_find_rare = re.compile(rb"[\x0e-\x1f]").search
_FEW = 1_000  # bytes: of more, to look for what is rare costs more than to replace it

_TOGETHER = 100  # fragments: their XML fits in a cache of the processor
_BETWEEN = b"\n"  # fragments: in XML a line break is written as a reference


def shorten(xml: bytes) -> bytes:
    """A fragment, or a part that begins and ends at a phrase, in its short form."""
    for short, phrase in PHRASES:
        xml = xml.replace(phrase, short)
    return xml


def spell_out(stored: bytes) -> bytes:
    """The XML of short forms; what is XML already stays as it is."""
    is_frequent = len(stored) < _FEW and _find_rare(stored) is None
    for short, phrase in _FREQUENT if is_frequent else PHRASES:
        stored = stored.replace(short, phrase)
    return stored


def spell_out_each(stored: Sequence[bytes]) -> list[bytes]:
    """The XML of each: of many together in a fifth of the time."""
    found: list[bytes] = []
    for start in range(0, len(stored), _TOGETHER):
        some = _BETWEEN.join(stored[start : start + _TOGETHER])
        found += spell_out(some).split(_BETWEEN)
    return found


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
