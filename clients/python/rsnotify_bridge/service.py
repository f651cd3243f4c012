"""Several bridges in one process, each by itself; and how they are, for people and for Prometheus.

Rules that hold here: the trouble of one bridge is its own; what a file of bridges says is judged
whole before anything is begun.
"""

import asyncio
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import MICROSECONDS, render_datetime
from rsnotify.resourcesync.set_name import wrong_name
from rsnotify_bridge.bridge import Bridge, BridgePlan
from rsnotify_bridge.finding import Webs, find_source
from rsnotify_bridge.memory import BridgeMemory, BridgeStore, Facts
from rsnotify_bridge.records import LocRule
from rsnotify_bridge.rules import Intervals
from rsnotify_bridge.target import HubTarget
from rsnotify_client.address import without_tokens
from rsnotify_client.network import Network
from rsnotify_client.oaipmh import PREFIX, OaiRequest
from rsnotify_client.polite import Hosts
from rsnotify_client.textfile import Label, exposition

MAX_BRIDGES = 10_000
ADDRESSES = ("http://", "https://", "ws://", "wss://", PREFIX)
AT_ONCE = 16  # bridges that begin at the same time

Seconds = Annotated[float, msgspec.Meta(ge=1)]


class BridgeOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """One bridge, as `[[bridge]]` in a file has it, or as the command line says it."""

    source: str = msgspec.field(name="from")
    set_name: str = msgspec.field(name="set")
    interval: Seconds = Intervals().least
    max_interval: Seconds = Intervals().most
    compare: Seconds | None = None
    max_delete: Annotated[float, msgspec.Meta(ge=0, le=100)] = 10
    shared: bool = False
    robots: bool = True
    loc_from: str | None = None
    loc: str | None = None
    loc_by: str | None = None
    token_file: str | None = None

    def problems(self) -> Iterator[str]:
        if not self.source.startswith(ADDRESSES):
            known = ", ".join(ADDRESSES)
            yield f"{self.source[:200]!r} is no address of a Source: it begins with one of {known}"
        if (wrong := wrong_name(self.set_name)) is not None:
            yield wrong
        if self.max_interval < self.interval:
            yield "the longest interval is shorter than the shortest: give --max-interval, too"
        has_rule = self.loc_from or self.loc or self.loc_by
        if has_rule and not self.source.startswith(PREFIX):
            yield "--loc-from, --loc and --loc-by are for OAI-PMH: write oai: before the address"

    @property
    def rule(self) -> LocRule:
        return LocRule.of(self.loc_from, self.loc, self.loc_by)

    @property
    def plan(self) -> BridgePlan:
        intervals = Intervals(self.interval, self.max_interval)
        name = without_tokens(self.source)
        return BridgePlan(
            name, self.set_name, intervals, self.max_delete, self.compare, self.shared
        )


class BridgeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`bridges.toml`."""

    bridge: list[BridgeOptions]


def read_bridges(path: Path) -> list[BridgeOptions]:
    """All problems of the file at once."""
    try:
        content = tomllib.loads(path.read_text())
        found = msgspec.convert(content, BridgeFile).bridge
    except OSError as error:
        raise InvalidSettings([f"{path}: {error.strerror}"]) from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise InvalidSettings([f"{path}: {error}"]) from None
    check_options(found, str(path))
    return found


def check_options(options: Sequence[BridgeOptions], where: str | None = None) -> None:
    """Raises `InvalidSettings`, and asks nobody."""
    problems = [
        f"{where}: bridge {number}: {problem}" if where else problem
        for number, each in enumerate(options, 1)
        for problem in each.problems()
    ]
    pairs = [(each.source, each.set_name) for each in options]
    problems += [f"{where}: {pair[0]} stands twice" for pair in {*pairs} if pairs.count(pair) > 1]
    if len(options) > MAX_BRIDGES:
        problems.append(f"{where}: it has more than {MAX_BRIDGES:,} bridges")
    if problems:
        raise InvalidSettings(problems)
    for each in options:
        _ = each.rule
        if each.source.startswith(PREFIX):
            OaiRequest.of(each.source)


class HubAddress(NamedTuple):
    """Where the bridges publish to."""

    url: str
    token: str | None


class Bridges:
    """The bridges of one process."""

    def __init__(
        self,
        options: Sequence[BridgeOptions],
        hub: HubAddress,
        memory: BridgeStore,
        network: Network,
        *,
        token: str | None = None,
        on_look: Callable[[], object] = lambda: None,
    ) -> None:
        self._hosts = {robots: Hosts(obeys_robots=robots) for robots in (True, False)}
        self._network = network
        self._webs: list[Webs] = []
        self._targets: dict[str, HubTarget] = {}
        self._hub, self._memory, self._token = hub, memory, token
        self._on_look = on_look
        self.bridges = [self._bridge(each) for each in options]

    def _bridge(self, options: BridgeOptions) -> Bridge:
        token = _token_of(options) or self._token
        webs = Webs.of(options.source, token, self._network, self._hosts[options.robots])
        self._webs.append(webs)
        target = self._targets.get(options.set_name)
        if target is None:
            target = HubTarget(self._hub.url, self._hub.token, options.set_name)
            self._targets[options.set_name] = target
        return Bridge(
            options.plan,
            lambda: find_source(webs, options.source, options.rule),
            target,
            self._memory,
            on_look=lambda _: self._on_look(),
        )

    async def check(self) -> None:
        """What the hub refuses is reported at once."""
        for target in self._targets.values():
            await target.check()

    async def once(self) -> bool:
        """Each once; whether all went well."""
        room = asyncio.Semaphore(AT_ONCE)

        async def one(bridge: Bridge) -> bool:
            async with room:
                return await bridge.once()

        return all([*await asyncio.gather(*map(one, self.bridges))])

    async def keep(self) -> None:
        await asyncio.gather(*(bridge.keep() for bridge in self.bridges))

    async def close(self) -> None:
        for webs in self._webs:
            await webs.close()
        for target in self._targets.values():
            target.close()


def _token_of(options: BridgeOptions) -> str | None:
    if options.token_file is None:
        return None
    try:
        return Path(options.token_file).read_text().strip()
    except OSError as error:
        raise InvalidSettings([f"token-file {options.token_file}: {error.strerror}"]) from None


# How they are -----------------------------------------------------------------------------------


class BridgeStatus(msgspec.Struct, frozen=True):
    """One bridge, as it was known last."""

    source: str
    set: str
    how: str
    resources: int
    waiting: int  # batches that the hub does not have yet
    in_step: bool
    in_step_at: str | None
    behind_seconds: float | None  # since the Source was read to its end
    looked_at: str | None
    changed_at: str | None
    published: int
    refused: int
    failures: int
    error: str | None
    held: str | None
    skipped: str | None
    lag_seconds: float | None

    def is_well(self, max_behind: float) -> bool:
        return self.in_step and (self.behind_seconds or 0.0) <= max_behind


def status_of(bridge: BridgeMemory, now: float) -> BridgeStatus:
    facts, waiting = bridge.facts, bridge.waiting
    is_in_step = facts.read_at is not None and not (facts.error or facts.held or facts.skipped)
    return BridgeStatus(
        bridge.source,
        bridge.set_name,
        facts.how,
        bridge.known,
        waiting,
        is_in_step and not waiting,
        _text(facts.read_at),
        None if facts.read_at is None else round(max(0.0, now - facts.read_at), 1),
        _text(facts.looked_at),
        _text(facts.changed_at),
        facts.published,
        facts.refused,
        facts.failures,
        facts.error,
        facts.held,
        facts.skipped,
        facts.behind_seconds,
    )


def _text(seconds: float | None) -> str | None:
    return None if seconds is None else render_datetime(int(seconds * MICROSECONDS))


def status_lines(status: BridgeStatus) -> Iterator[str]:
    yield f"{status.source} to {status.set}: {status.how or 'not looked at yet'}"
    yield f"  {status.resources} resources, {status.published} published, {status.waiting} waiting"
    if status.in_step_at is None:
        yield "  it was never read to its end"
    else:
        yield f"  read to its end at {status.in_step_at}, {status.behind_seconds:.0f} s ago"
    if status.held is not None:
        yield f"  held back: {status.held}"
    if status.skipped is not None:
        yield f"  skipped: {status.skipped}"
    if status.error is not None:
        yield f"  failed {status.failures} times: {status.error}"


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
    """The text of Prometheus' textfile collector; a label for each bridge."""
    values: dict[Label, dict[str, float]] = {
        ("bridge", f"{each.source} to {each.set_name}"): dict(
            zip(METRICS, _values(each.facts), strict=True)
        )
        for each in bridges
    }
    return exposition(METRICS, values)


def _values(facts: Facts) -> tuple[float, ...]:
    is_in_step = facts.read_at is not None and not (facts.error or facts.held or facts.skipped)
    times = (facts.read_at, facts.looked_at, facts.changed_at, facts.behind_seconds)
    counts = (facts.published, facts.refused, facts.looks, facts.failed)
    first = (float(is_in_step), *(each or 0.0 for each in times))
    return (*first, facts.failures, float(facts.held is not None), *counts)
