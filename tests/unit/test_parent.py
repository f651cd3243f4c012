"""What a worker tells the process that started it, which may hang or be dead."""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from rsnotify.process.worker import CONNECTIONS, tell_parent


class Connections:
    """One more whenever they are counted."""

    def __init__(self) -> None:
        self._count = 0
        self.counted_often = asyncio.Event()

    def __len__(self) -> int:
        self._count += 1
        if self._count > 3:
            self.counted_often.set()
        return self._count


@contextmanager
def parent() -> Iterator[int]:
    """Where a parent reads what is told on the standard output."""
    heard, told = os.pipe()
    with os.fdopen(told, "w") as output, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", output)
        yield heard


async def tell_often() -> None:
    """Tell the parent several times; fails if that ends meanwhile."""
    connections = Connections()
    telling = asyncio.create_task(tell_parent(connections))
    often = asyncio.create_task(connections.counted_often.wait())
    await asyncio.wait([telling, often], return_when=asyncio.FIRST_COMPLETED)
    assert not telling.done()
    telling.cancel()
    await asyncio.wait([telling])


async def test_the_parent_is_told_how_many_connections_there_are() -> None:
    with parent() as heard:
        await tell_often()
        told = os.read(heard, 1_000)
        os.close(heard)
    assert told.startswith(b"%s1\n%s2\n" % (CONNECTIONS, CONNECTIONS))


async def test_a_dead_parent_is_no_error() -> None:
    with parent() as heard:
        os.close(heard)
        await tell_often()


async def test_a_parent_that_does_not_read_is_no_error() -> None:
    with parent() as heard:
        fill(sys.stdout.fileno())
        await tell_often()
        os.close(heard)


def fill(pipe: int) -> None:
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        while True:
            os.write(pipe, bytes(65_536))
