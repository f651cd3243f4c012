"""Histories of Destinations: event streams, callbacks that hang, pollers, connections half open."""

import asyncio
import gc
import re
from collections import Counter

from tests.evidence.simulation.edges import READ_SECONDS
from tests.evidence.simulation.engine import URL, Engine
from tests.evidence.simulation.judge import Judge, Wrong
from tests.evidence.simulation.peers import (
    Poller,
    PollReader,
    Reader,
    Receiver,
    Source,
    StreamReader,
    ask,
)
from tests.evidence.simulation.scenarios import SETS, hubs_ready, scenario
from tests.evidence.simulation.world import World

READERS = re.compile(rb'^rsnotify_readers\{[^}]*kind="change"[^}]*\} (\S+)$', re.MULTILINE)
PACKAGES = ("rsnotify", "uvicorn", "starlette", "aiohttp")
GROW = ("Notification", "Position", "HistogramNumbers", "DirectConnection")
"""To a bound: the newest changes; as many connections to Redis as were needed at once."""
FORGOTTEN_SECONDS = 130.0  # by then no process remembers or keeps what it has read
DEAF_SECONDS = 6.0  # until a hub has noticed that it does not hear Redis's bell any more
SILENT_SECONDS = 52.0  # a ping after 25, 20 for its answer, and 5 to read the end


def streams(world: World, count: int) -> list[Reader]:
    """Event streams that are read for a while, left, and come back to."""
    made: list[Reader] = [StreamReader(world, f"stream{n}", ["a", "b"]) for n in range(count)]
    for each in made:
        each.stays = world.chance.randrange(1, 5)
        each.is_slow = world.chance.random() < 0.3
        each.follow()
    return made


async def readers_of(hub: str) -> int:
    """How many the hub says that it has."""
    said = (await ask(hub, "GET", "/metrics")).body
    return sum(int(float(count)) for count in READERS.findall(said))


@scenario
async def event_streams(world: World, redis: Engine) -> None:
    """Readers of event streams come and go with their cursors; a hub crashes: nothing is missed."""
    chance = world.chance
    await hubs_ready(world, "a", "b")
    source, readers = Source(world, ["a", "b"]), streams(world, 4)
    await asyncio.sleep(chance.random() * 0.3)
    for _ in range(4):
        sent = [asyncio.ensure_future(source.publish(source.new())) for _ in range(3)]
        await asyncio.sleep(chance.random() ** 2 * 0.1)
        chance.choice(readers).cut()
        await asyncio.gather(*sent)
    if chance.random() < 0.5:
        world.crash("a")
        await source.publish(source.new(), "b")
        world.start_hub("a", URL, SETS)
        await source.publish(source.new(), "b")
    for each in readers:
        each.is_slow = False
    await Judge(world, ["a", "b"], [source], readers).judge()


@scenario
async def long_polls(world: World, redis: Engine) -> None:
    """Readers who poll a stream come and go, a hub crashes or Redis loses its newest writes while
    they wait: each has each change once, or is told."""
    chance = world.chance
    await hubs_ready(world, "a", "b", long_poll_seconds=2)
    source = Source(world, ["a", "b"])
    readers: list[Reader] = [PollReader(world, f"poll{n}", ["a", "b"]) for n in range(4)]
    for each in readers:
        each.stays = chance.randrange(1, 5)
        each.follow()
    await asyncio.sleep(chance.random() * 4)
    has_lost = chance.random() < 0.4
    for number in range(4):
        if has_lost and number == 2:
            redis.keep()
        sent = [asyncio.ensure_future(source.publish(source.new())) for _ in range(3)]
        await asyncio.sleep(chance.random() ** 2 * 0.1)
        chance.choice(readers).cut()
        if has_lost and number == 3:
            redis.fail_over()
            world.note("redis", "fails over")
        await asyncio.gather(*sent)
        await asyncio.sleep(chance.random() ** 3 * 4)
    if chance.random() < 0.5:
        world.crash("a")
        await source.publish(source.new(), "b")
        world.start_hub("a", URL, SETS, long_poll_seconds=2)
        await source.publish(source.new(), "b")
    await Judge(world, ["a", "b"], [source], readers, may_lose=has_lost).judge()


@scenario
async def filtered_readers(world: World, redis: Engine) -> None:
    """Readers of all kinds, and a callback, want a part of a set of which mostly the other part is
    published; they come and go, a hub crashes or Redis loses its newest writes: each has each
    change of its part once and in order, or is told."""
    chance = world.chance
    settings = {"long_poll_seconds": 2, "callback_private": "allow"}
    await hubs_ready(world, "a", "b", **settings)
    source = Source(world, ["a", "b"])
    receiver = Receiver(world, "receiver")
    receiver.wants = "w"
    receiver.listen()
    await receiver.subscribe("a")
    while not receiver.verified:
        await asyncio.sleep(0.05)
    await asyncio.sleep(1.0)  # until it is kept
    kinds = (Reader, StreamReader, PollReader)
    readers: list[Reader] = [
        kind(world, f"{kind.__name__}{number}", ["a", "b"], wants=wants)
        for kind in kinds
        for number, wants in enumerate(("w", "w", "o", ""))
    ]
    for each in readers:
        each.stays = chance.randrange(1, 5)
        each.is_slow = chance.random() < 0.2
        each.follow()
    await asyncio.sleep(chance.random() * 4)
    has_lost = chance.random() < 0.3
    for number in range(6):
        if has_lost and number == 4:
            redis.keep()
        prefixes = chance.choices("wo", (1, 4), k=3)
        sent = [asyncio.ensure_future(source.publish(source.new(1, each))) for each in prefixes]
        await asyncio.sleep(chance.random() ** 2 * 0.1)
        chance.choice(readers).cut()
        if has_lost and number == 5:
            redis.fail_over()
            world.note("redis", "fails over")
        await asyncio.gather(*sent)
        await asyncio.sleep(chance.choice((0.0, chance.random(), 28.0)))
    if chance.random() < 0.5:
        world.crash("a")
        await source.publish(source.new(1, "w"), "b")
        world.start_hub("a", URL, SETS, **settings)
        await source.publish(source.new(1, "o"), "b")
    for each in readers:
        each.is_slow = False
    receivers = [] if has_lost else [receiver]
    await Judge(world, ["a", "b"], [source], readers, receivers, may_lose=has_lost).judge()


@scenario
async def hanging_receiver(world: World, redis: Engine) -> None:
    """A callback hangs, answers as its call is being given up, or a connection to it that was kept
    is half open: it misses nothing, and gets it in order."""
    chance = world.chance
    await hubs_ready(world, "a", callback_private="allow")
    source = Source(world, ["a"])
    receiver = Receiver(world, "receiver")
    receiver.listen()
    await receiver.subscribe("a")
    while not receiver.verified:
        await asyncio.sleep(0.05)
    trouble = chance.choice(("hangs", "is late", "half open"))
    receiver.hangs = trouble == "hangs"
    receiver.late = 9.9 + chance.random() * 0.2 if trouble == "is late" else 0.0
    if trouble == "half open":
        await source.publish(source.new())
        await asyncio.sleep(chance.random())
        world.network.halve("a", "receiver")
    for _ in range(3):
        await source.publish(source.new())
        await asyncio.sleep(chance.random())
    await asyncio.sleep(8.0)
    receiver.hangs, receiver.late = False, 0.0
    await source.publish(source.new())
    await Judge(world, ["a"], [source], [], [receiver]).judge(within=60)


@scenario
async def polled_resources(world: World, redis: Engine) -> None:
    """Resource Lists are made and read while changes come and a hub crashes: each one is whole."""
    chance = world.chance
    await hubs_ready(world, "a", "b")
    source = Source(world, ["a", "b"])
    pollers = [Poller(world, "b", source), Poller(world, "a", source, takes=False)]
    redis.answers_late = lambda host, _: chance.random() ** 3 * 0.02 if host == "b" else 0.0
    polling = [each.poll() for each in pollers]
    for _ in range(6):
        sent = [asyncio.ensure_future(source.publish(source.new(2))) for _ in range(3)]
        await asyncio.sleep(chance.random() ** 2 * 0.2)
        if chance.random() < 0.2:
            world.crash("a")
            world.start_hub("a", URL, SETS)
        await asyncio.gather(*sent)
    redis.answers_late = lambda _, __: 0.0
    await asyncio.sleep(0.5)
    for each in polling:
        each.cancel()
    await Judge(world, ["a", "b"], [source]).judge()
    if faults := [fault for each in pollers for fault in each.faults]:
        raise Wrong("\n".join(faults))


@scenario
async def half_open(world: World, redis: Engine) -> None:
    """What is between a hub and its readers forgets their connections: the hub finds out, and they
    come back with their cursors."""
    chance = world.chance
    await hubs_ready(world, "a", send_timeout_seconds=20)
    source = Source(world, ["a"])
    readers = [Reader(world, f"reader{number}", ["a"]) for number in range(3)]
    for reader in readers:
        reader.follow()
    await asyncio.sleep(0.2)
    await source.publish(source.new())
    gone = readers[: chance.randrange(1, 4)]
    for each in gone:
        world.network.halve(each.name, "a")
    await asyncio.sleep(chance.random() * 2)
    await source.publish(source.new())
    for each in gone:
        each.cut()  # it has noticed first: the hub is told nothing
    await Judge(world, ["a"], [source], readers).judge()
    await asyncio.sleep(SILENT_SECONDS)
    if (count := await readers_of("a")) != len(readers):
        raise Wrong(f"a has {count} readers, of whom {len(readers)} are there")


@scenario
async def half_open_redis(world: World, redis: Engine) -> None:
    """What is between a hub and Redis forgets their connections: all goes on, on new ones."""
    chance = world.chance
    await hubs_ready(world, "a", "b")
    source = Source(world, ["a", "b"])
    readers = [Reader(world, f"reader{number}", ["a", "b"]) for number in range(2)]
    for reader in readers:
        reader.follow()
    await asyncio.sleep(0.2)
    sent = [asyncio.ensure_future(source.publish(source.new())) for _ in range(3)]
    await asyncio.sleep(chance.random() ** 2 * 0.01)
    for hub in chance.choice(("a", "b", "ab")):
        world.network.halve(hub, "redis")
    sent += [asyncio.ensure_future(source.publish(source.new())) for _ in range(3)]
    await asyncio.gather(*sent)
    await Judge(world, ["a", "b"], [source], readers).judge()
    await asyncio.sleep(DEAF_SECONDS)
    late = source.new()
    await source.publish(late)
    published = world.now()
    while not all(source.locs[late][0] in reader.story[-1].locs for reader in readers):
        if world.now() > published + READ_SECONDS:
            raise Wrong(f"{late} was not read within {READ_SECONDS} s")
        await asyncio.sleep(0.05)


def objects() -> Counter[str]:
    """What of the hub is in memory, by its type."""
    gc.collect()
    types = (type(each) for each in gc.get_objects())
    return Counter(
        f"{each.__module__}.{each.__qualname__}"
        for each in types
        if each.__module__.startswith(PACKAGES) and each.__name__ not in GROW
    )


async def visited(world: World, redis: Engine, source: Source, visitor: int) -> None:
    """Somebody of each kind comes, and goes again."""
    chance = world.chance
    readers = [
        Reader(world, f"reader{visitor}", ["a"]),
        StreamReader(world, f"stream{visitor}", ["a"]),
    ]
    tasks = [reader.follow() for reader in readers]
    receiver = Receiver(world, f"receiver{visitor}")
    receiver.listen()
    await receiver.subscribe("a")
    await asyncio.sleep(0.2 + chance.random())
    if chance.random() < 0.5:
        redis.drop_connections()
    await asyncio.gather(*(source.publish(source.new(20)) for _ in range(3)))
    for path in ("/dataset1/changelist.xml", "/dataset1/resourcelist.xml", "/api/status"):
        await ask("a", "GET", path)
    await Judge(world, ["a"], [source], readers).judge()
    for task in tasks:
        task.cancel()
    await receiver.subscribe("a", mode="unsubscribe")
    await asyncio.sleep(1)


@scenario
async def at_rest(world: World, redis: Engine) -> None:
    """Visitors come and go: when the hub is at rest again, it keeps nothing of them in memory."""
    await hubs_ready(world, "a", callback_private="allow")
    source = Source(world, ["a"])
    found = []
    for count in (2, 5):
        for visitor in range(count):
            await visited(world, redis, source, 10 * count + visitor)
        world.loop.pass_time(FORGOTTEN_SECONDS)
        await asyncio.sleep(5)
        found.append(objects())
    before, after = found
    more = {name: (before[name], n) for name, n in after.items() if n > before[name] + 1}
    if more:
        raise Wrong(f"the hub keeps of its visitors: {more}")
