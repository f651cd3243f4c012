"""What is costly to make is made once, and kept for a while where there are many sets."""

import asyncio

import pytest

from rsnotify.errors import TryAgain
from rsnotify.single_flight import (
    FEW_SETS,
    RESULTS_KEPT,
    SLICE,
    WAITING,
    AtOnce,
    Costly,
    kept_seconds,
    slices,
)


class Work:
    """Counts how often it is done, and takes as long as it is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done = 0
        self.may_end = asyncio.Event()
        self.costly = Costly[int]("work", clock=lambda: self.now)

    async def __call__(self) -> int:
        await self.may_end.wait()
        self.done += 1
        return self.done

    async def result(self, key: str = "key", seconds: float = 0.0) -> int:
        return await self.costly.result(key, self, seconds)


async def test_all_who_ask_at_the_same_moment_share_one_result():
    work = Work()
    asking = [asyncio.create_task(work.result()) for _ in range(50)]
    await asyncio.sleep(0)
    work.may_end.set()
    assert await asyncio.gather(*asking) == [1] * 50
    assert await work.result() == 2


async def test_it_is_kept_for_as_long_as_was_asked_for():
    work = Work()
    work.may_end.set()
    assert await work.result(seconds=5.0) == 1
    work.now = 4.9
    assert await work.result(seconds=5.0) == 1
    work.now = 5.0
    assert await work.result(seconds=5.0) == 2


async def test_only_some_results_are_kept():
    work = Work()
    work.may_end.set()
    for number in range(RESULTS_KEPT + 1):
        await work.result(str(number), seconds=5.0)
    done = work.done
    await work.result("1", seconds=5.0)
    assert work.done == done
    await work.result("0", seconds=5.0)
    assert work.done == done + 1


@pytest.mark.parametrize(
    ("sets", "seconds"), [(0, 0.0), (FEW_SETS, 0.0), (FEW_SETS + 1, 0.0505), (10_000, 5.0)]
)
def test_the_more_sets_there_are_the_longer_it_is_kept(sets, seconds):
    assert kept_seconds(sets) == pytest.approx(seconds)


def test_slices_have_all_items_once_in_order():
    items = list(range(2 * SLICE + 1))
    assert [len(some) for some in slices(items)] == [SLICE, SLICE, 1]
    assert [each for some in slices(items) for each in some] == items
    assert list(slices([])) == []


async def test_100_wait_for_a_turn_and_one_more_is_refused_at_once():
    at_once, may_end = AtOnce(1, "too many"), asyncio.Event()
    done = 0

    async def work() -> None:
        nonlocal done
        async with at_once.turn():
            await may_end.wait()
            done += 1

    working = [asyncio.create_task(work()) for _ in range(1 + WAITING)]
    for _ in range(3):
        await asyncio.sleep(0)
    with pytest.raises(TryAgain, match="too many"):
        await work()
    may_end.set()
    await asyncio.gather(*working)
    assert done == 1 + WAITING
    await work()
