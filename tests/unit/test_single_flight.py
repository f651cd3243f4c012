"""Work that others wait for or not: one task a key, and no failure unseen."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rsnotify.errors import NoSuchSet, TryAgain
from rsnotify.single_flight import SingleFlight


def failing(error: Exception) -> Callable[[], Awaitable[int]]:
    async def fail() -> int:
        raise error

    return fail


async def test_who_asks_while_it_is_under_way_shares_it():
    work: SingleFlight[str, int] = SingleFlight("work")
    going, answers = asyncio.Event(), iter(range(9))

    async def answer() -> int:
        await going.wait()
        return next(answers)

    asked = [work.task("a", answer), work.task("a", answer), work.task("b", answer)]
    going.set()
    assert await asyncio.gather(*asked) == [0, 0, 1]


async def test_who_asks_afterwards_has_it_done_anew():
    work: SingleFlight[str, int] = SingleFlight("work")
    answers = iter(range(9))

    async def answer() -> int:
        return next(answers)

    assert [await work.task("a", answer), await work.task("a", answer)] == [0, 1]


async def test_a_bug_is_in_the_log_though_nobody_waits(caplog):
    work: SingleFlight[str, int] = SingleFlight("work")
    await asyncio.wait({work.task("a", failing(ValueError("a bug")))})
    await asyncio.sleep(0)
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage() == "internal error in the work of 'a'"


@pytest.mark.parametrize("error", [TryAgain("no Redis"), NoSuchSet("a")])
async def test_what_is_no_bug_is_not(caplog, error):
    work: SingleFlight[str, int] = SingleFlight("work")
    await asyncio.wait({work.task("a", failing(error))})
    await asyncio.sleep(0)
    assert caplog.records == []
