"""ResourceSync documents over HTTP: their entries as they come, plain or compressed, with a cap.

Rules that hold here: no more is ever inflated than may be read; a document that cannot be read says
its address and what is wrong with it.
"""

import zlib
from collections.abc import AsyncGenerator, Iterator

from rsnotify.errors import Rejected
from rsnotify.resourcesync.stream import DocumentStream, Head
from rsnotify.resourcesync.validation.tables import MAX_BYTES
from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_client.web import XML_FIRST, Refused, Tag, Web, check_status

GZIP = b"\x1f\x8b"
PIECE_BYTES = 256 * 1024
LAYERS = 2  # a .gz file that is sent with Content-Encoding: gzip


class Malformed(Refused):
    """A document that cannot be read to its end."""


class Unpacker:
    """Inflates what begins as gzip does, piece by piece; leaves the rest as it is."""

    def __init__(self, layers: int = LAYERS) -> None:
        self._layers = layers
        self._begun = b""
        self._inflate: zlib._Decompress | None = None
        self._next: Unpacker | None = None
        self._is_plain = layers == 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._is_plain:
            yield data
            return
        if self._inflate is None:
            self._begun += data
            if len(self._begun) < len(GZIP):
                return
            data, self._begun = self._begun, b""
            if not data.startswith(GZIP):
                self._is_plain = True
                yield data
                return
            self._inflate, self._next = zlib.decompressobj(31), Unpacker(self._layers - 1)
        assert self._next is not None  # noqa: S101
        for piece in self._inflated(self._inflate, data):
            yield from self._next.feed(piece)

    @staticmethod
    def _inflated(inflate: "zlib._Decompress", data: bytes) -> Iterator[bytes]:
        while data and not inflate.eof:
            yield inflate.decompress(data, PIECE_BYTES)
            data = inflate.unconsumed_tail


class RemoteDocument:
    """One document; iterate once for its entries, then `head`, `tag` and `skipped` are known."""

    def __init__(
        self, web: Web, url: str, known: Tag | None = None, *, cap: int = MAX_BYTES
    ) -> None:
        self.url = url
        self.tag = Tag()
        self._web = web
        self._known = known
        self._cap = cap
        self._stream = DocumentStream()

    @property
    def head(self) -> Head:
        return self._stream.head

    @property
    def has_head(self) -> bool:
        return self._stream.has_head

    @property
    def skipped(self) -> list[str]:
        return self._stream.skipped

    def skip(self, what: str) -> None:
        """An entry that whoever iterates cannot read."""
        self._stream.skip(what)

    @property
    def skipped_count(self) -> int:
        return self._stream.skipped_count

    async def __aiter__(self) -> AsyncGenerator[list[Entry], None]:
        """Raises `Unchanged` at once if it is the document that is known."""
        condition = self._known.condition if self._known else {}
        headers = {"Accept": XML_FIRST, "Accept-Encoding": "gzip"} | condition
        async with self._web.ask(self.url, headers=headers) as answer:
            check_status(self.url, answer)
            total, unpacker = 0, Unpacker()
            async for chunk in answer.pieces():
                for piece in self._guarded(unpacker.feed(chunk)):
                    total += len(piece)
                    if total > self._cap:
                        raise Malformed(f"{self.url} is longer than {self._cap} bytes: skipped")
                    if entries := self._read(piece):
                        yield entries
            self.tag = Tag.of(answer.headers)
        if entries := self._read(None):
            yield entries

    def _guarded(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        try:
            yield from pieces
        except zlib.error as error:
            raise Malformed(f"{self.url} is no whole gzip file: {error}") from None

    def _read(self, piece: bytes | None) -> list[Entry]:
        try:
            return self._stream.close() if piece is None else self._stream.feed(piece)
        except Rejected as error:
            raise Malformed(f"{self.url}: {error.detail}") from None
