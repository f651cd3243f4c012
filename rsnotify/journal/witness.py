"""What a process knows to have been in a journal, so that a loss can be told from what never was.

After a failover, or a start from an older file, Redis may lack changes that were acknowledged or
delivered. Nobody puts them back. But whoever knew of one says so: the journal gets a gap at its
end (`leave_gap` in journal.lua), and everybody who is past it, now or later, is told.

A change is known by its position and by the mark of the call that stored it: after a loss, another
change may be stored at the same position. Nothing here knows Redis.
"""

import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple

from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName

log = logging.getLogger(__name__)

MARK_LENGTH = 6  # characters
UNPROVED = 8  # changes


class KnownChange(NamedTuple):
    """A change that was there, and the mark of the call that stored it."""

    position: Position
    mark: str


class Evidence(NamedTuple):
    """What was known of a journal at a moment."""

    given: Position
    changes: tuple[KnownChange, ...]

    def __str__(self) -> str:
        """As journal.lua takes it."""
        return " ".join([str(int(self.given)), *(f"{int(at)}:{mark}" for at, mark in self.changes)])


class Witness:
    """What one process knows of a channel's journal."""

    __slots__ = ("changes", "given")

    def __init__(self, head: Position) -> None:
        self.given = head  # the newest position that anybody was given
        # Those that were there and were not looked for since, of each call the newest, and always
        # the newest of all: what Redis loses is the end of a journal, so whoever finds the newest
        # finds all that was proved.
        self.changes: tuple[KnownChange, ...] = ()

    @property
    def evidence(self) -> Evidence:
        """What is known now."""
        return Evidence(self.given, self.changes)

    @property
    def is_crowded(self) -> bool:
        """Whether so much is known that it is worth a look of its own."""
        return len(self.changes) > UNPROVED

    def note_given(self, position: Position) -> None:
        """Somebody is given this position."""
        self.given = max(self.given, position)

    def note_change(self, position: Position, mark: str) -> None:
        """This change is there, and so is what its call has stored before it: Redis has all of a
        call or nothing. What other calls have stored is not forgotten for it: only who has looked
        knows that it is still there."""
        of_call = [each for each in self.changes if each.mark == mark]
        known = max([KnownChange(position, mark), *of_call])
        self.changes = (*[each for each in self.changes if each not in of_call], known)
        self.note_given(position)

    def note_found(self, changes: Collection[KnownChange]) -> None:
        """These have been looked for, and were there."""
        newest = max(self.changes, default=None)
        self.changes = tuple(
            [each for each in self.changes if each is newest or each not in changes]
        )

    def note_gap(self, gap: Position) -> None:
        """There is a gap that ends here: whoever has passed what was lost before it is told. From
        now on the gap is what has to be there."""
        after = [each for each in self.changes if each.position > gap]
        self.changes = (*after, KnownChange(gap, ""))
        self.note_given(gap)


def proved_by(
    changes: Collection[KnownChange], found: Mapping[Position, str], begin: Position, end: Position
) -> tuple[KnownChange, ...] | None:
    """Those of these changes that lie in `(begin, end]`, of which `found` has the marks of all that
    the journal holds there; None if one is missing.

    >>> one, two = KnownChange(Position(1), "a"), KnownChange(Position(2), "b")
    >>> proved_by([one, two], {one.position: "a"}, Position(0), Position(1)) == (one,)
    True
    >>> proved_by([one, two], {one.position: "c"}, Position(0), Position(1)) is None
    True
    """
    wanted = tuple([each for each in changes if begin < each.position <= end])
    return wanted if all(found.get(at) == mark for at, mark in wanted) else None


class Gaps:
    """The gaps that this process has met in journals that had lost something."""

    def __init__(self) -> None:
        self.count = 0
        self.newest: dict[ChannelName, Position] = {}

    def met(self, channel: ChannelName, gap: Position) -> None:
        """Log and count this gap, the first time that it is met."""
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
