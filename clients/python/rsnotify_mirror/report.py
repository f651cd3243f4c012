"""What a mirror reports while it works, and the status of a copy for those who watch it.

Rules that hold here: a copy is in step when it has all that the Source has published, nothing
failed, and the Source could be read. The last such moment is remembered, so that a mirror that has
ended, or a Source that is away, is seen from the outside. Nothing here knows how it is shown.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import nan
from time import time
from typing import Literal, Self

import msgspec

from rsnotify.resourcesync.change import MICROSECONDS, Position, render_datetime
from rsnotify_client.locks import is_held
from rsnotify_client.textfile import Labels, exposition
from rsnotify_mirror.room import CopyRoom
from rsnotify_mirror.state import LOADED, PLACE, State

LAGS_KEPT = 10_000

EventKind = Literal[
    "stored",
    "unchanged",
    "deleted",
    "failed",
    "trouble",  # the first failure at a host, which is tried again soon
    "skipped",
    "kept",  # no list names it, but it is there
    "baseline",
    "live",
    "synced",
    "verified",  # the copy of a running mirror was audited
]


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happened."""

    event: EventKind
    loc: str | None = None
    path: str | None = None
    change: str | None = None
    length: int | None = None
    links: tuple[dict[str, object], ...] = ()
    lag_seconds: float | None = None
    problem: str | None = None
    resources: int | None = None  # of the Resource List, that are selected
    to_do: int | None = None
    listed: int | None = None  # in the Resource List, where only some of them are selected
    selection: str | None = None
    checked: int | None = None  # by an audit
    repaired: int | None = None
    wrong: int | None = None  # that it has found and could not repair
    to_fetch_bytes: int | None = None  # of the resources whose length the Source states
    room_bytes: int | None = None  # for them


def problem_of(loc: str | None, problem: str) -> str:
    """The problem, with the resource's address before it if it does not name that itself.

    >>> problem_of("http://a/", "http://a/ answers 404"), problem_of("http://a/", "it is too long")
    ('http://a/ answers 404', 'http://a/: it is too long')
    """
    return problem if not loc or problem.startswith(loc) else f"{loc}: {problem}"


Report = Callable[[Event], None]


class Sums:
    """What was done since the start."""

    def __init__(self) -> None:
        self.stored = self.deleted = self.unchanged = self.failed = self.skipped = 0
        self.fetched_bytes = 0
        self.lags: deque[float] = deque(maxlen=LAGS_KEPT)

    def add(self, event: Event) -> None:
        if event.event == "stored":
            self.stored += 1
        elif event.event in ("deleted", "unchanged", "failed", "skipped"):
            setattr(self, event.event, getattr(self, event.event) + 1)
        if event.lag_seconds is not None:
            self.lags.append(event.lag_seconds)


def percentile(values: Sequence[float], part: float) -> float | None:
    """The value that this share of the values does not exceed.

    >>> percentile([3.0, 1.0, 2.0], 0.5)
    2.0
    """
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


LOOK_SECONDS = 10.0
PROBLEM_CHARACTERS = 1_000
NOT_READ = "the Source has not been read yet"
NOT_WHOLE = "not all of the Source could be read"


class CopyStatus(msgspec.Struct, frozen=True):
    """What a copy is at one moment."""

    directory: str
    source: str | None
    resources: int
    to_do: int
    failed: int
    in_step: bool  # now, or when a mirror ran last
    in_step_since: str | None
    in_step_at: str | None  # the last moment at which it was in step
    behind_seconds: float | None  # since then; None if it never was
    looked_at: str | None  # when the mirror recorded this
    running: bool
    last_error: str | None
    last_error_at: str | None
    verified_at: str | None = None  # when the running mirror has audited all of the copy last
    verified_repaired: int | None = None
    verified_wrong: int | None = None  # what it could not repair
    to_publish: int | None = None  # changes that its set has not had; None if it has no set
    room_bytes: int | None = None  # that the copy may still take
    to_fetch_bytes: int | None = None  # as far as the Source states lengths; where it is asked for
    selection: str | None = None  # as on the command line, if it is not to have all


VERIFIED = ("verified_repaired", "verified_wrong")
OnStatus = Callable[[CopyStatus, Sums], None]


class Watch:
    """Records the status of a mirror, from within it."""

    def __init__(self, state: State, sums: Sums, on_status: OnStatus | None = None) -> None:
        self._state = state
        self._sums = sums
        self._on_status = on_status
        self._error: tuple[str, float] | None = None
        self.trouble: str | None = NOT_READ  # see `Planner.trouble`
        self.room: CopyRoom | None = None  # of a copy that has files

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Record the status once more; an interruption says nothing about the copy."""
        if isinstance(error, Exception):
            self.trouble = getattr(error, "detail", "") or str(error) or type(error).__name__
            self.note_error(self.trouble)
        self.look(is_running=False)

    def forget_error(self) -> None:
        """A run has its own last error, never that of an earlier one."""
        self._state.set_fact("error", None)
        self._state.set_fact("error_at", None)

    def note(self, event: Event) -> None:
        if event.problem is not None:
            self.note_error(problem_of(event.loc, event.problem))

    def note_error(self, problem: str) -> None:
        self._error = problem[:PROBLEM_CHARACTERS], time()

    @property
    def verified_at(self) -> float | None:
        found = self._state.fact("verified_at")
        return None if found is None else _seconds(found)

    def note_verified(self, repaired: int, wrong: int) -> None:
        self._state.set_fact("verified_at", _text(time()))
        for name, count in zip(VERIFIED, (repaired, wrong), strict=True):
            self._state.set_fact(name, str(count))

    def look(self, *, is_running: bool = True) -> None:
        """Record the status of now."""
        state, trouble, now = self._state, self.trouble, _text(time())
        was_in_step = state.fact("in_step_since") is not None
        is_in_step = self._is_in_step(was_in_step=was_in_step)
        if is_in_step and trouble is None:
            state.set_fact("in_step_at", now)
        if trouble == NOT_READ:
            is_in_step &= was_in_step  # as the last run left it
        elif trouble is not None:
            is_in_step = False
        if is_in_step != was_in_step:
            state.set_fact("in_step_since", now if is_in_step else None)
        if self._error is not None:
            state.set_fact("error", self._error[0])
            state.set_fact("error_at", _text(self._error[1]))
        if self.room is not None:
            state.set_fact("room", str(self.room.left().length))
        state.set_fact("looked_at", now)
        state.commit()
        if self._on_status is not None:
            self._on_status(status_of(state, is_running=is_running), self._sums)

    def _is_in_step(self, *, was_in_step: bool) -> bool:
        """Changes that keep coming do not put a copy out of step, as long as they are soon done."""
        _, to_do, failed = self._state.counts()
        first = self._state.next_due()
        is_soon_done = was_in_step and first is not None and time() - first < LOOK_SECONDS
        return not failed and (not to_do or is_soon_done)


def status_of(state: State, *, is_running: bool | None = None) -> CopyStatus:
    """The status of a copy, as its mirror recorded it last; who has the directory, runs."""
    resources, to_do, failed = state.counts()
    in_step_at, looked_at, now = state.fact("in_step_at"), state.fact("looked_at"), time()
    numbers = map(state.fact, (*VERIFIED, "room"))
    repaired, wrong, room = (None if each is None else int(each) for each in numbers)
    return CopyStatus(
        str(state.directory),
        state.fact("source"),
        resources,
        to_do,
        failed,
        state.fact("in_step_since") is not None and not failed,
        state.fact("in_step_since"),
        in_step_at,
        None if in_step_at is None else round(max(0.0, now - _seconds(in_step_at)), 1),
        looked_at,
        is_held(state.directory) if is_running is None else is_running,
        state.fact("error"),
        state.fact("error_at"),
        state.fact("verified_at"),
        *(repaired, wrong),
        to_publish=_to_publish(state),
        room_bytes=room,
        selection=str(state.selection) or None,
    )


def _to_publish(state: State) -> int | None:
    """What waits to be published; all that the copy holds, if its set has not had that yet."""
    if state.fact(PLACE) is None:
        return None
    return state.outgoing() + (state.held_files() if state.fact(LOADED) is None else 0)


def _text(seconds: float) -> str:
    return render_datetime(int(seconds * MICROSECONDS))


def _seconds(text: str) -> float:
    return int(Position.parse(text)) / MICROSECONDS


# For Prometheus ---------------------------------------------------------------------------------

METRICS: Mapping[str, tuple[str, str]] = {
    "rsnotify_mirror_in_step": ("gauge", "1 if all that the Source published is in the copy"),
    "rsnotify_mirror_in_step_timestamp_seconds": ("gauge", "When it was in step last; 0: never"),
    "rsnotify_mirror_looked_timestamp_seconds": ("gauge", "When these numbers were written"),
    "rsnotify_mirror_resources": ("gauge", "Resources that the mirror knows"),
    "rsnotify_mirror_to_do": ("gauge", "Resources with work to do"),
    "rsnotify_mirror_failed": ("gauge", "Resources that failed and are tried again"),
    "rsnotify_mirror_to_publish": ("gauge", "Changes that wait to be published"),
    "rsnotify_mirror_room_bytes": ("gauge", "What the copy may still take of its disk"),
    "rsnotify_mirror_stored_total": ("counter", "Resources stored since the start"),
    "rsnotify_mirror_deleted_total": ("counter", "Resources deleted since the start"),
    "rsnotify_mirror_failures_total": ("counter", "Failures since the start"),
    "rsnotify_mirror_fetched_bytes_total": ("counter", "Bytes fetched since the start"),
}


def metrics_of(found: Mapping[str, tuple[CopyStatus, Sums]]) -> str:
    """The text of Prometheus' textfile collector; a label for each directory."""
    values: dict[Labels, tuple[float, ...]] = {
        (("directory", directory),): _values(*each) for directory, each in found.items()
    }
    return exposition(METRICS, values)


def _values(status: CopyStatus, sums: Sums) -> tuple[float, ...]:
    at = (status.in_step_at, status.looked_at)
    in_step_at, looked_at = (_seconds(each) if each else 0 for each in at)
    return (
        *(status.in_step, in_step_at, looked_at, status.resources, status.to_do, status.failed),
        status.to_publish or 0,
        nan if status.room_bytes is None else status.room_bytes,
        *(sums.stored, sums.deleted, sums.failed + sums.skipped, sums.fetched_bytes),
    )
