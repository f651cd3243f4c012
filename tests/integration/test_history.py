"""Whoever follows again after a long time: what left the stream is read from the packed windows."""

import pytest

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.notification import (
    NOTIFICATION_BYTES,
    NOTIFICATION_CHANGES,
    Notification,
)
from rsnotify_client.notification import Received, read_notification
from tests.support.pulling import CHANGES, SET, Pulling, loc


async def away(pulling: Pulling, count: int) -> Position:
    """So many changes are published, and all closed windows leave the stream; where it began."""
    begin = (await pulling.windows.record(SET)).head
    for number in range(count):
        await pulling.update(str(number))
    await pulling.keep_windows()
    await pulling.let_go_of_all()
    await pulling.is_level()
    return begin


async def followed(pulling: Pulling, cursor: Position) -> list[Received]:
    """What a reader at the cursor gets, as a hub has it that has just begun."""
    fresh = Pulling(pulling.client, changes=3)
    await fresh.hub.start()
    found: list[Notification] = []
    feed = fresh.hub.feed(CHANGES)
    while (owed := await fresh.hub.reading.batch_after(feed, cursor)) is not None:
        found.append(owed)
        cursor = owed.until
    return [read_notification(each.payload) for each in found]


def numbers(found: list[Received]) -> list[int]:
    locs = [change.loc for each in found for change in each.changes]
    return [int(each.removeprefix(loc(""))) for each in locs]


def assert_joined(found: list[Received], cursor: Position) -> None:
    for each in found:
        assert each.from_ == cursor
        cursor = each.until


@pytest.mark.parametrize("count", [3, 10])
async def test_what_left_the_stream_is_told_as_if_it_had_not(pulling, count):
    begin = await away(pulling, count)
    found = await followed(pulling, begin)
    assert numbers(found) == list(range(count))
    assert_joined(found, begin)
    assert len(found) == 1, "consecutive windows and the stream are joined"


async def test_a_notification_from_windows_has_the_same_bytes_as_one_from_the_stream(pulling):
    begin = (await pulling.windows.record(SET)).head
    for number in range(9):
        await pulling.publish(Change(loc(str(number)), "created", hash="md5:" + "0" * 32))
    await pulling.is_level()
    before = await followed(pulling, begin)
    await pulling.keep_windows()
    await pulling.let_go_of_all()
    assert [each.payload for each in await followed(pulling, begin)] == [
        each.payload for each in before
    ]


async def test_a_cursor_within_a_window_and_one_at_its_edge_miss_and_repeat_nothing(pulling):
    begin = await away(pulling, 10)
    (all_of_it,) = await followed(pulling, begin)
    for at, change in enumerate(all_of_it.changes):
        cursor = Position.parse(change.datetime or "")
        assert numbers(await followed(pulling, cursor)) == list(range(at + 1, 10))


async def test_a_window_that_time_has_closed_after_its_last_change_is_no_gap(client):
    async with Pulling(client, changes=1000, hours=1 / 3_600_000) as pulling:
        begin = await away(pulling, 5)
        found = await followed(pulling, begin)
        assert numbers(found) == list(range(5))
        assert_joined(found, begin)


@pytest.mark.parametrize("past", [0, 1])
async def test_no_more_changes_than_a_notification_may_have(client, past):
    async with Pulling(client, changes=NOTIFICATION_CHANGES // 2) as pulling:
        begin = (await pulling.windows.record(SET)).head
        for first in range(0, NOTIFICATION_CHANGES + past, 250):
            last = min(first + 250, NOTIFICATION_CHANGES + past)
            await pulling.update(*map(str, range(first, last)))
        await away(pulling, 0)
        found = await followed(pulling, begin)
        assert [len(each.changes) for each in found] == [NOTIFICATION_CHANGES, past][: 1 + past]
        assert_joined(found, begin)


async def test_no_more_bytes_than_a_notification_may_have(client):
    async with Pulling(client, changes=400) as pulling:
        begin = (await pulling.windows.record(SET)).head
        await pulling.update(*(str(number) + "x" * 1900 for number in range(400)))
        await away(pulling, 0)
        found = await followed(pulling, begin)
        assert sum(len(each.changes) for each in found) == 400
        assert all(len(each.payload) < NOTIFICATION_BYTES + 4096 for each in found)
        assert_joined(found, begin)


async def test_only_what_lies_behind_retention_is_gone(pulling):
    begin = await away(pulling, 10)
    windows = (await pulling.windows.span(SET)).windows
    await pulling.windows.forget(SET, windows[:1])
    with pytest.raises(Rejected) as gone:
        await followed(pulling, begin)
    assert (gone.value.status, gone.value.close_code) == (410, 4410)
    assert numbers(await followed(pulling, windows[1].from_)) == list(range(3, 10))
