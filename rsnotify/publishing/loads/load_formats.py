"""The body of a load: decompressed, read, judged and made ready to be kept, piece by piece.

Each reader takes the bytes as they come and gives the resources that are complete, each as the
change that would create it. Memory is bounded by one entry and by the piece that was fed. A piece
is decompressed and read before the next one is.
"""

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import msgspec

from rsnotify.errors import Fault, Rejected
from rsnotify.gunzip import BrokenGzip, Gunzip, is_gzip
from rsnotify.journal.submission import forms_of
from rsnotify.publishing.bodies import Foreign
from rsnotify.publishing.loads.load import parse_as_of
from rsnotify.resourcesync.change import OF_A_CHANGE, Change, Position, misfit
from rsnotify.resourcesync.change_rules import faults_of
from rsnotify.resourcesync.notification import LOC, LOC_END
from rsnotify.resourcesync.stream import DocumentStream, Head
from rsnotify.resourcesync.xml_reader import change_of
from rsnotify.resourcesync.xml_writer import Entry, foreign_of, strays

ENTRY_BYTES = 256 * 1024

LoadedResource = tuple[Change, Foreign | None]
LOAD_RESOURCES = 5_000_000
LOAD_BYTES = 4 * 1024 * 1024 * 1024  # decompressed
PIECE_BYTES = 64 * 1024  # read at once: some milliseconds
# White space compresses a thousand times. So a body is only so much longer than what it says:
PADDING_BYTES = 16 * 1024 * 1024
PADDING_OF_ONE = 4 * 1024  # more for each resource
ESCAPED = 6  # times what is kept of it: escapes, indentation, names in full


class ResourceReader(Protocol):
    """Reads one form."""

    def feed(self, data: bytes) -> list[LoadedResource]: ...

    def close(self) -> list[LoadedResource]:
        """The last ones; `Rejected` if the end is missing."""
        ...


_FIELDS = [each for each in msgspec.structs.fields(Change) if each.name not in OF_A_CHANGE]
_NAMES = tuple(each.name for each in _FIELDS)
_values = attrgetter(*_NAMES)
_Listed = msgspec.defstruct(
    "Listed",
    [(each.name, each.type, msgspec.field(default=each.default)) for each in _FIELDS],
    forbid_unknown_fields=True,
)
"""A resource in JSON: what a change has, but nothing of how or when it changed."""
_LISTED: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Listed)


def _created(listed: Any) -> LoadedResource:
    return Change(change="created", **dict(zip(_NAMES, _values(listed), strict=True))), None


_CHANGED = re.compile(rf".*unknown field `({'|'.join(OF_A_CHANGE)})`", re.DOTALL)


def _misfit(error: Exception) -> str:
    """What does not fit a resource; what says that it changed is likely to be meant as a change."""
    if (found := _CHANGED.fullmatch(str(error))) is None:
        return misfit(error, _Listed)
    return (
        f"{found[0]}: `{found[1]}` belongs to a change, and this is a resource: leave it out, or "
        "publish the changes instead"
    )


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Heading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the first line of NDJSON may say of all the others."""

    as_of: str


def _is_one_a_line(lines: bytes, count: int) -> bool:
    """Whether so many resources stand in a line each, as far as that shows without reading."""
    newlines, is_ended = lines.count(b"\n"), lines.endswith(b"\n")
    ends, begins = lines.count(b"}\n") + lines.count(b"}\r\n"), lines.count(b"\n{")
    return count == newlines + (not is_ended) and (ends, begins) == (newlines, newlines - is_ended)


class NdjsonReader:
    """A resource in each line; the first line may say of which moment they are."""

    def __init__(self) -> None:
        self._rest = b""
        self._number = 0
        self._has_begun = False
        self.as_of: Position | None = None

    def feed(self, data: bytes) -> list[LoadedResource]:
        first, _, _ = data.partition(b"\n")
        _check_length(len(self._rest) + len(first), self._number)
        lines, newline, self._rest = (self._rest + data).rpartition(b"\n")
        _check_length(len(self._rest), self._number)
        return self._read(lines + newline)

    def close(self) -> list[LoadedResource]:
        return self._read(self._rest)

    def _read(self, lines: bytes) -> list[LoadedResource]:
        if not self._has_begun:
            lines = self._behind_heading(lines.lstrip())
        try:
            found = _LISTED.decode_lines(lines)
        except _UNREADABLE:  # only says what is wrong, not where
            found = []
        if _is_one_a_line(lines, len(found)):
            self._number += len(found)
        else:  # it would also read a resource that goes on in the next line
            found = [self._one(line) for line in lines.split(b"\n") if line.strip()]
        return list(map(_created, found))

    def _behind_heading(self, lines: bytes) -> bytes:
        self._has_begun = bool(lines)
        first, _, others = lines.partition(b"\n")
        if b'"as_of"' not in first:
            return lines
        try:
            self.as_of = parse_as_of(msgspec.json.decode(first, type=Heading).as_of)
        except (*_UNREADABLE, ValueError) as error:
            raise Rejected(
                f'the first line, {first[:80].decode(errors="replace")}, must be {{"as_of": '
                f'"POSITION"}}, a position that the hub gave, and nothing else: {error}'
            ) from None
        return others

    def _one(self, line: bytes) -> Any:
        try:
            read = _LISTED.decode(line)
        except _UNREADABLE as error:
            raise unreadable_resource(self._number, _misfit(error)) from None
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

    def feed(self, data: bytes) -> list[LoadedResource]:
        try:
            self._text += self._decode(data)
        except UnicodeDecodeError as error:
            raise Rejected(f"the body is not UTF-8: {error}") from None
        found: list[LoadedResource] = []
        at = 0
        while (end := self._step(at, found)) is not None:
            at = end
        self._text = self._text[at:].lstrip()
        _check_length(len(self._text.encode()), self._number)
        return found

    def close(self) -> list[LoadedResource]:
        if self._text.startswith("{") and "{" in self._expected:
            self._read(self._text)  # says what is wrong with it
        if self._expected or self._text.strip():
            raise Rejected("the body is not one whole JSON array of resources")
        return []

    def _step(self, at: int, found: list[LoadedResource]) -> int | None:
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

    def _resource(self, at: int, found: list[LoadedResource]) -> int | None:
        try:
            _, end = self._end_of(self._text, at)
        except json.JSONDecodeError:  # not complete, or wrong: then it never will be
            return None
        except RecursionError as error:
            raise unreadable_resource(self._number, str(error)) from None
        text = self._text[at:end]
        _check_length(len(text.encode()), self._number)
        found.append(_created(self._read(text)))
        self._number += 1
        self._expected = ",]"
        return end

    def _read(self, text: str) -> Any:
        try:
            return _LISTED.decode(text)
        except _UNREADABLE as error:
            raise unreadable_resource(self._number, _misfit(error)) from None


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


_END = re.compile(rb"</(?:[\w.-]+:)?(?:urlset|sitemapindex)\s*>").search
_TAG_BYTES = 256  # an end tag is shorter


class XmlReader:
    """Resource Lists one after the other, with or without the index that names them."""

    def __init__(self) -> None:
        self._document: DocumentStream | None = None
        self._unseen = b""  # might be the beginning of an end tag
        self._number = 0
        self._lists = self._named = 0

    def feed(self, data: bytes) -> list[LoadedResource]:
        found: list[LoadedResource] = []
        data = self._unseen + data
        while (end := _END(data)) is not None:
            found += self._feed(data[: end.end()]) + self._end()
            data = data[end.end() :]
        cut = max(data.rfind(b"<"), 0) if len(data) - data.rfind(b"<") < _TAG_BYTES else len(data)
        self._unseen = data[cut:]
        return found + self._feed(data[:cut])

    def close(self) -> list[LoadedResource]:
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

    def _feed(self, data: bytes) -> list[LoadedResource]:
        if self._document is None:
            data = data.lstrip()
            if not data:
                return []
            self._document = DocumentStream(is_judged=True)
        return self._resources(self._document, self._document.feed(data))

    def _end(self) -> list[LoadedResource]:
        document, self._document = self._document, None
        assert document is not None  # noqa: S101
        found = self._resources(document, document.close())
        self._check_head(document.head)
        self._lists += document.head.root == "urlset"
        return found

    def _resources(self, document: DocumentStream, entries: list[Entry]) -> list[LoadedResource]:
        if document.skipped:
            raise Rejected(f"in document {self._lists + 1}, {document.skipped[0]}")
        if (odd := document.odd) is not None:
            raise Rejected(f"in document {self._lists + 1}, {odd.path}: {odd.message}")
        if not entries:
            return []
        self._check_head(document.head)
        if document.head.root == "sitemapindex":
            self._named += len(entries)
            return []
        return [self._resource(entry) for entry in entries]

    def _check_head(self, head: Head) -> None:
        if head.md.capability not in (None, "resourcelist"):
            raise Rejected(f"this is a {head.md.capability}: send Resource Lists")

    def _resource(self, entry: Entry) -> LoadedResource:
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


class LoadLimits(NamedTuple):
    """How much a body may hold."""

    resources: int = LOAD_RESOURCES
    body_bytes: int = LOAD_BYTES
    padding_bytes: int = PADDING_BYTES


LOAD_LIMITS = LoadLimits()
Ready = tuple[bytes, bytes]  # the escaped loc, and the rest of the fragment's short form


class LoadReader:
    """Reads a body; every fault in it is `Rejected` as soon as it is seen."""

    def __init__(
        self, content_type: str, content_encoding: str, limits: LoadLimits = LOAD_LIMITS
    ) -> None:
        self._limits = limits
        self._form = _form_of(content_type)
        self._body = UnpackedBody(content_encoding)
        self._bytes = 0
        self._accounted = limits.padding_bytes
        self.resources = 0

    def feed(self, data: bytes) -> Iterator[Sequence[Ready]]:
        """The resources that are complete, some at a time."""
        for piece in self._body.feed(data):
            self._bytes += len(piece)
            if self._bytes > (most := self._limits.body_bytes):
                raise Rejected(f"the body exceeds {most} bytes, decompressed", status=413)
            if self._bytes > self._accounted:
                raise Rejected(
                    f"the body holds {self.resources} resources in {self._bytes} bytes: leave out "
                    "white space and whatever else says nothing about a resource",
                    status=413,
                )
            yield self._ready(self._form.feed(piece))

    @property
    def as_of(self) -> Position | None:
        """The moment of the resources, if the body names it."""
        return self._form.as_of if isinstance(self._form, NdjsonReader) else None

    def close(self) -> Sequence[Ready]:
        """The last ones; `Rejected` if the body is not whole."""
        self._body.close()
        return self._ready(self._form.close())

    def _ready(self, found: Sequence[LoadedResource]) -> Sequence[Ready]:
        if self.resources + len(found) > (most := self._limits.resources):
            raise Rejected(f"the body holds more than {most} resources", status=413)
        ready = [self._one(number, *each) for number, each in enumerate(found, self.resources)]
        self.resources += len(found)
        said = sum(len(loc) + len(rest) for loc, rest in ready)
        self._accounted += PADDING_OF_ONE * len(ready) + ESCAPED * said
        return ready

    def _one(self, number: int, change: Change, foreign: Foreign | None) -> Ready:
        faults = faults_of(change, "change")
        if faults:
            raise wrong_resource(number, faults)
        try:
            _, short = forms_of(change, foreign)
        except Rejected as error:
            raise wrong_resource(number, [("", error.detail)]) from None
        end = short.index(LOC_END)
        return short[len(LOC) : end], short[end:]


class UnpackedBody:
    """The body without its Content-Encoding, a bounded piece at a time."""

    def __init__(self, content_encoding: str) -> None:
        self._gzip = Gunzip() if is_gzip(content_encoding) else None

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            yield from _pieces(data) if self._gzip is None else self._gzip.feed(data)
        except BrokenGzip as error:
            raise error.of_a_body() from None

    def close(self) -> None:
        """All was fed: is it whole?"""
        try:
            if self._gzip is not None:
                self._gzip.close()
        except BrokenGzip as error:
            raise error.of_a_body() from None


def _pieces(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), PIECE_BYTES):
        yield data[start : start + PIECE_BYTES]


_READERS: Mapping[str, Callable[[], ResourceReader]] = {
    "application/json": JsonReader,
    "application/ndjson": NdjsonReader,
    "application/x-ndjson": NdjsonReader,
    "application/jsonl": NdjsonReader,
    "application/xml": XmlReader,
    "text/xml": XmlReader,
}


def _form_of(content_type: str) -> ResourceReader:
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type in _READERS:
        return _READERS[media_type]()
    known = ", ".join(_READERS)
    shown = f"Content-Type {media_type!r} is not understood" if media_type else "no Content-Type"
    raise Rejected(f"{shown}; send one of {known}", status=415)
