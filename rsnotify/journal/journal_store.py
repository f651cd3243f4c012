"""Read the journals, and ask where each begins and ends."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rsnotify.coordination import keys
from rsnotify.errors import NoSuchSet, Trimmed
from rsnotify.journal.appends import APPEND_LIMITS, AppendLimits, Appends
from rsnotify.journal.call import (
    call_arguments,
    call_keys,
    parse_known,
    remembered_key,
    used_otherwise,
)
from rsnotify.journal.rows import mark_of_newest, marks_of, rows_of
from rsnotify.journal.submission import Submission
from rsnotify.journal.usage import Usage
from rsnotify.journal.window import WINDOW_BYTES
from rsnotify.journal.witness import KnownChange, Witness
from rsnotify.redis_client import Client, Script, each
from rsnotify.resourcesync.change import HOUR, Position
from rsnotify.resourcesync.notification import ChannelName, Row

READ_BACK = Script("journal/read_back.lua")
_SAY_FORMER = Script("journal/say_former.lua")
_TOMBSTONES = Script("journal/tombstones.lua")
_LOOK = Script("journal/journal.lua", "journal/look.lua")

STANDING = ("first", "head", "last", "gaps", "newest")  # the fields of a record
NONE = Position(0)
UNMARKED = "000000"  # a call that stores nothing


class Standing(NamedTuple):
    """Where a journal begins and ends."""

    first: Position
    head: Position  # its newest change, or where its newest gap ends, if that is later
    last: Position  # no later change is at or before it
    gap: Position = NONE  # where its newest gap ends
    mark: str = ""  # of the call that stored the newest change, if it is known

    @property
    def newest(self) -> KnownChange:
        return KnownChange(self.head, self.mark)


class Continuation(NamedTuple):
    """What a journal has after a cursor."""

    rows: Sequence[Row]
    marks: Mapping[Position, str]  # of these rows, and of the one at the cursor
    first: Position  # where the stream begins
    gap: Position  # where the newest gap ends


class JournalStore:
    """Every channel's journal, in one Redis."""

    def __init__(
        self,
        client: Client,
        *,
        window_changes: int,
        window_bytes: int = WINDOW_BYTES,
        window_hours: float = 24,
        append_limits: AppendLimits = APPEND_LIMITS,
        is_only_process: bool = False,
    ) -> None:
        self.client = client
        self.window = (window_changes, window_bytes, int(window_hours * HOUR))
        self.usage = Usage(client)
        self.appends = Appends(
            client, self.window, self.usage, append_limits, is_only_process=is_only_process
        )
        self.append = self.appends.append

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
        return _before_gap(rows_of(entries), gap, until)

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
        return [row for row in rows_of(entries) if row[0] > begin], begin

    async def read_from(
        self, stretches: Mapping[ChannelName, tuple[Position, Position]], *, count: int
    ) -> tuple[dict[ChannelName, Continuation | Exception | None], int]:
        """What stands after each of these cursors, up to another position, None if there is no such
        channel, or why it cannot be read; one round trip.

        Also the version of the sets, read after the changes: whatever was decided about a set
        before one of these changes was published has moved it.
        """
        pipeline = self.client.pipeline(transaction=False)
        for channel, (after, until) in stretches.items():
            begin, end = after.stream_id, until.stream_id
            pipeline.execute_command("XRANGE", keys.stream(channel), begin, end, "COUNT", count + 1)
            pipeline.hmget(keys.record(channel), "first", "gaps")
        pipeline.afterwards()
        pipeline.get(keys.SETS_VERSION)
        *replies, version = await pipeline.execute(raise_on_error=False)
        if isinstance(version, Exception):
            raise version
        read = zip(stretches.values(), replies[::2], replies[1::2], strict=True)
        found = [_failure(pair) or (cursor, *pair) for (cursor, _), *pair in read]
        return dict(zip(stretches, each(found, _following), strict=True)), int(version or 0)

    async def look(self, channel: ChannelName, witness: Witness) -> Position:
        """Look for all that is known of the journal; if something is lost, it gets a gap. Returns
        where its newest gap ends."""
        evidence = witness.evidence
        who = f"{self.appends.process}:{UNMARKED}"
        arguments = call_arguments(
            channel, self.window, who, keys.BELL, evidence, self.appends.found_at
        )
        gap = await _LOOK.run(self.client, call_keys(channel), *arguments)
        if gap is None:
            raise NoSuchSet(channel.set_name)
        witness.note_found(evidence.changes)
        if gap > evidence.given:
            witness.note_gap(Position(gap))
        return Position(gap)

    async def confirmed(self, channels: Sequence[ChannelName]) -> list[Standing | Exception | None]:
        """Where each journal stands, once enough replicas know; or why they do not."""
        commands = [("HMGET", keys.record(channel), *STANDING) for channel in channels]
        return each(await self.client.once(commands), _standing)

    async def standings(self, channels: Sequence[ChannelName]) -> list[Standing | Exception | None]:
        """Where each journal stands; None if there is no such channel, or why nobody knows."""
        pipeline = self.client.pipeline(transaction=False)
        for channel in channels:
            pipeline.hmget(keys.record(channel), *STANDING)
        return each(await pipeline.execute(raise_on_error=False), _standing)

    async def say_former(self, channel: ChannelName) -> Position:
        """Have each change say what its resource was before; since when they do."""
        command = _SAY_FORMER.command([keys.record(channel)])
        (since,) = await self.client.durably([command])
        if since is None:
            raise NoSuchSet(channel.set_name)
        return Position(int(since))

    async def tombstones_since(self, channel: ChannelName) -> Position | None:
        since = await self.client.hget(keys.record(channel), "tombstones")
        return None if since is None else Position(int(since))

    async def keep_tombstones(self, channel: ChannelName, *, keep: bool) -> Position:
        """Keep from now on where each resource ended that is no more, or drop that; since when."""
        name = channel.set_name
        names = [keys.record(channel), keys.load(name, "moment"), keys.state(name)]
        command = _TOMBSTONES.command(names, int(keep), keys.STATE_SHARDS)
        (since,) = await self.client.durably([command])
        if since is None:
            raise NoSuchSet(name)
        return Position(int(since))

    async def newest_begin(self, channel: ChannelName) -> Position | None:
        """The position after which the newest append begins; None if there was none."""
        latest, first = await self.client.hmget(keys.record(channel), "latest", "first")
        return None if latest is None else max(Position(int(latest)), Position(int(first)))


def _standing(fields: Sequence[bytes | None]) -> Standing | None:
    first, head, last, gaps, newest = fields
    if first is None or head is None or last is None:
        return None
    ends = Position(int(first)), Position(int(head)), Position(int(last))
    if max(ends) > ends[2]:  # believed, every later change would follow it
        raise ValueError(f"a journal that ends at {ends[2]} cannot hold {max(ends)}")
    return Standing(*ends, max(_gaps(gaps), default=NONE), mark_of_newest(newest, ends[1]))


def _failure(answers: Sequence[object]) -> Exception | None:
    return next((answer for answer in answers if isinstance(answer, Exception)), None)


def _following(found: tuple[Position, Any, Sequence[bytes | None]]) -> Continuation | None:
    cursor, entries, (first, gaps) = found
    if first is None:
        return None
    rows, newest_gap = rows_of(entries), max(_gaps(gaps), default=NONE)
    after = rows[1:] if rows and rows[0][0] == cursor else rows
    return Continuation(after, marks_of(entries), Position(int(first)), newest_gap)


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
