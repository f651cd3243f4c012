"""Long histories: days of one trouble after another, each judged once it is over.

Between two troubles the whole world is suspended for hours, as machines are, or the hubs are off:
what is due meanwhile (leases, Change Lists, Resource Lists, keys) is due when they go on.
"""

import asyncio
from collections.abc import Awaitable, Callable

from tests.evidence.simulation.engine import REFUSALS, URL, Engine
from tests.evidence.simulation.judge import Judge
from tests.evidence.simulation.peers import PollReader, Reader, Receiver, Source, StreamReader
from tests.evidence.simulation.scenarios import LONG, SETS, hubs_ready, scenario
from tests.evidence.simulation.world import World

DAY = 86_400.0
CALM_SECONDS = 120.0  # a callback that fails twice is tried again after 6 s, and then after 32


class Long:
    """Who takes part, and what has happened that the judge must know."""

    def __init__(self, world: World, redis: Engine) -> None:
        self.world, self.redis, self.chance = world, redis, world.chance
        self.source = Source(world, ["a", "b"])
        self.readers: list[Reader] = [Reader(world, f"reader{n}", ["a", "b"]) for n in range(2)]
        self.readers.append(StreamReader(world, "stream", ["a", "b"]))
        self.readers.append(PollReader(world, "poll", ["a", "b"]))
        self.receiver = Receiver(world, "receiver")
        self.has_lost = False

    def start(self, hub: str) -> None:
        self.world.start_hub(hub, URL, SETS, callback_private="allow")

    async def publish(self, count: int) -> None:
        keys = [self.source.new(self.chance.randrange(1, 4)) for _ in range(count)]
        await asyncio.gather(*map(self.source.publish, keys))

    async def during(self, trouble: Callable[["Long"], Awaitable[None]]) -> None:
        """Something is published before, while and after it."""
        self.world.note("days", f"{trouble.__name__}, day {self.world.now() / DAY:.2f}")
        await self.publish(2)
        sent = asyncio.ensure_future(self.publish(6))
        await asyncio.sleep(self.chance.random() ** 2 * 0.3)
        await trouble(self)
        sent_after = asyncio.ensure_future(self.publish(3))
        await asyncio.gather(sent, sent_after)

    async def judge(self) -> None:
        first = min(from_ for from_, _ in self.source.acknowledged.values())
        judge = Judge(
            self.world,
            ["a", "b"],
            [self.source],
            self.readers,
            [self.receiver],
            may_lose=self.has_lost,
            after=first,
        )
        await judge.judge(within=CALM_SECONDS)

    async def pause(self) -> None:
        """Hours pass, in which machines are suspended or hubs are off."""
        seconds = self.chance.choice((3600.0, 6 * 3600.0, DAY, 2 * DAY)) * self.chance.random()
        is_off = self.chance.random() < 0.3
        if is_off:
            self.world.crash("a")
            self.world.crash("b")
        self.world.note("days", f"{'off' if is_off else 'suspended'} for {seconds / 3600:.1f} h")
        self.world.loop.pass_time(seconds)
        if is_off:
            self.redis.restart()
            self.start("a")
            self.start("b")
        await asyncio.sleep(5)


async def loses(days: Long) -> None:
    days.has_lost = True
    days.redis.keep()
    await asyncio.sleep(days.chance.random() * 0.2)
    days.redis.fail_over()
    await asyncio.sleep(days.chance.random())


async def fails_over_to_a_replica(days: Long) -> None:
    days.has_lost = True
    days.redis.replicate(days.chance.randrange(1, 40))
    await asyncio.sleep(days.chance.random() * 0.3)
    days.redis.fail_over_to_replica()


async def fails_over_in_a_script(days: Long) -> None:
    days.has_lost = True
    days.redis.fail_over_in("append", is_kept=days.chance.random() < 0.5)
    await days.publish(1)


async def restarts(days: Long) -> None:
    days.redis.restart()


async def refuses(days: Long) -> None:
    days.redis.refuse(days.chance.choice(REFUSALS))
    await asyncio.sleep(days.chance.random() * 4)
    days.redis.refuse(None)


async def loses_answers(days: Long) -> None:
    days.redis.lose_answer_of = 0.02 + days.chance.random() * 0.1
    await asyncio.sleep(days.chance.random())
    days.redis.lose_answer_of = 0.0


async def hub_crashes(days: Long) -> None:
    hub = days.chance.choice("ab")
    days.world.crash(hub)
    await asyncio.sleep(days.chance.random() * 3)
    days.start(hub)


async def parts(days: Long) -> None:
    hub = days.chance.choice("ab")
    days.world.network.part(hub, "redis")
    await asyncio.sleep(days.chance.random() * 5)
    days.world.network.join(hub, "redis")


async def connections_are_forgotten(days: Long) -> None:
    days.world.network.halve(days.chance.choice("ab"), "redis")
    await asyncio.sleep(days.chance.random())


async def clocks_jump(days: Long) -> None:
    days.redis.clock_moved += days.chance.choice((-3600, -10, -0.5, 0.5, 10, 100))
    days.world.hosts["a"].clock_moved += days.chance.choice((-7200, 0, 7200))


async def callback_fails(days: Long) -> None:
    days.receiver.hangs = days.chance.random() < 0.5
    days.receiver.refuses = days.chance.randrange(2 if days.receiver.hangs else 3)
    await asyncio.sleep(days.chance.random() * 12)
    days.receiver.hangs = False


TROUBLES = (
    *(loses, fails_over_to_a_replica, fails_over_in_a_script, restarts, refuses, loses_answers),
    *(hub_crashes, parts, connections_are_forgotten, clocks_jump, callback_fails),
)


@scenario
async def days(world: World, redis: Engine) -> None:
    """Days of one trouble after another; all is well after each."""
    await hubs_ready(world, "a", "b", callback_private="allow")
    long = Long(world, redis)
    long.receiver.listen()
    await long.receiver.subscribe("a", lease=31 * 86_400)
    for each in long.readers:
        each.follow()
    await asyncio.sleep(1)
    for _ in range(world.chance.randrange(3, 6)):
        await long.during(world.chance.choice(TROUBLES))
        await long.judge()
        await long.pause()
    await long.during(restarts)
    await long.judge()


LONG.add("days")
