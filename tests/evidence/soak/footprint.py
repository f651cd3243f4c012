"""How much memory and how many open files a process has while others come and go: it must be flat.

It is looked at each second. What it has in the last quarter of the time is compared with the second
quarter: by then everything has gone wrong once, and every pool has its connections. What it keeps
as a cache, within `RSNOTIFY_CACHE_MB`, is not counted: that grows with the history.
"""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

import aiohttp

from tests.support.running import RunningHub

LOOK_SECONDS = 1.0
GROWTH = 1.1  # of memory, which is never given back whole
SPARE_FILES = 10
ESTABLISHED = "01"
CACHE = "rsnotify_cache_bytes{"


class Footprint(NamedTuple):
    """Of one process. The connections of its readers and publishers are not counted as files."""

    mib: float
    files: int


def footprint(pid: int, port: int) -> Footprint:
    folder = Path("/proc", str(pid))
    pages = int(folder.joinpath("statm").read_text().split()[1])
    opened = set()
    for each in folder.joinpath("fd").iterdir():
        try:
            opened.add(str(each.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
    served = {f"socket:[{inode}]" for inode in _inodes_served(folder, port)}
    return Footprint(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(opened - served))


def _inodes_served(folder: Path, port: int) -> list[str]:
    """Of the connections that others have made to this port."""
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in folder.joinpath("net", name).read_text().splitlines()[1:]
    ]
    local = f":{port:04X}"
    return [row[9] for row in rows if row[1].endswith(local) and row[3] == ESTABLISHED]


class Watch:
    """Looks at a hub of one process that nobody kills."""

    def __init__(self, hub: RunningHub) -> None:
        self._hub = hub
        self._seen: list[Footprint] = []

    async def run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=LOOK_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                with suppress(aiohttp.ClientError, TimeoutError):  # it is busy: look again later
                    self._seen.append(await self._look(session))
                await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, session: aiohttp.ClientSession) -> Footprint:
        async with session.get(f"{self._hub.url}/metrics", raise_for_status=True) as answer:
            metrics = await answer.text()
        seen = footprint(self._hub.process.pid, self._hub.port)
        return seen._replace(mib=seen.mib - cache_mib(metrics))

    def rows(self) -> list[tuple[str, object]]:
        """What is found, in words; an `AssertionError` if it has grown."""
        early, late = quarters(self._seen)
        check_flat(early, late)
        return [
            ("MiB of the hub that is spared, early, without its cache", round(highest(early).mib)),
            ("MiB of it, late, without its cache", round(typical(late).mib)),
            ("open files of it, early", highest(early).files),
            ("open files of it, late", typical(late).files),
        ]


def cache_mib(metrics: str) -> float:
    """What the hub says that it keeps in memory to be read again."""
    (cache,) = (line.split()[-1] for line in metrics.splitlines() if line.startswith(CACHE))
    return float(cache) / 2**20


def quarters(seen: Sequence[Footprint]) -> tuple[Sequence[Footprint], Sequence[Footprint]]:
    """The second and the last."""
    quarter = max(1, len(seen) // 4)
    return seen[quarter : 2 * quarter] or seen[:1], seen[-quarter:]


def highest(seen: Sequence[Footprint]) -> Footprint:
    return Footprint(max(each.mib for each in seen), max(each.files for each in seen))


def typical(seen: Sequence[Footprint]) -> Footprint:
    return Footprint(median(each.mib for each in seen), round(median(each.files for each in seen)))


def check_flat(early: Sequence[Footprint], late: Sequence[Footprint]) -> None:
    before, after = highest(early), typical(late)
    assert after.mib <= before.mib * GROWTH, f"memory has grown: {before} → {after}"
    assert after.files <= before.files + SPARE_FILES, f"files have grown: {before} → {after}"
