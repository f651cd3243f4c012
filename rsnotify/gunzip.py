"""gzip as hub and clients read it, wherever it comes from: one decoder, so that they agree.

Rules that hold here: members that follow each other are one content (RFC 1952, 2.2), and some may
be empty. Zeros after a member are padding; anything else that is no member is an error, and so is
an end within a member. Content comes piece by piece, and what comes without content is bounded.
"""

import zlib
from collections.abc import Iterator

PIECE_BYTES = 64 * 1024
SLICE_BYTES = 16 * 1024  # what follows a member is copied, and members may be as short as 20 bytes
FREE_BYTES = 1024 * 1024
"""So much may come beyond the content: headers, empty members, padding."""


class Gunzip:
    """Inflates a content that is fed to it; what is wrong with it is `zlib.error`."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(31)
        self._is_whole = False
        self._spare = FREE_BYTES

    def feed(self, data: bytes | memoryview) -> Iterator[bytes]:
        for start in range(0, len(data), SLICE_BYTES):
            yield from self._inflated(data[start : start + SLICE_BYTES])

    def _inflated(self, packed: bytes | memoryview) -> Iterator[bytes]:
        self._spare -= len(packed)
        has_more = False
        while packed or has_more:
            if self._is_whole:
                packed = bytes(packed).lstrip(b"\0")
                if not packed:
                    break
                self._member, self._is_whole = zlib.decompressobj(31), False
            piece = self._member.decompress(packed, PIECE_BYTES)
            self._spare += 2 * len(piece)
            self._is_whole = self._member.eof
            packed = self._member.unused_data if self._is_whole else self._member.unconsumed_tail
            has_more = len(piece) == PIECE_BYTES and not self._is_whole
            if piece:
                yield piece
        if self._spare < 0:
            raise zlib.error("it has more bytes in gzip than without it")

    def close(self) -> None:
        """All has come."""
        if not self._is_whole:
            raise zlib.error("it has no end")
