"""An answer: its head, and its body piece by piece, however its end is known."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from rsnotify_client.http1.connection import HEAD_LINES, MALFORMED_HEADER, BadAnswer, HttpConnection

INTERIM_ANSWERS = 8
WITHOUT_BODY = (204, 304)

_CHUNK = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;.*)?")
_STATUS = re.compile(r"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: .*)?")

Headers = dict[str, str]
"""Header fields by lower-case name; one that came several times is joined by commas."""


class Answer:
    """The head of an answer; its body is read by `read_into` until that gives 0; then close it."""

    give_back: "Callable[[Answer], None] | None" = None

    def __init__(
        self, url: str, connection: HttpConnection, status: int, headers: Headers, *, keeps: bool
    ) -> None:
        self.url = url
        self.connection = connection
        self.status = status
        self.headers = headers
        self.length: int | None = None
        self.is_read = False
        self.keeps = keeps
        self._chunked = "transfer-encoding" in headers
        self._left = 0  # of the body, or of the chunk
        self._frame()

    def _frame(self) -> None:
        """How the end of the body is known."""
        told = self.headers.get("content-length")
        if self.status in WITHOUT_BODY:
            self.length, self.is_read = 0, True
        elif self._chunked:
            self.keeps &= told is None
            if self.headers["transfer-encoding"].lower() != "chunked":
                raise BadAnswer("the answer has a Transfer-Encoding that nobody asked for")
        elif told is None:
            self.keeps = False
        elif not (told.isascii() and told.isdecimal() and len(told) < 19):
            raise BadAnswer("the answer has a Content-Length that is no number")
        else:
            self.length = self._left = int(told)
            self.is_read = self.length == 0

    @property
    def serves_again(self) -> bool:
        return self.is_read and self.keeps

    def read_into(self, view: memoryview) -> int:
        """The next bytes of the body; 0 at its end."""
        if self._chunked and not self._left and not self.is_read:
            self._next_chunk()
        if self.is_read:
            return 0
        if self.length is None and not self._chunked:
            count = self.connection.read_into(view)
            self.is_read = not count
            return count
        count = self.connection.read_into(view[: self._left])
        if not count:
            raise BadAnswer("the connection was closed before the end of the answer")
        self._left -= count
        self._end_of_piece()
        return count

    def read(self, size: int) -> bytes:
        """So many bytes, fewer only at the end."""
        left = self._left
        if self.length is not None and left <= size and left <= len(self.connection.early):
            self._left, self.is_read = 0, True
            return self.connection.take(left)
        buffer = memoryview(bytearray(size))
        filled = 0
        while filled < size and (count := self.read_into(buffer[filled:])):
            filled += count
        return bytes(buffer[:filled])

    def skip(self) -> None:
        """What is left of a body that is there."""
        self.read(self._left)

    def close(self) -> None:
        """Whoever asked has read what they want."""
        give_back, self.give_back = self.give_back, None
        if give_back is not None:
            give_back(self)

    def _end_of_piece(self) -> None:
        if self._left:
            return
        if not self._chunked:
            self.is_read = True
        elif self.connection.line():
            raise BadAnswer("a chunk is longer than announced")

    def _next_chunk(self) -> None:
        found = _CHUNK.fullmatch(self.connection.line())
        if found is None:
            raise BadAnswer("a chunk has no length")
        self._left = int(found[1], 16)
        if not self._left:
            for _ in range(HEAD_LINES):
                if not self.connection.line():
                    self.is_read = True
                    return
            raise BadAnswer("the answer has too many trailers")


def read_head(connection: HttpConnection, url: str) -> Answer:
    for _ in range(INTERIM_ANSWERS):
        lines = connection.head()
        minor, status = _status(lines[0])
        if status >= 200:
            headers = _headers(lines[1:])
            wish = headers.get("connection", "").lower()
            keeps = "close" not in wish if minor == "1" else "keep-alive" in wish
            return Answer(url, connection, status, headers, keeps=keeps)
    raise BadAnswer(f"more than {INTERIM_ANSWERS} interim answers came")


@lru_cache(maxsize=16)
def _status(line: str) -> tuple[str, int]:
    """The minor version of HTTP/1, and the status."""
    if (found := _STATUS.fullmatch(line)) is None:
        raise BadAnswer("what answered does not speak HTTP")
    return found[1], int(found[2])


def _headers(lines: Sequence[str]) -> Headers:
    fields = list(map(_field, lines))
    headers = dict(fields)
    if len(headers) < len(fields):
        headers = {name: ", ".join(v for n, v in fields if n == name) for name in headers}
    return headers


@lru_cache(maxsize=128)
def _field(line: str) -> tuple[str, str]:
    """Its name in lower case, and its value. The answers of one server are much alike."""
    name, colon, value = line.partition(":")
    if not colon or not name or name.strip() != name:
        raise BadAnswer(MALFORMED_HEADER)
    return name.lower(), value.strip(" \t")
