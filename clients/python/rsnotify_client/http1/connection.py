"""One connection: what is read of it is bounded in bytes, lines and time."""

import socket
from contextlib import suppress
from functools import cache
from select import POLLIN, poll
from time import monotonic
from typing import TYPE_CHECKING

from rsnotify_client.http1.target import Target

if TYPE_CHECKING:
    import ssl

CONNECT_SECONDS = 15
SILENCE_SECONDS = 60
HEAD_BYTES = 32 * 1024
HEAD_END = b"\r\n\r\n"
HEAD_LINES = 128
READ_BYTES = 64 * 1024
HEAD_READ_BYTES = 8 * 1024  # what comes of a large body with its head is kept until it is read
MALFORMED_HEADER = "the answer has a malformed header"


class BadAnswer(OSError):
    """What came is no HTTP, or less than was announced."""


class HttpConnection:
    """One connection, and what was read of it too early."""

    def __init__(self, target: Target) -> None:
        self.origin = target.origin
        host = target.host.encode()  # a text would be encoded again, by what is slow to import
        address = (host, target.port)
        self.socket = socket.create_connection(address, CONNECT_SECONDS)  # type: ignore[arg-type]
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if target.scheme == "https":
            self.socket = _tls().wrap_socket(self.socket, server_hostname=target.host)
        self.socket.settimeout(SILENCE_SECONDS)
        self.early = b""
        """What was read and belongs to nothing that was asked for yet."""

    def is_alive(self) -> bool:
        """Nobody closed it, and nothing was said that nobody asked for."""
        watched = poll()
        watched.register(self.socket, POLLIN)
        return not self.early and not watched.poll(0)

    def head(self) -> list[str]:
        """The lines up to an empty one."""
        end = self.early.find(HEAD_END)
        if end < 0:
            end = self._end_of_head()
        lines = self.early[:end].decode("latin-1").split("\r\n")
        self.early = self.early[end + 4 :]
        if end > HEAD_BYTES or len(lines) > HEAD_LINES:
            raise BadAnswer(f"the answer has more than {HEAD_LINES} header fields")
        text = "".join(lines)
        if "\r" in text or "\n" in text or "\0" in text:
            raise BadAnswer(MALFORMED_HEADER)
        return lines

    def _end_of_head(self) -> int:
        until = monotonic() + SILENCE_SECONDS
        while (end := self.early.find(HEAD_END)) < 0:
            if len(self.early) > HEAD_BYTES:
                raise BadAnswer(f"the head of the answer is longer than {HEAD_BYTES} bytes")
            self._more(until)
        return end

    def line(self) -> bytes:
        until = monotonic() + SILENCE_SECONDS
        while (end := self.early.find(b"\r\n")) < 0:
            if len(self.early) > HEAD_BYTES:
                raise BadAnswer("a line of the answer does not end")
            self._more(until)
        line, self.early = self.early[:end], self.early[end + 2 :]
        return line

    def _more(self, until: float) -> None:
        data = self.socket.recv(HEAD_READ_BYTES)
        if not data:
            raise BadAnswer("the connection was closed before the answer")
        if monotonic() > until:
            raise TimeoutError
        self.early += data

    def hear(self) -> None:
        """More came, by a socket that does not block."""
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise BadAnswer("the connection was closed before the answer")
        self.early += data

    def says(self, data: bytes) -> bool:
        """Whether it went out, by a socket that does not block."""
        try:
            return self.socket.send(data) == len(data)
        except OSError:
            return False

    @property
    def has_head(self) -> bool:
        return HEAD_END in self.early or len(self.early) > HEAD_BYTES

    def take(self, size: int) -> bytes:
        """What is there already, up to this size."""
        taken, self.early = self.early[:size], self.early[size:]
        return taken

    def read_into(self, view: memoryview) -> int:
        if not self.early:
            return self.socket.recv_into(view)
        count = min(len(view), len(self.early))
        view[:count], self.early = self.early[:count], self.early[count:]
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
