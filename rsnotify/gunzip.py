"""gzip as hub and clients read it, wherever it comes from: one decoder, so that they agree.

Rules that hold here: members that follow each other are one content (RFC 1952, 2.2), and some may
be empty. Zeros after a member are padding; anything else behind it that is no member is an error,
and so is an end within a member. Content comes piece by piece. Bytes that bring no content, such as
padding and empty members, cost time as well, so they are bounded; how much content there may be
is for the reader to say. What is wrong with a gzip is said by one error, in the same words.
"""

import zlib
from collections.abc import Iterable, Iterator

from rsnotify.errors import Rejected, shown

PIECE_BYTES = 64 * 1024
SLICE_BYTES = 16 * 1024
"""Fed at once: zlib copies what follows each member, and members may be as short as 20 bytes."""
FREE_BYTES = 1024 * 1024
"""How much longer than twice its content a gzip may be."""
GZIP = 31  # what zlib calls it
MAGIC = b"\x1f\x8b"
"""How each member begins."""


CODINGS = ("gzip", "x-gzip")


def is_gzip(content_encoding: str) -> bool:
    """Whether a body with this `Content-Encoding` is gzip or plain; anything else is refused.

    >>> is_gzip("x-gzip"), is_gzip(" Identity ")
    (True, False)
    """
    coding = content_encoding.strip().lower()
    if coding not in ("", "identity", *CODINGS):
        detail = f"Content-Encoding {shown(coding, 40)!r} is not understood; send gzip, or plain"
        raise Rejected(detail, status=415, headers={"accept-encoding": "gzip"})
    return coding in CODINGS


class BrokenGzip(Rejected):
    """What was read is not gzip, or not whole, or something else follows it; `why` says which."""

    def __init__(self, why: str) -> None:
        super().__init__(f"it is no whole gzip: {why}")
        self.why = why

    def of_a_body(self) -> Rejected:
        """The same, said to whoever has sent a body."""
        return Rejected(f"the body is no whole gzip, as its Content-Encoding says: {self.why}")


def unpacked(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """The content of a gzip that comes in pieces, a bounded piece at a time."""
    gunzip = Gunzip()
    for each in pieces:
        yield from gunzip.feed(each)
    gunzip.close()


def content_within(most: int, packed: bytes) -> bytes | None:
    """The content of a gzip in memory; None if it has more than `most` bytes.

    >>> import gzip
    >>> content_within(3, gzip.compress(b"abc")), content_within(2, gzip.compress(b"abc"))
    (b'abc', None)
    """
    content = bytearray()
    for piece in unpacked([packed]):
        content += piece
        if len(content) > most:
            return None
    return bytes(content)


class Gunzip:
    """Inflates what it is fed, or raises `BrokenGzip`."""

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
            piece = self._piece(packed)
            self._allowance += 2 * len(piece)
            self._is_whole = self._member.eof
            packed = self._member.unused_data if self._is_whole else self._member.unconsumed_tail
            has_more = len(piece) == PIECE_BYTES and not self._is_whole
            if piece:
                yield piece
        if self._allowance < 0:
            raise BrokenGzip("it is more than twice as long in gzip as unpacked")

    def _piece(self, packed: bytes | memoryview) -> bytes:
        try:
            return self._member.decompress(packed, PIECE_BYTES)
        except zlib.error as error:
            raise BrokenGzip(str(error).rpartition(": ")[2]) from None

    def close(self) -> None:
        """All was fed: is it whole?"""
        if not self._is_whole:
            raise BrokenGzip("it breaks off within a member, or is empty")
