"""Reads the resources of a set, or those that changed within some time, a page at a time.

Whoever lists all of a set reads its state, shard by shard, and then the journal from where it stood
when the list was begun: so what changes meanwhile is listed, too, deletions included. What the
journal does not reach back to is found in the state, deletions from before only where the set keeps
its tombstones. Nothing
that comes after an answer is stamped with a time before that of the answer, to the second: so a
harvest that begins at the time of the one before misses nothing.

What is not so is said: changes that were lost, a set that was made again, a state that was loaded
anew under a list.
"""

from collections.abc import Iterable
from contextlib import suppress
from html import unescape
from typing import NamedTuple

from rsnotify.coordination.keys import STATE_SHARDS
from rsnotify.errors import Trimmed, TryAgain
from rsnotify.journal.window import kept_from
from rsnotify.journal.windows import Windows
from rsnotify.live.journals import Journals
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.notification import ChannelName, Row
from rsnotify.resourcesync.xml_writer import escape
from rsnotify.views.known_resources import KnownResources
from rsnotify.views.listing import (
    PAGE_BYTES,
    PAGE_RECORDS,
    Found,
    HarvestPage,
    Listing,
    ListPlace,
    Passed,
    Replaced,
    found_of,
    listed_at,
    loc_of,
    page_of,
    size_of,
    stands_at,
)

LOOKED_AT = 20_000  # resources or changes, for one page that has records
IN_VAIN = 500_000  # for one that has none yet
STEP = 250  # of these are read at once


class HistoryLost(Exception):
    """A list cannot be made, or be continued: only a whole new harvest helps."""


class Step(NamedTuple):
    """What one look at the state or at the journal has found, and where the next one begins."""

    passed: list[Passed]
    looked_at: int
    next: ListPlace | None


def shards_at_once(resources: int) -> int:
    """How many shards hold about as many resources as are read at once."""
    return max(1, min(STATE_SHARDS, STEP * STATE_SHARDS // max(1, resources)))


class Harvests:
    """Reads the lists of all sets."""

    def __init__(
        self,
        journals: Journals,
        windows: Windows,
        resources: KnownResources,
        period: int,
        *,
        page_records: int = PAGE_RECORDS,
        looked_at: int = LOOKED_AT,
        in_vain: int = IN_VAIN,
    ) -> None:
        self._journals = journals
        self._windows = windows
        self._resources = resources
        self._period = period  # of the grid on which Change Lists close
        self._page_records = page_records
        self._looked_at = looked_at
        self._in_vain = in_vain

    async def settled(self, set_name: str) -> Position:
        """The second before which nothing will be stamped any more: the current one, or, if Redis
        takes no writes, the one in which the journal ends."""
        second = await self.now()
        record = await self._windows.record(set_name)
        if record.last >= second:
            return second
        with suppress(TryAgain):
            await self._windows.close(set_name, self._period)  # later it would not be due
            await self._windows.raise_last(set_name, second)
            return second
        return _second(record.last)

    async def now(self) -> Position:
        """The current second, by the clock that all hub processes share."""
        return _second(await self._windows.now())

    async def last(self, set_name: str) -> Position:
        """No position that was given of the journal is later."""
        return (await self._windows.record(set_name)).last

    async def forgets(self, set_name: str) -> bool:
        """Whether a deletion that is told now will not be told some time: not if the set has kept
        its tombstones since it began, or for longer than its changes."""
        since = await self._tombstones(set_name)
        if since is None:
            return True
        span = await self._windows.span(set_name)
        return since > max(self._created(set_name), kept_from(span))

    # --- lists -----------------------------------------------------------------------------------

    async def begin(
        self, set_name: str, from_: Position | None, until: Position | None
    ) -> tuple[Listing, ListPlace]:
        """A list of what changed in this time, or of everything, and where it begins."""
        head = await self._head(set_name)
        replaced = await self._resources.replaced(set_name)
        tombstones = await self._tombstones(set_name)
        resources = await self._resources.count(set_name, and_ended=tombstones is not None)
        listing = Listing(from_, until, max(head, replaced.at), True, resources, tombstones)
        if from_ is None:
            return listing, ListPlace(0, "", listing.begun)
        created = self._created(set_name)
        if from_ < _second(created) and self._journals.known.is_former(set_name, from_):
            raise HistoryLost("the set was removed and made again since then")
        after = max(Position(from_ - 1), created)
        standing = await self._journals.reading.standing(_changes(set_name))
        if after < standing.gap:
            raise HistoryLost(f"changes were lost before {standing.gap}")
        begin = max(after, kept_from(await self._windows.span(set_name, after=after)))
        if begin > after or after < replaced.at:
            if tombstones is not None and created < after < tombstones:
                raise HistoryLost(f"not all deletions before {tombstones} are known any more")
            return listing, ListPlace(0, "", begin)
        return listing._replace(of_state=False), ListPlace(None, "", after)

    async def page(self, set_name: str, listing: Listing, place: ListPlace) -> HarvestPage:
        """The page of a list that begins here; `HistoryLost` if there is none any more. It has no
        records where the list ends, or where so much was looked at that another look has to go on.
        """
        replaced = await self._resources.replaced(set_name)
        if replaced.at > listing.begun:
            raise HistoryLost("the whole state of the set was loaded meanwhile")
        if await self._tombstones(set_name) != listing.tombstones:
            raise HistoryLost("the set began to keep its deletions meanwhile, or no longer does")
        passed: list[Passed] = []
        looked_at = size = 0
        end: ListPlace | None = place
        while end is not None and len(passed) <= self._page_records and size <= PAGE_BYTES:
            if looked_at >= (self._looked_at if passed else self._in_vain):
                break
            step = await self._step(set_name, listing, replaced, end)
            looked_at, end = looked_at + step.looked_at, step.next
            size += sum(size_of(each.found) for each in step.passed)
            passed += step.passed
        return page_of(passed, end, self._page_records)

    async def one(self, set_name: str, loc: bytes) -> Found | None:
        """The resource with this escaped loc, if there is one."""
        replaced = await self._resources.replaced(set_name)
        and_ended = await self._tombstones(set_name) is not None
        return (await self._known(set_name, [loc], replaced, and_ended))[0].get(loc)

    # --- steps -----------------------------------------------------------------------------------

    async def _step(
        self, set_name: str, listing: Listing, replaced: Replaced, place: ListPlace
    ) -> Step:
        if place.shard is None or place.shard >= STATE_SHARDS:
            return await self._of_journal(set_name, listing, replaced, place)
        return await self._of_state(set_name, listing, replaced, place.shard, place)

    async def _of_state(
        self, set_name: str, listing: Listing, replaced: Replaced, shard: int, place: ListPlace
    ) -> Step:
        shards = range(shard, min(shard + shards_at_once(listing.resources), STATE_SHARDS))
        and_ended = listing.tombstones is not None
        names = await self._resources.names(set_name, shards, and_ended=and_ended)
        begun = escape(place.loc).encode()
        places = [
            (number, loc)
            for number, locs in zip(shards, names, strict=True)
            for loc in locs
            if number > shard or loc > begun
        ]
        chosen = places[:STEP]
        found, _ = await self._known(set_name, [loc for _, loc in chosen], replaced, and_ended)
        passed = [
            Passed(found[loc], ListPlace(number, _loc(loc), place.change))
            for number, loc in chosen
            if loc in found and listing.takes_from_state(found[loc].changed)
        ]
        if len(places) > STEP:
            number, loc = chosen[-1]
            return Step(passed, len(chosen), ListPlace(number, _loc(loc), place.change))
        following = shards.stop if shards.stop < STATE_SHARDS else None
        return Step(passed, len(chosen), ListPlace(following, "", place.change))

    async def _of_journal(
        self, set_name: str, listing: Listing, replaced: Replaced, place: ListPlace
    ) -> Step:
        rows = await self._rows(set_name, listing.until, place.change)
        locs, and_ended = [loc_of(xml) for _, xml in rows], listing.tombstones is not None
        found, positions = await self._known(set_name, locs, replaced, and_ended)
        passed = []
        for row in rows:
            loc = loc_of(row[1])
            listed = listed_at(row, found.get(loc), listing, positions.get(loc))
            if listed is not None:
                passed.append(Passed(listed, ListPlace(None, "", row[0])))
        return Step(passed, len(rows), ListPlace(None, "", rows[-1][0]) if rows else None)

    async def _rows(self, set_name: str, until: Position | None, after: Position) -> list[Row]:
        """The next changes of a list; none at its end."""
        head = await self._head(set_name)
        end = head if until is None else min(until, head)
        if after >= end:
            return []
        channel = _changes(set_name)
        try:
            return await self._journals.history.read(channel, after, until=end, count=STEP)
        except Trimmed as trimmed:
            why = f"changes before {Position(trimmed.first)} are no longer kept, or were lost"
            raise HistoryLost(why) from None

    async def _known(
        self, set_name: str, locs: Iterable[bytes], replaced: Replaced, and_ended: bool
    ) -> tuple[dict[bytes, Found], dict[bytes, Position]]:
        """These resources as they are now, and where they stand in the state; `TryAgain` if
        replicas have not confirmed that yet."""
        kept = await self._resources.kept(set_name, locs, and_ended=and_ended)
        positions = {loc: stands_at(value) for loc, value in kept.items()}
        newest = max(positions.values(), default=Position(0))
        if newest > replaced.at and newest > await self._head(set_name):
            raise TryAgain("replicas have not confirmed the newest changes yet; ask again")
        return found_of(kept, replaced), positions

    async def _tombstones(self, set_name: str) -> Position | None:
        return await self._journals.tombstones_since(set_name)

    def _created(self, set_name: str) -> Position:
        return Position.parse(self._journals.record(set_name).created)

    async def _head(self, set_name: str) -> Position:
        return await self._journals.head(_changes(set_name))


def _changes(set_name: str) -> ChannelName:
    return ChannelName(set_name, "change")


def _loc(escaped: bytes) -> str:
    return unescape(escaped.decode())


def _second(position: Position) -> Position:
    return Position(position // MICROSECONDS * MICROSECONDS)
