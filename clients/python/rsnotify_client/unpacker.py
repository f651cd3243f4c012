"""What is compressed with gzip, inflated piece by piece.

Rules that hold here: no more is ever inflated at once than a piece; nothing is fetched.
"""

import zlib
from collections.abc import Iterator

GZIP = b"\x1f\x8b"
PIECE_BYTES = 256 * 1024
LAYERS = 2  # a .gz file that is sent with Content-Encoding: gzip


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
