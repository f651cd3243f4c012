"""An event loop whose time passes only when nothing is left to do.

Callbacks run in the order in which they were asked for, as asyncio promises: what varies with the
seed is how long the network, threads and timers take, so no order is met that could not happen.
"""

import asyncio
import socket
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.evidence.simulation.network import Network

HOST: ContextVar["Host | None"] = ContextVar("host", default=None)

TIMER_LATE_SECONDS = 0.003  # at most, for a timer of a busy machine
THREAD_SECONDS = 0.004  # at most, for a short piece of work in a thread


class Host:
    """A machine: what runs on it is lost when it crashes, without another step."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.clock_moved = 0.0  # seconds by which its wall clock is wrong
        self._context = copy_context()
        self._context.run(HOST.set, self)

    def __repr__(self) -> str:
        return f"<Host {self.name}{'' if self.is_alive else ' (dead)'}>"

    def context(self) -> Context:
        return self._context.copy()


class Stuck(Exception):
    """Nothing will ever happen again, and somebody waits."""


class _Nothing:
    """In the place of a selector: waiting for sockets lets the time pass."""

    def __init__(self, loop: "SimulatedLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Stuck
        self._loop.pass_time(timeout)
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    """Time, timers and threads; connections are the network's."""

    network: "Network"

    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__()
        self._now = 0.0
        self._draw = draw
        self._selector = _Nothing(self)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._now

    def pass_time(self, seconds: float) -> None:
        self._now += seconds

    def stop_all_of(self, host: Host) -> None:
        """Nothing of it is called any more."""
        for handle in [*self._ready, *self._scheduled]:
            if handle._context.get(HOST) is host:
                handle._cancelled = True  # `cancel` would free what it refers to

    def _process_events(self, _: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def call_soon_threadsafe(self, callback, *args, context=None):
        return self.call_soon(callback, *args, context=context)

    def call_at(self, when, callback, *args, context=None):
        late = self._draw() ** 4 * TIMER_LATE_SECONDS
        return super().call_at(when + late, callback, *args, context=context)

    def at(self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:
        """Exactly then: what the network does is not late twice."""
        return super().call_at(when, callback, *args, context=context)

    def run_in_executor(self, _executor, func, *args):
        """The work is done at once when its time has come; its result is there a moment later."""
        done = self.create_future()
        self.call_later(self._draw() * THREAD_SECONDS, self._work, done, func, args)
        return done

    def _work(self, done: asyncio.Future[Any], func: Callable[..., Any], args: Any) -> None:
        if done.done():
            return
        try:
            result = func(*args)
        except Exception as error:
            done.set_exception(error)
        else:
            done.set_result(result)

    def add_signal_handler(self, *_: Any) -> None:
        pass

    def remove_signal_handler(self, *_: Any) -> bool:
        return True

    # --- connections -----------------------------------------------------------------------------

    async def getaddrinfo(self, host, port, **_):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    async def sock_connect(self, sock, address):
        sock.peer = address

    async def create_connection(self, protocol_factory, host=None, port=None, *, sock=None, **_):
        if sock is not None:
            host, port = sock.peer[:2]
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(self, protocol_factory, *_, port=None, **__):
        return self.network.listen(protocol_factory, port)
