"""Which of several listening sockets gets the next connection: rather one with few connections.

The kernel chooses by a small program of ours (classic BPF): a random number falls to one of the
sockets. Nothing stands between a client and its worker, so nothing can hold connections back. Where
the kernel takes no program, or is not Linux, it goes on to choose as it does without us.
"""

import ctypes
import logging
import socket
import struct
import sys
from collections.abc import Sequence

SO_ATTACH_FILTER = 26  # of Linux; Python does not name it
LOAD, LOAD_BYTE, AND, JUMP_IF_EQUAL, JUMP_IF_AT_LEAST, RETURN = 0x20, 0x30, 0x54, 0x15, 0x35, 0x06

FLAGS_OFFSET, SYN, ACK = 13, 0x02, 0x10  # in a TCP header
DROP, KEEP = 0, 2**32 - 1

_STEP = "=HBBI"


def step(code: int, value: int, *, jump: int = 0) -> bytes:
    """`jump`: so many of the next steps are left out if the condition is true."""
    return struct.pack(_STEP, code, jump, 0, value)


NO_NEW_CONNECTION = b"".join(
    [
        step(LOAD_BYTE, FLAGS_OFFSET),
        step(AND, SYN | ACK),
        step(JUMP_IF_EQUAL, SYN, jump=1),
        step(RETURN, KEEP),
        step(RETURN, DROP),
    ]
)


def attach(bound: socket.socket, option: int, program: bytes) -> None:
    """Raises OSError if the kernel does not take it."""
    if sys.platform != "linux":
        raise OSError("only Linux takes programs for sockets")
    held = ctypes.create_string_buffer(program, len(program))
    count = len(program) // struct.calcsize(_STEP)
    given = struct.pack("HP", count, ctypes.addressof(held))
    bound.setsockopt(socket.SOL_SOCKET, option, given)


log = logging.getLogger(__name__)

STEER_SECONDS = 0.1
ARRIVING = 128  # connections that may come before the next look counts, at least

SO_ATTACH_REUSEPORT_CBPF = 51  # of Linux; Python does not name it
RANDOM = 0xFFFFF000 + 56  # where a load finds a random number
RANGE = 2**32


def weights(connections: Sequence[int | None], arriving: int) -> list[int]:
    """How much of what arrives each socket is to get, so that all have the same then.

    Nothing goes to a socket without a worker (None), unless none has one.
    """
    served = [count for count in connections if count is not None]
    if not served:
        return [1] * len(connections)
    target = -(-(sum(served) + max(arriving, ARRIVING)) // len(served))
    return [0 if count is None else max(0, target - count) for count in connections]


def program(parts: Sequence[int]) -> bytes:
    """For each socket: if the random number is below its bound, choose it."""
    steps = [step(LOAD, RANDOM)]
    below = 0
    for number, part in enumerate(parts[:-1]):
        below += part
        bound = min(RANGE - 1, below * RANGE // sum(parts))
        steps += [step(JUMP_IF_AT_LEAST, bound, jump=1), step(RETURN, number)]
    return b"".join([*steps, step(RETURN, len(parts) - 1)])


class Steering:
    """The sockets of one port, in the order in which they began to listen."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self._sockets = sockets
        self._weights: list[int] = []
        self._total = 0
        self._is_possible = True

    def look(self, connections: Sequence[int | None]) -> None:
        """Steer by how many connections each socket's worker has.

        Twice as many may come as since the last look: what workers tell is a moment old, and if
        this process is late, what would make a few even makes many uneven.
        """
        total = sum(count or 0 for count in connections)
        found = weights(connections, 2 * (total - self._total))
        self._total = total
        if found != self._weights and self._is_possible:
            self._weights = found
            self._attach(program(found))

    def _attach(self, steps: bytes) -> None:
        try:
            attach(self._sockets[0], SO_ATTACH_REUSEPORT_CBPF, steps)
        except OSError as error:
            self._is_possible = False
            log.info("connections are spread over the workers by chance: %s", error)
