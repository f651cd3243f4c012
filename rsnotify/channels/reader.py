"""What a channel and its readers, which are connections of Destinations, know of each other.

A `SocketReader` is an open WebSocket; its `ReaderProtocol` exists only once the peer has sent
something other than a single ping or pong.

Readers that are gone are found by pings spread over time, and slow ones by time limits. One timer
wheel (`Keepalive`) serves all readers. A reader whose socket is full is not pinged: it is closed
only if its unread bytes stop falling.
"""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN

from rsnotify.channels.frames import (
    DEFLATED,
    TEXT,
    WIRE_FORMATS,
    ReaderProtocol,
    WireFormat,
    close_reason,
    one_ping_or_pong,
    pong,
)
from rsnotify.http.input_turns import WEBSOCKET, BoundedInput, InputTurns, ReceivedCounts
from rsnotify.http.sockets import unread_bytes
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.forms import JSON, Form

NOWHERE = -1  # a descriptor to which nothing can be written


class Reader(ABC):
    """A Destination's connection, as its channel sees it."""

    __slots__ = (
        "channel",
        "counted_for",
        "cursor",
        "deadline",
        "descriptor",
        "is_paused",
        "pushed_at_ping",
        "slot",
        "wire_format",
    )

    def __init__(self, wire_format: WireFormat) -> None:
        self.wire_format = wire_format
        self.channel: ReaderChannel | None = None
        self.counted_for: str | None = None  # the address, for the limits; None if not counted
        self.cursor = Position(0)  # not used while the reader is at the head
        self.descriptor = NOWHERE  # of its socket, if bytes can be written to it as they are
        self.is_paused = False
        self.deadline: float | None = None  # for the pong
        self.pushed_at_ping = -1  # the channel's `pushed` at the last ping
        self.slot = 0  # of the keep-alive's timer wheel

    @property
    @abstractmethod
    def is_open(self) -> bool: ...

    @abstractmethod
    def write(self, data: bytes, /) -> None: ...

    @abstractmethod
    def ping(self) -> bool:
        """Ping the peer; false if no pong can be expected."""

    @abstractmethod
    def backlog(self) -> int:
        """How many bytes the peer has not read yet."""

    @abstractmethod
    def close(self, code: int, reason: str) -> None: ...

    def leave_channel(self) -> None:
        """Leave the channel, if it has not left it yet."""
        channel, self.channel = self.channel, None
        if channel is not None:
            channel.leave(self)


class ReaderChannel(Protocol):
    """The channel of a reader, as the reader sees it."""

    pushed: int  # how many notifications so far

    def pause(self, reader: Reader) -> None: ...
    def resume(self, reader: Reader) -> None: ...
    def leave(self, reader: Reader) -> None: ...


READ_TURN_BYTES = 4 * 1024  # of all readers, in a turn of the event loop
LEAST_BYTES = 32  # a ping or a pong of most clients
BYTES_PER_SECOND = 16 * 1024  # four of the longest messages
FRAMES_PER_SECOND = 100  # pings of a minute and more, if the hub could read none of them meanwhile
SECOND = 1.0


class ReaderInput(InputTurns):
    """Counts for all readers of a process; of those that send nothing, nothing is kept."""

    def __init__(
        self, received: ReceivedCounts | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        super().__init__(turn_bytes=READ_TURN_BYTES, least_bytes=LEAST_BYTES)
        self.received = ReceivedCounts() if received is None else received
        self._clock = clock
        self._second_ends = 0.0
        self._bytes: dict[TransportReader, int] = {}  # in this second
        self._frames: dict[TransportReader, int] = {}

    def takes_bytes(self, reader: "TransportReader", count: int) -> bool:
        """Count what a WebSocket has sent; false if it is more than it may send."""
        self.received.bytes[WEBSOCKET] += count
        now = self._clock()
        if now >= self._second_ends:
            self._second_ends = now + SECOND
            self._bytes = self._of_the_unread(self._bytes)
            self._frames = self._of_the_unread(self._frames)
        total = self._bytes[reader] = self._bytes.get(reader, 0) + count
        return total <= BYTES_PER_SECOND

    def takes_frames(self, reader: "TransportReader", count: int) -> bool:
        """The same for the frames in these bytes."""
        self.received.frames += count
        total = self._frames[reader] = self._frames.get(reader, 0) + count
        return total <= FRAMES_PER_SECOND

    def _of_the_unread(self, counts: "dict[TransportReader, int]") -> "dict[TransportReader, int]":
        """Of readers who have sent more than could be read yet: among many floods a second may be
        too short to read what each may send."""
        return {reader: n for reader, n in counts.items() if self.is_waiting(reader)}

    def forget(self, reader: "TransportReader") -> None:
        """It has gone."""
        self._bytes.pop(reader, None)
        self._frames.pop(reader, None)


CLOSE_SECONDS = 5.0  # how long the other side may take to read the end, or to answer it
FLOOD_CLOSE_SECONDS = 0.5  # …if it sends so much that it is not read any more


class TransportReader(Reader, BoundedInput):
    """Writes shared bytes to its transport, and notifies its channel when the socket is full."""

    __slots__ = ("_closing", "transport", "turns")

    def __init__(
        self, wire_format: WireFormat, transport: asyncio.Transport, reader_input: ReaderInput
    ) -> None:
        super().__init__(wire_format)
        self.transport = transport
        self.turns: ReaderInput = reader_input
        self.descriptor = _descriptor_of(transport)
        self._closing: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        state = "paused" if self.is_paused else "writable"
        return f"<{type(self).__name__} {state} in {self.channel}>"

    def take_over(self) -> None:
        """From here on the transport speaks to this reader."""
        self.transport.pause_reading()  # uvloop asks how much to read where reading begins
        self.transport.set_protocol(self)
        self.transport.resume_reading()
        self.transport.set_write_buffer_limits(high=0)  # it says so if it holds anything
        self.is_paused = self.transport.get_write_buffer_size() > 0

    # --- called by the channel -------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._closing is None and not self.transport.is_closing()

    def write(self, data: bytes, /) -> None:
        """Write it, or have it written as soon as there is room."""
        written = 0
        if not self.is_paused:
            try:
                written = os.write(self.descriptor, data)
            except OSError:  # no room, or an error that the transport will have, too
                written = 0
        if written != len(data):
            self.transport.write(memoryview(data)[written:])

    def backlog(self) -> int:
        return unread_bytes(self.transport)

    def end_within(self, seconds: float) -> None:
        """Leave the channel; cut the connection if it has not ended by then."""
        self.leave_channel()
        if self._closing is not None:
            self._closing.cancel()
        self._closing = asyncio.get_running_loop().call_later(seconds, self.transport.abort)

    def end_flood(self, transport: str) -> None:
        """Close the connection of a peer that sends too much, and read nothing more of it."""
        self.turns.leave(self)
        self.transport.pause_reading()
        self.turns.received.report_flood(transport, self.transport)
        self.end_within(FLOOD_CLOSE_SECONDS)

    def write_delayed(self) -> None:
        """Write what could not be written while the socket was full; it may be full again then."""

    # --- called by the transport -----------------------------------------------------------------

    def pause_writing(self) -> None:
        self.is_paused = True
        if self.channel is not None:
            self.channel.pause(self)

    def resume_writing(self) -> None:
        self.is_paused = False
        self.deadline = None  # a peer that reads is alive
        self.write_delayed()
        if self.channel is not None and not self.is_paused:
            self.channel.resume(self)

    def eof_received(self) -> bool:
        """The peer has gone; what it has not read by then is dropped."""
        if self._closing is None:
            self.end_within(CLOSE_SECONDS)
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.leave_channel()
        self.turns.leave(self)
        self.turns.forget(self)
        if self._closing is not None:
            self._closing.cancel()
        self.descriptor = NOWHERE


def _descriptor_of(transport: asyncio.Transport) -> int:
    """Where a frame can be written as it is: nowhere if the transport encrypts."""
    if transport.get_extra_info("sslcontext") is not None:
        return NOWHERE
    descriptor: int = transport.get_extra_info("socket").fileno()
    return descriptor


PARSED_BYTES = 600  # before its frames are counted: a hundred of the shortest
TOO_MUCH = "readers may not send so much"


class SocketReader(TransportReader):
    """Speaks RFC 6455 with its peer."""

    __slots__ = ("_pending_pong", "parser")

    def __init__(
        self,
        transport: asyncio.Transport,
        reader_input: ReaderInput,
        *,
        is_deflated: bool,
    ) -> None:
        super().__init__(DEFLATED if is_deflated else TEXT, transport, reader_input)
        self.parser: ReaderProtocol | None = None
        self._pending_pong = b""  # to the newest ping, while the socket is full

    # --- called by the channel -------------------------------------------------------------------

    def write_in(self, form: Form) -> None:
        formats = WIRE_FORMATS[form]
        self.wire_format = formats.deflated if self._is_deflated else formats.text

    @property
    def _is_deflated(self) -> bool:
        return self.wire_format in (DEFLATED, WIRE_FORMATS[JSON].deflated)

    def ping(self) -> bool:
        self.write(self.wire_format.idle)
        return True

    def close(self, code: int, reason: str) -> None:
        """Send a close frame, and wait a few seconds for the peer's."""
        if self.is_open:
            protocol = self._parsing()
            protocol.send_close(code, close_reason(reason))
            self._act_on(protocol)

    def _parsing(self) -> ReaderProtocol:
        self.parser = self.parser or ReaderProtocol(is_deflated=self._is_deflated)
        return self.parser

    # --- called by the transport -----------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        if not self.turns.takes_bytes(self, len(data)):
            self._end_flood()
            return
        frame = one_ping_or_pong(data) if self.parser is None else None
        if frame is None:
            self._parse(data)
        elif self.turns.takes_frames(self, 1):
            self._receive_control(frame)
        else:
            self._end_flood()

    def _parse(self, data: bytes) -> None:
        protocol = self._parsing()
        for start in range(0, len(data), PARSED_BYTES):
            protocol.receive_data(data[start : start + PARSED_BYTES])
            frames = protocol.events_received()
            if not self.turns.takes_frames(self, len(frames)):
                self._end_flood()
                return
            if any(isinstance(each, Frame) and each.opcode is Opcode.PONG for each in frames):
                self.deadline = None
            self._act_on(protocol)

    def _end_flood(self) -> None:
        protocol = self._parsing()
        protocol.fail(1008, TOO_MUCH)  # the end of our side, too: we wait for no answer
        self._act_on(protocol)
        self.end_flood(WEBSOCKET)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.parser = None

    # --- reactions -------------------------------------------------------------------------------

    def _receive_control(self, frame: Frame) -> None:
        """A ping or a pong that came alone: most of what readers ever send."""
        if frame.opcode is Opcode.PONG:
            self.deadline = None
        elif self.is_paused:
            self._pending_pong = pong(frame)
        else:
            self.write(pong(frame))

    def _act_on(self, protocol: ReaderProtocol) -> None:
        for data in protocol.data_to_send():
            if self.is_paused and protocol.state is OPEN:
                self._pending_pong = data
            else:
                self._write_or_end(data)
        if protocol.state is not OPEN and self._closing is None:
            self.end_within(CLOSE_SECONDS)

    def _write_or_end(self, data: bytes) -> None:
        """Close our side only: a full close while the peer sends could lose our close frame."""
        if data:
            self.write(data)
        elif self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def write_delayed(self) -> None:
        """Answer only the newest of several pings (RFC 6455, 5.5.3), so that no buffer grows."""
        owed, self._pending_pong = self._pending_pong, b""
        if owed and self.is_open:
            self.write(owed)


# --- pings and time limits -----------------------------------------------------------------------

PING_SECONDS = 25.0  # proxies cut connections that are idle for 60
PONG_SECONDS = 20.0
TICK_SECONDS = 0.25
SLOTS = int(PING_SECONDS / TICK_SECONDS)
PONG_SLOTS = int(PONG_SECONDS / TICK_SECONDS)


class Keepalive:
    """A timer wheel: each tick pings the readers of one slot and checks the pongs of another."""

    def __init__(
        self, *, send_timeout_seconds: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self._send_timeout_seconds = send_timeout_seconds
        self._clock = clock
        # A dict takes half the memory of a set.
        self._slots: list[dict[Reader, None]] = [{} for _ in range(SLOTS)]
        self._at = 0
        self._next_slot = 0
        self._blocked: dict[Reader, tuple[float, int]] = {}  # since when, and how many bytes unread

    async def run(self) -> None:
        """Tick for as long as the hub runs."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.tick()

    def add(self, reader: Reader) -> None:
        """Use the next slot, so that pings are spread even if all readers connect at once.

        A reader may come with a full socket, by what was written before it was a reader.
        """
        reader.slot = self._next_slot
        self._slots[reader.slot][reader] = None
        self._next_slot = (self._next_slot + 1) % SLOTS
        if reader.is_paused:
            self.watch(reader)

    def remove(self, reader: Reader) -> None:
        self._slots[reader.slot].pop(reader, None)
        self.unwatch(reader)

    def watch(self, reader: Reader) -> None:
        """The reader's socket is full: watch whether it reads on."""
        self._blocked[reader] = (self._clock(), reader.backlog())

    def unwatch(self, reader: Reader) -> None:
        self._blocked.pop(reader, None)

    def tick(self) -> None:
        now = self._clock()
        self._at = (self._at + 1) % SLOTS
        idle, busy = now + PONG_SECONDS, now + max(PONG_SECONDS, self._send_timeout_seconds)
        for reader in tuple(self._slots[self._at]):
            self._ping(reader, idle, busy)
        for reader in tuple(self._slots[self._at - PONG_SLOTS]):
            self._check_pong(reader, now)
        for reader in tuple(self._blocked):
            self._check_progress(reader, now)

    def _ping(self, reader: Reader, idle_deadline: float, busy_deadline: float) -> None:
        if reader.is_paused or reader.channel is None or not reader.ping():
            return
        pushed = reader.channel.pushed
        if reader.deadline is None:
            reader.deadline = idle_deadline if reader.pushed_at_ping == pushed else busy_deadline
        reader.pushed_at_ping = pushed

    def _check_pong(self, reader: Reader, now: float) -> None:
        """Close a reader whose pong is overdue. A full socket is judged by its progress instead."""
        if reader.deadline is not None and now >= reader.deadline and not reader.is_paused:
            reader.close(1011, f"no pong within {PONG_SECONDS:.0f} s")

    def _check_progress(self, reader: Reader, now: float) -> None:
        since, unread = self._blocked[reader]
        backlog = reader.backlog()
        if backlog < unread:
            self._blocked[reader] = (now, backlog)
        elif now - since >= self._send_timeout_seconds:
            seconds = f"{self._send_timeout_seconds:.0f} s"
            reader.close(1013, f"nothing was read for {seconds}; reconnect with your cursor")
