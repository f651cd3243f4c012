"""The whole state of a set in Resource Lists, one after the other, read piece by piece."""

import re

import msgspec

from rsnotify.errors import Rejected
from rsnotify.publishing.loads.load_formats import Resource, unreadable_resource
from rsnotify.resourcesync.stream import DocumentStream, Head
from rsnotify.resourcesync.xml_reader import change_of
from rsnotify.resourcesync.xml_writer import Entry, foreign_of, strays

_END = re.compile(rb"</(?:[\w.-]+:)?(?:urlset|sitemapindex)\s*>").search
_TAG_BYTES = 256  # an end tag is shorter


class XmlReader:
    """Resource Lists one after the other, with or without the index that names them."""

    def __init__(self) -> None:
        self._document: DocumentStream | None = None
        self._unseen = b""  # might be the beginning of an end tag
        self._number = 0
        self._lists = self._named = 0

    def feed(self, data: bytes) -> list[Resource]:
        found: list[Resource] = []
        data = self._unseen + data
        while (end := _END(data)) is not None:
            found += self._feed(data[: end.end()]) + self._end()
            data = data[end.end() :]
        cut = max(data.rfind(b"<"), 0) if len(data) - data.rfind(b"<") < _TAG_BYTES else len(data)
        self._unseen = data[cut:]
        return found + self._feed(data[:cut])

    def close(self) -> list[Resource]:
        found = self._feed(self._unseen)
        if self._document is not None:
            found += self._end()
        if not self._lists and not self._named:
            raise Rejected(
                "the body holds no Resource List: send one without entries if that is meant"
            )
        if self._named not in (0, self._lists):
            raise Rejected(
                f"the Resource List Index names {self._named} lists, but {self._lists} came: send "
                "the index and all its parts, one after the other"
            )
        return found

    def _feed(self, data: bytes) -> list[Resource]:
        if self._document is None:
            data = data.lstrip()
            if not data:
                return []
            self._document = DocumentStream(is_judged=True)
        return self._resources(self._document.feed(data))

    def _end(self) -> list[Resource]:
        assert self._document is not None  # noqa: S101
        found = self._resources(self._document.close())
        self._check_head(self._document.head)
        self._lists += self._document.head.root == "urlset"
        self._document = None
        return found

    def _resources(self, entries: list[Entry]) -> list[Resource]:
        assert self._document is not None  # noqa: S101
        if self._document.skipped:
            raise Rejected(f"in document {self._lists + 1}, {self._document.skipped[0]}")
        if self._document.odd is not None:
            odd = self._document.odd
            raise Rejected(f"in document {self._lists + 1}, {odd.path}: {odd.message}")
        if not entries:
            return []
        self._check_head(self._document.head)
        if self._document.head.root == "sitemapindex":
            self._named += len(entries)
            return []
        return [self._resource(entry) for entry in entries]

    def _check_head(self, head: Head) -> None:
        if head.md.capability not in (None, "resourcelist"):
            raise Rejected(f"this is a {head.md.capability}: send Resource Lists")

    def _resource(self, entry: Entry) -> Resource:
        change = change_of(entry)
        for described in (entry.md, *entry.links):
            for name in strays(described):
                raise unreadable_resource(
                    self._number, f"{name} is not allowed here - at `$.{name}`"
                )
        if change.change or change.datetime or change.capability:
            raise unreadable_resource(
                self._number, "says that it changed: a Resource List says what there is"
            )
        self._number += 1
        return msgspec.structs.replace(change, change="created"), foreign_of(entry.md) or None
