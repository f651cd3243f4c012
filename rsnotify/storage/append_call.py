"""One call of `append.lua`: what it is told of the appends of a channel, and its answer to each."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rsnotify.core.submission import Fragment, Submission
from rsnotify.errors import JournalIsBehind, NoSuchSet, Rejected, TryAgain
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, Interval, Row
from rsnotify.storage.journal_format import (
    CALLERS_KEY_SECONDS,
    change_arguments,
    channel_arguments,
    channel_keys,
)
from rsnotify.storage.script import Command, Script

APPEND = Script("journal.lua", "append.lua")

UNSEEN = Position(0)
UNKNOWN = -2  # a version that no process has

BEHIND = "the journal in Redis has lost changes, and is repaired first"
SILENCE = "the journal does not answer; repeat with the same key"
NOTHING = "the journal does not answer; nothing was stored"

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
class PendingAppend:
    channel: ChannelName
    submission: Submission
    size: int  # of the submission
    seen: Position  # the newest that this process has seen of the channel
    key: str  # the same at every repetition, whoever drew it
    began: float
    answer: asyncio.Future[Appended]
    is_taken: bool = False  # into a round: Redis may have it

    def give_up(self) -> None:
        """Its Source has waited for long enough, if it can find out later what became of it."""
        if not self.answer.done() and (self.submission.key or not self.is_taken):
            self.answer.set_exception(TryAgain(SILENCE if self.submission.key else NOTHING))


def command_of(
    channel: ChannelName, group: Sequence[PendingAppend], window: tuple[int, int, int], caller: str
) -> Command:
    seen = max(append.seen for append in group)
    common = channel_arguments(channel, window, seen, caller)
    return APPEND.command(channel_keys(channel), *common, *_arguments(channel, group))


def _arguments(channel: ChannelName, group: Sequence[PendingAppend]) -> Iterable[object]:
    of_changes = channel.kind == "change"
    for append in group:
        submission = append.submission
        is_ours = submission.key is None
        yield from (append.key, OUR_KEY_SECONDS if is_ours else CALLERS_KEY_SECONDS)
        yield submission.fingerprint
        yield len(submission.fragments)
        for fragment in submission.fragments:
            yield from change_arguments(fragment, of_changes)


def answers_in(reply: object, group: Sequence[PendingAppend], version: object) -> Sequence[object]:
    """One answer for each append of a channel, whatever became of the call."""
    if isinstance(reply, Exception):
        return [reply] * len(group)
    if reply is None:
        return [NoSuchSet(group[0].channel.set_name)] * len(group)
    if not isinstance(reply, list):
        return [JournalIsBehind(BEHIND)] * len(group)
    number = UNKNOWN if isinstance(version, Exception) else int(version or 0)  # type: ignore[call-overload]
    return [answer and (number, *answer) for answer in reply]


def answer_all(appends: Sequence[PendingAppend], answers: Sequence[object]) -> None:
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


def used_otherwise(submission: Submission) -> Rejected:
    return Rejected(
        f"Idempotency-Key {submission.key!r} was used for other changes; "
        "send new changes under a new key",
        status=409,
    )
