"""What `rsnotify mirror` shows while it works and at its end: progress, lines or JSON."""

import asyncio
import sys
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

import msgspec
import typer

from rsnotify.cli.output import counted, in_time, json_line, put_aside, size
from rsnotify.cli.terminal import echo, for_terminal
from rsnotify_client.address import host_of
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.report import Event, Sums, percentile, problem_of

LINE_SECONDS = 10.0
BAR_SECONDS = 0.2
PROBLEMS_SHOWN = 20


def say(line: str | bytes, *, err: bool = False) -> None:
    """A line of one of several tasks; if nobody reads it, the command ends, as any other does."""
    try:
        typer.echo(line if isinstance(line, bytes) else for_terminal(line), err=err)
    except BrokenPipeError:
        put_aside(2 if err else 1)
        raise typer.Exit(1) from None


class Shown(NamedTuple):
    """How the work is shown."""

    json: bool = False
    once: bool = False
    lag: bool = False
    quiet: bool = False
    name: str = ""  # of the set, where there are several


class Reporter:
    """Says what a mirror does; and remembers of it what the bar says."""

    def __init__(self, shown: Shown, clock: Callable[[], float] = monotonic) -> None:
        self.is_live = False
        self._shown, self._clock = shown, clock
        self._changed_at: float | None = None
        self._in_trouble: set[str] = set()  # hosts

    @property
    def changed_ago(self) -> float | None:
        """How long ago something changed in the copy last."""
        return None if self._changed_at is None else self._clock() - self._changed_at

    def __call__(self, event: Event) -> None:
        if event.event == "baseline" and event.listed and not event.resources:
            echo(named(_none_selected(event), self._shown), err=True)
        self.is_live = self.is_live or event.event == "live"
        if event.event in ("stored", "deleted"):
            self._changed_at = self._clock()
        if self._shown.quiet:
            return
        if self._shown.json:
            say(encoded(event, self._shown))
        elif not self._may_succeed_yet(event):
            self._say_line(event)

    def _may_succeed_yet(self, event: Event) -> bool:
        """What does not is named at the end."""
        is_once_failed = event.event == "failed" and self._shown.once
        return is_once_failed and host_of(event.loc or "") in self._in_trouble

    def _say_line(self, event: Event) -> None:
        line = _line(event, is_live=self.is_live and not self._shown.lag)
        if line is None:
            return
        if event.event in ("failed", "trouble"):
            self._in_trouble.add(host_of(event.loc or ""))
        is_trouble = event.event in ("failed", "skipped", "kept", "trouble")
        say(named(line, self._shown), err=is_trouble)


def standing(changed_ago: float | None, trouble: str | None) -> str:
    """How a mirror stands that follows its Source and has nothing to do."""
    if trouble is not None:
        return f"not live: {trouble}"
    if changed_ago is None:
        return "live; no change yet"
    return f"live; last change {in_time(changed_ago)} ago"


def named(line: str, shown: Shown) -> str:
    return f"{shown.name}: {line}" if shown.name else line


def encoded(event: object, shown: Shown) -> bytes:
    """As JSON, with its set where there are several."""
    fields = msgspec.to_builtins(event)
    return json_line({"set": shown.name} | fields if shown.name else fields)


def _line(event: Event, *, is_live: bool) -> str | None:
    """The line for a person; during a baseline only what could not be read is shown."""
    if event.event == "baseline":
        return f"{_named(event)}; {event.to_do} to fetch or remove{_room(event)}"
    if event.event in ("failed", "skipped", "kept", "trouble"):
        what = "trying again" if event.event == "trouble" else event.event
        return f"{what}: {problem_of(event.loc, event.problem or '')}"
    if event.event == "verified":
        if event.problem is not None:
            return f"not verified: {event.problem}"
        repaired, wrong = f"{event.repaired} repaired", f"{event.wrong} still wrong"
        return f"verified: {counted(event.checked or 0, 'resource')}, {repaired}, {wrong}"
    is_news = event.event in ("stored", "deleted")
    return f"{event.event}  {event.loc}" if is_live and is_news else None


def _room(event: Event) -> str:
    if event.problem is not None:
        return f"; {event.problem}"
    if not event.to_fetch_bytes or event.room_bytes is None:
        return ""
    return f", {size(event.to_fetch_bytes)} known; room for {size(event.room_bytes)}"


def _named(event: Event) -> str:
    """What the Resource List has; what changed since it was made comes on top."""
    if event.resources is None:
        return "the Source has no Resource List"
    if event.selection is None:
        return f"the Resource List has {counted(event.resources, 'resource')}"
    selected = f"{event.resources} selected by {event.selection}"
    return f"the Resource List has {counted(event.listed or 0, 'resource')}, {selected}"


def _none_selected(event: Event) -> str:
    return (
        f"{event.selection} selects none of {counted(event.listed or 0, 'resource')}: "
        "a glob is matched against the whole URI, such as '*/pdf/*'"
    )


async def show(mirror: AsyncMirror, shown: Shown, report: Reporter) -> None:
    if not shown.json and not shown.name and sys.stderr.isatty():
        return await _show_bar(mirror, report)
    while True:
        await asyncio.sleep(LINE_SECONDS)
        if shown.lag:
            _say_lag(mirror.sums, shown)
        elif not shown.json and not shown.quiet and mirror.state.counts()[1]:
            echo(named(_sum_line(mirror), shown), err=True)


async def _show_bar(mirror: AsyncMirror, report: Reporter) -> None:
    from rich import progress as bars
    from rich.console import Console

    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), bars.MofNCompleteColumn())
    remaining, console = bars.TimeRemainingColumn(), Console(stderr=True)
    with bars.Progress(*columns, remaining, console=console) as progress:
        task = progress.add_task("mirroring", total=None)
        began, before = monotonic(), mirror.sums.fetched_bytes
        while True:
            await asyncio.sleep(BAR_SECONDS)
            total, to_do, _ = mirror.state.counts()
            if report.is_live and not to_do:  # the next work has a rate of its own
                began, before = monotonic(), mirror.sums.fetched_bytes
                words = standing(report.changed_ago, mirror.trouble)
            else:
                rate = (mirror.sums.fetched_bytes - before) / max(monotonic() - began, 0.1)
                words = f"{size(mirror.sums.fetched_bytes)} at {size(rate)}/s"
            progress.update(task, description=words, completed=total - to_do, total=total)


def say_end(mirror: AsyncMirror, shown: Shown) -> None:
    if shown.lag:
        _say_lag(mirror.sums, shown)
    if shown.json or shown.quiet:
        return
    echo(named(_sum_line(mirror), shown), err=True)
    if shown.once:
        _say_problems(mirror, shown)


def _say_problems(mirror: AsyncMirror, shown: Shown) -> None:
    for loc, problem in mirror.state.problems(PROBLEMS_SHOWN):
        echo(named(f"failed: {problem_of(loc, problem)}", shown), err=True)
    if (more := mirror.state.counts()[2] - PROBLEMS_SHOWN) > 0:
        echo(named(f"and {more} more failed; --json names them all", shown), err=True)


def _sum_line(mirror: AsyncMirror) -> str:
    sums = mirror.sums
    resources, to_do, failed = mirror.state.counts()
    return (
        f"{counted(resources, 'resource')}, {to_do} to do, {failed} failed; stored {sums.stored} "
        f"({size(sums.fetched_bytes)}), deleted {sums.deleted}, unchanged {sums.unchanged}"
    )


def _say_lag(sums: Sums, shown: Shown) -> None:
    half, most = percentile(sums.lags, 0.5), percentile(sums.lags, 0.99)
    if shown.json:
        lag = {"event": "lag", "changes": len(sums.lags), "p50_seconds": half, "p99_seconds": most}
        say(encoded(lag, shown))
    elif half is None or most is None:
        say(named("lag from change to file: no change yet", shown))
    else:
        times = f"p50 {half * 1000:.1f} ms, p99 {most * 1000:.1f} ms"
        say(named(f"lag from change to file: {times} ({len(sums.lags)} changes)", shown))
