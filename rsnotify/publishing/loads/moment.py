"""The moment of the state that a load brings, and what was published after it.

Rules that hold here: the moment is a position that this hub gave for this set before the state was
read, `as_of`; no clock of an application is one. What was published after it is newer than the load
and stays as it is. A load that does not name its moment takes back nothing that was published since
the load before it, unless its Source says that it is to. What the hub does not know is no excuse: a
moment from which on the journal is not whole is refused.
"""

import re
from collections.abc import AsyncIterator, Sequence
from html import unescape
from typing import NamedTuple

from rsnotify.errors import HistoryDeleted, Rejected, Trimmed
from rsnotify.live.reading import History
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, Row

READ_CHANGES = 500  # a millisecond of Redis, then one of the event loop: so long others wait
SHOWN = 10  # resources that a refusal names
SHOWN_CHARACTERS = 200  # of each

_LOC = re.compile(rb"<loc>(.*?)</loc>", re.DOTALL)


class LoadStanding(NamedTuple):
    """Where the journal of a set and the loads before stand."""

    created: Position
    head: Position  # of the newest change
    gaps: Sequence[Position]  # where each ends: the newest change was one of them for a while
    until: Position  # what the load before has reached, and there was none else where it began
    replaced: Position  # by the last load that published nothing; 0 if there was none

    @property
    def position(self) -> Position:
        """The moment of a state that is read from now on."""
        return max(self.head, self.replaced)

    def has_given(self, as_of: Position) -> bool:
        """Whether this is such a moment, without a look at the journal."""
        given = self.created, self.head, self.replaced, *self.gaps
        return as_of in given


_ASK = "ask for the position (rsnotify resources position {}) before you read the state again"


def why_not_as_of(as_of: Position, name: str, standing: LoadStanding) -> str | None:
    """Why the hub cannot have given this position for this state of the set, if that is sure."""
    if as_of < standing.created:
        what = f"lies before the set {name!r} was made, at {standing.created}"
    elif as_of < standing.replaced:
        what = (
            f"lies before a load that published nothing replaced the state, at {standing.replaced}"
        )
    elif as_of > standing.position:
        what = f"lies after the newest position of the set, {standing.position}"
    else:
        return None
    return f"as_of {as_of} {what}: {_ASK.format(name)}"


class TakenBack:
    """What a load without a moment would take back: all counted, some named. What it would delete
    its Source has not sent, so that is named only to those who may read the set."""

    def __init__(self, *, names_all: bool) -> None:
        self._names_all = names_all
        self.count = 0
        self.first: list[tuple[str, str]] = []

    def add(self, found: Sequence[tuple[str, bytes]]) -> None:
        self.count += len(found)
        shown = [each for each in found if self._names_all or each[0] != "deleted"]
        room = SHOWN - len(self.first)
        self.first += [(change, unescape(loc.decode())) for change, loc in shown[:room]]

    def refusal(self, name: str) -> str | None:
        """Why the load is refused; None if it takes back nothing."""
        if not self.count:
            return None
        shown = [f"{loc[:SHOWN_CHARACTERS]} ({change})" for change, loc in self.first]
        if self.count > len(shown):
            shown.append(f"{self.count - len(shown)} more" if shown else "not shown to this token")
        named = f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]
        changes = "a change that was" if self.count == 1 else f"{self.count} changes that were"
        return (
            f"this would take back {changes} published since the load before it: {named}; "
            "say of which moment the state is, with as_of=POSITION (in the command: --as-of), and "
            f"{_ASK.format(name)}; or, if these changes are to be undone, say overwrite=yes "
            "(--overwrite)"
        )


class Published:
    """The journal of one set, read for what was published between two positions."""

    def __init__(self, history: History, set_name: str) -> None:
        self._history = history
        self._name = set_name
        self._channel = ChannelName(set_name, "change")

    async def check_as_of(self, as_of: Position, standing: LoadStanding) -> None:
        """Refuse what is no position that this hub gave, or one that it knows too little of."""
        if (why := why_not_as_of(as_of, self._name, standing)) is not None:
            raise Rejected(why, status=409)
        if not standing.has_given(as_of) and not await self._rows(Position(as_of - 1), as_of):
            raise Rejected(
                f"as_of {as_of} is no position that this hub gave for {self._name!r}: no change of "
                f"the set has it; {_ASK.format(self._name)}",
                status=409,
            )

    async def locs_after(self, as_of: Position, until: Position) -> AsyncIterator[set[bytes]]:
        """The escaped locs of all changes in `(as_of, until]`, some at a time."""
        cursor = as_of
        while rows := await self._rows(cursor, until):
            yield _locs(rows)
            cursor = rows[-1][0]

    async def kept_locs_after(self, after: Position, until: Position) -> AsyncIterator[set[bytes]]:
        """As `locs_after`, as far as the journal has them."""
        cursor = after
        while cursor < until:
            try:
                rows = await self._read(cursor, until)
            except Trimmed as trimmed:
                cursor = Position(trimmed.first)
                continue
            if not rows:
                return
            yield _locs(rows)
            cursor = rows[-1][0]

    async def _rows(self, after: Position, until: Position) -> list[Row]:
        try:
            return await self._read(after, until)
        except Trimmed as trimmed:
            begins = Position(trimmed.first)
            raise HistoryDeleted(
                f"as_of is too old: the changes that are kept of {self._name!r} begin at {begins}, "
                f"and what was deleted before is not known; {_ASK.format(self._name)}",
                begins,
            ) from None

    async def _read(self, after: Position, until: Position) -> list[Row]:
        return await self._history.read(self._channel, after, until=until, count=READ_CHANGES)


def _locs(rows: Sequence[Row]) -> set[bytes]:
    found = (_LOC.search(row[1]) for row in rows)
    return {each[1] for each in found if each is not None}
