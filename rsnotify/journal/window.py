"""How a journal is cut into Change Lists: closed windows, the open one, stretches across them.

A window is half open, `(from_, until]`; each begins where the one before ends. A closed window
never changes again, unless Redis loses it, and the open one is the last.
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple, Self

from rsnotify.journal.witness import KnownChange
from rsnotify.resourcesync.change import DAY, MICROSECONDS, MINUTE, Position

WINDOW_BYTES = 50_000_000  # with room for the document around it below the 50 MiB of a sitemap
STRETCH_CHANGES = 50_000
INDEX_ENTRIES = 50_000

EARLY_SECONDS = 60  # between two Resource Lists, of a set of which much changes
EARLY_TIMES = 10  # as long as the list before took: it takes no more than so much of a hub
EARLY_SHARE = 0.1  # of its resources has changed


def has_much_changed(changes: int, resources: int) -> bool:
    """Whether a list of so many resources is worth writing anew before its time."""
    return changes > 0 and changes >= EARLY_SHARE * resources


class Window(NamedTuple):
    """A closed window: what one Change List covers, fixed for good."""

    from_: Position
    until: Position
    changes: int
    size: int  # bytes of its entries, at most
    closed: Position  # when, by the clock of Redis

    @classmethod
    def parse(cls, text: bytes) -> Self:
        from_, until, changes, size, closed = map(int, text.split())
        return cls(Position(from_), Position(until), changes, size, Position(closed))

    def render(self) -> str:
        """The text that `parse` reads."""
        return " ".join(str(int(number)) for number in self)


class JournalRecord(NamedTuple):
    """What Redis keeps of a change journal."""

    created: Position
    first: Position  # where the stream begins
    last: Position  # no change will ever be at or before it
    head: Position  # of the newest change
    window_from: Position
    window_count: int
    window_bytes: int
    changed: Position  # when the newest change came, by the clock of Redis
    packed_until: Position  # closed windows up to here are packed and announced
    grew_until: Position  # up to here it was announced that the open list grew
    mark: str = ""  # of the call that stored the newest change, if it is known

    @property
    def newest(self) -> KnownChange:
        return KnownChange(self.head, self.mark)


class DocumentSchedule(NamedTuple):
    """When documents are due, as the operator has chosen."""

    period: int  # microseconds between the edges of the grid on which windows close
    index_days: int  # how long a closed Change List stays in the index, and then in the archive
    retention_days: int
    resourcelist_minutes: int
    archived_lists: int = 0  # how many replaced Resource Lists are kept
    archived_days: int = 30  # and for how long
    early_seconds: int = EARLY_SECONDS  # between two lists, however much changes

    def index_begin(self, now: int) -> Position:
        """The closed Change Lists that end before this position have left the index."""
        return last_edge(now - self.index_days * DAY, self.period)

    def wants_snapshot(
        self, record: JournalRecord, at: Position, taken: Position, now: Position
    ) -> bool:
        """Whether the snapshot of `at`, taken at `taken`, is old, and something has changed.

        One that was taken later than now, by a clock that has gone back, is as good as old.
        """
        return record.head > at and not 0 <= now - taken < self.resourcelist_minutes * MINUTE

    def until_early_snapshot(
        self, taken: Position, completed: Position, now: Position
    ) -> int | None:
        """For how long a snapshot that was taken then is not followed by another one, however much
        changes; None if that is over."""
        least = max(self.early_seconds * MICROSECONDS, EARLY_TIMES * (completed - taken))
        left = taken + least - now
        return left if left > 0 and taken <= now else None

    def until_snapshot(self, taken: Position, now: Position) -> int | None:
        """For how long a snapshot taken then is not yet old; None if it is old."""
        left = taken + self.resourcelist_minutes * MINUTE - now
        return left if left > 0 and taken <= now else None


class Span(NamedTuple):
    """One moment of a set's Change Lists: its record, and the closed windows asked for."""

    record: JournalRecord
    windows: Sequence[Window]
    oldest: Window | None = None  # of all that are kept


class Stretch(NamedTuple):
    """What one answer to `?from=` covers; without `until` it reaches to the head."""

    from_: Position
    until: Position | None


def ended_at(head: Position, span: Span) -> Span:
    """The same as if this were the newest change: what follows may be given to nobody yet, and a
    window that it has closed is still open."""
    closed = [window for window in span.windows if window.until <= head]
    record, opened = span.record._replace(head=head, mark=""), span.windows[len(closed) :]
    if opened:
        record = record._replace(
            window_from=opened[0].from_,
            window_count=record.window_count + sum([window.changes for window in opened]),
            window_bytes=record.window_bytes + sum([window.size for window in opened]),
        )
    return span._replace(record=record, windows=closed)


def last_edge(now: int, period: int) -> Position:
    """The newest edge of the grid before `now`: an edge itself belongs to what lies before it."""
    return Position(now - 1 - (now - 1) % period)


def is_due(record: JournalRecord, now: int, period: int) -> bool:
    """Whether time closes the open window: it holds something, and an edge has passed."""
    edge = last_edge(now, period)
    return record.window_count > 0 and record.window_from < edge and record.last <= edge


def until_due(record: JournalRecord, now: int, period: int) -> int | None:
    """For how long time does not close the open window; None as long as it is empty."""
    if record.window_count == 0:
        return None
    edge = record.last + -record.last % period
    return (edge if edge > record.window_from else edge + period) + 1 - now


def stretch_after(cursor: Position, span: Span) -> Stretch:
    """As many whole windows after the cursor as one document may hold, at least one.

    It ends where a window ends, so it never changes unless it reaches the head. It ends before
    a gap.
    `span.windows` are those that end after the cursor.
    """
    room_changes, room_bytes, until = STRETCH_CHANGES, WINDOW_BYTES, None
    for window in span.windows:
        room_changes -= window.changes
        room_bytes -= window.size
        has_gap = until is not None and window.from_ > until
        if until is not None and (has_gap or room_changes < 0 or room_bytes < 0):
            return Stretch(cursor, until)
        until = window.until
    if until is not None and span.record.window_from > until:
        return Stretch(cursor, until)
    open_fits = span.record.window_count <= room_changes and span.record.window_bytes <= room_bytes
    reaches_head = until is None or open_fits
    return Stretch(cursor, None if reaches_head else until)


def kept_from(span: Span) -> Position:
    """The position where the kept history begins."""
    return span.record.window_from if span.oldest is None else span.oldest.from_


def following_from(span: Span) -> Position:
    """Where the first of these windows begins, or the open one if there are none: what was before
    it and behind the cursor is not kept, or was lost."""
    return span.windows[0].from_ if span.windows else span.record.window_from


def whole_from(span: Span) -> Position:
    """Where the history begins that is kept, and without a gap among these windows."""
    begin = span.record.window_from
    for window in reversed(span.windows):
        if window.until != begin:
            return begin
        begin = window.from_
    return kept_from(span)


def split(windows: Sequence[Window], begin: int) -> tuple[Sequence[Window], Sequence[Window]]:
    """The windows in the archive, and those in the index: what ends after `begin`.

    The index has room for the open list too; both documents keep to the limit of a sitemap.
    """
    left = sum(1 for _ in takewhile(lambda window: window.until <= begin, windows))
    left = max(left, len(windows) - (INDEX_ENTRIES - 1))
    return windows[:left][-INDEX_ENTRIES:], windows[left:]


def changes_since(
    moment: int, head: int, window_from: int, window_count: int, closed: Iterable[Window]
) -> int | None:
    """How many changes came after a moment. Only whole windows are counted: None if one reaches
    across it. `closed` are those that end after it, `head` is the newest change."""
    if head <= moment:
        return 0
    windows = [*((each.from_, each.changes) for each in closed), (window_from, window_count)]
    if any(begin < moment and changes for begin, changes in windows):
        return None
    return sum(changes for _, changes in windows)
