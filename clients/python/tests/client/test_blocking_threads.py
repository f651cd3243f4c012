"""What a thread makes is closed if whoever asked for it is gone, at whatever moment."""

import asyncio
from threading import Event

import pytest

from rsnotify_client.blocking_threads import BlockingThreads


class Made:
    """Counts how often it was closed."""

    def __init__(self) -> None:
        self.closed = 0
        self.is_closed = Event()

    def close(self) -> None:
        self.closed += 1
        self.is_closed.set()


async def test_whoever_waits_gets_what_was_made():
    made, threads = Made(), BlockingThreads(1)
    assert await threads.run(lambda: made) is made
    assert made.closed == 0
    threads.close()


async def test_it_is_closed_although_nothing_runs_in_the_loop_any_more():
    made, threads, may_end = Made(), BlockingThreads(1), Event()

    def make() -> Made:
        may_end.wait()
        return made

    task = asyncio.create_task(threads.run(make))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    may_end.set()
    assert made.is_closed.wait(30)
    await threads.run(int)  # later than all that the first has left for the loop
    assert made.closed == 1
    threads.close()


async def test_it_is_closed_if_it_comes_at_the_moment_of_the_cancellation():
    made, threads, next_began = Made(), BlockingThreads(1), Event()
    task = asyncio.create_task(threads.run(lambda: made))
    following = asyncio.create_task(threads.run(next_began.set))
    await asyncio.sleep(0)
    assert next_began.wait(30)  # so the loop has the result, and nobody has seen it yet
    asyncio.get_running_loop().call_soon(task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert made.closed == 1
    await following
    threads.close()


async def test_an_error_at_the_moment_of_the_cancellation_is_nobodys():
    threads, next_began = BlockingThreads(1), Event()
    task = asyncio.create_task(threads.run(int, "no number"))
    following = asyncio.create_task(threads.run(next_began.set))
    await asyncio.sleep(0)
    assert next_began.wait(30)
    asyncio.get_running_loop().call_soon(task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    await following
    threads.close()
