"""A Redis that starts again with older data, as after a lossy failover: what it has lost is said to
everybody who had begun before, and what was closed stays closed."""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic

import pytest

from rsnotify.coordination import keys
from tests.support.amount import enough
from tests.support.faults import OwnRedis
from tests.support.lossy_failover import (
    Book,
    Follower,
    all_lists,
    ends_with_410,
    followed,
    published,
    settled,
)
from tests.support.receivers import Receiver, subscribe
from tests.support.running import RunningHub, until
from tests.support.stories import lost

PUBLISH = ("POST", "/api/sets/dataset1/changes")


@pytest.fixture
async def hubs(own_redis: OwnRedis, tmp_path: Path) -> AsyncIterator[list[RunningHub]]:
    """Three hubs on one Redis, which hear each other."""
    hubs = [
        RunningHub(tmp_path / f"data{n}", "--redis", own_redis.url, callback_private="allow")
        for n in range(3)
    ]

    async def all_listen() -> bool:  # a little later than they are ready
        ((_, count),) = await own_redis.client.pubsub_numsub(keys.BELL)
        return bool(count == len(hubs))

    async with AsyncExitStack() as stack:
        started = await asyncio.gather(*map(stack.enter_async_context, hubs))
        await until(all_listen)
        yield started
    for hub in hubs:
        assert "Traceback" not in hub.log.read_text()


async def have_heard(followers: Sequence[Follower], name: str) -> bool:
    return all(each.story.has(f"http://example.com/{name}") for each in followers)


async def have_begun(followers: Sequence[Follower]) -> bool:
    return all(each.story.began for each in followers)


@pytest.mark.parametrize(
    "under_load",
    enough([pytest.param(True, id="under load"), pytest.param(False, id="idle")], 1),
)
async def test_what_is_lost_is_said_to_every_reader_and_the_rest_is_there(
    hubs, own_redis, under_load
):
    book, followers = Book(), [Follower(hub, f"reader{n}") for n, hub in enumerate(hubs)]
    async with followed(followers):
        await until(lambda: have_begun(followers))
        await book.publish(hubs[0], ["before"])
        copy = own_redis.copy_of_data()
        for number in range(30):
            await book.publish(hubs[number % 3], [f"lost-{number}"])
        await until(lambda: have_heard(followers, "lost-29"))
        began = monotonic()
        async with asyncio.TaskGroup() as going_on:
            for n in range(30 if under_load else 0):
                going_on.create_task(book.publish(hubs[n % 3], [f"while-{n}"]))
            await own_redis.go_back(copy)
        journal, gaps = await settled(hubs, book, followers, may_lose=True)
    told = [each.when - began for follower in followers for each in follower.story.told]
    print(f"lost {len(lost(journal, book.answers))}, gaps {gaps}, readers told after {told} s")
    assert len(lost(journal, book.answers)) >= 30
    assert gaps == 1
    assert len(told) == len(followers)


async def test_who_comes_back_after_the_loss_is_told_by_every_hub(hubs, own_redis):
    """Wherever it stood before."""
    book = Book()
    await book.publish(hubs[0], ["before"])
    copy = own_redis.copy_of_data()
    await book.publish(hubs[0], ["lost"])
    ((begins, until_),) = book.answers["http://example.com/lost"]
    await own_redis.go_back(copy)
    await book.publish(hubs[0], ["after"])
    away = [Follower(hub, "away", cursor) for hub in hubs for cursor in (begins, until_)]
    async with followed(away):

        async def are_told() -> bool:
            return all(each.story.told and each.story.began for each in away)

        await until(are_told)
        await settled(hubs, book, away, may_lose=True)


async def test_what_only_a_process_knows_that_stands_still_is_said_when_it_wakes(hubs, own_redis):
    """Late, but not silent: the others had heard nothing of what is lost."""
    book = Book()
    await book.publish(hubs[0], ["before"])
    copy = own_redis.copy_of_data()
    for hub in hubs[1:]:
        hub.process.send_signal(signal.SIGSTOP)
    await book.publish(hubs[0], ["lost"])
    ((begins, _),) = book.answers["http://example.com/lost"]
    hubs[0].process.send_signal(signal.SIGSTOP)
    try:
        await own_redis.go_back(copy)
        for hub in hubs[1:]:
            hub.process.send_signal(signal.SIGCONT)
        await book.publish(hubs[1], ["after"])
        assert not await ends_with_410(hubs[1], begins)
    finally:
        for hub in hubs:
            hub.process.send_signal(signal.SIGCONT)

    async def is_said() -> bool:
        return all([await ends_with_410(hub, begins) for hub in hubs])

    await until(is_said)
    assert await all_lists(hubs[0]) == await all_lists(hubs[1])


@pytest.mark.parametrize(
    "asked", enough(["", "?until=2099-01-01&limit=10", "?from={}", "?limit=10"], 2)
)
async def test_the_loss_of_what_only_a_poller_was_given_is_said(hubs, own_redis, asked):
    """Whoever has published it is gone, and nobody follows the channel where it is polled."""
    before = await hubs[0].publish("http://example.com/before")
    copy = own_redis.copy_of_data()
    await hubs[0].publish("http://example.com/lost")
    path = f"/dataset1/changelist.xml{asked.format(before['until'])}"
    status, told = await hubs[1].ask("GET", path)
    assert status == 200
    assert b"lost" in told
    await hubs[0].kill()
    await own_redis.go_back(copy)
    await published(hubs[2], ["after"])

    async def is_said() -> bool:  # by the hub that was polled, which did not append "after"
        return all([await ends_with_410(hub, before["until"]) for hub in hubs[1:]])

    await until(is_said)


async def test_a_token_whose_revocation_is_lost_is_accepted_by_no_hub(hubs, own_redis):
    """Every hub has heard of it, and refuses the token before Redis has lost it and afterwards."""
    _, token = await hubs[0].ask("POST", "/api/tokens", json={"sets": ["dataset1"]})
    copy = own_redis.copy_of_data()
    await hubs[0].ask("DELETE", f"/api/tokens/{token['id']}")
    bearer = {"Authorization": f"Bearer {token['token']}"}
    answers: list[int] = []

    async def publishes(hub: RunningHub) -> int:
        change = {"loc": "http://example.com/never", "change": "updated"}
        answers.append((await hub.ask(*PUBLISH, json=change, headers=bearer))[0])
        return answers[-1]

    async def is_refused() -> bool:
        return {await publishes(hub) for hub in hubs} == {401}

    await until(is_refused)
    await own_redis.go_back(copy)
    answers.clear()
    await published(hubs[1], ["after"])
    for _ in range(50):
        for hub in hubs:
            await publishes(hub)
    assert 201 not in answers
    await until(is_refused)


async def test_a_set_that_was_private_stays_so_and_what_else_is_lost_of_sets_is_logged(
    hubs, own_redis
):
    for name in ("closed", "removed"):
        await hubs[0].ask("PUT", f"/api/sets/{name}", json={})
    await published(hubs[0], ["secret"], "closed")
    copy = own_redis.copy_of_data()
    await hubs[0].ask("PATCH", "/api/sets/closed", json={"private": True})
    await hubs[0].ask("DELETE", "/api/sets/removed")
    await hubs[0].ask("PUT", "/api/sets/made", json={})

    async def answers(name: str) -> set[int]:
        path, nobody = f"/{name}/changelist.xml", {"Authorization": ""}
        return {(await hub.ask("GET", path, headers=nobody))[0] for hub in hubs}

    async def is_closed() -> bool:
        return await answers("closed") == {404}

    async def is_logged_and_stays_closed() -> bool:
        assert await answers("closed") <= {404, 503}
        _, sets = await hubs[2].ask("GET", "/api/sets")
        log = " ".join(hub.log.read_text() for hub in hubs)
        return (
            any(each["name"] == "closed" and each["private"] for each in sets)
            and "Redis has lost the set 'made'" in log
            and "Redis has lost that the set 'removed' was removed: it is there again" in log
            and "Redis has lost the last change of the set 'closed'" in log
            and await answers("made") == {404}
        )

    await until(is_closed)
    await own_redis.go_back(copy)
    await until(is_logged_and_stays_closed)


async def test_a_callback_whose_subscription_is_lost_is_told_so(hubs, own_redis):
    await published(hubs[0], ["before"])
    copy = own_redis.copy_of_data()
    async with Receiver() as receiver:
        await subscribe(hubs[0], receiver)
        await published(hubs[0], ["lost"])

        async def is_delivered() -> bool:
            return "http://example.com/lost" in receiver.locs

        async def is_denied() -> bool:
            return bool(receiver.denials)

        await until(is_delivered)
        await own_redis.go_back(copy)
        await until(is_denied)
