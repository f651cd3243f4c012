"""Appends to the journals: which go to Redis together, and what becomes of each.

An append is atomic (`append.lua`). Redis recognises one that is repeated, so it can be repeated
at any time. It is answered only when Redis has it, and refused only when Redis does not have it, as
far as that can be known in a bounded time. Appends that arrive while a round is on its way to Redis
travel together in the next one, so a busy hub pays for one `fsync` a round. (A single flight would
not do: each append has an answer of its own, and none may join a round that has begun.)

`Appends` takes them, a `_Lane` for each server holds those that wait, its writers send rounds. The
module begins with the keys and arguments of `journal.lua`, and rows as they are read.
"""

import asyncio
import logging
import secrets
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from itertools import count, islice, repeat
from time import monotonic
from typing import Any
from zlib import crc32

import msgspec

from rsnotify.errors import (
    NoSuchSet,
    Rejected,
    SetFull,
    TooFewReplicas,
    TryAgain,
    Unanswered,
)
from rsnotify.journal import keys
from rsnotify.journal.submission import ENTRIES_BYTES, Fragment, Submission
from rsnotify.journal.usage import KEY_SECONDS, Usage
from rsnotify.journal.witness import MARK_LENGTH, Evidence, Witness
from rsnotify.redis_client import Client, Script
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import (
    KINDS,
    LOC,
    LOC_END,
    ChannelName,
    Interval,
    Row,
    spell_out_each,
)

# --- a journal in Redis --------------------------------------------------------------------------

NO_WINDOW = (0, 0, 1)  # a framework channel's journal is not cut into Change Lists
LOC_BEGIN = len(LOC)


def channel_keys(channel: ChannelName) -> tuple[str, ...]:
    """KEYS of journal.lua."""
    names = (keys.stream(channel), keys.record(channel), keys.windows(channel))
    prefixes = (keys.state(channel.set_name), keys.remembered(channel))
    of_set = keys.record(ChannelName(channel.set_name, "change"))
    return (*names, *prefixes, keys.load(channel.set_name, "newer"), of_set)


def channel_arguments(
    channel: ChannelName,
    window: tuple[int, int, int],
    caller: str,
    bell: str,
    evidence: Evidence,
    found_at: Position,
) -> tuple[object, ...]:
    """ARGV of journal.lua; the caller with the mark of this call."""
    limits = window if channel.kind == "change" else NO_WINDOW
    return (stroke_of(channel, caller), bell, *limits, str(evidence), int(found_at))


def stroke_of(channel: ChannelName, caller: str) -> str:
    """What a stroke of the bell says of a journal; where that ends follows."""
    return f"{'/'.join(channel)} {caller}"


def change_arguments(fragment: Fragment, of_changes: bool) -> tuple[object, ...]:
    short = fragment.short
    shard = crc32(short[LOC_BEGIN : short.index(LOC_END)]) % keys.STATE_SHARDS if of_changes else -1
    kind = ("d" if fragment.deleted else "u") + fragment.load
    return fragment.position, shard, kind, len(fragment.xml), short


def rows_of(entries: Sequence[tuple[bytes, tuple[bytes, bytes]]]) -> list[Row]:
    """The rows of stream entries."""
    xmls = spell_out_each([fields[1] for _, fields in entries])
    return [(_position(stream_id), xml) for (stream_id, _), xml in zip(entries, xmls, strict=True)]


def marks_of(entries: Sequence[tuple[bytes, tuple[bytes, bytes]]]) -> dict[Position, str]:
    """By position: the mark of the call that stored each entry."""
    return {_position(stream_id): mark_of(field) for stream_id, (field, _) in entries}


def mark_of(field: bytes) -> str:
    """The mark in the field of an entry."""
    return field[:MARK_LENGTH].decode()


def mark_of_newest(newest: bytes | None, head: int) -> str:
    """The mark of a journal's newest change, as its record has it; empty if a hub of an earlier
    version has appended since.

    >>> mark_of_newest(b"7:abcdef", 7), mark_of_newest(b"7:abcdef", 8), mark_of_newest(None, 8)
    ('abcdef', '', '')
    """
    at, _, mark = (newest or b"").decode().partition(":")
    return mark if at == str(int(head)) else ""


def remembered_key(channel: ChannelName, created: int, digest: str) -> str:
    """The key of Redis under which journal.lua remembers an idempotency key."""
    return f"{keys.remembered(channel)}{int(created)}:{digest}"


def parse_known(known: bytes) -> tuple[str, Position, Position]:
    """The fingerprint and the interval that are remembered of an idempotency key."""
    fingerprint, from_, until = known.decode().split(" ")
    return fingerprint, Position(int(from_)), Position(int(until))


def _position(stream_id: bytes) -> Position:
    milliseconds, _, microseconds = stream_id.partition(b"-")
    return Position(int(milliseconds) * 1000 + int(microseconds))


# --- appends -------------------------------------------------------------------------------------


class Histogram:
    """Counts of numbers; the last count is of those above every bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, number: float) -> None:
        self.counts[bisect_left(self.bounds, number)] += 1
        self.total += number


log = logging.getLogger(__name__)

APPEND = Script("journal/journal.lua", "journal/append.lua")

UNKNOWN = -2  # a version that no process has

SILENCE = "the journal does not answer; repeat with the same key"
NOTHING = "the journal does not answer; nothing was stored"

CALL_SECONDS = 600  # a call is repeated for some seconds; a Redis that was stopped may read it late


class Appended(msgspec.Struct, frozen=True):
    """What an append covers in the journal now."""

    from_: Position
    until: Position
    is_repeated: bool  # it was stored before
    sets_version: int  # of the sets' records, read after the append; or UNKNOWN
    rows: Sequence[Row]  # what is in the journal now; none if only Redis knows where
    mark: str = ""  # of the call that stored it; empty if that is not known
    is_alone: bool = False  # nothing else was appended in its round

    @property
    def interval(self) -> Interval:
        return Interval(self.from_, self.until)


class PendingAppend(msgspec.Struct, eq=False):
    """An append, until it is answered."""

    channel: ChannelName
    submission: Submission
    size: int  # of the submission
    max_bytes: int  # that its set may take of Redis; 0: any number
    witness: Witness  # of the channel, in this process
    began: float
    answer: asyncio.Future[Appended]
    is_taken: bool = False  # into a round: Redis may have it

    def give_up(self) -> None:
        """Answer a Source that has waited for long, if it can find out later what became of it."""
        if not self.answer.done() and (self.submission.key or not self.is_taken):
            self.answer.set_exception(TryAgain(SILENCE if self.submission.key else NOTHING))

    def resolve(self, answer: Sequence[Any], mark: str, version: int, *, is_alone: bool) -> None:
        """Take the answer of append.lua: it is stored, or its key was used for something else, or
        its set is full."""
        if not answer:
            if not self.answer.done():
                self.answer.set_exception(used_otherwise(self.submission))
            return
        if len(answer) == 1:
            if not self.answer.done():
                self.answer.set_exception(SetFull(self.channel.set_name, self.max_bytes))
            return
        from_, until, repeated, *more = answer
        is_repeated, ends = bool(repeated), (Position(from_), Position(until))
        if is_repeated:
            mark = mark_of(more.pop())  # none if it is trimmed by now
        elif until == from_:
            mark = ""  # nothing was stored: another call has stored the change at the end
        if until > from_ and mark:
            self.witness.know(ends[1], mark)
        else:
            self.witness.give(ends[1])
        if not self.answer.done():
            rows = _rows(self.submission.fragments, until, *more, is_repeated=is_repeated)
            self.answer.set_result(Appended(*ends, is_repeated, version, rows, mark, is_alone))


class Round:
    """The round of a call, by which Redis recognises the call if it is repeated."""

    __slots__ = ("caller", "mark", "number", "process", "writer")

    def __init__(self, process: str, writer: str, number: int) -> None:
        self.process = process
        self.writer = writer  # makes one round after the other
        self.number = number  # higher than that of the writer's last round
        digest = blake2b(f"{process} {number}".encode(), digest_size=MARK_LENGTH // 2)
        self.mark = digest.hexdigest()  # of the rows that are stored: another call has another one
        self.caller = f"{process}:{self.mark}"  # as the bell names it


class Gaps:
    """The gaps that this process has met in journals that had lost something."""

    def __init__(self) -> None:
        self.count = 0
        self.newest: dict[ChannelName, Position] = {}

    def met(self, channel: ChannelName, gap: Position) -> None:
        """Say it, once."""
        if gap <= self.newest.get(channel, 0):
            return
        self.count += 1
        self.newest[channel] = gap
        log.error(
            "Redis has lost changes of %s that were acknowledged or delivered: everybody who may "
            "have had them is told that the history ends at %s. Let the Sources of this set load "
            "their whole state",
            channel,
            gap,
        )


class Group:
    """The appends of a round to one channel: one call of append.lua."""

    def __init__(self, channel: ChannelName, appends: list[PendingAppend]) -> None:
        self.channel = channel
        self.appends = appends
        self.grown = 0  # its set, since it was counted: see Usage.has_grown
        self._witness = appends[-1].witness
        self._evidence = self._witness.evidence

    def command(
        self, window: tuple[int, int, int], bell: str, found_at: Position, round_: Round
    ) -> tuple[Any, ...]:
        """The call, which looks for what is known of the journal now."""
        channel, evidence = self.channel, self._witness.evidence
        self._evidence = evidence
        common = channel_arguments(channel, window, round_.caller, bell, evidence, found_at)
        of_call = (round_.writer, round_.number, CALL_SECONDS, KEY_SECONDS)
        return (*_beginning(channel), *common, *of_call, *_arguments(channel, self.appends))

    def resolve(
        self, reply: object, mark: str, version: int, gaps: Gaps, *, is_alone: bool
    ) -> None:
        """Answer each append."""
        if not isinstance(reply, list):
            if isinstance(reply, TooFewReplicas):
                log.warning("publishing is answered 503: %s", reply.why.detail)
            self.fail(reply if isinstance(reply, Exception) else NoSuchSet(self.channel.set_name))
            return
        answers, gap, self.grown = reply
        for append, answer in zip(self.appends, answers, strict=True):
            append.resolve(answer, mark, version, is_alone=is_alone)
        if gap:
            gaps.met(self.channel, Position(gap))
            self._witness.said(Position(gap))
        self._witness.proved(self._evidence.changes)

    def stroke(self, reply: object, round_: Round) -> str | None:
        """What the bell says of it; None if nothing is there of which others need to know."""
        if not isinstance(reply, list):
            return None
        answers, gap, _ = reply
        ends = [(gap, round_.mark)]
        stored = (each for each in answers if len(each) > 1)
        for from_, until, is_repeated, *more in stored:
            if until > from_:  # else nothing was stored
                ends.append((until, mark_of(more[0]) if is_repeated else round_.mark))
        head, mark = max(ends)
        stroke = stroke_of(self.channel, f"{round_.process}:{mark}")
        return f"{stroke} {head}" if head else None

    def fail(self, error: Exception) -> None:
        for append in self.appends:
            if not append.answer.done():
                append.answer.set_exception(error)


@lru_cache(maxsize=4096)
def _beginning(channel: ChannelName) -> tuple[Any, ...]:
    """The command up to its keys."""
    return APPEND.command(channel_keys(channel))


def _arguments(channel: ChannelName, group: Sequence[PendingAppend]) -> list[object]:
    of_changes = channel.kind == "change"
    found: list[object] = []
    for append in group:
        submission, fragments = append.submission, append.submission.fragments
        digest = submission.digest if submission.key else ""
        found += (digest, submission.fingerprint, append.max_bytes, len(fragments))
        for fragment in fragments:
            found += change_arguments(fragment, of_changes)
    return found


def _rows(
    fragments: Sequence[Fragment], until: int, positions: Sequence[int] = (), *, is_repeated: bool
) -> tuple[Row, ...]:
    """The changes with their positions; without these they end at `until`, one µs apart."""
    if positions:
        pairs = zip(positions, fragments, strict=True)
        return tuple((Position(at), fragment.xml) for at, fragment in pairs if at)
    if is_repeated and any(fragment.position or fragment.load for fragment in fragments):
        return ()
    first = until - len(fragments) + 1
    return tuple([(Position(at), fragment.xml) for at, fragment in enumerate(fragments, first)])


def used_otherwise(submission: Submission) -> Rejected:
    return Rejected(
        f"Idempotency-Key {submission.key!r} was used for other changes; "
        "send new changes under a new key",
        status=409,
    )


APPEND_SECONDS = 2.5  # a Source gets 503 before three seconds have passed, unless…
CERTAIN_SECONDS = 10.0  # …it has no key to ask again with: for so long we ask in its place
AGAIN_SECONDS = 0.1
WRITERS = 2  # one packs the next round while Redis works on the other
ROUND_CHANGES = 4_000  # in a round, unless one request has more: Redis is busy for some 40 ms
ROUND_BYTES = ENTRIES_BYTES
WAITING_BYTES = 64 * 1024 * 1024  # a Redis in trouble must not fill our memory

SECONDS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.25, 0.5, 1, 2, 4, 8)
CHANGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)

READ_VERSION = ("GET", keys.SETS_VERSION)

UNCERTAIN = (
    "the journal does not answer, and may have stored the changes; "
    "repeating the request may store them twice: send an Idempotency-Key from the first time on"
)


class _Patience:
    """Gives up on appends that have not been answered for too long, in their order."""

    def __init__(self) -> None:
        self._waiting: deque[PendingAppend] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, append: PendingAppend) -> None:
        self._waiting.append(append)
        if self._timer is None:
            self._start(APPEND_SECONDS)

    def forget_answered(self) -> None:
        while self._waiting and self._waiting[0].answer.done():
            self._waiting.popleft()

    def _start(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        self._timer, now = None, monotonic()
        while self._waiting and self._waiting[0].began + APPEND_SECONDS <= now:
            self._waiting.popleft().give_up()
        if self._waiting:
            self._start(self._waiting[0].began + APPEND_SECONDS - now)


class _Lane:
    """The appends that wait for one server; appends to other servers do not wait for these."""

    def __init__(self, writers: Iterable[str]) -> None:
        self.waiting: deque[PendingAppend] = deque()
        self.resting = [*writers]  # those that have nothing to write
        self.tasks: dict[str, asyncio.Task[None]] = {}  # of each writer, kept while it runs


class Appends:
    """Appends what this process publishes, to the journal of every channel."""

    def __init__(self, client: Client, window: tuple[int, int, int], usage: Usage) -> None:
        self._client = client
        self._usage = usage
        self._window = window
        self._lanes: dict[str, _Lane] = {}
        self._patience = _Patience()
        self._waiting_bytes = 0
        self.writing = 0  # writers that are at work: while there are, an append is under way
        self.accepted = dict.fromkeys(KINDS, 0)  # changes that were appended by this process
        self.seconds = Histogram(SECONDS)
        self.round_changes = Histogram(CHANGES)
        self.gaps = Gaps()
        self.found_at = Position(0)  # when this process found the Redis that it has: see `losses`
        self.caller = secrets.token_hex(8)  # distinguishes our strokes of the bell from others'
        self._writers = (f"{self.caller}-{number}" for number in count(1))
        self._round_numbers = count(1)

    async def append(
        self,
        channel: ChannelName,
        submission: Submission,
        witness: Witness | None = None,
        max_bytes: int = 0,
    ) -> Appended:
        """Append all of it or nothing; nothing if the set would take more than `max_bytes`, unless
        that is 0. If the journal lacks what the witness knows, that is said in the same step."""
        witness = witness or Witness(Position(0))
        if self._waiting_bytes > WAITING_BYTES:
            raise TryAgain("too many changes are waiting for the journal")
        answer = asyncio.get_running_loop().create_future()
        size = sum([len(fragment.xml) for fragment in submission.fragments])
        began = monotonic()
        append = PendingAppend(channel, submission, size, max_bytes, witness, began, answer)
        self._patience.watch(append)
        lane = self._lane_of(channel)
        lane.waiting.append(append)
        self._waiting_bytes += size
        if lane.resting:
            self._start_writer(lane)
        appended: Appended = await answer
        self.seconds.add(monotonic() - append.began)
        if not appended.is_repeated:
            self.accepted[channel.kind] += len(submission.fragments)
        return appended

    @property
    def waiting_bytes(self) -> int:
        """The size of all changes that wait for a round to Redis."""
        return self._waiting_bytes

    def _lane_of(self, channel: ChannelName) -> _Lane:
        name = self._client.lane(channel.set_name) if self._client.is_cluster else ""
        if name not in self._lanes:
            self._lanes[name] = _Lane(islice(self._writers, WRITERS))
        return self._lanes[name]

    def _start_writer(self, lane: _Lane) -> None:
        writer = lane.resting.pop()
        self.writing += 1
        loop = asyncio.get_running_loop()
        lane.tasks[writer] = loop.create_task(self._write(lane, writer), name="journal writer")

    async def _write(self, lane: _Lane, writer: str) -> None:
        try:
            while taken := self._take_round(lane.waiting):
                await self._write_round(taken, writer)
                self._patience.forget_answered()
        finally:
            self.writing -= 1
            lane.resting.append(writer)

    def _take_round(self, waiting: deque[PendingAppend]) -> list[Group]:
        """The next appends, in the order of their arrival."""
        taken: dict[ChannelName, list[PendingAppend]] = {}
        changes = size = 0
        while waiting:
            append = waiting[0]
            length = len(append.submission.fragments)
            if taken and (changes + length > ROUND_CHANGES or size + append.size > ROUND_BYTES):
                break
            waiting.popleft()
            self._waiting_bytes -= append.size
            if append.answer.done():
                continue  # a Source that has given up asks again with the same key
            append.is_taken = True
            changes, size = changes + length, size + append.size
            taken.setdefault(append.channel, []).append(append)
        if taken:
            self.round_changes.add(changes)
        return [Group(*each) for each in taken.items()]

    async def _write_round(self, groups: Sequence[Group], writer: str) -> None:
        is_alone = len(groups) == 1 and len(groups[0].appends) == 1
        try:
            round_ = Round(self.caller, writer, next(self._round_numbers))
            bell = "" if self._client.confirms else keys.BELL
            commands = [each.command(self._window, bell, self.found_at, round_) for each in groups]
            *replies, version = await self._run(commands)
            if self._client.confirms:
                await self._ring(map(Group.stroke, groups, replies, repeat(round_)))
            number = UNKNOWN if isinstance(version, Exception) else int(version or 0)
            for group, reply in zip(groups, replies, strict=True):
                group.resolve(reply, round_.mark, number, self.gaps, is_alone=is_alone)
                most = group.appends[-1].max_bytes
                self._usage.has_grown(group.channel.set_name, group.grown, most)
        except Exception as error:  # the caller gets it
            if not isinstance(error, TryAgain):
                log.warning("the answer to an append cannot be read", exc_info=error)
                error = TryAgain(UNCERTAIN)
            for group in groups:
                group.fail(error)

    async def _ring(self, strokes: Iterable[str | None]) -> None:
        """Replicas have it: tell the other processes, before the Sources are answered; from then on
        this process may end. If it fails, the others compare."""
        commands = [("PUBLISH", keys.BELL, stroke) for stroke in strokes if stroke]
        if commands:
            with suppress(TryAgain):
                await self._client.together(commands)

    async def _run(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The replies, and after them the version of the sets; the commands are repeated as long as
        nobody knows what became of them."""
        until = monotonic() + CERTAIN_SECONDS
        replies: list[Any]
        try:
            replies = await self._client.once(commands, READ_VERSION)
            return replies
        except Unanswered:
            while monotonic() < until:
                with suppress(TryAgain):
                    replies = await self._client.once(commands, READ_VERSION)
                    if not any(map(_is_uncertain, replies[:-1])):
                        return replies
                await asyncio.sleep(AGAIN_SECONDS)
        raise TryAgain(UNCERTAIN)


def _is_uncertain(reply: object) -> bool:
    """Whether this reply to a repetition leaves open what became of the first try."""
    return isinstance(reply, TryAgain) and not isinstance(reply, TooFewReplicas)
