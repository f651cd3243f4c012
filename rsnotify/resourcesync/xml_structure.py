"""What stands in a document and nothing here has a place for: it is named, so that it is not lost.

Reading (`xml_reader`) takes what it understands. This walk names the rest: elements inside others,
text between elements, attributes nobody knows, elements of other namespaces, and what stands in
another order than the schemas have. It judges no value. The caller decides what is refused.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, cast

import msgspec
from lxml import etree

from rsnotify.resourcesync.change import ELEMENTS
from rsnotify.resourcesync.xml_writer import ENTRY, RS_NS, SITEMAP_NS, XML_NS

Kind = Literal["unknown", "foreign", "order"]

XSI_NS = "http://www.w3.org/2001/XMLSchema-instance"
SHOWN = 80  # characters of a text in a message

_TEXTS = tuple(f"{{{SITEMAP_NS}}}{name}" for name in ELEMENTS)
_MD, _LN = f"{{{RS_NS}}}md", f"{{{RS_NS}}}ln"
_PREFIXES = {SITEMAP_NS: "", RS_NS: "rs:"}
_AFTER_TEXTS = len(_TEXTS)
_ORDER = {tag: place for place, tag in enumerate(_TEXTS)} | dict.fromkeys((_MD, _LN), _AFTER_TEXTS)


class Oddity(msgspec.Struct, frozen=True):
    """One thing without a place: `unknown`, of another namespace (`foreign`), or out of `order`."""

    kind: Kind
    path: str
    message: str
    index: int | None = None  # of its entry


def oddities_of(root: etree._Element) -> Iterator[Oddity]:
    """All that stands in a `<urlset>` or `<sitemapindex>` without a place of its own."""
    name = etree.QName(root).localname
    tag, path = f"{{{SITEMAP_NS}}}{ENTRY[name]}", f"/{name}"  # type: ignore[index]
    yield from _attributes(root, path, None)
    yield from stray_text(root.text, path, None)
    index = -1
    for child in root:
        yield from stray_text(child.tail, path, None)
        if child.tag == tag:
            index += 1
            if not is_plain(child):
                yield from oddities_of_entry(child, f"{path}/{ENTRY[name]}[{index + 1}]", index)  # type: ignore[index]
        else:
            yield from _of_child(child, path, None)
            if index >= 0:
                yield Oddity("order", f"{path}/{name_of(child)}", "stands after an entry")


def is_plain(entry: etree._Element) -> bool:
    """Whether it has only what is expected, as nearly all have: asked for each entry published."""
    if entry.keys() or _says(entry.text):
        return False
    before = 0
    for child in entry:
        place = _ORDER.get(child.tag)  # type: ignore[arg-type]
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
    if tag in (_MD, _LN):
        yield from _qualified(child, path, index)
        yield from stray_text(child.text, path, index)
        for inner in child:
            message = f"<{name_of(inner)}> stands inside it: close the element before"
            yield Oddity("unknown", path, message, index)
    elif tag in _TEXTS:
        yield from _attributes(child, path, index)
    elif etree.QName(child).namespace not in _PREFIXES:
        yield Oddity("foreign", path, f"belongs to {_namespace(child)}", index)


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
    prefix = _PREFIXES.get(qualified.namespace or "", "")
    return f"{prefix}{qualified.localname}"


def name_of(element: etree._Element) -> str:
    """As one writes it: `loc`, `rs:md`, the bare name for another namespace."""
    return _short(str(element.tag))


def _namespace(element: etree._Element) -> str:
    return etree.QName(element).namespace or "no namespace"
