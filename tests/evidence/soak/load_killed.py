"""A hub is killed at 20 random moments of a load of 20,000 resources: never half a state."""

import asyncio
import tempfile
from pathlib import Path

from tests.fault.test_loads import killed_rounds

KILLS = 20


async def run(folder: Path) -> None:
    await killed_rounds(folder, rounds=KILLS, resources=20_000)
    print(f"{KILLS} kills: each left the old state or the new one, and each load was done at last")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))
