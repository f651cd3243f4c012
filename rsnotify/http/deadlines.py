"""Time that peers may take, and how many may be idle.

One timer serves all, and runs only while there are any deadlines. When it is due, the event loop
first reads what has come: if it was busy, a peer may have sent in time, and closing the connection
would lose its request. The number of idle connections is limited: beyond it, the one that is idle
longest is closed.
"""

import asyncio
import resource
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

TICK_SECONDS = 0.5
LOOP_PASSES = 2  # uvloop calls timers before it reads; the second pass comes after it has read
IDLE_SECONDS = 75.0  # proxies close theirs after 60, and must be first
IDLE_CONNECTIONS = 1_000

Callback = Callable[[], None]


class Deadlines:
    """Calls back when a peer has taken too long."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = monotonic,
        idle_connections: int | None = None,
        tick_seconds: float = TICK_SECONDS,
    ) -> None:
        self._tick_seconds = tick_seconds
        self._clock = clock
        open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._idle_connections = idle_connections or idle_limit(open_files)
        self._due: dict[Callback, float] = {}
        self._idle: OrderedDict[Callback, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def are_any(self) -> bool:
        return bool(self._due or self._idle)

    def set(self, callback: Callback, seconds: float) -> None:
        """Call back after so many seconds, unless it is cleared."""
        self._due[callback] = self._clock() + seconds
        if self._timer is None:
            self._start()

    def is_set(self, callback: Callback) -> bool:
        return callback in self._due

    def clear(self, callback: Callback) -> None:
        self._due.pop(callback, None)

    def add_idle(self, close: Callback) -> None:
        """Note an idle connection; beyond the limit, the one that is idle longest is closed."""
        self._idle[close] = self._clock() + IDLE_SECONDS
        if len(self._idle) > self._idle_connections:
            self._idle.popitem(last=False)[0]()
        if self._timer is None:
            self._start()

    def remove_idle(self, close: Callback) -> None:
        self._idle.pop(close, None)

    def tick(self) -> None:
        """Call back everything that is due."""
        now = self._clock()
        while self._idle and next(iter(self._idle.values())) <= now:
            self._idle.popitem(last=False)[0]()
        for callback in [callback for callback, at in self._due.items() if at <= now]:
            self._due.pop(callback, None)
            callback()

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._tick_seconds, self._tick_after, LOOP_PASSES)

    def _tick_after(self, passes: int) -> None:
        if passes:
            asyncio.get_running_loop().call_soon(self._tick_after, passes - 1)
        else:
            self._tick_and_go_on()

    def _tick_and_go_on(self) -> None:
        self._timer = None
        self.tick()
        if self._timer is None and self.are_any:
            self._start()


def idle_limit(open_files: int) -> int:
    """A quarter of the files that the process may open; a negative number means no limit."""
    return IDLE_CONNECTIONS if open_files < 0 else max(1, min(IDLE_CONNECTIONS, open_files // 4))
