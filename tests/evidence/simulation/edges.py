"""Histories about one edge each: what is late at the moment on which everything depends.

In the scenarios of `scenarios.py` the whole network is late by chance. Here one command, one answer
or one message of the bell is held back on purpose, and a seed draws for how long.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random

from tests.evidence.simulation.engine import URL, Engine
from tests.evidence.simulation.judge import CALM_SECONDS, Judge, Wrong, listed
from tests.evidence.simulation.peers import (
    INTERVAL,
    Heard,
    Reader,
    Receiver,
    Source,
    Unreachable,
    ask,
)
from tests.evidence.simulation.scenarios import SETS, followed, hubs_ready, made_private, scenario
from tests.evidence.simulation.virtual import EPOCH
from tests.evidence.simulation.world import World

SAID_SECONDS = 4.0  # until all have been told of a loss that nobody stumbles over
READ_SECONDS = 0.65  # until all have what their hub has heard of
COMPARED_SECONDS = 1.65  # until they have what it has not heard of


def slowest(reader: Reader) -> float:
    """The longest time from a change's position until a connected reader had it."""
    return max(map(seconds_of, reader.story), default=0.0)


def seconds_of(said: Heard) -> float:
    """From the position of a notification until it was read."""
    return EPOCH + said.when - datetime.fromisoformat(said.until).timestamp()


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
    """Redis loses a change, and a hub that has not seen it appends another one first: whoever may
    have had the lost one is told, and what was appended stays where it is."""
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
    """A hub acknowledges a change and dies, Redis loses it: the hub of the next change, which is
    lost as well, says so."""
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
async def known_elsewhere(world: World, redis: Engine) -> None:
    """A loss that only a hub knows which is cut off is said once it is back."""
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
    await Judge(world, ["a", "b"], [source], [reader], may_lose=True).judge()


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
    """A Source is answered 503, or leaves: what Redis has of it reaches the readers once Redis has
    answered the hub, and if that takes long, when the journals are compared."""
    chance = world.chance
    source, readers = await followed(world, readers=3)
    await asyncio.sleep(0.3)
    late = 0.0
    redis.answers_late = lambda _, name: late if name == "append" else 0.0
    most: dict[str, float] = {}  # by loc: seconds until it must have been read
    for _ in range(4):
        late = chance.choice((0.05, 2.7)) + chance.random() * 0.1
        key = source.new()
        most |= dict.fromkeys(source.locs[key], late + 0.2 if late < 1 else COMPARED_SECONDS)
        sent = asyncio.ensure_future(source.send(key, chance.choice("ab")))
        await asyncio.sleep(chance.random() * 0.1 if late < 1 else 3.5)
        sent.cancel()
        await asyncio.sleep(chance.random())
    redis.answers_late = lambda _, __: 0.0
    await Judge(world, ["a", "b"], [source], readers).judge()
    for reader in readers:
        for said in reader.story:
            took = seconds_of(said)
            if took > max(most[loc] for loc in said.locs):
                raise Wrong(f"{reader.name} read {said.locs} after {took:.3f} s")


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
        if reader.story and (took := slowest(reader)) > READ_SECONDS:
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
    """The server to which Redis fails over is some commands behind: what it lacks is said."""
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
    """A Resource List is made just after Redis has lost changes: it has what is listed up to its
    time, and nothing is listed behind its time that came before it."""
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
    """Redis loses changes between the beginning of a Resource List and its end, and the clock of
    the one that takes over is behind: what the list says to have, it has."""
    chance = world.chance
    source, readers = await followed(world, readers=1)
    await source.publish(source.new(), "a")
    late = {"begin_snapshot": 0.1, "HSCAN": 0.001}
    redis.late = lambda host, name: late.get(name, 0.0) if host == "b" else 0.0
    taking = asyncio.ensure_future(ask("b", "POST", "/api/sets/dataset1/snapshot"))
    await asyncio.sleep(0.01 + chance.random() * 0.02)  # its claim is kept, and not its beginning
    redis.keep()
    redis.deaf.add("a")
    await source.publish(source.new(2), "b")
    await asyncio.sleep(0.15 + chance.random() * 0.3)
    redis.fail_over()
    redis.clock_moved -= 0.5
    while not taking.done():
        await source.publish(source.new(), "a")
    redis.deaf.clear()
    with suppress(Unreachable):
        taken = await taking
        world.note("b", f"makes a Resource List: {taken.status} {taken.body!r}")
    redis.late = lambda _, __: 0.0
    await asyncio.sleep(2)
    await Judge(world, ["a", "b"], [source], readers, may_lose=True).judge()


@scenario
async def quiet_failover(world: World, redis: Engine) -> None:
    """Redis loses changes, and nobody publishes any more: everybody is told all the same."""
    chance = world.chance
    source, readers = await followed(world, readers=3)
    await source.publish(source.new())
    await asyncio.sleep(0.3)
    redis.keep()
    for _ in range(chance.randrange(1, 4)):
        await source.publish(source.new(2))
    await asyncio.sleep(chance.random() * 0.5)
    redis.fail_over()
    await asyncio.sleep(SAID_SECONDS)
    if silent := [reader.name for reader in readers if not reader.told]:
        raise Wrong(f"{silent} have not been told within {SAID_SECONDS} s")
    await Judge(world, ["a", "b"], [source], readers, may_lose=True).judge()


@scenario
async def unread_after_a_loss(world: World, redis: Engine) -> None:
    """A replica confirms, and another one takes over that lacks it. A hub that nobody follows hears
    no bell then: it lists what is published afterwards all the same."""
    chance = world.chance
    await hubs_ready(world, "a", "b", replicas=1)
    source = Source(world, ["a"])
    await source.publish(source.new())
    redis.keep()
    await source.publish(source.new())
    redis.deaf.add("b")
    redis.fail_over()
    for _ in range(chance.randrange(1, 4)):
        await source.publish(source.new())
        await asyncio.sleep(chance.random() ** 2 * 2)
    redis.deaf.clear()
    await Judge(world, ["a", "b"], [source], [], may_lose=True).judge()


@scenario
async def bell_elsewhere(world: World, redis: Engine) -> None:
    """As a node of a Cluster that loses changes while the bell is at another one: what is appended
    next is heard of at once, and no reader gets it who has not been told."""
    chance = world.chance
    await hubs_ready(world, "a", "b")
    source = Source(world, ["a", "b"])
    readers = [Reader(world, f"reader{number}", ["a"]) for number in range(2)]
    for reader in readers:
        reader.follow()
    await source.publish(source.new(), "a")
    await asyncio.sleep(0.3)
    redis.keep()
    redis.deaf.add("b")
    await source.publish(source.new(), "a")
    redis.fail_over(keeps_bell=True)
    redis.deaf.clear()
    await asyncio.sleep(chance.random() * 0.3)
    await source.publish(source.new(), "b")
    await asyncio.sleep(chance.random() * 2)
    await Judge(world, ["a", "b"], [source], readers, may_lose=True).judge()


@scenario
async def lost_between_two_rounds(world: World, redis: Engine) -> None:
    """Two rounds are under way: one is answered, and lost, before the other one is stored."""
    chance = world.chance
    await hubs_ready(world, "a", "b")
    source = Source(world, ["a"])
    await source.publish(source.new(), "a")
    await asyncio.sleep(0.3)
    redis.keep()
    redis.deaf.add("b")
    late = [0.1 + chance.random() * 0.3, 0.0]
    redis.late = lambda _, name: late.pop() if late and name == "append" else 0.0
    first = asyncio.ensure_future(source.publish(source.new()))
    await asyncio.sleep(chance.random() ** 2 * 0.003)
    second = asyncio.ensure_future(source.publish(source.new()))
    await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
    redis.fail_over()
    redis.deaf.clear()
    await asyncio.gather(first, second)
    await source.publish(source.new())
    await Judge(world, ["a", "b"], [source], may_lose=True).judge()


@scenario
async def moved_clock_after_a_loss(world: World, redis: Engine) -> None:
    """The server that takes over lacks changes, and its clock is behind: nobody gets a position
    again that somebody was given."""
    chance = world.chance
    source, readers = await followed(world, readers=2)
    await source.publish(source.new())
    await asyncio.sleep(0.3)
    redis.keep()
    await asyncio.gather(*(source.publish(source.new()) for _ in range(2)))
    redis.fail_over()
    redis.clock_moved -= chance.random() * chance.choice((0.05, 5.0))
    await asyncio.sleep(chance.random() ** 2)
    await asyncio.gather(*(source.publish(source.new()) for _ in range(3)))
    judge = Judge(world, ["a", "b"], [source], readers, may_lose=True)
    await judge.judge()
    await judge.gaps(at_most=2)  # each hub may know of something that the other one does not


@scenario
async def same_position(world: World, redis: Engine) -> None:
    """Redis loses two changes that brought their datetimes; the second is published again, and
    takes its old position: that the first is lost is said nevertheless."""
    chance = world.chance
    await hubs_ready(world, "a", "b")
    source = Source(world, ["a", "b"])
    readers = [Reader(world, "reader", ["a"])]
    readers[0].follow()
    await source.publish(source.new(), "a")
    await asyncio.sleep(1.2)
    redis.keep()
    redis.deaf.add("b")
    first, second = source.new(), source.new()
    now = datetime.fromtimestamp(world.wall(), UTC)
    for key, ago in ((first, 0.2), (second, 0.1)):
        source.datetime = f"{now - timedelta(seconds=ago):%Y-%m-%dT%H:%M:%S.%fZ}"
        await source.publish(key, "a")
    world.network.part("a", "redis")
    redis.fail_over()
    await source.publish(second, "b")
    source.datetime = None
    redis.deaf.clear()
    await asyncio.sleep(chance.random())
    world.network.join("a", "redis")
    await asyncio.sleep(chance.random())
    await source.publish(source.new())
    await Judge(world, ["a", "b"], [source], readers, may_lose=True).judge()


@scenario
async def confirmed_by_a_replica(world: World, redis: Engine) -> None:
    """A replica confirms each publish before it is answered, and takes over: nothing is lost, moved
    or told twice, and there is no gap. As a rule, one hub still waits for it to confirm what the
    other hub would find in Redis, if it looked."""
    chance = world.chance
    await hubs_ready(world, "a", "b", replicas=1)
    source = Source(world, ["a", "b"])
    readers = [Reader(world, f"reader{hubs}", hubs) for hubs in ("a", "b", "ab")]
    for reader in readers:
        reader.follow()
    await source.publish(source.new())
    redis.replicate(chance.randrange(1, 80))
    redis.late = lambda _, name: chance.random() * 0.02 if name == "WAIT" else 0.0
    sent = list[asyncio.Future[None]]()
    for _ in range(2):
        sent += [asyncio.ensure_future(source.publish(source.new())) for _ in range(8)]
        await asyncio.sleep(chance.random() ** 2 * 0.02)
        await polled(chance.choice("ab"), "/dataset1/changelist.xml")
    if chance.random() < 0.8:
        await asyncio.gather(*sent)
        redis.late = lambda _, name: 0.05 if name == "WAIT" else 0.0
        one = chance.choice("ab")
        sent = [asyncio.ensure_future(source.publish(source.new(), one)) for _ in range(2)]
        await asyncio.sleep(0.004 + chance.random() * 0.012)
    world.note("redis", "fails over to its replica")
    redis.fail_over_to_replica()
    redis.late = lambda _, __: 0.0
    redis.clock_moved -= chance.random() * 0.05
    sent += [asyncio.ensure_future(source.publish(source.new())) for _ in range(2)]
    await asyncio.gather(*sent)
    judge = Judge(world, ["a", "b"], [source], readers)
    await judge.judge()
    await judge.gaps(at_most=0)
