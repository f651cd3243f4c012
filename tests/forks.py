"""Processes of the command line that begin with everything imported already.

A start of Python with the hub's modules costs a second of processor time, and the tests start
hundreds. So one process imports them once, and each start is a fork of it, with an environment,
arguments and files of its own; from there on it is what `python -m rsnotify` would be.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

FILES = 3  # stdout, stderr, and where process number and exit status are told
REQUEST_BYTES = 200_000


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
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


async def fork(words: Sequence[str], environment: Mapping[str, str], stderr: int) -> Forked:
    """Start `rsnotify` with these words; nothing is on its stdin."""
    stdout, stdout_of_child = os.pipe()
    told, told_by_child = os.pipe()
    request = json.dumps([list(words), dict(environment)]).encode()
    socket.send_fds(_server(), [request], [stdout_of_child, stderr, told_by_child])
    os.close(stdout_of_child)
    os.close(told_by_child)
    of_waiter = await _opened(told)
    return Forked(int(await of_waiter.reader.readline()), await _opened(stdout), of_waiter)


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
        command = [sys.executable, "-m", "tests.forks", str(its.fileno())]
        os.posix_spawn(sys.executable, command, os.environ)
    return ours


def main() -> None:
    """Wait for requests; a fork comes back from here as the command line."""
    from rsnotify import cli
    from rsnotify.serving import serve  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        while True:
            request, files, *_ = socket.recv_fds(requests, REQUEST_BYTES, FILES)
            if not request:
                return
            if os.fork() == 0:
                break
            for file in files:
                os.close(file)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    become(*json.loads(request), files)
    cli.main()


def become(words: list[str], environment: dict[str, str], files: list[int]) -> None:
    """This fork is the command; the process between waits for its end and tells the status."""
    *standard, told = files
    if pid := os.fork():
        for file in standard:
            os.close(file)
        os.write(told, b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        os.write(told, b"%d\n" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    for number, file in enumerate(standard, start=1):
        os.dup2(file, number)
    for file in files:
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = words


if __name__ == "__main__":
    main()
