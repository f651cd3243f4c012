"""Appends to the journals: which go to Redis together, and what becomes of each.

An append is one atom (`append.lua`) with an idempotency key, so it can be repeated at any time. It
is answered only when Redis has it, and refused only when Redis does not have it, as far as that can
be known in a bounded time. Appends that arrive while a round is on its way to Redis travel together
in the next one, so a busy hub pays for one `fsync` a round. (A single flight would not do: each
append has an answer of its own, and none may join a round that has begun.)
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, count, repeat
from time import monotonic
from typing import NamedTuple

from rsnotify.core.histogram import Histogram
from rsnotify.core.submission import ENTRIES_BYTES, Fragment, Submission
from rsnotify.errors import (
    JournalIsBehind,
    NoSuchSet,
    Rejected,
    TooFewReplicas,
    TryAgain,
    Unanswered,
)
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import KINDS, ChannelName, Interval, Row
from rsnotify.storage import keys
from rsnotify.storage.connection import Client
from rsnotify.storage.journal_format import (
    CALLERS_KEY_SECONDS,
    change_arguments,
    channel_arguments,
    channel_keys,
)
from rsnotify.storage.script import Command, Script

APPEND = Script("journal.lua", "append.lua")

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


class Appended(NamedTuple):
    """What an append covers in the journal now."""

    from_: Position
    until: Position
    is_repeated: bool  # its key was known
    sets_version: int  # of the sets' records, read after the append; or UNKNOWN
    rows: Sequence[Row]  # what is in the journal now; none if only Redis knows where
    is_alone: bool = False  # nothing else was appended in its round

    @property
    def interval(self) -> Interval:
        return Interval(self.from_, self.until)


@dataclass(slots=True)
class _Append:
    channel: ChannelName
    submission: Submission
    seen: Position  # the newest that this process has seen of the channel
    key: str  # the same at every repetition, whoever drew it
    began: float
    answer: asyncio.Future[Appended]
    is_taken: bool = False  # into a round: Redis may have it

    def give_up(self) -> None:
        """Its Source has waited for long enough, if it can find out later what became of it."""
        if not self.answer.done() and (self.submission.key or not self.is_taken):
            self.answer.set_exception(TryAgain(SILENCE if self.submission.key else NOTHING))


class _Patience:
    """Ends the waiting of appends that have not been answered for too long, in their order."""

    def __init__(self) -> None:
        self._waiting: deque[_Append] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, append: _Append) -> None:
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
    """The appends that wait for one server: no other server's wait for them."""

    def __init__(self) -> None:
        self.waiting: deque[_Append] = deque()
        self.writers: set[asyncio.Task[None]] = set()

    @property
    def is_writing(self) -> bool:
        return any(not writer.done() for writer in self.writers)


class Appends:
    """What this process appends, to every channel's journal."""

    def __init__(self, client: Client, window: tuple[int, int, int]) -> None:
        self._client = client
        self._window = window
        self._lanes: dict[str, _Lane] = {}
        self._patience = _Patience()
        self._waiting_bytes = 0
        self.accepted = dict.fromkeys(KINDS, 0)  # changes that were appended by this process
        self.seconds = Histogram(SECONDS)
        self.round_changes = Histogram(CHANGES)
        self.caller = secrets.token_hex(8)  # tells our strokes of the bell from others'
        self._own_keys = (f"{self.caller}-{number}" for number in count(1))

    async def append(
        self, channel: ChannelName, submission: Submission, *, seen: Position = UNSEEN
    ) -> Appended:
        """Append all of it or nothing; nothing to a journal that has not got as far as `seen`."""
        if self._waiting_bytes > WAITING_BYTES:
            raise TryAgain("too many changes are waiting for the journal")
        key = submission.key or next(self._own_keys)
        answer = asyncio.get_running_loop().create_future()
        append = _Append(channel, submission, seen, key, monotonic(), answer)
        self._patience.watch(append)
        lane = self._lane_of(channel)
        lane.waiting.append(append)
        self._waiting_bytes += submission.size
        self._start_writer(lane)
        try:
            appended: Appended = await answer
        finally:
            self._patience.forget_answered()
        self.seconds.add(monotonic() - append.began)
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
        return any(lane.waiting or lane.is_writing for lane in self._lanes.values())

    def _lane_of(self, channel: ChannelName) -> _Lane:
        name = self._client.lane(channel.set_name)
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
        *replies, version = await self._client.once(commands, ("GET", keys.SETS_VERSION))
        answers = map(_answers, replies, by_channel.values(), repeat(version))
        return list(chain.from_iterable(answers))

    def _command(self, channel: ChannelName, group: Sequence[_Append]) -> Command:
        seen = max(append.seen for append in group)
        common = channel_arguments(channel, self._window, seen, self.caller)
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
    is_alone = len(appends) == 1
    for append, answer in zip(appends, answers, strict=True):
        if append.answer.done():
            continue
        if isinstance(answer, Exception):
            append.answer.set_exception(answer)
        elif not answer:
            append.answer.set_exception(used_otherwise(append.submission))
        else:
            append.answer.set_result(_appended(append.submission, is_alone, *answer))  # type: ignore[misc]


def _appended(
    submission: Submission,
    is_alone: bool,
    version: int,
    from_: int,
    until: int,
    repeated: int,
    positions: Sequence[int] = (),
) -> Appended:
    rows = _rows(submission.fragments, until, positions)
    return Appended(Position(from_), Position(until), bool(repeated), version, rows, is_alone)


def _rows(fragments: Sequence[Fragment], until: int, positions: Sequence[int]) -> tuple[Row, ...]:
    """Where each change stands; without positions they end at `until`, one behind the other."""
    if positions:
        pairs = zip(positions, fragments, strict=True)
        return tuple((Position(at), fragment.xml) for at, fragment in pairs if at)
    if any(fragment.position or fragment.load for fragment in fragments):
        return ()
    first = until - len(fragments) + 1
    return tuple((Position(at), fragment.xml) for at, fragment in enumerate(fragments, first))


def _is_uncertain(answer: object) -> bool:
    return isinstance(answer, TryAgain) and not isinstance(answer, TooFewReplicas)


def used_otherwise(submission: Submission) -> Rejected:
    return Rejected(
        f"Idempotency-Key {submission.key!r} was used for other changes; "
        "send new changes under a new key",
        status=409,
    )
