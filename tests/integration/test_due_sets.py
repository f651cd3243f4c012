"""Which sets the chores look at: what has changed and what is due, and no others."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from rsnotify.coordination import keys
from rsnotify.documents.announcements import AnnouncedNotes
from rsnotify.documents.due_sets import AGAIN_SECONDS, MOST, SOME, STEP_SECONDS, DueSets, InTurn
from rsnotify.errors import TryAgain
from rsnotify.live.journals import Journals
from rsnotify.redis_client import Client, connect
from rsnotify.resourcesync.change import DAY, MICROSECONDS, Position
from tests.integration.test_many_sets import commands
from tests.support.faults import OwnRedis
from tests.support.hubs import started, submission
from tests.support.pulling import CHANGES, FRAMEWORK, SET, Pulling
from tests.support.running import until


class Chore:
    """Notes which sets it looked at, and answers as it is told."""

    def __init__(self, hub: Journals, *, growth_seconds: float = 0) -> None:
        self.hub = hub
        self.now = 0.0
        self.redis_is_ahead = 0.0
        self.again: float | None = None
        self.due = DueSets(hub, growth_seconds=growth_seconds, clock=lambda: self.now)

    async def round(self, seconds: float = 0) -> list[str]:
        self.now += seconds
        looked: list[str] = []

        async def look(names: Sequence[str]) -> dict[str, float | None]:
            looked.extend(names)
            return dict.fromkeys(names, self.again)

        now = Position(int((self.now + self.redis_is_ahead) * MICROSECONDS))
        await self.due.round(now, look)
        return sorted(looked)

    async def publish(self, name: str) -> None:
        await self.hub.publish(CHANGES._replace(set_name=name), submission("a"))
        await self.hub.checking.check_all()


@pytest.fixture
async def hub(client: Client) -> Journals:
    hub = await started(client)
    for name in "abc":
        await hub.add_set(name)
    return hub


async def test_a_set_is_looked_at_when_it_has_changed(hub):
    chore = Chore(hub)
    assert await chore.round() == []
    await chore.publish("b")
    assert [await chore.round(), await chore.round()] == [["b"], []]
    await chore.publish("a")
    await chore.publish("b")
    assert await chore.round() == ["a", "b"]


async def test_and_when_its_time_has_come(hub):
    chore = Chore(hub)
    await chore.publish("a")
    chore.again = 50
    assert await chore.round() == ["a"]
    assert [await chore.round(49.9), await chore.round(0.1)] == [[], ["a"]]


async def test_what_grows_may_wait_for_its_time(hub):
    chore = Chore(hub, growth_seconds=60)
    await chore.publish("a")
    chore.again = 50
    assert await chore.round() == ["a"]
    await chore.publish("a")
    assert [await chore.round(49.9), await chore.round(0.1)] == [[], ["a"]]


async def test_it_waits_no_longer_than_was_said(hub):
    chore = Chore(hub, growth_seconds=20)
    await chore.publish("a")
    chore.again = 3_600
    assert await chore.round() == ["a"]
    await chore.publish("a")
    assert [await chore.round(), await chore.round(19.9), await chore.round(0.1)] == [[], [], ["a"]]
    assert await chore.round(3_000) == []


async def test_not_if_the_set_was_edited_or_made_anew(hub):
    chore = Chore(hub, growth_seconds=60)
    await chore.publish("a")
    chore.again = 50
    await chore.round()
    await hub.edit_set("a", {"describedby": "u:a"})
    assert await chore.round() == ["a"]
    await hub.remove_set("a")
    await hub.add_set("a")
    await chore.publish("a")
    assert await chore.round() == ["a"]


async def test_a_look_that_fails_is_repeated(hub):
    chore = Chore(hub)
    await chore.publish("a")

    async def fail(_: Sequence[str]) -> dict[str, float | None]:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await chore.due.round(Position(0), fail)
    assert [await chore.round(), await chore.round(AGAIN_SECONDS)] == [[], ["a"]]


async def test_a_clock_that_was_set_makes_all_due(hub):
    chore = Chore(hub)
    for name in "abc":
        await chore.publish(name)
    assert [await chore.round(), await chore.round()] == [["a", "b", "c"], []]
    chore.redis_is_ahead += STEP_SECONDS
    assert await chore.round() == []
    chore.redis_is_ahead -= STEP_SECONDS + 0.01
    assert await chore.round() == ["a", "b", "c"]


async def test_all_are_due_when_redis_is_another_one(hub):
    chore = Chore(hub)
    await chore.publish("a")
    await chore.round()
    for recover in hub.after_another_server:
        await recover()
    assert await chore.round() == ["a"]


async def test_all_are_due_also_if_redis_is_another_one_while_a_round_looks(hub):
    chore = Chore(hub)
    await chore.publish("a")

    async def look(names: Sequence[str]) -> dict[str, float | None]:
        assert names == ["a"]
        for recover in hub.after_another_server:
            await recover()
        return {"a": None}

    await chore.due.round(Position(0), look)
    assert await chore.round() == ["a"]


async def test_one_round_looks_at_no_more_than_is_reasonable(hub):
    chore = Chore(hub)
    await chore.publish("a")
    chore.due.due.plan_by([f"gone{number}" for number in range(MOST)], -1)
    assert [await chore.round(), await chore.round()] == [[], ["a"]]


async def looks(turns: InTurn, names: Sequence[str]) -> list[str]:
    looked: list[str] = []

    async def look(some: Sequence[str]) -> None:
        looked.extend(some)

    await turns.round(names, look)
    return looked


async def test_all_have_their_turn():
    turns, names = InTurn(), [str(number) for number in range(2 * SOME + 1)]
    rounds = [await looks(turns, names) for _ in range(4)]
    assert [len(each) for each in rounds] == [SOME, SOME, 1, SOME]
    assert [*rounds[0], *rounds[1], *rounds[2]] == names


async def test_who_could_not_be_looked_at_does_not_lose_the_turn():
    turns, names = InTurn(), [str(number) for number in range(2 * SOME)]

    async def look(_: Sequence[str]) -> None:
        raise TryAgain("Redis is away")

    with pytest.raises(TryAgain):
        await turns.round(names, look)
    assert [*await looks(turns, names), *await looks(turns, names)] == names


# --- the chores themselves -----------------------------------------------------------------------


async def test_sets_to_which_nothing_happens_cost_nothing(client):
    async with Pulling(client) as pulling:
        await pulling.update("a")
        for _ in range(2):
            await pulling.upkeep.windows.keep_due()
            await pulling.upkeep.snapshots.keep_due()
        assert (await pulling.snapshots.newest(SET)) is not None
        costs = [await cost_of_a_round(pulling)]
        for number in range(30):
            await pulling.hub.add_set(f"idle{number}")
        await cost_of_a_round(pulling)
        costs.append(await cost_of_a_round(pulling))
        assert costs == [2, 2], "the time, for each chore"


async def cost_of_a_round(pulling: Pulling) -> int:
    async with pulling.hub.checking.lock:  # nobody else asks meanwhile
        before = await commands(pulling.client)
        await pulling.upkeep.windows.keep_due()
        await pulling.upkeep.snapshots.keep_due()
        return await commands(pulling.client) - before - 1


async def asked_by(pulling: Pulling, chore: Callable[[], Awaitable[None]]) -> list[list[str]]:
    """What the chore asks Redis, journey by journey."""
    together: Any = pulling.client.together
    journeys: list[list[str]] = []

    async def note(asked: Sequence[object]) -> object:
        journeys.append([str(each) for each in asked])
        return await together(asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pulling.client, "together", note)
        async with pulling.hub.checking.lock:  # nobody else asks meanwhile
            await chore()
    return journeys


@pytest.mark.parametrize(
    ("chore", "failing"), [("delete", "now"), ("announce_archives", "archived")]
)
async def test_what_is_old_waits_no_turn_longer_if_redis_was_away(
    client, monkeypatch, chore, failing
):
    monkeypatch.setattr("rsnotify.documents.due_sets.SOME", 1)

    async def is_away(*_: object) -> None:
        raise TryAgain("Redis is away")

    async with Pulling(client) as pulling:
        await pulling.hub.add_set("b")
        await pulling.update("a")
        act = getattr(pulling.upkeep.old, chore)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pulling.windows, failing, is_away)
            with pytest.raises(TryAgain):
                await act()
        asked = await asked_by(pulling, act)
        assert any(f"{{{SET}}}" in command for journey in asked for command in journey)


async def test_an_archive_that_cannot_be_told_holds_up_no_other(client):
    async with Pulling(client) as pulling:
        await pulling.hub.add_set("b")
        for name in (SET, "b"):
            await pulling.hub.publish(CHANGES._replace(set_name=name), submission("a"))
        await client.hset(keys.record(FRAMEWORK), "documents", "no JSON")
        await pulling.upkeep.old.announce_archives()
        assert await AnnouncedNotes(client).documents("b") is not None


async def test_to_see_that_no_archive_has_grown_is_one_journey(client):
    async with Pulling(client) as pulling:
        for number in range(30):
            await pulling.hub.add_set(f"{number}")
            await pulling.hub.publish(CHANGES._replace(set_name=f"{number}"), submission("a"))
        await pulling.upkeep.old.announce_archives()
        assert len(await asked_by(pulling, pulling.upkeep.old.announce_archives)) == 1


@pytest.fixture
async def moved(moved_redis: OwnRedis) -> AsyncIterator[Pulling]:
    client = connect(moved_redis.url)
    async with Pulling(client) as pulling:
        yield pulling
    await client.aclose()


async def test_the_loops_close_pack_and_list_what_time_makes_due(moved, clock):
    await moved.update("a")
    await moved.upkeep.windows.keep_due()
    await moved.upkeep.snapshots.keep_due()
    first = await moved.snapshots.newest(SET)
    clock.move(DAY / MICROSECONDS)

    async def has_closed() -> bool:
        await moved.upkeep.windows.keep_due()
        windows = (await moved.windows.span(SET)).windows
        return bool(windows) and (await moved.windows.packed(SET, windows[0])) is not None

    await until(has_closed)
    await moved.update("b")
    await until(lambda: has_newer(moved, first))


async def has_newer(pulling: Pulling, first: object) -> bool:
    await pulling.upkeep.snapshots.keep_due()
    return await pulling.snapshots.newest(SET) != first
