"""Hub processes killed while they deliver: nobody misses a change or is called twice at once."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from rsnotify.process.embedded_redis import EmbeddedRedis
from rsnotify.resourcesync.change import Position
from tests.support.amount import amount
from tests.support.receivers import ReceivedRequest, Receiver, response, topic
from tests.support.running import RunningHub, until

SUBSCRIBERS = amount(60, evidence=200)
CHANGES = amount(40, evidence=60)
TAKEN_OVER_SECONDS = 30  # what is left over is taken over by then, and delivered by and by


async def takes_a_moment(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(0.01)
    writer.write(response())


class Crowd:
    """Many callbacks at a few hosts, each with its own path."""

    def __init__(self, stack: AsyncExitStack, hosts: int) -> None:
        self.receivers = [
            Receiver(host=f"127.0.1.{number + 1}", post=takes_a_moment) for number in range(hosts)
        ]
        self._stack = stack

    async def subscribe(self, hub: RunningHub, count: int) -> None:
        for receiver in self.receivers:
            await self._stack.enter_async_context(receiver)
        for number in range(count):
            receiver = self.receivers[number % len(self.receivers)]
            form = {"hub.mode": "subscribe", "hub.topic": topic(hub)}
            form["hub.callback"] = f"{receiver.callback}{number}"
            assert (await hub.ask("POST", "/hub", data=form))[0] == 202

        async def all_verified() -> bool:
            return len((await hub.ask("GET", "/api/subscriptions"))[1]) == count

        await until(all_verified)

    def by_callback(self) -> dict[tuple[int, str], list[ReceivedRequest]]:
        found: dict[tuple[int, str], list[ReceivedRequest]] = {}
        for receiver in self.receivers:
            for delivery in receiver.deliveries:
                found.setdefault((receiver.port, delivery.target), []).append(delivery)
        return found

    async def have_all_until(self, position: Position, count: int) -> None:
        async def all_have_it() -> bool:
            last = (each[-1] for each in self.by_callback().values())
            return sum(delivery.notification.until == position for delivery in last) == count

        await until(all_have_it, TAKEN_OVER_SECONDS + 60)


def assert_joined(deliveries: list[ReceivedRequest], everything: list[str]) -> None:
    """Every change in order; what comes again comes from where it was before."""
    got: list[str] = []
    until_ = None
    for notification in (delivery.notification for delivery in deliveries):
        assert until_ is None or notification.from_ <= until_, "a stretch is missing"
        until_ = max(until_ or notification.until, notification.until)
        got += [change.loc for change in notification.changes]
    assert list(dict.fromkeys(got)) == everything


async def publish(hub: RunningHub, numbers: range) -> list[str]:
    locs = [f"http://example.com/{number}" for number in numbers]
    for loc in locs:
        await hub.publish(loc)
    return locs


async def test_a_hub_killed_while_it_delivers_goes_on_where_it_was(tmp_path):
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(
            RunningHub(tmp_path / "data", callback_private="allow")
        )
        crowd = Crowd(stack, hosts=10)
        await crowd.subscribe(hub, 50)
        everything = await publish(hub, range(CHANGES))
        await hub.kill()
        delivered = sum(map(len, crowd.by_callback().values()))
        await hub.start()
        answer = await hub.publish("http://example.com/last")
        everything.append("http://example.com/last")
        await crowd.have_all_until(Position.parse(answer["until"]), 50)
        assert delivered < 50 * CHANGES, "it was killed too late to tell anything"
        for deliveries in crowd.by_callback().values():
            assert_joined(deliveries, everything)
        assert all(receiver.most_at_once == 1 for receiver in crowd.receivers)


@pytest.mark.evidence
async def test_what_a_killed_hub_leaves_another_takes_over(tmp_path):
    redis = EmbeddedRedis(tmp_path)
    await redis.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(redis.stop)
        one, two = [
            await stack.enter_async_context(
                RunningHub(
                    *(tmp_path / name, "--redis", redis.url, "--public-url", "http://hub.test"),
                    callback_private="allow",
                )
            )
            for name in ("one", "two")
        ]
        crowd = Crowd(stack, hosts=20)
        await crowd.subscribe(one, SUBSCRIBERS)
        everything = await publish(one, range(CHANGES // 2))
        await one.kill()
        everything += await publish(two, range(CHANGES // 2, CHANGES - 1))
        answer = await two.publish("http://example.com/last")
        everything.append("http://example.com/last")
        await crowd.have_all_until(Position.parse(answer["until"]), SUBSCRIBERS)
        for deliveries in crowd.by_callback().values():
            assert_joined(deliveries, everything)
        assert all(receiver.most_at_once == 1 for receiver in crowd.receivers)
