"""Origin, mirror, hub, mirror: each is killed again and again, and the last copy is the origin."""

import random
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from clients.python.tests.mirror.serving import serving
from clients.python.tests.mirror.test_republishing import contents
from rsnotify_client import Publisher
from rsnotify_mirror.audit import audit
from tests.support.amount import amount
from tests.support.forks import Spawned
from tests.support.hub_processes import HubProcess
from tests.support.running import TOKEN, clean_environment
from tests.support.sources import digest

CHANGES = amount(400, evidence=10_000)
KILLS = amount(2, evidence=20)  # of each process
RESOURCES = amount(100, evidence=1_000)
LONGEST_SECONDS = 1.0


class Command:
    """A command that is killed and started again."""

    def __init__(self, log: Path, *words: str) -> None:
        self._log, self._words = log, words

    def start(self, *more: str) -> None:
        chosen = {"RSNOTIFY_TOKEN": TOKEN}
        with self._log.open("ab") as log:
            words = [*self._words, *more]
            self._process = Spawned(words, clean_environment() | chosen, log.fileno())

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()

    def said(self) -> str:
        """Its last lines."""
        return self._log.read_text()[-2_000:]

    def ended(self) -> int:
        self._process.stdout.read()
        self._process.stdout.close()
        return self._process.wait()


class Origin:
    """Files that change at random, and what is published of them."""

    def __init__(self, folder: Path, base: str, publisher: Publisher) -> None:
        self._folder, self._base, self._publisher = folder, base, publisher
        self._random = random.Random(11)

    def change(self) -> None:
        name = f"{self._random.randrange(7)}/r{self._random.randrange(RESOURCES)}"
        file, loc = self._folder / name, self._base + name
        file.parent.mkdir(exist_ok=True)
        if file.exists() and self._random.random() < 0.2:
            file.unlink()
            self._publisher.deleted("origin", loc)
            return
        content = self._random.randbytes(self._random.choice((9, 900, 40_000)))
        is_new = not file.exists()
        written = file.with_name(".new")
        written.write_bytes(content)
        written.rename(file)
        publish = self._publisher.created if is_new else self._publisher.updated
        publish("origin", loc, hash=digest(content), length=len(content))


@contextmanager
def chain(tmp_path: Path) -> Iterator[tuple[HubProcess, Origin, list[Command], Publisher]]:
    origin, first, last = (tmp_path / name for name in ("origin", "first", "last"))
    origin.mkdir()
    with (
        HubProcess(tmp_path / "hub", "origin", "copy") as hub,
        serving(origin) as its_base,
        serving(first) as base,
        Publisher(hub.url, TOKEN, outbox=tmp_path / "outbox.db") as publisher,
    ):
        to = ("--republish", "copy", "--base", base, "--url", hub.url)
        mirrors = [
            Command(tmp_path / "1.log", "mirror", f"{hub.url}/origin", str(first), *to),
            Command(tmp_path / "2.log", "mirror", f"{hub.url}/copy", str(last)),
        ]
        yield hub, Origin(origin, its_base, publisher), mirrors, publisher


@pytest.mark.evidence
async def test_the_last_copy_is_the_origin_whatever_is_killed(tmp_path):
    with chain(tmp_path) as (hub, origin, mirrors, publisher):
        for _ in range(RESOURCES):
            origin.change()
        publisher.flush(60)
        for each in mirrors:
            each.start()
        change_and_kill(origin, [hub, *mirrors])
        publisher.flush(60)
        for each in mirrors:
            each.kill()
            each.start("--once")
            assert each.ended() == 0, each.said()
        assert (await audit(f"{hub.url}/copy", tmp_path / "last")).is_in_sync
    assert contents(tmp_path / "last") == contents(tmp_path / "origin")


def change_and_kill(origin: Origin, processes: Sequence[HubProcess | Command]) -> None:
    chance = random.Random(12)
    victims = [*processes] * KILLS
    chance.shuffle(victims)
    for victim in victims:
        for _ in range(CHANGES // len(victims)):
            origin.change()
        time.sleep(chance.random() * LONGEST_SECONDS)
        victim.kill()
        victim.start()
