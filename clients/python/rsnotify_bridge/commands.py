"""`rsnotify bridge`: follow Sources that others run, and publish their changes to sets of a hub.

People, programs and Prometheus get the status of bridges from the state file, which a bridge writes
after each look.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple, Self

import msgspec
import typer
from typer import Argument, Option

from rsnotify.cli.options import (
    Commands,
    Headers,
    Json,
    LogFile,
    MaxDelete,
    Metrics,
    Once,
    Requests,
    Status,
    Timeout,
    Verbose,
    most_deleted,
)
from rsnotify.cli.output import Say, WorkPace, counted, print_found, progress
from rsnotify.cli.root import wrong_use
from rsnotify.cli.target import HERE, Hub, token_of_source
from rsnotify.cli.terminal import echo
from rsnotify.cli.watched import LOOK_SECONDS, MaxBehind, Numbers, StepVerdict, judge, worst
from rsnotify.errors import InvalidSettings, Rejected, TryAgain
from rsnotify.resourcesync.change import MICROSECONDS, render_datetime
from rsnotify.sd_notify import READY, STATUS, notify
from rsnotify_bridge.memory import BridgeMemory, BridgeStore, Facts
from rsnotify_bridge.options import BridgeOptions, check_options, read_bridges
from rsnotify_bridge.polite import Hosts, Webs
from rsnotify_bridge.service import Bridges, HubAddress
from rsnotify_bridge.sources import SourceAdapter, find_source, how_often
from rsnotify_client.address import without_tokens
from rsnotify_client.discovery import of_known
from rsnotify_client.network import Network
from rsnotify_client.textfile import Labels, exposition

# --- how bridges are -----------------------------------------------------------------------------

SHOWN_SECONDS = 1.0  # from one line of progress to the next


class BridgeStatus(Facts, kw_only=True):
    """One bridge, as it was known last."""

    source: str
    set: str
    resources: int
    waiting: int  # batches that the hub does not have yet
    in_step: bool
    behind_seconds: float | None  # since the Source was read to its end

    @classmethod
    def of(cls, bridge: BridgeMemory, now: float) -> "BridgeStatus":
        facts, waiting = bridge.facts, bridge.waiting
        return cls(
            **msgspec.structs.asdict(facts),
            source=bridge.source,
            set=bridge.set_name,
            resources=bridge.known,
            waiting=waiting,
            in_step=facts.is_well and not waiting,
            behind_seconds=(
                None if facts.read_at is None else round(max(0.0, now - facts.read_at), 1)
            ),
        )

    def in_json(self) -> dict[str, object]:
        """Its times as the documents have them."""
        said = msgspec.structs.asdict(self)
        times = {name: _text(at) for name, at in said.items() if name.endswith("_at")}
        return said | times

    def passes(self, max_behind: float) -> bool:
        """In step, and looked at not long ago."""
        return self.in_step and self.verdict(max_behind).exit_status == 0

    def verdict(self, max_behind: float) -> StepVerdict:
        return judge(
            is_in_step=self.in_step, behind_seconds=self.behind_seconds, max_behind=max_behind
        )

    def lines(self) -> Iterator[str]:
        yield f"{self.source} to {self.set}: {self.how or 'not looked at yet'}"
        known = counted(self.resources, "resource")
        yield f"  {known}, {done_of(self.loaded, self.published)}, {self.waiting:,} waiting"
        if self.read_at is None:
            yield "  it was never read to its end"
        else:
            yield f"  read to its end at {_text(self.read_at)}, {self.behind_seconds:.0f} s ago"
        yield from self.problems()

    def problems(self) -> Iterator[str]:
        for name in ("held", "skipped", "clock"):
            if (said := getattr(self, name)) is not None:
                yield f"  {name.replace('held', 'held back')}: {said}"
        if self.error is not None:
            yield f"  failed {self.failures} times: {self.error}"


def done_of(loaded: int, published: int) -> str:
    """
    >>> done_of(0, 0), done_of(49_000, 0), done_of(49_000, 1)
    ('0 published', '49,000 loaded', '49,000 loaded, 1 published')
    """
    if loaded and not published:
        return f"{loaded:,} loaded"
    return f"{loaded:,} loaded, {published:,} published" if loaded else f"{published:,} published"


def table_of(found: Sequence[BridgeStatus], max_behind: float) -> list[str]:
    """Of several bridges: a line for each, those that are not in step first, and why."""
    shown = sorted(found, key=lambda each: (each.passes(max_behind), each.source, each.set))
    widths = [max(map(len, column)) for column in zip(*map(_names, shown), strict=True)]
    lines = []
    for each in shown:
        named = "  ".join(map(str.ljust, _names(each), widths))
        known = f"{counted(each.resources, 'resource')}, {done_of(each.loaded, each.published)}"
        word = "in step" if each.passes(max_behind) else "NOT    "
        lines += [f"{word}  {named}  {known}, {each.waiting:,} waiting", *each.problems()]
    well = sum(each.passes(max_behind) for each in found)
    return [*lines, f"{well:,} in step, {len(found) - well:,} not"]


def _names(status: BridgeStatus) -> tuple[str, str]:
    return without_tokens(status.source), status.set


def _text(seconds: float | None) -> str | None:
    return None if seconds is None else render_datetime(int(seconds * MICROSECONDS))


METRICS: Mapping[str, tuple[str, str]] = {
    "rsnotify_bridge_in_step": ("gauge", "1 if all that the Source says is published"),
    "rsnotify_bridge_read_timestamp_seconds": ("gauge", "When it was read to its end; 0: never"),
    "rsnotify_bridge_looked_timestamp_seconds": ("gauge", "When it was looked at last; 0: never"),
    "rsnotify_bridge_changed_timestamp_seconds": ("gauge", "When it changed last; 0: never"),
    "rsnotify_bridge_lag_seconds": ("gauge", "From the time of the last change to its publishing"),
    "rsnotify_bridge_failures": ("gauge", "Looks that failed, one after the other"),
    "rsnotify_bridge_held": ("gauge", "1 if deletions are held back"),
    "rsnotify_bridge_published_total": ("counter", "Changes published"),
    "rsnotify_bridge_refused_total": ("counter", "Changes that the hub does not take"),
    "rsnotify_bridge_looks_total": ("counter", "Looks at the Source"),
    "rsnotify_bridge_failed_total": ("counter", "Looks that failed"),
}


def metrics_of(bridges: Iterable[BridgeMemory]) -> str:
    """The text of Prometheus' textfile collector; labels: the source and the set."""
    values: dict[Labels, tuple[float, ...]] = {
        (("source", without_tokens(each.source)), ("set", each.set_name)): _values(each.facts)
        for each in bridges
    }
    return exposition(METRICS, values)


def _values(facts: Facts) -> tuple[float, ...]:
    times = (facts.read_at, facts.looked_at, facts.changed_at, facts.lag_seconds)
    counts = (facts.published, facts.refused, facts.looks, facts.failed)
    first = (facts.is_well, *(each or 0.0 for each in times))
    return (*first, facts.failures, facts.held is not None, *counts)


# --- the command ---------------------------------------------------------------------------------

commands = Commands()


BRIDGE = """Publish the changes of a Source that somebody else runs.

`rsnotify bridge https://repository.example/ dataset1`

The whole state is loaded once, then every difference is published. It runs until SIGTERM or
Ctrl-C; killed, it goes on where it was. Exit status: 0 all is published, 1 something failed, was
skipped or is held back, 2 wrong use, 130 interrupted.
"""


@commands.command(help=BRIDGE)
async def bridge(
    source: Annotated[
        str | None,
        Argument(
            metavar="[FROM]",
            help="A site, set, list, sitemap, channel, topic, feed; or oai:URL for OAI-PMH.",
        ),
    ] = None,
    set_name: Annotated[
        str | None,
        Argument(metavar="[SET]", help="The set of the hub that gets the changes."),
    ] = None,
    once: Once = False,
    show: Annotated[
        bool, Option("--show", help="Say what is found at FROM and how it would be followed.")
    ] = False,
    status: Status = False,
    release: Annotated[
        bool, Option("--release", help="Let through what is held back: it is meant.")
    ] = False,
    moved: Annotated[
        str | None,
        Option(metavar="OLD", help="The Source was at OLD until now, and is at FROM."),
    ] = None,
    config: Annotated[
        Path | None, Option(metavar="FILE", help="Several bridges, as bridges.toml has them.")
    ] = None,
    state: Annotated[
        Path, Option("--state", metavar="FILE", help="Keeps what is published already.")
    ] = Path("bridge.db"),
    interval: Annotated[
        float, Option(min=1, metavar="SECONDS", help="Between two looks, at least.")
    ] = 60,
    max_interval: Annotated[
        float, Option(min=1, metavar="SECONDS", help="Between two looks, at most.")
    ] = 3600,
    compare: Annotated[
        float | None,
        Option(min=1, metavar="SECONDS", help="How often the whole state is compared besides."),
    ] = None,
    max_delete: MaxDelete = None,
    loc_from: Annotated[
        str | None,
        Option(metavar="ELEMENT", help="The element that names a record's resource."),
    ] = None,
    loc: Annotated[
        str | None,
        Option(metavar="TEMPLATE", help="Or a template with {identifier} or {local} in it."),
    ] = None,
    loc_by: Annotated[
        str | None, Option(metavar="NAME", help="Or a function, by its entry point.")
    ] = None,
    create: Annotated[
        bool,
        Option("--create", help="Make SET, if the hub has none. It needs the admin token."),
    ] = False,
    shared: Annotated[
        bool,
        Option("--shared", help="Others publish to SET, too: nothing of theirs is touched."),
    ] = False,
    no_robots: Annotated[
        bool, Option("--no-robots", help="Do not ask for robots.txt: the Source is yours.")
    ] = False,
    header: Headers = None,
    patience: Timeout = None,
    max_behind: MaxBehind = 7200,
    metrics: Metrics = None,
    json: Json = False,
    verbose: Verbose = False,
    log_file: LogFile = None,
    hub: Hub = HERE,
) -> None:
    if status:
        raise typer.Exit(show_status(state, json=json, max_behind=max_behind))
    if release:
        raise typer.Exit(let_through(state, source, set_name))
    requests = Requests(header=header, timeout=patience, verbose=verbose, log_file=log_file)
    network = requests.network()
    given: dict[str, object] = {"interval": interval, "max-interval": max(interval, max_interval)}
    given |= {
        "create": create,
        "shared": shared,
        "loc-from": loc_from,
        "loc": loc,
        "loc-by": loc_by,
    }
    given |= {"compare": compare, "max-delete": most_deleted(max_delete), "robots": not no_robots}
    if show:
        options = _options(source, set_name or "any", given)
        known = {options.source} if _was_read(state, options.name) else set[str]()
        return await _show(options, known, network, json=json)
    if (config is None) == (source is None or set_name is None):
        raise typer.BadParameter("give FROM and SET, or a file of bridges with --config")
    if moved is not None and config is not None:
        raise typer.BadParameter("--moved goes with FROM and SET, without --config")
    bridges = read_bridges(config) if config else [_options(source, set_name or "", given)]
    with (
        hub.token() as token,
        closing(BridgeStore(state)) as memory,
        memory.checked(),
    ):
        if moved is not None:
            to = bridges[0]
            memory.move(without_tokens(moved), to.name, hub.url.rstrip("/"), to.set_name)
        running = Running(memory, Numbers(metrics))
        address = HubAddress(hub.url, token)
        raise typer.Exit(await running.run(bridges, address, network, once=once))


def _options(source: str | None, set_name: str, given: Mapping[str, object]) -> BridgeOptions:
    if source is None:
        raise typer.BadParameter("give the address of a Source")
    with wrong_use(msgspec.ValidationError):
        options = msgspec.convert({"from": source, "set": set_name, **given}, BridgeOptions)
    check_options([options])
    return options


class Running:
    """The bridges of a command, and what is reported of them."""

    def __init__(self, memory: BridgeStore, numbers: Numbers) -> None:
        self._memory, self._numbers = memory, numbers
        self._bridges: Bridges | None = None

    async def run(
        self, options: list[BridgeOptions], hub: HubAddress, network: Network, *, once: bool
    ) -> int:
        token = token_of_source()
        self._bridges = bridges = Bridges(options, hub, self._memory, network, token=token)
        self._report()
        try:
            try:
                await bridges.check()
            except TryAgain as error:  # a hub that is away may come back
                if once:
                    raise
                echo(f"{error.detail}; it will be tried until it succeeds", err=True)
            is_well = await self._work(bridges, once=once)
        finally:
            self._report()
            await bridges.close()
        for each in bridges.bridges:
            facts, known = each.state.facts, counted(each.state.known, "resource")
            echo(f"{each.name}: {known}, {done_of(facts.loaded, facts.published)}")
        return 0 if is_well else 1

    async def _work(self, bridges: Bridges, *, once: bool) -> bool:
        """Whether all went well, where there is an end."""
        with progress(f"reading {counted(len(bridges.bridges), 'Source')}") as say:
            showing = asyncio.create_task(_keep_showing(bridges, say))
            try:
                if once:
                    return await bridges.once()
                echo(f"rsnotify bridge ready, {counted(len(bridges.bridges), 'bridge')}")
                notify(READY)
                await asyncio.gather(bridges.keep(), self._keep_reporting())
            finally:
                showing.cancel()
        raise AssertionError

    async def _keep_reporting(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._report()

    def _report(self) -> None:
        states = [] if self._bridges is None else [each.state for each in self._bridges.bridges]
        failing = sum(each.facts.failures > 0 for each in states)
        notify(f"{STATUS}{len(states)} bridges, {failing} failing")
        self._numbers.write(partial(metrics_of, states))


class Far(NamedTuple):
    """How far bridges are, together."""

    listed: int
    known: int
    published: int
    waiting: int
    failing: int

    @classmethod
    def of(cls, bridges: Bridges) -> Self:
        states = [each.state for each in bridges.bridges]
        return cls(
            sum(each.listed for each in bridges.bridges),
            sum(each.known for each in states),
            sum(each.facts.published for each in states),
            sum(each.waiting for each in states),
            sum(each.facts.failures > 0 for each in states),
        )


class BridgePace:
    """Says how far bridges are: what is read, what is published of what waits, else what is known.

    What begins after a rest has a rate of its own.
    """

    def __init__(self, say: Say, begun: Far, clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock, self._last = say, clock, begun
        self._rest(begun)

    def _rest(self, far: Far) -> None:
        self._begun = far
        self._reading = WorkPace(self._say, "read:", clock=self._clock)
        self._publishing: WorkPace | None = None

    def __call__(self, far: Far) -> None:
        is_reading, self._last = far.listed != self._last.listed, far
        if far.waiting:
            published = far.published - self._begun.published
            pace = self._publishing or WorkPace(self._say, "published:", clock=self._clock)
            self._publishing = pace
            pace(published, published + far.waiting)
        elif is_reading:
            self._reading(far.listed - self._begun.listed, self._begun.known or None)
        else:
            self._rest(far)
            known = f"{far.known:,} resources known"
            self._say(f"{known}, {far.published:,} published, {far.failing} failing")


async def _keep_showing(bridges: Bridges, say: Say) -> None:
    """Nothing is counted where nobody looks."""
    if not sys.stderr.isatty():
        return
    pace = BridgePace(say, Far.of(bridges))
    while True:
        await asyncio.sleep(SHOWN_SECONDS)
        pace(Far.of(bridges))


def _was_read(state: Path, source: str) -> bool:
    """Whether a bridge of this file has read the Source."""
    with (
        suppress(InvalidSettings),
        closing(BridgeStore(state, is_writer=False)) as memory,
        memory.checked(),
    ):
        return any(each.source == source and each.facts.is_read for each in memory.all())
    return False


async def _show(
    options: BridgeOptions, known: Collection[str], network: Network, *, json: bool
) -> None:
    """What is found, and nothing else is asked for."""
    token = token_of_source()
    webs = Webs.of(options.source, token, network, Hosts(obeys_robots=options.robots))
    try:
        with wrong_use(Rejected), of_known(options.source, known):
            found = await find_source(webs, options.source, options.rule)
    finally:
        await webs.close()
    said = {"kind": found.kind, "how": found.how(), "remarks": found.remarks}
    print_found(said, _shown(found, options), json=json)


def _shown(found: SourceAdapter, options: BridgeOptions) -> list[str]:
    interval = f"looked at every {options.interval:g} to {options.max_interval:g} s"
    every = options.compare or found.compare_seconds
    lines = [f"{found.kind}: {found.how()}", "followed live" if found.is_live else interval]
    if every is not None:
        lines.append(f"all of it is compared {how_often(every)}")
    return lines + [without_tokens(each) for each in found.remarks]


def show_status(state: Path, *, json: bool, max_behind: float) -> int:
    """Print how each bridge is; the exit status."""
    with closing(BridgeStore(state, is_writer=False)) as memory, memory.checked():
        found = [BridgeStatus.of(each, time.time()) for each in memory.all()]
    verdict = worst(each.verdict(max_behind) for each in found)
    if len(found) > 1:
        lines = table_of(found, max_behind)
    else:
        lines = [line for each in found for line in each.lines()]
    print_found([each.in_json() for each in found], [*lines, str(verdict)], json=json)
    return verdict.exit_status


def let_through(state: Path, source: str | None, set_name: str | None) -> int:
    """Say that what is held back is meant; a bridge does it at its next look."""
    with closing(BridgeStore(state, is_writer=False)) as memory, memory.checked():
        found = [each for each in memory.all() if _is_meant(each, source, set_name)]
        held = [each for each in found if each.facts.held is not None]
        for each in held:
            each.release()
            what = (each.facts.held or "").partition(";")[0]
            echo(f"{each.source} to {each.set_name}: let through: {what}")
    if not held:
        echo("nothing is held back", err=True)
    return 0 if held else 1


def _is_meant(each: BridgeMemory, source: str | None, set_name: str | None) -> bool:
    return source in (None, each.source) and set_name in (None, each.set_name)
