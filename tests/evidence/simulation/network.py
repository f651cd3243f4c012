"""Connections between the hosts of a world: ordered bytes, late, in pieces, cut, or not at all.

What is written arrives later, in order. A peer that does not read fills its window, and then the
writer's buffer, which pauses the writer as asyncio promises. A reset ends both ends. Between hosts
that are parted nothing arrives until they are joined again.
"""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from hashlib import blake2b
from random import Random
from typing import Any

from tests.evidence.simulation.loop import HOST, Host, SimulatedLoop

WINDOW_BYTES = 64 * 1024  # on the way, or with a peer that does not read
PIECE_OF = 0.1  # of all writes arrive in two pieces
FIRST_DESCRIPTOR = 1_000_000
ESTABLISHED, CLOSED, CLOSE_WAIT = 1, 7, 8
CONNECT_SECONDS = 0.002
NEXT_SECONDS = 1e-8  # between two arrivals: timers of the same moment have no order

_ends: dict[int, "End"] = {}  # by descriptor
_real_write = os.write


def _write(descriptor: int, data: Any) -> int:
    if descriptor < FIRST_DESCRIPTOR:
        return _real_write(descriptor, data)
    end = _ends.get(descriptor)
    if end is None:
        raise OSError(errno.EBADF, "closed")
    return end.write_now(bytes(data))


os.write = _write


class FakeSocket:
    """What the hub asks of a socket."""

    family, type, proto = 2, 1, 6
    peer: tuple[Any, ...] = ()

    def __init__(self, descriptor: int = -1) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def setblocking(self, _: bool) -> None: ...
    def setsockopt(self, *_: Any) -> None: ...

    def getsockopt(self, *_: Any) -> bytes:
        """The state of the connection, as TCP_INFO begins with it."""
        end = _ends.get(self._descriptor)
        return bytes([CLOSED if end is None else CLOSE_WAIT if end.has_ended else ESTABLISHED])

    def close(self) -> None: ...


class End(asyncio.Transport):
    """One end of a connection, as its protocol sees it."""

    def __init__(self, network: "Network", host: Host, peer_name: tuple[str, int]) -> None:
        self.host = host
        self.other: End
        self._network = network
        self._loop = network.loop
        self._descriptor = FIRST_DESCRIPTOR + len(network.ends)
        _ends[self._descriptor] = self
        network.ends.append(self)
        self._extra = {
            "peername": peer_name,
            "sockname": (host.name, 0),
            "socket": FakeSocket(self._descriptor),
        }
        self._protocol: Any = None
        self._context = host.context()
        self._buffer: deque[bytes] = deque()  # not sent yet: the window is full
        self._on_the_way = 0  # bytes sent, and not taken by the other's protocol
        self._last_arrival = 0.0
        self._unread: deque[bytes] = deque()
        self._is_reading = True
        self._high, self._low = 64 * 1024, 16 * 1024
        self._is_paused = False
        self._is_closing = self._is_lost = self._has_eof = False
        self.is_half_open = False  # nothing arrives any more, in neither direction

    def __repr__(self) -> str:
        return f"<End {self.host.name} to {self.other.host.name}>"

    def begin(self, protocol: Any) -> None:
        self._protocol = protocol
        self._call(protocol.connection_made, self)

    def _call(self, callback: Callable[..., Any], *args: Any) -> None:
        """Let the protocol know, in the context of its host; a dead host hears nothing."""
        if self.host.is_alive:
            self._context.copy().run(self._guarded, callback, *args)

    def _guarded(self, callback: Callable[..., Any], *args: Any) -> Any:
        try:
            return callback(*args)
        except Exception as error:
            self._loop.call_exception_handler(
                {"message": "a protocol failed", "exception": error, "protocol": self._protocol}
            )
            self.abort()
            return None

    # --- what asyncio's transports offer ---------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._extra.get(name, default)

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._loop.call_soon(self._read, context=self._context)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low
        self._check_pause()

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self._buffer))

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: Any) -> None:
        if self._is_closing or not data:
            return
        self._buffer.append(bytes(data))
        self._send()
        self._check_pause()

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(map(bytes, parts)))

    def write_now(self, data: bytes) -> int:
        """As a socket does: what there is room for."""
        if self._is_lost:
            raise OSError(errno.EPIPE, "closed")
        room = WINDOW_BYTES - self._on_the_way
        if room <= 0 or self._buffer:
            raise BlockingIOError(errno.EAGAIN, "full")
        self._dispatch(data[:room])
        return min(room, len(data))

    def write_eof(self) -> None:
        self._has_eof = True
        self._send()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._has_eof = True
            self._send()
            if not self._buffer:
                self._loop.call_soon(self.lose, None, context=self._context)

    def abort(self) -> None:
        self._is_closing = True
        self._buffer.clear()
        self._loop.call_soon(self.lose, None, context=self._context)
        self._arrive_in(self.other.lose, ConnectionResetError(errno.ECONNRESET, "reset by peer"))

    # --- on the way ------------------------------------------------------------------------------

    def _send(self) -> None:
        while self._buffer and (room := WINDOW_BYTES - self._on_the_way) > 0:
            data = self._buffer.popleft()
            if len(data) > room:
                self._buffer.appendleft(data[room:])
                data = data[:room]
            self._dispatch(data)
        if self._has_eof and not self._buffer:
            self._has_eof = False
            self._arrive_in(self.other.receive, None)
            if self._is_closing:
                self._loop.call_soon(self.lose, None, context=self._context)

    def _dispatch(self, data: bytes) -> None:
        chance = self._network.chance
        if len(data) > 1 and chance.random() < PIECE_OF:
            at = chance.randrange(1, len(data))
            self._dispatch_whole(data[:at])
            data = data[at:]
        self._dispatch_whole(data)

    def _dispatch_whole(self, data: bytes) -> None:
        self._network.note(self, data)
        self._on_the_way += len(data)
        self._arrive_in(self.other.receive, data)

    def _arrive_in(self, callback: Callable[..., None], *args: Any) -> None:
        when = max(
            self._last_arrival + NEXT_SECONDS, self._loop.time() + self._network.latency(self)
        )
        self._last_arrival = when
        self._loop.at(when, self.arrive, callback, *args, context=self._network.context)

    def arrive(self, callback: Callable[..., None], *args: Any) -> None:
        if self.is_half_open:
            return
        if self._network.are_parted(self.host, self.other.host):
            self._network.held.append((self, callback, args))
        else:
            callback(*args)

    def receive(self, data: bytes | None) -> None:
        if not self._is_lost:
            self._unread.append(b"" if data is None else data)
            self._read()

    def _read(self) -> None:
        while self._is_reading and self._unread and not self._is_lost and self.host.is_alive:
            data = self._unread.popleft()
            if data:
                if not self._is_closing:
                    read = getattr(self._protocol, "receive_data", None)  # of a `BoundedInput`
                    self._call(read or self._protocol.data_received, data)
                self.other.taken(len(data))
            elif not self._is_closing:
                self._call(self._read_eof)

    def _read_eof(self) -> None:
        if not self._protocol.eof_received():
            self.close()

    def taken(self, count: int) -> None:
        """The peer has read so much; to hear of it takes no time, for it changes no order."""
        self._on_the_way -= count
        if self.host.is_alive and not self._is_lost:
            self._send()
            self._check_pause()

    def _check_pause(self) -> None:
        size = self.get_write_buffer_size()
        if size > self._high and not self._is_paused:
            self._is_paused = True
            self._call(self._protocol.pause_writing)
        elif size <= self._low and self._is_paused:
            self._is_paused = False
            self._call(self._protocol.resume_writing)

    def lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        _ends.pop(self._descriptor, None)
        self._buffer.clear()
        self._call(self._protocol.connection_lost, error)
        self._protocol = None  # what the hub has forgotten is not kept by the world

    def reset(self) -> None:
        """Both ends are told so, now."""
        error = ConnectionResetError(errno.ECONNRESET, "reset by peer")
        self.lose(error)
        self.other.lose(error)

    @property
    def has_ended(self) -> bool:
        """Whether the peer's end has come, and was not read yet."""
        return b"" in self._unread

    @property
    def is_lost(self) -> bool:
        return self._is_lost


class Listener:
    """A server, as uvicorn and asyncio know it."""

    sockets: tuple[Any, ...] = ()

    def __init__(self, network: "Network", key: tuple[str, int]) -> None:
        self._network, self._key = network, key

    def close(self) -> None:
        self._network.listening.pop(self._key, None)

    async def wait_closed(self) -> None: ...

    def is_serving(self) -> bool:
        return self._key in self._network.listening


class Network:
    """Who listens where, and how long everything takes."""

    def __init__(self, loop: SimulatedLoop, chance: Random, hosts: dict[str, Host]) -> None:
        self.loop = loop
        self.chance = chance
        self.listening: dict[tuple[str, int], tuple[Host, Callable[[], Any]]] = {}
        self.ends: list[End] = []
        self.held: list[tuple[End, Callable[..., None], tuple[Any, ...]]] = []
        self.context = copy_context()  # of no host
        self._hosts = hosts
        self._addresses: list[str] = []
        self._parted: set[frozenset[str]] = set()
        self._slow: dict[str, float] = {}
        self._sent = blake2b(digest_size=8)
        loop.network = self

    def note(self, end: End, data: bytes) -> None:
        """All that is sent, by whom and when, makes the fingerprint of a history."""
        self._sent.update(f"{self.loop.time():.9f} {end!r} {len(data)} ".encode())
        self._sent.update(data)

    @property
    def fingerprint(self) -> str:
        return self._sent.hexdigest()

    def address_of(self, name: str) -> str:
        """What a name server says."""
        if name not in self._addresses:
            self._addresses.append(name)
        return f"10.0.0.{self._addresses.index(name) + 1}"

    def name_of(self, host: str) -> str:
        prefix, _, number = host.rpartition(".")
        return self._addresses[int(number) - 1] if prefix == "10.0.0" else host

    def latency(self, end: End) -> float:
        """Mostly short, now and then long; longer from and to a slow host."""
        slow = self._slow.get(end.host.name, 0.0) + self._slow.get(end.other.host.name, 0.0)
        drawn = self.chance.random()
        return 0.0001 + drawn**3 * 0.002 + slow * drawn

    def make_slow(self, host: str, seconds: float) -> None:
        self._slow[host] = seconds

    def part(self, one: str, other: str) -> None:
        self._parted.add(frozenset((one, other)))

    def join(self, one: str, other: str) -> None:
        """What was held arrives now."""
        self._parted.discard(frozenset((one, other)))
        held, self.held = self.held, []
        for end, callback, args in held:
            end.arrive(callback, *args)

    def halve(self, one: str, other: str) -> None:
        """What is between them forgets their connections; neither end is told so."""
        for end in self.ends:
            if (end.host.name, end.other.host.name) == (one, other) and not end.is_lost:
                end.is_half_open = end.other.is_half_open = True

    def are_parted(self, one: Host, other: Host) -> bool:
        return frozenset((one.name, other.name)) in self._parted

    def reset_all(self, host: Host) -> None:
        """Every connection of it is reset."""
        for end in self.ends:
            if end.host is host and not end.is_lost:
                end.reset()

    def listen(self, protocol_factory: Callable[[], Any], port: int) -> Listener:
        host = HOST.get()
        assert host is not None
        self.listening[host.name, port] = (host, protocol_factory)
        return Listener(self, (host.name, port))

    async def connect(
        self, protocol_factory: Callable[[], Any], host_name: str, port: int
    ) -> tuple[End, Any]:
        here = HOST.get()
        assert here is not None
        await asyncio.sleep(self.chance.random() * CONNECT_SECONDS)
        host_name = self.name_of(host_name)
        there = self._hosts.get(host_name)
        while there is not None and self.are_parted(here, there):
            await asyncio.sleep(0.1)
        found = self.listening.get((host_name, port))
        if found is None or not found[0].is_alive:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens at {host_name}")
        host, make_protocol = found
        mine = End(self, here, (host_name, port))
        theirs = End(self, host, (here.name, 40_000 + len(self.ends) % 20_000))
        mine.other, theirs.other = theirs, mine
        protocol = protocol_factory()
        theirs.begin(host.context().run(make_protocol))
        mine.begin(protocol)
        return mine, protocol
