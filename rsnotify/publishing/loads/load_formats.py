"""The whole state of a set in JSON or NDJSON, read piece by piece.

Each reader takes the bytes as they come and gives the resources that are complete, each as the
change that would create it. Memory is bounded by one entry and by the piece that was fed.
"""

import codecs
import json
import re
from collections.abc import Iterable
from typing import Protocol

import msgspec

from rsnotify.errors import Fault, Rejected
from rsnotify.publishing.bodies import Foreign
from rsnotify.resourcesync.change import Change, Link

ENTRY_BYTES = 256 * 1024

Resource = tuple[Change, Foreign | None]


class ResourceReader(Protocol):
    """Reads one form."""

    def feed(self, data: bytes) -> list[Resource]: ...

    def close(self) -> list[Resource]:
        """The last ones; `Rejected` if the end is missing."""
        ...


class Listed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A resource in JSON: what a change has, but nothing of how or when it changed."""

    loc: str
    lastmod: str | None = None
    hash: str | None = None
    length: int | None = None
    type: str | None = None
    encoding: str | None = None
    changefreq: str | None = None
    links: tuple[Link, ...] = ()

    def created(self) -> Resource:
        brought = (self.lastmod, None, self.hash, self.length, self.type, self.encoding)
        return Change(self.loc, "created", *brought, self.changefreq, self.links), None


_LISTED = msgspec.json.Decoder(Listed)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class NdjsonReader:
    """A resource in each line."""

    def __init__(self) -> None:
        self._rest = b""
        self._number = 0

    def feed(self, data: bytes) -> list[Resource]:
        first, _, _ = data.partition(b"\n")
        _check_length(len(self._rest) + len(first), self._number)
        lines, newline, self._rest = (self._rest + data).rpartition(b"\n")
        _check_length(len(self._rest), self._number)
        return self._read(lines + newline)

    def close(self) -> list[Resource]:
        return self._read(self._rest)

    def _read(self, lines: bytes) -> list[Resource]:
        try:
            found = _LISTED.decode_lines(lines)
        except _UNREADABLE:  # only says what is wrong, not where
            found = []
        if len(found) == lines.count(b"\n") + (not lines.endswith(b"\n")):
            self._number += len(found)
        else:  # it would also read a resource that goes on in the next line
            found = [self._one(line) for line in lines.split(b"\n") if line.strip()]
        return [each.created() for each in found]

    def _one(self, line: bytes) -> Listed:
        try:
            read = _LISTED.decode(line)
        except _UNREADABLE as error:
            raise unreadable_resource(self._number, str(error)) from None
        self._number += 1
        return read


class JsonReader:
    """One array of resources."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._end_of = json.JSONDecoder(parse_int=float).raw_decode  # int() refuses long ones
        self._text = ""
        self._number = 0
        self._expected = "["  # or a resource, or what comes after one; nothing after the end

    def feed(self, data: bytes) -> list[Resource]:
        try:
            self._text += self._decode(data)
        except UnicodeDecodeError as error:
            raise Rejected(f"the body is not UTF-8: {error}") from None
        found: list[Resource] = []
        at = 0
        while (end := self._step(at, found)) is not None:
            at = end
        self._text = self._text[at:].lstrip()
        _check_length(len(self._text.encode()), self._number)
        return found

    def close(self) -> list[Resource]:
        if self._text.startswith("{") and "{" in self._expected:
            self._read(self._text)  # says what is wrong with it
        if self._expected or self._text.strip():
            raise Rejected("the body is not one whole JSON array of resources")
        return []

    def _step(self, at: int, found: list[Resource]) -> int | None:
        """Read one token or resource from here on; where it ends, None if it is not complete."""
        at = _SPACE(self._text, at).end()  # type: ignore[union-attr]
        mark = self._text[at : at + 1]
        if not mark:
            return None
        if mark not in self._expected:
            raise Rejected(
                f"after {self._number} resources stands {mark!r}: the body must be one JSON array "
                "of objects"
            )
        if mark == "{":
            return self._resource(at, found)
        self._expected = _AFTER[mark]
        return at + 1

    def _resource(self, at: int, found: list[Resource]) -> int | None:
        try:
            _, end = self._end_of(self._text, at)
        except json.JSONDecodeError:  # not complete, or wrong: then it never will be
            return None
        except RecursionError as error:
            raise unreadable_resource(self._number, str(error)) from None
        text = self._text[at:end]
        _check_length(len(text.encode()), self._number)
        found.append(self._read(text).created())
        self._number += 1
        self._expected = ",]"
        return end

    def _read(self, text: str) -> Listed:
        try:
            return _LISTED.decode(text)
        except _UNREADABLE as error:
            raise unreadable_resource(self._number, str(error)) from None


_AFTER = {"[": "{]", ",": "{", "]": ""}
_SPACE = re.compile(r"\s*").match
_PLACE = re.compile(r"^(?P<message>.*?)(?: - at `\$\.?(?P<field>[^`]*)`)?$", re.DOTALL)


def wrong_resource(number: int, faults: Iterable[tuple[str, str]]) -> Rejected:
    """The refusal of a resource, with all that is wrong with it."""
    named = [Fault(index=number, message=message, field=field) for field, message in faults]
    first = named[0]
    place = f"resource {number}" + (f", {first['field']}" if first["field"] else "")
    return Rejected(f"{place}: {first['message']}", faults=named)


def unreadable_resource(number: int, text: str) -> Rejected:
    found = _PLACE.match(text)
    assert found is not None  # noqa: S101
    return wrong_resource(number, [(found["field"] or "", found["message"])])


def _check_length(size: int, number: int) -> None:
    """Whether so many bytes may belong to one resource."""
    if size > ENTRY_BYTES:
        raise Rejected(f"resource {number} is not read: it has no end within {ENTRY_BYTES} bytes")
