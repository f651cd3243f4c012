"""Many small answers at once in one event loop, without a task or a thread for each.

Rules that hold here: only connections are used that are there, without TLS; what is known to be
small may be asked for behind others on one connection, and if a peer cannot do that, it is not
asked so again. What was not answered is told, and asked for in another way. One epoll watches all
sockets, so the loop is woken once for all that came meanwhile.
"""

import asyncio
import select
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import NamedTuple

from rsnotify_client.http1.answer import Answer, read_head
from rsnotify_client.http1.connection import SILENCE_SECONDS, HttpConnection
from rsnotify_client.http1.pool import ConnectionPool
from rsnotify_client.http1.target import host_of

PIPELINED = 8
LOOK_SECONDS = 1.0

Heard = Callable[[Answer | None], None]
"""Called with the answer, its small body there; with None if none came."""


class _Asked(NamedTuple):
    url: str
    heard: Heard


class _Busy:
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

    @property
    def has_room(self) -> bool:
        return self.serves and len(self.asked) < PIPELINED

    def give_time(self) -> None:
        self.until = monotonic() + SILENCE_SECONDS


class Multiplexer:
    """Asks for one client; to be used in one event loop."""

    def __init__(self, connections: ConnectionPool, small_bytes: int) -> None:
        self._connections = connections
        self._small_bytes = small_bytes
        self._busy: dict[int, _Busy] = {}
        self._at_host: dict[str, list[_Busy]] = {}
        self._roomy: dict[str, deque[_Busy]] = {}  # all that have room, and some that have ended
        self._one_by_one: set[str] = set()  # hosts that do not answer what is pipelined
        self._epoll: select.epoll | None = None
        self._looks_again: asyncio.TimerHandle | None = None
        self._to_flush: list[_Busy] = []
        self.when_told: Callable[[], None] = lambda: None  # once for all that came together

    @property
    def busy(self) -> int:
        """How many connections wait for answers."""
        return len(self._busy)

    def busy_at(self, host: str) -> int:
        """…of this host."""
        return len(self._at_host.get(host, ()))

    def ask(self, url: str, headers: Mapping[str, str], heard: Heard) -> bool:
        """Whether it was asked, by an idle connection."""
        connection = self._connections.idle(url)
        if connection is None:
            return False
        busy = _Busy(connection, host_of(url))
        connection.socket.settimeout(0)
        self._busy[busy.number] = busy
        self._at_host.setdefault(busy.host, []).append(busy)
        self._roomy.setdefault(busy.host, deque()).append(busy)
        self._watching().register(busy.number, select.EPOLLIN)
        self._ask(busy, _Asked(url, heard), headers)
        return True

    def asks_one_by_one(self, host: str) -> bool:
        """Whether it has turned out not to answer what is pipelined."""
        return host in self._one_by_one

    def may_ask_behind(self, host: str) -> bool:
        """Whether a busy connection may serve more."""
        return self._with_room(host) is not None

    def _with_room(self, host: str) -> _Busy | None:
        if host in self._one_by_one:
            return None
        roomy = self._roomy.setdefault(host, deque())
        while roomy and not roomy[0].has_room:
            roomy.popleft()
        return roomy[0] if roomy else None

    def ask_behind(self, url: str, headers: Mapping[str, str], heard: Heard) -> bool:
        """Whether it was asked, behind others by a busy connection."""
        if (busy := self._with_room(host := host_of(url))) is None:
            return False
        self._ask(busy, _Asked(url, heard), headers)
        roomy = self._roomy[host]
        roomy.append(roomy.popleft())  # the next turn is another's
        if not busy.has_room:
            roomy.pop()
        return True

    def _ask(self, busy: _Busy, asked: _Asked, headers: Mapping[str, str]) -> None:
        if not busy.asked:
            busy.give_time()
        busy.asked.append(asked)
        if not busy.to_send:
            if not self._to_flush:
                asyncio.get_running_loop().call_soon(self._flush)
            self._to_flush.append(busy)
        busy.to_send += self._connections.request(asked.url, headers)

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

    def _hear_one(self, busy: _Busy) -> None:
        try:
            busy.connection.hear()
            while busy.asked and busy.serves and (answer := self._answered(busy)) is not None:
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

    def _answered(self, busy: _Busy) -> Answer | None:
        """The first answer, once it is there as far as it is waited for."""
        if busy.answer is None:
            if not busy.connection.has_head:
                return None
            busy.answer = read_head(busy.connection, busy.asked[0].url)
        missing = (busy.answer.length or 0) - busy.connection.early_bytes
        return busy.answer if missing <= 0 or not self._is_small(busy.answer) else None

    def _is_small(self, answer: Answer) -> bool:
        """Not what a large one goes on with, however short that is."""
        length = answer.length
        return length is not None and length <= self._small_bytes and answer.status != 206

    def _tell(self, busy: _Busy, answer: Answer) -> None:
        if len(busy.asked) == PIPELINED:
            self._roomy[busy.host].append(busy)
        asked, busy.answer = busy.asked.popleft(), None
        busy.give_time()
        if self._is_small(answer):
            busy.serves = answer.keeps
            asked.heard(answer)
            answer.skip()
            return
        busy.serves = False
        self._leave(busy)
        answer.keeps &= not busy.asked  # or the next answers would come behind this one's body
        answer.give_back = self._connections.done
        asked.heard(answer)

    def _waits(self, busy: _Busy) -> bool:
        """Still; a new connection may have its number."""
        return self._busy.get(busy.number) is busy

    def _leave(self, busy: _Busy) -> None:
        busy.serves = False
        if self._waits(busy):
            del self._busy[busy.number]
            self._watching().unregister(busy.number)
            self._at_host[busy.host].remove(busy)
            busy.connection.socket.settimeout(SILENCE_SECONDS)

    def _end(self, busy: _Busy) -> None:
        """Whoever still waits for an answer by this connection has to ask in another way."""
        if busy.serves and len(busy.asked) > 1:
            self._one_by_one.add(busy.host)
        busy.serves = False
        if self._waits(busy):
            self._leave(busy)
            self._connections.drop(busy.connection)
        while busy.asked:
            busy.asked.popleft().heard(None)
        self.when_told()

    def _end_the_overdue(self) -> None:
        now = monotonic()
        for busy in [each for each in self._busy.values() if each.until < now]:
            self._end(busy)
        loop = asyncio.get_running_loop()
        self._looks_again = loop.call_later(LOOK_SECONDS, self._end_the_overdue)
