"""What documents consist of, and how they and fragments are written as XML.

Elements are written in the one order that the schemas allow. Text is escaped only if it needs it;
what XML cannot carry is `Rejected`, so the result is always well-formed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import ELEMENTS, Link

SITEMAP_NS = "http://www.sitemaps.org/schemas/sitemap/0.9"
RS_NS = "http://www.openarchives.org/rs/terms/"
DRAFT_NS = "http://www.openarchives.org/rs/"  # of January 2013
XML_NS = "http://www.w3.org/XML/1998/namespace"

Root = Literal["urlset", "sitemapindex"]
ENTRY: Mapping[Root, str] = {"urlset": "url", "sitemapindex": "sitemap"}


class Md(msgspec.Struct, frozen=True, omit_defaults=True):
    """One `rs:md`. Every value is text as it was written, only `length` is a number.

    `foreign` holds the attributes of other namespaces as `{namespace}name`. It also holds, under
    the bare name, unknown attributes and a `length` that is not a number.
    """

    capability: str | None = None
    change: str | None = None
    datetime: str | None = None
    at: str | None = None
    completed: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    until: str | None = None
    hash: str | None = None
    length: int | None = None
    modified: str | None = None
    type: str | None = None
    encoding: str | None = None
    path: str | None = None
    foreign: dict[str, str] = msgspec.field(default_factory=dict)


class ForeignLink(Link, frozen=True):
    """An `rs:ln` with attributes that `Link` has no field for; kept in the same way as in `Md`."""

    foreign: dict[str, str] = msgspec.field(default_factory=dict)


class Entry(msgspec.Struct, frozen=True):
    """One `<url>` or `<sitemap>`; a missing `loc` is the empty text."""

    loc: str = ""
    lastmod: str | None = None
    changefreq: str | None = None
    priority: str | None = None
    md: Md | None = None
    links: tuple[Link, ...] = ()


class Document(msgspec.Struct, frozen=True):
    """A whole document; the order of the root's `rs:md` among its `rs:ln` is not kept."""

    root: Root
    md: Md | None = None
    links: tuple[Link, ...] = ()
    entries: tuple[Entry, ...] = ()


MD_FIELDS = {field.encode_name: field.name for field in msgspec.structs.fields(Md)[:-1]}
LINK_FIELDS = {name: name for name in Link.__struct_fields__}
"""The attributes of `rs:md` and `rs:ln` in the order they are written, and their fields."""


def foreign_of(described: Md | Link | None) -> dict[str, str]:
    """The attributes of other namespaces, as fragments are given them."""
    return {name: value for name, value in _kept(described).items() if name[0] == "{"}


def strays(described: Md | Link | None) -> dict[str, str]:
    """The attributes that are not allowed: unknown ones, and numbers that are not numbers."""
    return {name: value for name, value in _kept(described).items() if name[0] != "{"}


def _kept(described: Md | Link | None) -> dict[str, str]:
    return described.foreign if isinstance(described, Md | ForeignLink) else {}


# Writing ---------------------------------------------------------------------------------------

is_plain_text = re.compile(r"[ !#-%'-;=?-~]*").fullmatch
_SPECIAL = re.compile('[&<>"\x00-\x1f\ud800-\udfff\ufffe\uffff]')
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"} | {
    space: f"&#{ord(space)};" for space in "\t\n\r"
}


def escape(value: str | int) -> str:
    """Text for an element or an attribute; `Rejected` for what XML cannot carry."""
    return _SPECIAL.sub(_escape_one, str(value))


def _escape_one(found: re.Match[str]) -> str:
    escaped = _ESCAPES.get(found[0])
    if escaped is None:
        raise Rejected(f"XML cannot carry the character U+{ord(found[0]):04X}: remove it")
    return escaped


def open_root(root: Root, links: Iterable[Link] = (), md: Md | None = None) -> bytes:
    """A document up to its first entry."""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} xmlns="{SITEMAP_NS}" xmlns:rs="{RS_NS}">'
        f"{''.join(map(render_link, links))}{_render_md(md)}"
    ).encode()


def close_root(root: Root) -> bytes:
    return f"</{root}>\n".encode()


def render_document(document: Document) -> bytes:
    head = open_root(document.root, document.links, document.md)
    return head + render_entries(document.root, document.entries) + close_root(document.root)


def render_entries(root: Root, entries: Iterable[Entry]) -> bytes:
    return "".join([_render_entry(ENTRY[root], entry) for entry in entries]).encode()


def _render_entry(tag: str, entry: Entry) -> str:
    texts = "".join(
        f"<{name}>{escape(value)}</{name}>"
        for name in ELEMENTS
        if (value := getattr(entry, name)) is not None
    )
    links = "".join(map(render_link, entry.links))
    return f"<{tag}>{texts}{_render_md(entry.md)}{links}</{tag}>"


def _render_md(md: Md | None) -> str:
    if md is None:
        return ""
    return f"<rs:md{_render_fields(md, MD_FIELDS)}{render_foreign(md.foreign)}/>"


def render_link(link: Link) -> str:
    return f"<rs:ln{_render_fields(link, LINK_FIELDS)}{render_foreign(_kept(link))}/>"


def _render_fields(struct: Md | Link, fields: Mapping[str, str]) -> str:
    return "".join(
        f' {name}="{escape(value)}"'
        for name, field in fields.items()
        if (value := getattr(struct, field)) is not None
    )


def render_foreign(foreign: Mapping[str, str]) -> str:
    """Each attribute declares its own prefix, so that a fragment can stand in any document."""
    return "".join(_foreign_attributes(foreign)) if foreign else ""


def _foreign_attributes(foreign: Mapping[str, str]) -> Iterator[str]:
    for number, (name, value) in enumerate(foreign.items()):
        namespace, _, local = name.removeprefix("{").rpartition("}")
        if namespace not in _PREFIXES:
            yield f' xmlns:x{number}="{escape(namespace)}"'
        yield f' {_PREFIXES.get(namespace, f"x{number}:")}{local}="{escape(value)}"'


_PREFIXES = {"": "", XML_NS: "xml:"}
"""Prefixes that need no declaration."""
