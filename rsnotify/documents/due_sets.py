"""Which sets a chore looks at next.

`DueSets` names those that have changed, or whose time has come: a quiet set costs nothing. `InTurn`
takes all sets, some in each round, for what only time changes.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from time import monotonic

from rsnotify.errors import TryAgain
from rsnotify.live.journals import Journals
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.sets.options import SetRecord

OUTDATED = 100  # entries of the heap that may be so before it is made anew

MOST = 500  # in one round; the others wait for the next
AGAIN_SECONDS = 1.0  # after a look that failed
STEP_SECONDS = 5.0  # a clock that moves by more than this was set
NONE_SEEN = -1, Position(0)  # a version of the sets before the first

SOME = 200

Look = Callable[[Sequence[str]], Awaitable[Mapping[str, float | None]]]
"""Does a chore for these sets; the seconds until each is due again, None until it changes."""


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
        """Plan the name for this time, whatever was planned."""
        self._at[name] = at
        heappush(self._heap, (at, name))
        if len(self._heap) > 2 * len(self._at) + OUTDATED:
            self._heap = [(at, name) for name, at in self._at.items()]
            heapify(self._heap)

    def plan_by(self, names: Iterable[str], at: float) -> None:
        """Plan the names for this time, except those that are planned earlier."""
        for name in names:
            if at < self._at.get(name, float("inf")):
                self.plan(name, at)

    def cancel(self, name: str) -> None:
        self._at.pop(name, None)

    def take(self, now: float, most: int) -> list[str]:
        """Take the names that are due, at most so many, the earliest first."""
        taken: list[str] = []
        while self._heap and self._heap[0][0] <= now and len(taken) < most:
            at, name = heappop(self._heap)
            if self._at.get(name) == at:
                del self._at[name]
                taken.append(name)
        return taken


class DueSets:
    """Knows when a chore must look at each set next."""

    def __init__(
        self, journals: Journals, *, growth_seconds: float, clock: Callable[[], float] = monotonic
    ):
        self._journals = journals
        self._growth_seconds = growth_seconds  # that it waits if the set is planned already
        self._clock = clock
        self.due = Due()
        self._grown = journals.feeds.note_growth()
        self._records: dict[str, SetRecord] = {}  # as they were planned
        self._version = NONE_SEEN
        self._offset: float | None = None  # of the clock that all hub processes share
        journals.after_another_server.append(self.look_at_all)

    async def look_at_all(self) -> None:
        """Redis may have lost what was done for any set: all are as new in the next round, also if
        one is under way now."""
        self._version, self._records = NONE_SEEN, {}

    async def round(self, now: Position, look: Look) -> None:
        """Do the chore for all sets that are due; one that fails is due again in the next round."""
        await self._look_if_set(now)
        self._plan()
        names = self.due.take(self._clock(), MOST)
        for name in names:
            self.due.plan(name, self._clock() + AGAIN_SECONDS)
        again = await look([name for name in names if self._is_worth_it(name)])
        for name in names:
            self._plan_again(name, again.get(name))

    def _plan(self) -> None:
        """Make the sets due that have changed since the last round."""
        now, grown = self._clock(), list(self._grown)
        self._grown.clear()
        self.due.plan_by([each for each in grown if each not in self.due], now)
        self.due.plan_by(grown, now + self._growth_seconds)
        version = self._journals.known.number, self._journals.known.changed
        if version != self._version:
            self._version = version
            before, self._records = self._records, dict(self._journals.sets)
            changed = [name for name, new in self._records.items() if before.get(name) != new]
            self.due.plan_by(changed, self._clock())

    def _is_worth_it(self, name: str) -> bool:
        """Whether a change was published to the set: else there is nothing to close or to list."""
        return name in self._journals.sets and self._journals.has_changed(name)

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


class InTurn:
    """Does a chore for some sets in each round until all had their turn, then begins anew."""

    def __init__(self) -> None:
        self._left: list[str] = []

    async def round(
        self, names: Iterable[str], look: Callable[[Sequence[str]], Awaitable[None]]
    ) -> None:
        """Do the chore for the next of these sets, after those of the last round.

        If that is not possible now, the next round begins with them."""
        if not self._left:
            self._left = list(names)[::-1]
        some = self._left[-SOME:]
        del self._left[-SOME:]
        try:
            await look(some[::-1])
        except TryAgain:
            self._left += some
            raise
