"""A clock that tests move: `OwnRedis(folder, clock=clock)` takes its time from it.

Only the wall clock moves (`TIME`, and when keys expire); the monotonic one goes on as it does.
It is a small C library that stands before the C library's own, so a C compiler is needed.

A server looks at the wall clock when it likes: Valkey, where it counts the processor's ticks, only
from time to time. So a move ends when every server that takes its time from here has seen it.
"""

import os
import subprocess
import tempfile
import time
from hashlib import sha256
from pathlib import Path

import redis

from tests.support.needs import COMPILER, need

SOURCE = Path(__file__).with_name("clock.c")
SECOND = 1_000_000
MINUTE = 60.0
HOUR = 60 * MINUTE
DAY = 24 * HOUR
SEEN_SECONDS = 20


class Clock:
    """The wall clock of whatever process gets `environment`; it begins with the true time."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "moved-clock"
        self._seconds = 0.0
        self._sockets: set[Path] = set()  # of the servers whose clock it is
        self.move(0)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(_library()), "MOVED_CLOCK": str(self._file)}

    def move(self, seconds: float) -> None:
        """Put it forward, or back if `seconds` is negative."""
        self._seconds += seconds
        microseconds = round(self._seconds * SECOND)
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT)  # written in place: it is mapped
        os.pwrite(descriptor, microseconds.to_bytes(8, "little", signed=True), 0)
        os.close(descriptor)
        for socket in self._sockets:
            self._wait_until_seen(socket)

    def is_of(self, socket: Path) -> None:
        """A server behind this socket takes its time from here."""
        self._sockets.add(socket)

    def _wait_until_seen(self, socket: Path) -> None:
        deadline = time.monotonic() + SEEN_SECONDS
        with redis.Redis(unix_socket_path=str(socket), protocol=2) as client:
            while abs(_cached_time(client) - time.time() - self._seconds) > 1:
                assert time.monotonic() < deadline, f"the server at {socket} does not follow"


def _cached_time(client: "redis.Redis") -> float:
    """What a script is told; `TIME` alone looks at the clock itself."""
    seconds, microseconds = client.eval("return redis.call('TIME')", 0)
    return int(seconds) + int(microseconds) / SECOND


def _library() -> Path:
    """Compiled once a machine and version of the source."""
    version = sha256(SOURCE.read_bytes()).hexdigest()[:12]
    library = Path(tempfile.gettempdir(), f"rsnotify-tests-{os.getuid()}-clock-{version}.so")
    if not library.exists():
        _compile(library)
    return library


def _compile(library: Path) -> None:
    compiler = need(*COMPILER)
    part = library.with_suffix(f".{os.getpid()}")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", part, SOURCE], check=True)
    part.replace(library)
