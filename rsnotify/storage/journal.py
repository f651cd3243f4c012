"""The journals: append changes, read them, ask where a journal begins and ends.

An append is one atom (`append.lua`) with an idempotency key, so it can be repeated at any time. It
is answered only when Redis has it, and refused only when Redis does not have it, as far as that can
be known in a bounded time. Appends that arrive while a round is on its way to Redis travel together
in the next one, so a busy hub pays for one `fsync` a round. (A single flight would not do: each
append has an answer of its own, and none may join a round that has begun.)
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, repeat
from time import monotonic
from typing import NamedTuple

from rsnotify.core.histogram import Histogram
from rsnotify.core.submission import ENTRIES_BYTES, Submission
from rsnotify.core.window import HOUR, WINDOW_BYTES
from rsnotify.errors import (
    JournalIsBehind,
    NoSuchSet,
    Rejected,
    TooFewReplicas,
    Trimmed,
    TryAgain,
    Unanswered,
)
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import KINDS, ChannelName, Interval, Row
from rsnotify.storage import keys
from rsnotify.storage.connection import Client, each
from rsnotify.storage.journal_format import (
    CALLERS_KEY_SECONDS,
    change_arguments,
    channel_arguments,
    channel_keys,
    rows_of,
)
from rsnotify.storage.script import Command, Script

APPEND, READ_BACK = Script("journal.lua", "append.lua"), Script("read_back.lua")

APPEND_SECONDS = 2.5  # a Source hears 503 before three seconds have passed, unless…
CERTAIN_SECONDS = 10.0  # …it has no key to ask again with: for so long we ask in its place
AGAIN_SECONDS = 0.1
WRITERS = 2  # one packs the next round while Redis works on the other
ROUND_CHANGES = 4_000  # more go together in one request only: Redis is busy for some 40 ms
ROUND_BYTES = ENTRIES_BYTES
WAITING_BYTES = 64 * 1024 * 1024  # a Redis in trouble must not fill our memory

SECONDS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.25, 0.5, 1, 2, 4, 8)
CHANGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)

UNSEEN = Position(0)
UNKNOWN = -2  # a version that no process has

BEHIND = "the journal in Redis has lost changes, and is repaired first"
SILENCE = "the journal does not answer; repeat with the same key"
NOTHING = "the journal does not answer; nothing was stored"
UNCERTAIN = (
    "the journal does not answer, and may have stored the changes; "
    "repeating the request may store them twice: send an Idempotency-Key from the first time on"
)

OUR_KEY_SECONDS = 600  # only for repetitions by the client library


class Standing(NamedTuple):
    """Where a journal begins, its newest change, and where its newest gap ends."""

    first: Position
    head: Position
    gap: Position = UNSEEN


class Appended(NamedTuple):
    """What an append covers in the journal now."""

    from_: Position
    until: Position
    is_repeated: bool  # its key was known
    sets_version: int  # of the sets' records, read after the append; or UNKNOWN
    positions: Sequence[int]  # of each change, 0 if it was left out; none if only Redis knew them

    @property
    def interval(self) -> Interval:
        return Interval(self.from_, self.until)


@dataclass(slots=True)
class _Append:
    channel: ChannelName
    submission: Submission
    seen: Position  # the newest that this process has seen of the channel
    key: str  # the same at every repetition, whoever drew it
    answer: asyncio.Future[Appended]
    is_taken: bool = False  # into a round: Redis may have it

    def give_up(self) -> None:
        """Its Source has waited for long enough, if it can find out later what became of it."""
        if not self.answer.done() and (self.submission.key or not self.is_taken):
            self.answer.set_exception(TryAgain(SILENCE if self.submission.key else NOTHING))


class _Lane:
    """The appends that wait for one server: no other server's wait for them."""

    def __init__(self) -> None:
        self.waiting: deque[_Append] = deque()
        self.writers: set[asyncio.Task[None]] = set()


class Journal:
    """Every channel's journal, in one Redis."""

    def __init__(self, client: Client, *, window_changes: int, window_hours: float = 24) -> None:
        self.client = client
        self.window = (window_changes, WINDOW_BYTES, int(window_hours * HOUR))
        self._lanes: dict[str, _Lane] = {}
        self._waiting_bytes = 0
        self.accepted = dict.fromkeys(KINDS, 0)  # changes that were appended by this process
        self.append_seconds = Histogram(SECONDS)
        self.round_changes = Histogram(CHANGES)
        self.caller = secrets.token_hex(8)  # tells our strokes of the bell from others'
        self._own_keys = (f"{self.caller}-{number}" for number in count(1))

    async def append(
        self, channel: ChannelName, submission: Submission, *, seen: Position = UNSEEN
    ) -> Appended:
        """Append all of it or nothing; nothing to a journal that has not got as far as `seen`."""
        if self._waiting_bytes > WAITING_BYTES:
            raise TryAgain("too many changes are waiting for the journal")
        loop = asyncio.get_running_loop()
        key = submission.key or next(self._own_keys)
        append = _Append(channel, submission, seen, key, loop.create_future())
        lane = self._lane_of(channel)
        lane.waiting.append(append)
        self._waiting_bytes += submission.size
        self._start_writer(lane)
        patience = loop.call_later(APPEND_SECONDS, append.give_up)
        began = monotonic()
        try:
            appended = await append.answer
        finally:
            patience.cancel()
        self.append_seconds.add(monotonic() - began)
        if not appended.is_repeated:
            self.accepted[channel.kind] += len(submission.fragments)
        return appended

    @property
    def waiting_bytes(self) -> int:
        """Of changes that wait for a round to Redis."""
        return self._waiting_bytes

    @property
    def is_busy(self) -> bool:
        """Whether an append is under way."""
        return any(lane.waiting or lane.writers for lane in self._lanes.values())

    def _lane_of(self, channel: ChannelName) -> _Lane:
        name = self.client.lane(channel.set_name)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane()
        return lane

    def _start_writer(self, lane: _Lane) -> None:
        if sum(not writer.done() for writer in lane.writers) < WRITERS:
            writer = asyncio.create_task(self._write(lane), name="journal writer")
            lane.writers.add(writer)
            writer.add_done_callback(lane.writers.discard)

    async def _write(self, lane: _Lane) -> None:
        while appends := self._take_round(lane.waiting):
            try:
                _answer(appends, await self._run(appends))
            except Exception as error:  # whoever waits for the answer gets it
                _answer(appends, [error] * len(appends))

    def _take_round(self, waiting: deque[_Append]) -> list[_Append]:
        """The next appends, those of a channel side by side, in the order of their arrival."""
        taken: list[_Append] = []
        changes = size = 0
        while waiting:
            submission = waiting[0].submission
            changes, size = changes + len(submission.fragments), size + submission.size
            if taken and (changes > ROUND_CHANGES or size > ROUND_BYTES):
                break
            self._waiting_bytes -= submission.size
            append = waiting.popleft()
            if not append.answer.done():  # whoever has given up asks again with the same key
                append.is_taken = True
                taken.append(append)
        if taken:
            self.round_changes.add(sum(len(append.submission.fragments) for append in taken))
        return sorted(taken, key=lambda append: append.channel)

    async def _run(self, appends: Sequence[_Append]) -> Sequence[object]:
        """An answer for each; asked for again as long as nobody knows what became of them."""
        until = monotonic() + CERTAIN_SECONDS
        try:
            return await self._call(appends)
        except Unanswered:
            while monotonic() < until:
                answers = await self._call_again(appends)
                if not any(map(_is_uncertain, answers)):
                    return answers
                await asyncio.sleep(AGAIN_SECONDS)
        raise TryAgain(UNCERTAIN)

    async def _call_again(self, appends: Sequence[_Append]) -> Sequence[object]:
        try:
            return await self._call(appends)
        except TryAgain as error:
            return [error]

    async def _call(self, appends: Sequence[_Append]) -> list[object]:
        by_channel: dict[ChannelName, list[_Append]] = {}
        for append in appends:
            by_channel.setdefault(append.channel, []).append(append)
        commands = [self._command(*each) for each in by_channel.items()]
        *replies, version = await self.client.once(commands, ("GET", keys.SETS_VERSION))
        answers = map(_answers, replies, by_channel.values(), repeat(version))
        return list(chain.from_iterable(answers))

    def _command(self, channel: ChannelName, group: Sequence[_Append]) -> Command:
        seen = max(append.seen for append in group)
        common = channel_arguments(channel, self.window, seen, self.caller)
        return APPEND.command(channel_keys(channel), *common, *self._arguments(channel, group))

    def _arguments(self, channel: ChannelName, group: Sequence[_Append]) -> Iterable[object]:
        of_changes = channel.kind == "change"
        for append in group:
            submission = append.submission
            is_ours = submission.key is None
            yield from (append.key, OUR_KEY_SECONDS if is_ours else CALLERS_KEY_SECONDS)
            yield submission.fingerprint
            yield len(submission.fragments)
            for fragment in submission.fragments:
                yield from change_arguments(fragment, of_changes)

    async def check_key(self, submissions: Mapping[ChannelName, Submission]) -> None:
        """Refuse a key that one of these channels remembers for other changes."""
        keyed = {channel: each for channel, each in submissions.items() if each.key}
        pipeline = self.client.pipeline(transaction=False)
        for channel in keyed:
            pipeline.hget(keys.record(channel), "created")
        created = await pipeline.execute() if keyed else []
        for channel, begun in zip(keyed, created, strict=True):
            pipeline.get(
                f"{keys.remembered(channel)}{(begun or b'').decode()}:{keyed[channel].key}"
            )
        known = await pipeline.execute() if keyed else []
        for submission, found in zip(keyed.values(), known, strict=True):
            if found is not None and found.split(b" ")[0].decode() != submission.fingerprint:
                raise _used_otherwise(submission)

    async def read(
        self, channel: ChannelName, after: Position, *, count: int, until: Position | None = None
    ) -> list[Row]:
        """Up to `count` changes in `(after, until]`, oldest first; `Trimmed` if some are gone.

        They end before a gap, and what begins before one and has no more changes is `Trimmed`.
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
        return _before_gap(rows_of(entries), _gap_after(gaps, after), until)

    async def read_back(
        self, channel: ChannelName, until: Position, *, count: int
    ) -> tuple[list[Row], Position]:
        """Up to `count` changes up to `until`, newest first; and where the stream begins, or the
        gap ends that they do not pass."""
        names = [keys.stream(channel), keys.record(channel)]
        entries, first, gaps = await READ_BACK.run(self.client, names, until.stream_id, count)
        if first is None:
            raise NoSuchSet(channel.set_name)
        begin = max([Position(int(first)), *(gap for gap in _gaps(gaps) if gap <= until)])
        return [row for row in rows_of(entries) if row[0] > begin], begin

    async def read_on(
        self, cursors: Mapping[ChannelName, Position], *, count: int
    ) -> tuple[dict[ChannelName, list[Row] | Exception], int]:
        """What stands at and after each of these cursors, or why it cannot be read, in one journey.

        A first row that is not at the cursor itself means that Redis has lost changes, unless the
        stream begins there.

        And the version of the sets' records after it: whatever was decided about a set before one
        of these changes was published has moved it.
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
            pipeline.hmget(keys.record(channel), "first", "head", "gaps")
        return each(await pipeline.execute(raise_on_error=False), _standing)

    async def latest(self, channel: ChannelName) -> Position | None:
        """After which position the newest append begins; None before the first."""
        latest, first = await self.client.hmget(keys.record(channel), "latest", "first")
        return None if latest is None else max(Position(int(latest)), Position(int(first)))


def _answers(reply: object, group: Sequence[_Append], version: object) -> Sequence[object]:
    """One answer for each append of a channel, whatever became of the call."""
    if isinstance(reply, Exception):
        return [reply] * len(group)
    if reply is None:
        return [NoSuchSet(group[0].channel.set_name)] * len(group)
    if not isinstance(reply, list):
        return [JournalIsBehind(BEHIND)] * len(group)
    number = UNKNOWN if isinstance(version, Exception) else int(version or 0)  # type: ignore[call-overload]
    return [answer and (number, *answer) for answer in reply]


def _answer(appends: Sequence[_Append], answers: Sequence[object]) -> None:
    for append, answer in zip(appends, answers, strict=True):
        if append.answer.done():
            continue
        if isinstance(answer, Exception):
            append.answer.set_exception(answer)
        elif not answer:
            append.answer.set_exception(_used_otherwise(append.submission))
        else:
            append.answer.set_result(_appended(append.submission, *answer))  # type: ignore[misc]


def _appended(
    submission: Submission,
    version: int,
    from_: int,
    until: int,
    repeated: int,
    positions: Sequence[int] = (),
) -> Appended:
    are_unknown = any(fragment.position or fragment.load for fragment in submission.fragments)
    if not positions and not are_unknown:
        positions = range(until - len(submission.fragments) + 1, until + 1)
    return Appended(Position(from_), Position(until), bool(repeated), version, positions)


def _is_uncertain(answer: object) -> bool:
    return isinstance(answer, TryAgain) and not isinstance(answer, TooFewReplicas)


def _used_otherwise(submission: Submission) -> Rejected:
    return Rejected(
        f"Idempotency-Key {submission.key!r} was used for other changes; "
        "send new changes under a new key",
        status=409,
    )


def _standing(fields: Sequence[bytes | None]) -> Standing | None:
    first, head, gaps = fields
    if first is None or head is None:
        return None
    return Standing(Position(int(first)), Position(int(head)), max(_gaps(gaps), default=UNSEEN))


def _gaps(gaps: bytes | None) -> list[Position]:
    """Where each gap ends."""
    return [Position(int(gap)) for gap in (gaps or b"").split()]


def _gap_after(gaps: bytes | None, after: Position) -> Position | None:
    return min((gap for gap in _gaps(gaps) if gap > after), default=None)


def _before_gap(rows: list[Row], gap: Position | None, until: Position | None) -> list[Row]:
    if gap is None or (until is not None and until < gap):
        return rows
    rows = [row for row in rows if row[0] < gap]
    if not rows:
        raise Trimmed(gap)
    return rows
