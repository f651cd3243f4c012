"""The slots for calls: a limited number in total, few for each host, one for each callback.

Hosts take turns, so a busy host does not delay the others. Callbacks that answered slowly, or have
never been called, share half of the slots: hanging receivers always leave the other half free.
Nothing here knows what a call is about.
"""

from collections import deque
from typing import Generic, Protocol, TypeVar


class QueuedCall(Protocol):
    """What waits for a slot."""

    @property
    def host(self) -> str: ...

    @property
    def callback(self) -> str: ...

    @property
    def prompt(self) -> bool: ...


C = TypeVar("C", bound=QueuedCall)


class _Pace(Generic[C]):
    """The hosts that wait for their turn, and how many calls at this pace are in progress."""

    def __init__(self, limit: int, per_host: int) -> None:
        self.limit = limit
        self.per_host = per_host
        self.running = 0
        self.turns: deque[_Host[C]] = deque()


class _Line(Generic[C]):
    """The calls of one host that wait at one pace."""

    __slots__ = ("has_turn", "running", "waiting")

    def __init__(self) -> None:
        self.waiting: list[C] = []  # short; a deque would take ten times the memory
        self.running = 0
        self.has_turn = False


class _Host(Generic[C]):
    __slots__ = ("callbacks", "lines", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: tuple[_Line[C], _Line[C]] = (_Line(), _Line())  # by promptness
        self.callbacks: set[str] = set()  # being called: never two calls to one at once

    @property
    def is_idle(self) -> bool:
        return not self.callbacks and not any(line.waiting for line in self.lines)

    def pop(self, line: _Line[C]) -> C | None:
        """Take out the call that has waited longest among those whose callback is free."""
        for at, call in enumerate(line.waiting):
            if call.callback not in self.callbacks:
                del line.waiting[at]
                return call
        return None


class Slots(Generic[C]):
    """The waiting calls, and the slots."""

    def __init__(self, total: int, per_host: int) -> None:
        self._total = total
        self._per_host = per_host
        slow = _Pace[C](max(1, total // 2), max(1, per_host - 1))
        self._paces = (slow, _Pace[C](total, per_host))  # by promptness
        self._hosts: dict[str, _Host[C]] = {}
        self._running: dict[C, int] = {}
        self._turn = 0

    @property
    def running(self) -> int:
        return len(self._running)

    def add(self, call: C) -> None:
        """Let this call wait; it must not wait already."""
        host = self._hosts.get(call.host)
        if host is None:
            host = self._hosts[call.host] = _Host(call.host)
        host.lines[call.prompt].waiting.append(call)
        self._give_turn(host, call.prompt)

    def take(self) -> C | None:
        """The next call that may begin, if any; it holds a slot until `done`."""
        if len(self._running) >= self._total:
            return None
        self._turn ^= 1  # neither pace starves the other
        for number in (self._turn, self._turn ^ 1):
            call = self._take_from(number)
            if call is not None:
                return call
        return None

    def done(self, call: C) -> None:
        number = self._running.pop(call)
        host = self._hosts[call.host]
        self._paces[number].running -= 1
        host.lines[number].running -= 1
        host.callbacks.discard(call.callback)
        for each in range(len(self._paces)):
            self._give_turn(host, each)
        if host.is_idle:
            self._hosts.pop(host.name)

    def _give_turn(self, host: _Host[C], number: int) -> None:
        line = host.lines[number]
        if line.waiting and not line.has_turn:
            line.has_turn = True
            self._paces[number].turns.append(host)

    def _take_from(self, number: int) -> C | None:
        pace = self._paces[number]
        while pace.turns and pace.running < pace.limit:
            host = pace.turns.popleft()
            line = host.lines[number]
            line.has_turn = False
            call = host.pop(line) if self._has_room(host, line, pace) else None
            if call is not None:
                self._begin(call, number, host)
                return call
        return None

    def _has_room(self, host: _Host[C], line: _Line[C], pace: _Pace[C]) -> bool:
        return len(host.callbacks) < self._per_host and line.running < pace.per_host

    def _begin(self, call: C, number: int, host: _Host[C]) -> None:
        self._running[call] = number
        self._paces[number].running += 1
        host.lines[number].running += 1
        host.callbacks.add(call.callback)
        self._give_turn(host, number)
