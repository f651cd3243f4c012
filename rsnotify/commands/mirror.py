"""`rsnotify mirror`: a copy of a Source, as the command line asks for it; and its exit status."""

import asyncio
import logging
import re
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec

from rsnotify.commands.mirror_sets import SetMirrors, copies_in
from rsnotify.commands.mirror_shown import Shown, reporter, say, say_end, show
from rsnotify.errors import InvalidSettings, Rejected
from rsnotify.process.sd_notify import READY, STATUS, STOPPING, notify
from rsnotify_client.network import Network
from rsnotify_client.textfile import write as write_metrics
from rsnotify_mirror.hooks import Hook, command_hook
from rsnotify_mirror.mirror import Mirror
from rsnotify_mirror.options import Options
from rsnotify_mirror.paths import Map, place_of
from rsnotify_mirror.plan import Selection
from rsnotify_mirror.report import Event, Sums
from rsnotify_mirror.state import START, ReadTo, State
from rsnotify_mirror.statefile import FILE
from rsnotify_mirror.status import CopyStatus, metrics_of, status_of

log = logging.getLogger(__name__)

PLANNED_AT_ONCE = 1_000
ADDRESS = re.compile("(http|ws)s?:/", re.IGNORECASE)  # of a path, too, which has one slash only


def options_of(
    selects: list[str],
    excludes: list[str],
    maps: list[str],
    jobs: int,
    per_host: int,
    keep_deleted: Path | None,
    *,
    max_delete: float,
    has_files: bool,
    same_site: bool = False,
    network: Network | None = None,
) -> Options:
    """What the command line says, checked."""
    return Options(
        network=network,
        selection=Selection(tuple(selects), tuple(excludes)),
        max_delete=max_delete,
        maps=tuple(map(_map, maps)),
        jobs=jobs,
        per_host=min(per_host, jobs),
        keep_deleted=keep_deleted,
        has_files=has_files,
        same_site=same_site,
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
    metrics: Path | None = None,
) -> int:
    """Run it; the exit status."""
    _check_address(url, directory)
    if metrics is not None:
        write_metrics(metrics, metrics_of({}))  # what cannot be written is said at once
    with ExitStack() as stack:
        if directory is None:
            from tempfile import TemporaryDirectory  # noqa: PLC0415 - seldom needed

            folder = stack.enter_context(TemporaryDirectory(prefix="rsnotify-mirror-"))
            directory = Path(folder)
        hook = _hook(command, directory, has_files=options.has_files)
        return until_ended(
            _mirror(
                *(url, directory, options, StatusReporter(metrics)),
                token=token,
                once=once,
                hook=hook,
                shown=shown,
            )
        )


def run_several(
    urls: list[str],
    directory: Path,
    options: Options,
    *,
    token: str | None,
    once: bool,
    all_sets: bool,
    command: str | None,
    shown: Shown,
    metrics: Path | None = None,
) -> int:
    """Each set in a directory of its own below this one; the exit status."""
    for url in urls:
        _check_address(url, directory)
    if (directory / FILE).exists():
        raise InvalidSettings([f"{directory} is the mirror of one set: give another directory"])
    if metrics is not None:
        write_metrics(metrics, metrics_of({}))
    watched = StatusReporter(metrics)

    async def mirror(url: str, below: Path, token: str | None) -> int:
        kept = options.keep_deleted and options.keep_deleted / below.name
        chosen = msgspec.structs.replace(options, keep_deleted=kept)
        hook, its = _hook(command, below, has_files=True), shown._replace(name=below.name)
        return await _mirror(
            url, below, chosen, watched, token=token, once=once, hook=hook, shown=its
        )

    sets = SetMirrors(
        *(urls, directory, mirror),
        token=token,
        network=options.network,
        all_sets=all_sets,
        once=once,
    )
    return until_ended(sets.run())


def _check_address(url: str, directory: Path | None) -> None:
    """Before anything is made in the directory."""
    if ADDRESS.match(url):
        if directory is not None and ADDRESS.match(str(directory)):
            raise InvalidSettings([f"{directory} is no directory: name it after the addresses"])
        return
    is_swapped = directory is not None and ADDRESS.match(str(directory))
    mend = "the address comes first, then the directory"
    if not is_swapped:
        mend = "give one that begins with http://, https:// or ws://"
    raise InvalidSettings([f"{url!r} is no address: {mend}"])


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
        notify(STOPPING)
        raise KeyboardInterrupt from None


async def _mirror(
    url: str,
    directory: Path,
    options: Options,
    watched: "StatusReporter",
    *,
    token: str | None,
    once: bool,
    hook: Hook | None,
    shown: Shown,
) -> int:
    told = {"report": reporter(shown), "told": watched.tell}
    try:
        mirror = Mirror(url, directory, options, token=token, hook=hook, **told)  # type: ignore[arg-type]
        async with mirror:
            showing = asyncio.create_task(show(mirror, shown))
            try:
                is_whole = await (mirror.once() if once else mirror.keep())
            finally:
                showing.cancel()
                await asyncio.gather(showing, return_exceptions=True)
                if not isinstance(sys.exception(), Exception):  # that says more
                    say_end(mirror, shown)
            return 0 if is_whole else 1
    except Rejected as error:
        raise InvalidSettings([error.detail]) from None


class StatusReporter:
    """Tells systemd and Prometheus how far copies are."""

    def __init__(self, metrics: Path | None) -> None:
        self._metrics = metrics
        self._found: dict[str, tuple[CopyStatus, Sums]] = {}
        self._complaint: str | None = None

    def tell(self, status: CopyStatus, sums: Sums) -> None:
        is_first = not self._found
        self._found[status.directory] = status, sums
        if self._metrics is not None:
            self._write(self._metrics)
        is_ready = is_first and status.running
        notify(f"{READY}\n{self._line()}" if is_ready else self._line())

    def _line(self) -> str:
        found = [status for status, _ in self._found.values()]
        wrong = [status for status in found if not status.in_step]
        words = f"{len(wrong)} of {len(found)} not in step" if wrong else "in step"
        resources, to_do, failed = (
            sum(getattr(each, name) for each in found) for name in ("resources", "to_do", "failed")
        )
        return f"{STATUS}{words}; {resources} resources, {to_do} to do, {failed} failed"

    def _write(self, metrics: Path) -> None:
        """A file that cannot be written stops no mirror: its age says that it is old."""
        try:
            write_metrics(metrics, metrics_of(self._found))
        except InvalidSettings as error:
            if error.problems[0] != self._complaint:
                log.warning("%s", error.problems[0])
            self._complaint = error.problems[0]
        else:
            self._complaint = None


def show_status(directory: Path, *, json: bool, max_behind: float) -> int:
    """Print how far the copy is, or each that is in the directory; the exit status."""
    found = copies_in(directory)
    return max(_show_status(each, json=json, max_behind=max_behind) for each in found)


def _show_status(directory: Path, *, json: bool, max_behind: float) -> int:
    with State(directory, is_writer=False) as state:
        status = status_of(state)
    is_well = status.is_well(max_behind)
    if json:
        say(msgspec.json.encode(status))
        return 0 if is_well else 1
    for line in status_lines(status):
        say(line)
    if status.in_step and not is_well:
        say(f"OUT OF STEP: it was in step last more than {max_behind:g} s ago")
    else:
        say("IN STEP" if is_well else "OUT OF STEP")
    return 0 if is_well else 1


def status_lines(status: CopyStatus) -> Iterator[str]:
    running = "a mirror runs" if status.running else "no mirror runs"
    yield f"{status.directory}: a copy of {status.source or 'nothing yet'}; {running}"
    yield f"{status.resources} resources, {status.to_do} to do, {status.failed} failed"
    if status.in_step_at is None:
        yield "it was never in step"
    elif status.in_step:
        yield f"in step since {status.in_step_since}, as of {status.in_step_at}"
    else:
        yield f"in step last at {status.in_step_at}, {status.behind_seconds:.0f} s ago"
    if status.last_error is not None:
        yield f"last error, at {status.last_error_at}: {status.last_error}"


def show_plan(url: str, directory: Path, options: Options, *, token: str | None, json: bool) -> int:
    """Print what a run would do; nothing of the copy changes."""
    _check_address(url, directory)
    return until_ended(_show_plan(url, directory, options, token=token, json=json))


async def _show_plan(
    url: str, directory: Path, options: Options, *, token: str | None, json: bool
) -> int:
    """By a copy of what the mirror knows, in a directory of its own."""
    from sqlite3 import connect  # noqa: PLC0415 - seldom needed
    from tempfile import TemporaryDirectory  # noqa: PLC0415

    with TemporaryDirectory(prefix="rsnotify-mirror-") as folder:
        if (directory / FILE).exists():
            with (
                State(directory, is_writer=False) as known,
                closing(connect(Path(folder, FILE))) as copied,
            ):
                known.database.backup(copied)
        skipped = []

        def report(event: Event) -> None:
            if event.event == "stored":  # into the other directory, from a package
                _say_planned("fetch", event.loc, event.path, json=json)
            elif event.event in ("skipped", "failed", "trouble"):
                skipped.append(event)
                say(f"{event.event}: {event.problem}", err=True)

        try:
            async with Mirror(url, Path(folder), options, token=token, report=report) as mirror:
                await mirror.plan()
                _say_plan(mirror.state, json=json)
                return 1 if skipped else 0
        except Rejected as error:
            raise InvalidSettings([error.detail]) from None


def _say_plan(state: State, *, json: bool) -> None:
    after: ReadTo | None = START
    while after is not None:
        rows, after = state.due(float("inf"), after, PLANNED_AT_ONCE, ())
        for row in rows:
            what = "delete" if row.wanted.is_deleted else "fetch"
            _say_planned(what, row.loc, row.path, json=json)


def _say_planned(what: str, loc: str | None, path: str | None, *, json: bool) -> None:
    line = msgspec.json.encode({"would": what, "loc": loc, "path": path})
    say(line if json else f"would {what} {loc}")


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
