"""How bridges are: for people, for programs and for Prometheus.

Rules that hold here: it is what the state file says, which a bridge writes after each look.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from rsnotify.resourcesync.change import MICROSECONDS, render_datetime
from rsnotify_bridge.memory import BridgeMemory, Facts
from rsnotify_client.textfile import Label, exposition


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
            behind_seconds=facts.read_at and round(max(0.0, now - facts.read_at), 1),
        )

    def in_json(self) -> dict[str, object]:
        """Its times as the documents have them."""
        said = msgspec.structs.asdict(self)
        times = {name: _text(at) for name, at in said.items() if name.endswith("_at")}
        return said | times

    def is_fresh(self, max_behind: float) -> bool:
        return self.in_step and (self.behind_seconds or 0.0) <= max_behind

    def lines(self) -> Iterator[str]:
        yield f"{self.source} to {self.set}: {self.how or 'not looked at yet'}"
        yield f"  {self.resources} resources, {self.published} published, {self.waiting} waiting"
        if self.read_at is None:
            yield "  it was never read to its end"
        else:
            yield f"  read to its end at {_text(self.read_at)}, {self.behind_seconds:.0f} s ago"
        for name in ("held", "skipped", "clock"):
            if (said := getattr(self, name)) is not None:
                yield f"  {name.replace('held', 'held back')}: {said}"
        if self.error is not None:
            yield f"  failed {self.failures} times: {self.error}"


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
    """The text of Prometheus' textfile collector; a label for each bridge."""
    values: dict[Label, dict[str, float]] = {
        ("bridge", f"{each.source} to {each.set_name}"): dict(
            zip(METRICS, _values(each.facts), strict=True)
        )
        for each in bridges
    }
    return exposition(METRICS, values)


def _values(facts: Facts) -> tuple[float, ...]:
    times = (facts.read_at, facts.looked_at, facts.changed_at, facts.lag_seconds)
    counts = (facts.published, facts.refused, facts.looks, facts.failed)
    first = (float(facts.is_well), *(each or 0.0 for each in times))
    return (*first, facts.failures, float(facts.held is not None), *counts)
