"""A failover under Sentinels to a replica that has not received the last changes.

    await lossy_failover(folder, hubs=3, changes=500, under_load=True)

Whatever was acknowledged is in every hub's Change List afterwards, and every reader was told of it
in order: the connected, the slow, the one that was away, and the callback.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from rsnotify.resourcesync.change import Position
from rsnotify_client.notification import read_notification
from tests.support.raw import Raw, raw_channel
from tests.support.receivers import Receiver, subscribe
from tests.support.redis_sentinels import Watched, watched
from tests.support.running import RunningHub, until

LOC = re.compile(rb"<loc>http://example.com/([^<]+)</loc>")
PUBLISHERS = 4


class Reader:
    """Notes what it is told, and that the intervals join."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self.cursor: Position | None = None
        self.told: list[str] = []

    async def read(self) -> None:
        while True:
            found = read_notification(await self._raw.text())
            assert self.cursor in (None, found.from_), "a gap, or a step back"
            self.cursor = found.until
            self.told += [change.loc.rpartition("/")[2] for change in found.changes]


async def until_done(hub: RunningHub, method: str, path: str, **asked: Any) -> Any:
    """Repeat it until the hub does it: Redis may be away."""

    async def done() -> tuple[Any] | None:
        status, answer = await hub.ask(method, path, **asked)
        assert status in (200, 201, 503), answer
        return (answer,) if status != 503 else None

    (answer,) = await until(done)
    return answer


async def published(hub: RunningHub, names: Sequence[str], set_name: str = "dataset1") -> set[str]:
    """These changes in one request, repeated with its key until it is acknowledged."""
    changes = [{"loc": f"http://example.com/{name}", "change": "updated"} for name in names]
    path, headers = f"/api/sets/{set_name}/changes", {"Idempotency-Key": names[0]}
    await until_done(hub, "POST", path, json=changes, headers=headers)
    return set(names)


async def all_in(told: Iterable[Reader | Receiver], names: set[str]) -> None:
    async def are_told() -> bool:
        return all(names <= _names(each) for each in told)

    await until(are_told)


def _names(told: Reader | Receiver) -> set[str]:
    if isinstance(told, Reader):
        return set(told.told)
    return {loc.rpartition("/")[2] for loc in told.locs}


async def stop_replication(redis: Watched) -> None:
    """The replicas cannot come back to their primary, which goes on accepting."""
    for replica in redis.redis.replicas:
        async with replica.client() as client:
            await client.config_set("masterauth", "wrong")
            await client.config_set("masteruser", "nobody")
    async with redis.redis.primary.client() as client:
        await client.execute_command("CLIENT", "KILL", "TYPE", "replica")

        async def are_away() -> bool:
            return not (await client.info("replication"))["connected_slaves"]

        await until(are_away)


@asynccontextmanager
async def running(redis: Watched, folder: Path, count: int) -> AsyncIterator[list[RunningHub]]:
    def hub(number: int) -> RunningHub:
        options = ("--redis", redis.url)
        return RunningHub(
            folder / f"data{number}", *options, callback_private="allow", replicas="0"
        )

    async with AsyncExitStack() as stack:
        hubs = [hub(number) for number in range(count)]
        await stack.enter_async_context(hubs[0])
        await asyncio.gather(*map(stack.enter_async_context, hubs[1:]))
        yield hubs


async def lossy_failover(folder: Path, *, hubs: int, changes: int, under_load: bool) -> None:
    async with (
        watched(folder) as redis,
        running(redis, folder, hubs) as started,
        AsyncExitStack() as stack,
    ):
        await _Failover(redis, started, stack).run(changes, under_load=under_load)
    for hub in started:
        assert "Traceback" not in hub.log.read_text()


class _Failover:
    """What is published before, while and after the last changes are lost, and who must be told."""

    def __init__(self, redis: Watched, hubs: list[RunningHub], stack: AsyncExitStack) -> None:
        self._redis = redis
        self._hubs = hubs
        self._first, self._last = hubs[0], hubs[-1]
        self._stack = stack
        self._acknowledged: set[str] = set()
        self._reading: list[asyncio.Task[None]] = []

    async def run(self, changes: int, *, under_load: bool) -> None:
        await self._publish(self._first, ["before"])
        (cursor,) = re.findall(rb'until="([^"]+)"', await channel_of(self._first))
        connected = [await self._reader(hub) for hub in self._hubs]
        slow = await self._reader(self._last)
        self._read(*connected)
        receiver = await self._receiver(self._first)

        await stop_replication(self._redis)
        await self._publish_what_is_lost(changes)
        token, late = await self._make_a_set()
        await self._fail_over(PUBLISHERS * under_load)

        away = await self._reader(self._last, f"?from={cursor.decode()}")
        self._read(slow, away)
        told = [*connected, slow, away, receiver]
        await all_in(told, self._acknowledged - {"before"})
        await self._publish(self._first, ["end"])
        await all_in([late], {"end"})
        await self._check_lists(token)
        self._end_reading()

    async def _publish(self, hub: RunningHub, names: Sequence[str]) -> None:
        self._acknowledged |= await published(hub, names)

    async def _reader(self, hub: RunningHub, query: str = "") -> Reader:
        return Reader(await self._stack.enter_async_context(raw_channel(hub.channel() + query)))

    async def _receiver(self, hub: RunningHub) -> Receiver:
        receiver = await self._stack.enter_async_context(Receiver())
        await subscribe(hub, receiver)
        return receiver

    def _read(self, *readers: Reader) -> None:
        self._reading += [asyncio.create_task(reader.read()) for reader in readers]

    def _end_reading(self) -> None:
        for task in self._reading:
            assert not task.done()
            task.cancel()

    async def _publish_what_is_lost(self, changes: int) -> None:
        for start in range(0, changes, 50):
            hub = self._hubs[start // 50 % len(self._hubs)]
            await self._publish(hub, [f"lost-{start + n}" for n in range(50)])

    async def _make_a_set(self) -> tuple[str, Receiver]:
        """A set, a token and a subscription that only the lost primary knows."""
        await until_done(self._first, "PUT", "/api/sets/late", json={"private": True})
        asked = {"sets": ["late"], "rights": ["read"]}
        token = (await until_done(self._first, "POST", "/api/tokens", json=asked))["token"]
        await published(self._first, ["in-late"], "late")
        return token, await self._receiver(self._last)

    async def _fail_over(self, publishers: int) -> None:
        going_on = [
            asyncio.create_task(publish_on(self._hubs, number)) for number in range(publishers)
        ]
        await self._redis.redis.primary.kill()
        await self._publish(self._last, ["after"])
        for task in going_on:
            self._acknowledged |= await task

    async def _check_lists(self, token: str) -> None:
        for hub in self._hubs:
            assert await listed(hub, "dataset1") == self._acknowledged
            assert await listed(hub, "late", token) == {"in-late"}


async def channel_of(hub: RunningHub) -> bytes:
    """The newest notification, as the topic answers it."""
    _, found = await hub.ask("GET", "/channels/dataset1/change_notification_channel")
    return bytes(found)


async def publish_on(hubs: list[RunningHub], number: int) -> set[str]:
    """Some changes, one after the other, while Redis fails over."""
    done: set[str] = set()
    for n in range(25):
        done |= await published(hubs[(number + n) % len(hubs)], [f"while-{number}-{n}"])
    return done


async def listed(hub: RunningHub, set_name: str, token: str | None = None) -> set[str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    document = await until_done(hub, "GET", f"/{set_name}/changelist.xml", headers=headers)
    return {loc.decode() for loc in LOC.findall(document)}
