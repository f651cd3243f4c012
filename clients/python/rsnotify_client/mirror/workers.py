"""The work that is due, done by many at once: so many in all, so many at each host.

Rules that hold here: one resource is worked on by one at a time; a host that asks for time gets it;
what fails is tried again, each time later, and in the end is a problem that is reported.
"""

import asyncio
import errno
from collections import Counter, deque
from functools import partial
from time import time

from rsnotify.errors import InvalidSettings, Rejected, TryAgain
from rsnotify_client.http1.answer import Answer
from rsnotify_client.http1.target import host_of
from rsnotify_client.mirror.fetch import Begun, Fetched
from rsnotify_client.mirror.report import Event, Report
from rsnotify_client.mirror.state import START, Row, State
from rsnotify_client.mirror.storing import Store
from rsnotify_client.multiplexer import BusyConnection, Multiplexer
from rsnotify_client.web import Unreachable

PULLED = 250
WAITING = 1_000
ATTEMPTS = 5  # quick ones; then it is a problem, and tried again much later
FIRST_SECONDS = 0.2
LATER_SECONDS = 300.0
LATEST_SECONDS = 3_600.0
OTHERS_SECONDS = 0.3  # so often other hosts are looked for than those that are busy
SOON_SECONDS = LATER_SECONDS / 4
COMMIT_SECONDS = 0.2
HOSTS_PAUSE_SECONDS = 3_600.0
GIVEN_UP_AFTER = 3
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def delay(attempts: int, chance: float, first_seconds: float = FIRST_SECONDS) -> float:
    """How long to wait after so many failures: up to ATTEMPTS soon, then five minutes to an hour.

    >>> [delay(attempts, 0.5) for attempts in (0, 1, 4, 5, 99)]
    [0.15, 0.3, 2.4, 225.0, 2700.0]
    """
    if attempts < ATTEMPTS:
        return first_seconds * 2.0**attempts * (0.5 + chance / 2)
    return float(
        min(LATER_SECONDS * 2.0 ** (min(attempts, 20) - ATTEMPTS), LATEST_SECONDS)
        * (0.5 + chance / 2)
    )


class Workers:
    """Works on what is due until it is told to end, or until nothing is left."""

    def __init__(
        self,
        state: State,
        store: Store,
        multiplexer: Multiplexer,
        report: Report,
        *,
        jobs: int,
        per_host: int,
        first_seconds: float = FIRST_SECONDS,
    ) -> None:
        self._state = state
        self._store = store
        self._multiplexer = multiplexer
        self._report = report
        self._jobs = jobs
        self._per_host = per_host
        self._first_seconds = first_seconds
        self._waiting: dict[str, deque[tuple[int, Row]]] = {}  # by host
        self._waiting_count = 0
        self._known: set[str] = set()  # waiting or being worked on
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked = 0  # of those that are worked on without a task
        self._tasks_at: Counter[str] = Counter()
        self._host_until: dict[str, float] = {}
        self._silent: Counter[str] = Counter()  # how often in a row a host did not answer
        self._awake = asyncio.Event()
        self._rests = asyncio.Event()
        self._may_be_more = True  # than is known to be due
        self._read_to = START  # of what is due
        self._committed = 0.0
        self._looked = time()
        self._ends_when_idle = False
        self._runs = False
        self.problem: BaseException | None = None
        multiplexer.when_told = self._go_on

    def wake(self) -> None:
        """There may be something to do."""
        self._may_be_more = True
        self._awake.set()

    async def rest(self) -> None:
        """Until all is done that can be done now; for as long as `run` goes on."""
        self._rests.clear()
        self.wake()
        await self._rests.wait()

    def finish(self) -> None:
        """End when all is done that can be done soon."""
        self._ends_when_idle = True
        self.wake()

    async def run(self) -> None:
        """For ever, or until `finish` and all is done."""
        self._runs, self._ends_when_idle, self.problem = True, False, None
        try:
            while self.problem is None:
                self._awake.clear()
                self._start_what_can()
                self._commit_now_and_then()
                if self._has_rest():
                    return
                await self._wait()
        finally:
            self._runs = False
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._state.commit()
        raise self.problem

    def _has_rest(self) -> bool:
        """Whether that is the end."""
        if self._busy:
            return False
        seconds = self._next_in()
        if seconds > 0:
            self._rests.set()
        return self._ends_when_idle and seconds > SOON_SECONDS

    def _start_what_can(self) -> None:
        if self._waiting_count < self._jobs:
            self._pull()
        if not self._start_some() and time() - self._looked > OTHERS_SECONDS:
            self._looked = time()
            self._pull()
            self._start_some()

    def _start_some(self) -> bool:
        """Start at every host that has room; whether anything could be started."""
        now, before = time(), self._waiting_count
        for host in [each for each in self._waiting if self._host_until.get(each, 0) <= now]:
            self._host_until.pop(host, None)
            self._start_at(host, self._waiting[host])
            if not self._waiting[host]:
                del self._waiting[host]
        return self._waiting_count < before

    def _start_at(self, host: str, queue: deque[tuple[int, Row]]) -> None:
        """Each connection may serve several small ones in turn."""
        has_room, is_given_up = True, self._is_given_up(host)
        while queue:
            has_room = has_room and self._has_room(host)
            behind = None if has_room else self._multiplexer.with_room(host)
            if not has_room and behind is None:
                return
            if (row := self._as_planned(*queue[0])) is not None:
                if is_given_up:
                    self._give_up(row, host)
                elif not self._start_one(row, host, behind):
                    return
            queue.popleft()
            self._waiting_count -= 1

    def _has_room(self, host: str) -> bool:
        at_host = self._tasks_at.get(host, 0) + self._multiplexer.busy_at(host)
        return at_host < self._per_host and len(self._tasks) + self._multiplexer.busy < self._jobs

    def _as_planned(self, replanned: int, read: Row) -> Row | None:
        """The row as it is now; None if nothing is to be done any more."""
        row = read if replanned == self._state.replanned else self._state.row(read.loc)
        if row is None:
            self._known.discard(read.loc)
        return row

    def _start_one(self, row: Row, host: str, behind: BusyConnection | None) -> bool:
        """Whether it could be, with the room that there is."""
        if self._store.ask_at_once(row, partial(self._heard, row, host), behind):
            self._asked += 1
            return True
        if behind is None:
            self._work_on(row, host)
        return behind is None

    def _give_up(self, row: Row, host: str) -> None:
        self._known.discard(row.loc)
        if event := self._fail(row, f"{host} does not answer", LATER_SECONDS):
            self._report(event)

    def _work_on(self, row: Row, host: str, begun: Begun | None = None) -> None:
        self._tasks_at[host] += 1
        task = asyncio.create_task(self._work(row, host, begun))
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, row.loc, host))

    @property
    def _busy(self) -> bool:
        return bool(self._tasks or self._asked)

    def _heard(self, row: Row, host: str, begun: Begun | None) -> None:
        """What is as it should be is stored at once; the rest is for a task."""
        self._asked -= 1
        if not self._runs:
            self._leave(row, begun)
            return
        try:
            if isinstance(begun, Fetched):
                self._put(row, host, begun)
            else:
                self._work_on(row, host, begun)
        except Exception as error:
            self.problem = error

    def _leave(self, row: Row, begun: Begun | None) -> None:
        """It stays due: nothing is begun for a run that has ended."""
        self._known.discard(row.loc)
        if isinstance(begun, Answer):
            begun.close()

    def _go_on(self) -> None:
        if not self._runs:
            return
        try:
            self._start_what_can()
            self._commit_now_and_then()
        except Exception as error:
            self.problem = error
        if self.problem is not None or not self._busy:
            self._awake.set()

    def _put(self, row: Row, host: str, fetched: Fetched) -> None:
        try:
            event = self._store.put_at_once(row, fetched)
            if host in self._silent:
                del self._silent[host]
        except OSError as error:
            event = self._not_stored(row, error)
        self._known.discard(row.loc)
        self._report(event)

    def _is_given_up(self, host: str) -> bool:
        """Whoever wants to end does not wait for each resource of a host that is away."""
        return self._ends_when_idle and self._silent[host] >= GIVEN_UP_AFTER * self._per_host

    def _ended(self, loc: str, host: str, task: asyncio.Task[None]) -> None:
        """Even one that was cancelled before it began."""
        self._tasks.discard(task)
        self._known.discard(loc)
        self._tasks_at[host] -= 1
        if not self._tasks_at[host]:
            del self._tasks_at[host]
        if not task.cancelled() and task.exception() is not None:
            self.problem = task.exception()
        self._awake.set()

    def _pull(self) -> None:
        if self._waiting_count >= WAITING or not self._may_be_more:
            return
        limit = PULLED + (len(self._known) if self._read_to == START else 0)
        due, last = self._state.due(time(), self._read_to, limit, self._known)
        self._may_be_more = last is not None
        self._read_to = last or START
        self._store.settle(due)
        for row in due:
            self._known.add(row.loc)
            self._waiting.setdefault(host_of(row.loc), deque()).append((self._state.replanned, row))
        self._waiting_count += len(due)

    async def _wait(self) -> None:
        is_behind = self._state.is_behind
        try:
            async with asyncio.timeout(COMMIT_SECONDS if is_behind else self._pause()):
                await self._awake.wait()
        except TimeoutError:
            self._may_be_more |= not is_behind  # its time has come

    def _pause(self) -> float:
        """Until something may be due, or a host may be asked again; what ends wakes us anyway."""
        seconds = self._next_in()
        if seconds <= 0 and not self._busy and not self._waiting:
            return 0.001
        ends = [self._host_until.get(host, 0) - time() for host in self._waiting]
        return min([1.0, *(each for each in (seconds, *ends) if each > 0)])

    def _next_in(self) -> float:
        due = self._state.next_due()
        return float("inf") if due is None else due - time()

    def _commit_now_and_then(self) -> None:
        now = time()
        if now - self._committed > COMMIT_SECONDS or not self._busy:
            self._state.commit()
            self._committed = now

    async def _work(self, row: Row, host: str, begun: Begun | None) -> None:
        event: Event | None = None
        try:
            event = await self._store.bring_up_to_date(row, begun)
            self._silent.pop(host, None)
        except (TryAgain, Rejected) as error:
            event = self._failed(row, error, host)
        except OSError as error:
            event = self._not_stored(row, error)
        if event is not None:
            self._report(event)

    def _failed(self, row: Row, error: TryAgain | Rejected, host: str) -> Event | None:
        pause = getattr(error, "retry_after_seconds", 0)
        if isinstance(error, Unreachable):
            self._silent[host] += 1
            pause = self._delay(self._silent[host] // self._per_host)
        if pause:
            self._host_until[host] = time() + min(pause, HOSTS_PAUSE_SECONDS)
        is_final = isinstance(error, Rejected) or row.attempts + 1 >= ATTEMPTS
        attempts = max(row.attempts, ATTEMPTS) if is_final else row.attempts
        wait = max(pause, self._delay(attempts))
        if is_final:
            return self._fail(row, error.detail, wait)
        self._state.failed(row, error.detail, time() + wait)
        return None

    def _delay(self, attempts: int) -> float:
        from random import random  # noqa: PLC0415 - seldom needed

        return delay(attempts, random(), self._first_seconds)  # noqa: S311

    def _fail(self, row: Row, problem: str, wait: float) -> Event | None:
        is_so = self._state.failed(row, problem, time() + wait)
        return Event("failed", row.loc, row.path, problem=problem) if is_so else None

    def _not_stored(self, row: Row, error: OSError) -> Event:
        """A full disk ends the mirror; what stands in the way of one resource does not."""
        problem = f"{row.path or row.loc} cannot be stored: {error.strerror or error}"
        self._state.failed(row, problem, time() + LATER_SECONDS)
        if error.errno in FULL:
            self.problem = InvalidSettings(
                [f"{problem}: make room, then start again; nothing is lost"]
            )
        return Event("failed", row.loc, row.path, problem=problem)
