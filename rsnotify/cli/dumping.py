"""Dumps that are made while a mirror runs: `rsnotify mirror --dump-every 24h --dump 'OUT …'`.

A dump is a process of its own: it takes none of the mirror's time, and its memory is given back.
"""

import asyncio
import logging
import re
import sys
from pathlib import Path
from typing import NamedTuple

from rsnotify.errors import InvalidSettings

log = logging.getLogger(__name__)

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
AGAIN_SECONDS = 60.0  # where no dump could be made: the copy is not in step yet, for instance
LEAST_SECONDS = 1
_DURATION = re.compile(r"(\d+)([smhd])")


def seconds_of(text: str) -> float:
    """
    >>> seconds_of("24h")
    86400.0
    """
    found = _DURATION.fullmatch(text)
    seconds = float(found[1]) * UNITS[found[2]] if found else 0.0
    if seconds < LEAST_SECONDS:
        raise InvalidSettings([f"--dump-every {text}: give a time such as 30m, 24h or 7d"])
    return seconds


class Dumping(NamedTuple):
    """How often, and what `rsnotify dump` is given beside the copy."""

    seconds: float
    words: tuple[str, ...]

    async def keep(self, copy: Path) -> None:
        """Until cancelled; what is wrong with one dump is logged, and ends nothing."""
        while True:
            is_made = await self._made(copy)
            await asyncio.sleep(self.seconds if is_made else min(AGAIN_SECONDS, self.seconds))

    async def _made(self, copy: Path) -> bool:
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rsnotify", "dump", str(copy), *self.words),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            _, said = await running.communicate()
        except asyncio.CancelledError:
            running.terminate()
            await running.wait()
            raise
        for line in said.decode(errors="replace").splitlines():
            log.info("dump: %s", line)
        return running.returncode == 0
