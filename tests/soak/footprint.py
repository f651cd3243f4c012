"""How much memory and how many open files a process has while others come and go: it must be flat.

It is looked at each second. What it has in the last quarter of the time is compared with the second
quarter: by then everything has gone wrong once, and every pool has its connections.
"""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.running import RunningHub

LOOK_SECONDS = 1.0
GROWTH = 1.1  # of memory, which is never given back whole
SPARE_FILES = 10
ESTABLISHED = "01"


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
        while True:
            self._seen.append(footprint(self._hub.process.pid, self._hub.port))
            await asyncio.sleep(LOOK_SECONDS)

    def rows(self) -> list[tuple[str, object]]:
        """What is found, in words; an `AssertionError` if it has grown."""
        early, late = quarters(self._seen)
        check_flat(early, late)
        return [
            ("MiB of the hub that is spared, early", round(highest(early).mib)),
            ("MiB of it, late", round(typical(late).mib)),
            ("open files of it, early", highest(early).files),
            ("open files of it, late", typical(late).files),
        ]


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
