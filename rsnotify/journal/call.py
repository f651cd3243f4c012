"""One call of append.lua: what appends to one channel send to Redis, and what each is answered.

A call is atomic, and is recognised when it is repeated: by its writer, who makes one after the
other, and its number. Its mark stands in the rows that it stores: another call has another one.

Nothing here waits: `appends` decides what goes together, and sends it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgspec

from rsnotify.coordination import keys
from rsnotify.errors import NoSuchSet, Rejected, SetFull, TooFewReplicas, TryAgain, Unanswered
from rsnotify.journal.rows import mark_of
from rsnotify.journal.submission import Fragment, Submission
from rsnotify.journal.usage import KEY_SECONDS
from rsnotify.journal.witness import MARK_LENGTH, Evidence, Witness
from rsnotify.redis_client import Script
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import LOC, LOC_END, ChannelName, Interval, Row

log = logging.getLogger(__name__)

APPEND = Script("journal/journal.lua", "journal/append.lua")

NO_WINDOW = (0, 0, 1)  # a framework channel's journal is not cut into Change Lists
LOC_BEGIN = len(LOC)
CALL_SECONDS = 600  # a call is repeated for some seconds; a Redis that was stopped may read it late

SILENCE = "the journal does not answer; repeat with the same key"
NOTHING = "the journal does not answer; nothing was stored"


class Appended(msgspec.Struct, frozen=True):
    """What an append covers in the journal now."""

    from_: Position
    until: Position
    is_repeated: bool  # it was stored before
    sets_version: int  # of the sets' records, read after the append; or `appends.UNKNOWN`
    rows: Sequence[Row]  # what is in the journal now; none if only Redis knows where
    mark: str = ""  # of the call that stored it; empty if that is not known
    is_alone: bool = False  # nothing else was appended in its round

    @property
    def interval(self) -> Interval:
        return Interval(self.from_, self.until)


def told_to_nobody(_: Appended) -> None:
    """Nobody follows what is stored."""


class Append(msgspec.Struct, eq=False):
    """An append, until it is answered."""

    channel: ChannelName
    submission: Submission
    size: int  # of the submission
    max_bytes: int  # that its set may take of Redis; 0: any number
    witness: Witness  # of the channel, in this process
    began: float
    answer: asyncio.Future[Appended]
    when_stored: Callable[[Appended], None] = told_to_nobody  # also if nobody awaits the answer
    is_taken: bool = False  # into a round: Redis may have it

    def give_up(self) -> None:
        """Answer a Source that has waited for long, if it can find out later what became of it."""
        if self.submission.key or not self.is_taken:
            self.fail(Unanswered(SILENCE) if self.submission.key else TryAgain(NOTHING))

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def resolve(self, answer: Sequence[Any], mark: str, version: int, *, is_alone: bool) -> None:
        """Take the answer of append.lua: it is stored, or its key was used for something else, or
        its set is full."""
        if not answer:
            self.fail(used_otherwise(self.submission))
            return
        if len(answer) == 1:
            self.fail(SetFull(self.channel.set_name, self.max_bytes))
            return
        from_, until, is_repeated, *more = answer
        end = Position(until)
        if is_repeated:
            mark = mark_of(more.pop())  # none if it is trimmed by now
        elif until == from_:
            mark = ""  # nothing was stored: another call has stored the change at the end
        if until > from_ and mark:
            self.witness.note_change(end, mark)
        else:
            self.witness.note_given(end)
        is_repeated = bool(is_repeated)
        rows = _rows(self.submission.fragments, until, *more, is_repeated=is_repeated)
        stored = Appended(Position(from_), end, is_repeated, version, rows, mark, is_alone)
        asyncio.get_running_loop().call_soon(self.when_stored, stored)
        if not self.answer.done():
            self.answer.set_result(stored)


class AppendCall:
    """The appends of a round to one channel."""

    def __init__(
        self,
        channel: ChannelName,
        appends: Sequence[Append],
        process: str,
        writer: str,
        number: int,
    ) -> None:
        self.channel = channel
        self.appends = appends
        self.mark = mark_of_call(process, number)
        self.gap = Position(0)  # where the gap ends that it has left
        self.grown = 0  # its set, since it was counted: see Usage.has_grown
        self._process = process
        self._writer = writer  # makes no other call before it is done with this one…
        self._number = number  # …and that one has a higher number
        self._witness = appends[-1].witness
        self._evidence = self._witness.evidence

    def command(
        self, window: tuple[int, int, int], bell: str, found_at: Position
    ) -> tuple[Any, ...]:
        """What Redis is sent; it looks for what is known of the journal now."""
        who = f"{self._process}:{self.mark}"
        common = call_arguments(self.channel, window, who, bell, self._evidence, found_at)
        of_call = (self._writer, self._number, CALL_SECONDS, KEY_SECONDS)
        return (*_beginning(self.channel), *common, *of_call, *_arguments(self.appends))

    def resolve(self, reply: object, version: int, *, is_alone: bool) -> None:
        """Answer each append."""
        if not isinstance(reply, list):
            if isinstance(reply, TooFewReplicas):
                log.warning("publishing is answered 503: %s", reply.why.detail)
            self.fail(reply if isinstance(reply, Exception) else NoSuchSet(self.channel.set_name))
            return
        answers, gap, self.grown = reply
        for append, answer in zip(self.appends, answers, strict=True):
            append.resolve(answer, self.mark, version, is_alone=is_alone)
        if gap:
            self.gap = Position(gap)
            self._witness.note_gap(self.gap)
            at_its_end = Appended(
                self.gap, self.gap, is_repeated=True, sets_version=version, rows=()
            )
            asyncio.get_running_loop().call_soon(self.appends[-1].when_stored, at_its_end)
        self._witness.note_found(self._evidence.changes)

    def message(self, reply: object) -> str | None:
        """What the bell says of it; None if nothing is there of which others need to know."""
        if not isinstance(reply, list):
            return None
        answers, gap, _ = reply
        ends = [(gap, self.mark)]
        stored = (each for each in answers if len(each) > 1)
        for from_, until, is_repeated, *more in stored:
            if until > from_:  # else nothing was stored
                ends.append((until, mark_of(more[0]) if is_repeated else self.mark))
        head, mark = max(ends)
        return f"{message_of(self.channel, f'{self._process}:{mark}')} {head}" if head else None

    def fail(self, error: Exception) -> None:
        for append in self.appends:
            append.fail(error)


def mark_of_call(process: str, number: int) -> str:
    digest = blake2b(f"{process} {number}".encode(), digest_size=MARK_LENGTH // 2)
    return digest.hexdigest()


def used_otherwise(submission: Submission) -> Rejected:
    return Rejected(
        f"Idempotency-Key {submission.key!r} was used for other changes; "
        "send new changes under a new key",
        status=409,
    )


# --- as the scripts take it ----------------------------------------------------------------------


def call_keys(channel: ChannelName) -> tuple[str, ...]:
    """KEYS of journal.lua."""
    names = (keys.stream(channel), keys.record(channel), keys.windows(channel))
    prefixes = (keys.state(channel.set_name), keys.remembered(channel))
    of_set = keys.record(ChannelName(channel.set_name, "change"))
    return (*names, *prefixes, keys.load(channel.set_name, "newer"), of_set)


def call_arguments(
    channel: ChannelName,
    window: tuple[int, int, int],
    who: str,
    bell: str,
    evidence: Evidence,
    found_at: Position,
) -> tuple[object, ...]:
    """ARGV of journal.lua; `who` is the process, with the mark of this call."""
    limits = window if channel.kind == "change" else NO_WINDOW
    return (message_of(channel, who), bell, *limits, str(evidence), int(found_at))


def message_of(channel: ChannelName, who: str) -> str:
    """What a message of the bell says of a journal; where that ends follows."""
    return f"{channel.set_name}/{channel.kind} {who}"


@lru_cache(maxsize=4096)
def _beginning(channel: ChannelName) -> tuple[Any, ...]:
    """The command up to its keys."""
    return APPEND.command(call_keys(channel))


def _arguments(appends: Sequence[Append]) -> list[object]:
    """What append.lua takes of each."""
    found: list[object] = []
    for append in appends:
        submission, of_changes = append.submission, append.channel.kind == "change"
        digest = submission.digest if submission.key else ""
        found += (digest, submission.fingerprint, append.max_bytes, len(submission.fragments))
        for fragment in submission.fragments:
            found += change_arguments(fragment, of_changes)
    return found


def change_arguments(fragment: Fragment, of_changes: bool) -> tuple[object, ...]:
    short = fragment.short
    shard = keys.shard_of(short[LOC_BEGIN : short.index(LOC_END)]) if of_changes else -1
    kind = ("d" if fragment.deleted else "u") + fragment.load
    return fragment.position, shard, kind, len(fragment.xml), short


def remembered_key(channel: ChannelName, created: int, digest: str) -> str:
    """The key of Redis under which append.lua remembers an idempotency key."""
    return f"{keys.remembered(channel)}{int(created)}:{digest}"


def parse_known(known: bytes) -> tuple[str, Position, Position]:
    """The fingerprint and the interval that are remembered of an idempotency key."""
    fingerprint, from_, until = known.decode().split(" ")
    return fingerprint, Position(int(from_)), Position(int(until))


def _rows(
    fragments: Sequence[Fragment],
    until: int,
    positions: Sequence[int] = (),
    said: Sequence[Any] = (),
    *,
    is_repeated: bool,
) -> tuple[Row, ...]:
    """The changes with their positions; without these they end at `until`, one µs apart. `said`:
    the number of a change that says what its resource was, and what was added to it, in turn."""
    if said:
        fragments = [*fragments]
        for number, former in zip(said[::2], said[1::2], strict=True):
            fragments[number] = fragments[number].saying(former)
    if positions:
        pairs = zip(positions, fragments, strict=True)
        return tuple((Position(at), fragment.xml) for at, fragment in pairs if at)
    if is_repeated and any(fragment.position or fragment.load for fragment in fragments):
        return ()
    first = until - len(fragments) + 1
    return tuple([(Position(at), fragment.xml) for at, fragment in enumerate(fragments, first)])
