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
from tests.raw import Raw, raw_channel
from tests.receivers import Receiver, subscribe
from tests.redis_sentinels import Watched, watched
from tests.running import RunningHub, until

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

    (answer,) = await until(done, seconds=40)
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

    await until(are_told, seconds=40)


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
        return RunningHub(folder / f"data{number}", *options, callback_private="allow")

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
        await _fail_over(redis, started, stack, changes, under_load)
    for hub in started:
        assert "Traceback" not in hub.log.read_text()


async def _fail_over(
    redis: Watched, hubs: list[RunningHub], stack: AsyncExitStack, changes: int, under_load: bool
) -> None:
    first, last = hubs[0], hubs[-1]
    acknowledged = await published(first, ["before"])
    (cursor,) = re.findall(rb'until="([^"]+)"', await channel_of(first))
    raws = [await stack.enter_async_context(raw_channel(hub.channel())) for hub in hubs]
    slow = Reader(await stack.enter_async_context(raw_channel(last.channel())))
    readers = [Reader(raw) for raw in raws]
    reading = [asyncio.create_task(reader.read()) for reader in readers]
    receiver, late = [await stack.enter_async_context(Receiver()) for _ in range(2)]
    await subscribe(first, receiver)

    await stop_replication(redis)
    for start in range(0, changes, 50):
        hub = hubs[start // 50 % len(hubs)]
        acknowledged |= await published(hub, [f"lost-{start + n}" for n in range(50)])
    await until_done(first, "PUT", "/api/sets/late", json={"private": True})
    token = (
        await until_done(first, "POST", "/api/tokens", json={"sets": ["late"], "rights": ["read"]})
    )["token"]
    await published(first, ["in-late"], "late")
    await subscribe(last, late)
    going_on = [
        asyncio.create_task(publish_on(hubs, number)) for number in range(PUBLISHERS * under_load)
    ]
    await redis.redis.primary.kill()
    acknowledged |= await published(last, ["after"])
    for task in going_on:
        acknowledged |= await task

    reading.append(asyncio.create_task(slow.read()))
    away = Reader(
        await stack.enter_async_context(raw_channel(f"{last.channel()}?from={cursor.decode()}"))
    )
    reading.append(asyncio.create_task(away.read()))
    await all_in([*readers, slow, away, receiver], acknowledged - {"before"})
    acknowledged |= await published(first, ["end"])
    await all_in([late], {"end"})
    for hub in hubs:
        assert await listed(hub, "dataset1") == acknowledged
        assert await listed(hub, "late", token) == {"in-late"}
    for task in reading:
        assert not task.done()
        task.cancel()


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
