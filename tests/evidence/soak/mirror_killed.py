"""A mirror is killed at 100 random moments while its Source changes; then it is in sync."""

import asyncio
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from rsnotify_client.web import SMALL_BYTES
from rsnotify_mirror.audit import audit
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.paths import OURS
from tests.support.children import begun
from tests.support.sources import CAPABILITIES, Source

KILLS = 100
RESOURCES = 300
LONGEST_SECONDS = 0.8
SIZES = (9, 900, 2**21)


class Running(threading.Thread):
    """A Source in a thread of its own, so that the mirror can be forked and killed."""

    def __init__(self, resources: int, sizes: Sequence[int] = SIZES) -> None:
        super().__init__(daemon=True)
        self.resources = resources
        self.sizes = sizes
        self.source = Source()
        self.ready = threading.Event()
        self.loop = asyncio.new_event_loop()

    def run(self) -> None:
        self.loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        async with self.source:
            for number in range(self.resources):
                size = SMALL_BYTES + number if number % 50 == 0 else 500 + number
                self.source.add(f"{number % 7}/r{number}", os.urandom(size))
            self.source.list_resources()
            self.ready.set()
            await asyncio.Event().wait()

    def change(self, chance: random.Random) -> None:
        for _ in range(chance.randint(1, 20)):
            name = f"{chance.randint(0, 6)}/r{chance.randint(0, 2 * self.resources)}"
            content = None if chance.random() < 0.2 else os.urandom(chance.choice(self.sizes))
            self.loop.call_soon_threadsafe(self.source.change, name, content)


async def once(url: str, copy: Path) -> bool:
    async with AsyncMirror(url, copy) as mirror:
        return await mirror.once()


def killed(url: str, copy: Path, seconds: float) -> bool:
    """Run it in a process and kill that; whether it was still running."""
    child = begun(lambda: asyncio.run(once(url, copy)))
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def main() -> None:
    print(proven(KILLS, RESOURCES, LONGEST_SECONDS))


def proven(kills: int, resources: int, longest_seconds: float) -> str:
    """Kill it so often at random moments; what was found at the end."""
    running, chance = Running(resources), random.Random(11)
    running.start()
    running.ready.wait()
    url = running.source.url + CAPABILITIES
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        alive = 0
        while alive < kills:
            running.change(chance)
            alive += killed(url, copy, chance.random() * longest_seconds)
        parts = [each.name for each in copy.glob(f"{OURS}*")]  # perhaps there is no copy yet
        assert asyncio.run(once(url, copy))
        found = asyncio.run(audit(url, copy))
        assert found.is_in_sync, found.findings[:5]
        left = [each.name for each in copy.iterdir() if each.name.startswith(OURS)]
        assert left == [f"{OURS}.sqlite"], left
        return f"killed {alive} times ({parts} were left); {found.resources} resources in sync"
