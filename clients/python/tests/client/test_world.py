"""Sources of every kind: after each round the copy is the Source, or it is said that it is not."""

import itertools
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clients.python.tests.client.world import (
    BySeconds,
    ClosedLists,
    FourLists,
    Heratio,
    Kind,
    Lie,
    NinthDraft,
    PackedSitemap,
    PagesOfTheHub,
    Patches,
    PlainSitemap,
    PyResourceSync,
    ReferenceBuild,
    World,
)
from clients.python.tests.mirror.test_mirror import Once, files
from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.change import Position
from rsnotify_mirror import planning
from rsnotify_mirror.audit import audit, repair
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.plan import Options
from rsnotify_mirror.report import Event
from tests.support.amount import enough
from tests.support.forks import run
from tests.support.reference import installed
from tests.support.running import clean_environment
from tests.support.sources import Source

ROUNDS = 3
SEEDS = range(int(os.environ.get("SOAK_WORLDS", "1")))  # `make soak` tries more
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
    Patches,
)


@pytest.fixture(autouse=True)
def _asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not served is given up at once."""
    monkeypatch.setattr(planning, "ATTEMPTS", 1)
    monkeypatch.setattr(planning, "LIST_ATTEMPTS", 1)


async def copied(kind: Kind, copy: Path, **options: object) -> Once:
    events: list[Event] = []
    chosen = Options(first_retry_seconds=0.01, **options)
    try:
        async with AsyncMirror(kind.address, copy, chosen, report=events.append) as mirror:
            return Once(await mirror.once(), events)
    except (Rejected, TryAgain) as error:
        return Once(False, [*events, Event("failed", problem=error.detail)])


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


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("lists", enough(COMBINATIONS[::-1], 2), ids="+".join)
async def test_every_combination_of_the_four_lists(lists, seed, tmp_path):
    async with Source() as source:
        await tell(FourLists(source, world_of(f"{lists}{seed}"), lists), tmp_path / "copy")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", enough(KINDS, 2))
async def test_sources_that_others_write(kind, seed, tmp_path):
    async with Source() as source:
        await tell(kind(source, world_of(f"{kind}{seed}")), tmp_path / "copy")


@pytest.mark.evidence
async def test_a_source_that_resync_builds(tmp_path):
    (tmp_path / "source").mkdir()
    build = installed().with_name("resync-build")
    async with Source() as source:
        kind = ReferenceBuild(source, world_of("resync"), tmp_path / "source", build)
        await tell(kind, tmp_path / "copy")


async def tell(kind: Kind, copy: Path) -> None:
    """The beginning, and so many rounds; after each the copy is what the Source has.

    Once, after a round, the Source lies.
    """
    lies_after = kind.world.random.randrange(1, 1 + ROUNDS)
    for number in range(1 + ROUNDS):
        kind.publish()
        if number == lies_after:
            await is_not_fooled(kind, copy)
        else:
            await is_the_source(kind, copy)
        kind.world.step()


async def is_not_fooled(kind: Kind, copy: Path) -> None:
    """The copy is the Source, or it is said that it is not; what is there is never deleted."""
    before, lie = files(copy), Lie(kind)
    lie.begin()
    ran = await copied(kind, copy)
    now, said = files(copy), f"{lie.kind} at {lie.path}"
    assert not [name for name in before if name in kind.world.state and name not in now], said
    if now != kind.world.state:
        assert not ran.is_whole, said
        assert ran.problems().strip(), said
        with suppress(Rejected, TryAgain):  # that is said, too
            assert not (await audit(kind.address, copy)).is_in_sync, said
    lie.end()
    ran = await copied(kind, copy)
    if lie.kind == "a wrong digest" and not ran.is_whole:  # it was read, and is not read again
        assert "digest" in ran.problems(), said
        await repair(kind.address, copy, await audit(kind.address, copy))
        ran = await copied(kind, copy)
    assert files(copy) == kind.world.state, said
    assert ran.is_whole, said + ran.problems()


@pytest.mark.parametrize(
    "make", [PlainSitemap, lambda *words: FourLists(*words, ("resourcedump", "changedump"))]
)
async def test_the_commands_say_the_same(make, tmp_path):
    async with Source() as source:
        kind = make(source, world_of("commands"))
        for _ in range(2):
            kind.publish()
            for words, status in ((("mirror", "--once"), 0), (("audit",), 0)):
                assert await command(kind, tmp_path / "copy", *words) == status
            assert files(tmp_path / "copy") == kind.world.state
            kind.world.step()
        kind.source.documents.clear()
        assert await command(kind, tmp_path / "copy", "mirror", "--once") != 0
        assert files(tmp_path / "copy")


async def command(kind: Kind, copy: Path, name: str, *words: str) -> int:
    return (await run((name, kind.address, str(copy), *words), clean_environment())).status
