"""HTTP/1.1 over blocking sockets: a request, the head of its answer, its body piece by piece.

Rules that hold here: what a peer sends before the body is bounded in bytes, lines and time, and
each wait for more in time; a connection serves again only if the answer was read to its end. Any
thread may use this, each its own connection. Nothing here knows what is fetched or why.
"""

import re
import socket
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from select import POLLIN, poll
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

if TYPE_CHECKING:
    import ssl

CONNECT_SECONDS = 15
SILENCE_SECONDS = 60
HEAD_BYTES = 32 * 1024
HEAD_LINES = 128
INTERIM_ANSWERS = 8
READ_BYTES = 64 * 1024
IDLE_PER_ORIGIN = 16
WITHOUT_BODY = (204, 304)

_CHUNK = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;.*)?")
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: .*)?")
_PLAIN = re.compile(
    r"http://([a-z0-9-]+(?:\.[a-z0-9-]+)*)(?::([1-9][0-9]{0,4}))?(/[\w/.~-]*)", re.ASCII
)
_SAFE = "!$%&'()*+,-./:;=?@_~"


class BadAnswer(OSError):
    """What came is no HTTP, or less than was announced."""


class Headers(dict[str, str]):
    """Header fields by lower-case name; one that came several times is joined by commas."""

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        return super().get(name.lower(), default)


class Target(NamedTuple):
    """Where a request goes, and what its first lines say."""

    scheme: str
    host: str
    port: int
    lines: str  # the path and Host, and Authorization if the address brings a password


def host_of(url: str) -> str:
    """What tells hosts apart: the part of an address before its path.

    >>> host_of("http://a.example:81/x?y")
    'http://a.example:81'
    """
    return "/".join(url.split("/", 3)[:3])


def target_of(url: str) -> Target:
    """Raises `ValueError` for what is no address.

    >>> target_of("http://a.example/x y/../z?q=é")[3]
    '/z?q=%C3%A9 HTTP/1.1\\r\\nHost: a.example\\r\\n'
    """
    if (
        (plain := _PLAIN.fullmatch(url)) is not None
        and "/." not in plain[3]
        and int(plain[2] or 80) < 65_536
    ):
        port = int(plain[2] or 80)
        named = f":{plain[2]}" if plain[2] else ""
        return Target("http", plain[1], port, f"{plain[3]} HTTP/1.1\r\nHost: {plain[1]}{named}\r\n")
    parts = urlsplit(url)
    host = (parts.hostname or "").encode(
        "idna" if ":" not in url.partition("]")[0][8:] else "ascii"
    )
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("http and https addresses can be fetched")
    name = f"[{host.decode()}]" if b":" in host else host.decode()
    port = parts.port or (443 if parts.scheme == "https" else 80)
    path = parts.path if "/." not in parts.path else urlsplit(urljoin("http://x/", parts.path)).path
    asked = quote((path or "/") + (f"?{parts.query}" if parts.query else ""), _SAFE)
    lines = f"{asked} HTTP/1.1\r\nHost: {name}{f':{parts.port}' if parts.port else ''}\r\n"
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        lines += f"Authorization: Basic {b64encode(pair).decode()}\r\n"
    return Target(parts.scheme, host.decode(), port, lines)


class Line:
    """One connection, and what was read of it too early."""

    def __init__(self, target: Target) -> None:
        self.origin = target[:3]
        host = target.host.encode()  # a text would be encoded again, by what is slow to import
        address = (host, target.port)
        self.socket = socket.create_connection(address, CONNECT_SECONDS)  # type: ignore[arg-type]
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if target.scheme == "https":
            self.socket = _tls().wrap_socket(self.socket, server_hostname=target.host)
        self.socket.settimeout(SILENCE_SECONDS)
        self._early = b""

    def is_alive(self) -> bool:
        """Nobody closed it, and nothing was said that nobody asked for."""
        watched = poll()
        watched.register(self.socket, POLLIN)
        return not self._early and not watched.poll(0)

    def head(self) -> bytes:
        """The lines up to an empty one, each with its end."""
        until = monotonic() + SILENCE_SECONDS
        while (end := self._early.find(b"\r\n\r\n")) < 0:
            if len(self._early) > HEAD_BYTES:
                raise BadAnswer(f"the head of the answer is longer than {HEAD_BYTES} bytes")
            self._more(until)
        head, self._early = self._early[: end + 2], self._early[end + 4 :]
        if end > HEAD_BYTES or head.count(b"\r\n") > HEAD_LINES:
            raise BadAnswer(f"the answer has more than {HEAD_LINES} header fields")
        return head

    def line(self) -> bytes:
        until = monotonic() + SILENCE_SECONDS
        while (end := self._early.find(b"\r\n")) < 0:
            if len(self._early) > HEAD_BYTES:
                raise BadAnswer("a line of the answer does not end")
            self._more(until)
        line, self._early = self._early[:end], self._early[end + 2 :]
        return line

    def _more(self, until: float) -> None:
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise BadAnswer("the connection was closed before the answer")
        if monotonic() > until:
            raise TimeoutError
        self._early += data

    def hear(self) -> None:
        """More came, by a socket that does not block."""
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise BadAnswer("the connection was closed before the answer")
        self._early += data

    def says(self, data: bytes) -> bool:
        """Whether it went out, by a socket that does not block."""
        try:
            return self.socket.send(data) == len(data)
        except OSError:
            return False

    @property
    def has_head(self) -> bool:
        return b"\r\n\r\n" in self._early or len(self._early) > HEAD_BYTES

    @property
    def early_bytes(self) -> int:
        return len(self._early)

    def take(self, size: int) -> bytes:
        """What is there already, up to this size."""
        taken, self._early = self._early[:size], self._early[size:]
        return taken

    def read_into(self, view: memoryview) -> int:
        if not self._early:
            return self.socket.recv_into(view)
        count = min(len(view), len(self._early))
        view[:count], self._early = self._early[:count], self._early[count:]
        return count

    def abort(self) -> None:
        """Wakes whoever waits for it, in whatever thread."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self.socket.close()


@cache
def _tls() -> "ssl.SSLContext":
    import ssl  # noqa: PLC0415 - it takes memory, and is needed for https only

    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class Answer:
    """The head of an answer; its body is read by `read_into` until that gives 0; then close it."""

    give_back: "Callable[[Answer], None] | None" = None

    def __init__(self, url: str, line: Line, status: int, headers: Headers, *, keeps: bool) -> None:
        self.url = url
        self.line = line
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
            count = self.line.read_into(view)
            self.is_read = not count
            return count
        count = self.line.read_into(view[: self._left])
        if not count:
            raise BadAnswer("the connection was closed before the end of the answer")
        self._left -= count
        self._end_of_piece()
        return count

    def read(self, size: int) -> bytes:
        """So many bytes, fewer only at the end."""
        if self.length is not None and self._left <= min(size, self.line.early_bytes):
            self._left, self.is_read, taken = 0, True, self.line.take(self._left)
            return taken
        buffer = memoryview(bytearray(size))
        filled = 0
        while filled < size and (count := self.read_into(buffer[filled:])):
            filled += count
        return bytes(buffer[:filled])

    def skip(self) -> None:
        """What is left of a body that is there."""
        if not self.is_read:
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
        elif self.line.line():
            raise BadAnswer("a chunk is longer than announced")

    def _next_chunk(self) -> None:
        found = _CHUNK.fullmatch(self.line.line())
        if found is None:
            raise BadAnswer("a chunk has no length")
        self._left = int(found[1], 16)
        if not self._left:
            for _ in range(HEAD_LINES):
                if not self.line.line():
                    self.is_read = True
                    return
            raise BadAnswer("the answer has too many trailers")


class ConnectionPool:
    """Connections to all origins; those that are idle serve again."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, str, int], list[Line]] = {}
        self._open: set[Line] = set()
        self._lock = Lock()
        self._is_closed = False

    def ask(self, method: str, url: str, headers: Mapping[str, str]) -> Answer:
        """One answer, no redirect followed; close it whatever comes of it."""
        target = target_of(url)
        request = _request(method, target, headers)
        while (line := self._take(target)) is not None:
            with suppress(ConnectionError, BadAnswer):
                return self._said(line, url, request)
        return self._said(self._connected(target), url, request)

    def idle(self, url: str) -> Line | None:
        """A connection that is idle and has no TLS, if there is one."""
        target = target_of(url)
        return self._take(target) if target.scheme == "http" else None

    def request(self, url: str, headers: Mapping[str, str]) -> bytes:
        return _request("GET", target_of(url), headers)

    def _said(self, line: Line, url: str, request: bytes) -> Answer:
        try:
            line.socket.sendall(request)
            answer = read_head(line, url)
        except BaseException:
            self.drop(line)
            raise
        answer.give_back = self.done
        return answer

    def _take(self, target: Target) -> Line | None:
        with self._lock:
            idle = self._idle.get(target[:3])
            line = idle.pop() if idle else None
        if line is None or line.is_alive():
            return line
        self.drop(line)
        return self._take(target)

    def _connected(self, target: Target) -> Line:
        line = Line(target)
        with self._lock:
            self._open.add(line)
            if not self._is_closed:
                return line
        self.drop(line)
        raise BadAnswer("the client was closed")

    def done(self, answer: Answer) -> None:
        if answer.serves_again:
            self.keep(answer.line)
        else:
            self.drop(answer.line)

    def keep(self, line: Line) -> None:
        """It is idle."""
        with self._lock:
            idle = self._idle.setdefault(line.origin, [])
            if len(idle) < IDLE_PER_ORIGIN and not self._is_closed:
                idle.append(line)
                return
        self.drop(line)

    def drop(self, line: Line) -> None:
        with self._lock:
            self._open.discard(line)
        line.close()

    def close(self) -> None:
        """Whoever still waits for an answer gets an error at once."""
        with self._lock:
            self._is_closed = True
            lines, idle = list(self._open), [each for one in self._idle.values() for each in one]
            self._idle.clear()
        for line in lines:
            line.abort()
        for line in idle:
            self.drop(line)


def _request(method: str, target: Target, headers: Mapping[str, str]) -> bytes:
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {target.lines}{fields}\r\n".encode("latin-1")


def read_head(line: Line, url: str) -> Answer:
    for _ in range(INTERIM_ANSWERS):
        first, _, fields = line.head().partition(b"\r\n")
        if (found := _STATUS.fullmatch(first)) is None:
            raise BadAnswer("what answered does not speak HTTP")
        if (status := int(found[2])) >= 200:
            headers = _fields(fields.decode("latin-1"))
            wish = (headers.get("connection") or "").lower()
            keeps = "close" not in wish if found[1] == b"1" else "keep-alive" in wish
            return Answer(url, line, status, headers, keeps=keeps)
    raise BadAnswer(f"more than {INTERIM_ANSWERS} interim answers came")


def _fields(text: str) -> Headers:
    lines = text.split("\r\n")[:-1]
    if not len(lines) == text.count("\n") == text.count("\r") or "\0" in text:
        raise BadAnswer("the answer has a header field that is none")
    headers = Headers()
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name.strip() != name:
            raise BadAnswer("the answer has a header field that is none")
        key, value = name.lower(), value.strip(" \t")
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers
