"""Do the work that is due, many resources at once: with one limit in all, and one for each host.

Rules that hold here: one task at a time works on a resource. A host that asks for time gets it. A
host that has not answered for half a minute is away, however many of its resources were asked for
(requests that failed together count once). What fails is tried again, each time later, and in the
end is reported as a problem. Nothing waits in memory for a host that is left alone for long.
"""

import asyncio
import errno
from collections import Counter, deque
from functools import partial
from time import time

import msgspec

from rsnotify.errors import InvalidSettings, Rejected, TryAgain
from rsnotify.resourcesync.retry import Backoff
from rsnotify_client.address import host_of
from rsnotify_client.web import Unreachable
from rsnotify_mirror.fetch import Mismatch
from rsnotify_mirror.plan import CERTAIN, FIRST_SECONDS, Options
from rsnotify_mirror.report import Event, Report
from rsnotify_mirror.room import MAKE_ROOM, NothingFits
from rsnotify_mirror.state import START, State, StateRow
from rsnotify_mirror.storing import Store

LONGEST_SECONDS = 3_600.0  # the most that a host may ask for
AWAY_AFTER = 150  # times the first pause
AWAY_FAILURES = 2
SILENT_FAILURES = 5


class Pause(msgspec.Struct):
    """How long one host is left alone, and why."""

    until: float = 0.0
    problem: str = ""
    failures: int = 0  # in a row; 0 if the host has asked for time
    since: float = 0.0  # since the first of them
    is_away: bool = False

    @property
    def is_hosts_fault(self) -> bool:
        """Whether it is the host, and not one resource, that fails: again and again no answer."""
        return self.is_away or self.failures >= SILENT_FAILURES

    def failed(
        self, problem: str, began: float, now: float, chance: float, first_seconds: float
    ) -> None:
        """A request that began at `began` was not answered."""
        if began < self.until or (self.until > now and not self.failures):
            return
        if not self.failures:
            self.since = began
        longest = AWAY_AFTER * first_seconds
        seconds = Backoff(first_seconds, longest, CERTAIN).seconds(self.failures, chance)
        self.failures += 1
        self.problem = problem
        self.until = now + seconds
        self.is_away = self.failures >= AWAY_FAILURES and now - self.since >= longest


def asked_for(seconds: float, host: str, now: float) -> Pause:
    """The pause that the host asks for.

    >>> asked_for(9_999, "http://a.example", now=100.0).until
    3700.0
    """
    return Pause(now + min(seconds, LONGEST_SECONDS), f"{host} has asked for time")


PULLED = 250
WAITING = 1_000
ATTEMPTS = 5  # soon after each other; then it is reported, and tried again much later
LATER_SECONDS = 300.0
LATEST_SECONDS = 3_600.0
OTHERS_SECONDS = 0.3  # how often to look for hosts other than the busy ones
SOON_SECONDS = LATER_SECONDS / 4
COMMIT_SECONDS = 0.2
NOT_IN_THIS_RUN = float("inf")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
WRITE_ANEW = "mount its file system so that it may be written"


def delay(attempts: int, chance: float, first_seconds: float = FIRST_SECONDS) -> float:
    """How long to wait after this many failures: soon at first, then five minutes to an hour.

    >>> [round(delay(attempts, 0.5), 2) for attempts in (0, 1, 4, 5, 99)]
    [0.15, 0.3, 2.4, 225.0, 2700.0]
    """
    if attempts < ATTEMPTS:
        return Backoff(first_seconds, LATER_SECONDS, CERTAIN).seconds(attempts, chance)
    return Backoff(LATER_SECONDS, LATEST_SECONDS, CERTAIN).seconds(attempts - ATTEMPTS, chance)


class Workers:
    """Works on what is due until `finish`, or until nothing is left."""

    def __init__(self, state: State, store: Store, report: Report, options: Options) -> None:
        self._state = state
        self._store = store
        self._report = report
        self._jobs, self._per_host = options.jobs, options.per_host
        self._first_seconds = options.first_retry_seconds
        self._waiting: dict[str, deque[tuple[int, StateRow]]] = {}  # by host
        self._waiting_count = 0
        self._known: set[str] = set()  # waiting or being worked on
        self._tasks: set[asyncio.Task[None]] = set()
        self._tasks_at: Counter[str] = Counter()
        self._pauses: dict[str, Pause] = {}  # by host
        self._in_trouble: set[str] = set()  # hosts whose failure was reported in this run
        self._awake = asyncio.Event()
        self._rests = asyncio.Event()
        self._may_be_more = True  # than is known to be due
        self._read_to = START  # of what is due
        self._committed = 0.0
        self._looked = time()
        self._ends_when_idle = False
        self._gives_up = False
        self.problem: BaseException | None = None

    def wake(self) -> None:
        """There may be something to do."""
        self._may_be_more = True
        self._awake.set()

    async def rest(self) -> None:
        """Wait until all is done that can be done now; `run` must be running."""
        self._rests.clear()
        self.wake()
        await self._rests.wait()

    def finish(self) -> None:
        """End when all is done that can be done soon."""
        self._ends_when_idle = True
        self.wake()

    async def run(self, *, gives_up: bool = False) -> None:
        """Work until cancelled, or until all is done after `finish`; `gives_up` leaves failures."""
        self._ends_when_idle, self.problem = False, None
        self._gives_up = gives_up
        self._in_trouble.clear()
        self._pauses = {host: each for host, each in self._pauses.items() if not each.failures}
        try:
            while self.problem is None:
                self._awake.clear()
                self._start_what_can()
                self._commit_now_and_then()
                if self._has_rest():
                    return
                await self._wait()
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._state.commit()
        raise self.problem

    def _has_rest(self) -> bool:
        """Whether nothing is left to do, so that `run` ends."""
        if self._tasks:
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
        """Start work at every host that has room; whether anything could be started."""
        now, before = time(), self._waiting_count
        for host, queue in list(self._waiting.items()):
            if (pause := self._pause_of(host, now)) is None:
                self._start_at(host, queue)
            elif pause.is_away or pause.until - now > SOON_SECONDS:
                self._put_off(queue, pause, now)
            if not queue:
                del self._waiting[host]
        return self._waiting_count < before

    def _pause_of(self, host: str, now: float) -> Pause | None:
        """The pause of this host, if it is not over."""
        pause = self._pauses.get(host)
        if pause is None or pause.until > now:
            return pause
        if not pause.failures:
            del self._pauses[host]
        return None

    def _put_off(self, queue: deque[tuple[int, StateRow]], pause: Pause, now: float) -> None:
        """Put off all that waits for this host; if it is away, one of them asks if it is back."""
        rows = [row for each in queue if (row := self._as_planned(*each)) is not None]
        self._waiting_count -= len(queue)
        queue.clear()
        for number, row in enumerate(rows):
            self._known.discard(row.loc)
            if not pause.is_away:
                self._state.failed(row, pause.problem, pause.until)
            elif number == 0:
                self._fail(row, pause.problem, pause.until)
            else:
                self._fail(row, pause.problem, now + self._delay(max(row.attempts, ATTEMPTS)))
        asyncio.get_running_loop().call_soon(self._awake.set)  # there is room for others

    def _start_at(self, host: str, queue: deque[tuple[int, StateRow]]) -> None:
        while queue and self._has_room(host):
            self._waiting_count -= 1
            if (row := self._as_planned(*queue.popleft())) is not None:
                self._work_on(row, host)

    def _has_room(self, host: str) -> bool:
        return self._tasks_at.get(host, 0) < self._per_host and len(self._tasks) < self._jobs

    def _as_planned(self, replanned: int, read: StateRow) -> StateRow | None:
        """The row as it is now; None if nothing is to be done any more."""
        row = read if replanned == self._state.replanned else self._state.again(read)
        if row is None:
            self._known.discard(read.loc)
        return row

    def _work_on(self, row: StateRow, host: str) -> None:
        self._tasks_at[host] += 1
        task = asyncio.create_task(self._work(row, host))
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, row.loc, host))

    def _answers(self, host: str) -> None:
        """The host answers: if it did not before, try again all that failed there."""
        pause = self._pauses.get(host)
        if pause is None or not pause.failures:
            return
        del self._pauses[host]
        if pause.is_hosts_fault:
            self._state.retry_failed_of(host, time())
            self.wake()

    def _ended(self, loc: str, host: str, task: asyncio.Task[None]) -> None:
        """A task has ended, perhaps cancelled before it began."""
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
        """Seconds until work may be due or a host asked again; tasks that end wake us anyway."""
        seconds = self._next_in()
        if seconds <= 0 and not self._tasks and not self._waiting:
            return 0.001
        ends = [self._pauses[host].until - time() for host in self._waiting if host in self._pauses]
        return min([1.0, *(each for each in (seconds, *ends) if each > 0)])

    def _next_in(self) -> float:
        due = self._state.next_due()
        return float("inf") if due is None else due - time()

    def _commit_now_and_then(self) -> None:
        now = time()
        if now - self._committed > COMMIT_SECONDS or not self._tasks:
            self._state.commit()
            self._committed = now

    async def _work(self, row: StateRow, host: str) -> None:
        event: Event | None = None
        began = time()
        try:
            event = await self._store.bring_up_to_date(row)
            if not row.wanted.is_deleted:
                self._answers(host)
        except (TryAgain, Rejected) as error:
            self._failed(row, error, host, began)
        except OSError as error:
            event = self._not_stored(row, error)
        if event is not None:
            self._report(event)

    def _failed(self, row: StateRow, error: TryAgain | Rejected, host: str, began: float) -> None:
        now = time()
        pause = self._paused(error, host, began, now)
        is_away = pause is not None and pause.is_away
        attempts = self._state.attempts_of(row)
        is_final = is_away or isinstance(error, Rejected) or attempts + 1 >= ATTEMPTS
        due = now + self._delay(max(attempts, ATTEMPTS) if is_final else attempts)
        if pause is not None:
            due = pause.until if pause.is_hosts_fault else max(due, pause.until)
        if is_final:
            self._fail(row, error.detail, due)
            return
        self._state.failed(row, error.detail, due)
        may_have_changed = isinstance(error, Mismatch) and not attempts  # since its list was made
        if host not in self._in_trouble and not may_have_changed:
            self._in_trouble.add(host)
            self._report(Event("trouble", row.loc, row.path, problem=error.detail))

    def _paused(
        self, error: TryAgain | Rejected, host: str, began: float, now: float
    ) -> Pause | None:
        """The pause for a host that did not answer, or asks for time."""
        if isinstance(error, Unreachable):
            pause = self._pauses.setdefault(host, Pause())
            problem = f"{host} does not answer: {error.cause}"
            pause.failed(problem, began, now, self._chance(), self._first_seconds)
            return pause
        self._answers(host)
        if seconds := getattr(error, "retry_after_seconds", 0):
            self._pauses[host] = asked_for(seconds, host, now)
        return self._pause_of(host, now)

    def _delay(self, attempts: int) -> float:
        return delay(attempts, self._chance(), self._first_seconds)

    def _chance(self) -> float:
        from random import random  # noqa: PLC0415 - seldom needed

        return random()  # noqa: S311

    def _fail(self, row: StateRow, problem: str, due: float) -> None:
        """Report a failure; try again at `due`, unless this run gives up."""
        if self._state.failed(row, problem, NOT_IN_THIS_RUN if self._gives_up else due):
            self._report(Event("failed", row.loc, row.path, problem=problem))

    def _not_stored(self, row: StateRow, error: OSError) -> Event:
        """A disk that takes nothing ends the mirror; what is in the way of one file does not."""
        place = f" as {row.path}" if row.path and error.errno not in FULL else ""
        problem = f"{row.loc} cannot be stored{place}: {error.strerror or error}"
        self._state.failed(
            row, problem, NOT_IN_THIS_RUN if self._gives_up else time() + LATER_SECONDS
        )
        if error.errno in FULL:
            advice = WRITE_ANEW if error.errno == errno.EROFS else MAKE_ROOM
            advice = error.advice if isinstance(error, NothingFits) else advice
            self.problem = InvalidSettings(
                f"{problem}: {advice}, then start again; nothing is lost"
            )
        return Event("failed", row.loc, row.path, problem=problem)
