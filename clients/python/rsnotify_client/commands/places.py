"""Where in a file stands what was refused: its line and its column.

Rules that hold here: nothing is kept while all goes well. A file is read again once something in it
is refused; what is not found then is named without its place.
"""

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple
from xml.parsers import expat

from rsnotify.errors import Fault, Rejected
from rsnotify_client.answer import NotAHub, words_of
from rsnotify_client.hub import JSON
from rsnotify_client.loading import NDJSON

JSON_BYTES = 64 * 1024 * 1024
"""A longer array is not read again as a whole."""
PIECE_BYTES = 256 * 1024
OF_A_BODY = frozenset({400, 413, 422})
SHOWN_FAULTS = 10
MAX_FAULTS = 100  # that a hub names


class Place(NamedTuple):
    """A line and a column, the first of each is 1."""

    line: int
    column: int

    def after(self, text: str) -> "Place":
        """
        >>> Place(2, 5).after("abc"), Place(2, 5).after("a\\nbc")
        (Place(line=2, column=8), Place(line=3, column=3))
        """
        lines = text.count("\n")
        begun = 1 if lines else self.column
        return Place(self.line + lines, begun + len(text) - text.rfind("\n") - 1)


class JsonEntry(NamedTuple):
    """A change or a resource, as it is written."""

    begin: Place
    text: str

    def place(self, field: str, byte: int | None) -> Place:
        """Where this field begins, or this byte; or else the entry."""
        if byte is not None:
            return self.begin.after(self.text.encode()[:byte].decode(errors="replace"))
        return self.begin.after(self.text[: _offset_of(self.text, field) or 0])


class XmlEntry(NamedTuple):
    """A `<url>`, and where in it which element begins first."""

    begin: Place
    elements: Mapping[str, Place]

    def place(self, field: str, _: int | None) -> Place:
        element = field if field in ("loc", "lastmod") else "ln" if field == "links" else "md"
        return self.elements.get(element, self.begin) if field else self.begin


_SPACE = re.compile(r"\s*").match
_DECODER = json.JSONDecoder(parse_int=float)


def _after_space(text: str, at: int) -> int:
    found = _SPACE(text, at)
    assert found is not None  # noqa: S101
    return found.end()


def _offset_of(text: str, name: str) -> int | None:
    """Where in an object its member of this name begins.

    >>> _offset_of('{"a": "b", "b": 1}', "b")
    11
    """
    try:
        at = _after_space(text, text.index("{") + 1)
        while text[at : at + 1] == '"':
            key, end = _DECODER.raw_decode(text, at)
            if key == name:
                return at
            _, end = _DECODER.raw_decode(text, _after_space(text, _after_space(text, end) + 1))
            at = _after_space(text, _after_space(text, end) + 1)
    except (ValueError, RecursionError):
        pass
    return None


# The entries of a file ---------------------------------------------------------------------------


def _of_ndjson(file: IO[bytes]) -> Iterator[JsonEntry]:
    for number, line in enumerate(file, 1):
        text = line.decode(errors="replace").rstrip()
        begun = text.lstrip()
        if begun:
            yield JsonEntry(Place(number, 1 + len(text) - len(begun)), begun)


def _of_json(file: IO[bytes]) -> Iterator[JsonEntry]:
    text = file.read(JSON_BYTES).decode(errors="replace")
    at = _after_space(text, 0)
    at = _after_space(text, at + 1) if text[at : at + 1] == "[" else at
    place, known = Place(1, 1), 0
    while text[at : at + 1] == "{":
        place, known = place.after(text[known:at]), at
        try:
            _, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            yield JsonEntry(place, text[at:])
            return
        yield JsonEntry(place, text[at:end])
        at = _after_space(text, _after_space(text, end) + 1)


class _XmlReader:
    """The entries of a document, as far as it can be read."""

    def __init__(self) -> None:
        self.entries: list[XmlEntry] = []
        self._depth = 0
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.StartElementHandler = self._begin
        self.parser.EndElementHandler = self._end
        self.parser.StartDoctypeDeclHandler = self._refuse

    def _begin(self, name: str, _: object) -> None:
        self._depth += 1
        local = name.rpartition(" ")[2]
        place = Place(self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber + 1)
        if self._depth == 2 and local == "url":
            self.entries.append(XmlEntry(place, {}))
        elif self._depth == 3 and self.entries:
            elements: Any = self.entries[-1].elements
            elements.setdefault(local, place)

    def _end(self, _: str) -> None:
        self._depth -= 1

    def _refuse(self, *_: object) -> None:
        """The hub refuses it, too; nothing that it declares is ever read."""
        raise ValueError("DOCTYPE")


def _of_xml(file: IO[bytes]) -> Iterator[XmlEntry]:
    reader = _XmlReader()
    try:
        while piece := file.read(PIECE_BYTES):
            reader.parser.Parse(piece)
            yield from reader.entries[:-1]
            del reader.entries[:-1]
    except (expat.ExpatError, ValueError):
        pass
    yield from reader.entries


def _fault_of_xml(file: IO[bytes]) -> Place | None:
    """Where it stops to be XML."""
    parser = expat.ParserCreate()
    try:
        parser.ParseFile(file)
    except expat.ExpatError as error:
        return Place(error.lineno, error.offset + 1)
    return None


_ENTRIES: Mapping[str, Callable[[IO[bytes]], Iterator[JsonEntry | XmlEntry]]] = {
    NDJSON: _of_ndjson,
    JSON: _of_json,
    "application/xml": _of_xml,
}

# What was refused --------------------------------------------------------------------------------

_BYTE = re.compile(r" \(byte (\d+)\)")
_LINE = re.compile(r",? \(?line \d+(, column \d+)?\)?")
_UNKNOWN = re.compile(r"unknown field `([^`]+)`")
_UNREADABLE = (OSError, EOFError, zlib.error, ValueError)
HEADING = '"as_of"'


class WrittenFile(NamedTuple):
    """A file that can be read again."""

    name: str
    open: Callable[[], IO[bytes]]
    first_line: int = 1

    def said(self, place: Place | None) -> str:
        if place is None:
            return self.name
        return f"{self.name}, line {place.line + self.first_line - 1}, column {place.column}"


class WrittenFiles(NamedTuple):
    """Files, the entries of which were sent one after the other."""

    files: Sequence[WrittenFile]
    content_type: str

    def refusal(self, error: Rejected, first: int = 0) -> Rejected:
        """The refusal in the words of who has written the files; `first` of them was sent first."""
        if isinstance(error, NotAHub) or error.status not in OF_A_BODY:
            return error
        named = [each for each in error.faults if "index" in each]
        if named:
            faults = [self._placed(each, first) for each in named[:SHOWN_FAULTS]]
            if more := len(named) - len(faults):
                least = ", or more than that" if len(named) >= MAX_FAULTS else ""
                faults.append(Fault(message=f"and {more} more{least}"))
            return Rejected(faults[0]["message"], status=error.status, faults=faults)
        return Rejected(self._of_file(error.detail), status=error.status)

    def _placed(self, fault: Fault, first: int) -> Fault:
        message = words_of(fault)
        field, byte = fault.get("field", ""), _BYTE.search(message)
        if (unknown := _UNKNOWN.search(message)) is not None and not field:
            field = unknown[1]
        place = self._place(
            fault["index"] + first,
            re.split(r"\W", field)[0] if field else "",
            int(byte[1]) if byte else None,
        )
        if not self.files:  # each was named on the command line
            return Fault(message=message)
        message = _BYTE.sub("", message) if place is not None else message
        number = f"entry {first + fault['index'] + 1}"
        return Fault(message=f"{place or number}: {message}")

    def _place(self, index: int, field: str, byte: int | None) -> str | None:
        try:
            for file, entry in islice(self._entries(), index, index + 1):
                return file.said(entry.place(field, byte))
        except _UNREADABLE:
            pass
        return None

    def _entries(self) -> Iterator[tuple[WrittenFile, JsonEntry | XmlEntry]]:
        for number, file in enumerate(self.files):
            with file.open() as opened:
                entries: Iterable[JsonEntry | XmlEntry] = _ENTRIES[self.content_type](opened)
                for place, entry in enumerate(entries):
                    is_first = not number and not place
                    if is_first and isinstance(entry, JsonEntry) and HEADING in entry.text:
                        continue
                    yield file, entry

    def _of_file(self, detail: str) -> str:
        """What is wrong with a file as a whole; where, if that can be known."""
        try:
            if self.content_type == "application/xml" and "not well-formed" in detail:
                for file in self.files:
                    with file.open() as opened:
                        place = _fault_of_xml(opened)
                    if place is not None:
                        return f"{file.said(place)}: {_LINE.sub('', detail)}"
            elif (byte := _BYTE.search(detail)) is not None and len(self.files) == 1:
                with self.files[0].open() as opened:
                    before = opened.read(int(byte[1])).decode(errors="replace")
                return f"{self.files[0].said(Place(1, 1).after(before))}: {_BYTE.sub('', detail)}"
        except _UNREADABLE:
            pass
        return f"{self.files[0].name}: {detail}" if len(self.files) == 1 else detail


NOWHERE = WrittenFiles((), NDJSON)
"""Of what was named on the command line."""

# Tables ------------------------------------------------------------------------------------------

TABLES = (".csv", ".tsv")
_HEADER = re.compile(rb"[\w .\"'-]+(?:[,;\t][\w .\"'-]+)+\r?\n")


def check_is_no_table(path: Path, begin: bytes, example: str) -> None:
    """Refuse CSV: it has as many forms as programs that write it."""
    if path.suffix.lower() in TABLES or _HEADER.match(begin.removeprefix(b"\xef\xbb\xbf")):
        raise Rejected(
            f"{path} is CSV, and not JSON: write a line of JSON for each row, such as {example}; "
            "docs/publishing.md shows a command that does"
        )
