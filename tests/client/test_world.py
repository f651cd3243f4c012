"""Sources of every kind: after each round the copy is the Source, or it is said that it is not."""

import itertools
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rsnotify.resourcesync.change import Position
from rsnotify_client.audit import audit
from rsnotify_client.mirror.mirror import Mirror
from rsnotify_client.mirror.options import Options
from tests.client.test_mirror import Once, files
from tests.client.world import (
    BySeconds,
    ClosedLists,
    FourLists,
    Heratio,
    Kind,
    NinthDraft,
    PackedSitemap,
    PagesOfTheHub,
    PlainSitemap,
    PyResourceSync,
    World,
)
from tests.sources import Source

ROUNDS = 3
LISTS = ("resourcelist", "resourcedump", "changelist", "changedump")
COMBINATIONS = [
    chosen
    for count in range(1, 5)
    for chosen in itertools.combinations(LISTS, count)
    if {"resourcelist", "resourcedump"} & {*chosen}
]
KINDS = (
    PlainSitemap,
    BySeconds,
    PackedSitemap,
    Heratio,
    PagesOfTheHub,
    ClosedLists,
    PyResourceSync,
    NinthDraft,
)


async def copied(kind: Kind, copy: Path, **options: object) -> Once:
    events: list[object] = []
    chosen = Options(first_retry_seconds=0.01, **options)  # type: ignore[arg-type]
    async with Mirror(kind.address, copy, chosen, report=events.append) as mirror:
        return Once(await mirror.once(), events)  # type: ignore[arg-type]


async def is_the_source(kind: Kind, copy: Path) -> None:
    ran = await copied(kind, copy)
    assert files(copy) == kind.world.state
    assert ran.is_whole, ran.problems()
    found = await audit(kind.address, copy)
    assert found.is_in_sync, (found.findings, found.skipped)
    assert found.resources == len(kind.world.state)


def world_of(seed: str) -> World:
    """It begins a minute ago: of many a list the newest times are those of today."""
    now = int(datetime.now(UTC).timestamp()) - 60
    return World(seed, Position(now * 1_000_000))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lists", COMBINATIONS, ids="+".join)
async def test_every_combination_of_the_four_lists(
    lists: tuple[str, ...], seed: int, tmp_path: Path
) -> None:
    async with Source() as source:
        await tell(FourLists(source, world_of(f"{lists}{seed}"), lists), tmp_path / "copy")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
async def test_sources_that_others_write(kind: type[Kind], seed: int, tmp_path: Path) -> None:
    async with Source() as source:
        await tell(kind(source, world_of(f"{kind}{seed}")), tmp_path / "copy")


async def tell(kind: Kind, copy: Path) -> None:
    """The beginning, and so many rounds; after each the copy is what the Source has."""
    for _ in range(1 + ROUNDS):
        kind.publish()
        await is_the_source(kind, copy)
        kind.world.step()
