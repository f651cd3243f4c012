"""Sources whose pages move while they are read: nothing is missed, and nothing called deleted."""

import random
from functools import partial
from pathlib import Path

import pytest

from clients.python.tests.bridge.bridging import Bridging
from clients.python.tests.bridge.moving import (
    FEEDS,
    HARVESTS,
    LISTS,
    PAGE,
    Feed,
    Index,
    Moving,
    Records,
    Resources,
)
from tests.support.amount import amount, enough
from tests.support.sources import Source

ROUNDS = 3
SEEDS = range(amount(1, evidence=20))
KINDS = (*LISTS, *HARVESTS, *FEEDS)
MOVING = enough([LISTS[0], HARVESTS[0], LISTS[-1], *LISTS[1:-1], *HARVESTS[1:]], 3)


def name_of(kind: type[Moving]) -> str:
    return kind.__name__


def options(kind: Moving) -> dict[str, str | float]:
    rule = {"loc": kind.source.loc("{local}")} if kind.address.startswith("oai:") else {}
    return {"max-delete": 100, **rule}


def a_set(bridging: Bridging, folder: Path, kind: type[Moving], test: str) -> Bridging:
    name = f"{test}-{kind.__name__.lower()}"
    bridging.hub.add_set(name)
    return Bridging(bridging.hub, name, folder / f"{name}.db")


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
async def test_what_slips_to_a_page_that_was_read_is_found_at_the_first_load(
    bridging, tmp_path, kind
):
    async with Source() as source:
        each, found = a_set(bridging, tmp_path, kind, "moved-first"), kind(source)
        found.acts = [*[lambda: None] * found.before, found.delete_one]
        facts = await each.once(found.address, **options(found))
        wanted = {source.loc(name) for name in found.state}
        assert (facts.error, each.told()) == (None, [])
        assert wanted - {*each.resources()} == set()


@pytest.mark.parametrize("kind", MOVING, ids=name_of)
async def test_what_slips_is_not_called_deleted_and_what_is_deleted_is(bridging, tmp_path, kind):
    """With each page that is sent, one after the other, as the last before the deletion."""
    async with Source() as source:
        each, found = a_set(bridging, tmp_path, kind, "moved-later"), kind(source)
        await each.once(found.address, **options(found))
        for pages in range(8):
            found.acts = [*[lambda: None] * pages, found.delete_one]
            each.forget_comparison()
            await each.once(found.address, **options(found))
            published(each, found)
        found.acts.clear()
        for _ in range(2):
            each.forget_comparison()
            facts = await each.once(found.address, **options(found))
        assert (facts.error, facts.held, facts.skipped) == (None, None, None)
        deleted = published(each, found)
        assert deleted == {f"r{number}" for number in range(35)} - {*found.state}
        each.hub.ask("POST", f"/api/sets/{each.set_name}/snapshot")
        assert {*each.resources()} == {source.loc(name) for name in found.state}


def published(each: Bridging, found: Moving) -> set[str]:
    """What was called deleted, all of which is."""
    deleted = {loc for change, loc in each.told() if change == "deleted"}
    assert deleted & {*found.state} == set()
    return deleted


@pytest.mark.parametrize("kind", enough([Resources, Records, Index, Feed], 2), ids=name_of)
async def test_pages_that_never_come_to_rest_are_followed_and_said(bridging, tmp_path, kind):
    async with Source() as source:
        each, found = a_set(bridging, tmp_path, kind, "moved-always"), kind(source, count=200)
        numbers = iter(range(10_000))

        def insert() -> None:
            """What says that it is old comes to the front of pages that are read already."""
            name = f"late{next(numbers)}"
            found.state = {name: found.state["r0"], **found.state}
            source.resources[f"/{name}"] = b"there"

        found.always = insert
        facts = await each.once(found.address, **options(found))
        assert (facts.error, facts.is_loaded, facts.is_well) == (None, True, False)
        assert "its pages moved" in (facts.skipped or "")


@pytest.mark.parametrize("kind", MOVING, ids=name_of)
async def test_of_pages_that_move_at_random_what_is_published_is_what_there_is_in_the_end(
    bridging, tmp_path, kind
):
    """Each page that is sent may be followed by a new resource, a change, or a deletion."""
    for seed in SEEDS:
        chance = random.Random(f"{kind.__name__}{seed}")
        async with Source() as source:
            each, found = a_set(bridging, tmp_path, kind, f"moved-{seed}"), kind(source)
            found.always = partial(act, found, chance)
            for _ in range(ROUNDS):
                await each.once(found.address, **options(found))
                each.forget_comparison()
                published(each, found)
            found.always = None
            for _ in range(2):  # what was kept is asked for, and what the first missed is found
                facts = await each.once(found.address, **options(found))
                each.forget_comparison()
            published(each, found)
            assert (facts.error, facts.held, facts.skipped) == (None, None, None)
            each.hub.ask("POST", f"/api/sets/{each.set_name}/snapshot")
            assert {*each.resources()} == {source.loc(name) for name in found.state}


def act(found: Moving, chance: random.Random) -> None:
    what, name = chance.random(), chance.choice(list(found.state))
    if what < 0.15:
        found.put(f"n{chance.randrange(1_000_000)}")
    elif what < 0.3:
        found.put(name)
    elif what < 0.5 and len(found.state) > PAGE:
        found.delete(name)
