"""A file copied into a folder of another mount: beside the place that it is to have, in a thread.

Rules that hold here: what is copied is one open file, whatever gets its name meanwhile, and the
copy has a name of its own until it is whole and on the disk: so two that are on their way to one
place never meet. Folders are held open: what others close or remove is not mixed up with them.
"""

import os
from contextlib import ExitStack, suppress
from secrets import token_hex
from threading import Event

from rsnotify_mirror.paths import OURS

BESIDE = f"{OURS}-part"  # what a file is called beside its place, or what that begins with
PIECE_BYTES = 1 << 20
SYNCED_BYTES = 64 << 20  # the disk has to have them then: a copy that is given up ends soon
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


def name_beside() -> str:
    return f"{BESIDE}-{token_hex(8)}"


class FileCopy:
    """One file on its way; to be closed in any case."""

    def __init__(self, old: int, folder: int, aside: str) -> None:
        """Of a file that is open, and is closed here."""
        self._aside = aside
        self._is_given_up = Event()
        with ExitStack() as opened:
            self._old = old
            opened.callback(os.close, old)
            self._of = os.fstat(old)
            self._folder = os.dup(folder)
            opened.callback(os.close, self._folder)
            self._new = os.open(aside, _WRITE, 0o666, dir_fd=folder)  # last: it would be left
            opened.pop_all()

    def copy(self) -> None:
        """In a thread: all of it, unless it is given up; closes both files."""
        with os.fdopen(self._old, "rb", buffering=0) as old, os.fdopen(self._new, "wb") as new:
            unsynced = 0
            while piece := old.read(PIECE_BYTES):
                if self._is_given_up.is_set():
                    return
                new.write(piece)
                unsynced += len(piece)
                if unsynced >= SYNCED_BYTES:
                    unsynced = 0
                    os.fsync(new.fileno())
            new.flush()
            os.utime(new.fileno(), ns=(self._of.st_atime_ns, self._of.st_mtime_ns))
            os.fsync(new.fileno())

    def give_up(self) -> None:
        self._is_given_up.set()

    def is_of(self, found: os.stat_result) -> bool:
        """Whether this file is the one that was copied."""
        return os.path.samestat(found, self._of)

    def finish(self, name: str) -> None:
        """Give the copy its place, atomically."""
        os.replace(self._aside, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def take_back(self, name: str) -> None:
        """Take its place from it again, so that it is removed."""
        os.replace(name, self._aside, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def close(self) -> None:
        """Remove it, unless it has its place; raise if that is not possible."""
        try:
            with suppress(FileNotFoundError):
                os.unlink(self._aside, dir_fd=self._folder)
        finally:
            os.close(self._folder)
