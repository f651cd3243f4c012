"""Who shares an answer with whom."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rsnotify.errors import TryAgain
from rsnotify.operation.shared_answers import WAITING, SharedAnswers


class Maker:
    """Counts what is made; each takes as long as it is told to."""

    def __init__(self) -> None:
        self.made = 0
        self.may_end = asyncio.Event()

    async def make(self) -> int:
        self.made += 1
        await self.may_end.wait()
        return self.made


def asking(query: bytes = b"") -> Any:
    return SimpleNamespace(scope={"query_string": query})


async def test_those_who_wait_share_one_that_begins_after_they_asked():
    shared, maker = SharedAnswers(), Maker()
    first = asyncio.create_task(shared.of(asking(), maker.make))
    await asyncio.sleep(0)
    others = [asyncio.create_task(shared.of(asking(), maker.make)) for _ in range(50)]
    await asyncio.sleep(0)
    maker.may_end.set()
    assert (await first).body == b"1"
    assert {each.body for each in await asyncio.gather(*others)} == {b"2"}
    assert maker.made == 2
    assert (await shared.of(asking(), maker.make)).body == b"3"


async def test_another_question_has_another_answer():
    shared, maker = SharedAnswers(), Maker()
    maker.may_end.set()
    asked = [shared.of(asking(query), maker.make) for query in (b"a", b"b", b"a")]
    assert len({each.body for each in await asyncio.gather(*asked)}) == 3


async def test_one_stranger_more_than_may_wait_is_sent_away():
    shared, maker = SharedAnswers(), Maker()
    waiting = [asyncio.create_task(shared.of(asking(), maker.make)) for _ in range(WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(TryAgain, match="too many"):
        await shared.of(asking(), maker.make)
    maker.may_end.set()
    await asyncio.gather(*waiting)
    await shared.of(asking(), maker.make)
