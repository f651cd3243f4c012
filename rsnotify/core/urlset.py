"""XML in and out: `<urlset>` and `<sitemapindex>` documents, and the fragments of notifications.

Rules that hold here: reading is lenient, a value that does not fit its field is kept and left for
`rules` to judge; only what cannot be represented is refused, entry by entry, and every DOCTYPE.
Writing joins strings, in the one element order that the schemas allow. lxml is known here alone.
What the specifications demand of a document is not known here.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, cast

import msgspec
from lxml import etree

from rsnotify.core.change import Change, Link
from rsnotify.errors import Fault, Rejected

SITEMAP = "http://www.sitemaps.org/schemas/sitemap/0.9"
RS = "http://www.openarchives.org/rs/terms/"
XML = "http://www.w3.org/XML/1998/namespace"

HOLE = b"\0"
"""Stands in a fragment wherever the position must be put; XML itself can never contain it."""

FAULTS_SHOWN = 100
"""A hostile document has as many faults as bytes; an answer names no more than this."""

Root = Literal["urlset", "sitemapindex"]
ENTRY: Mapping[Root, str] = {"urlset": "url", "sitemapindex": "sitemap"}


class Md(msgspec.Struct, frozen=True):
    """One `rs:md`. Every value is text as it was written, only `length` is a number.

    `foreign` holds the attributes of other namespaces as `{namespace}name`, and under its bare name
    what has no place here: an unknown attribute, or a `length` that is no number.
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
    """An `rs:ln` with attributes that `Link` has no field for; kept as `Md` keeps them."""

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


# Reading ---------------------------------------------------------------------------------------

_ROOTS: Mapping[str, Root] = {f"{{{SITEMAP}}}{root}": root for root in ENTRY}
_TEXTS = {f"{{{SITEMAP}}}{name}": name for name in ("loc", "lastmod", "changefreq", "priority")}
_MD = f"{{{RS}}}md"
_LN = f"{{{RS}}}ln"
_MD_FIELDS = {field.encode_name: field.name for field in msgspec.structs.fields(Md)[:-1]}
_LN_FIELDS = {name: name for name in Link.__struct_fields__}
_NUMBERS = ("length", "pri")
_NUMBER = re.compile(r"\s*\d{1,18}\s*", re.ASCII)
_OURS = {"urlset", "sitemapindex", "url", "sitemap", "md", "ln", *_TEXTS.values()}


def parse_document(data: bytes) -> Document:
    """Read a document; `Rejected` says what is wrong, where, and how to mend it."""
    element = _read(data)
    root = _root(element)
    faults: list[Fault] = []
    document = _Reader(faults).document(element, root)
    if faults:
        raise Rejected(_summary(faults), faults=faults[:FAULTS_SHOWN])
    return document


def _read(data: bytes) -> etree._Element:
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        element = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        raise Rejected(f"not well-formed XML: {error.msg}; send one whole XML document") from None
    if element.getroottree().docinfo.internalDTD is not None:
        raise Rejected("a DOCTYPE is not accepted: leave it out, ResourceSync documents have none")
    return element


def _root(element: etree._Element) -> Root:
    root = _ROOTS.get(element.tag)
    if root is None:
        raise Rejected(
            f"the root element is {_name(element)} (line {element.sourceline}): "
            f'it must be <urlset> or <sitemapindex> with xmlns="{SITEMAP}"'
        )
    return root


class _Reader:
    """Turns elements into structs; writes what it cannot turn into `faults`."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = faults
        self.index: int | None = None

    def document(self, element: etree._Element, root: Root) -> Document:
        entry_tag = f"{{{SITEMAP}}}{ENTRY[root]}"
        head: list[etree._Element] = []
        entries: list[Entry] = []
        for child in element:
            if child.tag == entry_tag:
                self.index = len(entries)
                entries.append(self.entry(child))
            else:
                head.append(child)
        self.index = None
        values = self.children(head)
        return Document(root=root, entries=tuple(entries), **values)

    def entry(self, element: etree._Element) -> Entry:
        return Entry(**self.children(element))

    def children(self, elements: Iterable[etree._Element]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        links: list[Link] = []
        for child in elements:
            tag = child.tag
            if tag == _LN:
                links.append(_link(child))
            elif tag == _MD:
                self.once(values, "md", _md(child), child)
            elif tag in _TEXTS and self.index is not None:
                self.once(values, _TEXTS[tag], self.text(child), child)
            else:
                self.stranger(child)
        if links:
            values["links"] = tuple(links)
        return values

    def once(self, values: dict[str, Any], field: str, value: Any, child: etree._Element) -> None:
        if field in values:
            self.fault(child, "stands here twice: keep one")
        values[field] = value

    def text(self, element: etree._Element) -> str:
        if len(element):
            self.fault(element, "contains an element: it must contain text only")
        return (element.text or "").strip()

    def stranger(self, element: etree._Element) -> None:
        """Extensions in other namespaces may stand anywhere; our own names may not go astray."""
        name = etree.QName(element)
        if name.namespace == SITEMAP:
            self.fault(element, "does not belong here: remove it")
        elif name.localname in _OURS:
            wanted = RS if name.localname in ("md", "ln") else SITEMAP
            self.fault(element, f"is in the wrong namespace: declare {wanted}")

    def fault(self, element: etree._Element, problem: str) -> None:
        message = f"{_name(element)} (line {element.sourceline}) {problem}"
        fault = Fault(message=message, field=etree.QName(element).localname)
        if self.index is not None:
            fault["index"] = self.index
        self.faults.append(fault)


def _name(element: etree._Element) -> str:
    name = etree.QName(element)
    return f"<{name.localname}> in namespace {name.namespace or '(none)'}"


def _summary(faults: list[Fault]) -> str:
    first = faults[0]["message"]
    return first if len(faults) == 1 else f"{len(faults)} faults, the first: {first}"


def _md(element: etree._Element) -> Md:
    return Md(**_fields(element, _MD_FIELDS))


def _link(element: etree._Element) -> Link:
    values = {"rel": "", "href": ""} | _fields(element, _LN_FIELDS)
    return ForeignLink(**values) if "foreign" in values else Link(**values)


def _fields(element: etree._Element, fields: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    foreign: dict[str, str] = {}
    for name, value in cast("Iterable[tuple[str, str]]", element.attrib.items()):
        if name not in fields:
            foreign[name] = value
        elif name not in _NUMBERS:
            values[fields[name]] = value
        elif _NUMBER.fullmatch(value):
            values[name] = int(value)
        else:
            foreign[name] = value
    if foreign:
        values["foreign"] = foreign
    return values


def change_of(entry: Entry) -> Change:
    """The change that an entry tells of; a missing `change` is the empty text.

    A framework change's link to its index becomes `index`. Foreign attributes stay in `entry.md`.
    """
    md = entry.md or Md()
    index = _index(entry.links) if md.capability else None
    return Change(
        loc=entry.loc,
        change=md.change or "",
        lastmod=entry.lastmod,
        datetime=md.datetime,
        hash=" ".join(md.hash.split()) if md.hash else None,
        length=md.length,
        type=md.type,
        encoding=md.encoding,
        changefreq=entry.changefreq,
        links=tuple(link for link in entry.links if index is None or link.rel != "index"),
        capability=md.capability,
        index=index,
    )


def _index(links: Iterable[Link]) -> str | None:
    return next((link.href for link in links if link.rel == "index"), None)


# Writing ---------------------------------------------------------------------------------------

_PLAIN = re.compile(r"[ !#-%'-;=?-~]*").fullmatch
_SPECIAL = re.compile('[&<>"\x00-\x1f\ud800-\udfff\ufffe\uffff]')
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"} | {
    space: f"&#{ord(space)};" for space in "\t\n\r"
}


def _escape(value: str | int) -> str:
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
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} xmlns="{SITEMAP}" xmlns:rs="{RS}">'
        f"{''.join(map(_render_link, links))}{_render_md(md)}"
    ).encode()


def close_root(root: Root) -> bytes:
    return f"</{root}>\n".encode()


def render_document(document: Document) -> bytes:
    tag = ENTRY[document.root]
    entries = "".join([_render_entry(tag, entry) for entry in document.entries])
    head = open_root(document.root, document.links, document.md)
    return head + entries.encode() + close_root(document.root)


def _render_entry(tag: str, entry: Entry) -> str:
    texts = "".join(
        f"<{name}>{_escape(value)}</{name}>"
        for name in ("loc", "lastmod", "changefreq", "priority")
        if (value := getattr(entry, name)) is not None
    )
    links = "".join(map(_render_link, entry.links))
    return f"<{tag}>{texts}{_render_md(entry.md)}{links}</{tag}>"


def _render_md(md: Md | None) -> str:
    if md is None:
        return ""
    return f"<rs:md{_render_fields(md, _MD_FIELDS)}{_render_foreign(md.foreign)}/>"


def _render_link(link: Link) -> str:
    foreign = link.foreign if isinstance(link, ForeignLink) else {}
    return f"<rs:ln{_render_fields(link, _LN_FIELDS)}{_render_foreign(foreign)}/>"


def _render_fields(struct: Md | Link, fields: Mapping[str, str]) -> str:
    return "".join(
        f' {name}="{_escape(value)}"'
        for name, field in fields.items()
        if (value := getattr(struct, field)) is not None
    )


def _render_foreign(foreign: Mapping[str, str]) -> str:
    """Each attribute declares its own prefix, so that a fragment can stand in any document."""
    return "".join(_foreign_attributes(foreign)) if foreign else ""


def _foreign_attributes(foreign: Mapping[str, str]) -> Iterator[str]:
    for number, (name, value) in enumerate(foreign.items()):
        namespace, _, local = name.removeprefix("{").rpartition("}")
        prefix = {"": "", XML: "xml:", RS: "rs:"}.get(namespace, f"x{number}:")
        if prefix.startswith("x") and prefix != "xml:":
            yield f' xmlns:{prefix[:-1]}="{_escape(namespace)}"'
        yield f' {prefix}{local}="{_escape(value)}"'


# Fragments -------------------------------------------------------------------------------------


def render_fragment(change: Change, *, foreign: Mapping[str, str] | None = None) -> bytes:
    """The finished `<url>` of a change, with `HOLE` wherever its position belongs.

    `foreign` are the attributes of other namespaces that its `rs:md` shall have. This is the hot
    path of publishing: one look at all texts together decides whether any must be escaped.
    """
    c = change
    texts = f"{c.loc}{c.change}{c.lastmod}{c.changefreq}{c.capability}{c.hash}{c.type}{c.encoding}"
    if not _PLAIN(texts):
        c = _escaped(c)
    return (
        f"<url><loc>{c.loc}</loc><lastmod>{c.lastmod or _HOLE}</lastmod>"
        f"{f'<changefreq>{c.changefreq}</changefreq>' if c.changefreq else ''}"
        f'<rs:md change="{c.change}" datetime="{_HOLE}"'
        f"{_attribute('capability', c.capability) if c.capability else ''}"
        f"{_attribute('hash', c.hash) if c.hash else ''}"
        f"{_attribute('length', c.length) if c.length is not None else ''}"
        f"{_attribute('type', c.type) if c.type else ''}"
        f"{_attribute('encoding', c.encoding) if c.encoding else ''}"
        f"{_render_foreign(foreign) if foreign else ''}/>"
        f"{_fragment_links(c) if c.links or c.index else ''}</url>"
    ).encode()


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


def _attribute(name: str, value: str | int) -> str:
    return f' {name}="{value}"'


def _escaped(change: Change) -> Change:
    texts = {name: getattr(change, name) for name in _TEXT_FIELDS}
    return msgspec.structs.replace(
        change, **{name: _escape(text) for name, text in texts.items() if text}
    )


def _fragment_links(change: Change) -> str:
    index = (Link(rel="index", href=change.index),) if change.index else ()
    return "".join(map(_render_link, (*index, *change.links)))


def fill(fragment: bytes, datetime: str | bytes) -> bytes:
    """The fragment with its position put in."""
    return fragment.replace(HOLE, datetime.encode() if isinstance(datetime, str) else datetime)


_PATCH = re.compile(rb'<rs:ln rel="http://www\.openarchives\.org/rs/terms/patch"[^>]*/>')
_CHANGE_ONLY = re.compile(rb'<rs:md change="[^"]*" datetime="[^"]*"(?: capability="[^"]*")?')


def resource_fragment(stored: bytes) -> bytes:
    """The Resource List's entry, from the fragment of the resource's last change.

    What belongs to a change alone goes: `change`, `datetime`, `capability`, links to patches.
    """
    head, tail = _CHANGE_ONLY.split(stored, maxsplit=1)
    md = tail.removeprefix(b"/>") if tail.startswith(b"/>") else b"<rs:md" + tail
    return head + _PATCH.sub(b"", md)
