"""`rsnotify mirror`: a copy of a Source, with progress, lines or JSON; and its exit status."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import msgspec

from rsnotify.errors import InvalidSettings, Rejected
from rsnotify_client.mirror.mirror import Mirror, Options
from rsnotify_client.mirror.paths import Map, place_of
from rsnotify_client.mirror.plan import Selection
from rsnotify_client.mirror.report import Event, Sums, percentile
from rsnotify_client.mirror.storing import Hook, command_hook

LINE_SECONDS = 10.0
BAR_SECONDS = 0.2
PROBLEMS_SHOWN = 20


class Shown(NamedTuple):
    """How the work is shown."""

    json: bool = False
    once: bool = False
    lag: bool = False
    quiet: bool = False


def options_of(
    selects: list[str],
    excludes: list[str],
    maps: list[str],
    jobs: int,
    per_host: int,
    keep_deleted: Path | None,
    *,
    has_files: bool,
) -> Options:
    """What the command line says, checked."""
    return Options(
        selection=Selection(tuple(selects), tuple(excludes)),
        maps=tuple(map(_map, maps)),
        jobs=jobs,
        per_host=min(per_host, jobs),
        keep_deleted=keep_deleted,
        has_files=has_files,
    )


def _map(text: str) -> Map:
    prefix, _, folder = text.rpartition("=")
    parts = folder.split("/")
    if not prefix or not all(parts) or {".", ".."} & set(parts) or "~" in folder:
        raise InvalidSettings(
            [f"--map {text}: give PREFIX=DIR, with DIR a folder inside the mirror such as data/pdf"]
        )
    if place_of(f"http://x/{folder}") != f"x/{folder}":
        raise InvalidSettings([f"--map {text}: {folder!r} is no plain name of a folder"])
    return prefix, folder


def run_mirror(
    url: str,
    directory: Path | None,
    options: Options,
    *,
    token: str | None,
    once: bool,
    command: str | None,
    shown: Shown,
) -> int:
    """Run it; the exit status."""
    with ExitStack() as stack:
        if directory is None:
            from tempfile import TemporaryDirectory  # noqa: PLC0415 - seldom needed

            folder = stack.enter_context(TemporaryDirectory(prefix="rsnotify-mirror-"))
            directory = Path(folder)
        hook = _hook(command, directory, has_files=options.has_files)
        return until_ended(
            _mirror(url, directory, options, token=token, once=once, hook=hook, shown=shown)
        )


def until_ended(work: Coroutine[Any, Any, int]) -> int:
    """Run until it ends; SIGTERM is an interruption as Ctrl-C is."""

    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _mirror(
    url: str,
    directory: Path,
    options: Options,
    *,
    token: str | None,
    once: bool,
    hook: Hook | None,
    shown: Shown,
) -> int:
    try:
        mirror = Mirror(url, directory, options, token=token, hook=hook, report=_reporter(shown))
        async with mirror:
            showing = asyncio.create_task(_show(mirror, shown))
            try:
                is_whole = await (mirror.once() if once else mirror.keep())
            finally:
                showing.cancel()
                await asyncio.gather(showing, return_exceptions=True)
                if not isinstance(sys.exception(), Exception):  # that says more
                    _say_end(mirror, shown)
            return 0 if is_whole else 1
    except Rejected as error:
        raise InvalidSettings([error.detail]) from None


def _hook(command: str | None, directory: Path, *, has_files: bool) -> Hook | None:
    if command is not None:
        return command_hook(command, directory)
    return None if has_files else print_content


async def print_content(event: Event, content: bytes | None) -> None:
    """One JSON line for each change, with the content in base64."""
    from base64 import b64encode  # noqa: PLC0415 - seldom needed

    line = msgspec.to_builtins(event)
    if content is not None:
        line["content"] = b64encode(content).decode()
    say(msgspec.json.encode(line))


# What is shown ------------------------------------------------------------------------------------


def _reporter(shown: Shown) -> Callable[[Event], None]:
    is_live = False

    def report(event: Event) -> None:
        nonlocal is_live
        is_live = is_live or event.event == "live"
        if shown.quiet:
            return
        if shown.json:
            say(msgspec.json.encode(event))
        elif event.event == "failed" and shown.once:
            return  # it may be mended yet; what is not is named at the end
        elif line := _line(event, is_live=is_live):
            say(line, err=event.event in ("failed", "skipped"))

    return report


def _line(event: Event, *, is_live: bool) -> str | None:
    """The line for a person; during a baseline only what could not be read is shown."""
    if event.event == "baseline":
        return f"the Source has {event.resources} resources; {event.to_do} to fetch or remove"
    if event.event == "live":
        return "following"
    if event.event in ("failed", "skipped"):
        is_named = not event.loc or (event.problem or "").startswith(event.loc)
        return f"{event.event}: {event.problem if is_named else f'{event.loc}: {event.problem}'}"
    return f"{event.event}  {event.loc}" if is_live and event.event != "unchanged" else None


async def _show(mirror: Mirror, shown: Shown) -> None:
    if not shown.json and sys.stderr.isatty():
        with suppress(ImportError):
            await _show_bar(mirror)
            return
    while True:
        await asyncio.sleep(LINE_SECONDS)
        if shown.lag:
            _say_lag(mirror.sums, shown)
        elif not shown.json and not shown.quiet and mirror.state.counts()[1]:
            say(_sum_line(mirror), err=True)


async def _show_bar(mirror: Mirror) -> None:
    from rich.console import Console  # noqa: PLC0415 - only on a terminal, and only if it is there
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("mirroring", total=None)
        began, before = monotonic(), mirror.sums.fetched_bytes
        while True:
            await asyncio.sleep(BAR_SECONDS)
            total, to_do, _ = mirror.state.counts()
            rate = (mirror.sums.fetched_bytes - before) / max(monotonic() - began, 0.1)
            words = f"{_size(mirror.sums.fetched_bytes)} at {_size(rate)}/s"
            progress.update(task, description=words, completed=total - to_do, total=total)


def _say_end(mirror: Mirror, shown: Shown) -> None:
    if shown.lag:
        _say_lag(mirror.sums, shown)
    if shown.json or shown.quiet:
        return
    say(_sum_line(mirror), err=True)
    if shown.once:
        _say_problems(mirror)


def _say_problems(mirror: Mirror) -> None:
    for loc, problem in mirror.state.problems(PROBLEMS_SHOWN):
        is_named = problem.startswith(loc)
        say(f"failed: {problem if is_named else f'{loc}: {problem}'}", err=True)
    if (more := mirror.state.counts()[2] - PROBLEMS_SHOWN) > 0:
        say(f"and {more} more failed; --json names them all", err=True)


def _sum_line(mirror: Mirror) -> str:
    sums = mirror.sums
    resources, to_do, failed = mirror.state.counts()
    return (
        f"{resources} resources, {to_do} to do, {failed} failed; stored {sums.stored} "
        f"({_size(sums.fetched_bytes)}), deleted {sums.deleted}, unchanged {sums.unchanged}"
    )


def _say_lag(sums: Sums, shown: Shown) -> None:
    half, most = percentile(sums.lags, 0.5), percentile(sums.lags, 0.99)
    if shown.json:
        told = {"event": "lag", "changes": len(sums.lags), "p50_seconds": half, "p99_seconds": most}
        say(msgspec.json.encode(told))
    elif half is None or most is None:
        say("lag from change to file: no change yet")
    else:
        say(
            f"lag from change to file: p50 {half * 1000:.1f} ms, p99 {most * 1000:.1f} ms "
            f"({len(sums.lags)} changes)"
        )


def say(line: str | bytes, *, err: bool = False) -> None:
    """A line for whoever reads, at once."""
    stream = sys.stderr if err else sys.stdout
    stream.write(f"{line.decode() if isinstance(line, bytes) else line}\n")
    stream.flush()


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
