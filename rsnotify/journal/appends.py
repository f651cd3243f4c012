"""Appends to the journals: which go to Redis together, and what becomes of each.

An append is one atom (`append.lua`) that Redis knows again, so it can be repeated at any time. It
is answered only when Redis has it, and refused only when Redis does not have it, as far as that can
be known in a bounded time. Appends that arrive while a round is on its way to Redis travel together
in the next one, so a busy hub pays for one `fsync` a round. (A single flight would not do: each
append has an answer of its own, and none may join a round that has begun.)
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import count, islice
from time import monotonic
from typing import Any

from rsnotify.errors import (
    TooFewReplicas,
    TryAgain,
    Unanswered,
)
from rsnotify.journal import keys
from rsnotify.journal.append_call import (
    UNSEEN,
    Appended,
    PendingAppend,
    Round,
    answer_round,
    command_of,
    fail_all,
    says_behind,
)
from rsnotify.journal.histogram import Histogram
from rsnotify.journal.submission import ENTRIES_BYTES, Submission
from rsnotify.redis_client.connection import Client
from rsnotify.redis_client.script import Command
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import KINDS, ChannelName

log = logging.getLogger(__name__)

APPEND_SECONDS = 2.5  # a Source hears 503 before three seconds have passed, unless…
CERTAIN_SECONDS = 10.0  # …it has no key to ask again with: for so long we ask in its place
AGAIN_SECONDS = 0.1
WRITERS = 2  # one packs the next round while Redis works on the other
ROUND_CHANGES = 4_000  # more go together in one request only: Redis is busy for some 40 ms
ROUND_BYTES = ENTRIES_BYTES
WAITING_BYTES = 64 * 1024 * 1024  # a Redis in trouble must not fill our memory

SECONDS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.25, 0.5, 1, 2, 4, 8)
CHANGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)

READ_VERSION = ("GET", keys.SETS_VERSION)

_Taken = dict[ChannelName, list[PendingAppend]]

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

    def __init__(self, writers: Iterable[str]) -> None:
        self.waiting: deque[PendingAppend] = deque()
        self.resting = [*writers]  # those that have nothing to write
        self.tasks: dict[str, asyncio.Task[None]] = {}  # of each writer, kept while it runs


class Appends:
    """What this process appends, to every channel's journal."""

    def __init__(self, client: Client, window: tuple[int, int, int]) -> None:
        self._client = client
        self._window = window
        self._lanes: dict[str, _Lane] = {}
        self._patience = _Patience()
        self._waiting_bytes = 0
        self._writing = 0  # writers that are at work
        self.accepted = dict.fromkeys(KINDS, 0)  # changes that were appended by this process
        self.seconds = Histogram(SECONDS)
        self.round_changes = Histogram(CHANGES)
        self.caller = secrets.token_hex(8)  # tells our strokes of the bell from others'
        self._writers = (f"{self.caller}-{number}" for number in count(1))
        self._rounds = count(1)

    async def append(
        self, channel: ChannelName, submission: Submission, *, seen: Position = UNSEEN
    ) -> Appended:
        """Append all of it or nothing; nothing to a journal that has not got as far as `seen`."""
        if self._waiting_bytes > WAITING_BYTES:
            raise TryAgain("too many changes are waiting for the journal")
        answer = asyncio.get_running_loop().create_future()
        size = submission.size
        append = PendingAppend(channel, submission, size, seen, monotonic(), answer)
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
        """Of changes that wait for a round to Redis."""
        return self._waiting_bytes

    @property
    def is_busy(self) -> bool:
        """Whether an append is under way."""
        return self._writing > 0

    def _lane_of(self, channel: ChannelName) -> _Lane:
        name = self._client.lane(channel.set_name)
        if name not in self._lanes:
            self._lanes[name] = _Lane(islice(self._writers, WRITERS))
        return self._lanes[name]

    def _start_writer(self, lane: _Lane) -> None:
        writer = lane.resting.pop()
        self._writing += 1
        loop = asyncio.get_running_loop()
        lane.tasks[writer] = loop.create_task(self._write(lane, writer), name="journal writer")

    async def _write(self, lane: _Lane, writer: str) -> None:
        try:
            while taken := self._take_round(lane.waiting):
                await self._write_round(taken, writer)
                self._patience.forget_answered()
        finally:
            self._writing -= 1
            lane.resting.append(writer)

    def _take_round(self, waiting: deque[PendingAppend]) -> _Taken:
        """The next appends, in the order of their arrival."""
        taken: _Taken = {}
        changes = size = 0
        while waiting:
            append = waiting[0]
            length = len(append.submission.fragments)
            if taken and (changes + length > ROUND_CHANGES or size + append.size > ROUND_BYTES):
                break
            waiting.popleft()
            self._waiting_bytes -= append.size
            if append.answer.done():
                continue  # whoever has given up asks again with the same key
            append.is_taken = True
            changes, size = changes + length, size + append.size
            taken.setdefault(append.channel, []).append(append)
        if taken:
            self.round_changes.add(changes)
        return taken

    async def _write_round(self, taken: _Taken, writer: str) -> None:
        groups = [*taken.values()]
        try:
            round_ = Round(self.caller, writer, next(self._rounds))
            commands = [command_of(*each, self._window, round_) for each in taken.items()]
            *replies, version = await self._run(commands)
            answer_round(groups, replies, version)
        except Exception as error:  # whoever waits for the answer gets it
            if not isinstance(error, TryAgain):
                log.warning("the answer to an append cannot be read", exc_info=error)
                error = TryAgain(UNCERTAIN)
            for group in groups:
                fail_all(group, error)

    async def _run(self, commands: Sequence[Command]) -> list[Any]:
        """The replies, and behind them the version of the sets; asked for again as long as nobody
        knows what became of the commands."""
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
    """Whether this reply to a repetition leaves open what became of the first try: it does while
    somebody repairs the journal."""
    if isinstance(reply, Exception):
        return isinstance(reply, TryAgain) and not isinstance(reply, TooFewReplicas)
    return says_behind(reply)
