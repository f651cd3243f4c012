"""Locks that one process holds at a time, on a directory or a file of ours.

Rules that hold here: the kernel lets go of a lock when its process ends, however it ends. Who only
looks whether a directory is held has the lock for a moment, so who wants it asks a few times.
"""

import fcntl
import os
from pathlib import Path
from time import sleep

from rsnotify.errors import InvalidSettings

ATTEMPTS = 5
AGAIN_SECONDS = 0.02


def lock_directory(directory: Path, user: str) -> int:
    """Make the directory if need be, and hold it until the descriptor is closed."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileExistsError, NotADirectoryError):
        raise InvalidSettings(f"{directory} cannot be used: it is no directory") from None
    except OSError as error:
        raise InvalidSettings(f"{directory} cannot be used: {error.strerror}") from None
    return _locked(lock, f"{directory} is in use by another {user}: end that first")


def is_held(directory: Path) -> bool:
    """Whether a process holds this directory."""
    try:
        looked = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(looked, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(looked)
    return False


def lock_beside(path: Path, user: str) -> int:
    """Hold the file `PATH.lock`, which is made if need be, until the descriptor is closed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be used: {error.strerror}") from None
    return _locked(lock, f"{path} is in use by another {user}: end that first")


def _locked(lock: int, in_use: str) -> int:
    for _ in range(ATTEMPTS):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sleep(AGAIN_SECONDS)
        else:
            return lock
    os.close(lock)
    raise InvalidSettings(in_use)
