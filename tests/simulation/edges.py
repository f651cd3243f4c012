"""Histories about one edge each: what is late at the moment on which everything depends.

In the scenarios of `scenarios.py` the whole network is late by chance. Here one command, one answer
or one stroke of the bell is held back on purpose, and a seed draws for how long.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from random import Random

from tests.simulation.engine import URL, Engine
from tests.simulation.judge import CALM_SECONDS, Judge, Wrong, listed
from tests.simulation.peers import INTERVAL, Reader, Receiver, Source, Unreachable, ask
from tests.simulation.scenarios import SETS, followed, hubs_ready, made_private, scenario
from tests.simulation.virtual import EPOCH
from tests.simulation.world import World

OWN_SECONDS = 0.65  # until all have what a Source was not there to be answered
HOLD_TRIES = 5  # for two journals, and what else a hub sets; there are twelve where others take it


def slowest(reader: Reader) -> float:
    """The longest time from a change's position until a connected reader had it."""
    took = (
        EPOCH + said.when - datetime.fromisoformat(said.until).timestamp() for said in reader.story
    )
    return max(took, default=0.0)


def some_commands(chance: Random, hub: str) -> Callable[[str, str], float]:
    """Half of the commands are late for this hub, each always for the same time."""
    late: dict[str, float] = {"HELLO": 0.0, "CLIENT": 0.0}

    def lateness(host: str, name: str) -> float:
        if host != hub:
            return 0.0
        if name not in late:
            late[name] = chance.choice((0.0, chance.random() * 0.3))
        return late[name]

    return lateness


async def polled(hub: str, path: str) -> None:
    with suppress(Unreachable):
        await ask(hub, "GET", path)


@scenario
async def reader_of_a_private_set(world: World, redis: Engine) -> None:
    """A stranger is admitted, and the set turns private before it joins: it reads nothing more.

    It stands where this hub has not read yet, so the hub asks Redis, and the answer is late.
    """
    chance = world.chance
    await hubs_ready(world, "a", "b")
    source = Source(world, ["a", "b"])
    redis.deaf.add("b")
    first = source.new()
    await source.publish(first, "a")
    redis.answers_late = some_commands(chance, "b")
    strangers = [Reader(world, f"stranger{number}", ["b"], token=None) for number in range(4)]
    for stranger in strangers:
        stranger.cursor = stranger.began = source.acknowledged[first][1]
        world.loop.call_later(chance.random() * 0.2, stranger.follow)
    topics = [asyncio.ensure_future(topic_of("b", chance.random() * 0.2)) for _ in range(3)]
    await asyncio.sleep(chance.random() * 0.3)
    while not await made_private(chance.choice("ab")):
        await asyncio.sleep(0.1)
    redis.deaf.clear()
    secret = source.new(prefix="secret")
    await source.publish(secret)
    read = [body for body in await asyncio.gather(*topics) if source.locs[secret][0] in body]
    redis.answers_late = lambda _, __: 0.0
    await asyncio.sleep(1.5)
    heard = {loc for each in strangers for said in each.story for loc in said.locs}
    if read or heard & {*source.locs[secret]}:
        world.errors.append("a stranger has read what is private")
    await Judge(world, ["a", "b"], [source]).judge()


async def topic_of(hub: str, later: float) -> str:
    """What a stranger reads who asks for a channel's topic, so much later."""
    await asyncio.sleep(later)
    try:
        answer = await ask(hub, "GET", "/channels/dataset1/change_notification_channel", token=None)
    except Unreachable:
        return ""
    return answer.body.decode()


@scenario
async def published_after_private(world: World, redis: Engine) -> None:
    """What is published right after a set has turned private reaches no stranger of any hub."""
    chance = world.chance
    await hubs_ready(world, "a", "b")
    source = Source(world, ["a", "b"])
    strangers = [Reader(world, f"stranger{hub}", [hub], token=None) for hub in "ab"]
    for stranger in strangers:
        stranger.follow()
    await asyncio.sleep(0.2)
    await source.publish(source.new())
    redis.deaf |= {hub for hub in "ab" if chance.random() < 0.3}
    while not await made_private(chance.choice("ab")):
        await asyncio.sleep(0.1)
    secrets = [source.new(prefix="secret") for _ in range(2)]
    await asyncio.gather(*(source.publish(key, chance.choice("ab")) for key in secrets))
    redis.deaf.clear()
    await asyncio.sleep(2)
    told = [loc for each in strangers for said in each.story for loc in said.locs]
    if any(loc.startswith("secret") for loc in told):
        world.errors.append(f"strangers read what is private: {told}")
    await Judge(world, ["a", "b"], [source]).judge()


@scenario
async def overtaken(world: World, redis: Engine) -> None:
    """Redis loses a change, and a hub that has not seen it appends another one first.

    The lost one is appended again, behind it: readers that had it go on, and each list has it once.
    """
    chance = world.chance
    source, readers = await followed(world, readers=3)
    await asyncio.sleep(0.2)
    await source.publish(source.new(), "a")
    await asyncio.sleep(chance.random() * 0.3)
    redis.keep()
    redis.deaf.add("b")
    await source.publish(source.new(), "a")
    for hub in chance.choice(("", "a", "ab")):
        await polled(hub, "/dataset1/changelist.xml")
    redis.late = lambda host, _: 0.02 + 0.05 * chance.random() if host == "a" else 0.0
    redis.fail_over()
    redis.deaf.clear()
    await source.publish(source.new(), "b")
    await asyncio.sleep(chance.random())
    redis.late = lambda _, __: 0.0
    await asyncio.gather(*(source.publish(source.new()) for _ in range(2)))
    await Judge(world, ["a", "b"], [source], readers, may_lose=True).judge()


@scenario
async def lost_neighbour(world: World, redis: Engine) -> None:
    """A hub acknowledges a change and dies, Redis loses it: the next one's hub remembers it."""
    chance = world.chance
    await hubs_ready(world, "a", "b")
    source = Source(world, ["b"])
    await source.publish(source.new(), "b")
    await asyncio.sleep(0.1 + chance.random() * 0.2)
    redis.keep()
    redis.deaf.add("b")
    await source.publish(source.new(), "a")
    await source.publish(source.new(), "b")
    world.crash("a")
    redis.fail_over()
    redis.deaf.clear()
    await asyncio.sleep(chance.random() * 2)
    await source.publish(source.new(), "b")
    await Judge(world, ["b"], [source], may_lose=True).judge()


@scenario
async def remembered_elsewhere(world: World, redis: Engine) -> None:
    """What a busy hub alone remembers is waited for: nobody is told of a gap meanwhile."""
    chance = world.chance
    await hubs_ready(world, "a")
    source = Source(world, ["a"])
    reader = Reader(world, "reader", ["a"])
    reader.follow()
    await source.publish(source.new(), "a")
    await asyncio.sleep(0.3)
    redis.keep()
    await source.publish(source.new(2), "a")
    await hubs_ready(world, "b")  # it knows where the journal ended, and no more
    world.network.part("a", "redis")
    redis.fail_over()
    await asyncio.sleep(2 + chance.random() * 10)
    world.network.join("a", "redis")
    await asyncio.sleep(chance.random())
    await source.publish(source.new(), "a")
    judge = Judge(world, ["a", "b"], [source], [reader], may_lose=True)
    await judge.judge()
    await judge.no_gaps()


@scenario
async def late_repair(world: World, redis: Engine) -> None:
    """A repair reaches Redis when it is done already: nothing is stored twice."""
    chance = world.chance
    source, readers = await followed(world, readers=1)
    await source.publish(source.new(), "a")
    await asyncio.sleep(0.2)
    redis.keep()
    redis.deaf.add("b")
    await asyncio.gather(*(source.publish(source.new(), "a") for _ in range(2)))
    held = [2 + chance.random() * 5]  # a hub asks for three seconds, a hold ends after five

    def late(host: str, name: str) -> float:
        return held.pop() if held and name == "repair" else 0.0

    redis.late = late
    redis.fail_over()
    redis.deaf.clear()
    await source.publish(source.new(), "b")
    await asyncio.gather(*(source.publish(source.new()) for _ in range(2)))
    await asyncio.sleep(8)
    await source.publish(source.new())
    await Judge(world, ["a", "b"], [source], readers, may_lose=True).judge()


@scenario
async def impatient_clients(world: World, redis: Engine) -> None:
    """Clients leave while Redis is asked for them: nobody gets the answer of another one."""
    chance = world.chance
    source, readers = await followed(world, readers=1)
    await source.publish(source.new(3))
    redis.answers_late = lambda _, __: chance.random() * 0.02
    paths = (
        *("/dataset1/changelist.xml", "/dataset1/resourcelist.xml", "/dataset1/capabilitylist.xml"),
        *("/api/sets", "/api/status", "/channels/dataset1/change_notification_channel"),
    )
    for _ in range(15):
        asked = [asyncio.ensure_future(polled("a", chance.choice(paths))) for _ in range(4)]
        await asyncio.sleep(chance.random() * 0.06)
        for each in asked[:3]:
            each.cancel()
        await source.publish(source.new())
        await asyncio.wait(asked)
    redis.answers_late = lambda _, __: 0.0
    await Judge(world, ["a", "b"], [source], readers).judge()


@scenario
async def gone_source(world: World, redis: Engine) -> None:
    """A Source is answered 503, or leaves: what Redis has of it reaches the readers at once."""
    chance = world.chance
    source, readers = await followed(world, readers=3)
    await asyncio.sleep(0.3)
    late = 0.0
    redis.answers_late = lambda _, name: late if name == "append" else 0.0
    for _ in range(4):
        late = chance.choice((0.05, 2.7)) + chance.random() * 0.1
        sent = asyncio.ensure_future(source.send(source.new(), chance.choice("ab")))
        await asyncio.sleep(chance.random() * 0.1 if late < 1 else 3.5)
        sent.cancel()
        await asyncio.sleep(chance.random())
    redis.answers_late = lambda _, __: 0.0
    await Judge(world, ["a", "b"], [source], readers).judge()
    for reader in readers:
        if (took := slowest(reader)) > OWN_SECONDS:
            raise Wrong(f"{reader.name} read something after {took:.3f} s")


@scenario
async def late_append(world: World, redis: Engine) -> None:
    """An append is so late that its hub asks again: it is stored once, and its caller is told so.

    Half of the Sources have no key, so only the hub can find out what became of their changes.
    """
    chance = world.chance
    source, readers = await followed(world, readers=1)
    late = [2.2 + chance.random() * 3.0 if chance.random() < 0.5 else 0.0 for _ in range(12)]
    redis.late = lambda _, name: late.pop() if late and name == "append" else 0.0
    sent = []
    for number in range(6):
        key = source.new(chance.randrange(1, 3))
        if number % 2:
            sent.append(asyncio.ensure_future(source.publish(key)))
        else:
            sent.append(asyncio.ensure_future(source.send(key, keyless=True)))
        await asyncio.sleep(chance.random() * 1.0)
    await asyncio.gather(*sent)
    await asyncio.sleep(6)
    await Judge(world, ["a", "b"], [source], readers).judge()


@scenario
async def started_with_older_data(world: World, redis: Engine) -> None:
    """Everything stops, and begins again with older data: no position is given a second time,
    though a Source says that its change is older."""
    chance = world.chance
    await hubs_ready(world, "a")
    source = Source(world, ["a"])
    await source.publish(source.new())
    redis.keep()
    lost = source.new()
    await source.publish(lost)
    until = source.acknowledged.pop(lost)[1]
    world.crash("a")
    redis.fail_over()
    redis.clock_moved -= chance.random() * 0.01
    await hubs_ready(world, "a")
    source.datetime = chance.choice((None, until, source.acknowledged["r1"][1]))
    await source.publish(source.new())
    _, times = await listed("a")
    if times[-1] <= until:
        world.errors.append(f"{times[-1]} comes after {until}, which was acknowledged before")
    await Judge(world, ["a"], [source], may_lose=True).judge()


@scenario
async def full_sockets(world: World, redis: Engine) -> None:
    """Readers stop reading for a while, at the head and behind it: everything comes, once."""
    chance = world.chance
    await hubs_ready(world, "a", "b")
    source = Source(world, ["a", "b"])
    readers = [Reader(world, f"reader{number}", ["a"]) for number in range(3)]
    for reader in readers:
        reader.follow()
    await asyncio.sleep(0.2)
    for reader in readers:
        reader.is_slow = True
    for _ in range(5):
        for hub in "ab"[: chance.randrange(1, 3)]:
            await source.publish(source.new(300), hub)
        if chance.random() < 0.4:
            chance.choice(readers).cut()
        for reader in readers:
            reader.is_slow = chance.random() < 0.7
    for reader in readers:
        reader.is_slow = False
    await Judge(world, ["a", "b"], [source], readers).judge()


@scenario
async def large_publish(world: World, redis: Engine) -> None:
    """More than fits into a notification is published: readers of each hub get all at once."""
    chance = world.chance
    source, readers = await followed(world, readers=4)
    await asyncio.sleep(0.2 + chance.random())
    await source.publish(source.new(1001 + chance.randrange(300)), chance.choice("ab"))
    await asyncio.sleep(2)
    await Judge(world, ["a", "b"], [source], readers).judge()
    for reader in readers:
        if reader.story and (took := slowest(reader)) > OWN_SECONDS:
            raise Wrong(f"{reader.name} read something after {took:.3f} s")


@scenario
async def polled_topics(world: World, redis: Engine) -> None:
    """Pollers wait until their hub has read what the other one has acknowledged, whatever else
    it reads with that."""
    chance = world.chance
    source, readers = await followed(world, readers=1)
    redis.deaf.add("b")
    late = chance.random() * 0.05
    redis.answers_late = lambda host, _: late if host == "b" else 0.0
    first = source.new()
    await source.publish(first, "a")
    asked = [asyncio.ensure_future(topic_of("b", chance.random() * 0.05)) for _ in range(4)]
    await asyncio.sleep(chance.random() * 0.1)
    await source.publish(source.new(1000 + chance.randrange(300)), "a")
    for body in await asyncio.gather(*asked):
        found = INTERVAL.search(body.encode())
        if found and found[2].decode() < source.acknowledged[first][1]:
            world.errors.append(f"a topic is older than {first}: {body[:300]}")
    redis.deaf.clear()
    redis.answers_late = lambda _, __: 0.0
    await Judge(world, ["a", "b"], [source], readers).judge()


@scenario
async def late_confirmation(world: World, redis: Engine) -> None:
    """A callback confirms late, and refuses at first; Redis's answers are lost: it misses nothing
    that is published from the moment at which it was asked."""
    chance = world.chance
    await hubs_ready(world, "a", "b", callback_private="allow")
    source = Source(world, ["a", "b"])
    receiver = Receiver(world, "receiver")
    receiver.listen()
    redis.lose_answer_of = chance.choice((0.0, 0.2))
    receiver.late = 0.1 + chance.random() * 0.5
    while (status := await receiver.subscribe("a")) != 202:
        if status != 503:
            world.errors.append(f"{receiver.name} was answered {status}")
        await asyncio.sleep(0.3)
    redis.lose_answer_of = 0
    async with asyncio.timeout(CALM_SECONDS):
        while not receiver.verified:
            await asyncio.sleep(0.01)
    await source.publish(source.new())
    receiver.refuses = chance.randrange(2)
    await asyncio.sleep(chance.random())
    receiver.late = 0.0
    await source.publish(source.new())
    await Judge(world, ["a", "b"], [source], [], [receiver]).judge(within=60)


@scenario
async def made_again(world: World, redis: Engine) -> None:
    """A set is removed and made again while readers connect: none reads what is of neither."""
    chance = world.chance
    source, _ = await followed(world, readers=0)
    first = source.new()
    await source.publish(first, "a")
    redis.deaf.add("b")
    await source.publish(source.new(), "a")
    redis.answers_late = some_commands(chance, "b")
    old = [Reader(world, f"reader{number}", ["b"]) for number in range(4)]
    for each in old:
        each.cursor = each.began = source.acknowledged[first][1]
        world.loop.call_later(chance.random() * 0.2, each.follow)
    await asyncio.sleep(chance.random() * 0.3)
    await ask("b", "DELETE", "/api/sets/dataset1")
    await ask("b", "PUT", "/api/sets/dataset1", b"{}", Content_Type="application/json")
    redis.deaf.clear()
    redis.answers_late = lambda _, __: 0.0
    again = Source(world, ["a", "b"])
    key = again.new(prefix="new")
    await again.publish(key)
    await asyncio.sleep(2)
    for each in old:
        for said in each.story:
            if said.from_ <= source.acknowledged[first][1] and "new" in str(said.locs):
                world.errors.append(f"{each.name} read on in a set in which it never began")
    await Judge(world, ["a", "b"], [again]).judge()


@scenario
async def restarted(world: World, redis: Engine) -> None:
    """A hub starts while the other one works, and Redis starts again meanwhile."""
    chance = world.chance
    source, readers = await followed(world, readers=2)
    for _ in range(2):
        sent = [asyncio.ensure_future(source.publish(source.new())) for _ in range(4)]
        await asyncio.sleep(chance.random() * 0.1)
        world.crash("b")
        world.network.part("a", "redis")
        await asyncio.sleep(chance.random() * 3)
        world.start_hub("b", URL, SETS)
        redis.restart()
        await asyncio.sleep(chance.random() * 2)
        world.network.join("a", "redis")
        await asyncio.gather(*sent)
    await Judge(world, ["a", "b"], [source], readers).judge()


@scenario
async def lagging_replica(world: World, redis: Engine) -> None:
    """The server to which Redis fails over is some commands behind: what it lacks is put back."""
    chance = world.chance
    source, readers = await followed(world, readers=2)
    await source.publish(source.new())
    redis.replicate(chance.randrange(1, 40))
    sent = [asyncio.ensure_future(source.publish(source.new())) for _ in range(8)]
    await asyncio.sleep(chance.random() ** 2 * 0.1)
    world.note("redis", "fails over to its replica")
    redis.fail_over_to_replica()
    sent += [asyncio.ensure_future(source.publish(source.new())) for _ in range(2)]
    await asyncio.gather(*sent)
    again = chance.sample([*source.acknowledged], 4)
    await asyncio.gather(*(source.publish(key, chance.choice("ab")) for key in again))
    await Judge(world, ["a", "b"], [source], readers, may_lose=True).judge()


@scenario
async def failover_in_a_script(world: World, redis: Engine) -> None:
    """Redis fails over while it runs a script, whose effects are there afterwards, or are not."""
    chance = world.chance
    source, readers = await followed(world, readers=2)
    await source.publish(source.new())
    await asyncio.sleep(0.3)
    redis.fail_over_in("append", is_kept=chance.random() < 0.5)
    sent = [asyncio.ensure_future(source.publish(source.new(2), "a")) for _ in range(3)]
    if chance.random() < 0.5:
        sent.append(asyncio.ensure_future(source.send(source.new(), "b", keyless=True)))
    await asyncio.gather(*sent)
    await Judge(world, ["a", "b"], [source], readers, may_lose=True).judge()


@scenario
async def busy_neighbours(world: World, redis: Engine) -> None:
    """Hubs that remember nothing of what was lost are asked to publish again and again: the one
    that does remember it is not kept from putting it back."""
    chance = world.chance
    others = "bcde"[: chance.randrange(2, 5)]
    await hubs_ready(world, "a")
    source = Source(world, ["a"])
    await source.publish(source.new(), "a")
    await asyncio.sleep(0.3)
    redis.keep()
    await source.publish(source.new(2), "a")
    await hubs_ready(world, *others)  # they know where the journal ended, and no more
    world.network.part("a", "redis")
    redis.fail_over()
    sent = [asyncio.ensure_future(source.publish(source.new(), hub)) for hub in 5 * others]
    late = chance.random() * 0.6
    redis.answers_late = lambda host, _: late if host in others else 0.0
    calls: list[str] = []

    def watched(host: str, name: str) -> float:
        if host == "a" and name in ("SET", "repair"):
            calls.append(name)
        return 0.0

    redis.late = watched
    await asyncio.sleep(2 + chance.random() * 3)
    world.network.join("a", "redis")
    await asyncio.gather(*sent)
    tries = calls.index("repair")
    world.note("redis", f"was repaired after {tries} tries")
    redis.answers_late = redis.late = lambda _, __: 0.0
    judge = Judge(world, ["a", *others], [source], may_lose=True)
    await judge.judge()
    await judge.no_gaps()
    if tries > HOLD_TRIES:
        raise Wrong(f"a tried {tries} times to hold what it can put back")


@scenario
async def unanswered_renewal(world: World, redis: Engine) -> None:
    """Redis has stored a renewal and its answer does not come, as the lease ends: it goes on."""
    chance = world.chance
    await hubs_ready(world, "a", callback_private="allow")
    source = Source(world, ["c"])
    receiver = Receiver(world, "receiver")
    receiver.listen()
    await receiver.subscribe("a", lease=2)
    while not receiver.verified:
        await asyncio.sleep(0.01)
    await asyncio.sleep(1.0 + chance.random() * 1.2)
    late = 0.5 + chance.random() * 4
    redis.answers_late = lambda _, name: late if name == "subscriptions.finish" else 0.0
    is_verified = receiver.verified
    await receiver.subscribe("a", lease=3600)
    async with asyncio.timeout(CALM_SECONDS):
        while receiver.verified == is_verified:
            await asyncio.sleep(0.01)
    await asyncio.sleep(chance.random() * 4)
    world.crash("a")
    redis.answers_late = lambda _, __: 0.0
    await hubs_ready(world, "c", callback_private="allow")
    await source.publish(source.new(), "c")
    await Judge(world, ["c"], [source], [], [receiver]).judge(within=60)


@scenario
async def listed_after_a_loss(world: World, redis: Engine) -> None:
    """A Resource List is made before what Redis has lost is put back: it does not claim to have
    what comes back behind it."""
    chance = world.chance
    source, readers = await followed(world, readers=1)
    await source.publish(source.new(), "a")
    await asyncio.sleep(0.3)
    redis.keep()
    redis.deaf.add("b")
    for _ in range(chance.randrange(1, 4)):
        await source.publish(source.new(2), "a")
    late = chance.random() * 0.3
    redis.late = lambda host, _: late if host == "a" else 0.0
    redis.fail_over()
    redis.deaf.clear()
    if chance.random() < 0.5:
        await source.publish(source.new(), "b")
    await asyncio.sleep(chance.random() ** 2 * 1.5)
    taken = await ask("b", "POST", "/api/sets/dataset1/snapshot")
    world.note("b", f"makes a Resource List: {taken.status} {taken.body!r}")
    await asyncio.sleep(2)
    redis.late = lambda _, __: 0.0
    await Judge(world, ["a", "b"], [source], readers, may_lose=True).judge()


@scenario
async def listed_across_a_loss(world: World, redis: Engine) -> None:
    """Redis loses changes between the beginning of a Resource List and its end: what it says to
    have, it has."""
    chance = world.chance
    source, readers = await followed(world, readers=1)
    await source.publish(source.new(), "a")
    late = {"begin_snapshot": chance.random() * 0.1, "HSCAN": chance.random() * 0.001}
    redis.late = lambda host, name: late.get(name, 0.0) if host == "b" else 0.0
    taking = asyncio.ensure_future(ask("b", "POST", "/api/sets/dataset1/snapshot"))
    await asyncio.sleep(chance.random() * late["begin_snapshot"])
    redis.keep()
    await source.publish(source.new(2), "a")
    await asyncio.sleep(chance.random() * (late["begin_snapshot"] + 256 * late["HSCAN"]))
    redis.fail_over()
    with suppress(Unreachable):
        taken = await taking
        world.note("b", f"makes a Resource List: {taken.status} {taken.body!r}")
    redis.late = lambda _, __: 0.0
    await asyncio.sleep(2)
    await Judge(world, ["a", "b"], [source], readers, may_lose=True).judge()
