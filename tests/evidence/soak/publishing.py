"""An application with an outbox while everything around it fails, and what the journal holds then.

Every change that the application was told is kept stands in the journal once, in its order.
"""

import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from rsnotify_client import OutboxError, Publisher, changes_between, follow
from tests.support.hub_processes import (
    ACCEPTED,
    Answer,
    HubProcess,
    Posted,
    eventually,
    python,
    scripted_hub,
)
from tests.support.running import TOKEN

KILLS = 20
BACKLOG = 100_000
ENTRIES = 1_000_000
PEAK_MIB = 300
CAUGHT_UP_SECONDS = 300  # it waits up to 30 s for a hub that was away, and notes each change
LAST = "http://example.com/last"

APPLICATION = """
import sys, time
from rsnotify_client import Publisher
url, token, path, life = sys.argv[1:]
publisher = Publisher(url, token, outbox=path)
number = 0
while True:
    publisher.updated("dataset1", f"http://example.com/{life}-{number}")
    print(number, flush=True)
    number += 1
    time.sleep(0.001)
"""


PROOFS = ("kills", "backlog", "frozen", "full_disk", "million")


def main() -> None:
    """All of them, or those that `SOAK_PROOFS` names."""
    names = os.environ.get("SOAK_PROOFS", " ".join(PROOFS)).split()
    with tempfile.TemporaryDirectory() as folder:
        for proof in (globals()[name] for name in names):
            began = time.monotonic()
            place = Path(folder, proof.__name__)
            place.mkdir()
            print(f"{proof.__name__}: {proof(place)}", end="", flush=True)
            print(f" ({time.monotonic() - began:.0f} s)", flush=True)


def kills(place: Path, times: int = KILLS) -> str:
    """The hub is killed, its Redis every other time, and so are two applications, at random, while
    three follow."""
    chance = random.Random(11)
    kept: dict[str, int] = {}
    with HubProcess(place / "data") as hub:
        followers = [Following(url, place) for url in (hub.url, *_channels(hub.url))]
        outbox = str(place / "outbox")
        lives: dict[int, tuple[str, subprocess.Popen[str]]] = {}
        for kill in range(times):
            for who in range(2):
                if who not in lives:
                    life = f"{who}x{kill}"
                    lives[who] = life, python("-c", APPLICATION, hub.url, TOKEN, outbox, life)
            time.sleep(chance.uniform(0.3, 1.5))
            _kill(hub, place, with_redis=bool(kill % 2))
            if chance.random() < 0.5:
                time.sleep(chance.uniform(0, 1))
            life, process = lives.pop(kill % 2)
            kept[life] = _killed(process)
            hub.start()
        for life, process in lives.values():
            kept[life] = _killed(process)
        with Publisher(hub.url, TOKEN, outbox=outbox) as publisher:
            publisher.start()
            publisher.flush(120)
            publisher.updated("dataset1", LAST)
        told = [change.loc for change in hub.journal()]
        for follower in followers:
            follower.join(CAUGHT_UP_SECONDS)
            assert not follower.is_alive(), f"{follower.name} has not come to the end yet"
            assert follower.found == told, f"{follower.name} holds something else"
    _check([loc.rpartition("/")[2] for loc in told[:-1]], kept)
    return (
        f"hub killed {times} times, applications {len(kept)}: {len(told)} changes, each once, and "
        "three followers hold exactly the journal"
    )


def _kill(hub: HubProcess, place: Path, *, with_redis: bool) -> None:
    if with_redis:
        os.kill(int((place / "data/redis.lock").read_text()), signal.SIGKILL)
    hub.kill()


def _channels(url: str) -> tuple[str, str]:
    """The set's channel as a WebSocket and as an event stream."""
    topic = f"{url}/channels/dataset1/change_notification_channel"
    return topic.replace("http", "ws", 1), topic


class Following(threading.Thread):
    """Follows from now on, until the last change."""

    def __init__(self, url: str, place: Path) -> None:
        super().__init__(name=url, daemon=True)
        self.found: list[str] = []
        self._cursor = place / f"cursor-{hash(url)}"
        self.start()
        eventually(self._cursor.exists)

    def run(self) -> None:
        for change in follow(self.name, cursor=self._cursor):
            with change:
                self.found.append(change.loc)
            if change.loc == LAST:
                return


def _killed(process: subprocess.Popen[str]) -> int:
    """How many changes it was told are kept."""
    process.kill()
    out, errors = process.communicate()
    assert "Traceback" not in errors, errors
    return len([line for line in out.split("\n")[:-1] if line])


def _check(told: list[str], kept: dict[str, int]) -> None:
    numbers = defaultdict(list)
    for name in told:
        life, _, number = name.partition("-")
        numbers[life].append(int(number))
    assert sum(kept.values()) > 0
    for life, count in kept.items():
        found = numbers[life]
        assert found == list(range(len(found))), f"{life}: not each once in its order"
        assert count <= len(found) <= count + 1, f"{life}: {count} kept, {len(found)} published"


def backlog(place: Path) -> str:
    """What a repository changes in a day while the hub is away."""
    path = place / "outbox"
    with HubProcess(place / "data") as hub:
        hub.kill()
        publisher = Publisher(hub.url, TOKEN, outbox=path)
        began = time.perf_counter()
        for number in range(BACKLOG):
            publisher.updated("dataset1", f"http://example.com/{number}")
        each = (time.perf_counter() - began) / BACKLOG
        size = path.stat().st_size
        hub.start()
        began = time.perf_counter()
        publisher.flush(300)
        rate = BACKLOG / (time.perf_counter() - began)
        publisher.close()
        assert publisher.counters.published == BACKLOG
    small = path.stat().st_size
    assert small < 1_000_000
    return (
        f"{BACKLOG} changes kept in {size / 1e6:.0f} MB at {each * 1e6:.0f} us each, "
        f"published at {rate:.0f}/s, then {small / 1e3:.0f} kB"
    )


def frozen(place: Path) -> str:
    """A hub that takes a request and says nothing for longer than we wait."""

    def silent_once(_: Posted) -> Answer:
        if len(posted) == 1:
            time.sleep(90)
        return ACCEPTED

    with scripted_hub(silent_once) as (url, posted):
        with Publisher(url, outbox=place / "outbox") as publisher:
            publisher.updated("a", "1")
            eventually(lambda: publisher.counters.published == 1, 120)
        assert posted[0] == posted[1]
    return "asked again under the same key"


def full_disk(place: Path) -> str:
    """The outbox lies on a disk of 1 MB."""
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=False
    ).returncode:
        return "not tried: this user cannot mount a disk"
    try:
        with HubProcess(place.with_name("hub")) as hub:
            hub.kill()
            with Publisher(hub.url, TOKEN, outbox=place / "outbox") as publisher:
                kept = _fill(publisher)
                hub.start()
                publisher.flush(60)
                publisher.updated("dataset1", "http://example.com/after")
            told = [change.loc.rpartition("/")[2] for change in hub.journal()]
        assert told == [*map(str, range(kept)), "after"], (kept, len(told))
    finally:
        subprocess.run(["umount", place], check=True)
    return f"{kept} changes fitted, all were published, and there was room again"


def _fill(publisher: Publisher) -> int:
    kept = 0
    try:
        while True:
            publisher.updated("dataset1", f"http://example.com/{kept}")
            kept += 1
    except OutboxError:
        return kept


def million(place: Path) -> str:
    """Two lists of a million entries."""
    for name, gone in (("old", 0), ("new", 1)):
        with (place / name).open("w") as file:
            file.writelines(_list(gone))
    program = f"from tests.evidence.soak.publishing import count; count({str(place)!r})"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    return done.stdout.decode().strip()


def _list(gone: int) -> Iterator[str]:
    yield (
        '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" '
        'xmlns:rs="http://www.openarchives.org/rs/terms/">'
    )
    for number in range(ENTRIES):
        if number % 1_000 != gone:
            day = 21 if gone and number % 100 == 7 else 20
            yield (
                f"<url><loc>http://example.com/item/{number * 7919 % ENTRIES}</loc>"
                f'<lastmod>2026-11-{day}</lastmod><rs:md length="{number}" type="text/html"/></url>'
            )
    yield "</urlset>"


def count(place: str) -> None:
    """In a process of its own, whose memory is measured."""
    found = Counter(each.change for each in changes_between(f"{place}/old", f"{place}/new"))
    assert found == {"updated": 10_000, "created": 1_000, "deleted": 1_000}, found
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert peak < PEAK_MIB, peak
    print(f"two lists of {ENTRIES} compared in {peak:.0f} MiB")
