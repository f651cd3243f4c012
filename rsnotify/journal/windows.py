"""The windows of change journals in Redis: read, closed, packed, trimmed, deleted.

Every step is atomic or may be repeated, so any number of hub processes may do it at once. A record
is read after it was asked for, in one round trip for all who ask meanwhile. This is not a single
flight: that would also serve callers who came after the read had begun.
"""

import asyncio
import secrets
from collections.abc import Iterable, Sequence

from rsnotify.coordination import keys
from rsnotify.coordination.claims import Claim, Claims
from rsnotify.coordination.clock import ClockHistory, observed_clock, redis_now
from rsnotify.errors import NoSuchSet, TryAgain
from rsnotify.journal.gzip_parts import PackedEntries
from rsnotify.journal.rows import mark_of_newest
from rsnotify.journal.window import JournalRecord, Span, Window
from rsnotify.redis_client import Client, Script, each
from rsnotify.resourcesync.change import MINUTE, Position
from rsnotify.resourcesync.notification import ChannelName

_CLOSE, _KEEP, _TRIM = (
    Script("journal/close.lua"),
    Script("journal/keep.lua"),
    Script("journal/trim.lua"),
)
_SPAN, _RAISE_LAST = Script("journal/span.lua"), Script("journal/raise_last.lua")
FORGET = Script("journal/forget.lua")

# The fields of a record, and how Redis names them.
FIELDS = {name: name for name in JournalRecord._fields} | {
    "packed_until": "settled",
    "grew_until": "told",
    "mark": "newest",
}
AHEAD = MINUTE  # of Redis's clock: positions must not run away with a wrong one
NOT_READ = "the record of the set was not read; repeat the request"
KEEP_SECONDS = 600  # what was being written when its hub died is gone after that

Archived = tuple[Window, Window]
"""The oldest and the newest window that an archive holds."""


class Windows:
    """Every set's windows, in one Redis."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._claims = Claims(client)
        self._asked: dict[str, asyncio.Future[JournalRecord | None]] = {}
        self._reader: asyncio.Task[None] | None = None

    # --- where they stand ----------------------------------------------------------------------

    async def record(self, set_name: str) -> JournalRecord:
        """The record as it is now or later, never as it was before the call."""
        future = self._asked.get(set_name)
        if future is None:
            future = self._asked[set_name] = asyncio.get_running_loop().create_future()
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read_asked(), name="reader of records")
        found = await asyncio.shield(future)
        if found is None:
            raise NoSuchSet(set_name)
        return found

    async def _read_asked(self) -> None:
        while self._asked:
            asked, self._asked = self._asked, {}
            try:
                found = await self.records(list(asked))
            except Exception as error:  # the caller gets it
                _fail(asked.values(), error)
            except BaseException:  # cancelled: nobody else would ever answer those who wait
                waiting, self._asked = [*asked.values(), *self._asked.values()], {}
                _fail(waiting, TryAgain(NOT_READ))
                raise
            else:
                for future, record in zip(asked.values(), found, strict=True):
                    if isinstance(record, Exception):
                        _fail([future], record)
                    else:
                        future.set_result(record)

    async def records(self, set_names: Sequence[str]) -> list[JournalRecord | Exception | None]:
        """Each set's record; None for a set that does not exist, or why it cannot be read."""
        pipeline = self._client.pipeline(transaction=False)
        for name in set_names:
            pipeline.hmget(keys.record(_changes(name)), *FIELDS.values())
        return each(await pipeline.execute(raise_on_error=False), _record)

    async def span(self, set_name: str, *, after: Position | None = None) -> Span:
        """The record, and the closed windows that end after a position, at one moment."""
        channel = _changes(set_name)
        names = [keys.record(channel), keys.windows(channel)]
        row, windows, oldest = await _SPAN.run(
            self._client, names, _behind(after), *FIELDS.values()
        )
        record = _record(row)
        if record is None:
            raise NoSuchSet(set_name)
        first = Window.parse(oldest[0]) if oldest else None
        return Span(record, [Window.parse(window) for window in windows], first)

    async def closed_after(self, set_name: str, cursor: Position) -> Window | None:
        """The closed window in which the change after the cursor stands, if it is in one."""
        key = keys.windows(_changes(set_name))
        return _first(await self._client.zrangebyscore(key, _behind(cursor), "+inf", 0, 1))

    async def oldest(self, set_name: str) -> Window | None:
        return _first(await self._client.zrange(keys.windows(_changes(set_name)), 0, 0))

    async def archived(
        self, set_names: Sequence[str], begin: Position
    ) -> list[Archived | Exception | None]:
        """Of each set, the oldest and the newest of the closed windows that end at this position or
        before; or why they cannot be read."""
        pipeline = self._client.pipeline(transaction=False)  # a full Redis refuses transactions
        for name in set_names:
            key = keys.windows(_changes(name))
            pipeline.zrangebyscore(key, "-inf", int(begin), 0, 1)
            pipeline.zrevrangebyscore(key, int(begin), "-inf", 0, 1)
        found = each(await pipeline.execute(raise_on_error=False), _first)
        return [_archived(*both) for both in zip(found[::2], found[1::2], strict=True)]

    async def raise_last_to_cursor(self, set_name: str, position: Position, now: int) -> None:
        """A journal that ends before this position may have lost it: what is published next must
        come after it, also if the clock of Redis is behind ours."""
        here = await self.now()
        if here <= position <= min(now, here + AHEAD):
            await self.raise_last(set_name, position)

    async def raise_last(self, set_name: str, position: Position) -> None:
        """No change that is published next is at this position or before it."""
        await _RAISE_LAST.run(self._client, [keys.record(_changes(set_name))], int(position))

    async def now(self) -> Position:
        """The clock that all hub processes share."""
        return await redis_now(self._client)

    async def clock_history(self) -> ClockHistory:
        """What hub processes have observed of that clock: ages are counted by this."""
        return await observed_clock(self._client)

    # --- what becomes of them ------------------------------------------------------------------

    async def close(self, set_name: str, period: int) -> bool:
        """Close the open window at the newest edge that has passed, if it is due."""
        channel = _changes(set_name)
        names = [keys.record(channel), keys.windows(channel)]
        return bool(await _CLOSE.run(self._client, names, int(period)))

    async def keep(self, set_name: str, window: Window, packed: PackedEntries) -> None:
        """Keep the entries of a closed window outside the stream."""
        channel, data = _changes(set_name), packed.to_bytes()
        key = keys.packed(channel, window.from_)
        written = f"{key}:{secrets.token_hex(8)}"
        await self._client.write_in_pieces(written, data, seconds=KEEP_SECONDS)
        names = [keys.windows(channel), written, key]
        await _KEEP.run(self._client, names, window.render(), len(data))

    async def packed(self, set_name: str, window: Window) -> PackedEntries | None:
        data = await self._client.get(keys.packed(_changes(set_name), window.from_))
        return None if data is None else PackedEntries.from_bytes(data)

    async def note_progress(self, set_name: str, created: Position, **until: Position) -> None:
        """How far the upkeep of the set created then has come: `packed_until`, `grew_until`."""
        key = keys.record(_changes(set_name))
        fields = [part for name, at in until.items() for part in (FIELDS[name], int(at))]
        await self._client.if_equals(key, int(created), "HSET", *fields, field="created")

    async def trim(self, set_name: str, window: Window) -> bool:
        """Let the stream begin behind a window that is packed; only if it begins before it now."""
        channel = _changes(set_name)
        names = [keys.stream(channel), keys.record(channel), keys.packed(channel, window.from_)]
        arguments = (int(window.from_), int(window.until), 1)
        return bool(await _TRIM.run(self._client, names, *arguments))

    async def trim_framework(self, set_name: str, begin: Position) -> None:
        """Forget framework changes up to a position; Destinations that old must look anew."""
        channel = ChannelName(set_name, "framework")
        names = [keys.stream(channel), keys.record(channel), keys.stream(channel)]
        first, head = await self._client.hmget(keys.record(channel), "first", "head")
        if first is not None and int(first) < (upto := min(int(begin), int(head))):
            await _TRIM.run(self._client, names, int(first), upto, 0)

    async def forget(self, set_name: str, windows: Sequence[Window]) -> None:
        """Remove closed windows for good."""
        channel = _changes(set_name)
        packed = (keys.packed(channel, window.from_) for window in windows)
        await FORGET.run(self._client, [keys.windows(channel), *packed], int(windows[-1].until), 0)

    async def claim(self, set_name: str, act: str, seconds: float) -> bool:
        """Whether this process may do it; no other may for so many seconds."""
        return await self.claimed(set_name, act, seconds) is not None

    async def claimed(self, set_name: str, act: str, seconds: float) -> Claim | None:
        """The claim to it, which its holder lets go when it is done; None if another has it."""
        return await self._claims.take(keys.claim(set_name, act), seconds)


def _changes(set_name: str) -> ChannelName:
    return ChannelName(set_name, "change")


def _behind(position: Position | None) -> str:
    return "-inf" if position is None else f"({int(position)}"


def _record(row: Sequence[bytes | None]) -> JournalRecord | None:
    *fields, newest = row
    if None in fields:
        return None
    record = JournalRecord._make((*(Position(int(value or 0)) for value in fields), ""))
    return record._replace(mark=mark_of_newest(newest, record.head))


def _first(found: Sequence[bytes]) -> Window | None:
    return Window.parse(found[0]) if found else None


def _archived(
    oldest: Window | Exception | None, newest: Window | Exception | None
) -> Archived | Exception | None:
    if isinstance(oldest, Window) and isinstance(newest, Window):
        return oldest, newest
    return next((found for found in (oldest, newest) if isinstance(found, Exception)), None)


def _fail(futures: Iterable[asyncio.Future[JournalRecord | None]], error: Exception) -> None:
    for future in futures:
        future.set_exception(error)
        future.exception()  # nobody may be left to hear it
