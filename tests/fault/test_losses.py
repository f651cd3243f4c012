"""What stays when a hub is killed with its workers, and when Redis is emptied under it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from redis import asyncio as redis

from rsnotify.coordination import keys
from rsnotify.process.embedded_redis.directory import HUB_LOCK, REDIS_LOCK, LockFile
from rsnotify.websub.subscription import SHARES
from tests.support.receivers import Receiver, subscribe
from tests.support.running import RunningHub, until


@asynccontextmanager
async def redis_of(hub: RunningHub) -> AsyncIterator[Any]:
    url = f"unix://{hub.data}/redis.sock"
    async with redis.Redis.from_url(url, decode_responses=True) as client:
        yield client


async def owners_now(hub: RunningHub) -> list[str | None]:
    """Who looks after each share of the subscriptions."""
    async with redis_of(hub) as client:
        names = [keys.of_share(share, "owner") for share in range(SHARES)]
        found: list[str | None] = await client.mget(names)
        return found


async def owners(hub: RunningHub) -> list[str]:
    """As soon as somebody looks after each share."""

    async def all_owned() -> list[str | None] | None:
        found = await owners_now(hub)
        return found if all(found) else None

    found: list[str] = await until(all_owned)
    return found


def is_free(path: Path) -> bool:
    """Whether no process holds this lock."""
    with closing(LockFile(path)) as lock:
        return lock.taken()


@pytest.mark.evidence
async def test_no_worker_and_no_redis_stay_behind_a_parent_that_was_killed(tmp_path):
    async with RunningHub(tmp_path / "data", "--workers", "2") as hub:
        await hub.publish("http://example.com/acknowledged")
        before = await owners(hub)
        await hub.kill()

        async def all_ended() -> bool:
            return is_free(hub.data / HUB_LOCK) and is_free(hub.data / REDIS_LOCK)

        assert await until(all_ended)
        await hub.start()
        _, changes = await hub.ask("GET", "/dataset1/changelist.xml")
        assert b"http://example.com/acknowledged" in changes
        assert not set(before) & set(await owners_now(hub)), "their claims died with them"


async def test_a_hub_started_right_after_a_kill_owns_all_subscriptions_at_once(tmp_path):
    async with RunningHub(tmp_path / "data") as hub:
        before = await owners(hub)
        await hub.kill()
        await hub.start()
        assert not set(before) & set(await owners_now(hub))


async def test_sets_of_the_command_line_are_served_again_after_redis_was_emptied(tmp_path):
    hub = RunningHub(tmp_path / "data", callback_private="allow")
    async with hub, redis_of(hub) as client, Receiver() as receiver:
        await hub.ask("PUT", "/api/sets/dataset2")
        await hub.ask("POST", "/api/tokens", json={"sets": ["dataset1"]})
        await subscribe(hub, receiver)
        await client.flushall()

        async def is_served() -> bool:
            changes = [{"loc": "http://example.com/1", "change": "updated"}]
            return (await hub.ask("POST", "/api/sets/dataset1/changes", json=changes))[0] == 201

        async def is_said() -> bool:
            return "after the loss" in hub.log.read_text()

        async def is_ready() -> bool:  # what the hub found out is remembered for a second
            return (await hub.ask("GET", "/health/ready"))[0] == 200

        await until(is_served)
        await until(is_said)
        assert (await hub.ask("GET", "/api/subscriptions"))[1] == []
        await until(is_ready)
        await hub.publish("http://example.com/2")
        log = " ".join(hub.log.read_text().split())
    assert log.count("Redis has lost data") == 1
    assert "lost with their changes: dataset1, dataset2" in log
    assert "Redis has 0 tokens and 0 WebSub subscriptions" in log
    assert "served again, but empty: dataset1" in log
