"""Until when HTTP connections wait for their peers: looked at once a second, no timer for each.

Rules that hold here: one timer a process, and only while somebody waits; of the connections that
rest between two requests only so many are kept, and the one that rests longest goes first.
Nothing here knows what a connection waits for.
"""

import asyncio
import resource
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

TICK_SECONDS = 0.5
IDLE_SECONDS = 75.0  # proxies keep theirs for 60: who closes first must not be us
IDLE_CONNECTIONS = 1_000

Callback = Callable[[], None]


class Deadlines:
    """What is done when a peer has taken too long."""

    def __init__(
        self, *, clock: Callable[[], float] = monotonic, idle_connections: int | None = None
    ) -> None:
        self._clock = clock
        self._idle_connections = idle_connections or idle_limit(_open_files())
        self._due: dict[Callback, float] = {}
        self._idle: OrderedDict[Callback, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def set(self, callback: Callback, seconds: float) -> None:
        """Do this after so many seconds, unless it is taken back."""
        self._due[callback] = self._clock() + seconds
        self._start()

    def is_set(self, callback: Callback) -> bool:
        return callback in self._due

    def clear(self, callback: Callback) -> None:
        self._due.pop(callback, None)

    def add_idle(self, close: Callback) -> None:
        """The connection has nothing to do; beyond the cap the one that rests longest is closed."""
        self._idle[close] = self._clock() + IDLE_SECONDS
        self._idle.move_to_end(close)
        if len(self._idle) > self._idle_connections:
            self._idle.popitem(last=False)[0]()
        self._start()

    def remove_idle(self, close: Callback) -> None:
        self._idle.pop(close, None)

    def tick(self) -> None:
        """Act on everything that is due."""
        now = self._clock()
        while self._idle and next(iter(self._idle.values())) <= now:
            self._idle.popitem(last=False)[0]()
        for act in [act for act, at in self._due.items() if at <= now]:
            self._due.pop(act, None)
            act()

    def _start(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(TICK_SECONDS, self._tick_and_go_on)

    def _tick_and_go_on(self) -> None:
        self._timer = None
        self.tick()
        if self._due or self._idle:
            self._start()


def idle_limit(open_files: int) -> int:
    """A part of the files that the process may open; a negative number means no limit."""
    return IDLE_CONNECTIONS if open_files < 0 else max(1, min(IDLE_CONNECTIONS, open_files // 4))


def _open_files() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
