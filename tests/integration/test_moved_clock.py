"""A Redis whose clock is moved: nothing stalls, and nothing is old that was not seen to age."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rsnotify.coordination import keys
from rsnotify.coordination.claims import Claims
from rsnotify.errors import TryAgain
from rsnotify.redis_client import Client, connect
from rsnotify.resourcesync.change import DAY as DAY_MICROSECONDS
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName
from tests.support.clock import DAY, HOUR, MINUTE
from tests.support.faults import Losing, OwnRedis
from tests.support.hubs import started, submission
from tests.support.pulling import FRAMEWORK, SET, Pulling, names


@pytest.fixture
async def client(moved_redis: OwnRedis) -> AsyncIterator[Client]:
    connected = connect(moved_redis.url)
    yield connected
    await connected.aclose()


@pytest.fixture
async def pulling(client: Client) -> AsyncIterator[Pulling]:
    async with Pulling(client, changes=3, index_days=1, retention_days=1) as found:
        yield found


async def test_a_clock_that_goes_back_an_hour_keeps_no_claim_from_its_successor(client, clock):
    here = [0.0]
    claims = Claims(client, clock=lambda: here[0])
    assert await Claims(client).take("claim", 30) is not None  # and then its holder dies
    assert await claims.take("claim", 30) is None
    clock.move(-HOUR)
    here[0] = 29.9
    assert await claims.take("claim", 30) is None
    here[0] = 30.0
    assert await claims.take("claim", 30) is not None


async def test_a_claim_that_is_kept_up_is_not_taken_over(client, clock):
    here = [0.0]
    claims = Claims(client, clock=lambda: here[0])
    held = await Claims(client).take("claim", 30)
    assert held is not None
    clock.move(-HOUR)
    for _ in range(3):
        pipeline = client.pipeline(transaction=False)
        held.keep_up(pipeline)
        held.check((await pipeline.execute())[0])
        assert await claims.take("claim", 30) is None
        here[0] += 29.9


async def test_who_has_lost_a_claim_is_told(client, clock):
    held = await Claims(client).take("claim", 30)
    assert held is not None
    clock.move(HOUR)
    pipeline = client.pipeline(transaction=False)
    held.keep_up(pipeline)
    with pytest.raises(TryAgain, match="the claim was lost"):
        held.check((await pipeline.execute())[0])


async def test_a_clock_that_goes_back_an_hour_stalls_no_snapshot(pulling, clock):
    await pulling.update("a")
    await pulling.keep_snapshots()
    before = await pulling.snapshots.newest(SET)
    clock.move(-HOUR)
    await pulling.update("b")
    await pulling.keep_snapshots()
    after = await pulling.snapshots.newest(SET)
    assert before is not None
    assert after is not None
    assert (before.resources, after.resources) == (1, 2)
    assert after.at > before.at


async def test_a_clock_that_jumps_ahead_deletes_no_history(pulling, clock, caplog):
    """What is a day old may go; two days ahead nothing of it may, before a day was watched.

    It is watched in steps of almost an hour: what the test takes between two of them counts, too.
    """
    await pulling.update(*"abcdef")
    await pulling.keep_windows()
    before = await kept(pulling)
    await pulling.upkeep.old.delete()
    clock.move(2 * DAY)
    await pulling.upkeep.old.delete()
    assert "the clock of Redis is 48.0 h ahead of what was last seen of it" in caplog.text
    await Pulling(pulling.client, retention_days=1).upkeep.old.delete()  # nor does another process
    for _ in range(23):
        clock.move(HOUR - MINUTE)
        await pulling.upkeep.old.delete()
    assert await kept(pulling) == before
    for _ in range(3):  # the stream first, then what it held
        clock.move(HOUR - MINUTE)
        await pulling.upkeep.old.delete()
    assert (await kept(pulling))[0] == []
    assert caplog.text.count("ahead of what was last seen") == 1


async def kept(pulling: Pulling) -> tuple[Any, ...]:
    windows = (await pulling.windows.span(SET)).windows
    first = (await pulling.windows.record(SET)).first
    return windows, first, await pulling.client.xlen(keys.stream(FRAMEWORK))


async def test_what_expired_while_it_was_being_written_is_not_written_on(
    client, clock, monkeypatch
):
    execute, pieces = client.execute_command, []

    async def then_jump(*command: Any) -> Any:
        answer = await execute(*command)
        pieces.append(answer)
        clock.move(2 * DAY)
        return answer

    monkeypatch.setattr(client, "execute_command", then_jump)
    with pytest.raises(TryAgain, match="expired"):
        await client.write_in_pieces("large", bytes(200_000), seconds=600)
    assert pieces == [1, 0]


async def test_a_snapshot_whose_parts_have_expired_is_not_shown(pulling, clock, monkeypatch):
    await pulling.update("a")
    write_part = pulling.snapshots.write_part

    async def then_jump(*arguments: Any) -> None:
        await write_part(*arguments)
        clock.move(2 * DAY)

    monkeypatch.setattr(pulling.snapshots, "write_part", then_jump)
    assert await pulling.upkeep.snapshots.take(SET) is None
    assert await pulling.snapshots.newest(SET) is None


async def test_positions_go_on_whatever_the_clock_does(pulling, clock):
    found = [(await pulling.update("a")).until]
    for seconds in (-HOUR, 2 * DAY, -2 * DAY):
        clock.move(seconds)
        found.append((await pulling.update("a")).until)
    assert found == sorted(set(found))
    assert found[2] - found[1] > DAY_MICROSECONDS
    assert found[3] == Position(found[2] + 1)


@pytest.mark.parametrize(("seconds", "is_told"), [(-59, True), (-90, False)])
async def test_a_poller_hears_what_comes_after_a_position_that_only_it_knows(
    client, clock, seconds, is_told
):
    """Redis has lost it, and its clock is behind now; by more than a minute it is not followed."""
    async with Pulling(client) as gone:
        await gone.update("kept")
    async with Losing(client, f"rsnotify:{{{SET}}}*"), Pulling(client) as gone:
        cursor = (await gone.update("lost")).until
    clock.move(seconds)
    path = f"/{SET}/changelist.xml?from={cursor}"
    async with Pulling(client) as another:
        assert names((await another.get(path)).document) == []
        assert ((await another.update("new")).until > cursor) == is_told
        assert names((await another.get(path)).document) == ["new"] * is_told


@pytest.mark.parametrize(("seconds", "follows"), [(-59, True), (-90, False)])
async def test_a_set_made_again_begins_after_all_that_the_former_had_though_the_clock_is_behind(
    client, clock, seconds, follows
):
    """So no process takes it for the former one that has lost its changes, and whoever has read the
    former one is told. A clock that is behind by more than a minute is not followed."""
    channel = ChannelName("a", "change")
    here, other = await started(client), await started(client)
    await here.add_set("a")
    await other.start()
    former = await other.publish(channel, submission("1"))
    clock.move(seconds)
    await here.remove_set("a")
    await here.add_set("b")  # the moment does not go back for it
    await here.add_set("a")
    begun = Position.parse(here.record("a").created)
    made = await other.publish(channel, submission("2"))
    assert made.until > former.until
    assert (begun > former.until) == follows
    assert (await client.hget(keys.record(channel), "gaps") is None) == follows
    await other.start()
    assert other.known.is_former("a", former.until) == follows
