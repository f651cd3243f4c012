"""Notifies systemd of the state of a service with `Type=notify`; see sd_notify(3)."""

import os
import socket
from contextlib import suppress
from time import CLOCK_MONOTONIC, clock_gettime_ns

VARIABLE = "NOTIFY_SOCKET"
READY, STOPPING = "READY=1", "STOPPING=1"
STATUS = "STATUS="


def reloading() -> str:
    return f"RELOADING=1\nMONOTONIC_USEC={clock_gettime_ns(CLOCK_MONOTONIC) // 1_000}"


def notify(state: str) -> None:
    path = os.environ.get(VARIABLE, "")
    if path:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(f"\0{path[1:]}" if path.startswith("@") else path)
            sender.send(state.encode())
