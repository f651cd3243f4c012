"""A disk of a test's own, that is full when the test wants it.

    with Disk(tmp_path / "own-redis") as disk:
        async with OwnRedis(tmp_path) as redis:
            disk.fill(redis.pid)
            disk.make_room(redis.pid)

It is a real one in memory where this user may mount one. Elsewhere no file of the process may grow
beyond what the largest has: it gets EFBIG instead of ENOSPC.
"""

import resource
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Self

ROOM_MIB = 1024  # only what is used is taken from memory
PAGE = 4096
UNLIMITED = resource.RLIM_INFINITY


class Disk:
    """Mounted as long as its block lasts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.is_mounted = False

    def __enter__(self) -> Self:
        self._folder.mkdir()
        self.is_mounted = self._mount(f"size={ROOM_MIB}m")
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_mounted:
            subprocess.run(["umount", "--lazy", self._folder], check=True)

    def __str__(self) -> str:
        return "a disk in memory" if self.is_mounted else "a limit of the files' size"

    def fill(self, pid: int) -> None:
        """From now on the process can write nothing more."""
        if self.is_mounted:
            while not self._mount(f"remount,size={self._used_pages() * PAGE}"):
                pass  # something was written just now
        else:
            _limit_files(pid, max(map(_size, self._folder.rglob("*"))))

    def write_protect(self) -> None:
        """From now on nobody can write to it, as to a disk that was found damaged."""
        assert self._mount("remount,ro")

    def make_room(self, pid: int) -> None:
        if self.is_mounted:
            assert self._mount(f"remount,size={ROOM_MIB}m")
        else:
            with suppress(ProcessLookupError):
                _limit_files(pid, UNLIMITED)

    def _mount(self, options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", self._folder]
        return shutil.which("mount") is not None and (
            subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0
        )

    def _used_pages(self) -> int:
        used = shutil.disk_usage(self._folder).used
        return -(-used // PAGE)


def _limit_files(pid: int, size: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, UNLIMITED))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
