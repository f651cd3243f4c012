"""A document read entry by entry, as it comes over the network, in bounded memory.

Rules that hold here: an entry that cannot be read is skipped and named, the rest goes on; what is
not well-formed, endless or hostile ends the reading with `Rejected`. The parser never sees a tag
that is longer than any of ours can be, nor an encoding in which it could not be seen. One thread
feeds a document to its end: libxml2 keeps names for each thread, without a lock, so that a parser
fed by a second thread may end the process while the first one parses something else.
"""

import re
from collections.abc import Iterable
from threading import get_ident
from typing import cast

import msgspec
from lxml import etree

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Link, Position, is_datetime
from rsnotify.resourcesync.xml_reader import EntryReader, root_of
from rsnotify.resourcesync.xml_structure import (
    ENCODINGS,
    PARSER_OPTIONS,
    TAG_BYTES,
    Oddity,
    is_plain_entry,
    name_of,
    oddities_of_entry,
    stray_text,
)
from rsnotify.resourcesync.xml_writer import DRAFT_NS, ENTRY, SITEMAP_NS, Entry, Md, Root

SKIPPED_NAMED = 100
"""A hostile document has as many faults as bytes; so many are kept in words."""

DATED_BY_LASTMOD = ("changelist", "changedump-manifest")
SNAPSHOTS = ("resourcelist", "resourcedump", "resourcedump-manifest")
"""Of the draft of 2013: changes have their time in `lastmod`, snapshots theirs in `modified`."""

BEGINNING_BYTES = 256  # a longer XML declaration is not looked at: the parser reads UTF-8 anyway

_ENDLESS = re.compile(rb"<[^<]{%d}" % TAG_BYTES)
_ENCODING = re.compile(rb"<\?xml[^>]{0,80}?encoding\s*=\s*[\"']([A-Za-z0-9._-]+)")
_BOM = b"\xef\xbb\xbf"
_TAGS = tuple(f"{{{SITEMAP_NS}}}{tag}" for tag in ENTRY.values())


class Head(msgspec.Struct, frozen=True):
    """What stands before the entries."""

    root: Root
    md: Md
    links: tuple[Link, ...] = ()

    def link(self, *relations: str) -> str | None:
        """The target of the first of these relations that is there; their case says nothing."""
        for relation in relations:
            for link in self.links:
                if link.rel.lower() == relation:
                    return link.href
        return None


class DocumentStream:
    """Feed it the bytes of one document; each feeding gives the entries that are complete."""

    def __init__(self, *, is_judged: bool = False) -> None:
        self.odd: Oddity | None = None  # the first that would be lost, if that is judged
        self._is_judged = is_judged
        self.skipped: list[str] = []
        self.skipped_count = 0
        self._parser = etree.XMLPullParser(events=("end",), tag=_TAGS, **PARSER_OPTIONS)
        self._reader = EntryReader(reads_draft=not is_judged)
        self._held: list[Entry] | None = None  # changes of the draft, which may be newest first
        self._thread: int | None = None  # that feeds it
        self._unseen = b""  # after the last `<`, not judged yet
        self._beginning: bytes | None = b""  # until all of the XML declaration has come
        self._number = 0
        self._root: etree._Element | None = None
        self._head: Head | None = None

    @property
    def head(self) -> Head:
        """Known with the first entry, or when the document has ended."""
        if self._head is None:
            raise Rejected("the document has not begun")
        return self._head

    @property
    def has_head(self) -> bool:
        return self._head is not None

    def feed(self, data: bytes) -> list[Entry]:
        """The entries that these bytes complete."""
        if self._beginning is not None:
            data = self._beginning + data
            self._beginning = data if len(data) < BEGINNING_BYTES and b">" not in data else None
            if self._beginning is not None:
                return []
            _judge_beginning(data)
        return self._feed(data)

    def _feed(self, data: bytes) -> list[Entry]:
        self._check_thread()
        self._judge(data)
        try:
            self._parser.feed(data)
            return self._entries()
        except etree.XMLSyntaxError as error:
            raise _not_well_formed(error) from None
        except ValueError:  # a name that lxml hands on, but does not take back
            raise Rejected("not well-formed XML: a prefix is not declared") from None

    def close(self) -> list[Entry]:
        """The last entries; `Rejected` if the document is not whole."""
        if self._beginning:
            _judge_beginning(self._beginning)
            self._feed(self._beginning)
        self._check_thread()
        try:
            self._root = self._parser.close()
        except etree.XMLSyntaxError as error:
            raise _not_well_formed(error) from None
        entries = self._entries()
        return entries if self._held is None else sorted(self._held, key=_changed_at)

    def _check_thread(self) -> None:
        if self._thread is None:
            self._thread = get_ident()
        elif self._thread != get_ident():
            raise RuntimeError("a document is fed by one thread")

    def _judge(self, data: bytes) -> None:
        if b"\0" in data:
            raise Rejected("the document is not UTF-8: it contains a NUL byte")
        text = self._unseen + data
        if b"<!DOCTYPE" in text:
            raise Rejected("a DOCTYPE is not accepted: ResourceSync documents have none")
        if _ENDLESS.search(text):
            raise Rejected(
                f"a tag or a text exceeds {TAG_BYTES} bytes: no value of ours is so long"
            )
        self._unseen = text[text.rfind(b"<") :] if b"<" in text else text[-TAG_BYTES:]

    def _entries(self) -> list[Entry]:
        events = cast("Iterable[tuple[str, etree._Element]]", self._parser.read_events())
        elements = [element for _, element in events]
        if elements and self._root is None:
            self._root = elements[0].getroottree().getroot()
        if self._root is None:
            return []
        if self._head is None:
            self._head = _head(self._root, self._reader)
            if _is_draft(self._root) and self._head.md.capability in DATED_BY_LASTMOD:
                self._held = []
        tag = f"{{{SITEMAP_NS}}}{ENTRY[self._head.root]}"
        entries = [entry for each in elements if (entry := self._entry(each, tag)) is not None]
        if self._is_judged:
            self._judge_texts(self._root)
        del self._root[: max(0, len(self._root) - 1)]  # the last may not be whole yet
        if self._held is None:
            return entries
        self._held += entries
        return []

    def _judge_texts(self, root: etree._Element) -> None:
        """Judge the text between the entries that were read."""
        texts = (text for text in (root.text, *(each.tail for each in root)) if text)
        path = f"/{etree.QName(root).localname}"
        self._note(odd for text in texts for odd in stray_text(text, path, None))

    def _judge_entry(self, entry: etree._Element) -> None:
        root = cast("etree._Element", self._root)
        path = f"/{etree.QName(root).localname}/{name_of(entry)}[{self._number}]"
        self._note(oddities_of_entry(entry, path, self._number - 1))

    def _note(self, oddities: Iterable[Oddity]) -> None:
        if self.odd is None:
            self.odd = next((odd for odd in oddities if odd.kind == "unknown"), None)

    def _entry(self, element: etree._Element, tag: str) -> Entry | None:
        if element.tag != tag or element.getparent() is not self._root:
            return None
        self._number += 1
        if self._is_judged and not is_plain_entry(element):
            self._judge_entry(element)
        try:
            return self._reader.one(element, self._number - 1)
        except Rejected as error:
            self.skip(f"entry {self._number}: {error.detail}")
            return None

    def skip(self, what: str) -> None:
        """An entry cannot be read: one more, and if they are not too many, in words."""
        self.skipped_count += 1
        if len(self.skipped) < SKIPPED_NAMED:
            self.skipped.append(what)


def _judge_beginning(data: bytes) -> None:
    start = data.removeprefix(_BOM).lstrip()
    if start and not start.startswith(b"<"):
        raise Rejected("this is no XML: a document begins with <")
    declared = _ENCODING.match(start)
    if declared and declared[1].decode().lower() not in ENCODINGS:
        raise Rejected(f"the encoding {declared[1].decode()} is not read: send UTF-8")


def _is_draft(root: etree._Element) -> bool:
    return DRAFT_NS in root.nsmap.values()


def _changed_at(entry: Entry) -> Position:
    time = entry.lastmod or ""
    time = f"{time}T00:00:00Z" if len(time) == len("2013-01-31") else time
    return Position.parse(time) if is_datetime(time) else Position(0)


def _head(root: etree._Element, reader: EntryReader) -> Head:
    name = root_of(root)
    tag = f"{{{SITEMAP_NS}}}{ENTRY[name]}"
    children: Iterable[etree._Element] = (child for child in root if child.tag != tag)
    values = reader.lenient(children)
    md = values.get("md") or Md()
    if _is_draft(root) and md.capability in SNAPSHOTS and md.at is None:
        md = msgspec.structs.replace(md, at=md.modified)
    return Head(root=name, md=md, links=values.get("links", ()))


def _not_well_formed(error: etree.XMLSyntaxError) -> Rejected:
    return Rejected(f"not well-formed XML: {error.msg}")
