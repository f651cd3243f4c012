"""Small programs for the kernel (classic BPF) that decide about what arrives at a socket.

Only Linux takes them; elsewhere, and where they are refused, all goes on without.
"""

import ctypes
import socket
import struct
import sys

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
