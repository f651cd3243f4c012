"""The connections to all origins, and requests over them."""

from collections.abc import Mapping
from contextlib import suppress
from threading import Lock

from rsnotify_client.http1.answer import Answer, read_head
from rsnotify_client.http1.connection import BadAnswer, HttpConnection
from rsnotify_client.http1.target import Target, target_of

IDLE_PER_ORIGIN = 16


class ConnectionPool:
    """Connections to all origins; those that are idle serve again."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, str, int], list[HttpConnection]] = {}
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
            idle = self._idle.get(target.origin)
            connection = idle.pop() if idle else None
        if connection is None or connection.is_alive():
            return connection
        self.drop(connection)
        return self._take(target)

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
        """It is idle."""
        with self._lock:
            idle = self._idle.setdefault(connection.origin, [])
            if len(idle) < IDLE_PER_ORIGIN and not self._is_closed:
                idle.append(connection)
                return
        self.drop(connection)

    def drop(self, connection: HttpConnection) -> None:
        with self._lock:
            self._open.discard(connection)
        connection.close()

    def close(self) -> None:
        """Whoever still waits for an answer gets an error at once."""
        with self._lock:
            self._is_closed = True
            busy, idle = list(self._open), [each for one in self._idle.values() for each in one]
            self._idle.clear()
        for connection in busy:
            connection.abort()
        for connection in idle:
            self.drop(connection)


def request_of(method: str, target: Target, lines: str) -> bytes:
    """A request without a body."""
    return f"{method} {target.lines}{lines}\r\n".encode("latin-1")


def lines_of(headers: Mapping[str, str]) -> str:
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
