"""gzip as hub and clients read it, wherever it comes from: one decoder, so that they agree.

Rules that hold here: members that follow each other are one content (RFC 1952, 2.2), and some may
be empty. Zeros after a member are padding; anything else behind it that is no member is an error,
and so is an end within a member. Content comes piece by piece. Bytes that bring no content, such as
padding and empty members, cost time as well, so they are bounded.
"""

import zlib
from collections.abc import Iterator

PIECE_BYTES = 64 * 1024
SLICE_BYTES = 16 * 1024
"""Fed at once: zlib copies what follows each member, and members may be as short as 20 bytes."""
FREE_BYTES = 1024 * 1024
"""How much longer than twice its content a gzip may be."""
GZIP = 31  # what zlib calls it


class Gunzip:
    """Inflates what it is fed; `zlib.error` says what is wrong with it."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(GZIP)
        self._is_whole = False
        self._allowance = FREE_BYTES  # of bytes without content

    def feed(self, data: bytes | memoryview) -> Iterator[bytes]:
        for start in range(0, len(data), SLICE_BYTES):
            yield from self._inflated(data[start : start + SLICE_BYTES])

    def _inflated(self, packed: bytes | memoryview) -> Iterator[bytes]:
        self._allowance -= len(packed)
        has_more = False
        while packed or has_more:
            if self._is_whole:
                packed = bytes(packed).lstrip(b"\0")
                if not packed:
                    break
                self._member, self._is_whole = zlib.decompressobj(GZIP), False
            piece = self._member.decompress(packed, PIECE_BYTES)
            self._allowance += 2 * len(piece)
            self._is_whole = self._member.eof
            packed = self._member.unused_data if self._is_whole else self._member.unconsumed_tail
            has_more = len(piece) == PIECE_BYTES and not self._is_whole
            if piece:
                yield piece
        if self._allowance < 0:
            raise zlib.error("it is more than twice as long in gzip as unpacked")

    def close(self) -> None:
        """All was fed: is it whole?"""
        if not self._is_whole:
            raise zlib.error("it breaks off within a member, or is empty")
