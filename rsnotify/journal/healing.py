"""What to do when Redis has lost its newest changes: which are missing, and how they come back.

After a failover, or a start from an older file, a journal may lack changes that were acknowledged
or delivered. Each process remembers those of the last seconds (`Memory`), compares them with the
journal, and repairs it (`plan_repair`). These rules hold:

- What is missing above the journal's end goes back to its own position, unless readers have passed
  that without it.
- What is missing below it, because something was appended since, is appended again at the end.
- What was appended since below a position that readers have reached is appended again as well:
  nobody who is past it would see it.
- The newest change of a resource stays the newest: if a repair would put an older one behind it, it
  is appended again too.
- What is appended again is removed from where it was, so nothing is stored twice.
- A request with a key stays together: if one of its rows is appended again, so are the others, also
  those that another process has put back. That process may not have known all of them, nor the key.
- The last row of a request that came with an idempotency key has a note of the key, and whoever
  reads the row knows it. If the journal has the key for another interval, its Source has repeated
  the request since: then the lost rows of that request do not come back.

So a change may be sent twice, but none that somebody remembers is lost. Of what nobody remembers,
it is known at least that it was there (`lost_until`): then the journal gets a gap, a position that
no reader passes without notice.

After a failover, records of sets, tokens and subscriptions may be missing as well, if they were
written in the last seconds; older ones may stand in their place, and removed ones may be there
again (`plan_recall`). The newer of two records of the same name counts. What another process has
removed is kept in Redis for a day, and checked there: it is never put back. Nothing here knows
Redis.
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Self, TypeVar

from rsnotify.journal.submission import DIGEST_LENGTH, PRINT_LENGTH
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.notification import Row

LOC_BEGINS = len(b"<url><loc>")
LOC_END_TAG = b"</loc>"
REMEMBERED_MICROSECONDS = 60 * MICROSECONDS  # a failover is over by then
MEMORY_BYTES = 8 * 1024 * 1024  # a channel
ROW_BYTES = 200  # memory of a row besides its fragment
NOTE_BYTES = 170  # …and of the note of a key
FORGOTTEN_AT_ONCE = 2_000  # more than a round brings, and no long pause


class UsedKey(NamedTuple):
    """An idempotency key by its digest, and the interval with which a repetition is answered."""

    digest: str
    fingerprint: str  # as much of it as stands in a note
    from_: Position
    until: Position
    changes: int = 1  # of the changes of its request

    @classmethod
    def of_note(cls, note: bytes, until: Position) -> Self:
        """The text of the note at a row."""
        text = note.decode()
        fingerprint, _, rest = text[DIGEST_LENGTH:].partition(".")
        length, _, count = rest.partition(":")
        from_ = Position(until - int(length, 16))
        return cls(text[:DIGEST_LENGTH], fingerprint, from_, until, int(count or "1", 16))

    @property
    def note(self) -> bytes:
        count = f":{self.changes:x}" if self.changes > 1 else ""
        fingerprint = self.fingerprint[:PRINT_LENGTH]
        return f"{self.digest}{fingerprint}.{self.until - self.from_:x}{count}".encode()


class KeyedRow(tuple[Position, bytes]):
    """The last row of a request that came with a key."""

    note: bytes

    def __new__(cls, position: Position, xml: bytes, note: bytes) -> Self:
        row = super().__new__(cls, (position, xml))
        row.note = note
        return row


class _RememberedRows:
    """The changes of a channel that are remembered now."""

    __slots__ = ("_in_order", "begins", "notes", "rows", "size", "unread")

    def __init__(self) -> None:
        self.rows: OrderedDict[Position, bytes] = OrderedDict()
        self.notes: dict[Position, bytes] = {}  # of keys, at the last rows of their requests
        self.unread: set[Position] = set()  # what those who follow have not got yet
        self.begins: dict[Position, Position] = {}  # until of an append -> the newest before it
        self.size = 0
        self._in_order: list[Position] | None = None  # of all rows: they come in any order

    def add(self, rows: Iterable[Row]) -> None:
        """What was not read in the order of the journal, and may be before what was."""
        known, size = self.rows, 0
        self._in_order = None
        for row in rows:
            position, xml = row
            if position not in known:
                known[position] = xml
                self.unread.add(position)
                size += len(xml) + ROW_BYTES
            if type(row) is KeyedRow and position not in self.notes:
                self.note(position, row.note)
        self.size += size

    def note(self, until: Position, note: bytes) -> None:
        """The key of the request whose last row is this one."""
        self.notes[until] = note
        self.size += NOTE_BYTES

    def positions_in(self, interval: tuple[int, int]) -> Sequence[Position]:
        if self._in_order is None:
            self._in_order = sorted(self.rows)
        begin, end = (bisect_right(self._in_order, at) for at in interval)
        return self._in_order[begin:end]

    def forget_oldest(self, position: int) -> Position | None:
        """Forget what is at or before this position, and what is too much; returns the newest."""
        self._in_order = None
        rows, newest, forgotten = self.rows, None, 0
        while rows and forgotten < FORGOTTEN_AT_ONCE:
            known = next(iter(rows))
            if known > position and self.size <= MEMORY_BYTES:
                break
            forgotten += 1
            self.size -= len(rows.pop(known)) + ROW_BYTES
            if self.notes.pop(known, None) is not None:
                self.size -= NOTE_BYTES
            self.begins.pop(known, None)
            self.unread.discard(known)
            if newest is None or known > newest:
                newest = known
        return newest


class Memory:
    """The newest changes of one channel that this process has acknowledged, delivered, or served
    to somebody who polls.

    Everything in `(read_after, read_until]` was read from the journal. What this process appended
    is known as soon as it is acknowledged, and the change before it; both may lie above
    `read_until`.
    """

    __slots__ = ("_held", "newest", "read_after", "read_until", "size")

    stays_when_idle = False

    def __init__(self, head: Position) -> None:
        self.read_after = self.read_until = self.newest = head
        self.size = 0  # bytes of memory
        self._held: _RememberedRows | None = None  # most of many channels have nothing to remember

    def read(self, rows: Sequence[Row], until: Position) -> None:
        """Remember rows: these, and no others, followed `read_until` in the journal."""
        self.read_until = until
        self._add(rows, until)
        if self._held is not None:  # at a position that was used again, another row may be known
            known = self._held.rows
            self._held.unread.difference_update([at for at, xml in rows if known.get(at) == xml])

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
            if begin is not None:
                held.begins[until] = begin
            held.add(rows)
            if key is not None and until not in held.notes:
                held.note(until, key.note)
            self._forget_oldest(held, until)

    def served(self, rows: Sequence[Row]) -> bool:
        """These rows of the journal were served to somebody, whoever appended them; whether one of
        them was not remembered, and is from now on."""
        until = rows[-1][0]
        oldest = Position(max(until, self.newest) - REMEMBERED_MICROSECONDS)
        known = self.rows
        new = [row for row in _within(rows, (oldest, until)) if row[0] not in known]
        if new:
            self._add(new, until)
        return bool(new)

    def was_read(self, row: Row) -> bool:
        """Whether those who follow have got this row here; others may know it, too."""
        held, (position, xml) = self._held, row
        return held is not None and held.rows.get(position) == xml and position not in held.unread

    def skip_to(self, head: Position) -> None:
        """Begin here, where the journal ends; what it has before that was not read."""
        self.read_after = self.read_until = head
        self.newest = max(self.newest, head)

    def _begin_to_hold(self) -> _RememberedRows:
        if self._held is None:
            self._held = _RememberedRows()
        return self._held

    def _add(self, rows: Iterable[Row], until: Position) -> None:
        held = self._begin_to_hold()
        held.add(rows)
        self._forget_oldest(held, until)

    def _forget_oldest(self, held: _RememberedRows, until: Position) -> None:
        self.newest = max(self.newest, until)
        forgotten = held.forget_oldest(self.newest - REMEMBERED_MICROSECONDS)
        if forgotten is not None:
            self.read_after = max(self.read_after, forgotten)
            self.read_until = max(self.read_until, forgotten)
        self.size = held.size

    def release(self) -> None:
        """Forget everything but the newest position."""
        self._held, self.size = None, 0
        self.read_after = self.read_until

    @property
    def begins(self) -> Position:
        """The position up to which nothing is remembered."""
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
        """The keys of requests that had one of these rows, oldest first."""
        notes = {} if self._held is None else self._held.notes
        positions, ends = {at for at, _ in rows}, sorted(notes)
        places = {bisect_left(ends, at) for at in positions}
        keys = (
            UsedKey.of_note(notes[at], at) for at in (ends[i] for i in sorted(places - {len(ends)}))
        )
        return [
            key
            for key in keys
            if key.until in positions or not positions.isdisjoint(self.positions_of(key))
        ]

    def positions_of(self, key: UsedKey) -> Sequence[Position]:
        """Of the rows of its request, as far as they are known; none if that is not certain.

        Rows that another primary has stored meanwhile may lie between them.
        """
        if self._held is None or key.changes == 1:
            return [key.until]
        rows = self._held.rows
        together = [Position(at) for at in range(key.until - key.changes + 1, key.until + 1)]
        if all(at in rows for at in together):
            return together
        found = self._held.positions_in((key.from_, key.until))
        return found if len(found) <= key.changes else ()


NO_NOTES: Mapping[Row, bytes] = {}


class Repair(NamedTuple):
    """What a journal needs, each part oldest first. A row of `again` has its old position."""

    put_back: Sequence[Row] = ()
    again: Sequence[Row] = ()
    keys: Sequence[UsedKey] = ()  # whose intervals stay as they were
    notes: Mapping[Row, bytes] = NO_NOTES  # those that rows of it get
    removed: Sequence[Row] = ()  # those of `again` that the journal still has
    elsewhere: Sequence[Position] = ()  # lost rows whose request was stored again meanwhile

    def __bool__(self) -> bool:
        return bool(self.put_back or self.again or self.elsewhere)


StoredKeys = Mapping[str, tuple[Position, Position]]
"""The interval that the journal remembers for each of these keys, by digest."""


NO_KEYS: StoredKeys = {}


class Repaired(NamedTuple):
    """Which positions of a journal have been put back, and which stand elsewhere now."""

    put_back: Container[Position] = ()
    again: Container[Position] = ()


def lost_rows(memory: Memory, journal: Iterable[Row], repaired: Repaired) -> list[Row]:
    """What is remembered, and is neither in the journal nor stands elsewhere."""
    stored = dict(journal)
    rows = sorted(memory.rows.items())
    return [row for row in rows if stored.get(row[0]) != row[1] and row[0] not in repaired.again]


def plan_repair(
    memory: Memory,
    journal: Sequence[Row],
    last: Position,
    repaired: Repaired,
    stored_keys: StoredKeys = NO_KEYS,
) -> Repair:
    """What is missing of a journal that now holds these rows after `memory.begins`.

    A change can be put back behind `last` only; `repaired` is what other processes have done, and
    `stored_keys` what the journal remembers of the keys of `lost_rows`.
    """
    lost = lost_rows(memory, journal, repaired)
    keys = memory.keys_of(lost)
    back, others = _sorted_out(keys, stored_keys)
    elsewhere = {at for key in others for at in memory.positions_of(key)}
    elsewhere &= {at for at, _ in lost}
    lost = [row for row in lost if row[0] not in elsewhere]
    to_end = {row for row in lost if row[0] <= last or _was_passed(row, memory, repaired)}
    to_end |= _requests_of(to_end, back, memory).intersection([*lost, *journal])
    put_back = [row for row in lost if row not in to_end]
    passed = [row for row in journal if _was_passed(row, memory, repaired) and row not in to_end]
    again = sorted(to_end, key=_position) + passed
    if not put_back and not again and not elsewhere:
        return Repair()
    ages = _ages(keys, others, stored_keys, memory, journal)
    repeated = [row for row in journal if row in ages]
    newer = _still_newest([*repeated, *put_back, *again], _by_age(lost, journal, repaired, ages))
    again = [row for row in again if row not in newer] + newer
    there, moving = set(journal), set(again)
    removed = [row for row in again if row in there]
    whole = {(key.until, memory.rows[key.until]): key for key in back if is_whole(key, memory)}
    moved = _notes_of_moved(whole, again, memory) | _notes_of_removed(removed, again, journal)
    staying = {row: key for row, key in whole.items() if row not in moved}
    return Repair(
        put_back=[row for row in put_back if row not in moving],
        again=again,
        keys=list(staying.values()),
        notes={row: key.note for row, key in staying.items() if row not in moving} | moved,
        removed=removed,
        elsewhere=sorted(elsewhere),
    )


def _sorted_out(keys: Sequence[UsedKey], stored: StoredKeys) -> tuple[list[UsedKey], list[UsedKey]]:
    """The keys of lost requests that come back; and of those that were stored again: the journal
    has them elsewhere, or they were lost there too."""
    newest = {key.digest: key for key in keys}
    back, others = list[UsedKey](), list[UsedKey]()
    for key in keys:
        interval = (key.from_, key.until)
        is_there = stored.get(key.digest, interval) == interval and newest[key.digest] == key
        (back if is_there else others).append(key)
    return back, others


def _requests_of(rows: Iterable[Row], keys: Iterable[UsedKey], memory: Memory) -> set[Row]:
    """All rows of the requests, known whole, that have one of these."""
    some, found = {at for at, _ in rows}, set[Row]()
    for key in keys:
        if is_whole(key, memory) and not some.isdisjoint(positions := memory.positions_of(key)):
            found.update((at, memory.rows[at]) for at in positions)
    return found


def is_whole(key: UsedKey, memory: Memory) -> bool:
    """Whether all rows of its request are remembered. Otherwise what comes back is not the request:
    its Source may repeat it."""
    return len(memory.positions_of(key)) == key.changes


def _notes_of_moved(
    keys: Mapping[Row, UsedKey], again: Sequence[Row], memory: Memory
) -> dict[Row, bytes]:
    """For the last row of each request that is appended again: its key moves with it."""
    places = _places(again)
    return {
        row: _moved(key).note
        for row, key in keys.items()
        if _follow_each_other([places.get(at) for at in memory.positions_of(key)])
    }


def _notes_of_removed(
    removed: Iterable[Row], again: Sequence[Row], journal: Sequence[Row]
) -> dict[Row, bytes]:
    places, found = _places(again), dict[Row, bytes]()
    for row in removed:
        if type(row) is KeyedRow:
            key = UsedKey.of_note(row.note, row[0])
            rows = _within(journal, (key.from_, key.until))
            at = [places.get(each[0]) for each in rows]
            if len(rows) == key.changes and _follow_each_other(at):
                found[row] = _moved(key).note
    return found


def _places(rows: Iterable[Row]) -> dict[Position, int]:
    return {position: place for place, (position, _) in enumerate(rows)}


def _follow_each_other(places: Sequence[int | None]) -> bool:
    begin = places[0]
    return begin is not None and list(places) == [*range(begin, begin + len(places))]


def _moved(key: UsedKey) -> UsedKey:
    """Appended again, its changes have one position after the other."""
    return key._replace(from_=Position(key.until - key.changes))


def _within(rows: Sequence[Row], interval: tuple[int, int]) -> Sequence[Row]:
    begin, end = (bisect_right(rows, at, key=_position) for at in interval)
    return rows[begin:end]


def _position(row: Row) -> Position:
    return row[0]


def _ages(
    keys: Sequence[UsedKey],
    others: Iterable[UsedKey],
    stored: StoredKeys,
    memory: Memory,
    journal: Sequence[Row],
) -> dict[Row, Position]:
    """The first position of each row's request, where the request was stored again."""
    first = {key.digest: key.until for key in reversed(keys)}
    newest = {key.digest: key for key in keys}
    ages: dict[Row, Position] = {}
    for digest in {key.digest for key in others}:
        if digest in stored:
            rows = _within(journal, stored[digest])
        else:
            rows = [(at, memory.rows[at]) for at in memory.positions_of(newest[digest])]
        ages.update(dict.fromkeys(rows, first[digest]))
    return ages


def lost_until(
    memory: Memory, journal: Sequence[Row], begin: Position, repaired: Repaired
) -> Position | None:
    """The newest change that was in the journal, is not there now, and is not remembered here.

    Other processes may remember it. At or before `begin`, where the stream begins or its newest gap
    ends, nothing is missed.
    """
    there = {position for position, _ in journal}.union(memory.rows)
    gone = (each for each in memory.witnessed if each > begin and each not in there)
    accounted_for = (repaired.put_back, repaired.again)
    lost = (each for each in gone if not any(each in marks for marks in accounted_for))
    return max(lost, default=None)


def _was_passed(row: Row, memory: Memory, repaired: Repaired) -> bool:
    """Whether readers of this process are past the row, although it was never read here."""
    is_passed = memory.read_after < row[0] <= memory.read_until
    return is_passed and not memory.was_read(row) and row[0] not in repaired.again


def _by_age(
    lost: Sequence[Row],
    journal: Sequence[Row],
    repaired: Repaired,
    ages: Mapping[Row, Position],
) -> list[Row]:
    """What was appended from the first lost row on, in the order in which it was appended.

    What the journal holds there, unless it was put back or is a repetition of what was lost, came
    after all that was lost.
    """
    first = min([*(row[0] for row in lost[:1]), *ages.values()], default=Position(0))
    there = [row for row in journal if row[0] >= first]
    back = [row for row in there if row[0] in repaired.put_back or row in ages]
    since = [row for row in there if row[0] not in repaired.put_back and row not in ages]
    return sorted([*lost, *back], key=lambda row: (ages.get(row, row[0]), row[0])) + since


def _still_newest(come_last: Iterable[Row], by_age: Iterable[Row]) -> list[Row]:
    """The newest rows of resources that the repair would leave with an older one."""
    newest = {loc_of(row[1]): row for row in by_age}
    last = {loc_of(xml): xml for _, xml in come_last}
    return [newest[loc] for loc, xml in last.items() if loc in newest and newest[loc][1] != xml]


def loc_of(xml: bytes) -> bytes:
    """The escaped `<loc>` of a stored change."""
    return xml[LOC_BEGINS : xml.index(LOC_END_TAG, LOC_BEGINS)]


# --- records -------------------------------------------------------------------------------------

REMEMBERED_SECONDS = 60.0  # a failover is over by then
REMEMBERED_RECORDS = 10_000

Record = TypeVar("Record")


class Recall(NamedTuple):
    """Which records are to be put back and which removed, by name."""

    put_back: Sequence[str]
    remove: Sequence[str]


def plan_recall(
    known: Mapping[str, Record],
    removed: Mapping[str, Record],
    stored: Mapping[str, Record],
    age: Callable[[Record], Any],
) -> Recall:
    """Compare what Redis holds now, `stored`, with what is known; a greater `age` is newer."""
    put_back = [
        name
        for name, record in known.items()
        if name not in stored or age(stored[name]) < age(record)
    ]
    remove = [
        name
        for name, record in removed.items()
        if name not in known and name in stored and age(stored[name]) <= age(record)
    ]
    return Recall(put_back, remove)


class Recent(Generic[Record]):
    """The records of the last minute, the oldest first; `now` never goes back."""

    def __init__(self) -> None:
        self._noted: dict[str, tuple[float, Record]] = {}

    def note(self, name: str, record: Record, now: float) -> None:
        self._noted.pop(name, None)
        self._noted[name] = now, record
        self._forget_oldest(now)

    def forget(self, name: str) -> None:
        self._noted.pop(name, None)

    def __bool__(self) -> bool:
        return bool(self._noted)

    def has(self, name: str, now: float) -> bool:
        """Whether it is there, and not older than a minute."""
        noted = self._noted.get(name)
        return noted is not None and now - noted[0] <= REMEMBERED_SECONDS

    def at(self, now: float) -> dict[str, Record]:
        """The records that are not older than a minute."""
        self._forget_oldest(now)
        return {name: record for name, (_, record) in self._noted.items()}

    def _forget_oldest(self, now: float) -> None:
        while self._noted:
            name = next(iter(self._noted))
            is_young = now - self._noted[name][0] <= REMEMBERED_SECONDS
            if is_young and len(self._noted) <= REMEMBERED_RECORDS:
                break
            del self._noted[name]
