"""Appends to the journals: which go to Redis together, and when each is answered.

An append is atomic (`append.lua`). Redis recognises one that is repeated, so it can be repeated
at any time. It is answered only when Redis has it, and refused only when Redis does not have it, as
far as that can be known in a bounded time. Appends that arrive while a round is on its way to Redis
travel together in the next one, so a busy hub pays for one `fsync` a round. (A single flight would
not do: each append has an answer of its own, and none may join a round that has begun.)

`Appends` takes them, a `_Lane` for each server holds those that wait, its writers send rounds: a
`AppendCall` for each channel.
"""

import asyncio
import logging
import secrets
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count, islice
from time import monotonic
from typing import Any, NamedTuple

from rsnotify.coordination import keys
from rsnotify.coordination.bell import ring_at
from rsnotify.errors import KeysMoving, TooFewReplicas, TryAgain, Unanswered
from rsnotify.journal.call import Append, AppendCall, Appended, told_to_nobody
from rsnotify.journal.submission import ENTRIES_BYTES, Submission
from rsnotify.journal.usage import Usage
from rsnotify.journal.witness import Gaps, Witness
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import KINDS, ChannelName

log = logging.getLogger(__name__)

APPEND_SECONDS = 2.5  # a Source gets 503 before three seconds have passed, unless…
CERTAIN_SECONDS = 10.0  # …it has no key to ask again with: for so long we ask in its place
AGAIN_SECONDS = 0.1
MOVING_SECONDS = 2.0  # that keys which a Cluster just moves are waited for…
MOVING_AGAIN_SECONDS = 0.05  # …from one try to the next
WRITERS = 2  # one packs the next round while Redis works on the other
ROUND_CHANGES = 4_000  # in a round, unless one request has more: Redis is busy for some 40 ms
ROUND_BYTES = ENTRIES_BYTES
WAITING_BYTES = 64 * 1024 * 1024  # a Redis in trouble must not fill our memory; twice in all

SECONDS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.25, 0.5, 1, 2, 4, 8)
CHANGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)

READ_VERSION = ("GET", keys.SETS_VERSION)
UNKNOWN = -2  # a version that no process has

UNCERTAIN = (
    "the journal does not answer, and may have stored the changes; "
    "repeating the request may store them twice: send an Idempotency-Key from the first time on"
)


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


class AppendLimits(NamedTuple):
    """How long an append is waited for, and how much may wait."""

    answer_seconds: float = APPEND_SECONDS
    certain_seconds: float = CERTAIN_SECONDS
    waiting_bytes: int = WAITING_BYTES


APPEND_LIMITS = AppendLimits()


class _Queue:
    """The appends to one channel that wait, and their size."""

    __slots__ = ("appends", "size")

    def __init__(self) -> None:
        self.appends: deque[Append] = deque()
        self.size = 0


class _Lane:
    """The appends that wait for one server; appends to other servers do not wait for these.

    Those to each channel are taken in the order of their arrival, and the channels in turn: whoever
    publishes much to one does not hold up all others. A channel that alone has half a round, or
    more, lets the others pass as long as that is under way.
    """

    def __init__(self, writers: Iterable[str]) -> None:
        self.waiting: dict[ChannelName, _Queue] = {}  # in the order of their turns
        self.resting = [*writers]  # those that have nothing to write
        self.tasks: dict[str, asyncio.Task[None]] = {}  # of each writer, kept while it runs
        self.filling: dict[str, ChannelName] = {}  # by writer: the channel that has its round

    def next_channel(self) -> ChannelName:
        """Whose turn it is."""
        busy = self.filling.values()
        first = next(iter(self.waiting))
        return next((each for each in self.waiting if each not in busy), first) if busy else first


class Appends:
    """Appends what this process publishes, to the journal of every channel."""

    def __init__(
        self,
        client: Client,
        window: tuple[int, int, int],
        usage: Usage,
        limits: AppendLimits = APPEND_LIMITS,
        *,
        is_only_process: bool = False,
    ) -> None:
        """`is_only_process`: no other one uses this Redis, so nobody would hear the bell."""
        self._client = client
        self._bell_of_call = "" if is_only_process or client.confirms else keys.BELL
        self._limits = limits
        self._usage = usage
        self._window = window
        self._lanes: dict[str, _Lane] = {}
        self.waiting_bytes = 0  # of all changes that wait for a round
        self.writing = 0  # writers that are at work: while there are, an append is under way
        self.accepted = dict.fromkeys(KINDS, 0)  # changes that were appended by this process
        self.seconds = Histogram(SECONDS)
        self.round_changes = Histogram(CHANGES)
        self.gaps = Gaps()
        self.found_at = Position(0)  # when this process found the Redis that it has: see `losses`
        self.process = secrets.token_hex(8)  # distinguishes our messages of the bell from others'
        self._writers = (f"{self.process}-{number}" for number in count(1))
        self._call_numbers = count(1)

    async def append(
        self,
        channel: ChannelName,
        submission: Submission,
        witness: Witness | None = None,
        max_bytes: int = 0,
        when_stored: Callable[[Appended], None] = told_to_nobody,
    ) -> Appended:
        """Append all of it or nothing; nothing if the set would take more than `max_bytes`, unless
        that is 0. If the journal lacks what the witness knows, that is said in the same step.

        `when_stored` is called before this returns, and also where it is cancelled, or answered
        that nobody knows: the journal has the changes then, and readers are told of them.
        """
        witness = witness or Witness(Position(0))
        if self.waiting_bytes > self._limits.waiting_bytes:
            self._require_share(self._lane_of(channel).waiting.get(channel))
        answer = asyncio.get_running_loop().create_future()
        size = sum([len(fragment.xml) for fragment in submission.fragments])
        began = monotonic()
        append = Append(channel, submission, size, max_bytes, witness, began, answer, when_stored)
        loop = asyncio.get_running_loop()
        patience = loop.call_later(self._limits.answer_seconds, append.give_up)
        self._enqueue(append)
        try:
            appended: Appended = await answer
        finally:
            patience.cancel()
        self.seconds.add(monotonic() - append.began)
        if not appended.is_repeated:
            self.accepted[channel.kind] += len(submission.fragments)
        return appended

    def _enqueue(self, append: Append) -> None:
        lane = self._lane_of(append.channel)
        queue = lane.waiting.get(append.channel)
        if queue is None:
            queue = lane.waiting[append.channel] = _Queue()
        queue.appends.append(append)
        queue.size += append.size
        self.waiting_bytes += append.size
        if lane.resting:
            self._start_writer(lane)

    def _require_share(self, queue: _Queue | None) -> None:
        """Much waits: each channel may have its share of that, and all together twice as much."""
        channels = sum(len(lane.waiting) for lane in self._lanes.values())
        room = self._limits.waiting_bytes
        is_full = self.waiting_bytes > 2 * room
        if is_full or (queue is not None and queue.size >= room // channels):
            raise TryAgain("too many changes are waiting for the journal")

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
            while taken := self._take_round(lane, writer):
                await self._write_round(taken, writer)
                lane.filling.pop(writer, None)
        finally:
            self.writing -= 1
            lane.resting.append(writer)

    def _take_round(self, lane: _Lane, writer: str) -> dict[ChannelName, list[Append]]:
        """The next append of each channel in turn, until they are enough."""
        waiting = lane.waiting
        taken: dict[ChannelName, list[Append]] = {}
        changes = size = 0
        while waiting:
            channel = lane.next_channel()
            queue = waiting[channel]
            append = queue.appends[0]
            length = len(append.submission.fragments)
            if taken and (changes + length > ROUND_CHANGES or size + append.size > ROUND_BYTES):
                break
            del waiting[channel]
            queue.appends.popleft()
            queue.size -= append.size
            self.waiting_bytes -= append.size
            if queue.appends:
                waiting[channel] = queue  # behind the others
            if append.answer.done():
                continue  # a Source that has given up asks again with the same key
            append.is_taken = True
            changes, size = changes + length, size + append.size
            taken.setdefault(channel, []).append(append)
        if taken:
            self.round_changes.add(changes)
        if len(taken) == 1 and (2 * changes >= ROUND_CHANGES or 2 * size >= ROUND_BYTES):
            (lane.filling[writer],) = taken
        return taken

    async def _write_round(self, taken: Mapping[ChannelName, list[Append]], writer: str) -> None:
        calls = [
            AppendCall(*each, self.process, writer, next(self._call_numbers))
            for each in taken.items()
        ]
        is_alone = len(calls) == 1 and len(calls[0].appends) == 1
        try:
            bell = self._bell_of_call
            commands = [call.command(self._window, bell, self.found_at) for call in calls]
            *replies, version = await self._run(commands)
            if self._client.confirms:
                await self._ring(calls, replies)
            number = UNKNOWN if isinstance(version, Exception) else int(version or 0)
            for call, reply in zip(calls, replies, strict=True):
                if isinstance(reply, KeysMoving):
                    self._try_again(call.appends, reply)
                    continue
                call.resolve(reply, number, is_alone=is_alone)
                if call.gap:
                    self.gaps.met(call.channel, call.gap)
                most = call.appends[-1].max_bytes
                self._usage.has_grown(call.channel.set_name, call.grown, most)
        except Exception as error:  # the caller gets it
            if not isinstance(error, TryAgain):
                log.warning("the answer to an append cannot be read", exc_info=error)
                error = Unanswered(UNCERTAIN)
            for call in calls:
                call.fail(error)

    def _try_again(self, appends: Iterable[Append], moving: KeysMoving) -> None:
        """A Cluster moves their keys to another node, and has stored nothing: they are there soon.
        Nobody waits longer for that than for a Redis that is silent."""
        for append in appends:
            if monotonic() > append.began + MOVING_SECONDS:
                append.fail(moving)
                continue
            append.is_taken = False
            asyncio.get_running_loop().call_later(MOVING_AGAIN_SECONDS, self._enqueue, append)

    async def _ring(self, calls: Sequence[AppendCall], replies: Sequence[object]) -> None:
        """Replicas have it: tell the other processes, before the Sources are answered; from then on
        this process may end. If it fails, the others compare."""
        commands = [
            ring_at(keys.record(call.channel), message)
            for call, reply in zip(calls, replies, strict=True)
            if (message := call.message(reply))
        ]
        if commands:
            with suppress(TryAgain):
                await self._client.together(commands)

    async def _run(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The replies, and after them the version of the sets; the commands are repeated as long as
        nobody knows what became of them."""
        until = monotonic() + self._limits.certain_seconds
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
        raise Unanswered(UNCERTAIN)


def _is_uncertain(reply: object) -> bool:
    """Whether this reply to a repetition leaves open what became of the first try."""
    return isinstance(reply, TryAgain) and not isinstance(reply, TooFewReplicas)
