"""A journal that has lost its newest changes is repaired from what this process remembers of them.

A loss shows in four ways: an append gets the answer that the journal is behind; what is read on
does not join; a journal ends before a position that was seen; Redis is another one, or was started
again. What the repair is, `rsnotify.journal.healing` decides; `Repairs` says what the journal still
has, and makes the repair in one atomic step.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import blake2b
from itertools import product, starmap
from math import inf
from time import monotonic
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from rsnotify.errors import JournalIsBehind, KeysMoving, NoSuchSet, Rejected, TryAgain
from rsnotify.journal import keys
from rsnotify.journal.appends import (
    KEY_SECONDS,
    UNSEEN,
    Appended,
    change_arguments,
    channel_arguments,
    channel_keys,
    parse_known,
    remembered_key,
    rows_of,
)
from rsnotify.journal.coordination import redis_now
from rsnotify.journal.feed import Feed, Feeds, log_unreadable
from rsnotify.journal.healing import (
    Repair,
    Repaired,
    StoredKeys,
    UsedKey,
    is_whole,
    lost_rows,
    lost_until,
    plan_repair,
)
from rsnotify.journal.journal import Journal, Standing
from rsnotify.journal.sets import new_data_id
from rsnotify.journal.submission import Fragment, Submission
from rsnotify.redis_client import Client, Script
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import KINDS, ChannelName, Row
from rsnotify.single_flight import SingleFlight

# --- in Redis ------------------------------------------------------------------------------------

_REPAIR = Script("journal/journal.lua", "journal/repair.lua")
_GAP = Script("journal/journal.lua", "journal/gap.lua")
_PASS = Script("journal/pass.lua")

PAGE = 1000
HOLD_SECONDS = 5  # a repair takes far less, and nobody publishes meanwhile
LOOK_SECONDS = 0.05
REPAIRED_SECONDS = 24 * 3600  # far longer than a process remembers changes


class Lineage(NamedTuple):
    """Which servers have a journal: `servers` changes after a restart or a failover, `data` after
    Redis has been emptied."""

    servers: Any  # of a `Client`
    data: bytes

    def server_of(self, channel: ChannelName) -> str:
        return str(self.servers.of_key(keys.record(channel)))


class Remains(NamedTuple):
    """What a journal has left."""

    rows: Sequence[Row]
    last: Position
    begin: Position  # of the stream, or behind its newest gap: nothing is missing before it
    repaired: Repaired
    is_held: bool


class Repairs:
    """Looks at journals after a loss, and repairs them."""

    def __init__(self, client: Client, window: tuple[int, int, int]) -> None:
        self._client = client
        self._window = window

    async def lineage(self) -> Lineage:
        """Read which Redis this is, and which data it has."""
        servers = await self._client.servers()
        data = await self._client.get(keys.DATA_ID)
        return Lineage(servers, data or await new_data_id(self._client))

    async def note_servers(self, servers: Collection[str], channels: Sequence[ChannelName]) -> bool:
        """If another Redis has these data now, or it was started again, they may be older than
        what readers know: nothing gets a position before this moment any more."""
        name = blake2b(" ".join(sorted(set(servers))).encode(), digest_size=12).hexdigest()
        if await self._client.get(keys.SERVERS) == name.encode():
            return False
        now = int(await redis_now(self._client))
        for start in range(0, len(channels), PAGE):
            async with self._client.pipeline(transaction=False) as pipeline:
                for each in channels[start : start + PAGE]:
                    _PASS.run(pipeline, [keys.record(each)], now, "floor")
                await pipeline.execute()
        await self._client.set(keys.SERVERS, name)
        return True

    @asynccontextmanager
    async def held(self, channel: ChannelName) -> AsyncIterator[str]:
        """Hold the journal: nobody else repairs it meanwhile, and nobody appends."""
        key, me = keys.hold(channel), secrets.token_hex(8)
        await self._take(key, me)
        try:
            yield me
        finally:
            await self._client.if_equals(key, me, "DEL")

    async def released(self, channel: ChannelName) -> None:
        """Wait until nobody holds the journal."""
        async with self.held(channel):
            pass

    async def _take(self, key: str, me: str) -> None:
        """Take the hold, also of a process that has died with it: by our own clock, not Redis's."""
        holder, until = None, monotonic() + HOLD_SECONDS
        while not await self._client.set(key, me, nx=True, ex=HOLD_SECONDS):
            found = await self._client.get(key)
            if found != holder:
                holder, until = found, monotonic() + HOLD_SECONDS
            elif found is not None and monotonic() > until:
                await self._client.if_equals(key, found, "DEL")
            await asyncio.sleep(LOOK_SECONDS)

    async def remains(self, channel: ChannelName, created: Position, after: Position) -> Remains:
        """What the journal of the set created then holds after this position; `last` is read before
        the rows."""
        pipeline = self._client.pipeline(transaction=False)
        pipeline.exists(keys.hold(channel))
        pipeline.hmget(keys.record(channel), "created", "last", "first", "gaps")
        self._page(pipeline, channel, after)
        pipeline.hgetall(keys.repaired(channel))
        is_held, (made, last, first, gaps), page, marks = await pipeline.execute()
        if made is None or int(made) != created:
            raise NoSuchSet(channel.set_name)
        rows = rows_of(page)
        while len(page) == PAGE:
            page = await self._page(self._client, channel, rows[-1][0])
            rows += rows_of(page)
        begin = Position(max(map(int, [first, *(gaps or b"").split()])))
        return Remains(rows, Position(int(last)), begin, _repaired(marks), bool(is_held))

    async def stored_keys(
        self, channel: ChannelName, created: Position, wanted: Iterable[UsedKey]
    ) -> StoredKeys:
        """What the journal of the set created then remembers of these keys."""
        digests = list({key.digest for key in wanted})
        pipeline = self._client.pipeline(transaction=False)
        for digest in digests:
            pipeline.get(remembered_key(channel, created, digest))
        found = zip(digests, await pipeline.execute() if digests else (), strict=True)
        return {digest: parse_known(known)[1:] for digest, known in found if known is not None}

    async def is_moved(self, channel: ChannelName, position: Position) -> bool:
        """Whether the change that was there stands elsewhere now."""
        mark = await self._client.hget(keys.repaired(channel), str(int(position)))
        return bool(mark == b"a")

    def _page(self, client: Client, channel: ChannelName, after: Position) -> Any:
        return client.xrange(keys.stream(channel), f"({after.stream_id}", "+", PAGE)

    async def leave_gap(self, channel: ChannelName, lost: Position, holder: str) -> bool:
        """Leave a gap up to `lost`, as nobody knows what was there; False if it is not held.

        The version of the sets moves before anything can be appended: so no process reads on behind
        the gap before it has compared its journals.
        """
        common = channel_arguments(channel, self._window, lost)
        done = await _GAP.run(self._client, channel_keys(channel), *common, holder, int(lost))
        if done:
            await self._client.incr(keys.SETS_VERSION)
        return bool(done)

    async def repair(
        self, channel: ChannelName, repair: Repair, *, last: Position, seen: Position, holder: str
    ) -> bool:
        """Repair; False if the journal has changed since its `last` was read, or is not held.

        If something is removed, the version of the sets moves: so every process looks at its
        journals, and drops what it has made of those rows.
        """
        common = channel_arguments(channel, self._window, seen)
        arguments = [int(last), REPAIRED_SECONDS, *_counts(repair, holder)]
        arguments += _arguments(repair, channel.kind == "change")
        names = (*channel_keys(channel), keys.repaired(channel), keys.packed(channel))
        done = await _REPAIR.run(self._client, names, *common, *arguments)
        if done is None:
            raise NoSuchSet(channel.set_name)
        if done and repair.removed:
            await self._client.incr(keys.SETS_VERSION)
        return bool(done)


def _counts(repair: Repair, holder: str) -> list[object]:
    return [len(repair.put_back), len(repair.again), holder, len(repair.keys), KEY_SECONDS]


def _arguments(repair: Repair, of_changes: bool) -> list[object]:
    rows, removed = [*repair.put_back, *repair.again], set(repair.removed)
    found: list[object] = []
    for row in rows:
        found += change_arguments(Fragment.of_row(*row), of_changes)
    found += [repair.notes.get(row, b"") for row in rows]
    found += [int(row in removed) for row in repair.again]
    for key in repair.keys:
        found += [key.digest, f"{key.fingerprint} {int(key.from_)} {int(key.until)}"]
    found += map(int, repair.elsewhere)
    return found


def _repaired(marks: dict[bytes, bytes]) -> Repaired:
    put_back = {Position(int(at)) for at, mark in marks.items() if mark == b"b"}
    return Repaired(
        put_back, {Position(int(at)) for at in marks if Position(int(at)) not in put_back}
    )


# --- in this process -----------------------------------------------------------------------------

MOVING_SECONDS = 2.0  # then the caller gets 503, before three seconds have passed
AGAIN_SECONDS = 0.05

ORDER_SECONDS = 1.0  # for others to put back first what was before: they notice within a second
OTHERS_SECONDS = 30.0  # what nobody has put back by then, also who was busy, nobody remembers
SUSPECTS_SECONDS = 0.25  # of each second, to look at journals after Redis has changed
AT_ONCE = 1_000  # journals to ask about in one journey

UNREADABLE = "the journal has lost changes, and cannot be read now; nothing was stored"
LEFT_TO_OTHERS = "lost changes are still to be put back"

log = logging.getLogger(__name__)


class _Look(NamedTuple):
    """What a journal needs; no plan if it needs nothing."""

    last: Position
    plan: Repair | None
    lost: Position | None  # and remembered by nobody here
    is_partial: bool  # some requests are remembered here, but not all their rows
    is_held: bool


class Repairing:
    """Repairs journals when appends, reads or checks find a loss."""

    def __init__(self, journal: Journal, repairs: Repairs, feeds: Feeds) -> None:
        self._journal = journal
        self._repairs = repairs
        self._feeds = feeds
        self._lineage: Lineage | None = None
        self._noted: Lineage | None = None  # for which the journals have got a floor
        self.recover: list[Callable[[], Awaitable[None]]] = []  # what puts records back
        self._unproven: list[Feed] = []  # because Redis is another one
        self._suspects: dict[Feed, None] = {}  # of these, and others, what has to be looked at
        self._doubts: WeakKeyDictionary[Feed, float] = WeakKeyDictionary()  # since when
        self._partial: WeakKeyDictionary[Feed, float] = WeakKeyDictionary()  # since when
        self.gaps = 0  # how often changes were lost that nobody remembered
        self._running: SingleFlight[Feed, None] = SingleFlight("repair of a journal")

    async def append(self, feed: Feed, submission: Submission) -> Appended:
        """Append where that failed: a journal that is behind is repaired first, and one that a
        Cluster moves is waited for a little."""
        until = monotonic() + MOVING_SECONDS
        while True:
            try:
                return await self._append_repaired(feed, submission)
            except KeysMoving:
                if monotonic() > until:
                    raise
            await asyncio.sleep(AGAIN_SECONDS)

    def _append(self, feed: Feed, submission: Submission) -> Awaitable[Appended]:
        return self._journal.append(feed.channel, submission, seen=feed.memory.newest)

    async def _append_repaired(self, feed: Feed, submission: Submission) -> Appended:
        try:
            return await self._append(feed, submission)
        except JournalIsBehind:
            await self._repair_for(feed)
            return await self._append(feed, submission)

    async def _repair_for(self, feed: Feed) -> None:
        """Repair for a publisher, who may repeat if the journal cannot be read now."""
        try:
            await self.repair(feed)
        except (TryAgain, Rejected):
            raise
        except Exception as error:
            raise TryAgain(UNREADABLE) from error

    async def joined(
        self, feed: Feed, cursor: Position, found: Sequence[Row] | Exception
    ) -> Sequence[Row] | Exception:
        """The rows after the cursor; none if they do not join it, until that is repaired.

        They join if the change at the cursor is there, if nothing was kept before them, or if that
        change was lost and stands further on now: then what follows is all that was not sent yet.
        """
        if isinstance(found, Exception):
            return found
        if found and found[0][0] == cursor:
            return found[1:]
        standing = await self._standing(feed.channel)
        if standing is None or standing.gap <= cursor <= max(standing.first, standing.gap):
            return found
        is_done = await self._is_done(feed)
        return found if is_done and await self._repairs.is_moved(feed.channel, cursor) else ()

    async def check_lineage(self) -> None:
        """Suspect all records and journals, if Redis is another one now, with data that we know."""
        before, now = self._lineage, await self._repairs.lineage()
        if before is not None and before.data == now.data and before.servers != now.servers:
            for recover in self.recover:
                await _unless_damaged(recover)
            for feed in self._feeds.best_remembered():
                if before.server_of(feed.channel) != now.server_of(feed.channel):
                    feed.losses += 1
                    feed.release()  # what was made of lost changes would be listed again
                    self._unproven.append(feed)
        self._lineage = now

    async def check_restart(self, set_names: Iterable[str]) -> None:
        """Before anything is published, note in the journals which Redis has them now."""
        if self._lineage is None or self._lineage == self._noted:
            return
        channels = [*starmap(ChannelName, product(set_names, KINDS))]
        await self._repairs.note_servers(self._lineage.servers.names, channels)
        self._noted = self._lineage

    async def check_suspects(self) -> None:
        """Look at some suspects, for a short time: appends look at their own journals anyway."""
        until = monotonic() + SUSPECTS_SECONDS
        while self._unproven and monotonic() < until:
            await self._sort_out(self._unproven[:AT_ONCE])
        for feed in list(self._suspects):
            if await self._is_done(feed):
                self._suspects.pop(feed, None)
            if monotonic() > until:
                break

    async def _sort_out(self, feeds: Sequence[Feed]) -> None:
        """Suspect these, but for those that end where they did, with nothing remembered."""
        standings = await self._journal.standings([feed.channel for feed in feeds])
        for feed, standing in zip(feeds, standings, strict=True):
            if not isinstance(standing, Standing) or not _is_as_known(feed, standing):
                self._suspects[feed] = None
        del self._unproven[: len(feeds)]

    def check(self, feed: Feed, seen: Position, standing: Standing) -> None:
        """Its journal stands here: is that before what had been seen, or behind a gap?"""
        self._take_over(feed, standing)
        if standing.head < seen:
            self._suspects[feed] = None

    def _take_over(self, feed: Feed, standing: Standing) -> None:
        """Follow the journal from behind its newest gap, without what was removed from it."""
        if standing.gap > feed.tail.head:
            feed.pass_gap(standing.gap)
        feed.note_removed(standing.removed)
        self._feeds.ring(feed.channel, standing.head)

    async def _is_done(self, feed: Feed) -> bool:
        """Whether its journal is as it should be; trouble with one stops no other."""
        try:
            await self.repair(feed)
        except TryAgain as error:
            log.debug("%r is repaired later: %s", feed, error.detail)
            return False
        except Exception as error:
            log_unreadable(feed.channel, error)
        return True

    async def repair(self, feed: Feed) -> None:
        """Put back what is remembered, and say what is lost; once for all who ask at a time."""
        with suppress(NoSuchSet):  # the next check ends the feed
            await self._running.result(feed, lambda: self._repair(feed))

    async def _repair(self, feed: Feed) -> None:
        found = await self._look(feed)
        waited = self._waited_for_others(feed, found)
        if waited < ORDER_SECONDS:
            raise TryAgain(LEFT_TO_OTHERS)
        is_alone = waited >= OTHERS_SECONDS
        if found.lost is not None and not found.plan and not is_alone:
            raise TryAgain(LEFT_TO_OTHERS)  # without the hold, which they need
        if found.plan is not None:
            async with self._repairs.held(feed.channel) as holder:
                await self._carry_out(feed, holder, is_alone=is_alone)
        elif found.is_held:
            await self._repairs.released(feed.channel)
        await self._go_on(feed)

    async def _look(self, feed: Feed) -> _Look:
        memory, created = feed.memory, Position.parse(feed.created)
        left = await self._repairs.remains(feed.channel, created, memory.begins)
        lost_keys = memory.keys_of(lost_rows(memory, left.rows, left.repaired))
        stored = await self._repairs.stored_keys(feed.channel, created, lost_keys)
        plan = plan_repair(memory, left.rows, left.last, left.repaired, stored)
        lost = lost_until(memory, left.rows, left.begin, left.repaired)
        is_needed = plan or lost is not None or left.last < memory.newest
        is_partial = not all(is_whole(key, memory) for key in lost_keys)
        return _Look(left.last, plan if is_needed else None, lost, is_partial, left.is_held)

    def _waited_for_others(self, feed: Feed, found: _Look) -> float:
        """For how many seconds: what is not remembered here, another process may remember."""
        if found.lost is not None and feed not in self._doubts:
            log.warning("Redis has lost changes of %s that are not remembered here", feed.channel)
            feed.release()  # what is read meanwhile is read from the journal
        now, waited = monotonic(), inf
        reasons = (self._doubts, found.lost is not None), (self._partial, found.is_partial)
        for since, is_so in reasons:
            if is_so:
                waited = min(waited, now - since.setdefault(feed, now))
            else:
                since.pop(feed, None)
        return waited

    async def _carry_out(self, feed: Feed, holder: str, *, is_alone: bool) -> None:
        """Put back what is remembered here; if nobody remembers the rest, leave a gap there."""
        found = await self._look(feed)
        if found.lost is not None and is_alone:
            await self._leave_gap(feed, found.lost, holder)
            found = await self._look(feed)
        if found.plan or (found.plan is not None and found.lost is None):
            await self._put_back(feed, found, found.plan, holder)
        if found.lost is not None:
            raise TryAgain(LEFT_TO_OTHERS)

    async def _put_back(self, feed: Feed, found: _Look, plan: Repair, holder: str) -> None:
        """Nothing is appended before what has been seen, once all of that is there again."""
        seen = feed.memory.newest if found.lost is None else UNSEEN
        if not await self._repairs.repair(
            feed.channel, plan, last=found.last, seen=seen, holder=holder
        ):
            raise TryAgain("the journal has changed while it was repaired")
        log.error(
            "Redis had lost changes of %s: %d were put back, %d were published again",
            feed.channel,
            len(plan.put_back),
            len(plan.again),
        )

    async def _leave_gap(self, feed: Feed, lost: Position, holder: str) -> None:
        if not await self._repairs.leave_gap(feed.channel, lost, holder):
            raise TryAgain("the journal has changed while it was repaired")
        self.gaps += 1
        log.error(
            "changes of %s up to %s are lost: no hub process remembers them; readers are notified",
            feed.channel,
            lost,
        )

    async def _go_on(self, feed: Feed) -> None:
        """Follow the journal as it is now. If it has lost more, the next check repairs it again:
        what readers have got stays behind them."""
        standing = await self._standing(feed.channel)
        if standing is not None:
            self._take_over(feed, standing)

    async def _standing(self, channel: ChannelName) -> Standing | None:
        (standing,) = await self._journal.standings([channel])
        if isinstance(standing, Exception):
            raise standing
        return standing


def _is_as_known(feed: Feed, standing: Standing) -> bool:
    head, memory = feed.tail.head, feed.memory
    is_at_head = standing.head == head == memory.newest == memory.read_after
    return is_at_head and standing.gap <= head and not memory.rows


async def _unless_damaged(recover: Callable[[], Awaitable[None]]) -> None:
    """Log data that cannot be read: they must not keep the rest from being put back."""
    try:
        await recover()
    except TryAgain:
        raise
    except Exception as error:
        log.warning("records that Redis has lost cannot be put back", exc_info=error)
