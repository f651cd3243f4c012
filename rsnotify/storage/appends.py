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
from collections.abc import Sequence
from itertools import chain, count, repeat
from time import monotonic

from rsnotify.core.histogram import Histogram
from rsnotify.core.submission import ENTRIES_BYTES, Submission
from rsnotify.errors import (
    TooFewReplicas,
    TryAgain,
    Unanswered,
)
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import KINDS, ChannelName
from rsnotify.storage import keys
from rsnotify.storage.append_call import (
    UNSEEN,
    Appended,
    PendingAppend,
    answer_all,
    answers_in,
    command_of,
)
from rsnotify.storage.connection import Client

APPEND_SECONDS = 2.5  # a Source hears 503 before three seconds have passed, unless…
CERTAIN_SECONDS = 10.0  # …it has no key to ask again with: for so long we ask in its place
AGAIN_SECONDS = 0.1
WRITERS = 2  # one packs the next round while Redis works on the other
ROUND_CHANGES = 4_000  # more go together in one request only: Redis is busy for some 40 ms
ROUND_BYTES = ENTRIES_BYTES
WAITING_BYTES = 64 * 1024 * 1024  # a Redis in trouble must not fill our memory

SECONDS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.25, 0.5, 1, 2, 4, 8)
CHANGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)


UNCERTAIN = (
    "the journal does not answer, and may have stored the changes; "
    "repeating the request may store them twice: send an Idempotency-Key from the first time on"
)


class _Patience:
    """Ends the waiting of appends that have not been answered for too long, in their order."""

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
    """The appends that wait for one server: no other server's wait for them."""

    def __init__(self) -> None:
        self.waiting: deque[PendingAppend] = deque()
        self.writing = 0  # writers that are at work
        self.tasks: set[asyncio.Task[None]] = set()


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
        size = submission.size
        append = PendingAppend(channel, submission, size, seen, key, monotonic(), answer)
        self._patience.watch(append)
        lane = self._lane_of(channel)
        lane.waiting.append(append)
        self._waiting_bytes += size
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
        return any(lane.waiting or lane.writing for lane in self._lanes.values())

    def _lane_of(self, channel: ChannelName) -> _Lane:
        name = self._client.lane(channel.set_name)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane()
        return lane

    def _start_writer(self, lane: _Lane) -> None:
        if lane.writing < WRITERS:
            lane.writing += 1
            writer = asyncio.create_task(self._write(lane), name="journal writer")
            lane.tasks.add(writer)
            writer.add_done_callback(lane.tasks.discard)

    async def _write(self, lane: _Lane) -> None:
        try:
            while appends := self._take_round(lane.waiting):
                await self._write_round(appends)
        finally:
            lane.writing -= 1

    async def _write_round(self, appends: Sequence[PendingAppend]) -> None:
        try:
            answer_all(appends, await self._run(appends))
        except Exception as error:  # whoever waits for the answer gets it
            answer_all(appends, [error] * len(appends))

    def _take_round(self, waiting: deque[PendingAppend]) -> list[PendingAppend]:
        """The next appends, those of a channel side by side, in the order of their arrival."""
        taken: list[PendingAppend] = []
        changes = size = 0
        while waiting:
            append = waiting[0]
            changes, size = changes + len(append.submission.fragments), size + append.size
            if taken and (changes > ROUND_CHANGES or size > ROUND_BYTES):
                break
            self._waiting_bytes -= append.size
            waiting.popleft()
            if not append.answer.done():  # whoever has given up asks again with the same key
                append.is_taken = True
                taken.append(append)
        if taken:
            self.round_changes.add(sum(len(append.submission.fragments) for append in taken))
        return sorted(taken, key=lambda append: append.channel)

    async def _run(self, appends: Sequence[PendingAppend]) -> Sequence[object]:
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

    async def _call_again(self, appends: Sequence[PendingAppend]) -> Sequence[object]:
        try:
            return await self._call(appends)
        except TryAgain as error:
            return [error]

    async def _call(self, appends: Sequence[PendingAppend]) -> list[object]:
        by_channel: dict[ChannelName, list[PendingAppend]] = {}
        for append in appends:
            by_channel.setdefault(append.channel, []).append(append)
        commands = [command_of(*each, self._window, self.caller) for each in by_channel.items()]
        *replies, version = await self._client.once(commands, ("GET", keys.SETS_VERSION))
        answers = map(answers_in, replies, by_channel.values(), repeat(version))
        return list(chain.from_iterable(answers))


def _is_uncertain(answer: object) -> bool:
    return isinstance(answer, TryAgain) and not isinstance(answer, TooFewReplicas)
