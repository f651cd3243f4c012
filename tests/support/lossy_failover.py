"""A failover under Sentinels to a replica that has not received the last changes.

    print(await lossy_failover(folder, hubs=3, changes=500, under_load=True))

Whoever had begun before what is lost is told so, once: the connected, the slow, the one that was
away, the poller and the callback. All else is listed by every hub, and was told to all.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from rsnotify.coordination import keys
from rsnotify.redis_client import connect
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import FROM_HEADER, ChannelName
from rsnotify_client.notification import read_notification
from tests.support.raw import CLOSE, PING, PONG, Raw, frame, raw_channel
from tests.support.receivers import Receiver, subscribe
from tests.support.redis_sentinels import Watched, watched
from tests.support.redis_server import RedisServer
from tests.support.running import RunningHub, until
from tests.support.stories import (
    INTERVAL,
    Ends,
    Row,
    Story,
    difference,
    lost,
    rows_of,
    story_of_deliveries,
    wrong,
)

LOC = re.compile(rb"<loc>http://example.com/([^<]+)</loc>")
LIST = re.compile(rb"<loc>http://[^/]+(/[^<]+)</loc>")
INDEX_LINK = 'rel="index"'
LOST_CODE, REFUSED_CODE = 4410, 4400
AGAIN_SECONDS = 0.1
PUBLISHERS = 4


class Reader:
    """Notes what it is told, and that the intervals join: it must be told of no loss."""

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


class Follower:
    """Follows a channel; told that changes are lost, it begins anew at the end."""

    def __init__(self, hub: RunningHub, name: str, cursor: str = "") -> None:
        self.story = Story(name, cursor or None, cursor)
        self.may_read = asyncio.Event()
        self.may_read.set()
        self._hub = hub
        self._cursor = cursor

    async def run(self) -> None:
        while True:
            query = f"?from={self._cursor}" if self._cursor else ""
            async with raw_channel(self._hub.channel() + query) as raw:
                if raw.status == 101:
                    if FROM_HEADER.lower() in raw.headers:  # else it is refused, by a close code
                        self.story.begin(raw.headers[FROM_HEADER.lower()])
                    code = await self._read(raw)
                    is_told = code == LOST_CODE
                    assert is_told or code < REFUSED_CODE, code
                else:
                    assert raw.status in (410, 503), raw.status
                    is_told = raw.status == 410
            if is_told:
                self.story.is_told()
            self._cursor = self.story.cursor if self.story.began else ""
            await asyncio.sleep(AGAIN_SECONDS)

    async def _read(self, raw: Raw) -> int:
        """Until the hub closes it: the code."""
        while True:
            await self.may_read.wait()
            found = await raw.frame()
            if found.opcode == CLOSE:
                return int.from_bytes(found.data[:2])
            if found.opcode == PING:
                await raw.send(frame(PONG, found.data))
            else:
                self.story.take(found.data)


class Book:
    """What was acknowledged, and where its answers said that it is."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Ends]] = {}
        self.times: list[float] = []  # of each answer, by the monotonic clock

    async def publish(
        self, hub: RunningHub, names: Sequence[str], set_name: str = "dataset1"
    ) -> None:
        """These changes in one request, repeated with its key until it is acknowledged."""
        changes = [{"loc": f"http://example.com/{name}", "change": "updated"} for name in names]
        path, headers = f"/api/sets/{set_name}/changes", {"Idempotency-Key": names[0]}
        said = await until_done(hub, "POST", path, json=changes, headers=headers)
        self.times.append(monotonic())
        self.note([change["loc"] for change in changes], said)

    def note(self, locs: Iterable[str], said: Mapping[str, str]) -> None:
        for loc in locs:
            self.answers.setdefault(loc, []).append((said["from"], said["until"]))

    @property
    def size(self) -> int:
        return len(self.answers)

    def longest_pause(self, since: float) -> float:
        """The longest time without an answer, in seconds."""
        times = [since, *(each for each in self.times if each >= since)]
        return max((other - one for one, other in pairwise(times)), default=0.0)


class Outcome(NamedTuple):
    """What a failover has done, for whoever reads the report."""

    acknowledged: int
    lost: int
    gaps: int
    followers: int
    told: Sequence[float]  # seconds until each follower was told, since the loss
    back: float  # seconds without an answer to a publish

    def __str__(self) -> str:
        told = ", ".join(f"{seconds:.2f}" for seconds in sorted(self.told)) or "-"
        return (
            f"acknowledged {self.acknowledged}, lost {self.lost}, gaps {self.gaps}; "
            f"{len(self.told)} of {self.followers} readers told after {told} s; "
            f"publishing was back after {self.back:.2f} s"
        )


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
    await Book().publish(hub, names, set_name)
    return set(names)


async def all_in(told: Iterable[Reader | Receiver], names: set[str]) -> None:
    async def are_told() -> bool:
        return all(names <= _names(each) for each in told)

    await until(are_told)


def _names(told: Reader | Receiver) -> set[str]:
    if isinstance(told, Reader):
        return set(told.told)
    return {loc.rpartition("/")[2] for loc in told.locs}


# --- the judge -----------------------------------------------------------------------------------


async def settled(
    hubs: Sequence[RunningHub],
    book: Book,
    followers: Sequence[Follower],
    others: Callable[[], Sequence[Story]] = list,
    *,
    may_lose: bool,
) -> tuple[list[Row], int]:
    """Wait until nothing is wrong; all that is listed, and how many gaps there are."""
    found: list[Any] = []

    async def is_right() -> bool:
        lists = [await all_lists(hub) for hub in hubs]
        gaps = await gaps_in_redis(hubs[0].redis_url)
        stories = [*(each.story for each in followers), *others()]
        faults = wrong(lists[0], book.answers, stories, gaps=gaps, may_lose=may_lose)
        faults += [
            f"{hub.url} does not list what {hubs[0].url} lists: {difference(each, lists[0])}"
            for hub, each in zip(hubs, lists, strict=True)
            if each != lists[0]
        ]
        faults += await _unsaid(hubs, lists[0], book)
        found[:] = faults, lists[0], gaps
        return not faults

    try:
        await until(is_right)
    except TimeoutError:
        raise AssertionError("\n".join(found[0] if found else ["no hub has a list"])) from None
    return found[1], found[2]


async def _unsaid(hubs: Sequence[RunningHub], journal: Sequence[Row], book: Book) -> list[str]:
    """From where a poller reads on, though something is lost behind it."""
    begins = {ends[0] for _, ends in lost(journal, book.answers)}
    some = sorted(begins)[:: max(1, len(begins) // 4)]
    return [
        f"{hub.url} reads on from {begin}, behind which something is lost"
        for hub in hubs
        for begin in some
        if not await ends_with_410(hub, begin)
    ]


async def ends_with_410(hub: RunningHub, cursor: str) -> bool:
    """Whether somebody who polls from there is told that something is gone."""
    while True:
        status, body = await hub.ask("GET", f"/dataset1/changelist.xml?from={cursor}")
        covered = INTERVAL.search(body) if status == 200 else None
        if covered is None:
            return status == 410
        cursor = covered[2].decode()


async def all_lists(hub: RunningHub, set_name: str = "dataset1") -> list[Row]:
    """What all Change Lists hold, which need not join; one that is named may be gone already."""

    async def read() -> list[bytes] | None:
        status, index = await hub.ask("GET", f"/{set_name}/changelist-index.xml")
        paths = LIST.findall(index) if status == 200 else []
        answers = [await hub.ask("GET", path.decode()) for path in paths]
        is_whole = bool(answers) and {status for status, _ in answers} == {200}
        return [body for _, body in answers] if is_whole else None

    return [row for each in await until(read) for row in rows_of(each)]


async def gaps_in_redis(url: str) -> int:
    """How many gaps the journal has."""
    async with connect(url) as client:
        gaps = await client.hget(keys.record(ChannelName("dataset1", "change")), "gaps")
    return len((gaps or b"").split())


# --- the failover --------------------------------------------------------------------------------


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


async def let_replicate(servers: Iterable[RedisServer]) -> None:
    """What `stop_replication` has kept from it."""
    for each in servers:
        async with each.client() as client:
            await client.config_set("masterauth", "")
            await client.config_set("masteruser", "")


@asynccontextmanager
async def running(
    redis: Watched, folder: Path, count: int, replicas: str = "0"
) -> AsyncIterator[list[RunningHub]]:
    def hub(number: int) -> RunningHub:
        options = ("--redis", redis.url)
        return RunningHub(
            folder / f"data{number}", *options, callback_private="allow", replicas=replicas
        )

    async with AsyncExitStack() as stack:
        hubs = [hub(number) for number in range(count)]
        await stack.enter_async_context(hubs[0])
        await asyncio.gather(*map(stack.enter_async_context, hubs[1:]))
        yield hubs
    for each in hubs:
        assert "Traceback" not in each.log.read_text()


@asynccontextmanager
async def followed(followers: Sequence[Follower]) -> AsyncIterator[None]:
    """They read until the block ends; whatever ends one of them ends the block."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.run()) for each in followers]
        yield
        for task in tasks:
            task.cancel()


async def lossy_failover(folder: Path, *, hubs: int, changes: int, under_load: bool) -> Outcome:
    async with (
        watched(folder) as redis,
        running(redis, folder, hubs) as started,
        Receiver() as receiver,
    ):
        return await _Failover(redis, started, receiver).run(changes, PUBLISHERS * under_load)


class _Failover:
    """What is published before, while and after the last changes are lost, and who must be told."""

    def __init__(self, redis: Watched, hubs: list[RunningHub], receiver: Receiver) -> None:
        self._redis = redis
        self._hubs = hubs
        self._first, self._last = hubs[0], hubs[-1]
        self._receiver = receiver
        self._book = Book()

    async def run(self, changes: int, publishers: int) -> Outcome:
        await subscribe(self._first, self._receiver)
        await self._book.publish(self._first, ["before"])
        ((begin, cursor),) = self._book.answers["http://example.com/before"]
        connected = [Follower(hub, f"reader{n}", cursor) for n, hub in enumerate(self._hubs)]
        slow = Follower(self._last, "slow", cursor)
        slow.may_read.clear()
        async with followed([*connected, slow]):
            await stop_replication(self._redis)
            await self._publish_what_is_lost(changes)
            began = monotonic()
            await self._fail_over(publishers)
            back = self._book.longest_pause(began)
            away = Follower(self._last, "away", cursor)
            async with followed([away]):
                slow.may_read.set()
                told = [*connected, slow, away]
                await self._all_told(told)
                await self._book.publish(self._first, ["end"])
                journal, gaps = await settled(
                    self._hubs, self._book, told, lambda: [self._story(begin)], may_lose=True
                )
        return Outcome(
            self._book.size,
            len(lost(journal, self._book.answers)),
            gaps,
            len(told),
            [each.when - began for follower in told for each in follower.story.told],
            back,
        )

    async def _publish_what_is_lost(self, changes: int) -> None:
        for start in range(0, changes, 50):
            hub = self._hubs[start // 50 % len(self._hubs)]
            await self._book.publish(hub, [f"lost-{start + n}" for n in range(50)])

    async def _fail_over(self, publishers: int) -> None:
        async with asyncio.TaskGroup() as going_on:
            for number in range(publishers):
                going_on.create_task(publish_on(self._book, self._hubs, number))
            await self._redis.redis.primary.kill()
            await self._book.publish(self._last, ["after"])

    async def _all_told(self, followers: Sequence[Follower]) -> None:
        """The callback is told by the next change."""

        async def are_told() -> bool:
            return all(each.story.told and each.story.began for each in followers)

        await until(are_told)

    def _story(self, begin: str) -> Story:
        deliveries = [
            (each.body, INDEX_LINK in each.headers["link"]) for each in self._receiver.deliveries
        ]
        return story_of_deliveries("callback", begin, deliveries)


async def publish_on(book: Book, hubs: Sequence[RunningHub], number: int) -> None:
    """Some changes, one after the other, while Redis fails over."""
    for n in range(25):
        await book.publish(hubs[(number + n) % len(hubs)], [f"while-{number}-{n}"])


async def listed(hub: RunningHub, set_name: str, token: str | None = None) -> set[str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    document = await until_done(hub, "GET", f"/{set_name}/changelist.xml", headers=headers)
    return {loc.decode() for loc in LOC.findall(document)}
