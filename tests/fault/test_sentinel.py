"""A Redis watched by Sentinels: the hub follows the primary, and nobody restarts anything."""

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from itertools import count

import pytest

from rsnotify.coordination import keys
from rsnotify.redis_client import Client, connect
from rsnotify.redis_client.connection import sentinels_at
from rsnotify.resourcesync.notification import ChannelName
from tests.integration.test_external_redis import problem_of
from tests.support.lossy_failover import (
    Book,
    Follower,
    Reader,
    all_in,
    followed,
    running,
    settled,
    until_done,
)
from tests.support.raw import raw_channel
from tests.support.receivers import Receiver, subscribe
from tests.support.redis_sentinels import NAME, PASSWORD, Watched, address_of, sentinel, watched
from tests.support.redis_server import RedisServer, free_port
from tests.support.running import RunningHub, until
from tests.support.stories import lost


class Publisher:
    """Publishes one change after the other, each with its key until it is acknowledged."""

    def __init__(self, hub: RunningHub) -> None:
        self.acknowledged: list[str] = []
        self.book = Book()
        self.statuses: set[int] = set()
        self._hub = hub
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            loc = f"http://example.com/{len(self.acknowledged)}"
            asked = {
                "json": [{"loc": loc, "change": "created"}],
                "headers": {"Idempotency-Key": loc},
            }
            status, said = await self._hub.ask("POST", "/api/sets/dataset1/changes", **asked)
            self.statuses.add(status)
            if status == 201:
                self.acknowledged.append(loc)
                self.book.note([loc], said)

    async def goes_on(self) -> None:
        """Until some more have been acknowledged."""
        enough = len(self.acknowledged) + 20

        async def are_there() -> bool:
            return len(self.acknowledged) >= enough

        await until(are_there)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@asynccontextmanager
async def following(hub: RunningHub, set_name: str = "dataset1") -> AsyncIterator[Reader]:
    """A reader that is connected all the time, and sees neither a gap nor a step back."""
    async with raw_channel(hub.channel(set_name)) as raw:
        reader = Reader(raw)
        reading = asyncio.create_task(reader.read())
        yield reader
        assert not reading.done()
        reading.cancel()


def name_of(loc: str) -> str:
    return loc.rpartition("/")[2]


async def accepted_by_the_old(primary: RedisServer, meanwhile: Awaitable[None]) -> set[str]:
    """What it has while it believes that it is the primary still, until this has happened."""
    found: set[str] = set()
    happening = asyncio.ensure_future(meanwhile)
    async with primary.client() as client:
        while not happening.done():
            entries = await client.xrange(keys.stream(ChannelName("dataset1", "change")))
            (role, *_) = await client.execute_command("ROLE")
            if role == b"master":
                found |= set(re.findall(r"<loc>(.*?)</loc>", str(entries)))
            await asyncio.wait([happening], timeout=0.05)
    await happening
    return found


async def listeners(redis: Watched, name: str) -> int:
    """How many hubs hear this bell at the primary of the moment."""
    async with connect(redis.url) as client:
        ((_, count),) = await client.pubsub_numsub(name)
    return int(count)


async def test_a_failover_loses_and_doubles_nothing_and_everybody_goes_on(tmp_path):
    async with watched(tmp_path) as redis:
        hub = RunningHub(tmp_path / "data", "--redis", redis.url, callback_private="allow")
        async with hub, following(hub) as reader, Receiver() as receiver:
            await subscribe(hub, receiver)
            publisher = Publisher(hub)
            await publisher.goes_on()
            before = len(publisher.acknowledged)
            redis.redis.primary.signal(signal.SIGSTOP)
            await publisher.goes_on()
            redis.redis.primary.signal(signal.SIGCONT)
            accepted = await accepted_by_the_old(redis.redis.primary, publisher.goes_on())
            await publisher.stop()
            in_flight = 2  # one whose answer was on its way, and one on its way to Redis
            assert not accepted & set(publisher.acknowledged[before + in_flight :])
            await redis.redis.primary.kill()
            assert publisher.statuses <= {201, 503}
            acknowledged = [name_of(loc) for loc in publisher.acknowledged]
            await all_in([reader], set(acknowledged))
            assert reader.told[: len(acknowledged)] == acknowledged
            listed = await until_done(hub, "GET", "/dataset1/changelist.xml")
            in_list = re.findall(r"<loc>(.*?)</loc>", listed.decode())
            assert in_list[: len(publisher.acknowledged)] == publisher.acknowledged
            assert len(in_list) == len(set(in_list))

            async def is_delivered() -> bool:
                return set(in_list) <= set(receiver.locs)

            await until(is_delivered)

            async def are_heard() -> bool:
                return all([await listeners(redis, name) for name in BELLS])

            await until(are_heard)

            async def is_ready() -> bool:  # what the hub found out is remembered for a second
                return (await hub.ask("GET", "/health/ready"))[0] == 200

            await until(is_ready)
        log = hub.log.read_text()
        assert "Traceback" not in log
        assert PASSWORD not in log


@pytest.mark.evidence
@pytest.mark.parametrize("replicas", ["0", "1"])
async def test_hubs_leave_a_primary_that_goes_on_after_another_has_taken_over(tmp_path, replicas):
    """All their connections to it work on, and the other replica still confirms what it stores for
    a while. What they let it store meanwhile is lost, and said."""
    book, names = Book(), count()
    async with (
        watched(tmp_path) as redis,
        running(redis, tmp_path, 2, replicas) as hubs,
        RunningHub(tmp_path / "fresh", "--redis", redis.url, sets=(), replicas=replicas) as fresh,
    ):
        followers = [Follower(hub, f"reader{n}") for n, hub in enumerate(hubs)]
        async with followed(followers):
            await book.publish(hubs[0], ["before"])
            switching = asyncio.create_task(redis.switch())
            while not switching.done():
                await book.publish(hubs[next(names) % 2], [f"while-{next(names)}"])
            await switching
            for hub in hubs:
                await book.publish(hub, [f"after-{hub.port}"])
            hubs_now = (*hubs, fresh)
            journal, gaps = await settled(hubs_now, book, followers, may_lose=True)
        told = [len(each.story.told) for each in followers]
        missing = len(lost(journal, book.answers))
        print(f"acknowledged {book.size}, lost {missing}, gaps {gaps}, readers told {told} times")
        await until(lambda: is_unheard(redis.redis.primary))
        assert await role_of(redis.redis.primary) == b"master"
    for hub in hubs:
        assert "readers are notified" not in hub.log.read_text()


async def is_unheard(server: RedisServer) -> bool:
    async with server.client() as client:
        return not any(count for _, count in await client.pubsub_numsub(*BELLS, keys.REPORTS_BELL))


async def role_of(server: RedisServer) -> bytes:
    async with server.client() as client:
        (role, *_) = await client.execute_command("ROLE")
        return bytes(role)


BELLS = (keys.BELL, keys.SUBSCRIPTIONS_BELL)


async def test_what_the_sentinels_do_not_accept_is_said_at_once(tmp_path):
    async with sentinel(tmp_path / "sentinel", free_port()) as one:
        url = address_of([one])
        unknown = url.replace(f"/{NAME}", "/other")
        assert "know no primary of the name 'other'" in await problem_of(unknown)
        assert "a Sentinel refuses: " in await problem_of(url.replace(PASSWORD, "wrong"))
        assert "a Sentinel refuses: " in await problem_of(url.partition("?")[0])


async def a_new_connection(url: str, _client: Client) -> None:
    await sentinels_at(url).primary()


async def the_tick(_url: str, client: Client) -> None:
    async def is_known() -> bool:
        await client.servers()
        return bool(await client.get("who") == b"present")

    await until(is_known)


@pytest.mark.parametrize("asks", [a_new_connection, the_tick])
async def test_no_idle_connection_to_a_former_primary_is_used_once_another_is_known(tmp_path, asks):
    """The former one still believes that it is the primary, and would accept anything."""
    async with (
        RedisServer(tmp_path) as former,
        RedisServer(tmp_path) as present,
        sentinel(tmp_path / "sentinel", former.port) as one,
        one.client() as commanded,
    ):
        for server, name in ((former, "former"), (present, "present")):
            async with server.client() as client:
                await client.set("who", name)
        url = address_of([one])
        async with connect(url) as client:
            asked = [client.get("who") for _ in range(3)]
            assert set(await asyncio.gather(*asked)) == {b"former"}
            await commanded.execute_command("SENTINEL", "REMOVE", NAME)
            await commanded.execute_command(
                "SENTINEL", "MONITOR", NAME, "127.0.0.1", present.port, 1
            )
            await asks(url, client)
            asked = [client.get("who") for _ in range(3)]
            assert set(await asyncio.gather(*asked)) == {b"present"}


async def test_while_no_sentinel_answers_the_hub_stays_with_its_primary(tmp_path):
    async with (
        RedisServer(tmp_path) as primary,
        sentinel(tmp_path / "sentinel", primary.port) as one,
        connect(address_of([one])) as client,
    ):
        before = await client.servers()
        one.signal(signal.SIGSTOP)
        try:
            assert await client.servers() == before
        finally:
            one.signal(signal.SIGCONT)
