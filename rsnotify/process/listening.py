"""The socket that a hub listens on, and how connections are accepted.

Several processes share the socket that their parent has made. In a turn of the event loop a few
connections are accepted; many are passed over whose peers have left meanwhile. uvloop accepts one
in a turn: others would wait behind thousands who connect and leave. Before the socket is
closed, new connections are dropped for a moment, and all that wait are accepted: the kernel would
reset them, and a proxy may have sent a publish by then.
"""

import asyncio
import ctypes
import errno
import logging
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from rsnotify.errors import InvalidSettings
from rsnotify.http.sockets import TCP_CLOSE_WAIT, TCP_CLOSED, tcp_state
from rsnotify.process.settings import Settings

log = logging.getLogger(__name__)

BACKLOG = 4_096  # thousands of Destinations may reconnect at once
TAKEN_SECONDS = 5.0  # that a port may still be held by what is left of a killed hub
ACCEPT_SECONDS = 0.1  # for handshakes that are under way
LAST_ACCEPTED_SECONDS = 5.0  # that all who have connected are waited for: workers may be busy
LOOK_SECONDS = 0.001  # between two looks whether some still wait
ACCEPT_LOOP_PASSES = 4  # until the protocol of who was accepted last knows of it
ACCEPTED_A_TURN = 64  # not all: several processes share the connections by accepting in turn
PASSED_OVER_A_TURN = 256  # these cost next to nothing
LATE = 100  # of those that have closed their direction; one is taken in a turn
NO_FILES_SECONDS = 1.0  # until a process that can open no more files tries again

SO_ATTACH_FILTER = 26  # of Linux; Python does not name it
FLAGS, SYN, ACK = 13, 0x02, 0x10  # in a TCP header
# Steps of the kernel's packet filter (classic BPF): code, jump if true, jump if false, value.
NO_NEW_CONNECTION = (
    (0x30, 0, 0, FLAGS),  # load this byte
    (0x54, 0, 0, SYN | ACK),  # and
    (0x15, 1, 0, SYN),  # if it is equal, leave out one step
    (0x06, 0, 0, 2**32 - 1),  # keep all of the packet
    (0x06, 0, 0, 0),  # drop it
)


async def bound_socket(
    settings: Settings, inherited: int | None, taken_seconds: float = TAKEN_SECONDS
) -> socket.socket:
    """Bound, but not listening yet; a worker has its parent's."""
    if inherited is not None:
        return socket.socket(fileno=inherited)
    host, port = settings.host, settings.port
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        await _bind(made, (host, port), taken_seconds)
    except OSError as error:
        made.close()
        raise InvalidSettings(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another --host or --port"
        ) from None
    return made


async def _bind(made: socket.socket, address: tuple[str, int], taken_seconds: float) -> None:
    """A hub that was killed leaves its port when its workers have noticed; one that was just
    starting does so last."""
    until, is_logged = time.monotonic() + taken_seconds, False
    while True:
        try:
            return made.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                raise
        if not is_logged:
            log.warning("port %d is in use; waiting up to %.0f s for it", address[1], taken_seconds)
            is_logged = True
        await asyncio.sleep(0.1)


class Acceptor:
    """Accepts what connects to a socket, in place of uvicorn's server.

    A peer that has closed its direction before it was accepted has left, or waits for an answer: it
    is taken after the others, unless too many such wait.
    """

    def __init__(
        self,
        bound: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        *,
        no_files_seconds: float = NO_FILES_SECONDS,
    ) -> None:
        self._bound = bound
        self._make = make
        self._no_files_seconds = no_files_seconds
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[object]] = set()
        self._late: deque[socket.socket] = deque()
        self._retry: asyncio.TimerHandle | None = None
        bound.setblocking(False)
        bound.listen(BACKLOG)
        self._loop.add_reader(bound, self.accept)

    def close(self) -> None:
        self._loop.remove_reader(self._bound)
        if self._retry is not None:
            self._retry.cancel()
        while self._late:
            self._connect(self._late.popleft())

    async def wait_closed(self) -> None:
        """Until all that were accepted have a protocol."""
        if self._connecting:
            await asyncio.wait(self._connecting)

    def accept(self) -> None:
        """This turn's; the loop comes back while others wait."""
        accepted = passed_over = 0
        while accepted < ACCEPTED_A_TURN and passed_over < PASSED_OVER_A_TURN:
            try:
                peer, _ = self._bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            if tcp_state(peer) in (TCP_CLOSED, TCP_CLOSE_WAIT):
                passed_over += 1
                self._pass_over(peer)
            else:
                accepted += 1
                self._connect(peer)

    def _connect(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        connecting = self._loop.create_task(self._loop.connect_accepted_socket(self._make, peer))
        self._connecting.add(connecting)
        connecting.add_done_callback(self._connecting.discard)

    def _pass_over(self, peer: socket.socket) -> None:
        if tcp_state(peer) == TCP_CLOSED or len(self._late) == LATE:
            peer.close()
            return
        self._late.append(peer)
        if len(self._late) == 1:
            self._loop.call_soon(self._take_late)

    def _take_late(self) -> None:
        if self._late:
            self._connect(self._late.popleft())
        if self._late:
            self._loop.call_soon(self._take_late)

    def _pause(self, error: OSError) -> None:
        """Nobody can be accepted now."""
        log.error("cannot accept connections: %s", error.strerror)
        self._loop.remove_reader(self._bound)
        again, seconds = self._loop.add_reader, self._no_files_seconds
        self._retry = self._loop.call_later(seconds, again, self._bound, self.accept)


async def accept_the_last(
    bound: socket.socket,
    *,
    handshake_seconds: float = ACCEPT_SECONDS,
    most_seconds: float = LAST_ACCEPTED_SECONDS,
) -> None:
    """Before it is closed: nothing that has connected is left behind in it.

    A peer that tries to connect now gets no answer, tries again after a second, by the rules of
    TCP, and is refused then: so nothing was handed over.
    """
    let_nobody_in(bound)
    await asyncio.sleep(handshake_seconds)
    waiting = select.poll()
    waiting.register(bound, select.POLLIN)
    for _ in range(round(most_seconds / LOOK_SECONDS)):
        if not waiting.poll(0):
            break
        await asyncio.sleep(LOOK_SECONDS)  # some are accepted meanwhile, here or by a worker
    for _ in range(ACCEPT_LOOP_PASSES):
        await asyncio.sleep(0)


def let_nobody_in(bound: socket.socket) -> None:
    """Drop what would begin a connection, where the kernel can: on Linux."""
    steps = b"".join(struct.pack("=HBBI", *step) for step in NO_NEW_CONNECTION)
    held = ctypes.create_string_buffer(steps, len(steps))
    program = struct.pack("HP", len(NO_NEW_CONNECTION), ctypes.addressof(held))
    if sys.platform == "linux":
        with suppress(OSError):  # not allowed
            bound.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
