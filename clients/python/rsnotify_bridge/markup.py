"""XML as it is found in the wild: of OAI-PMH servers and feeds, in whatever encoding they mean.

Rules that hold here: what is wrong is corrected and reported if its meaning is certain; the parser
sees UTF-8 without a DOCTYPE, and no tag with more attributes than anybody writes.
"""

import codecs
import re
from collections.abc import Iterator
from html.entities import html5
from typing import NamedTuple

from lxml import etree

from rsnotify.errors import Rejected
from rsnotify.resourcesync.xml_structure import PARSER_OPTIONS

PAGE_BYTES = 16 * 1024 * 1024
TAGS = 400_000  # each takes 500 bytes of memory
ATTRIBUTES = 500  # of one tag: to parse them takes a time that grows with their square
LONG = 4 * 1024

_DECLARATION = re.compile(r"\s*<\?xml\b([^>]{0,200})\?>")
_ENCODING = re.compile(rb"<\?xml[^>]{0,100}?encoding\s*=\s*[\"']([A-Za-z0-9._-]{1,40})")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_REFERENCE = re.compile(r"&(?:#(\d{1,8}|x[0-9a-fA-F]{1,7});|(\w{1,32});)?")
_RUN = re.compile(rf"<[^<]{{{LONG},}}")
_ATTRIBUTE = re.compile(r"=\s*[\"']")
_XML = {"amp", "lt", "gt", "quot", "apos"}
_MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_WESTERN = {"iso-8859-1", "latin1", "latin-1", "windows-1252", "cp1252", "us-ascii", "ascii"}


class Markup(NamedTuple):
    """A document that was read, and what had to be put right before."""

    root: "Element"
    repairs: tuple[str, ...]


class Element:
    """An element by its names without namespaces, which servers often forget."""

    __slots__ = ("_node",)

    def __init__(self, node: etree._Element) -> None:
        self._node = node

    @property
    def name(self) -> str:
        return etree.QName(self._node).localname

    @property
    def prefix(self) -> str:
        return self._node.prefix or ""

    @property
    def text(self) -> str:
        return "".join(self._node.itertext()).strip()

    @property
    def own_text(self) -> str:
        """Without that of the elements in it."""
        tails = (each.tail for each in self._node)
        return "".join(filter(None, (self._node.text, *tails))).strip()

    def get(self, name: str) -> str | None:
        return self._node.get(name)

    def children(self, *names: str) -> "Iterator[Element]":
        """Those of these names; all, without a name."""
        for node in self._node:
            if isinstance(node.tag, str) and (not names or etree.QName(node).localname in names):
                yield Element(node)

    def child(self, *names: str) -> "Element | None":
        """The first of the first of these names that is there."""
        for name in names:
            for found in self.children(name):
                return found
        return None

    def text_of(self, *names: str) -> str | None:
        found = self.child(*names)
        return None if found is None else found.text or None

    def all(self) -> "Iterator[Element]":
        """All below it."""
        for node in self._node.iterdescendants():
            if isinstance(node.tag, str):
                yield Element(node)


def read_markup(url: str, data: bytes) -> Markup:
    """Raises `Rejected` for what is no XML, or dangerous."""
    text, repairs = repaired(data)
    beginning = text[:1024].lower()
    if "<!doctype html" in beginning or "<html" in beginning:
        raise Rejected(f"{url} sent a page in HTML, perhaps a login page, where XML was asked for")
    if "<!DOCTYPE" in text:
        raise Rejected(f"{url} sent a DOCTYPE, which is not read")
    if text.count("<") > TAGS:
        raise Rejected(f"{url} sent more than {TAGS:,} tags at once")
    for run in _RUN.finditer(text):
        if sum(1 for _ in _ATTRIBUTE.finditer(run[0])) > ATTRIBUTES:
            raise Rejected(f"{url} sent a tag with more than {ATTRIBUTES} attributes")
    try:
        root = etree.fromstring(text.encode(), etree.XMLParser(**PARSER_OPTIONS))
        return Markup(Element(root), tuple(repairs))
    except (etree.XMLSyntaxError, ValueError) as error:
        raise Rejected(f"{url} is not well-formed XML: {str(error)[:200]}") from None


def repaired(data: bytes) -> tuple[str, list[str]]:
    """The document as text without its declaration, and what was wrong with it.

    >>> repaired(b"<a>caf\\xe9 &nbsp;&#x1;&amp; R&D</a>")[0]
    '<a>café \\xa0&amp; R&amp;D</a>'
    """
    repairs: list[str] = []
    text = _decoded(data, repairs)
    if (declared := _DECLARATION.match(text)) is not None:
        text = text[declared.end() :]
    if _CONTROL.search(text):
        text = _CONTROL.sub("", text)
        repairs.append("control characters were left out")
    if "&" in text:
        whole = _REFERENCE.sub(_reference, text)
        if whole != text:
            repairs.append("entities that XML does not have were written as their characters")
        text = whole
    return text.lstrip(), repairs


def _decoded(data: bytes, repairs: list[str]) -> str:
    for mark, name in _MARKS.items():
        if data.startswith(mark):
            return data.decode(name, errors="replace")
    data = data.removeprefix(codecs.BOM_UTF8)
    declared = _ENCODING.match(data.lstrip()[:200])
    encoding = declared[1].decode().lower() if declared else "utf-8"
    if encoding in _WESTERN:
        return data.decode("cp1252", errors="replace")
    if encoding not in ("utf-8", "utf8"):
        try:
            return data.decode(encoding)
        except (LookupError, UnicodeDecodeError, ValueError):
            repairs.append(f"it is not in {encoding}, as it says: read as UTF-8")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        repairs.append(f"byte {error.start} is not UTF-8: read as windows-1252")
        return data.decode(errors="rsnotify-western")


def _western(error: UnicodeError) -> tuple[str, int]:
    """Of a text in UTF-8, the bytes that are none are windows-1252."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return wrong.decode("cp1252", errors="replace"), error.end


codecs.register_error("rsnotify-western", _western)


def _reference(found: re.Match[str]) -> str:
    number, name = found.groups()
    if number:
        code = int(number[1:], 16) if number[0] == "x" else int(number)
        is_legal = code in (9, 10, 13) or 0x20 <= code < 0xD800 or 0xE000 <= code < 0xFFFE
        return found[0] if is_legal or 0x10000 <= code <= 0x10FFFF else ""
    if not name:
        return "&amp;"
    if name in _XML:
        return found[0]
    meant = html5.get(f"{name};")
    return f"&amp;{name};" if meant is None else meant.replace("&", "&amp;").replace("<", "&lt;")
