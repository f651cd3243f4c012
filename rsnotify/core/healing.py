"""What to do when Redis has lost its newest changes: which are missing, and how they come back.

After a failover, or a start from an older file, a journal may lack changes that were acknowledged
or delivered. Each process remembers those of the last seconds (`Memory`), compares them with the
journal, and repairs it (`plan_repair`). These rules hold:

- What is missing above the journal's head goes back to its own position.
- What is missing below it, because something was appended since, is appended again at the end.
- What was appended since below a position that readers have reached is appended again as well:
  nobody who is past it would see it.
- The newest change of a resource stays the newest: if a repair would put an older one behind it, it
  is appended once more.

So a change may be told twice, but none that somebody remembers is lost. Nothing here knows Redis.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from rsnotify.core.submission import LOC_START
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import Row

LOC_END = b"</loc>"


class Memory:
    """The newest changes of one channel that this process has acknowledged or delivered.

    Everything in `(read_after, read_until]` was read from the journal. What this process appended
    is known as soon as it is acknowledged, and may lie above `read_until`.
    """

    __slots__ = ("_rows", "newest", "read_after", "read_until")

    def __init__(self, head: Position) -> None:
        self.read_after = self.read_until = self.newest = head
        self._rows: dict[Position, bytes] = {}

    def read(self, rows: Iterable[Row], until: Position) -> None:
        """These rows, and no others, followed `read_until` in the journal."""
        self._rows.update(rows)
        self.read_until = until
        self.newest = max(self.newest, until)

    def appended(self, rows: Sequence[Row]) -> None:
        """The journal has acknowledged these rows of this process."""
        self._rows.update(rows)
        if rows:
            self.newest = max(self.newest, rows[-1][0])

    def forget_until(self, position: Position) -> None:
        """Nothing up to this position needs to be remembered any longer."""
        self.read_after = max(self.read_after, position)
        self.read_until = max(self.read_until, position)
        for known in [each for each in self._rows if each <= position]:
            del self._rows[known]

    @property
    def rows(self) -> Mapping[Position, bytes]:
        return self._rows


class Repair(NamedTuple):
    """What a journal needs, each part oldest first. A row of `again` has its old position."""

    put_back: Sequence[Row]
    again: Sequence[Row]

    def __bool__(self) -> bool:
        return bool(self.put_back or self.again)


class Repaired(NamedTuple):
    """Which positions of a journal have been put back, and which were appended again."""

    put_back: Container[Position] = ()
    again: Container[Position] = ()


def plan_repair(
    memory: Memory, journal: Sequence[Row], head: Position, repaired: Repaired
) -> Repair:
    """What is missing of a journal that now holds these rows after `memory.read_after`.

    `head` is its newest position; `repaired` is what other processes have done.
    """
    stored = dict(journal)
    lost = [row for row in sorted(memory.rows.items()) if stored.get(row[0]) != row[1]]
    put_back = [row for row in lost if row[0] > head]
    below = [row for row in lost if row[0] <= head and row[0] not in repaired.again]
    passed = [row for row in journal if _was_passed(row, memory, repaired)]
    again = below + passed
    if not put_back and not again:
        return Repair((), ())
    return Repair(
        put_back, again + _still_newest(put_back, again, _by_age(lost, journal, repaired))
    )


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
