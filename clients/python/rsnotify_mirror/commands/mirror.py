"""`rsnotify mirror`: a copy of a Source, as the command line asks for it; and its exit status.

With `--dump-every 24h --dump 'OUT …'` dumps are made while it runs. A dump is a process of its own:
it takes none of the mirror's time, and its memory is given back.
"""

import asyncio
import logging
import re
import shlex
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import msgspec
import typer
from msgspec.structs import replace
from typer import Argument, Option

from rsnotify.cli.options import (
    AS_USUAL,
    Base,
    Commands,
    DryRun,
    InCollection,
    Json,
    MaxDelete,
    MediaType,
    Metrics,
    Once,
    Prefix,
    Requests,
    Status,
    Transport,
    most_deleted,
    parse_size,
)
from rsnotify.cli.output import counted, json_line, print_found, print_json, size
from rsnotify.cli.root import wrong_use
from rsnotify.cli.target import (
    HERE,
    Hub,
    checked_name,
    token_for_source,
    token_of_source,
)
from rsnotify.cli.terminal import echo
from rsnotify.cli.watched import MaxBehind, Numbers, judge
from rsnotify.errors import InvalidSettings, Rejected
from rsnotify.sd_notify import READY, STATUS, notify
from rsnotify_client.database import open_file
from rsnotify_client.discovery import NotOneSet
from rsnotify_client.errors import InvalidArgument
from rsnotify_client.token import Token
from rsnotify_mirror.audit import keep_verified
from rsnotify_mirror.commands.dump import LEAST_BYTES
from rsnotify_mirror.commands.mirror_output import Reporter, Shown, say, say_end, show
from rsnotify_mirror.commands.mirror_sets import SetMirrors, copies_in
from rsnotify_mirror.mirror import AsyncMirror, will_it_fit
from rsnotify_mirror.paths import Map, place_of
from rsnotify_mirror.plan import LEAST_BANDWIDTH, Options
from rsnotify_mirror.report import CopyStatus, Event, Sums, metrics_of, status_of
from rsnotify_mirror.republication import Republication
from rsnotify_mirror.room import CopyRoom
from rsnotify_mirror.selection import Selection
from rsnotify_mirror.state import FILE, START, DueMark, State
from rsnotify_mirror.storing import Hook, command_hook

log = logging.getLogger(__name__)


# --- dumps beside it -----------------------------------------------------------------------------

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
AGAIN_SECONDS = 60.0  # where no dump could be made: the copy is not in step yet, for instance
LEAST_SECONDS = 1
MOST_SECONDS = 3_650 * 86_400  # ten years
_DURATION = re.compile(r"(\d+)([smhd])")


def seconds_of(text: str, option: str = "--dump-every") -> float:
    """
    >>> seconds_of("24h")
    86400.0
    """
    found = _DURATION.fullmatch(text)
    seconds = float(found[1]) * UNITS[found[2]] if found else 0.0
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise InvalidSettings(
            f"{option} {text}: give a time such as 30m, 24h or 7d, from 1s to 3650d"
        )
    return seconds


def _size(text: str | None, option: str, least: int = 1) -> int | None:
    return None if text is None else parse_size(text, option, least)


class Dumping(NamedTuple):
    """How often, and what `rsnotify dump` is given beside the copy."""

    seconds: float
    words: tuple[str, ...]

    async def keep(self, copy: Path) -> None:
        """Until cancelled; what is wrong with one dump is logged, and ends nothing."""
        while True:
            is_made = await self._made(copy)
            await asyncio.sleep(self.seconds if is_made else min(AGAIN_SECONDS, self.seconds))

    async def _made(self, copy: Path) -> bool:
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rsnotify", "dump", str(copy), *self.words),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            _, said = await running.communicate()
        except asyncio.CancelledError:
            running.terminate()
            await running.wait()
            raise
        for line in said.decode(errors="replace").splitlines():
            log.info("dump: %s", line)
        return running.returncode == 0


# --- the command ---------------------------------------------------------------------------------

commands = Commands()


MIRROR = """Copy a Source and keep the copy in step, or bring it up to date once.

`rsnotify mirror https://example.org/ copy`

Every resource is verified by length and digest before it takes its place. Interrupted, it goes
on where it was. Exit status: 0 up to date, 1 something failed, 2 wrong use, 130 interrupted.
"""


@commands.command(help=MIRROR)
async def mirror(
    places: Annotated[
        list[str],
        Argument(
            metavar="URL... [DIR]",
            help="A site, a set, a channel: any address of a Source; then where the copy is.",
            show_default=False,
        ),
    ],
    once: Once = False,
    prefix: Prefix = None,
    type_: MediaType = None,
    collection: InCollection = None,
    select: Annotated[
        list[str] | None,
        Option(metavar="GLOB", help="Only resources whose URI it matches. Repeatable."),
    ] = None,
    exclude: Annotated[
        list[str] | None, Option(metavar="GLOB", help="All but these. Repeatable.")
    ] = None,
    max_delete: MaxDelete = None,
    map_: Annotated[
        list[str] | None,
        Option("--map", metavar="PREFIX=DIR", help="Where in DIR they go. Repeatable."),
    ] = None,
    jobs: Annotated[int, Option(min=1, max=256, help="Fetch so many at once.")] = 16,
    per_host: Annotated[int, Option(min=1, max=256, help="From one host so many.")] = 8,
    keep_deleted: Annotated[
        Path | None, Option(metavar="DIR", help="Move deleted files there, outside the copy.")
    ] = None,
    keep_versions: Annotated[
        Path | None, Option(metavar="DIR", help="Keep what is replaced or deleted there.")
    ] = None,
    versions_size: Annotated[
        str | None, Option(metavar="SIZE", help="How much, such as 10GiB; the newest stay.")
    ] = None,
    versions_age: Annotated[
        str | None, Option(metavar="TIME", help="How long after they ended, such as 365d.")
    ] = None,
    warc: Annotated[
        Path | None, Option(metavar="FILE", help="Append what is stored to a WARC, too.")
    ] = None,
    exec_: Annotated[
        str | None,
        Option("--exec", metavar="CMD", help="Run after each change; it reads $RSNOTIFY_PATH."),
    ] = None,
    stdout: Annotated[
        bool, Option("--stdout", help="Keep no files: print each change as a JSON line.")
    ] = False,
    lag: Annotated[bool, Option("--lag", help="Print the time from change to file.")] = False,
    json: Json = False,
    status: Status = False,
    max_behind: MaxBehind = 7200,
    metrics: Metrics = None,
    same_site: Annotated[
        bool, Option("--same-site", help="Ask for nothing at other hosts than the Source's.")
    ] = False,
    transport: Transport = None,
    dry_run: DryRun = False,
    all_sets: Annotated[
        bool, Option("--all-sets", help="Copy each set of the Source, into DIR/SET.")
    ] = False,
    dump_every: Annotated[
        str | None,
        Option(metavar="TIME", help="Make a dump of the copy so often, such as 24h; see --dump."),
    ] = None,
    dump: Annotated[
        str | None,
        Option(
            "--dump", metavar="'OUT OPTIONS'", help="What `rsnotify dump` is given beside the copy."
        ),
    ] = None,
    verify_every: Annotated[
        str | None,
        Option(metavar="TIME", help="Audit the copy so often, such as 7d, and repair it."),
    ] = None,
    republish: Annotated[
        str | None,
        Option(metavar="SET", help="Publish the copy to the hub's set; with --base."),
    ] = None,
    base: Base = None,
    moved: Annotated[
        str | None,
        Option(metavar="OLD", help="The Source of DIR was at OLD until now, and is at URL."),
    ] = None,
    keep_free: Annotated[
        str | None, Option(metavar="SIZE", help="Leave so much of the disk free, such as 10G.")
    ] = None,
    max_size: Annotated[
        str | None, Option(metavar="SIZE", help="How large the copy may become.")
    ] = None,
    max_file: Annotated[
        str | None, Option(metavar="SIZE", help="Fetch no resource that is longer.")
    ] = None,
    bandwidth: Annotated[
        str | None, Option(metavar="SIZE", help="Fetch so much in a second at most, such as 5M.")
    ] = None,
    requests: Requests = AS_USUAL,
    hub: Hub = HERE,
) -> None:
    if status:
        raise typer.Exit(show_status(Path(places[-1]), json=json, max_behind=max_behind))
    sources, directory = _placed(places, all_sets=all_sets, stdout=stdout, dry_run=dry_run)
    if stdout and (exec_ or keep_deleted or json):
        raise typer.BadParameter("--stdout goes without --exec, --keep-deleted and --json")
    if (dump_every is None) != (dump is None):
        raise typer.BadParameter("--dump-every goes with --dump: say how often, and where to")
    if dump_every is not None and (once or directory is None or all_sets or sources[1:]):
        raise typer.BadParameter("--dump-every goes with one set in a directory, without --once")
    if verify_every is not None and (once or stdout or dry_run):
        raise typer.BadParameter("--verify-every goes without --once, --stdout and --dry-run")
    if (republish is None) != (base is None):
        raise typer.BadParameter("--republish goes with --base: say where the copy is served")
    is_one = not (all_sets or sources[1:])
    if not is_one or directory is None or dry_run:
        _refuse({"--moved": moved, "--republish": republish, "--warc": warc})
    verify_seconds = verify_every and seconds_of(verify_every, "--verify-every")
    options = Options(
        network=requests.network(),
        selection=_selection(select, exclude, prefix, type_, collection),
        max_delete=most_deleted(max_delete),
        maps=tuple(map(map_of, map_ or ())),
        jobs=jobs,
        per_host=min(per_host, jobs),
        keep_deleted=keep_deleted,
        **_versions(keep_versions, versions_size, versions_age),
        has_files=not stdout,
        warc=warc,
        same_site=same_site,
        transport=transport,
        moved_from=moved,
        keep_free=_size(keep_free, "--keep-free") or 0,
        max_size=_size(max_size, "--max-size"),
        max_file=_size(max_file, "--max-file"),
        bandwidth=_size(bandwidth, "--bandwidth", LEAST_BANDWIDTH),
    )
    token = token_for_source(sources[0]) if republish is None else token_of_source()
    for source in sources:
        check_address(source, directory)
    if dry_run:
        planning = _show_plan(sources[0], directory, options, token=token, json=json)
        raise typer.Exit(await planning)
    shown = Shown(json=json, once=once, lag=lag, quiet=stdout)
    is_one |= directory is None
    if not is_one and (Path(places[-1]) / FILE).exists():
        raise InvalidSettings(f"{directory} is the mirror of one set: give another directory")
    dumping = dump and dump_every and Dumping(seconds_of(dump_every), tuple(shlex.split(dump)))
    run = MirrorRun(
        options, token, once, exec_, shown, StatusReporter(Numbers(metrics)), dumping or None
    )
    run = run._replace(verify_seconds=verify_seconds or None)
    if republish is not None:
        with hub.token() as hub_token:
            to = Republication(hub.url, checked_name(republish), base or "", hub_token)
            run = run._replace(republish=to)
            raise typer.Exit(await run.one(sources[0], directory))
    if is_one:
        raise typer.Exit(await run.one(sources[0], directory))
    sets = SetMirrors(
        *(sources, Path(places[-1]), run.one_of_several),
        token=token,
        network=options.network,
        all_sets=all_sets,
        once=once,
    )
    raise typer.Exit(await sets.run())


def _versions(directory: Path | None, size: str | None, age: str | None) -> dict[str, Any]:
    """The options of the versions that are kept."""
    if directory is None and (size or age):
        raise typer.BadParameter("--versions-size and --versions-age go with --keep-versions")
    return {
        "keep_versions": directory,
        "versions_bytes": _size(size, "--versions-size", LEAST_BYTES),
        "versions_seconds": None if age is None else seconds_of(age, "--versions-age"),
    }


def _refuse(given: Mapping[str, object]) -> None:
    """Options that are about one copy, where there are several, or none that is changed."""
    if names := [name for name, value in given.items() if value is not None]:
        raise typer.BadParameter(f"{names[0]} goes with one set in a directory, without --dry-run")


@contextmanager
def _way_to_all_sets() -> Iterator[None]:
    """A Source with several sets can be copied as a whole."""
    try:
        yield
    except NotOneSet as error:
        raise InvalidSettings(
            f"{error.detail}; or copy each into a directory of its own with --all-sets"
        ) from None


def _selection(*given: list[str] | None) -> Selection:
    """Of the options, in the order of its fields."""
    selection = Selection(*(tuple(each or ()) for each in given))
    with wrong_use(InvalidArgument):
        _ = selection.wanted
    return selection


def _placed(
    places: list[str], *, all_sets: bool, stdout: bool, dry_run: bool
) -> tuple[list[str], Path | None]:
    """The Sources, and where their copies are."""
    sources, directory = places[:-1], Path(places[-1])
    if (all_sets or sources[1:]) and (stdout or dry_run):
        option = "--stdout" if stdout else "--dry-run"
        raise typer.BadParameter(f"{option} takes one set: give one URL, without --all-sets")
    if sources:
        return sources, directory
    if not stdout or all_sets:
        if (source := _source_of(directory)) is not None:
            raise InvalidSettings(
                f"{directory} is a copy: name its Source, too: rsnotify mirror {source} {directory}"
            )
        raise typer.BadParameter("say where the copy shall be: a DIR, or --stdout for no files")
    return places, None


def _source_of(directory: Path) -> str | None:
    """Of which Source there is a copy here, if there is one."""
    if not (directory / FILE).exists():
        return None
    with State(directory, is_writer=False) as state:
        return status_of(state).source


PLANNED_AT_ONCE = 1_000
ADDRESS = re.compile("(http|ws)s?:/", re.IGNORECASE)  # of a path, too, which has one slash only


def map_of(text: str) -> Map:
    prefix, _, folder = text.rpartition("=")
    parts = folder.split("/")
    if not prefix or not all(parts) or {".", ".."} & set(parts) or "~" in folder:
        raise InvalidSettings(
            f"--map {text}: give PREFIX=DIR, with DIR a folder inside the mirror such as data/pdf"
        )
    if place_of(f"http://x/{folder}") != f"x/{folder}":
        raise InvalidSettings(f"--map {text}: {folder!r} is no plain name of a folder")
    return prefix, folder


class MirrorRun(NamedTuple):
    """What the mirrors of one command have in common."""

    options: Options
    token: Token | None
    once: bool
    command: str | None
    shown: Shown
    reporter: "StatusReporter"
    dumping: Dumping | None = None
    verify_seconds: float | None = None
    republish: Republication | None = None

    async def one(self, url: str, directory: Path | None) -> int:
        """One Source in this directory, or in none; the exit status."""
        if directory is not None:
            return await self._mirror(url, directory, self.token)
        with TemporaryDirectory(prefix="rsnotify-mirror-") as folder:
            return await self._mirror(url, Path(folder), self.token)

    async def one_of_several(
        self, url: str, directory: Path, token: Token | None, source: str
    ) -> int:
        """A set in a directory of its own, which names it; it may name what its Source may."""
        kept = self.options.keep_deleted and self.options.keep_deleted / directory.name
        versions = self.options.keep_versions and self.options.keep_versions / directory.name
        network = self.options.network and replace(self.options.network, source=source)
        its = self._replace(
            options=replace(
                self.options, keep_deleted=kept, keep_versions=versions, network=network
            ),
            shown=self.shown._replace(name=directory.name),
        )
        return await its._mirror(url, directory, token)

    async def _mirror(self, url: str, directory: Path, token: Token | None) -> int:
        report = Reporter(self.shown)
        hook: Hook | None = None if self.options.has_files else print_content
        if self.command is not None:
            hook = command_hook(self.command, directory)
        with wrong_use(Rejected), _way_to_all_sets():
            async with AsyncMirror(
                *(url, directory, self.options),
                token=token,
                hook=hook,
                report=report,
                on_status=self.reporter.report,
                republish=self.republish,
            ) as mirror:
                work = asyncio.create_task(mirror.once() if self.once else mirror.run())
                tasks = [work, asyncio.create_task(show(mirror, self.shown, report))]
                if self.dumping is not None:
                    tasks.append(asyncio.create_task(self.dumping.keep(directory)))
                if self.verify_seconds is not None:
                    tasks.append(asyncio.create_task(keep_verified(mirror, self.verify_seconds)))
                try:
                    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    is_whole = done.pop().result()
                finally:
                    for each in tasks:
                        each.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
                    if not isinstance(sys.exception(), Exception):  # that says more
                        say_end(mirror, self.shown)
                return 0 if is_whole else 1


def check_address(url: str, directory: Path | None) -> None:
    """Before anything is made in the directory."""
    if ADDRESS.match(url):
        if directory is not None and ADDRESS.match(str(directory)):
            raise InvalidSettings(f"{directory} is no directory: name it after the addresses")
        return
    is_swapped = directory is not None and ADDRESS.match(str(directory))
    advice = "the address comes first, then the directory"
    if not is_swapped:
        advice = "give one that begins with http://, https:// or ws://"
    raise InvalidSettings(f"{url!r} is no address: {advice}")


class StatusReporter:
    """Reports to systemd and Prometheus how far copies are."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._found: dict[str, tuple[CopyStatus, Sums]] = {}

    def report(self, status: CopyStatus, sums: Sums) -> None:
        is_first = not self._found
        self._found[status.directory] = status, sums
        self._numbers.write(partial(metrics_of, self._found))
        is_ready = is_first and status.running
        notify(f"{READY}\n{self._line()}" if is_ready else self._line())

    def _line(self) -> str:
        found = [status for status, _ in self._found.values()]
        wrong = [status for status in found if not status.in_step]
        words = f"{len(wrong)} of {len(found)} not in step" if wrong else "in step"
        resources, to_do, failed = (
            sum(getattr(each, name) for each in found) for name in ("resources", "to_do", "failed")
        )
        return f"{STATUS}{words}; {counted(resources, 'resource')}, {to_do} to do, {failed} failed"


def show_status(directory: Path, *, json: bool, max_behind: float) -> int:
    """Print how far the copy is, or each that is in the directory; the exit status."""
    found = copies_in(directory)
    return max(_show_status(each, json=json, max_behind=max_behind) for each in found)


def _show_status(directory: Path, *, json: bool, max_behind: float) -> int:
    with State(directory, is_writer=False) as state:
        status = status_of(state)
        if status.to_do:
            status = replace(status, to_fetch_bytes=state.planned_bytes()[0])
    verdict = judge(
        is_in_step=status.in_step, behind_seconds=status.behind_seconds, max_behind=max_behind
    )
    print_found(status, [*status_lines(status), str(verdict)], json=json)
    return verdict.exit_status


def status_lines(status: CopyStatus) -> Iterator[str]:
    running = "a mirror runs" if status.running else "no mirror runs"
    yield f"{status.directory}: a copy of {status.source or 'nothing yet'}; {running}"
    if status.selection is not None:
        yield f"a part of it: {status.selection}"
    found = counted(status.resources, "resource")
    counts = f"{found}, {status.to_do} to do, {status.failed} failed"
    yield f"{counts}; rsnotify audit looks into the files"
    if status.room_bytes is not None:
        to_fetch = status.to_fetch_bytes
        known = f"{size(to_fetch)} to fetch, as far as that is known; " if to_fetch else ""
        yield f"{known}room for {size(max(0, status.room_bytes))} more"
    if status.in_step_at is None:
        yield "it was never in step"
    elif status.in_step:
        yield f"in step since {status.in_step_since}, as of {status.in_step_at}"
    else:
        yield f"in step last at {status.in_step_at}, {status.behind_seconds:.0f} s ago"
    if status.to_publish is not None:
        yield f"{counted(status.to_publish, 'change')} to publish"
    if status.verified_at is not None:
        found = f"{status.verified_repaired} repaired, {status.verified_wrong} still wrong"
        yield f"verified at {status.verified_at}: {found}"
    if status.last_error is not None:
        over = " (over)" if status.in_step else ""
        yield f"last error{over}, at {status.last_error_at}: {status.last_error}"


async def _show_plan(
    url: str, directory: Path | None, options: Options, *, token: Token | None, json: bool
) -> int:
    """By a copy of what the mirror knows, in a directory of its own."""
    with TemporaryDirectory(prefix="rsnotify-mirror-") as folder:
        if directory is not None and (directory / FILE).exists():
            with (
                State(directory, is_writer=False) as known,
                closing(open_file(Path(folder, FILE))) as copied,
            ):
                known.database.backup(copied)
        skipped = []

        def report(event: Event) -> None:
            if event.event == "stored":  # into the other directory, from a package
                _say_planned("fetch", event.loc, event.path, json=json)
            elif event.event in ("skipped", "failed", "trouble"):
                skipped.append(event)
                echo(f"{event.event}: {event.problem}", err=True)

        with wrong_use(Rejected), _way_to_all_sets():
            async with AsyncMirror(
                url, Path(folder), options, token=token, report=report
            ) as mirror:
                await mirror.plan()
                _say_plan(mirror.state, json=json)
                if not json:
                    _say_room(mirror.state, directory, options)
                return 1 if skipped else 0


def _say_room(state: State, directory: Path | None, options: Options) -> None:
    if directory is None:
        return
    whole = directory.absolute()
    disk = next(each for each in (whole, *whole.parents) if each.is_dir())  # of a copy to be made
    room = CopyRoom(disk, options, state.held_bytes())
    to_fetch, left, problem = will_it_fit(state, room)
    known = f"{size(to_fetch)} to fetch, as far as that is known; room for {size(max(0, left))}"
    echo(problem or known, err=True)


def _say_plan(state: State, *, json: bool) -> None:
    after: DueMark | None = START
    while after is not None:
        rows, after = state.due(float("inf"), after, PLANNED_AT_ONCE, ())
        for row in rows:
            if not row.wanted.is_deleted:
                _say_planned("fetch", row.loc, row.path, json=json)
            elif row.have is not None:  # else the copy never had it
                _say_planned("delete", row.loc, row.path, json=json)


def _say_planned(what: str, loc: str | None, path: str | None, *, json: bool) -> None:
    if json:
        print_json({"would": what, "loc": loc, "path": path})
    else:
        echo(f"would {what} {loc}")


async def print_content(event: Event, content: bytes | None) -> None:
    """One JSON line for each change, with the content in base64."""
    line = msgspec.to_builtins(event)
    if content is not None:
        line["content"] = b64encode(content).decode()
    say(json_line(line))
