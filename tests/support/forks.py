"""Processes of the command line that begin with everything imported already.

A start of Python with the hub's modules costs a second of processor time, and the tests start
hundreds. So one process imports them once, and each start is a fork of it, with an environment,
arguments and files of its own; from there on it is what `python -m rsnotify` would be.
"""

import asyncio
import atexit
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from select import select
from tempfile import TemporaryFile
from typing import NamedTuple

FILES = 4  # stdin, stdout, stderr, and where process number and exit status are told
REQUEST_BYTES = 200_000
NEEDED_LATER = (
    "encodings.idna",
    "rich.progress",
    "rich.table",
    "rsnotify.process.hub_process",
    "rsnotify_client.outboxfile",
    "rsnotify_client.relay",
    "rsnotify_mirror.audit",
    "rsnotify_mirror.inspection",
    "rsnotify_mirror.mirror",
    "uvicorn.lifespan.on",
)
"""What commands import while they run: half of the processor time that most of them take."""
REFUSED = ("sets", "list", "--url", "no address")
"""A command that ends where its options were read; typer imports and makes things for that."""


class Pipe(NamedTuple):
    """An end to read from."""

    reader: asyncio.StreamReader
    transport: asyncio.ReadTransport


class Forked:
    """One such process; what of `asyncio.subprocess.Process` the tests use."""

    def __init__(self, pid: int, stdout: Pipe, told: Pipe) -> None:
        self.pid = pid
        self.stdout = stdout.reader
        self.returncode: int | None = None
        self._ended = asyncio.create_task(self._watch(stdout, told))

    async def _watch(self, stdout: Pipe, told: Pipe) -> int:
        self.returncode = int(await told.reader.readline())
        for pipe in (stdout, told):
            pipe.transport.close()
        await asyncio.sleep(0)  # until they are
        return self.returncode

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has just ended, and we are not told yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class Ended(NamedTuple):
    status: int
    out: str
    err: str


async def run(
    words: Sequence[str],
    environment: Mapping[str, str],
    stdin: bytes = b"",
    folder: Path | None = None,
) -> Ended:
    """Run `rsnotify` with these words to its end; `stdin` fits into a pipe."""
    with TemporaryFile() as err:
        process = await fork(words, environment, err.fileno(), stdin, folder)
        out = await process.stdout.read()
        status = await process.wait()
        err.seek(0)
        return Ended(status, out.decode(), err.read().decode())


async def fork(
    words: Sequence[str],
    environment: Mapping[str, str],
    stderr: int,
    stdin: bytes = b"",
    folder: Path | None = None,
) -> Forked:
    """Start `rsnotify` with these words, in that folder."""
    stdout, told = _asked(words, environment, stderr, stdin, folder)
    of_waiter = await _opened(told)
    return Forked(int(await of_waiter.reader.readline()), await _opened(stdout), of_waiter)


class Spawned:
    """The same without an event loop; what of `subprocess.Popen` the tests use."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], stderr: int) -> None:
        stdout, told = _asked(words, environment, stderr)
        self.stdout = os.fdopen(stdout)
        self._told = os.fdopen(told)
        self.pid = int(self._told.readline())
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        if self.returncode is None:
            with self._told:
                self.returncode = int(self._told.readline())
        return self.returncode


def _asked(
    words: Sequence[str],
    environment: Mapping[str, str],
    stderr: int,
    stdin: bytes = b"",
    folder: Path | None = None,
) -> tuple[int, int]:
    """Ask for such a process; where its output is read, and what is told of it."""
    stdin_of_child, our_stdin = os.pipe()
    stdout, stdout_of_child = os.pipe()
    told, told_by_child = os.pipe()
    os.write(our_stdin, stdin)
    os.close(our_stdin)
    request = json.dumps([list(words), dict(environment), str(folder or ".")]).encode()
    of_child = [stdin_of_child, stdout_of_child, told_by_child]
    socket.send_fds(_server(), [request], [*of_child[:2], stderr, told_by_child])
    for file in of_child:
        os.close(file)
    return stdout, told


async def _opened(descriptor: int) -> Pipe:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
    )
    return Pipe(reader, transport)


@cache
def _server() -> socket.socket:
    """The process that forks; it ends when the other end of this socket does: with the tests."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        its.set_inheritable(True)
        command = [
            sys.executable,
            "-c",
            f"from tests.support import forks; forks.main({its.fileno()})",
        ]
        os.posix_spawn(sys.executable, command, os.environ)
    atexit.register(ours.close)
    return ours


def main(descriptor: int) -> None:
    """Wait for requests, and fork for each; a fork becomes the command line."""
    gc.disable()  # what is made here stays
    atexit.register(end_at_once)  # the first is the last to run
    from rsnotify import cli
    from rsnotify.process.app import build
    from rsnotify.process.composition import Composition
    from rsnotify.process.settings import Settings

    for name in NEEDED_LATER:
        import_module(name)
    with suppress(Exception):
        cli.app(REFUSED, standalone_mode=False)
    build(Composition(Settings(), "redis://nowhere", "", "http://nowhere"))  # its patterns
    gc.freeze()  # a fork need not look at what all have
    gc.enable()
    with socket.socket(fileno=descriptor) as requests:
        fork_for_each(requests)
    try:
        cli.main()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            STATUS.append(ended.code or 0)
        raise


def fork_for_each(requests: socket.socket) -> None:
    """Returns in each fork; the process that forks ends here, once nobody can ask for more."""
    running: dict[int, int] = {}  # where the end of each is told
    ended, ends = os.pipe()  # written to when one ends
    for end in (ended, ends):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(ends, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        for ready in select([requests, ended], [], [])[0]:
            if ready == ended:
                os.read(ended, 1 << 16)
                tell_ends(running)
                continue
            request, files, *_ = socket.recv_fds(requests, REQUEST_BYTES, FILES)
            if not request:
                os._exit(0)
            if pid := os.fork():
                *standard, running[pid] = files
                for file in standard:
                    os.close(file)
                tell(running[pid], pid)
                continue
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for file in (ended, ends, *running.values()):
                os.close(file)
            become(*json.loads(request), files)
            return


def tell_ends(running: dict[int, int]) -> None:
    """…with its exit status, of each that has ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        told = running.pop(pid)
        tell(told, os.waitstatus_to_exitcode(status))
        os.close(told)


def tell(told: int, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(told, b"%d\n" % number)


STATUS: list[int] = []
"""What a fork ends with, once it is known."""


def end_at_once() -> None:
    """Take nothing apart of what a fork has inherited: two thirds of what a short command costs."""
    for status in STATUS:
        with suppress(OSError):  # else as Python itself says it
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)


def become(words: list[str], environment: dict[str, str], folder: str, files: list[int]) -> None:
    """This fork is the command."""
    *standard, told = files
    os.close(told)
    for number, file in enumerate(standard):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv[:] = ["rsnotify", *words]
