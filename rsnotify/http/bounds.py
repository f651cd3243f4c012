"""What peers may take of a process: connections, bytes and time.

Connections, in all and from one address. Behind a proxy that is trusted the addresses of
connections say nothing: only the readers of channels are counted for each client then.

Bytes, both those that peers send and those that they have not read. An event loop reads as much as
it can from a socket that always has more: uvloop up to 8 MiB before it serves anybody else. So in
a turn of the loop only so much is read of all peers together. A peer that has more to say waits in
line; what it says stays in the kernel, which stops the peer. A writer waits for a peer that reads,
however slowly, but not for one that reads nothing.

Time, by one timer that runs only while there are any deadlines. When it is due, the event loop
first reads what has come: if it was busy, a peer may have sent in time, and closing the connection
would lose its request. The number of idle connections is limited: beyond it, the one that is idle
longest is closed.
"""

import asyncio
import fcntl
import logging
import resource
import socket
import struct
import termios
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, ItemsView, Mapping, Sized
from contextlib import suppress
from itertools import islice
from math import inf
from time import monotonic
from typing import Any, Generic, TypeVar

from rsnotify.errors import InvalidSettings

# --- connections ---------------------------------------------------------------------------------


Holder = TypeVar("Holder")


class LimitedCounts(Generic[Holder]):
    """Counts what each holder holds, up to a limit for each."""

    def __init__(self, limit: float = inf) -> None:
        self.limit = limit
        self._counts: Counter[Holder] = Counter()
        self._total = 0

    def is_full(self, holder: Holder) -> bool:
        return self._counts[holder] >= self.limit

    def take(self, holder: Holder) -> None:
        self._counts[holder] += 1
        self._total += 1

    def give_back(self, holder: Holder) -> None:
        """One of those that it holds; KeyError if it holds none."""
        left = self._counts.pop(holder) - 1
        if left:
            self._counts[holder] = left
        self._total -= 1

    def items(self) -> ItemsView[Holder, int]:
        """The holders, and how many each holds."""
        return self._counts.items()

    def __len__(self) -> int:
        return self._total


SPARE_FILES = 512  # for Redis, callbacks, and what else a process opens
LEAST_CONNECTIONS = 100  # with fewer a hub is of no use
MACOS_FILES = 10_240  # what macOS allows at most where it says that there is no limit
REFUSED_AT_ONCE = 1_000  # that get the reason; others are cut off

TCP_CLOSED = 7  # the peer has reset the connection; the numbers are Linux's
TCP_CLOSE_WAIT = 8  # it has closed its direction, and may be waiting for an answer

PEER = "rsnotify.http.peer"  # an extension of a scope, with the socket

FEWER = (
    "this process may open %d files, so it takes %d connections and not %d (RSNOTIFY_CONNECTIONS): "
    "raise the limit of open files (`ulimit -n`, or LimitNOFILE= of systemd)"
)

TOO_FEW = (
    "this process may open {} files, and a hub needs {} at least: "
    "raise the limit of open files (`ulimit -n`, or LimitNOFILE= of systemd)"
)

log = logging.getLogger(__name__)

CountedAs = Callable[[str], str | None]
"""The address for which a peer's address counts; None if it counts for none."""


class ConnectionLimits:
    """Counts the open HTTP connections; readers of channels are counted elsewhere."""

    def __init__(self, total: int, per_address: int, counted_as: CountedAs, readers: Sized) -> None:
        self._total = total
        self._addresses = LimitedCounts[str](per_address)
        self._counted_as = counted_as
        self._readers = readers
        self._open: dict[object, str | None] = {}

    def __len__(self) -> int:
        """How many connections there are, readers of channels included."""
        return len(self._open) + len(self._readers)

    def enter(self, connection: object, host: str) -> tuple[int, str] | None:
        """Count a connection; status and reason if it is refused, though it is counted, too."""
        address = self._open[connection] = self._counted_as(host)
        is_one_too_many = address is not None and self._addresses.is_full(address)
        if address is not None:
            self._addresses.take(address)
        if len(self) > self._total:
            return 503, f"The hub has {self._total} connections open and takes no more."
        if is_one_too_many:
            return 429, f"Your address has {self._addresses.limit} connections open: close some."
        return None

    @property
    def is_flooded(self) -> bool:
        return len(self) > self._total + REFUSED_AT_ONCE

    def pass_on(self, connection: object, to: object) -> None:
        """The same connection has another protocol now."""
        self._open[to] = self._open.pop(connection)

    def leave(self, connection: object) -> None:
        address = self._open.pop(connection, None)
        if address is not None:
            self._addresses.give_back(address)


def address_of(transport: asyncio.BaseTransport, name: str) -> tuple[str, int] | None:
    """The host and port of one end, as ASGI has them: an address of IPv6 has two members more."""
    found = transport.get_extra_info(name)
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) else None


def tcp_state(peer: Any) -> int | None:
    """The TCP state of this socket, if the kernel says it."""
    if peer is None or not hasattr(socket, "TCP_INFO"):
        return None
    if peer.fileno() < 0:  # closed here
        return TCP_CLOSED
    try:
        return int(peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0])
    except OSError:
        return None


def peer_state(scope: Mapping[str, Any]) -> int | None:
    """The TCP state of the connection of a request, if our server has it."""
    return tcp_state(scope.get("extensions", {}).get(PEER, {}).get("socket"))


def allowed_total(wanted: int, open_files: int) -> int:
    """How many connections fit into the files that a process may open; negative: no limit."""
    return wanted if open_files < 0 else max(1, min(wanted, open_files - SPARE_FILES))


def check_open_files() -> None:
    """Refuse to begin where hardly anybody could connect."""
    check_enough(_open_files())


def check_enough(open_files: int) -> None:
    needed = SPARE_FILES + LEAST_CONNECTIONS
    if 0 <= open_files < needed:
        raise InvalidSettings(TOO_FEW.format(open_files, needed))


def total_connections(wanted: int, *, is_chosen: bool) -> int:
    """As many connections as wanted, or as many as open files allow: with a warning, if an
    operator has chosen the number."""
    files = _open_files()
    total = allowed_total(wanted, files)
    if total < wanted:
        log.log(logging.WARNING if is_chosen else logging.INFO, FEWER, files, total, wanted)
    return total


def _open_files() -> int:
    """The limit, raised to what the operator has allowed at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard or soft < 0:
        return hard
    for files in (hard, MACOS_FILES):
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
            return files
    return soft


# --- time ----------------------------------------------------------------------------------------


TICK_SECONDS = 0.5
LOOP_PASSES = 2  # uvloop calls timers before it reads; the second pass comes after it has read
IDLE_SECONDS = 75.0  # proxies close theirs after 60, and must be first
IDLE_CONNECTIONS = 1_000

Callback = Callable[[], None]


class Deadlines:
    """Calls back when a peer has taken too long."""

    def __init__(
        self, *, clock: Callable[[], float] = monotonic, idle_connections: int | None = None
    ) -> None:
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
        self._timer = loop.call_later(TICK_SECONDS, self._tick_after, LOOP_PASSES)

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


# --- bytes ---------------------------------------------------------------------------------------


def unread_bytes(transport: asyncio.Transport) -> int:
    """The bytes that the transport still holds, and those that the kernel holds."""
    return transport.get_write_buffer_size() + _unacknowledged(transport)


def _unacknowledged(transport: asyncio.Transport) -> int:
    """Zero where the kernel does not report it."""
    socket = transport.get_extra_info("socket")
    try:
        held: tuple[int] = struct.unpack(
            "i", fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4))
        )
    except OSError:
        return 0
    return held[0]


class UnreadOutput:
    """The output side of one connection."""

    def __init__(
        self, transport: asyncio.Transport, deadlines: Deadlines, timeout_seconds: float
    ) -> None:
        self._transport = transport
        self._deadlines = deadlines
        self._timeout_seconds = timeout_seconds
        self.is_full = False  # the transport has asked us to wait
        self._read: asyncio.Future[None] | None = None  # until there is room
        self._unread = 0

    async def wait(self) -> None:
        """Wait until there is room."""
        if self._read is not None:
            await self._read

    def pause(self) -> None:
        self.is_full = True
        self._read = asyncio.get_running_loop().create_future()
        self.start_deadline()

    def resume(self) -> None:
        self.clear_deadline()
        self.release()

    def release(self) -> None:
        """Let the writer go on, even if the peer has gone."""
        self.is_full = False
        read, self._read = self._read, None
        if read is not None and not read.done():
            read.set_result(None)

    def start_deadline(self) -> None:
        """By then the peer must have read something."""
        self._unread = unread_bytes(self._transport)
        self._deadlines.set(self._on_deadline, self._timeout_seconds)

    def clear_deadline(self) -> None:
        self._deadlines.clear(self._on_deadline)

    def _on_deadline(self) -> None:
        if unread_bytes(self._transport) < self._unread:
            self.start_deadline()
        else:
            self._transport.abort()


BUFFER_BYTES = 64 * 1024
RESUMED = 16  # connections from the line, in a turn

HTTP, WEBSOCKET, EVENT_STREAM = "http", "websocket", "event stream"

HAND_OVER = "rsnotify.http.hand_over"
"""A message to our server, within a response: the rest is written by what `take(transport,
is_chunked=…)` makes. The exchange ends here, and nothing of it is kept."""

_buffer = memoryview(bytearray(BUFFER_BYTES))  # for all: what was read is copied at once


class ReceivedCounts:
    """How much this process has read of its peers, by the kind of connection."""

    def __init__(self) -> None:
        self.bytes = dict.fromkeys((HTTP, WEBSOCKET, EVENT_STREAM), 0)
        self.frames = 0
        self.floods = dict.fromkeys((HTTP, WEBSOCKET, EVENT_STREAM), 0)
        """Connections that were closed because their peers sent too much."""

    def report_flood(self, transport: str, connection: asyncio.BaseTransport) -> None:
        """This connection is closed because of that."""
        self.floods[transport] += 1
        peer = connection.get_extra_info("peername")
        address = peer[0] if isinstance(peer, tuple) else "a local peer"
        log.warning("closing a connection (%s) of %s: it sends too much", transport, address)


class ByTurns(ABC):
    """Does something once in a turn of the event loop, as long as it is asked to."""

    _is_asked = False

    def _come_back(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_asked = False
        self._turn()

    @abstractmethod
    def _turn(self) -> None: ...


class InputTurns(ByTurns):
    """How much is read of each connection in this turn of the event loop."""

    def __init__(self, *, turn_bytes: int, least_bytes: int) -> None:
        self._turn_bytes = turn_bytes  # of all together, but for what is free
        self._least_bytes = least_bytes  # of each, and free: most peers never say more
        self._left = turn_bytes
        self._line: dict[BoundedInput, None] = {}
        self.get_buffer = lambda _: _buffer[: max(self._left, self._least_bytes)]

    def take(self, connection: "BoundedInput", count: int) -> None:
        """Count what was read; if there may be more, the connection waits for its next turn."""
        if count < self._least_bytes:
            return
        if count >= self._left:
            self._line[connection] = None
            connection.transport.pause_reading()
        self._left -= count
        self._come_back()

    def _turn(self) -> None:
        self._left = self._turn_bytes
        for connection in list(islice(self._line, RESUMED)):
            del self._line[connection]
            connection.turn_came()
        if self._line:
            self._come_back()

    def is_waiting(self, connection: "BoundedInput") -> bool:
        return connection in self._line

    def leave(self, connection: "BoundedInput") -> bool:
        """Wait no longer; true if it waited. Nothing is read until reading is resumed."""
        was_waiting = connection in self._line
        self._line.pop(connection, None)
        return was_waiting


class BoundedInput(asyncio.BufferedProtocol):
    """A protocol that is read in turn with others.

    uvloop keeps, for each connection, the bound methods that it finds: 64 bytes each. So what it
    calls are the turns and the protocol itself, and there is no `data_received`.
    """

    __slots__ = ()

    transport: asyncio.Transport
    turns: InputTurns

    @abstractmethod
    def receive_data(self, data: bytes) -> None: ...

    def turn_came(self) -> None:
        """Read on."""
        self.transport.resume_reading()

    get_buffer = property(lambda self: self.turns.get_buffer)
    buffer_updated = property(lambda self: self)

    def __call__(self, nbytes: int) -> None:
        data = bytes(_buffer[:nbytes])
        self.turns.take(self, nbytes)
        self.receive_data(data)
