"""Many small answers at once in one event loop, without a task or a thread for each.

Rules that hold here: only a connection that is idle is used, with one request at a time; an answer
comes whole, or as soon as it is known to be large; what breaks off is told, and tried again by
others. One epoll watches all sockets, so the loop is woken once for all that came meanwhile.
"""

import asyncio
import select
from collections.abc import Callable, Mapping
from time import monotonic
from typing import NamedTuple

from rsnotify_client.http1 import SILENCE_SECONDS, Answer, Connections, Line, read_head

LOOK_SECONDS = 1.0

Heard = Callable[[Answer | None], None]
"""Called with the answer, its small body there; with None if none came: ask in another way."""


class _Asked(NamedTuple):
    line: Line
    url: str
    heard: Heard
    until: float


class Multiplexer:
    """Asks for one client; to be used in one event loop."""

    def __init__(self, connections: Connections, small_bytes: int) -> None:
        self._connections = connections
        self._small_bytes = small_bytes
        self._asked: dict[int, _Asked] = {}
        self._answers: dict[int, Answer] = {}  # whose head is read and whose body is not whole
        self._epoll: select.epoll | None = None
        self._looks_again: asyncio.TimerHandle | None = None

    def ask(self, url: str, headers: Mapping[str, str], heard: Heard) -> bool:
        """Whether it was asked: only where a connection without TLS is idle."""
        line = self._connections.ask_idle("GET", url, headers)
        if line is None:
            return False
        number = line.socket.fileno()
        self._asked[number] = _Asked(line, url, heard, monotonic() + SILENCE_SECONDS)
        self._watching().register(number, select.EPOLLIN)
        return True

    def close(self) -> None:
        """Nobody is told any more."""
        if self._looks_again is not None:
            self._looks_again.cancel()
        for asked in self._asked.values():
            self._connections.drop(asked.line)
        self._asked.clear()
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
        if self._epoll is not None:
            for number, _ in self._epoll.poll(0):
                if number in self._asked:
                    self._hear_one(number, self._asked[number])

    def _hear_one(self, number: int, asked: _Asked) -> None:
        try:
            asked.line.hear()
            answer = self._answers.get(number) or self._begun(number, asked)
        except BlockingIOError:
            return
        except OSError:
            self._end(number, None)
            return
        if answer is not None and self._is_there(asked.line, answer):
            self._end(number, answer)

    def _begun(self, number: int, asked: _Asked) -> Answer | None:
        if not asked.line.has_head:
            return None
        answer = read_head(asked.line, asked.url)
        if not self._is_there(asked.line, answer):
            self._answers[number] = answer
        return answer

    def _is_there(self, line: Line, answer: Answer) -> bool:
        is_small = answer.length is not None and answer.length <= self._small_bytes
        return not is_small or line.early_bytes >= (answer.length or 0)

    def _end(self, number: int, answer: Answer | None) -> None:
        asked = self._asked.pop(number)
        self._answers.pop(number, None)
        self._watching().unregister(number)
        if answer is None:
            self._connections.drop(asked.line)
        else:
            asked.line.socket.settimeout(SILENCE_SECONDS)
            answer.give_back = self._connections.done
        asked.heard(answer)

    def _end_the_overdue(self) -> None:
        now = monotonic()
        for number in [each for each, asked in self._asked.items() if asked.until < now]:
            self._end(number, None)
        loop = asyncio.get_running_loop()
        self._looks_again = loop.call_later(LOOK_SECONDS, self._end_the_overdue)
