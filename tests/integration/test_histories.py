"""Whatever happens to a set, every route from a Resource List leads to the same state.

The histories have creates, updates and deletes, restarts of the hub, clocks that go back, windows
of any size closed by number and by time, packed and trimmed at any moment.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rsnotify.redis_client import connect
from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.xml_reader import parse_document
from rsnotify.resourcesync.xml_writer import Document, Entry
from tests.support.amount import amount
from tests.support.pulling import BASE, CHANGES, SET, Pulling, loc, times

HOUR_BACK = 3_600_000_000
MILLISECOND = 1 / 3_600_000  # of an hour: an edge passes between any two steps

State = dict[str, str]
Told = tuple[str, str, str]  # loc, change, lastmod


class Publish(NamedTuple):
    changes: tuple[tuple[str, str, bool], ...]  # name, change, whether it has its own lastmod


change = st.tuples(
    st.sampled_from("abcdef"),
    st.sampled_from(("created", "updated", "deleted")),
    st.booleans(),
)
published = st.lists(change, min_size=1, max_size=6).map(lambda found: Publish(tuple(found)))
step = st.one_of(
    published,
    published,
    st.sampled_from(("restart", "clock", "upkeep", "trim", "snapshot", "poll", "close")),
)


class History:
    """Lives through the steps and keeps what ought to be true."""

    def __init__(self, pulling: Pulling) -> None:
        self.pulling = pulling
        self.state: State = {}
        self.told: list[tuple[Position, Told]] = []

    def after(self, at: Position) -> list[Told]:
        return [told for position, told in self.told if position > at]

    async def take(self, step: Publish | str) -> None:
        if isinstance(step, Publish):
            await self._publish(step)
        elif step == "clock":
            now = await self.pulling.windows.now()
            await self.pulling.set_last(now + HOUR_BACK)
        elif step == "close":
            await self.pulling.windows.close(SET, self.pulling.schedule.period)
        elif step == "upkeep":
            await self.pulling.keep_windows()
        elif step == "trim":
            await self.pulling.keep_windows()
            await self.pulling.let_go_of_all()
        elif step == "snapshot":
            more = Publish((("a", "updated", False), ("b", "deleted", False)))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.pulling.upkeep.snapshots.take(SET))
                for _ in range(3):
                    await self._publish(more)
        elif step == "poll":
            await self.pulling.document(f"/{SET}/changelist.xml")

    async def _publish(self, step: Publish) -> None:
        changes = [
            Change(loc(name), what, lastmod="2020-01-01T00:00:00Z" if own else None)
            for name, what, own in step.changes
        ]
        interval = await self.pulling.publish(*changes)
        rows = await self.pulling.journal.read(CHANGES, interval.from_, count=len(changes))
        for change, (at, _) in zip(changes, rows, strict=True):
            entry = (change.loc, change.change, change.lastmod or str(at))
            self.told.append((at, entry))
            _apply(self.state, [entry])


def _apply(state: State, changes: Iterable[Told]) -> None:
    for where, what, lastmod in changes:
        if what == "deleted":
            state.pop(where, None)
        else:
            state[where] = lastmod


def _told(entries: Iterable[Entry]) -> list[Told]:
    return [(entry.loc, entry.md.change, entry.lastmod) for entry in entries]


def _later(document: Document, at: Position) -> list[Entry]:
    found = zip(document.entries, times(document), strict=True)
    return [entry for entry, time in found if time > at]


async def by_index(pulling: Pulling) -> AsyncIterator[Document]:
    """Every Change List that the index names; they must join."""
    index = await pulling.document(f"/{SET}/changelist-index.xml")
    spans = [(entry.md.from_, entry.md.until) for entry in index.entries]
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    assert spans[-1][1] is None
    for entry, span in zip(index.entries, spans, strict=True):
        document = await pulling.document(entry.loc)
        assert (document.md.from_, document.md.until) == span
        yield document


async def by_stretches(pulling: Pulling, at: Position) -> AsyncIterator[Document]:
    """`?from=` and whatever is next to it."""
    path: str | None = f"{BASE}/{SET}/changelist.xml?from={at}"
    while path is not None:
        document = await pulling.document(path)
        yield document
        path = next((link.href for link in document.links if link.rel == "next"), None)
        assert (path is None) == (document.md.until is None)


async def by_channel(pulling: Pulling, at: Position) -> list[Told]:
    """What a Destination receives that follows the channel from there."""
    await pulling.is_level()
    feed, cursor, found = pulling.hub.feed(CHANGES), at, []
    while (notification := await pulling.hub.reading.after(feed, cursor)) is not None:
        assert cursor in (notification.from_, at)
        found.append(notification)
        cursor = notification.until
    return [
        entry
        for notification in found
        for entry in _told(parse_document(notification.payload).entries)
    ]


async def all_routes_agree(history: History) -> None:
    pulling = history.pulling
    lists = [document async for document in by_index(pulling)]
    everything = [told for document in lists for told in _told(document.entries)]
    assert everything == history.after(Position(0))

    answer = await pulling.get(f"/{SET}/resourcelist.xml")
    if answer.status == 404:
        return
    listed = answer.document
    at = Position.parse(listed.md.at)
    baseline = {entry.loc: entry.lastmod or "" for entry in listed.entries}

    stretches = [document async for document in by_stretches(pulling, at)]
    routes = {
        "lists": [told for document in lists for told in _told(_later(document, at))],
        "stretches": [told for document in stretches for told in _told(document.entries)],
    }
    if at >= (await pulling.windows.record(SET)).first:
        routes["channel"] = await by_channel(pulling, at)
    for name, changes in routes.items():
        assert changes == history.after(at), name
        state = dict(baseline)
        _apply(state, changes)
        assert state == history.state, name


async def live(redis_url: str, steps: Sequence[Publish | str], changes: int, hours: float) -> None:
    client = connect(redis_url)
    await client.flushall()
    try:
        history, waiting = None, list(steps)
        while waiting or history is None:
            async with Pulling(client, changes=changes, hours=hours) as pulling:
                history = history or History(pulling)
                history.pulling = pulling
                while waiting and (next_step := waiting.pop(0)) != "restart":
                    await history.take(next_step)
                if not waiting:
                    await all_routes_agree(history)
    finally:
        await client.aclose()


@pytest.mark.evidence
@settings(max_examples=amount(40, evidence=300), suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(step, min_size=1, max_size=14),
    changes=st.sampled_from((1, 2, 3, 10, 50_000)),
    hours=st.sampled_from((MILLISECOND, 24)),
)
def test_every_route_leads_to_the_same_state(redis_url, steps, changes, hours):
    asyncio.run(live(redis_url, steps, changes, hours))
