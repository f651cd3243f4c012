"""urllib3's connections, with bounds on what a peer may send and how slowly it may send it.

Rules that hold here: status lines, header fields, chunk lengths and trailers are bounded in bytes
and lines, and must be well formed; at most so many interim answers come before the answer; a head
is complete in the time that a single read may take, and a body has a slowest rate.

This puts a file object of ours below `http.client`, in the place named `response_class`. So it
relies on how `http.client` and urllib3 read; `test_bounded.py` of the tests fails if one of them
changes. Only the time spent waiting for the peer counts, so our own slowness does no harm.
"""

import io
import re
import socket
from contextlib import suppress
from http.client import HTTPResponse
from time import monotonic
from typing import Any

from urllib3.connection import HTTPConnection, HTTPSConnection

from rsnotify_client.answer import TooSlow
from rsnotify_client.network import OutOfReach, Proxy, Reach, connected_by

HEAD_BYTES = 32 * 1024
HEAD_LINES = 96  # http.client itself takes a hundred
INTERIM_ANSWERS = 8
SILENCE_SECONDS = 60.0
FRAMING_PER_BYTE = 16  # of a body that comes in chunks of a few bytes
SLOWEST_BYTES, SLOWEST_SECONDS = 16 * 1024, 60.0

_STATUS = re.compile(rb"HTTP/1\.[01] [1-5][0-9][0-9](?: [^\r\n\0]*)?\r?\n")
_FIELD = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*)?\r?\n")
_LENGTH = re.compile(r"[0-9]{1,18}")
_FRAMING = re.compile(rb"[0-9a-fA-F]{1,15}[ \t]*(?:;[^\r\n\0]*)?\r?\n|" + _FIELD.pattern)


class BadAnswer(OSError):
    """The answer is not HTTP, or shorter than was announced."""


class StaleConnection(Exception):
    """A connection that was kept turns out to be closed; another one can be asked."""


class _Socket(io.RawIOBase):
    """The socket as a file; it counts how long it waited for the peer, and what came."""

    def __init__(self, raw: io.RawIOBase, head_seconds: float) -> None:
        self._raw = raw
        self._seconds = head_seconds
        self._least: float | None = None  # a head has no rate, only an end
        self._waited = 0.0
        self._received = 0
        self._error: OSError | None = None
        self.given: int | None = None
        """How many bytes one `read` has got; an error waits for the next one, not to lose them."""
        self.until: float | None = None
        self.patience: float | None = None
        """How long the peer may still be waited for, altogether."""

    def head_is_read(self) -> None:
        """Demand a least rate from now on, checked as often as silence would be noticed."""
        self._seconds = min(self._seconds, SLOWEST_SECONDS)
        self._least = SLOWEST_BYTES * self._seconds / SLOWEST_SECONDS
        self._waited, self._received = 0.0, 0

    def never_ends(self) -> None:
        """Demand no rate: an event stream says little for hours, and its reader watches it."""
        self._least = 0

    def readable(self) -> bool:
        return True

    def readinto(self, view: Any) -> int | None:
        if self._error is not None:
            raise self._error
        try:
            count = self._received_into(view)
        except OSError as error:
            if not self.given:
                raise
            self._error = error
            return 0
        if self.given is not None:
            self.given += count or 0
        return count

    def _received_into(self, view: Any) -> int | None:
        began = monotonic()
        count = self._raw.readinto(view)
        now = monotonic()
        self._waited += now - began
        self._received += count or 0
        if self.patience is not None:
            self.patience -= now - began
        is_over = self.patience is not None and self.patience < 0
        if is_over or (self.until is not None and now > self.until):
            raise TooSlow("the whole answer did not come in time")
        if self._waited > self._seconds:
            if self._least is None:
                raise TooSlow(f"the head of the answer took more than {self._seconds:g} s")
            if self._received < self._least:
                raise TooSlow(f"fewer than {self._least:.0f} bytes came in {self._seconds:g} s")
            self._waited, self._received = 0.0, 0
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Reader(io.BufferedReader):
    """What `http.client` reads lines and bodies from."""

    def __init__(self, raw: io.RawIOBase, head_seconds: float) -> None:
        self.socket = _Socket(raw, head_seconds)
        super().__init__(self.socket, io.DEFAULT_BUFFER_SIZE)
        self.begin_head()
        self._body = self._framing = 0

    def begin_head(self) -> None:
        self._pattern = _STATUS
        self._left, self._lines = HEAD_BYTES, HEAD_LINES

    def end_head(self) -> None:
        self._pattern = _FRAMING
        self._left, self._lines = HEAD_BYTES, HEAD_LINES
        self.socket.head_is_read()

    def readline(self, _size: int | None = -1) -> bytes:
        line = super().readline(self._left + 1)
        self._left -= len(line)
        self._lines -= 1
        if self._left < 0:
            raise BadAnswer(f"the head of the answer is longer than {HEAD_BYTES} bytes")
        if self._lines < 0:
            raise BadAnswer(f"the answer has more than {HEAD_LINES} header fields")
        if line or self._pattern is not _STATUS:  # nothing at all means that it was closed
            self._check(line)
        return line

    def _check(self, line: bytes) -> None:
        if not line.endswith(b"\n"):
            raise BadAnswer("the connection was closed before the end of the answer")
        if not self._pattern.fullmatch(line):
            raise BadAnswer(
                "what answered does not speak HTTP"
                if self._pattern is _STATUS
                else "the answer has a malformed header"
                if self._pattern is _FIELD
                else "a chunk has no length"
            )
        if self._pattern is _STATUS:
            self._pattern = _FIELD
        elif self._pattern is _FRAMING:
            self._framing += len(line)
            if self._framing > HEAD_BYTES + FRAMING_PER_BYTE * self._body:
                raise BadAnswer("the answer has more chunk lengths than content")

    def _came(self, count: int) -> None:
        if count:
            self._body += count
            self._left, self._lines = HEAD_BYTES, HEAD_LINES

    def read(self, size: int | None = -1) -> bytes:
        self.socket.given = 0
        data = super().read(size)
        self.socket.given = None
        self._came(len(data))
        return data

    def read1(self, size: int = -1) -> bytes:
        data = super().read1(size)
        self._came(len(data))
        return data

    def readinto(self, view: Any) -> int:
        self.socket.given = 0
        count = super().readinto(view)
        self.socket.given = None
        self._came(count)
        return count


class BoundedResponse(HTTPResponse):
    """An answer as `http.client` reads it, within bounds; a proxy's to CONNECT, too."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.reader = _Reader(self.fp.detach(), sock.gettimeout() or SILENCE_SECONDS)
        self.fp = self.reader
        self._sock = sock
        self._heads = 0

    def _read_status(self) -> tuple[str, int, str]:
        self._heads += 1
        if self._heads > INTERIM_ANSWERS + 1:
            raise BadAnswer(f"more than {INTERIM_ANSWERS} interim answers came")
        self.reader.begin_head()
        status: tuple[str, int, str] = super()._read_status()  # type: ignore[misc]
        return status

    def begin(self) -> None:
        super().begin()
        while self.status < 200:  # http.client skips 100 only
            if self.status == 101:
                raise BadAnswer("it changes to a protocol that nobody asked for")
            self.headers = self.msg = None  # type: ignore[assignment]
            super().begin()
        self._check_framing()
        self.reader.end_head()

    def _check_framing(self) -> None:
        """Refuse framing that http.client would take as it is, or ignore."""
        encoding = self.headers.get("Transfer-Encoding")
        if encoding is not None and encoding.lower() != "chunked":
            raise BadAnswer("the answer has a Transfer-Encoding that nobody asked for")
        lengths = set(self.headers.get_all("Content-Length", []))
        self.will_close |= bool(self.chunked and (lengths or self.length == 0))
        self.chunked &= self.length != 0  # a 304 has no content, whatever its head says
        if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
            raise BadAnswer("the answer has a Content-Length that is no number")

    def abort(self) -> None:
        """Wake the thread that waits for more."""
        abort(self._sock)


def abort(sock: Any) -> None:
    """Wake the thread that waits for this socket."""
    with suppress(OSError):  # not TLS's own, which would go on as if there were no TLS
        socket.socket.shutdown(getattr(sock, "socket", sock), socket.SHUT_RDWR)


def reached(reach: Reach, name: str, port: int | None, seconds: float | None) -> socket.socket:
    """Resolve the host once, and connect only to addresses that are allowed."""
    problem = OSError("no address was found")
    for family, kind, number, _, address in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM):
        if (why := reach.why_not_connected(name, str(address[0]))) is not None:
            problem = OutOfReach(why)
            continue
        made = socket.socket(family, kind, number)
        try:
            made.settimeout(seconds)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.connect(address)
            if (why := reach.connected(name, str(address[0]))) is not None:
                raise OutOfReach(why)
        except OSError as error:
            made.close()
            problem = error
        else:
            return made
    raise problem


class _Bounded:
    """What connections with and without TLS have in common."""

    response_class = BoundedResponse
    served = 0
    socks: Proxy | None = None
    reach: Reach | None = None
    asking: set[Any]

    def _new_conn(self) -> socket.socket:
        if self.socks is None and self.reach is not None:
            return reached(self.reach, self._dns_host, self.port, self.timeout)  # type: ignore[attr-defined]
        if self.socks is None:
            found: socket.socket = super()._new_conn()  # type: ignore[misc]
            return found
        return connected_by(self.socks, self._dns_host, self.port, self.timeout)  # type: ignore[attr-defined]

    def connect(self) -> None:
        self.served = 0
        super().connect()  # type: ignore[misc]

    def getresponse(self) -> Any:
        sock = self.sock  # type: ignore[attr-defined]
        self.asking.add(sock)
        try:
            answer = super().getresponse()  # type: ignore[misc]
        except ConnectionError as error:
            if self.served:
                raise StaleConnection from error
            raise
        finally:
            self.asking.discard(sock)
        self.served += 1
        return answer


class BoundedConnection(_Bounded, HTTPConnection):  # type: ignore[misc]
    """A connection without TLS."""


class BoundedTlsConnection(_Bounded, HTTPSConnection):  # type: ignore[misc]
    """A connection with TLS."""
