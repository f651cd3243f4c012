"""Appends to a journal whose keys a Redis Cluster hands to another node, which takes a while."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from rsnotify.errors import KeysMoving, TryAgain
from rsnotify.live.journals import Journals
from rsnotify.redis_client import Client, connect
from rsnotify.redis_client.pool import Command
from rsnotify.resourcesync.notification import ChannelName
from tests.support.faults import OwnRedis
from tests.support.hubs import started, submission

CHANNEL = ChannelName("a", "change")


class Moving:
    """The first tries to append find some keys here and some there."""

    def __init__(self, client: Client, tries: int) -> None:
        self.left = tries
        self.has_begun = asyncio.Event()
        self._once, client.once = client.once, self._answer

    async def _answer(self, commands: Sequence[Command], *then: Command) -> list[Any]:
        self.has_begun.set()
        if not self.left:
            return await self._once(commands, *then)
        self.left -= 1
        return [*(KeysMoving("the Redis Cluster moves these keys") for _ in commands), b"0"]


async def made(client: Client) -> Journals:
    hub = await started(client)
    await hub.add_set("a")
    return hub


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_publish_waits_until_all_keys_have_arrived_and_is_stored_once(client, key):
    hub = await made(client)
    moving = Moving(client, tries=3)
    published = await hub.publish(CHANNEL, submission("1", key=key))
    assert moving.left == 0
    rows = await hub.history.read(CHANNEL, published.from_, until=published.until, count=9)
    assert [at for at, _ in rows] == [published.until]


@pytest.mark.parametrize("key", [None, "k"])
async def test_keys_that_never_arrive_are_no_reason_to_wait_for_ever(client, key):
    hub = await made(client)
    Moving(client, tries=1_000_000)
    with pytest.raises(KeysMoving):
        await hub.publish(CHANNEL, submission("1", key=key))


async def test_who_has_waited_for_moving_keys_waits_no_longer_than_others_when_redis_is_silent(
    own_redis: OwnRedis,
):
    order = []

    async def publish(name: str) -> None:
        with pytest.raises(TryAgain):
            await hub.publish(CHANNEL, submission(name, key=name))
        order.append(name)

    async with connect(own_redis.url) as client:
        hub = await made(client)
        moving = Moving(client, tries=1)
        first = asyncio.create_task(publish("its keys are moved"))
        await moving.has_begun.wait()
        own_redis.freeze()
        await asyncio.gather(first, publish("later"))
        own_redis.thaw()
    assert order == ["its keys are moved", "later"]
