"""Failovers to replicas that lag: with one hub and with three, idle and under load, repeatedly."""

import asyncio
import tempfile
from itertools import product
from pathlib import Path

from tests.support.lossy_failover import lossy_failover

ROUNDS = 5


async def run() -> None:
    for number, hubs, under_load in product(range(ROUNDS), (1, 3), (False, True)):
        with tempfile.TemporaryDirectory() as folder:
            outcome = await lossy_failover(
                Path(folder), hubs=hubs, changes=500, under_load=under_load
            )
        load = "under load" if under_load else "idle"
        print(f"round {number + 1}, hubs: {hubs}, {load}: {outcome}", flush=True)


def main() -> None:
    asyncio.run(run())
