"""A set that keeps its tombstones: what is kept of what has ended, and what harvesters get."""

import random
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from rsnotify.coordination import keys
from rsnotify.errors import NoSuchSet
from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.sets.options import SetOptions
from rsnotify.views.oai_answers import datestamp
from tests.integration.test_oai import Copy, Record, Repository, in_a_later_second
from tests.support.amount import enough
from tests.support.loading import Loading, ndjson
from tests.support.pulling import CHANGES, SET, Pulling, loc

KEPT = SetOptions(tombstones=True)
ANY_END = "publish=no&max_delete=100&overwrite=yes"


async def of_shards(pulling: Pulling, key: Callable[[str, int], str]) -> dict[str, int]:
    """By name: the position at which something stands there."""
    found: dict[bytes, bytes] = {}
    for shard in range(keys.STATE_SHARDS):
        found |= await pulling.client.hgetall(key(SET, shard))
    return {
        name.decode().rpartition("/")[2]: int(value.partition(b"\2")[0])
        for name, value in found.items()
    }


async def tombstones(pulling: Pulling) -> dict[str, int]:
    return await of_shards(pulling, keys.tombstones)


async def state(pulling: Pulling) -> dict[str, int]:
    return await of_shards(pulling, keys.state)


async def since(pulling: Pulling) -> Position | None:
    return await pulling.hub.tombstones_since(SET)


async def choose(pulling: Pulling, *, kept: bool) -> None:
    await pulling.hub.edit_set(SET, {"tombstones": kept})


def deleted(*names: str) -> list[Change]:
    return [Change(loc(name), "deleted") for name in names]


def created(*names: str) -> list[Change]:
    return [Change(loc(name), "created") for name in names]


async def trim(pulling: Pulling) -> None:
    """As after the retention: all that is closed is forgotten."""
    await pulling.keep_windows()
    await pulling.let_go_of_all()
    if windows := (await pulling.windows.span(SET)).windows:
        await pulling.windows.forget(SET, windows)


@pytest.fixture
async def pulling(client) -> AsyncIterator[Pulling]:
    """Whose set keeps its tombstones from its begin on; a Change List has three changes."""
    async with Pulling(client, changes=3) as made:
        await choose(made, kept=True)
        yield made


# --- what is kept ---------------------------------------------------------------------------------


async def test_what_is_deleted_has_a_tombstone_until_it_is_there_again(pulling):
    await pulling.publish(*created("a", "b"))
    assert await tombstones(pulling) == {}
    first = await pulling.publish(*deleted("a", "unknown"))
    assert await tombstones(pulling) == {"a": first.until - 1, "unknown": first.until}
    await pulling.publish(*created("a"))
    assert await tombstones(pulling) == {"unknown": first.until}
    second = await pulling.publish(*deleted("a"))
    assert await tombstones(pulling) == {"a": second.until, "unknown": first.until}


async def test_of_several_changes_in_one_call_the_last_counts(pulling):
    at = await pulling.publish(
        *created("a"), *deleted("a"), *created("a", "b"), *deleted("b"), *deleted("b")
    )
    assert await tombstones(pulling) == {"b": at.until}
    assert [*await state(pulling)] == ["a"]


@pytest.mark.parametrize("seed", range(4))
async def test_each_resource_is_in_the_state_or_has_a_tombstone(pulling, seed):
    chosen, last = random.Random(seed), dict[str, tuple[bool, int]]()
    for _ in range(40):
        names = [str(chosen.randrange(30)) for _ in range(chosen.randrange(1, 9))]
        gone = [chosen.random() < 0.5 for _ in names]
        each = zip(names, gone, strict=True)
        at = await pulling.publish(*((deleted if end else created)(name)[0] for name, end in each))
        for number, name in enumerate(names):
            last[name] = gone[number], at.until - len(names) + 1 + number
    assert await tombstones(pulling) == {name: at for name, (end, at) in last.items() if end}
    assert await state(pulling) == {name: at for name, (end, at) in last.items() if not end}


async def test_other_sets_have_none_and_their_publishes_call_redis_as_before(client):
    async with Pulling(client) as pulling:
        await pulling.publish(*created("a", "b"))
        before = await calls(pulling)
        await pulling.publish(*deleted("a"))
        without = minus(await calls(pulling), before)
        await choose(pulling, kept=True)
        before = await calls(pulling)
        await pulling.publish(*deleted("b"))
        kept = minus(await calls(pulling), before)
        assert await tombstones(pulling) == {"b": (await pulling.windows.record(SET)).last}
    assert minus(kept, without) == {"hset": 1, "type": 1}


async def calls(pulling: Pulling) -> dict[str, int]:
    """How often Redis has run each command that a publish needs."""
    found = await pulling.client.info("commandstats")
    of_scripts = ("hset", "hdel", "hget", "hmget", "xadd", "type", "exists", "sadd", "set", "get")
    return {name: found.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in of_scripts}


def minus(more: dict[str, int], less: dict[str, int]) -> dict[str, int]:
    return {name: count for name in more if (count := more[name] - less.get(name, 0))}


async def test_they_are_kept_since_the_set_began_or_since_that_was_chosen(client, pulling):
    record = await pulling.windows.record(SET)
    assert await since(pulling) == record.created
    await choose(pulling, kept=True)
    assert await since(pulling) == record.created
    await pulling.publish(*created("a"))
    await pulling.publish(*deleted("a"))
    await choose(pulling, kept=False)
    assert (await since(pulling), await tombstones(pulling)) == (None, {})
    last = (await pulling.windows.record(SET)).last
    await choose(pulling, kept=True)
    assert await since(pulling) == last
    with pytest.raises(NoSuchSet):
        await pulling.journal.keep_tombstones(ChannelName("none", "change"), keep=True)


async def test_what_was_harvested_and_never_changed_has_forgotten_nothing(client):
    async with Pulling(client) as pulling:
        record = await pulling.windows.record(SET)
        await in_a_later_second(pulling, record.last)
        await Repository(pulling).ask("Identify")
        assert (await pulling.windows.record(SET)).last > record.created
        await choose(pulling, kept=True)
        assert await since(pulling) == record.created


async def test_what_was_loaded_may_have_forgotten_something(client):
    async with Loading(client) as loading:
        await loading.load(ndjson("ab"), ANY_END)
        await loading.load(ndjson("a"), ANY_END)
        await choose(loading, kept=True)
        assert await since(loading) == (await loading.windows.record(SET)).last


async def test_a_set_is_made_with_them_and_removed_with_them(pulling):
    await pulling.publish(*created("a"), *deleted("a"))
    await pulling.hub.remove_set(SET)
    assert await tombstones(pulling) == {}
    await pulling.hub.add_set(SET, KEPT)
    assert await since(pulling) == (await pulling.windows.record(SET)).created
    await pulling.hub.add_set(SET, SetOptions())  # it is there already, and stays as it is
    assert await since(pulling) is not None


async def test_what_was_chosen_and_not_begun_begins_when_it_is_asked_for(pulling):
    """The process died between two steps."""
    await pulling.publish(*created("a"))
    await pulling.client.hdel(keys.record(CHANGES), "tombstones")
    assert await since(pulling) == (await pulling.windows.record(SET)).last


async def test_a_process_that_does_not_know_yet_takes_nothing_away(pulling):
    await pulling.publish(*deleted("a"))
    record = pulling.hub.sets[SET]
    pulling.hub.sets[SET] = type(record)(name=SET, created=record.created, edited=record.edited)
    assert await since(pulling) is None
    assert [*await tombstones(pulling)] == ["a"]


async def test_a_key_that_is_something_else_is_an_error_and_nothing_is_written(pulling):
    shard = keys.shard_of(loc("a").encode())
    await pulling.client.set(keys.tombstones(SET, shard), "something else")
    with pytest.raises(Exception, match="WRONGTYPE"):
        await pulling.publish(*created("a"))
    assert await state(pulling) == {}


async def test_they_count_for_what_the_set_takes_of_redis(pulling):
    await pulling.publish(*deleted(*(str(number) for number in range(2_000))))
    with_them = await pulling.journal.usage.count(SET)
    await choose(pulling, kept=False)
    without = await pulling.journal.usage.count(SET)
    assert with_them is not None
    assert without is not None
    assert with_them - without > 2_000 * len(loc("1000"))


async def test_no_resource_list_has_them(pulling):
    await pulling.publish(*created("a", "b"), *deleted("a"))
    await pulling.upkeep.snapshots.take(SET)
    document = await pulling.document(f"/{SET}/resourcelist.xml")
    assert [entry.loc for entry in document.entries] == [loc("b")]


# --- loads ----------------------------------------------------------------------------------------


@pytest.fixture
async def loading(client) -> AsyncIterator[Loading]:
    async with Loading(client) as made:
        await choose(made, kept=True)
        yield made


async def test_a_load_that_is_published_leaves_tombstones_where_its_changes_stand(loading):
    await loading.publish(*created("a", "b", "c"))
    await loading.load(ndjson("a"), "max_delete=100&overwrite=yes")
    last = {each.loc: each.change for each in await loading.told()}
    assert {name for name, kind in last.items() if kind == "deleted"} == {loc("b"), loc("c")}
    assert {*await tombstones(loading)} == {"b", "c"}


async def test_a_load_that_is_not_published_leaves_them_all_the_same(loading):
    await loading.publish(*created("a", "b", "c"))
    old = await loading.publish(*deleted("c", "d"))
    await loading.load(ndjson("ad"), ANY_END)
    found = await tombstones(loading)
    assert found.keys() == {"b", "c"}
    assert found["c"] == old.until - 1
    assert (await state(loading)).keys() == {"a", "d"}


async def test_they_say_when_the_load_took_the_place_of_the_state(loading):
    """Also once another load has come: whoever harvested in between learns of them."""
    repository = Repository(loading)
    await loading.publish(*created("a", "b", "c"))
    copy = Copy(repository)
    async with loading.under_way(ndjson("ab"), ANY_END) as upload:
        await in_a_later_second(loading, (await loading.windows.record(SET)).last)
        await copy.catch_up()
    assert (await upload.answer())[0] == 200
    await loading.load(ndjson("a"), ANY_END)
    await copy.catch_up()
    assert copy.records.keys() == {loc("a")}


async def test_what_changes_during_a_load_is_as_it_was_left(loading):
    await loading.publish(*created("a", "b", "c", "e"), *deleted("d"))
    async with loading.under_way(ndjson("acd"), ANY_END) as upload:
        at = await loading.publish(*deleted("a"), *created("b"))
        await loading.publish(*created("new"))
        end = await loading.publish(*deleted("d", "new"))
    assert (await upload.answer())[0] == 200
    found = await tombstones(loading)
    assert found.keys() == {"a", "d", "e", "new"}
    assert (found["a"], found["d"], found["new"]) == (at.until - 1, end.until - 1, end.until)
    assert (await state(loading)).keys() == {"b", "c"}
    assert await loading.leavings() == []


@pytest.mark.parametrize("kept", [False, True])
async def test_what_is_chosen_during_a_load_counts_for_what_it_deletes(loading, kept):
    await choose(loading, kept=not kept)
    await loading.publish(*created("a", "b"))
    async with loading.under_way(ndjson("a"), ANY_END) as upload:
        await choose(loading, kept=kept)
    assert (await upload.answer())[0] == 200
    assert (await tombstones(loading)).keys() == ({"b"} if kept else set())


async def test_a_load_that_is_given_up_leaves_tombstones_as_they_are(loading):
    await loading.publish(*created("a", "b"), *deleted("c"))
    before = await tombstones(loading)
    load = await loading.loads.begin(SET, "token")
    assert load is not None
    await loading.loads.bury(load, since=b"1")
    await loading.loads.discard(load)
    assert (await tombstones(loading), await loading.leavings()) == (before, [])


# --- what harvesters get --------------------------------------------------------------------------


@pytest.fixture
def repository(pulling: Pulling) -> Repository:
    return Repository(pulling, page_records=7)


async def whole(repository: Repository, **asked: str) -> list[Record]:
    return [each async for page in repository.list(**asked) for each in page.records]


@pytest.mark.parametrize("seed", enough(range(6), 2))
async def test_whoever_harvests_learns_of_every_end_however_late(pulling, repository, seed):
    """Of what has changed while its list was read, too; no change is kept for long."""
    chosen, last = random.Random(seed), dict[str, tuple[str, bool]]()

    async def change(count: int) -> None:
        for _ in range(count):
            name = loc(str(chosen.randrange(40)))
            gone = not last.get(name, ("", True))[1] and chosen.random() < 0.5
            at = await pulling.publish(Change(name, "deleted" if gone else "updated"))
            last[name] = datestamp(at.until), gone

    copy = Copy(repository)
    await change(50)
    for _ in range(3):
        async for _ in copy.harvest():
            await change(chosen.randrange(4))
        await change(chosen.randrange(30))
        await trim(pulling)
    await copy.catch_up()
    left = {each.identifier: each.datestamp for each in copy.records.values()}
    assert left == {name: second for name, (second, gone) in last.items() if not gone}
    found = await whole(repository)
    assert len(found) == len(last)
    assert {each.identifier: (each.datestamp, each.is_deleted) for each in found} == last


@pytest.mark.parametrize("is_trimmed", [False, True])
async def test_a_range_has_the_ends_within_it_and_each_record_once(pulling, repository, is_trimmed):
    first = await pulling.publish(*created("a", "b", "c", "d"), *deleted("a", "b"))
    await in_a_later_second(pulling, first.until)
    second = await pulling.publish(*created("a"), *deleted("c", "a"))
    await in_a_later_second(pulling, second.until)
    await pulling.publish(*created("e"))
    if is_trimmed:
        await trim(pulling)
    ends = [datestamp(each.until) for each in (first, second)]

    async def found(**asked: str) -> list[str]:
        return sorted(
            each.identifier[-1] + "+-"[each.is_deleted] for each in await whole(repository, **asked)
        )

    assert await found(from_=ends[0], until=ends[0]) == ["b-", "d+"]
    assert await found(from_=ends[1], until=ends[1]) == ["a-", "c-"]
    assert await found(from_=ends[1]) == ["a-", "c-", "e+"]
    assert await found(until=ends[1]) == ["a-", "b-", "c-", "d+"]


async def test_one_record_is_asked_for_though_it_has_ended(pulling, repository):
    await pulling.publish(*created("a"), *deleted("a"), *created("b"))
    await trim(pulling)
    asked = partial(repository.ask, metadataPrefix="oai_dc")
    (record,) = (await asked("GetRecord", identifier=loc("a"))).records
    assert (record.identifier, record.is_deleted, record.words) == (loc("a"), True, ())
    assert (await asked("GetRecord", identifier=loc("none"))).error == "idDoesNotExist"
    assert (await repository.ask("ListMetadataFormats", identifier=loc("a"))).error is None
    await choose(pulling, kept=False)
    assert (await asked("GetRecord", identifier=loc("a"))).error == "idDoesNotExist"


async def test_identify_says_persistent_where_no_end_that_is_told_will_be_forgotten(
    pulling, repository
):
    async def said() -> str | None:
        return (await repository.ask("Identify")).text("o:Identify/o:deletedRecord")

    await pulling.publish(*created("a", "b"))
    assert await said() == "persistent"
    await choose(pulling, kept=False)
    assert await said() == "transient"
    await pulling.publish(*deleted("a"))
    await choose(pulling, kept=True)
    assert await said() == "transient"  # the end of `a` will be forgotten with its change
    await pulling.publish(*created("c", "d", "e"))
    await trim(pulling)
    assert await said() == "persistent"
    assert [each.is_deleted for each in await whole(repository)] == [False] * 4


async def test_whoever_harvested_before_they_were_kept_learns_that_ends_are_missing(
    pulling, repository
):
    """Once their changes are no longer kept; whoever begins with nothing has lost nothing."""
    await choose(pulling, kept=False)
    begun = await pulling.publish(*created("a", "b"))
    await in_a_later_second(pulling, begun.until)
    before = datestamp((await pulling.publish(*created("z"))).until)
    await pulling.publish(*deleted("a"))
    await in_a_later_second(pulling, (await pulling.windows.record(SET)).last)
    await choose(pulling, kept=True)
    asked = partial(repository.ask, "ListRecords", metadataPrefix="oai_dc")
    assert (await asked(from_=before)).error is None
    after = datestamp((await pulling.publish(*deleted("b"), *created("c", "d", "e"))).until)
    await trim(pulling)
    page = await asked(from_=before)
    assert (page.error, "not all deletions" in page.words) == ("badArgument", True)
    assert {each.identifier[-1] for each in (await asked(from_=after)).records} >= {"b", "c"}
    first = datestamp((await pulling.windows.record(SET)).created)
    for from_ in ("2001-01-01", first):
        assert (await asked(from_=from_)).error is None


async def test_a_list_ends_if_it_is_chosen_otherwise_meanwhile(pulling, repository):
    await pulling.publish(*created(*(str(number) for number in range(20))))
    token = (await repository.ask("ListRecords", metadataPrefix="oai_dc")).token
    assert token is not None
    await choose(pulling, kept=False)
    page = await repository.ask("ListRecords", resumptionToken=token)
    assert (page.error, "keep its deletions" in page.words) == ("badResumptionToken", True)
