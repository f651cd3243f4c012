"""Many small answers at once in one event loop, without a task or a thread for each.

Rules that hold here: only connections are used that are there, without TLS; what is known to be
small may be asked for behind others on one connection, and if a peer cannot do that, it is not
asked so again. What was not answered is told, and asked for in another way. One epoll watches all
sockets, so the loop is woken once for all that came meanwhile.
"""

import asyncio
import select
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

import msgspec

from rsnotify_client.http1.answer import Answer, read_head
from rsnotify_client.http1.connection import SILENCE_SECONDS, HttpConnection
from rsnotify_client.http1.pool import ConnectionPool, request_of
from rsnotify_client.http1.target import Target, host_of, target_of

PIPELINED = 8
ONE_BY_ONE_KNOWN = 1_000
LOOK_SECONDS = 1.0

Heard = Callable[[Answer | None], None]
"""Called with the answer, its small body there; with None if none came."""


class _Asked(msgspec.Struct, frozen=True):
    url: str
    heard: Heard


class BusyConnection:
    """A connection with requests that are not answered yet."""

    def __init__(self, connection: HttpConnection, host: str) -> None:
        self.connection = connection
        self.host = host
        self.number = connection.socket.fileno()
        self.asked: deque[_Asked] = deque()
        self.answer: Answer | None = None  # to the first, if its head is there
        self.to_send = b""
        self.until = 0.0
        self.serves = True

    def give_time(self) -> None:
        self.until = monotonic() + SILENCE_SECONDS


class Multiplexer:
    """Asks for one client; to be used in one event loop."""

    def __init__(self, connections: ConnectionPool, small_bytes: int) -> None:
        self._connections = connections
        self._small_bytes = small_bytes
        self._busy: dict[int, BusyConnection] = {}
        self._at_host: dict[str, list[BusyConnection]] = {}
        self._roomy: dict[str, deque[BusyConnection]] = {}  # those that may serve more, in turn
        self._one_by_one: dict[str, None] = {}  # hosts that do not answer what is pipelined
        self._epoll: select.epoll | None = None
        self._looks_again: asyncio.TimerHandle | None = None
        self._to_flush: list[BusyConnection] = []
        self.when_told: Callable[[], None] = lambda: None  # once for all that came together

    @property
    def busy(self) -> int:
        """How many connections wait for answers."""
        return len(self._busy)

    def busy_at(self, host: str) -> int:
        """…of this host."""
        return len(self._at_host.get(host, ()))

    def asks_one_by_one(self, host: str) -> bool:
        """Whether it has turned out not to answer what is pipelined."""
        return host in self._one_by_one

    def with_room(self, host: str) -> BusyConnection | None:
        """The busy connection of this host whose turn it is to serve more, if one may."""
        if host in self._one_by_one or not (roomy := self._roomy.get(host)):
            return None
        while roomy and not roomy[0].serves:
            roomy.popleft()
        return roomy[0] if roomy else None

    def ask(self, url: str, lines: str, heard: Heard, behind: BusyConnection | None = None) -> bool:
        """Whether it was asked: behind others by this connection, or else by one that is idle."""
        target = target_of(url)
        request = request_of("GET", target, lines)
        busy = behind or self._idle(target, url)
        if busy is None:
            return False
        if not busy.asked:
            busy.give_time()
        busy.asked.append(_Asked(url, heard))
        if not busy.to_send:
            if not self._to_flush:
                asyncio.get_running_loop().call_soon(self._flush)
            self._to_flush.append(busy)
        busy.to_send += request
        self._pass_the_turn(busy)
        return True

    def _idle(self, target: Target, url: str) -> BusyConnection | None:
        connection = self._connections.idle(target)
        if connection is None:
            return None
        busy = BusyConnection(connection, host_of(url))
        connection.socket.settimeout(0)
        self._busy[busy.number] = busy
        self._at_host.setdefault(busy.host, []).append(busy)
        self._roomy.setdefault(busy.host, deque()).appendleft(busy)
        self._watching().register(busy.number, select.EPOLLIN)
        return busy

    def _pass_the_turn(self, busy: BusyConnection) -> None:
        roomy = self._roomy[busy.host]
        roomy.popleft()
        if len(busy.asked) < PIPELINED:
            roomy.append(busy)

    def _flush(self) -> None:
        """What was asked by one connection goes out at once."""
        waiting, self._to_flush = self._to_flush, []
        for busy in waiting:
            data, busy.to_send = busy.to_send, b""
            if self._waits(busy) and not busy.connection.says(data):
                self._end(busy)

    def close(self) -> None:
        """Nobody is told any more."""
        if self._looks_again is not None:
            self._looks_again.cancel()
        for busy in self._busy.values():
            self._connections.drop(busy.connection)
        self._busy.clear()
        if self._epoll is not None:
            asyncio.get_running_loop().remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _watching(self) -> select.epoll:
        if self._epoll is None:
            self._epoll = select.epoll()
            loop = asyncio.get_running_loop()
            loop.add_reader(self._epoll.fileno(), self._hear)
            self._looks_again = loop.call_later(LOOK_SECONDS, self._end_the_overdue)
        return self._epoll

    def _hear(self) -> None:
        assert self._epoll is not None  # noqa: S101
        for number, _ in self._epoll.poll(0):
            if (busy := self._busy.get(number)) is not None:
                self._hear_one(busy)

    def _hear_one(self, busy: BusyConnection) -> None:
        try:
            busy.connection.hear()
            until = monotonic() + SILENCE_SECONDS
            while busy.asked and busy.serves and (answer := self._answered(busy)) is not None:
                busy.until = until
                self._tell(busy, answer)
            self.when_told()
        except BlockingIOError:
            return
        except OSError:
            self._end(busy)
            return
        if not busy.serves:
            self._end(busy)
        elif not busy.asked:
            self._leave(busy)
            self._connections.keep(busy.connection)

    def _answered(self, busy: BusyConnection) -> Answer | None:
        """The first answer, once it is there as far as it is waited for."""
        if busy.answer is None:
            if not busy.connection.has_head:
                return None
            busy.answer = read_head(busy.connection, busy.asked[0].url)
        missing = (busy.answer.length or 0) - len(busy.connection.early)
        return busy.answer if missing <= 0 or not self._is_small(busy.answer) else None

    def _is_small(self, answer: Answer) -> bool:
        """Not what a large one goes on with, however short that is."""
        length = answer.length
        return length is not None and length <= self._small_bytes and answer.status != 206

    def _tell(self, busy: BusyConnection, answer: Answer) -> None:
        if len(busy.asked) == PIPELINED:
            self._roomy[busy.host].append(busy)
        asked, busy.answer = busy.asked.popleft(), None
        if self._is_small(answer):
            busy.serves = answer.keeps
            asked.heard(answer)
            if not answer.is_read:
                answer.skip()
            return
        busy.serves = False
        self._leave(busy)
        answer.keeps &= not busy.asked  # or the next answers would come behind this one's body
        answer.give_back = self._connections.done
        asked.heard(answer)

    def _waits(self, busy: BusyConnection) -> bool:
        """Still; a new connection may have its number."""
        return self._busy.get(busy.number) is busy

    def _leave(self, busy: BusyConnection) -> None:
        busy.serves = False
        if self._waits(busy):
            del self._busy[busy.number]
            self._watching().unregister(busy.number)
            self._forget(busy)
            busy.connection.socket.settimeout(SILENCE_SECONDS)

    def _forget(self, busy: BusyConnection) -> None:
        """Its host too, if it was the last one there."""
        at_host = self._at_host[busy.host]
        at_host.remove(busy)
        if not at_host:
            del self._at_host[busy.host], self._roomy[busy.host]
            return
        with suppress(ValueError):  # it served as many as it may
            self._roomy[busy.host].remove(busy)

    def _end(self, busy: BusyConnection) -> None:
        """Whoever still waits for an answer by this connection has to ask in another way."""
        if busy.serves and len(busy.asked) > 1:
            self._ask_one_by_one(busy.host)
        busy.serves = False
        if self._waits(busy):
            self._leave(busy)
            self._connections.drop(busy.connection)
        while busy.asked:
            busy.asked.popleft().heard(None)
        self.when_told()

    def _ask_one_by_one(self, host: str) -> None:
        """From now on; if there are very many such hosts, the first is tried anew some time."""
        self._one_by_one[host] = None
        if len(self._one_by_one) > ONE_BY_ONE_KNOWN:
            del self._one_by_one[next(iter(self._one_by_one))]

    def _end_the_overdue(self) -> None:
        now = monotonic()
        for busy in [each for each in self._busy.values() if each.until < now]:
            self._end(busy)
        loop = asyncio.get_running_loop()
        self._looks_again = loop.call_later(LOOK_SECONDS, self._end_the_overdue)
