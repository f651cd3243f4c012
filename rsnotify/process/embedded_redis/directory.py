"""The data directory of an embedded hub: who holds it, and how its socket is reached.

One hub and one redis-server use a directory. Each holds a lock on a file there until it is dead,
however it dies; a hub shares its lock with its workers.
"""

import asyncio
import fcntl
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

from rsnotify.errors import InvalidSettings

HUB_LOCK, REDIS_LOCK, SOCKET = "hub.lock", "redis.lock", "redis.sock"

WORKERS_LIMIT_SECONDS = 10.0  # those of a killed hub end by themselves, at once
SOCKET_PATH_BYTES = 103  # macOS; Linux takes four more


class LockFile:
    """A file that one process holds at a time, and who inherits it; it bears a process id."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def close(self) -> None:
        os.close(self.fd)

    def taken(self) -> bool:
        """Whether we hold it now."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def sign(self, pid: int) -> None:
        os.pwrite(self.fd, b"%-10d\n" % pid, 0)  # the same bytes each time: a full disk allows it

    @property
    def signature(self) -> str:
        return os.pread(self.fd, 10, 0).decode("ascii", "replace").strip() or "unknown"

    @property
    def signer_lives(self) -> bool:
        """Whether the process that signed still runs; the lock may be in its children's hands."""
        try:
            os.kill(int(self.signature), 0)
        except (ValueError, ProcessLookupError):
            return False
        except PermissionError:
            return True
        return True


@asynccontextmanager
async def directory_taken(
    data_dir: Path, workers_seconds: float = WORKERS_LIMIT_SECONDS
) -> AsyncIterator[LockFile]:
    """Make `data_dir` and keep every other hub out of it until the block ends or we die."""
    with closing(_hub_lock(data_dir)) as lock:
        await _take(lock, data_dir, workers_seconds)
        lock.sign(os.getpid())
        yield lock


def _hub_lock(data_dir: Path) -> LockFile:
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return LockFile(data_dir / HUB_LOCK)
    except OSError as error:
        raise InvalidSettings(f"--data {data_dir} cannot be used: {error.strerror}") from None


async def _take(lock: LockFile, data_dir: Path, workers_seconds: float) -> None:
    """Wait a little for the workers of a killed hub, not for a hub."""
    try:
        async with asyncio.timeout(workers_seconds):
            while not lock.taken():
                if lock.signer_lives:
                    raise InvalidSettings(
                        f"{data_dir} is in use by process {lock.signature}; stop it, "
                        "or give this hub a directory of its own with --data"
                    )
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise InvalidSettings(
            f"{data_dir} is in use by workers of the hub process {lock.signature}, "
            "which is dead: end them, and start again"
        ) from None


@contextmanager
def short_enough(socket: Path) -> Iterator[Path]:
    """A path to `socket` that fits into a socket address, through a link of ours if need be."""
    if len(os.fsencode(socket)) <= SOCKET_PATH_BYTES:
        yield socket
        return
    with tempfile.TemporaryDirectory(prefix="rsnotify-") as folder:
        link = Path(folder, "data")
        link.symlink_to(socket.parent)
        yield link / socket.name
