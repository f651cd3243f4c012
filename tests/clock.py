"""A clock that tests move: `OwnRedis(folder, clock=clock)` takes its time from it.

Only the wall clock moves (`TIME`, and when keys expire); the monotonic one goes on as it does.
It is a small C library that stands before the C library's own, so a C compiler is needed.
"""

import os
import shutil
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")
SECOND = 1_000_000
HOUR = 3600.0
DAY = 24 * HOUR


class Clock:
    """The wall clock of whatever process gets `environment`; it begins with the true time."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "moved-clock"
        self._seconds = 0.0
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


def _library() -> Path:
    """Compiled once a machine and version of the source."""
    version = sha256(SOURCE.read_bytes()).hexdigest()[:12]
    library = Path(tempfile.gettempdir(), f"rsnotify-tests-{os.getuid()}-clock-{version}.so")
    if not library.exists():
        _compile(library)
    return library


def _compile(library: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "the movable clock needs a C compiler: apt-get install gcc libc6-dev"
    part = library.with_suffix(f".{os.getpid()}")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", part, SOURCE], check=True)
    part.replace(library)
