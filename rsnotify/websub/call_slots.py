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


class _Host(Generic[C]):
    """The calls of one host; pairs are by promptness."""

    __slots__ = ("callbacks", "has_turn", "name", "running", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting: tuple[list[C], list[C]] = ([], [])  # deques: ten times the memory
        self.has_turn = [False, False]
        self.running = [0, 0]
        self.callbacks: set[str] = set()  # being called: never two calls to one at once

    @property
    def is_idle(self) -> bool:
        return not self.callbacks and not any(self.waiting)

    def pop(self, pace: int) -> C | None:
        """Take out the call that has waited longest among those whose callback is free."""
        waiting = self.waiting[pace]
        for at, call in enumerate(waiting):
            if call.callback not in self.callbacks:
                del waiting[at]
                return call
        return None


class Slots(Generic[C]):
    """The waiting calls, and the slots; a pace is 1 for prompt calls, 0 for the others."""

    def __init__(self, total: int, per_host: int) -> None:
        self._total = total
        self._per_host = per_host
        self._most = (max(1, total // 2), total)  # at each pace
        self._most_per_host = (max(1, per_host - 1), per_host)
        self._turns: tuple[deque[_Host[C]], deque[_Host[C]]] = (deque(), deque())
        self._running_at = [0, 0]
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
            host = self._hosts[call.host] = _Host[C](call.host)
        host.waiting[call.prompt].append(call)
        self._give_turn(host, call.prompt)

    def take(self) -> C | None:
        """The next call that may begin, if any; it holds a slot until `done`."""
        if len(self._running) >= self._total:
            return None
        self._turn ^= 1  # neither pace starves the other
        return self._take_at(self._turn) or self._take_at(self._turn ^ 1)

    def done(self, call: C) -> None:
        pace = self._running.pop(call)
        host = self._hosts[call.host]
        self._running_at[pace] -= 1
        host.running[pace] -= 1
        host.callbacks.discard(call.callback)
        for each in (0, 1):
            self._give_turn(host, each)
        if host.is_idle:
            self._hosts.pop(host.name)

    def _give_turn(self, host: _Host[C], pace: int) -> None:
        if host.waiting[pace] and not host.has_turn[pace]:
            host.has_turn[pace] = True
            self._turns[pace].append(host)

    def _take_at(self, pace: int) -> C | None:
        turns = self._turns[pace]
        while turns and self._running_at[pace] < self._most[pace]:
            host = turns.popleft()
            host.has_turn[pace] = False
            call = host.pop(pace) if self._has_room(host, pace) else None
            if call is not None:
                self._begin(call, pace, host)
                return call
        return None

    def _has_room(self, host: _Host[C], pace: int) -> bool:
        of_pace = host.running[pace] < self._most_per_host[pace]
        return of_pace and len(host.callbacks) < self._per_host

    def _begin(self, call: C, pace: int, host: _Host[C]) -> None:
        self._running[call] = pace
        self._running_at[pace] += 1
        host.running[pace] += 1
        host.callbacks.add(call.callback)
        self._give_turn(host, pace)
