"""How much of what was written to a socket its peer has not acknowledged.

The one number that tells a slow peer from a deaf one: it falls as long as the peer reads.
"""

import asyncio
import fcntl
import struct
import termios


def unread_bytes(transport: asyncio.Transport) -> int:
    """What the transport still holds, and what the kernel does."""
    return transport.get_write_buffer_size() + _unacknowledged(transport)


def _unacknowledged(transport: asyncio.Transport) -> int:
    """Zero where the kernel does not tell."""
    socket = transport.get_extra_info("socket")
    try:
        held: tuple[int] = struct.unpack(
            "i", fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4))
        )
    except OSError:
        return 0
    return held[0]
