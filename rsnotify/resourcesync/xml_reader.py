"""Reads `<urlset>` and `<sitemapindex>` documents.

Reading is lenient: a value that does not fit its field is kept, and `document_rules` judges it.
Only what a `Document` cannot represent is refused, and a document with too many faults to list.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lxml import etree

from rsnotify.errors import Fault, Rejected
from rsnotify.resourcesync.change import ATTRIBUTES, ELEMENTS, VALUES, Change, Link
from rsnotify.resourcesync.xml_structure import (
    LN,
    MD,
    PARSER_OPTIONS,
    PREFIXES,
    TEXTS,
    Oddity,
    check_before_parsing,
    oddities_of,
)
from rsnotify.resourcesync.xml_writer import (
    DRAFT_NS,
    ENTRY,
    LINK_FIELDS,
    MD_FIELDS,
    RS_NS,
    SITEMAP_NS,
    Document,
    Entry,
    ForeignLink,
    Md,
    Root,
    strays,
)

MAX_FAULTS = 100
"""Reading stops at this many: a hostile document can have as many faults as bytes."""

_ROOTS: Mapping[str, Root] = {f"{{{SITEMAP_NS}}}{root}": root for root in ENTRY}
_DRAFT: Mapping[Any, str] = {f"{{{DRAFT_NS}}}md": MD, f"{{{DRAFT_NS}}}ln": LN}

_NUMBERS = ("length", "pri")
_NUMBER = re.compile(r"\s*\d{1,18}\s*", re.ASCII)
_NAMESPACES = {
    "md": RS_NS,
    "ln": RS_NS,
    **dict.fromkeys(("urlset", "sitemapindex", "url", "sitemap", *TEXTS.values()), SITEMAP_NS),
}


def parse_document(data: bytes, *, most_entries: int | None = None) -> Document:
    """Read a document; `Rejected` says what is wrong, where, and how to put it right."""
    element, root = _opened(data, most_entries)
    return EntryReader().document(element, root)


def parse_all_of_document(
    data: bytes, *, most_entries: int | None = None
) -> tuple[Document, list[Oddity]]:
    """The document, and what in it `Document` has no place for: a hundred of each kind."""
    element, root = _opened(data, most_entries)
    document = EntryReader().document(element, root)
    return document, list(_few_of_each_kind(oddities_of(element)))


def _few_of_each_kind(oddities: Iterable[Oddity]) -> Iterator[Oddity]:
    seen = Counter[str]()
    for oddity in oddities:
        seen[oddity.kind] += 1
        if seen[oddity.kind] <= MAX_FAULTS:
            yield oddity


def _opened(data: bytes, most_entries: int | None) -> tuple[etree._Element, Root]:
    element = _read(data)
    root = root_of(element)
    if most_entries is not None and len(element) > most_entries:
        _check_entries(element, root, most_entries)
    return element, root


def _check_entries(element: etree._Element, root: Root, most: int) -> None:
    """Refuse too many entries before any of them is read."""
    number = sum(1 for _ in element.iterchildren(f"{{{SITEMAP_NS}}}{ENTRY[root]}"))
    if number > most:
        detail = f"the document has {number} changes, more than {most}; post the changes in parts"
        raise Rejected(detail, status=413)


def _read(data: bytes) -> etree._Element:
    check_before_parsing(data)
    parser: etree.XMLParser[etree._Element] = etree.XMLParser(**PARSER_OPTIONS, collect_ids=False)
    try:
        return etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        raise Rejected(f"not well-formed XML: {error.msg}; send one whole XML document") from None


def root_of(element: etree._Element) -> Root:
    """Which kind of document this is the root of."""
    root = _ROOTS.get(str(element.tag))
    if root is None:
        raise Rejected(
            f"the root element is {_name(element)} (line {element.sourceline}): "
            f'it must be <urlset> or <sitemapindex> with xmlns="{SITEMAP_NS}"'
        )
    return root


class EntryReader:
    """Turns elements into structs; collects the faults of those that cannot be turned into one."""

    def __init__(self, *, reads_draft: bool = False) -> None:
        self._older = _DRAFT if reads_draft else {}
        self.faults: list[Fault] = []
        self.strays: list[Fault] = []  # attributes out of place: faults only if there are too many
        self.index: int | None = None  # of the entry being read

    def document(self, element: etree._Element, root: Root) -> Document:
        tag = f"{{{SITEMAP_NS}}}{ENTRY[root]}"
        found = enumerate(element.iterchildren(tag))
        entries = tuple(self.entry(child, index) for index, child in found)
        self.index = None
        head = self.children(child for child in element if child.tag != tag)
        if self.faults:
            raise self.rejected()
        return Document(root=root, entries=entries, **head)

    def one(self, element: etree._Element, index: int) -> Entry:
        """A single entry; `Rejected` if it cannot be read."""
        if self.faults or self.strays:
            self.faults, self.strays = [], []
        entry = self.entry(element, index)
        if self.faults:
            raise self.rejected()
        return entry

    def lenient(self, elements: Iterable[etree._Element]) -> dict[str, Any]:
        """What can be read of these elements, whatever else there is."""
        values = self.children(elements)
        self.faults.clear()
        return values

    def entry(self, element: etree._Element, index: int) -> Entry:
        self.index = index
        return Entry(**self.children(element))

    def children(self, elements: Iterable[etree._Element]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        links: list[Link] = []
        texts: Mapping[Any, str] = {} if self.index is None else TEXTS
        older = self._older
        for child in elements:
            tag = older.get(child.tag, child.tag) if older else child.tag
            field = texts.get(tag)
            value: str | Md
            if field is not None:
                value = self.text(child)
            elif tag == MD:
                field, value = "md", self.md(child)
            else:
                if tag == LN:
                    links.append(self.link(child))
                else:
                    self.unexpected(child)
                continue
            if field in values:
                self.fault(child, "occurs twice: keep one")
            values[field] = value
        if links:
            values["links"] = tuple(links)
        return values

    def md(self, element: etree._Element) -> Md:
        md = Md(**_fields(element, MD_FIELDS))
        if md.foreign:
            self.check_strays(md)
        return md

    def link(self, element: etree._Element) -> Link:
        values = {"rel": "", "href": ""} | _fields(element, LINK_FIELDS)
        if "foreign" not in values:
            return Link(**values)
        link = ForeignLink(**values)
        self.check_strays(link)
        return link

    def check_strays(self, described: Md | ForeignLink) -> None:
        """Attributes out of place are left to `document_rules`; too many are refused here."""
        for name, value in strays(described).items():
            message = f"{name}={value[:80]!r} is not allowed here"
            self.strays.append(self.with_index(Fault(message=message, field=name)))
            if len(self.strays) == MAX_FAULTS:
                self.faults = self.strays
                raise self.rejected()

    def text(self, element: etree._Element) -> str:
        if len(element):
            self.fault(element, "contains an element: it must contain text only")
        text = element.text
        return "" if text is None else text.strip()

    def unexpected(self, element: etree._Element) -> None:
        """An element that is a fault unless it belongs to another namespace."""
        name = etree.QName(element)
        if name.localname in _NAMESPACES and name.namespace != _NAMESPACES[name.localname]:
            self.fault(element, f"must be in namespace {_NAMESPACES[name.localname]}: declare it")
        elif name.namespace in (SITEMAP_NS, RS_NS):
            self.fault(element, "is not allowed here: remove it")

    def fault(self, element: etree._Element, problem: str) -> None:
        message = f"{_name(element)} (line {element.sourceline}) {problem}"
        fault = Fault(message=message, field=etree.QName(element).localname)
        self.faults.append(self.with_index(fault))
        if len(self.faults) == MAX_FAULTS:
            raise self.rejected()

    def with_index(self, fault: Fault) -> Fault:
        if self.index is not None:
            fault["index"] = self.index
        return fault

    def rejected(self) -> Rejected:
        more = f" (and {len(self.faults) - 1} more)" if len(self.faults) > 1 else ""
        return Rejected(self.faults[0]["message"] + more, faults=self.faults)


def _name(element: etree._Element) -> str:
    name = etree.QName(element)
    if name.namespace in PREFIXES:
        return f"<{PREFIXES[name.namespace]}{name.localname}>"
    return f"<{name.localname}> in namespace {name.namespace or '(none)'}"


def _fields(element: etree._Element, fields: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    foreign: dict[str, str] = {}
    for name, value in element.items():
        field = fields.get(name)
        if field is None:
            foreign[name] = value
        elif name not in _NUMBERS:
            values[field] = value
        elif _NUMBER.fullmatch(value):
            values[name] = int(value)
        else:
            foreign[name] = value
    if foreign:
        values["foreign"] = foreign
    return values


def change_of(entry: Entry) -> Change:
    """The change that an entry describes; a missing `change` becomes the empty text.

    The link of a framework change to its index becomes `index`. Foreign attributes
    stay in `entry.md`.
    """
    md = entry.md or Md()
    found = {name: getattr(md, name) for name in ATTRIBUTES}
    found |= {name: getattr(entry, name) for name in ELEMENTS}
    found["change"] = md.change or ""
    if md.hash:
        found["hash"] = " ".join(md.hash.split())
    if entry.priority is not None and VALUES["priority"].fits(entry.priority):
        found["priority"] = float(entry.priority)  # what does not fit is judged as it is
    index, links = None, entry.links
    if md.capability:
        index = next((link.href for link in links if link.rel == "index"), None)
        links = tuple(link for link in links if link.rel != "index")
    return Change(**found, links=links, index=index)
