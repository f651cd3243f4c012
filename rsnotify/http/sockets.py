"""What the kernel says of a connection: its addresses, its state, the bytes that it still holds."""

import asyncio
import fcntl
import socket
import struct
import termios
from typing import Any

TCP_CLOSED = 7  # the peer has reset the connection; the numbers are Linux's
TCP_CLOSE_WAIT = 8  # it has closed its direction, and may be waiting for an answer


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
