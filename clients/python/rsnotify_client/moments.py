"""What the times of a Source's lists say: of one moment, set back, yet to come, in their order.

Rules that hold here: nothing waits, and nothing is fetched. A time is judged by the clock of the
Source, as far as that is known. What a list says wrong is named, where it is and how to mend it.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import pairwise

from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_client.notification import position_of

CLOCK_SECONDS = 300.0
"""So much may a clock be ahead of another."""
ZONE_SECONDS = 14 * 3_600
"""By how much a day begins earlier in the first of the time zones than in UTC."""
BY_CHANCE = 2  # so few changes may be newest first by chance
MAX_HELD = 200_000
"""So many changes of a list that begins with the newest are held until its end."""

SET_BACK = "the Source was set back, or a cache has sent an old list"
NEWEST_FIRST = "its changes are listed newest first: list them in the order of their times"
OUT_OF_ORDER = "{!r} was changed at {}, but a later change stands before that: keep their order"


_CLOCK = re.compile(r"T\d\d:\d\d(:\d\d(?:[.,](\d+))?)?")
_UNKNOWN = Position(1 << 62)


def exact(time: str | None) -> str | None:
    """The time, if it says more than a day; else None."""
    return time if time is not None and "T" in time else None


def is_one_moment(moments: Collection[str | None], began: float) -> bool:
    """Whether pages that state these times are of one moment, over before their reading began.

    Pages made on demand may state the same second and still differ, as long as it is not over.

    >>> is_one_moment({"1970-01-01T00:00:05Z"}, 9.0), is_one_moment({"1970-01-01T00:00:09Z"}, 9.0)
    (True, False)
    """
    (only, *others) = moments or {None}
    at = position_of(exact(only))
    return not others and at is not None and at + MICROSECONDS <= began * MICROSECONDS


def set_back(before: str | None, now: str | None) -> str | None:
    """What is wrong with a list that is older than the one before it; None if it is not older.

    A time may be any moment of its second, or of what else it counts in.

    >>> set_back("2026-11-20T00:00:09.5Z", "2026-11-20T00:00:09Z"), set_back("2026-11-20", None)
    (None, None)
    """
    old, new = position_of(before), position_of(now)
    if before is None or now is None or old is None or new is None or ends_at(now, new) >= old:
        return None
    return f"its list is of {now}, and one of {before} was read before: {SET_BACK}"


def ends_at(time: str, position: Position) -> Position:
    """The last microsecond that a time can mean, which says only its day, minute or second.

    >>> int(ends_at("1970-01-01T00:00:01.5Z", Position(1_500_000)))
    1599999
    """
    clock = _CLOCK.search(time)
    if clock is None:
        unit = {4: 366, 7: 31}.get(len(time), 1) * 86_400 * MICROSECONDS
    elif clock[1] is None:
        unit = 60 * MICROSECONDS
    else:
        unit = MICROSECONDS // 10 ** min(6, len(clock[2] or ""))
    return Position(position + unit - 1)


class Furthest:
    """How far the Change Lists of one reading go by their own times: to a change, to an end."""

    def __init__(self) -> None:
        self.change = self.end = Position(0)  # the newest that they say
        self._last_change = self._last_end = Position(0)  # before which nothing is missing

    def note_changes(self, entries: Iterable[Entry], now: float) -> None:
        """Changes that are read. A time that is yet to come proves nothing; nor does a list that
        does not say when it has changed, or only in part."""
        for entry in entries:
            time = entry.md.datetime if entry.md else None
            at = position_of(time)
            if time is None or at is None:
                self.note_unknown()
            elif at <= (now + CLOCK_SECONDS) * MICROSECONDS:
                self.change = max(self.change, at)
                self.note_other(ends_at(time, at))

    def note_until(self, time: str | None, now: float) -> None:
        """The end of a list that was read: what it does not have is not there."""
        at = position_of(time)
        if time is not None and at is not None and not is_ahead(time, now):
            self.end = max(self.end, at)
            self._last_end = max(self._last_end, ends_at(time, at))

    def note_other(self, at: Position | None) -> None:
        """Up to here lists go that are not read again; or it is where one begins."""
        self._last_change = max(self._last_change, at or Position(0))
        self._last_end = max(self._last_end, at or Position(0))

    def note_unknown(self) -> None:
        """A list that was not read, or says too little."""
        self.note_other(_UNKNOWN)

    def shorter_than(self, change: Position, end: Position) -> str | None:
        """What is wrong with lists that have once gone to these; None if they still do."""
        if self._last_change < change:
            return f"its Change Lists have no change of {change}, which was read before: {SET_BACK}"
        if self._last_end < end:
            return f"its Change Lists end before {end}, where they ended before: {SET_BACK}"
        return None


def is_ahead(time: str | None, now: float) -> bool:
    """Whether a time is yet to come by a clock that says `now`; a day may be one of any time zone.

    >>> is_ahead("1970-01-01T00:05:10Z", 10.0), is_ahead("1970-01-01T00:05:11Z", 10.0)
    (False, True)
    """
    when = position_of(time)
    allowed = CLOCK_SECONDS if exact(time) else ZONE_SECONDS
    return when is not None and when > (now + allowed) * MICROSECONDS


def believed(time: str | None, now: float) -> Position | None:
    """The position of a time that can be; None if it is yet to come."""
    return None if is_ahead(time, now) else position_of(time)


def ahead_of_its_time(at: str | None, now: float) -> str | None:
    """What is wrong with a list that is of a time yet to come by its Source's clock; else None."""
    if not is_ahead(at, now):
        return None
    return (
        f"its list says that it is of {at}, which has not come yet: correct it, or the "
        "clock; changes are read from now on"
    )


class ChangeOrder:
    """The changes of one list in the order of their times, of which it may break the rule.

    A list that begins with the newest is held to its end, and turned round. In any other a change
    that is older than one before it, to the same resource, is left out, as it says nothing of what
    there is now. Others may stand in any order: some Sources list what is gone last.
    """

    def __init__(self, skip: Callable[[str], object], most_held: int = MAX_HELD) -> None:
        self._skip, self._most_held = skip, most_held
        self._held: list[Entry] | None = []  # None once it is known to be in order
        self._is_turned = False
        self._newest: dict[str, Position] = {}

    def feed(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those that can be handed on."""
        if self._held is None:
            return self._without_older(entries)
        self._held += entries
        if self._is_turned:
            return [] if len(self._held) <= self._most_held else self._given_up()
        if len(self._held) <= BY_CHANCE:
            return []
        if is_newest_first(self._held):
            self._turn()
            return []
        return self._given_up()

    def close(self) -> list[Entry]:
        """The rest, at the end of the list."""
        held, self._held = self._held or [], None
        if self._is_turned:
            return in_order(held)
        return self._without_older(held)

    def _given_up(self) -> list[Entry]:
        """The end of holding: because there is no reason, or because it is too much."""
        if self._is_turned:
            self._skip(f"it has more than {self._most_held:,} changes, of which the last are older")
        return self.close()

    def _turn(self) -> None:
        self._is_turned = True
        self._skip(NEWEST_FIRST)

    def _without_older(self, entries: Sequence[Entry]) -> list[Entry]:
        found: list[Entry] = []
        for entry in entries:
            at = _changed_at(entry)
            if at is not None and at < self._newest.get(entry.loc, at):
                self._skip(OUT_OF_ORDER.format(entry.loc[:200], at))
                continue
            if at is not None:
                self._newest[entry.loc] = at
            found.append(entry)
        if len(self._newest) > self._most_held:
            self._newest.clear()
        return found


def ordered(
    batches: Iterable[Sequence[Entry]], skip: Callable[[str], object], most_held: int = MAX_HELD
) -> Iterator[list[Entry]]:
    """The changes of one list in the order of their times."""
    order = ChangeOrder(skip, most_held)
    for entries in batches:
        yield order.feed(entries)
    yield order.close()


def is_newest_first(entries: Sequence[Entry]) -> bool:
    """Whether changes stand in the opposite of the order of their times."""
    times = [_changed_at(each) for each in entries]
    known = [each for each in times if each is not None]
    is_descending = all(one >= other for one, other in pairwise(known))
    return BY_CHANCE < len(known) == len(times) and is_descending and known[0] > known[-1]


def in_order(entries: Sequence[Entry]) -> list[Entry]:
    """Changes that are listed newest first, with the oldest first; each without a time stays
    behind the one that happened before it."""
    timed, before = list[tuple[Position, Entry]](), Position(0)
    for entry in reversed(entries):
        before = _changed_at(entry) or before
        timed.append((before, entry))
    return [entry for _, entry in sorted(timed, key=lambda pair: pair[0])]


def _changed_at(entry: Entry) -> Position | None:
    return position_of(entry.md.datetime if entry.md else None)
