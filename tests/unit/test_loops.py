"""Loops beside a server: what each of them swallows, and what its death means to the others."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rsnotify.loops import end, run_beside, within


async def forever() -> None:
    await asyncio.Event().wait()


def deaf(times: float) -> Callable[[], Awaitable[None]]:
    """A loop that swallows so many cancellations."""

    async def work() -> None:
        left = times
        while True:
            try:
                await forever()
            except asyncio.CancelledError:
                left -= 1
                if left < 0:
                    raise

    return work


@pytest.mark.parametrize("times", [0, 1, 3])
async def test_a_cancellation_is_repeated_until_it_is_heard(times):
    loop = asyncio.create_task(deaf(times)())
    await asyncio.sleep(0)
    assert await end([loop]) == []
    assert loop.cancelled()


async def test_a_loop_that_never_hears_is_waited_for_within_a_bound():
    hearing = asyncio.Event()

    async def loop() -> None:
        while not hearing.is_set():
            try:
                await forever()
            except asyncio.CancelledError:
                continue

    task = asyncio.create_task(loop())
    await asyncio.sleep(0)
    assert await end([task], seconds=0.05) == [task]
    hearing.set()
    assert await end([task]) == []


async def test_loops_end_with_what_they_run_beside():
    ended: list[str] = []

    async def loop() -> None:
        try:
            await forever()
        finally:
            ended.append("loop")

    async def serve() -> None:
        await asyncio.sleep(0)

    await run_beside({"a loop": loop()}, serve())
    assert ended == ["loop"]


async def test_a_loop_that_dies_ends_the_rest_and_says_why():
    async def dying() -> None:
        raise ValueError("a bug")

    with pytest.raises(ExceptionGroup) as caught:
        await run_beside({"dying": dying(), "deaf": deaf(1)()}, deaf(1)())
    assert [str(error) for error in caught.value.exceptions] == ["a bug"]


async def test_a_loop_that_just_ends_is_a_mistake_that_is_named():
    async def short() -> None:
        return

    with pytest.raises(ExceptionGroup) as caught:
        await run_beside({"short": short()}, forever())
    assert [str(error) for error in caught.value.exceptions] == [
        "these loops ended by themselves: short"
    ]


async def test_a_time_limit_holds_for_what_swallows_its_cancellation():
    with pytest.raises(TimeoutError):
        await within(0.01, deaf(1)())


async def test_what_comes_in_time_is_the_result_or_the_error():
    async def seven() -> int:
        return 7

    async def fail() -> None:
        raise ValueError("a bug")

    assert await within(1, seven()) == 7
    with pytest.raises(ValueError, match="a bug"):
        await within(1, fail())
