"""`python -m tests.evidence.scale [READERS]`: measure what things cost here, predict, and compare.

Both sides are counted in processor time of the hub and its Redis, which other work on the machine
disturbs least; the server has one core and the load another, as in `tests.evidence.bench.channels`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.evidence.bench.channels import hub, served
from tests.evidence.scale.model import Costs, Deployment, Setup, herd_seconds

FEW, MANY = 1_000, 5_000
CHANGES = {1: 1_000, FEW: 150, MANY: 40}
TURNS = 3  # each cost is the median: others on the machine disturb one now and then
READERS, COMPARED_CHANGES = 19_000, 12


class OnCore(NamedTuple):
    """How long processes had a core, and how long they waited for one that others had."""

    had: float
    waited: float

    def since(self, before: "OnCore") -> "OnCore":
        return OnCore(self.had - before.had, self.waited - before.waited)


def on_core(pids: Sequence[int]) -> OnCore:
    threads = (each for pid in pids for each in Path(f"/proc/{pid}/task").iterdir())
    times = [(each / "schedstat").read_text().split()[:2] for each in threads]
    had, waited = (sum(map(int, each)) / 1e9 for each in zip(*times, strict=True))
    return OnCore(had, waited)


def cpu_seconds(pids: Sequence[int]) -> float:
    return on_core(pids).had


def measure(readers: int, changes: int) -> dict[str, float]:
    """Seconds of a core: to connect a reader; for a change to all of them, in the hub, in Redis."""
    with served(hub) as (server, load):
        main, *others = server.target["pids"]
        load.ask("open", 1)
        before = cpu_seconds([main])
        load.ask("open", readers)
        handshake = (cpu_seconds([main]) - before) / max(1, readers - 1)
        of_hub, of_redis = cpu_seconds([main]), cpu_seconds(others)
        sides = [main, load.pid]
        began = [on_core([pid]) for pid in sides]
        found = load.ask("one_by_one", changes)
        ran = [on_core([pid]).since(each) for pid, each in zip(sides, began, strict=True)]
        slower = max(ran, key=sum)  # the side for which the other waits
        return {
            "handshake": handshake,
            "hub": (cpu_seconds([main]) - of_hub) / (changes + 1),  # one goes before
            "redis": (cpu_seconds(others) - of_redis) / (changes + 1),
            "receive": found["load_cpu_seconds"] / found["deliveries"],
            "p50": found["p50_ms"] / 1000,
            "alone": slower.had / sum(slower),
            "p99": found["p99_ms"] / 1000,
            "a second": found["deliveries"] / found["seconds"],
        }


def costs_here() -> Costs:
    turns = [
        {each: measure(each, changes) for each, changes in CHANGES.items()} for _ in range(TURNS)
    ]
    found = {each: _medians([turn[each] for turn in turns]) for each in CHANGES}
    alone = found[1]
    write = {each: (found[each]["hub"] - alone["hub"]) / each for each in (FEW, MANY)}
    return Costs(
        publish=alone["hub"],
        append=alone["redis"],
        read_back=alone["hub"] / 2,
        write=write,
        handshake=found[MANY]["handshake"],
        receive={each: found[each]["receive"] for each in (FEW, MANY)},
    )


def _medians(measured: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: median(each[name] for each in measured) for name in measured[0]}


def compare(costs: Costs, readers: int) -> None:
    found = measure(readers, COMPARED_CHANGES)
    measured = found["hub"] + found["redis"]
    predicted = Deployment(costs, Setup(readers, seconds=5, readers_share_a_core=True)).run()
    core_seconds = (predicted.busiest + predicted.redis) * predicted.seconds / predicted.published
    print(f"{readers:,} readers, core seconds a change:")
    print(f"predicted {core_seconds:.4f}, measured {measured:.4f}: {core_seconds / measured:.2f}")
    p50, alone = predicted.percentile(0.5) * 1e3, found["p50"] * found["alone"] * 1e3
    print(
        f"p50 of receipt: predicted {p50:.0f} ms, measured {found['p50'] * 1e3:.0f} ms, of them "
        f"{alone:.0f} ms without waiting for a core that other programs had"
    )


def show(costs: Costs) -> None:
    print(
        f"a change {costs.publish * 1e6:.0f} µs in the hub, {costs.append * 1e6:.0f} µs in Redis; "
        f"a write {costs.write[FEW] * 1e6:.1f} µs ({FEW:,} readers), "
        f"{costs.write[MANY] * 1e6:.1f} µs ({MANY:,}); a handshake {costs.handshake * 1e6:.0f} µs; "
        f"a reader takes a notification in {costs.receive[MANY] * 1e6:.1f} µs\n"
    )


SETUPS = {
    "20,000 readers, 1 process": Setup(20_000, 1, 5),
    "… a slow tenth": Setup(20_000, 1, 5, slow_share=0.1),
    "… Redis away for 3 s": Setup(20_000, 1, 5, redis_is_away=(2.0, 5.0)),
    "200,000 readers, 8 processes": Setup(200_000, 8, 10),
    "1,000,000 readers, 40 processes": Setup(1_000_000, 40, 100),
    "1,000,000 readers, 80 processes": Setup(1_000_000, 80, 100),
}


def predict(costs: Costs) -> None:
    print("| deployment | changes/s | p50 s | p99 s | busiest process | Redis | herd back s |")
    print("|---|---|---|---|---|---|---|")
    for name, setup in SETUPS.items():
        outcome = Deployment(costs, setup).run()
        herd = herd_seconds(costs, setup.readers // setup.processes)
        print(
            f"| {name} | {setup.changes_a_second} | {outcome.percentile(0.5):.3f} "
            f"| {outcome.percentile(0.99):.3f} | {outcome.busiest:.0%} | {outcome.redis:.0%} "
            f"| {herd:.1f} |",
            flush=True,
        )


def main(readers: int = READERS) -> None:
    costs = costs_here()
    show(costs)
    compare(costs, readers)
    print()
    predict(costs)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
