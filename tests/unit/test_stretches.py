"""How many readers of packed Change Lists there are at once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rsnotify.core.gzip_parts import pack
from rsnotify.core.window import Window
from rsnotify.delivery.pull import stretches
from rsnotify.delivery.pull.stretches import Stretches
from rsnotify.errors import Trimmed, TryAgain
from rsnotify.resourcesync.change import Position

WINDOW = Window(Position(0), Position(9), 1, 1, Position(9))
OLD = (Position(0), Position(9))


class TrimmedJournal:
    async def read(self, *_: Any, **__: Any) -> Any:
        raise Trimmed(9)


class PackedWindows:
    async def closed_after(self, *_: Any) -> Window:
        return WINDOW

    async def packed(self, *_: Any) -> Any:
        return pack([b"<url/>"])


@pytest.fixture
def two_at_once(monkeypatch: pytest.MonkeyPatch) -> Stretches:
    monkeypatch.setattr(stretches, "COLD_WAIT_SECONDS", 0.05)
    journal: Any = TrimmedJournal()
    windows: Any = PackedWindows()
    return Stretches(journal, windows, cold_pulls=2)


async def begun(reader: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    assert b"<url/>" in await anext(reader)
    return reader


async def test_one_more_than_the_limit_waits_and_is_then_refused(two_at_once: Stretches) -> None:
    readers = [await begun(two_at_once.entries("dataset1", *OLD)) for _ in range(2)]
    with pytest.raises(TryAgain, match="too many others"):
        await anext(two_at_once.entries("dataset1", *OLD))
    waiting = asyncio.create_task(anext(two_at_once.entries("dataset1", *OLD)))
    await readers[0].aclose()  # type: ignore[attr-defined]
    assert await waiting


async def test_who_has_read_to_the_end_holds_nothing(two_at_once: Stretches) -> None:
    for _ in range(5):
        assert [piece async for piece in two_at_once.entries("dataset1", *OLD)]
