"""Names what a document has and no field takes, so that it is not lost silently.

Reading (`xml_reader`) takes what it understands. This walk names the rest: elements inside others,
text between elements, attributes nobody knows, elements of other namespaces, and what stands in
another order than the schemas have. It judges no value. The caller decides what is refused.

`check_before_parsing` comes first. Only UTF-8 is accepted, and the parser is set so: it sees the
same bytes that are checked here. Each cap stops documents that cost far more time or memory to
parse than to send.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Literal, cast

import msgspec
from lxml import etree

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import ELEMENTS
from rsnotify.resourcesync.xml_writer import ENTRY, RS_NS, SITEMAP_NS, XML_NS

OddityKind = Literal["unknown", "foreign", "order"]

XSI_NS = "http://www.w3.org/2001/XMLSchema-instance"
SHOWN = 80  # characters of a text in a message

TEXTS = {f"{{{SITEMAP_NS}}}{name}": name for name in ELEMENTS}
MD, LN = f"{{{RS_NS}}}md", f"{{{RS_NS}}}ln"
PREFIXES = {SITEMAP_NS: "", RS_NS: "rs:"}
_AFTER_TEXTS = len(TEXTS)
_ENTRY_OF: Mapping[str, str] = dict(ENTRY.items())
_ORDER: dict[Any, int] = {tag: place for place, tag in enumerate(TEXTS)}
_ORDER |= dict.fromkeys((MD, LN), _AFTER_TEXTS)

TAG_BYTES = 8 * 1024  # parsing time grows with the square of a tag's attributes
MARKUP = 1_000_000  # tags, or attributes: each takes up to 500 bytes of memory, but only 7 to send
MARKUP_BYTES = 16  # a larger document may have one tag for so many bytes


class Oddity(msgspec.Struct, frozen=True):
    """One thing without a place: `unknown`, of another namespace (`foreign`), or out of `order`."""

    kind: OddityKind
    path: str
    message: str
    index: int | None = None  # of its entry


def oddities_of(root: etree._Element) -> Iterator[Oddity]:
    """All that stands in a `<urlset>` or `<sitemapindex>` without a place of its own."""
    name = etree.QName(root).localname
    tag, path = f"{{{SITEMAP_NS}}}{_ENTRY_OF[name]}", f"/{name}"
    yield from _attributes(root, path, None)
    yield from stray_text(root.text, path, None)
    index = -1
    for child in root:
        yield from stray_text(child.tail, path, None)
        if child.tag == tag:
            index += 1
            if not is_plain_entry(child):
                yield from oddities_of_entry(child, f"{path}/{_ENTRY_OF[name]}[{index + 1}]", index)
        else:
            yield from _of_child(child, path, None)
            if index >= 0:
                yield Oddity("order", f"{path}/{name_of(child)}", "stands after an entry")


def is_plain_entry(entry: etree._Element) -> bool:
    """Whether it has only what is expected, as nearly all have: asked for each entry published."""
    if entry.keys() or _says(entry.text):
        return False
    before = 0
    for child in entry:
        place = _ORDER.get(child.tag)
        if place is None or place < before or len(child) or _says(child.tail):
            return False
        before, names = place, child.keys()
        if place < _AFTER_TEXTS:
            if names:
                return False
        elif _says(child.text) or any(name[0] == "{" for name in names):
            return False
    return True


def _says(text: str | None) -> bool:
    return text is not None and not text.isspace()


def oddities_of_entry(entry: etree._Element, path: str, index: int) -> Iterator[Oddity]:
    yield from _attributes(entry, path, index)
    yield from stray_text(entry.text, path, index)
    for child in entry:
        yield from stray_text(child.tail, path, index)
        yield from _of_child(child, path, index)
    for before, after in pairwise(entry):
        if _place(after) < _place(before):
            message = f"stands after <{name_of(before)}>"
            yield Oddity("order", f"{path}/{name_of(after)}", message, index)


def _of_child(child: etree._Element, path: str, index: int | None) -> Iterator[Oddity]:
    """Of what is neither ours nor foreign, reading has named the fault already."""
    tag, path = child.tag, f"{path}/{name_of(child)}"
    if tag in (MD, LN):
        yield from _qualified(child, path, index)
        yield from stray_text(child.text, path, index)
        for inner in child:
            message = f"<{name_of(inner)}> stands inside it: close the element before"
            yield Oddity("unknown", path, message, index)
    elif tag in TEXTS:
        yield from _attributes(child, path, index)
    elif etree.QName(child).namespace not in PREFIXES:
        namespace = etree.QName(child).namespace or "no namespace"
        yield Oddity("foreign", path, f"belongs to {namespace}", index)


def _place(element: etree._Element) -> int:
    return _ORDER.get(str(element.tag), _AFTER_TEXTS)


def stray_text(text: str | None, path: str, index: int | None) -> Iterator[Oddity]:
    if text and _says(text):
        shown = text.strip()[:SHOWN]
        yield Oddity("unknown", path, f"the text {shown!r} stands between elements", index)


def _attributes(element: etree._Element, path: str, index: int | None) -> Iterator[Oddity]:
    """None is known here but those of XML itself and of its schemas."""
    for name in cast("Iterator[str]", element.attrib):
        if etree.QName(name).namespace not in (XSI_NS, XML_NS):
            yield Oddity("unknown", path, f"there is no attribute {_short(name)}", index)


def _qualified(element: etree._Element, path: str, index: int | None) -> Iterator[Oddity]:
    """Ours have no prefix."""
    for name in cast("Iterator[str]", element.attrib):
        if name.startswith((f"{{{RS_NS}}}", f"{{{SITEMAP_NS}}}")):
            message = f"there is no attribute {_short(name)}: write it without a prefix"
            yield Oddity("unknown", f"{path}/@{_short(name)}", message, index)


def _short(name: str) -> str:
    qualified = etree.QName(name)
    prefix = PREFIXES.get(qualified.namespace or "", "")
    return f"{prefix}{qualified.localname}"


def name_of(element: etree._Element) -> str:
    """As one writes it: `loc`, `rs:md`, the bare name for another namespace."""
    return _short(str(element.tag))


ENCODINGS = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})

_ENDLESS_TAG = re.compile(rb"<[^<]{%d}" % TAG_BYTES)
_ATTRIBUTE = re.compile(rb"=\s*[\"']")
_DECLARED = re.compile(rb"(?:\xef\xbb\xbf)?<\?xml\s[^>]*?\sencoding\s*=\s*[\"']([^\"'>]*)")
_MARKS = {
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"<\0\0\0": "UTF-32",
    b"\0\0\0<": "UTF-32",
    b"<\0": "UTF-16",
    b"\0<": "UTF-16",
    b"\x4c\x6f\xa7\x94": "EBCDIC",
}
"""How documents begin in encodings that a parser would detect by itself."""

PARSER_OPTIONS: dict[str, Any] = {
    "encoding": "utf-8",  # whatever a document declares: it has been checked that it is UTF-8
    "resolve_entities": False,
    "no_network": True,
    "load_dtd": False,
    "huge_tree": False,
    "remove_comments": True,
    "remove_pis": True,
}
"""The options of every parser of these documents."""


def check_before_parsing(data: bytes) -> None:
    """Raise `Rejected` with what is wrong and how to correct it."""
    if (encoding := _other_encoding(data)) is not None:
        raise Rejected(
            f"the document is in {encoding}: send it in UTF-8, no other encoding is accepted"
        )
    if b"<!DOCTYPE" in data:  # it can cost much before it can be refused
        raise Rejected("a DOCTYPE is not accepted: remove it, ResourceSync documents have none")
    if _ENDLESS_TAG.search(data):
        raise Rejected(f"a tag or a text is longer than {TAG_BYTES} bytes: shorten it")
    most = max(MARKUP, len(data) // MARKUP_BYTES)
    _check_number("tags", data.count(b"<"), most)
    _check_number("attributes", sum(1 for _ in _ATTRIBUTE.finditer(data)), most)


def _check_number(what: str, number: int, most: int) -> None:
    if number > most:
        raise Rejected(f"the document has more than {most} {what}: send it in parts", status=413)


def _other_encoding(data: bytes) -> str | None:
    """The encoding that the document has or declares, if it is not UTF-8."""
    for mark, name in _MARKS.items():
        if data.startswith(mark):
            return name
    declared = _DECLARED.match(data[:TAG_BYTES])
    if declared is not None and declared[1].decode("latin-1").lower() not in ENCODINGS:
        return repr(declared[1][:40].decode("latin-1"))
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return f"another encoding (byte {error.start} is not UTF-8)"
    return None
