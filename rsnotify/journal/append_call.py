"""One call of `append.lua`: what it is told of the appends of a channel, and its answer to each."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from rsnotify.errors import JournalIsBehind, NoSuchSet, Rejected, TooFewReplicas, TryAgain
from rsnotify.journal.journal_format import (
    KEY_SECONDS,
    change_arguments,
    channel_arguments,
    channel_keys,
    rows_of,
)
from rsnotify.journal.submission import Fragment, Submission
from rsnotify.redis_client.script import Command, Script
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, Interval, Row

log = logging.getLogger(__name__)

APPEND = Script("journal/journal.lua", "journal/append.lua")

UNSEEN = Position(0)
UNKNOWN = -2  # a version that no process has

BEHIND = "the journal in Redis has lost changes, and is repaired first"
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
    is_alone: bool = False  # nothing else was appended in its round
    before: Sequence[Row] = ()  # the newest change before its round, if it was not seen here

    @property
    def interval(self) -> Interval:
        return Interval(self.from_, self.until)


class PendingAppend(msgspec.Struct, eq=False):
    """An append, until it is answered."""

    channel: ChannelName
    submission: Submission
    size: int  # of the submission
    seen: Position  # the newest that this process has seen of the channel
    began: float
    answer: asyncio.Future[Appended]
    is_taken: bool = False  # into a round: Redis may have it

    def give_up(self) -> None:
        """Its Source has waited for long enough, if it can find out later what became of it."""
        if not self.answer.done() and (self.submission.key or not self.is_taken):
            self.answer.set_exception(TryAgain(SILENCE if self.submission.key else NOTHING))

    def tell(
        self, answer: Sequence[Any], before: Sequence[Row], version: int, *, is_alone: bool
    ) -> None:
        """What append.lua has answered: it is stored, or its key was used for something else."""
        if self.answer.done():
            return
        if not answer:
            self.answer.set_exception(used_otherwise(self.submission))
            return
        from_, until, repeated, *positions = answer
        is_repeated, ends = bool(repeated), (Position(from_), Position(until))
        rows = _rows(self.submission.fragments, until, *positions, is_repeated=is_repeated)
        self.answer.set_result(Appended(*ends, is_repeated, version, rows, is_alone, before))


class Round(NamedTuple):
    """Which round a call belongs to, so that it is known again when it is repeated."""

    process: str
    writer: str  # makes one round after the other
    number: int  # higher than that of the writer's last round


def command_of(
    channel: ChannelName,
    group: Sequence[PendingAppend],
    window: tuple[int, int, int],
    round_: Round,
) -> Command:
    seen = max([append.seen for append in group])
    common = channel_arguments(channel, window, seen, round_.process)
    of_call = (round_.writer, round_.number, CALL_SECONDS, KEY_SECONDS)
    return APPEND.command(channel_keys(channel), *common, *of_call, *_arguments(channel, group))


def _arguments(channel: ChannelName, group: Sequence[PendingAppend]) -> list[object]:
    of_changes = channel.kind == "change"
    found: list[object] = []
    for append in group:
        fragments = append.submission.fragments
        found += (append.submission.digest, append.submission.fingerprint, len(fragments))
        for fragment in fragments:
            found += change_arguments(fragment, of_changes)
    return found


def answer_round(
    groups: Sequence[Sequence[PendingAppend]], replies: Sequence[object], version: object
) -> None:
    """Tell each append of a round what became of it; there is a reply for each channel."""
    is_alone = len(groups) == 1 and len(groups[0]) == 1
    number = UNKNOWN if isinstance(version, Exception) else int(version or 0)  # type: ignore[call-overload]
    for group, reply in zip(groups, replies, strict=True):
        if isinstance(reply, list):
            answers, entries = reply
            before = tuple(rows_of(entries)) if entries else ()
            for append, answer in zip(group, answers, strict=True):
                append.tell(answer, before, number, is_alone=is_alone)
        else:
            if isinstance(reply, TooFewReplicas):
                log.warning("publishing is answered 503: %s", reply.why.detail)
            fail_all(group, _failure(reply, group))


def _failure(reply: object, group: Sequence[PendingAppend]) -> Exception:
    if isinstance(reply, Exception):
        return reply
    if says_behind(reply):
        return JournalIsBehind(BEHIND)
    return NoSuchSet(group[0].channel.set_name)


def says_behind(reply: object) -> bool:
    """Whether nothing was done because the journal has lost changes, or is being repaired."""
    return reply is not None and not isinstance(reply, list | Exception)


def fail_all(group: Sequence[PendingAppend], error: Exception) -> None:
    for append in group:
        if not append.answer.done():
            append.answer.set_exception(error)


def _rows(
    fragments: Sequence[Fragment], until: int, positions: Sequence[int] = (), *, is_repeated: bool
) -> tuple[Row, ...]:
    """Where each change stands; without positions they end at `until`, one behind the other."""
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
