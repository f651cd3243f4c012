"""The sets that a chore has to look at: those that have changed, and those whose time has come."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from time import monotonic

from rsnotify.journal.hub import Hub
from rsnotify.journal.set_options import SetRecord
from rsnotify.resourcesync.change import MICROSECONDS, Position

OUTDATED = 100  # entries of the heap that may be so before it is made anew


class Due:
    """A time for each name; the earliest come out first."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []  # also what was planned otherwise since

    def __contains__(self, name: str) -> bool:
        return name in self._at

    def __len__(self) -> int:
        return len(self._at)

    @property
    def kept(self) -> int:
        """How many plans are in memory, also those that have been changed since."""
        return len(self._heap)

    def plan(self, name: str, at: float) -> None:
        """At this time, whatever was planned."""
        self._at[name] = at
        heappush(self._heap, (at, name))
        if len(self._heap) > 2 * len(self._at) + OUTDATED:
            self._heap = [(at, name) for name, at in self._at.items()]
            heapify(self._heap)

    def plan_by(self, names: Iterable[str], at: float) -> None:
        """At this time or earlier."""
        for name in names:
            if at < self._at.get(name, float("inf")):
                self.plan(name, at)

    def cancel(self, name: str) -> None:
        self._at.pop(name, None)

    def take(self, now: float, most: int) -> list[str]:
        """Those that are due, at most so many, the earliest first; they are planned no more."""
        taken: list[str] = []
        while self._heap and self._heap[0][0] <= now and len(taken) < most:
            at, name = heappop(self._heap)
            if self._at.get(name) == at:
                del self._at[name]
                taken.append(name)
        return taken


MOST = 500  # in one round; the others wait for the next
AGAIN_SECONDS = 1.0  # after a look that failed
STEP_SECONDS = 5.0  # a clock that moves by more than this was set
NONE_SEEN = -1, Position(0)  # a version of the sets before the first

Look = Callable[[Sequence[str]], Awaitable[Mapping[str, float | None]]]
"""Looks at these sets: after how many seconds each is due again, or None until it changes."""


class DueSets:
    """When a chore must look at each set next."""

    def __init__(self, hub: Hub, *, growth_waits: bool, clock: Callable[[], float] = monotonic):
        self._hub = hub
        self._growth_waits = growth_waits  # for what is planned already
        self._clock = clock
        self.due = Due()
        self._grown = hub.feeds.note_growth()
        self._records: dict[str, SetRecord] = {}  # as they were planned
        self._version = NONE_SEEN
        self._offset: float | None = None  # of the clock that all hub processes share
        hub.repairing.recover.append(self.look_at_all)

    async def look_at_all(self) -> None:
        """Redis may have lost what was done for any set: all are as new in the next round, also if
        one is under way now."""
        self._version, self._records = NONE_SEEN, {}

    async def round(self, now: Position, look: Look) -> None:
        """Look at what is due; what fails is due again in the next round."""
        await self._look_if_set(now)
        self._plan()
        names = self.due.take(self._clock(), MOST)
        for name in names:
            self.due.plan(name, self._clock() + AGAIN_SECONDS)
        again = await look([name for name in names if self._is_worth_it(name)])
        for name in names:
            self._plan_again(name, again.get(name))

    def _plan(self) -> None:
        """What has changed since the last round is due now."""
        grown = [each for each in self._grown if not (self._growth_waits and each in self.due)]
        self._grown.clear()
        self.due.plan_by(grown, self._clock())
        version = self._hub.sets_version, self._hub.sets_changed
        if version != self._version:
            self._version = version
            before, self._records = self._records, dict(self._hub.sets)
            changed = [name for name, new in self._records.items() if before.get(name) != new]
            self.due.plan_by(changed, self._clock())

    def _is_worth_it(self, name: str) -> bool:
        """Whether anything was published to it: otherwise it has nothing to close or to list."""
        return name in self._hub.sets and self._hub.has_changed(name)

    def _plan_again(self, name: str, seconds: float | None) -> None:
        if seconds is None:
            self.due.cancel(name)
        else:
            self.due.plan(name, self._clock() + max(seconds, AGAIN_SECONDS))

    async def _look_if_set(self, now: Position) -> None:
        """A clock that was set makes plans worthless."""
        offset = now / MICROSECONDS - self._clock()
        before, self._offset = self._offset, offset
        if before is not None and abs(offset - before) > STEP_SECONDS:
            await self.look_at_all()
