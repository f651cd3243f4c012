"""What to do when Redis has lost its newest changes: which are missing, and how they come back.

After a failover, or a start from an older file, a journal may lack changes that were acknowledged
or delivered. Each process remembers those of the last seconds (`Memory`), compares them with the
journal, and repairs it (`plan_repair`). These rules hold:

- What is missing above the journal's end goes back to its own position.
- What is missing below it, because something was appended since, is appended again at the end.
- What was appended since below a position that readers have reached is appended again as well:
  nobody who is past it would see it.
- The newest change of a resource stays the newest: if a repair would put an older one behind it, it
  is appended once more.

So a change may be told twice, but none that somebody remembers is lost. Of what nobody remembers,
it is known at least that it was there (`lost_until`): then the journal gets a gap, a position that
no reader passes without being told. Nothing here knows Redis.
"""

from collections import OrderedDict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.notification import Row

LOC_START = len(b"<url><loc>")
LOC_END = b"</loc>"
REMEMBERED_MICROSECONDS = 60 * MICROSECONDS  # a failover is over by then
MEMORY_BYTES = 8 * 1024 * 1024  # a channel
ROW_BYTES = 200  # memory of a row besides its fragment
FORGOTTEN_AT_ONCE = 2_000  # more than a round brings, and no long pause


class UsedKey(NamedTuple):
    """An idempotency key, and the interval with which a repetition is answered."""

    key: str
    fingerprint: str
    from_: Position
    until: Position


class _Held:
    """The changes of a channel that are remembered now."""

    __slots__ = ("begins", "keys", "rows", "size")

    def __init__(self) -> None:
        self.rows: OrderedDict[Position, bytes] = OrderedDict()
        self.keys: dict[Position, UsedKey] = {}
        self.begins: dict[Position, Position] = {}  # until of an append -> the newest before it
        self.size = 0

    def add(self, rows: Iterable[Row]) -> None:
        known = self.rows
        for position, xml in rows:
            if position not in known:
                known[position] = xml
                self.size += len(xml) + ROW_BYTES

    def forget_oldest(self, position: int) -> Position | None:
        """What is at or before this position, and what is too much; the newest of it."""
        newest, forgotten = None, 0
        while self.rows and forgotten < FORGOTTEN_AT_ONCE:
            known = next(iter(self.rows))
            if known > position and self.size <= MEMORY_BYTES:
                break
            forgotten += 1
            self.size -= len(self.rows.pop(known)) + ROW_BYTES
            self.keys.pop(known, None)
            self.begins.pop(known, None)
            newest = known if newest is None else max(newest, known)
        return newest


class Memory:
    """The newest changes of one channel that this process has acknowledged or delivered.

    Everything in `(read_after, read_until]` was read from the journal. What this process appended
    is known as soon as it is acknowledged, and the change before it; both may lie above
    `read_until`.
    """

    __slots__ = ("_held", "newest", "read_after", "read_until")

    stays_when_idle = False

    def __init__(self, head: Position) -> None:
        self.read_after = self.read_until = self.newest = head
        self._held: _Held | None = None  # most of many channels have nothing to remember

    def read(self, rows: Iterable[Row], until: Position) -> None:
        """These rows, and no others, followed `read_until` in the journal."""
        self.read_until = until
        self._add(rows, until)

    def appended(
        self,
        rows: Iterable[Row],
        until: Position,
        key: UsedKey | None = None,
        *,
        begin: Position | None = None,
    ) -> None:
        """The journal has acknowledged these rows of this process, perhaps once more; its newest
        change was at `begin` before."""
        if until > self.newest - REMEMBERED_MICROSECONDS:
            held = self._begin_to_hold()
            if key is not None:
                held.keys[until] = key
            if begin is not None:
                held.begins[until] = begin
            self._add(rows, until)

    def skip_to(self, head: Position) -> None:
        """The journal ends here; what it holds before that was not read."""
        self.read_after = self.read_until = head
        self.newest = max(self.newest, head)

    def _begin_to_hold(self) -> _Held:
        if self._held is None:
            self._held = _Held()
        return self._held

    def _add(self, rows: Iterable[Row], until: Position) -> None:
        held = self._begin_to_hold()
        held.add(rows)
        self.newest = max(self.newest, until)
        forgotten = held.forget_oldest(self.newest - REMEMBERED_MICROSECONDS)
        if forgotten is not None:
            self.read_after = max(self.read_after, forgotten)
            self.read_until = max(self.read_until, forgotten)

    def release(self) -> None:
        """Forget everything but the newest position."""
        self._held = None
        self.read_after = self.read_until

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return 0 if self._held is None else self._held.size

    @property
    def begins(self) -> Position:
        """Nothing up to this position is remembered."""
        return Position(min((*self.rows, *self.witnessed)) - 1)

    @property
    def witnessed(self) -> Collection[Position]:
        """Positions of the journal that this process has known; what is there, it may not know."""
        begins = () if self._held is None else self._held.begins.values()
        return {self.read_after, self.newest, *begins}

    @property
    def rows(self) -> Mapping[Position, bytes]:
        return {} if self._held is None else self._held.rows

    def keys_of(self, rows: Iterable[Row]) -> list[UsedKey]:
        """The keys of appends that ended with one of these rows."""
        keys = {} if self._held is None else self._held.keys
        return [keys[position] for position, _ in rows if position in keys]


class Repair(NamedTuple):
    """What a journal needs, each part oldest first. A row of `again` has its old position."""

    put_back: Sequence[Row] = ()
    again: Sequence[Row] = ()
    keys: Sequence[UsedKey] = ()

    def __bool__(self) -> bool:
        return bool(self.put_back or self.again)


class Repaired(NamedTuple):
    """Which positions of a journal have been put back, and which were appended again."""

    put_back: Container[Position] = ()
    again: Container[Position] = ()


def plan_repair(
    memory: Memory, journal: Sequence[Row], last: Position, repaired: Repaired
) -> Repair:
    """What is missing of a journal that now holds these rows after `memory.begins`.

    A change can be put back behind `last` only; `repaired` is what other processes have done.
    """
    stored = dict(journal)
    lost = [row for row in sorted(memory.rows.items()) if stored.get(row[0]) != row[1]]
    put_back = [row for row in lost if row[0] > last]
    below = [row for row in lost if row[0] <= last and row[0] not in repaired.again]
    passed = [row for row in journal if _was_passed(row, memory, repaired)]
    again = below + passed
    if not put_back and not again:
        return Repair()
    again += _still_newest(put_back, again, _by_age(lost, journal, repaired))
    return Repair(put_back, again, memory.keys_of(lost))


def lost_until(
    memory: Memory, journal: Sequence[Row], begin: Position, repaired: Repaired
) -> Position | None:
    """The newest change that was in the journal, is not there now, and is not remembered here.

    Other processes may remember it. At or before `begin`, where the stream begins or its newest gap
    ends, nothing is missed.
    """
    there = {position for position, _ in journal}.union(memory.rows)
    gone = (each for each in memory.witnessed if each > begin and each not in there)
    told = (repaired.put_back, repaired.again)
    return max((each for each in gone if not any(each in marks for marks in told)), default=None)


def _was_passed(row: Row, memory: Memory, repaired: Repaired) -> bool:
    """Whether readers of this process are past the row, although it was never read here."""
    position, xml = row
    is_passed = memory.read_after < position <= memory.read_until
    return is_passed and memory.rows.get(position) != xml and position not in repaired.again


def _by_age(lost: Sequence[Row], journal: Sequence[Row], repaired: Repaired) -> list[Row]:
    """What was appended from the first lost row on, in the order in which it was appended.

    What the journal holds there, unless it was put back, came after all that was lost.
    """
    first = lost[0][0] if lost else Position(0)
    there = [row for row in journal if row[0] >= first]
    put_back = [row for row in there if row[0] in repaired.put_back]
    since = [row for row in there if row[0] not in repaired.put_back]
    return sorted([*lost, *put_back]) + since


def _still_newest(
    put_back: Sequence[Row], again: Sequence[Row], by_age: Sequence[Row]
) -> list[Row]:
    """The newest rows of resources that the repair would leave with an older one."""
    newest = {loc_of(xml): (position, xml) for position, xml in by_age}
    last = {loc_of(xml): xml for _, xml in [*put_back, *again]}
    return [newest[loc] for loc, xml in last.items() if loc in newest and newest[loc][1] != xml]


def loc_of(xml: bytes) -> bytes:
    """The escaped `<loc>` of a stored change."""
    return xml[LOC_START : xml.index(LOC_END, LOC_START)]
