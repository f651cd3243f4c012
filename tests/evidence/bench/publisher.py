"""How long a caller is held up by a call of the publisher, while the hub takes what it sends, and
how late a change is published where there are many busy sets.

At rest means a call a millisecond, as an application does; at once means as fast as it goes: the
caller and its own sender compete for the interpreter.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rsnotify_client import Publisher
from tests.support.hub_processes import HubProcess
from tests.support.running import TOKEN

CALLS = 5_000
SETS, RATE, SECONDS = 100, 50, 4  # so many changes a second of each set
FIELDS = {
    "hash": "md5:1584abdf8ebdc9802ac0c6a7402c03b6",
    "length": 8876,
    "type": "text/html",
}


def calls(publisher: Publisher, pause_seconds: float) -> list[float]:
    """The microseconds that each call took, sorted."""
    taken = []
    for number in range(CALLS):
        began = time.perf_counter()
        publisher.updated("dataset1", f"http://example.com/{number}", **FIELDS)
        taken.append((time.perf_counter() - began) * 1e6)
        if pause_seconds:
            time.sleep(pause_seconds)
    return sorted(taken)


def put_evenly(publisher: Publisher, names: Sequence[str]) -> float:
    """Changes of all sets in turn; how many seconds the last waits until it is published."""
    began = time.perf_counter()
    for number in range(len(names) * RATE * SECONDS):
        due = began + number / (len(names) * RATE)
        time.sleep(max(0.0, due - time.perf_counter()))
        publisher.updated(names[number % len(names)], f"http://example.com/{number}")
    put = time.perf_counter()
    publisher.flush()
    return time.perf_counter() - put


def show_many_sets(folder: Path) -> None:
    names = [f"set{number:03}" for number in range(SETS)]
    with (
        HubProcess(folder, *names) as hub,
        Publisher(hub.url, TOKEN, queue_size=100_000) as publisher,
    ):
        seconds, requests = put_evenly(publisher, names), publisher.counters.requests
    print(f"\n| {SETS} sets of {RATE} changes a second each, for {SECONDS} s | |\n|---|---|")
    print(f"| the last is published | {seconds:.2f} s later |")
    print(f"| requests | {requests:,} |", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        show_calls(Path(folder))
        show_many_sets(Path(folder, "many"))


def show_calls(folder: Path) -> None:
    print("| queue | calls | p50 µs | p99 µs | published/s |")
    print("|---|---|---|---|---|", flush=True)
    with HubProcess(folder / "data") as hub:
        for queue, outbox in (("memory", None), ("SQLite outbox", folder / "outbox")):
            for name, pause_seconds in (("at rest", 0.001), ("at once", 0.0)):
                with Publisher(hub.url, TOKEN, outbox=outbox) as publisher:
                    began = time.perf_counter()
                    taken = calls(publisher, pause_seconds)
                    publisher.flush()
                    rate = CALLS / (time.perf_counter() - began)
                p50, p99 = (taken[int(CALLS * share)] for share in (0.5, 0.99))
                print(f"| {queue} | {name} | {p50:.1f} | {p99:.0f} | {rate:,.0f} |", flush=True)
