"""The body of a load: decompressed, read, judged and made ready to be kept, piece by piece.

Memory is bounded whatever is sent: a piece is decompressed and read before the next one is.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from rsnotify.errors import Rejected
from rsnotify.journal.submission import forms_of
from rsnotify.publishing.bodies import Foreign
from rsnotify.publishing.loads.load_formats import (
    JsonReader,
    NdjsonReader,
    Resource,
    ResourceReader,
    XmlReader,
    wrong_resource,
)
from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.change_rules import faults_of
from rsnotify.resourcesync.short_form import LOC, LOC_END

LOAD_RESOURCES = 5_000_000
LOAD_BYTES = 4 * 1024 * 1024 * 1024  # decompressed
PIECE_BYTES = 64 * 1024  # read at once: some milliseconds
# White space compresses a thousand times. So a body is only so much longer than what it says:
PADDING_BYTES = 16 * 1024 * 1024
PADDING_OF_ONE = 4 * 1024  # more for each resource
ESCAPED = 6  # times what is kept of it: escapes, indentation, names in full

Ready = tuple[bytes, bytes]  # the escaped loc, and the rest of the fragment's short form


class LoadReader:
    """Reads a body; every fault in it is `Rejected` as soon as it is seen."""

    def __init__(self, content_type: str, content_encoding: str) -> None:
        self._form = _form_of(content_type)
        self._gzip = _gzip_for(content_encoding)
        self._bytes = 0
        self._accounted = PADDING_BYTES
        self.resources = 0

    def feed(self, data: bytes) -> Iterator[Sequence[Ready]]:
        """The resources that are complete, some at a time."""
        pieces = _pieces(data) if self._gzip is None else self._gzip.feed(data)
        for piece in pieces:
            self._bytes += len(piece)
            if self._bytes > LOAD_BYTES:
                raise Rejected(f"the body exceeds {LOAD_BYTES} bytes, decompressed", status=413)
            if self._bytes > self._accounted:
                raise Rejected(
                    f"the body holds {self.resources} resources in {self._bytes} bytes: leave out "
                    "white space and whatever else says nothing about a resource",
                    status=413,
                )
            yield self._ready(self._form.feed(piece))

    def close(self) -> Sequence[Ready]:
        """The last ones; `Rejected` if the body is not whole."""
        if self._gzip is not None:
            self._gzip.close()
        return self._ready(self._form.close())

    def _ready(self, found: Sequence[Resource]) -> Sequence[Ready]:
        if self.resources + len(found) > LOAD_RESOURCES:
            raise Rejected(f"the body holds more than {LOAD_RESOURCES} resources", status=413)
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


class _Gzip:
    """Files of gzip, one after the other as `cat` makes them."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(31)
        self._is_whole = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        piece = b""
        while data or len(piece) == PIECE_BYTES:
            self._is_whole = False
            piece = self._inflated(data)
            if piece:
                yield piece
            data = self._inflate.unconsumed_tail
            if self._inflate.eof:
                data, piece = self._inflate.unused_data, b""
                self._inflate, self._is_whole = zlib.decompressobj(31), True

    def _inflated(self, data: bytes) -> bytes:
        try:
            return self._inflate.decompress(data, PIECE_BYTES)
        except zlib.error as error:
            raise Rejected(f"the body is not gzip: {error}") from None

    def close(self) -> None:
        if not self._is_whole:
            raise Rejected("the body is not whole: its gzip breaks off, or has not begun")


def _gzip_for(content_encoding: str) -> _Gzip | None:
    coding = content_encoding.strip().lower()
    if coding in ("", "identity"):
        return None
    if coding in ("gzip", "x-gzip"):
        return _Gzip()
    raise Rejected(f"Content-Encoding {coding[:80]!r} is not understood; send gzip", status=415)


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
