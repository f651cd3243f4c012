"""Sources that others write, bridged: after each round the set is what the Source has."""

import hashlib
from urllib.request import urlopen

import pytest

from clients.python.tests.bridge.bridging import Bridging
from clients.python.tests.client.test_world import KINDS, ROUNDS, SEEDS, world_of
from clients.python.tests.client.world import FourLists, Kind, ReferenceBuild
from rsnotify.resourcesync.xml_reader import change_of, parse_document
from tests.support.amount import amount, enough
from tests.support.reference import installed
from tests.support.sources import Source

LISTS = (
    ("resourcelist",),
    ("resourcelist", "changelist"),
    ("resourcelist", "changedump"),
    ("resourcelist", "resourcedump", "changelist", "changedump"),
)
ENTRIES = amount(3_000, evidence=200_000)


async def is_bridged(kind: Kind, bridging: Bridging) -> None:
    """By its addresses, and by its digests where the Source says them."""
    for _ in range(1 + ROUNDS):
        kind.publish()
        facts = await bridging.once(kind.address, **{"max-delete": 100})
        assert (facts.error, facts.skipped) == (None, None)
        wanted = {kind.source.loc(name): body for name, body in kind.world.state.items()}
        found = digests(bridging)
        assert found.keys() == wanted.keys()
        for loc, digest in found.items():
            assert digest in (None, *digests_of(wanted[loc])), loc
        kind.world.step()
    is_news_each_time(bridging)


def digests(bridging: Bridging) -> dict[str, str | None]:
    """By the set's Resource List, as of now."""
    bridging.hub.ask("POST", f"/api/sets/{bridging.set_name}/snapshot")
    with urlopen(f"{bridging.hub.url}/{bridging.set_name}/resourcelist.xml") as answer:
        entries = parse_document(answer.read()).entries
    return {each.loc: change_of(each).hash for each in entries}


def digests_of(body: bytes) -> tuple[str, ...]:
    names = ("md5", "sha256")
    return tuple(f"{name.replace('a2', 'a-2')}:{hashlib.new(name, body).hexdigest()}"
                 for name in names)  # fmt: skip


def is_news_each_time(bridging: Bridging) -> None:
    """Nothing was published twice in a row with nothing new."""
    last: dict[str, tuple[object, ...]] = {}
    for change in bridging.hub.journal(bridging.set_name):
        said = change.change == "deleted", change.lastmod, change.hash, change.datetime
        assert last.get(change.loc) != said, change
        last[change.loc] = said


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", enough(KINDS, 3))
async def test_sources_that_others_write(kind, seed, bridging):
    async with Source() as source:
        await is_bridged(kind(source, world_of(f"{kind}{seed}")), bridging)


@pytest.mark.parametrize("lists", enough(LISTS, 2), ids="+".join)
async def test_combinations_of_lists(lists, bridging):
    async with Source() as source:
        await is_bridged(FourLists(source, world_of(f"{lists}"), lists), bridging)


@pytest.mark.evidence
async def test_a_source_that_resync_builds(tmp_path, bridging):
    (tmp_path / "source").mkdir()
    build = installed().with_name("resync-build")
    async with Source() as source:
        kind = ReferenceBuild(source, world_of("resync"), tmp_path / "source", build)
        await is_bridged(kind, bridging)


async def test_of_a_long_sitemap_one_in_a_thousand_changes(source, bridging):
    days = dict.fromkeys(range(ENTRIES), 1)
    few = ENTRIES // 1_000
    for number in range(4):
        for at in range(number * few, (number + 1) * few) if number else ():
            days[at] += 1
        entries = "".join(
            f"<url><loc>http://a.example/{at}</loc><lastmod>2026-11-{day:02}</lastmod></url>"
            for at, day in days.items()
        )
        namespace = "http://www.sitemaps.org/schemas/sitemap/0.9"
        body = f'<urlset xmlns="{namespace}">{entries}</urlset>'
        source.documents["/map.xml"] = body.encode()
        facts = await bridging.once(source.loc("map.xml"))
        assert (facts.error, facts.held, facts.published) == (None, None, number * few)
    assert bridging.count() == ENTRIES
