"""Bridges that are killed, and whose hub is: `make soak SOAK_ARGS=bridge`, for less long."""

from pathlib import Path

from tests.soak.bridge import soak


async def test_a_bridge_that_is_killed_misses_nothing_and_publishes_nothing_twice(
    tmp_path: Path,
) -> None:
    assert await soak(tmp_path, 8, seed=4) > 0
