"""How much of Redis a set may take: counted, estimated in between, refused at its edge."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rsnotify.coordination import keys
from rsnotify.errors import Rejected, SetFull
from rsnotify.journal.submission import Submission, fragment_of
from rsnotify.journal.usage import COUNTED_AFTER_BYTES
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.sets.options import LEAST_BYTES, MOST_BYTES, SetOptions
from tests.support.loading import Loading, ndjson
from tests.support.pulling import CHANGES, FRAMEWORK, SET, loc

RECORD = keys.record(CHANGES)
OTHER = ChannelName("dataset2", "change")


@pytest.fixture
async def hub(client: Client) -> AsyncIterator[Loading]:
    async with Loading(client) as found:
        yield found


def of(*names: str, key: str = "", length: int = 0) -> Submission:
    changes = [Change(loc(name + "x" * length), "updated") for name in names]
    return Submission([fragment_of(each) for each in changes], key)


def estimate(submission: Submission) -> int:
    return sum(len(each.short) * 5 // 2 + 200 for each in submission.fragments)


async def sizes(client: Client, name: str = SET) -> tuple[int, int]:
    """What was counted, and what has grown since."""
    found = await client.hmget(keys.record(ChannelName(name, "change")), "counted", "grown")
    counted, grown = (int(each or 0) for each in found)
    return counted, grown


async def allow(hub: Loading, max_bytes: int | None) -> None:
    await hub.hub.edit_set(SET, {"max_bytes": max_bytes})


async def fill(hub: Loading, name: str = SET) -> int:
    """Publish until the set is full; how many changes were accepted."""
    channel, accepted = ChannelName(name, "change"), 0
    while True:
        batch = of(*(f"{accepted + number}/" for number in range(100)), length=500)
        try:
            await hub.hub.publish(channel, batch)
        except SetFull:
            return accepted
        accepted += 100


async def count(hub: Loading) -> None:
    """The chore."""
    await hub.upkeep.count_sets()


# The edge -----------------------------------------------------------------------------------------


async def test_a_set_takes_what_it_may_to_the_last_byte_and_not_one_more(hub, client):
    await allow(hub, LEAST_BYTES)
    submission = of("a", length=100)
    await client.hset(RECORD, "counted", LEAST_BYTES - estimate(submission) + 1)
    with pytest.raises(SetFull) as refused:
        await hub.hub.publish(CHANGES, submission)
    assert refused.value.status == 507
    assert "the set 'dataset1' may take 1,048,576 bytes" in refused.value.detail
    assert "rsnotify sets edit dataset1 --max-bytes" in refused.value.detail
    assert await client.xlen(keys.stream(CHANGES)) == 0
    await client.hincrby(RECORD, "counted", -1)
    await hub.hub.publish(CHANGES, submission)
    assert sum(await sizes(client)) == LEAST_BYTES


@pytest.mark.parametrize("wrong", [LEAST_BYTES - 1, MOST_BYTES + 1, 0, -1])
async def test_less_or_more_than_a_set_may_be_given_is_refused(hub, wrong):
    with pytest.raises(Rejected, match="max_bytes must be from"):
        await allow(hub, wrong)
    with pytest.raises(Rejected, match="max_bytes must be from"):
        await hub.hub.add_set("another", SetOptions(max_bytes=wrong))


async def test_the_least_and_the_most_that_a_set_may_be_given_are_taken(hub):
    for most in (LEAST_BYTES, MOST_BYTES, None):
        await allow(hub, most)
        assert hub.hub.max_bytes(SET) == (most or 0)


async def test_a_set_without_an_option_takes_half_of_a_bounded_redis(hub):
    hub.hub.usage.maxmemory = 10 * LEAST_BYTES
    assert hub.hub.max_bytes(SET) == 5 * LEAST_BYTES
    await allow(hub, 7 * LEAST_BYTES)
    assert hub.hub.max_bytes(SET) == 7 * LEAST_BYTES


# Alone --------------------------------------------------------------------------------------------


async def test_the_full_set_alone_is_refused_and_its_readers_read_on(hub, client):
    await hub.hub.add_set("dataset2")
    await allow(hub, LEAST_BYTES)
    accepted = await fill(hub)
    await hub.hub.publish(OTHER, of("b"))
    await hub.is_level()
    rows = await hub.journal.read(CHANGES, (await hub.windows.record(SET)).created, count=9_999)
    assert len(rows) == accepted > 300


async def test_a_repetition_is_answered_although_the_set_is_full(hub):
    await allow(hub, LEAST_BYTES)
    first = await hub.hub.publish(CHANGES, of("a", key="k"))
    await fill(hub)
    big = of(*(f"{number}" for number in range(1000)), key="l", length=500)
    repeated, refused = await asyncio.gather(
        hub.hub.publish(CHANGES, of("a", key="k")),
        hub.hub.publish(CHANGES, big),
        return_exceptions=True,
    )
    assert repeated == first
    assert isinstance(refused, SetFull)
    await allow(hub, None)
    await hub.hub.publish(CHANGES, big)  # its key was not used up


async def test_what_does_not_fit_keeps_nobody_else_from_publishing_what_does(hub, client):
    await allow(hub, LEAST_BYTES)
    big = of(*(f"{number}" for number in range(1000)), length=1000)
    answers = await asyncio.gather(
        *(hub.hub.publish(CHANGES, each) for each in (of("a"), big, of("b"), of("c", key="k"))),
        return_exceptions=True,
    )
    assert [type(each) is SetFull for each in answers] == [False, True, False, False]
    assert await client.xlen(keys.stream(CHANGES)) == 3


async def test_many_at_once_do_not_pass_the_limit(hub, client):
    await allow(hub, LEAST_BYTES)
    one = of(*(f"{number}" for number in range(20)), length=1000)
    answers = await asyncio.gather(
        *(hub.hub.publish(CHANGES, one) for _ in range(100)), return_exceptions=True
    )
    refused = [each for each in answers if isinstance(each, SetFull)]
    assert 0 < len(refused) < 100
    assert sum(await sizes(client)) <= LEAST_BYTES


async def test_two_processes_share_what_the_set_may_take(hub, client):
    async with Loading(client) as other:
        await allow(hub, LEAST_BYTES)
        await other.hub.checking.check_all()
        one = of(*(f"{number}" for number in range(20)), length=1000)
        answers = await asyncio.gather(
            *(each.hub.publish(CHANGES, one) for _ in range(50) for each in (hub, other)),
            return_exceptions=True,
        )
        stored = 20 * sum(not isinstance(each, SetFull) for each in answers)
        assert await client.xlen(keys.stream(CHANGES)) == stored
        assert LEAST_BYTES - estimate(one) < sum(await sizes(client)) <= LEAST_BYTES


async def test_framework_changes_of_a_source_count_and_those_of_the_hub_are_never_refused(
    hub, client
):
    await allow(hub, LEAST_BYTES)
    document = Change("http://example.com/x.xml", "updated", capability="resourcelist")
    one = Submission([fragment_of(document)])
    before = sum(await sizes(client))
    await hub.hub.publish(FRAMEWORK, one)
    assert sum(await sizes(client)) - before == estimate(one)
    await client.hset(RECORD, "counted", LEAST_BYTES)
    with pytest.raises(SetFull):
        await hub.hub.publish(FRAMEWORK, one)
    await hub.hub.publish(FRAMEWORK, one, is_limited=False)
    assert await hub.upkeep.snapshots.take(SET) is not None  # and is announced


# Counted ------------------------------------------------------------------------------------------


async def memory(client: Client, name: str) -> int:
    names = [key async for key in client.scan_iter(f"rsnotify:{{{name}}}:*")]
    found = [await client.memory_usage(key, samples=0) for key in names]
    return sum(each or 0 for each in found)


async def test_what_is_counted_is_what_redis_says_of_all_its_keys(hub, client):
    for number in range(20):
        await hub.publish(*(Change(loc(f"{number}-{one}"), "updated") for one in range(500)))
    await hub.update("again")
    window = await hub.windows.close(SET, 1)
    assert window
    await hub.upkeep.windows.announce_and_pack(SET, (await hub.windows.record(SET)).packed_until)
    await hub.upkeep.snapshots.take(SET)
    counted = await hub.hub.usage.count(SET)
    assert await sizes(client) == (counted, 0)
    assert counted == pytest.approx(await memory(client, SET), rel=0.05)


async def test_a_stream_that_begins_with_small_changes_is_counted_as_large_as_it_is(hub, client):
    for begin in range(0, 3000, 1000):
        await hub.hub.publish(CHANGES, of(*(f"{begin + one}" for one in range(1000))))
    await hub.hub.publish(CHANGES, of(*(f"long{one}" for one in range(1000)), length=1900))
    counted = await hub.hub.usage.count(SET)
    assert counted == pytest.approx(await memory(client, SET), rel=0.1)


@pytest.mark.parametrize("length", [0, 20, 60, 100, 300, 530, 1030, 1900])
async def test_the_estimate_is_not_below_what_redis_takes(length, hub, client):
    for batch in range(10):
        names = (f"{batch}-{number}" for number in range(400))
        await hub.hub.publish(CHANGES, of(*names, length=length))
    _, estimated = await sizes(client)
    counted = await hub.hub.usage.count(SET)
    assert estimated / 3 < counted <= estimated


@pytest.mark.evidence
async def test_keys_that_are_remembered_count_until_they_are_forgotten(hub, client):
    for batch in range(20):
        one = (of(f"{batch}-{number}", key=f"{batch}-{number}") for number in range(100))
        await asyncio.gather(*(hub.hub.publish(CHANGES, each) for each in one))
    _, estimated = await sizes(client)
    counted = await hub.hub.usage.count(SET)
    assert await memory(client, SET) < counted <= estimated
    assert counted < 2 * await memory(client, SET)  # Valkey takes less for a key
    for kept in (2000, 0):  # a day later they are no more
        assert await hub.hub.usage.count(SET) == pytest.approx(
            counted - 250 * (2000 - kept), rel=0.01
        )
        await client.hincrby(RECORD, "keys_from", -(24 * 3600 + 1))


@pytest.mark.evidence
async def test_lists_that_are_replaced_count_until_they_are_gone(hub, client):
    await hub.publish(*(Change(loc(f"{one}"), "updated") for one in range(3000)))
    await hub.upkeep.snapshots.take(SET)
    before = await hub.hub.usage.count(SET)
    for _ in range(20):
        await hub.upkeep.snapshots.take(SET)
    estimated = sum(await sizes(client))
    counted = await hub.hub.usage.count(SET)
    assert before * 2 < counted == pytest.approx(estimated, rel=0.05)
    assert counted == pytest.approx(await memory(client, SET), rel=0.05)
    for left in (counted, before):  # some of them may be an hour younger than the others
        await client.hincrby(RECORD, "replaced_from", -3601)
        assert await hub.hub.usage.count(SET) == pytest.approx(left, rel=0.05)


async def test_a_full_set_has_no_list_written_on_request(hub, client):
    await allow(hub, LEAST_BYTES)
    await hub.update("a")
    _, grown = await sizes(client)
    await client.hset(RECORD, "counted", LEAST_BYTES - grown)
    await hub.hub.usage.require_room(SET, LEAST_BYTES)
    await client.hincrby(RECORD, "counted", 1)
    with pytest.raises(SetFull):
        await hub.hub.usage.require_room(SET, LEAST_BYTES)
    await hub.hub.usage.require_room(SET, 0)


@pytest.mark.evidence
async def test_what_is_remembered_of_loads_counts(hub, client):
    await hub.load(ndjson(["a"]))
    await count(hub)
    before = sum(await sizes(client))
    taken = await memory(client, SET)
    for number in range(50):
        await hub.load(ndjson(["a"]), idempotency_key=f"{number}")
    taken = await memory(client, SET) - taken
    assert 50 * 300 < taken <= sum(await sizes(client)) - before < 3 * taken
    await count(hub)
    assert taken <= sum(await sizes(client)) - before


async def test_a_set_is_counted_once_it_has_grown_and_not_before(hub, client):
    while (await sizes(client))[1] <= COUNTED_AFTER_BYTES:
        await count(hub)
        assert (await sizes(client))[0] == 0
        await hub.hub.publish(CHANGES, of(*(f"{one}" for one in range(1000)), length=1000))
    await count(hub)
    counted, grown = await sizes(client)
    assert 0 < counted < COUNTED_AFTER_BYTES  # the same resources again and again
    assert grown == 0


async def test_a_set_that_was_full_is_counted_and_goes_on_if_it_has_room(hub, client):
    await allow(hub, LEAST_BYTES)
    await client.hset(RECORD, "counted", LEAST_BYTES)  # much of which was trimmed since
    with pytest.raises(SetFull):
        await hub.update("a")
    await count(hub)
    await hub.update("a")


async def test_a_set_of_a_hub_that_did_not_count_is_counted_with_its_next_change(hub, client):
    await fill_unlimited(hub)
    await client.hdel(RECORD, "counted", "grown")
    await hub.update("a")
    await count(hub)
    assert (await sizes(client))[0] > LEAST_BYTES
    await allow(hub, LEAST_BYTES)
    with pytest.raises(SetFull):
        await hub.update("b")


async def fill_unlimited(hub: Loading) -> None:
    await hub.hub.publish(CHANGES, of(*(f"{one}" for one in range(1000)), length=1000))


async def test_a_set_that_may_take_less_than_it_does_is_full_until_it_may_take_more(hub):
    await fill_unlimited(hub)
    await allow(hub, LEAST_BYTES)
    with pytest.raises(SetFull):
        await hub.update("a")
    await count(hub)
    with pytest.raises(SetFull):
        await hub.update("a")
    await allow(hub, 10 * LEAST_BYTES)
    await hub.update("a")


async def test_what_is_trimmed_has_room_again(hub, client):
    await fill_unlimited(hub)
    await hub.windows.close(SET, 1)
    await hub.upkeep.windows.announce_and_pack(SET, (await hub.windows.record(SET)).packed_until)
    await count(hub)
    before, _ = await sizes(client)
    await hub.let_go_of_all()
    assert await hub.hub.usage.count(SET) < before - 500 * 1000


async def test_a_set_made_anew_takes_nothing_of_the_former_one(hub, client):
    await allow(hub, LEAST_BYTES)
    await fill(hub)
    await hub.hub.remove_set(SET)
    assert await hub.hub.usage.count(SET) is None
    assert not await client.exists(RECORD)
    await hub.hub.add_set(SET, SetOptions(max_bytes=LEAST_BYTES))
    await hub.update("a")
    assert sum(await sizes(client)) < 1000


# Loads --------------------------------------------------------------------------------------------


async def test_a_load_for_which_there_is_no_room_is_refused_and_leaves_nothing(hub, client):
    await allow(hub, LEAST_BYTES)
    await hub.update("a")
    before = await sizes(client)
    body = ndjson([f"{number}" + "x" * 1000 for number in range(2000)])
    status, problem = await hub.put(body)
    assert (status, "may take 1,048,576 bytes" in problem["detail"]) == (507, True)
    assert await hub.leavings() == []
    assert await sizes(client) == before
    await hub.update("b")
    await allow(hub, None)
    assert (await hub.put(body, "overwrite=yes&max_delete=100"))[0] == 200


async def test_a_load_whose_changes_do_not_fit_beside_it_is_refused_before_it_is_decided(
    hub, client
):
    await hub.load(ndjson(["a"]))
    await hub.upkeep.snapshots.take(SET)
    await count(hub)
    await allow(hub, 2 * LEAST_BYTES)
    body = ndjson([f"{number}" + "x" * 1000 for number in range(1300)])
    status, problem = await hub.put(body, "publish=yes&overwrite=yes&max_delete=100")
    assert (status, "does not fit" in problem["detail"]) == (507, True)
    assert await hub.leavings() == []
    assert await client.xlen(keys.stream(CHANGES)) == 0


async def test_a_load_that_is_decided_is_published_to_its_end_though_the_set_is_full(hub, client):
    names = [f"{number}" for number in range(300)]
    await hub.load(ndjson(["a"]))
    async with hub.under_way(ndjson(names), "overwrite=yes&max_delete=100&publish=yes") as upload:
        pass
    status, answer = await upload.answer()
    assert (status, answer["created"], answer["deleted"]) == (200, 300, 1)
    await count(hub)
    counted, grown = await sizes(client)
    assert grown == 0
    assert counted == pytest.approx(await memory(client, SET), rel=0.1)


async def test_a_load_takes_as_much_afterwards_as_redis_says(hub, client):
    await hub.load(ndjson([f"{number}" for number in range(3000)]))
    await count(hub)
    counted, grown = await sizes(client)
    assert (grown, counted) == (0, pytest.approx(await memory(client, SET), rel=0.1))
    await hub.load(ndjson([f"{number}" for number in range(3000)], length=5), "publish=no")
    await count(hub)
    counted, grown = await sizes(client)
    assert (grown, counted) == (0, pytest.approx(await memory(client, SET), rel=0.1))
