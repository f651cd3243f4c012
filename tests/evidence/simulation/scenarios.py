"""Histories, each about one edge, whose moments are drawn around it.

A scenario is an `async def` that gets the world and Redis. It makes trouble, ends it, and has
everything judged. Whatever it draws comes from `world.chance`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.evidence.simulation.engine import REFUSALS, URL, Engine
from tests.evidence.simulation.judge import Judge
from tests.evidence.simulation.peers import Reader, Receiver, Source, Unreachable, ask
from tests.evidence.simulation.world import World

Scenario = Callable[[World, Engine], Coroutine[Any, Any, None]]
SCENARIOS: dict[str, Scenario] = {}
LONG: set[str] = set()  # of these, which are of days, and not made in passing
SETS = ("dataset1",)


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


async def hubs_ready(world: World, *names: str, **settings: Any) -> None:
    for name in names:
        world.start_hub(name, URL, SETS, **settings)
    for name in names:
        while not await is_ready(name):
            await asyncio.sleep(0.05)


async def followed(world: World, *, readers: int) -> tuple[Source, list[Reader]]:
    """Two hubs, a Source that publishes to either, and so many readers that follow either."""
    await hubs_ready(world, "a", "b")
    following = [Reader(world, f"reader{number}", ["a", "b"]) for number in range(readers)]
    for reader in following:
        reader.follow()
    return Source(world, ["a", "b"]), following


async def is_ready(hub: str) -> bool:
    try:
        return (await ask(hub, "GET", "/health/ready")).status == 200
    except Unreachable:  # nobody listens yet
        return False


async def made_private(hub: str) -> bool:
    answer = await ask(
        hub, "PATCH", "/api/sets/dataset1", b'{"private": true}', Content_Type="application/json"
    )
    return answer.status == 200


@scenario
async def lost_and_repeated(world: World, redis: Engine) -> None:
    """Redis loses its newest writes; what was acknowledged comes back, each key once."""
    chance = world.chance
    source, readers = await followed(world, readers=2)
    keys = [source.new(chance.randrange(1, 4)) for _ in range(12)]
    for key in keys[:4]:
        await source.publish(key)
    await asyncio.sleep(chance.random())
    redis.keep()
    sent = [asyncio.ensure_future(source.publish(key, "a")) for key in keys[4:]]
    await asyncio.sleep(chance.random() ** 2 * 0.3)
    if chance.random() < 0.5:
        redis.lose_answer_of = chance.random()
        await asyncio.sleep(chance.random() ** 2 * 0.1)
    redis.fail_over()
    world.note("redis", "fails over")
    await asyncio.sleep(chance.random() ** 3 * 2)
    redis.lose_answer_of = 0
    await asyncio.gather(*sent)
    acknowledged = [*source.acknowledged]
    repeated = [source.publish(key, chance.choice("ab")) for key in chance.sample(acknowledged, 5)]
    await asyncio.gather(*repeated)
    await Judge(world, ["a", "b"], [source], readers, may_lose=True).judge()


@scenario
async def cut_answers(world: World, redis: Engine) -> None:
    """Answers of Redis are lost after the command was executed."""
    chance = world.chance
    source, readers = await followed(world, readers=2)
    await asyncio.sleep(chance.random() * 0.1)
    redis.lose_answer_of = 0.02 + chance.random() * 0.2
    await asyncio.gather(*(source.publish(source.new()) for _ in range(15)))
    redis.lose_answer_of = 0
    await Judge(world, ["a", "b"], [source], readers).judge()


@scenario
async def crashed_hub(world: World, redis: Engine) -> None:
    """A hub dies in the middle of its work; its readers and Sources go to the other one."""
    chance = world.chance
    source, readers = await followed(world, readers=3)
    await asyncio.sleep(chance.random() * 0.1)
    sent = [asyncio.ensure_future(source.publish(source.new())) for _ in range(10)]
    await asyncio.sleep(chance.random() ** 2 * 0.05)
    world.crash("a")
    sent += [asyncio.ensure_future(source.publish(source.new())) for _ in range(5)]
    await asyncio.sleep(chance.random() * 3)
    world.start_hub("a", URL, SETS)
    await asyncio.gather(*sent)
    await Judge(world, ["a", "b"], [source], readers).judge()


@scenario
async def refusing_redis(world: World, redis: Engine) -> None:
    """Redis refuses for a while, in one of its ways."""
    chance = world.chance
    source, readers = await followed(world, readers=2)
    sent = [asyncio.ensure_future(source.publish(source.new())) for _ in range(8)]
    await asyncio.sleep(chance.random() ** 2 * 0.1)
    name = chance.choice(REFUSALS)
    world.note("redis", f"refuses: {name}")
    redis.refuse(name)
    sent += [asyncio.ensure_future(source.publish(source.new())) for _ in range(4)]
    await asyncio.sleep(chance.random() * 4)
    redis.refuse(None)
    await asyncio.gather(*sent)
    await Judge(world, ["a", "b"], [source], readers).judge()


@scenario
async def lost_connections(world: World, redis: Engine) -> None:
    """All connections to Redis are reset again and again around the moment of a publish."""
    chance = world.chance
    source, readers = await followed(world, readers=2)
    await asyncio.sleep(0.2)
    for _ in range(6):
        sent = asyncio.ensure_future(source.publish(source.new()))
        await asyncio.sleep(chance.random() ** 2 * 0.01)
        redis.drop_connections()
        await sent
        if chance.random() < 0.3:
            chance.choice(readers).cut()
    await Judge(world, ["a", "b"], [source], readers).judge()


@scenario
async def moved_clock(world: World, redis: Engine) -> None:
    """The clocks of Redis and of a hub jump; positions go on."""
    chance = world.chance
    await hubs_ready(world, "a", "b")
    source = Source(world, ["a", "b"])
    readers = [Reader(world, "reader0", ["a", "b"])]
    readers[0].follow()
    for _ in range(5):
        sent = [asyncio.ensure_future(source.publish(source.new())) for _ in range(3)]
        await asyncio.sleep(chance.random() * 0.02)
        redis.clock_moved += chance.choice((-3600, -10, -0.5, 0.5, 10, 100))
        world.hosts["a"].clock_moved += chance.choice((-7200, 0, 7200))
        await asyncio.gather(*sent)
    await Judge(world, ["a", "b"], [source], readers).judge()


@scenario
async def slow_readers(world: World, redis: Engine) -> None:
    """Readers that hardly read, are cut, and come back, get everything in order."""
    chance = world.chance
    await hubs_ready(world, "a")
    source = Source(world, ["a"])
    readers = [Reader(world, f"reader{number}", ["a"]) for number in range(3)]
    for reader in readers:
        reader.is_slow = chance.random() < 0.7
        reader.follow()
    await asyncio.sleep(0.1)
    for _ in range(6):
        await asyncio.gather(*(source.publish(source.new(200)) for _ in range(2)))
        chance.choice(readers).cut()
    for reader in readers:
        reader.is_slow = False
    await Judge(world, ["a"], [source], readers).judge()


@scenario
async def private_set(world: World, redis: Engine) -> None:
    """A set turns private while strangers connect: nothing that follows reaches one of them."""
    chance = world.chance
    await hubs_ready(world, "a", "b")
    source = Source(world, ["a", "b"])
    for _ in range(3):
        await source.publish(source.new())
    strangers = [Reader(world, f"stranger{number}", ["a", "b"], token=None) for number in range(6)]
    began = min(from_ for from_, _ in source.acknowledged.values())
    for stranger in strangers:
        stranger.cursor = stranger.began = began if chance.random() < 0.7 else None
        world.loop.call_later(chance.random() * 0.02, stranger.follow)
    await asyncio.sleep(chance.random() * 0.02)
    hub = chance.choice("ab")
    while not await made_private(hub):
        await asyncio.sleep(0.1)
    await asyncio.sleep(2.5)  # what the docs promise the other process
    secret = source.new(prefix="secret")
    await source.publish(secret)
    await asyncio.sleep(3)
    told = [
        each.name
        for each in strangers
        if any(set(s.locs) & set(source.locs[secret]) for s in each.story)
    ]
    if told:
        world.errors.append(f"strangers read what is private: {told}")
    await Judge(world, ["a", "b"], [source]).judge()


@scenario
async def renewed_lease(world: World, redis: Engine) -> None:
    """A subscription is renewed around the moment in which it ends: it goes on, also after all
    hubs have crashed."""
    chance = world.chance
    await hubs_ready(world, "a", "b", callback_private="allow")
    source = Source(world, ["c"])
    receiver = Receiver(world, "receiver")
    receiver.listen()
    await receiver.subscribe("a", lease=2)
    late = chance.random() * 1.5
    redis.late = lambda _, name: late if name == "subscriptions.forget" else 0.0
    await asyncio.sleep(1.5 + chance.random() * 1.5)
    is_renewed = receiver.verified
    await receiver.subscribe("a", lease=3600)
    while receiver.verified == is_renewed:
        await asyncio.sleep(0.05)
    await asyncio.sleep(2)
    redis.late = lambda _, __: 0.0
    world.crash("a")
    world.crash("b")
    await hubs_ready(world, "c", callback_private="allow")
    await source.publish(source.new(), "c")
    await Judge(world, ["c"], [source], [], [receiver]).judge(within=60)


@scenario
async def refusing_receiver(world: World, redis: Engine) -> None:
    """A callback refuses, a hub crashes: every change reaches it all the same."""
    chance = world.chance
    await hubs_ready(world, "a", "b", callback_private="allow")
    source = Source(world, ["a", "b"])
    receiver = Receiver(world, "receiver")
    receiver.listen()
    await receiver.subscribe("a")
    await asyncio.sleep(1)
    receiver.refuses = chance.randrange(3)
    sent = [asyncio.ensure_future(source.publish(source.new())) for _ in range(5)]
    await asyncio.sleep(chance.random() * 0.2)
    if chance.random() < 0.5:
        world.crash("a")
        await asyncio.sleep(chance.random() * 2)
        world.start_hub("a", URL, SETS, callback_private="allow")
    else:
        redis.drop_connections()
    await asyncio.gather(*sent)
    judge = Judge(world, ["a", "b"], [source], [], [receiver])
    await judge.judge(within=90)  # two attempts later
