"""Read the journals, and ask where each begins and ends."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rsnotify.errors import NoSuchSet, Trimmed
from rsnotify.journal import keys
from rsnotify.journal.appends import (
    UNSEEN,
    Appends,
    parse_known,
    remembered_key,
    rows_of,
    used_otherwise,
)
from rsnotify.journal.submission import Submission
from rsnotify.journal.window import HOUR, WINDOW_BYTES
from rsnotify.redis_client import Client, Script, each
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, Row

READ_BACK = Script("journal/read_back.lua")

STANDING = ("first", "head", "last", "gaps", "removed")  # the fields of a record


class Standing(NamedTuple):
    """Where a journal begins, its newest change, where its newest gap ends, and when changes were
    last removed, because they were appended again."""

    first: Position
    head: Position
    gap: Position = UNSEEN
    removed: Position = UNSEEN


class Journal:
    """Every channel's journal, in one Redis."""

    def __init__(self, client: Client, *, window_changes: int, window_hours: float = 24) -> None:
        self.client = client
        self.window = (window_changes, WINDOW_BYTES, int(window_hours * HOUR))
        self.appends = Appends(client, self.window)
        self.append = self.appends.append
        self.note_served: Callable[[ChannelName, Sequence[Row]], None] = lambda _, __: None
        """Called with what is read for somebody who is behind, or polls, oldest first."""

    async def check_key(self, submissions: Mapping[ChannelName, Submission]) -> None:
        """Refuse a key that one of these channels remembers for other changes."""
        keyed = {channel: each for channel, each in submissions.items() if each.key}
        pipeline = self.client.pipeline(transaction=False)
        for channel in keyed:
            pipeline.hget(keys.record(channel), "created")
        created = await pipeline.execute() if keyed else []
        for channel, begun in zip(keyed, created, strict=True):
            pipeline.get(remembered_key(channel, int(begun or 0), keyed[channel].digest))
        known = await pipeline.execute() if keyed else []
        for submission, found in zip(keyed.values(), known, strict=True):
            if found and not submission.fingerprint.startswith(parse_known(found)[0]):
                raise used_otherwise(submission)

    async def read(
        self, channel: ChannelName, after: Position, *, count: int, until: Position | None = None
    ) -> list[Row]:
        """Up to `count` changes in `(after, until]`, oldest first; `Trimmed` if some are gone.

        They end before a gap; `Trimmed` if there are none between `after` and the gap.
        """
        end = "+" if until is None else until.stream_id
        pipeline = self.client.pipeline(transaction=False)
        pipeline.execute_command(
            "XRANGE", keys.stream(channel), f"({after.stream_id}", end, "COUNT", count
        )
        # Afterwards: a trim in between shows.
        pipeline.hmget(keys.record(channel), "first", "gaps")
        entries, (first, gaps) = await pipeline.execute()
        if first is None:
            raise NoSuchSet(channel.set_name)
        if after < int(first):
            raise Trimmed(Position(int(first)))
        gap = min((each for each in _gaps(gaps) if each > after), default=None)
        rows = _before_gap(rows_of(entries), gap, until)
        self.note_served(channel, rows)
        return rows

    async def read_back(
        self, channel: ChannelName, until: Position, *, count: int
    ) -> tuple[list[Row], Position]:
        """Up to `count` changes up to `until`, newest first; and where the stream begins, or where
        the newest gap before `until` ends, as they do not reach across a gap."""
        names = [keys.stream(channel), keys.record(channel)]
        entries, first, gaps = await READ_BACK.run(self.client, names, until.stream_id, count)
        if first is None:
            raise NoSuchSet(channel.set_name)
        begin = max([Position(int(first)), *(gap for gap in _gaps(gaps) if gap <= until)])
        rows = [row for row in rows_of(entries) if row[0] > begin]
        self.note_served(channel, rows[::-1])
        return rows, begin

    async def read_from(
        self, cursors: Mapping[ChannelName, Position], *, count: int
    ) -> tuple[dict[ChannelName, list[Row] | Exception], int]:
        """What stands at and after each of these cursors, or why it cannot be read; one round trip.

        A first row that is not at the cursor itself means that Redis has lost changes, unless the
        stream begins there.

        Also the version of the sets, read after the changes: whatever was decided about a set
        before one of these changes was published has moved it.
        """
        pipeline = self.client.pipeline(transaction=False)
        for channel, after in cursors.items():
            pipeline.execute_command(
                "XRANGE", keys.stream(channel), after.stream_id, "+", "COUNT", count + 1
            )
        pipeline.afterwards()
        pipeline.get(keys.SETS_VERSION)
        *replies, version = await pipeline.execute(raise_on_error=False)
        if isinstance(version, Exception):
            raise version
        return dict(zip(cursors, each(replies, rows_of), strict=True)), int(version or 0)

    async def standings(self, channels: Sequence[ChannelName]) -> list[Standing | Exception | None]:
        """Where each journal stands; None if there is no such channel, or why nobody knows."""
        pipeline = self.client.pipeline(transaction=False)
        for channel in channels:
            pipeline.hmget(keys.record(channel), *STANDING)
        return each(await pipeline.execute(raise_on_error=False), _standing)

    async def latest(self, channel: ChannelName) -> Position | None:
        """The position after which the newest append begins; None if there was none."""
        latest, first = await self.client.hmget(keys.record(channel), "latest", "first")
        return None if latest is None else max(Position(int(latest)), Position(int(first)))


def _standing(fields: Sequence[bytes | None]) -> Standing | None:
    first, head, last, gaps, removed = fields
    if first is None or head is None or last is None:
        return None
    ends = Position(int(first)), Position(int(head))
    if max(ends) > int(last):  # believed, every later change would follow it
        raise ValueError(f"a journal that ends at {int(last)} cannot hold {max(ends)}")
    return Standing(*ends, max(_gaps(gaps), default=UNSEEN), Position(int(removed or 0)))


def _gaps(gaps: bytes | None) -> list[Position]:
    """Where each gap ends."""
    return [Position(int(gap)) for gap in (gaps or b"").split()]


def _before_gap(rows: list[Row], gap: Position | None, until: Position | None) -> list[Row]:
    if gap is None or (until is not None and until < gap):
        return rows
    rows = [row for row in rows if row[0] < gap]
    if not rows:
        raise Trimmed(gap)
    return rows
