"""The connections to all origins, and requests over them."""

from collections.abc import Mapping
from contextlib import suppress
from threading import Lock
from time import monotonic

from rsnotify_client.http1.answer import Answer, read_head
from rsnotify_client.http1.connection import BadAnswer, HttpConnection
from rsnotify_client.http1.target import Target, target_of

IDLE_PER_ORIGIN = 16
IDLE_IN_ALL = 128
IDLE_SECONDS = 60


class ConnectionPool:
    """Connections to all origins; those that are idle serve again."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, str, int], list[HttpConnection]] = {}
        self._since: dict[HttpConnection, float] = {}  # of those, the one idle for longest first
        self._open: set[HttpConnection] = set()
        self._lock = Lock()
        self._is_closed = False

    def ask(self, method: str, url: str, headers: Mapping[str, str]) -> Answer:
        """One answer, no redirect followed; close it whatever comes of it."""
        target = target_of(url)
        request = request_of(method, target, lines_of(headers))
        while (connection := self._take(target)) is not None:
            with suppress(ConnectionError, BadAnswer):
                return self._said(connection, url, request)
        return self._said(self._connected(target), url, request)

    def idle(self, target: Target) -> HttpConnection | None:
        """A connection that is idle and has no TLS, if there is one."""
        return self._take(target) if target.scheme == "http" else None

    def _said(self, connection: HttpConnection, url: str, request: bytes) -> Answer:
        try:
            connection.socket.sendall(request)
            answer = read_head(connection, url)
        except BaseException:
            self.drop(connection)
            raise
        answer.give_back = self.done
        return answer

    def _take(self, target: Target) -> HttpConnection | None:
        with self._lock:
            connection = self._out(target.origin, -1) if target.origin in self._idle else None
        if connection is None or connection.is_alive():
            return connection
        self.drop(connection)
        return self._take(target)

    def _out(self, origin: tuple[str, str, int], place: int) -> HttpConnection:
        """One that was idle; the first of its origin was so for longest."""
        idle = self._idle[origin]
        connection = idle.pop(place)
        if not idle:
            del self._idle[origin]
        del self._since[connection]
        return connection

    def _connected(self, target: Target) -> HttpConnection:
        connection = HttpConnection(target)
        with self._lock:
            self._open.add(connection)
            if not self._is_closed:
                return connection
        self.drop(connection)
        raise BadAnswer("the client was closed")

    def done(self, answer: Answer) -> None:
        if answer.serves_again:
            self.keep(answer.connection)
        else:
            self.drop(answer.connection)

    def keep(self, connection: HttpConnection) -> None:
        """It is idle. Others that are so for too long, or one too many, are closed."""
        with self._lock:
            has_room = len(self._idle.get(connection.origin, ())) < IDLE_PER_ORIGIN
            if is_kept := has_room and not self._is_closed:
                self._idle.setdefault(connection.origin, []).append(connection)
                self._since[connection] = monotonic()
        if not is_kept:
            self.drop(connection)
        while (surplus := self._surplus()) is not None:
            self.drop(surplus)

    def _surplus(self) -> HttpConnection | None:
        with self._lock:
            oldest = next(iter(self._since), None)
            if oldest is None:
                return None
            is_old = monotonic() - self._since[oldest] > IDLE_SECONDS
            return self._out(oldest.origin, 0) if is_old or len(self._since) > IDLE_IN_ALL else None

    def drop(self, connection: HttpConnection) -> None:
        with self._lock:
            self._open.discard(connection)
        connection.close()

    def close(self) -> None:
        """Whoever still waits for an answer gets an error at once."""
        with self._lock:
            self._is_closed = True
            busy, idle = list(self._open), list(self._since)
            self._idle.clear()
            self._since.clear()
        for connection in busy:
            connection.abort()
        for connection in idle:
            self.drop(connection)


def request_of(method: str, target: Target, lines: str) -> bytes:
    """A request without a body."""
    return f"{method} {target.lines}{lines}\r\n".encode("latin-1")


def lines_of(headers: Mapping[str, str]) -> str:
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
