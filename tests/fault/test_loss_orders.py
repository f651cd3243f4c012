"""Two hubs, some changes, a loss and a crash, in every order in which they can happen: no loss is
silent as long as somebody is left who knew of it.

Hubs and Redis are real, without a bell and a clock between them: a step is that a hub publishes,
reads on, or dies, or that Redis loses what has come since it was copied. Each hub has a reader.
After each order the hubs read on until nothing changes any more, and then all stories are judged.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import combinations_with_replacement, count, product

import pytest

from rsnotify.coordination import keys
from rsnotify.errors import Trimmed
from rsnotify.journal.journal_store import JournalStore
from rsnotify.journal.rows import rows_of
from rsnotify.live.journals import Journals
from rsnotify.redis_client import Client, connect
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, Interval, Notification
from rsnotify.sets.options import SetOptions
from tests.support.amount import amount
from tests.support.faults import Losing
from tests.support.hubs import started, submission
from tests.support.stories import Story, lost, wrong

CHANNEL = ChannelName("a", "change")
STEPS = amount(3, evidence=4)  # besides the copy, the loss and the crash
COPY, LOSE, CRASH = "copy", "lose", "crash"
PUBLISH, READ, SAME = "publish", "read on", "publish at the newest position"
LOC = re.compile(rb"<loc>([^<]*)</loc>")

Step = tuple[str, str]  # what, and at which hub


class Reader:
    """A watcher that begins anew behind a gap, as who is told 4410 does."""

    writes = 0

    def __init__(self, hub: Journals, name: str) -> None:
        self._feed = hub.feed(CHANNEL)
        self.story = Story(name)
        self.story.begin(str(self._feed.tail.head))
        self._feed.watch(self)

    def push(self, notification: Notification) -> None:
        self.story.take(notification.payload)

    def fall_behind(self, head: Position) -> None:  # noqa: ARG002
        self.story.is_told()
        self.story.begin(str(self._feed.tail.head))

    def turn_private(self) -> None:
        raise AssertionError

    def end(self) -> None:
        raise AssertionError


class World:
    """What has happened in one order."""

    def __init__(self, client: Client, hubs: dict[str, Journals]) -> None:
        self._client = client
        self._hubs = hubs
        self._readers = {name: Reader(hub, f"reader at {name}") for name, hub in hubs.items()}
        self._answers: dict[str, Interval] = {}
        self._publishers: dict[str, str] = {}
        self._losing = Losing(client)
        self._names = (f"r{number}" for number in count())

    async def do(self, step: Step) -> None:
        what, hub = step
        if what == COPY:
            await self._losing.__aenter__()
        elif what == LOSE:
            await self._losing.__aexit__()
        elif what == CRASH:
            del self._hubs[hub]
        elif what == READ:
            await self._read_on(self._hubs[hub])
        else:
            await self._publish(hub, at_the_newest=what == SAME)

    async def _publish(self, hub: str, *, at_the_newest: bool) -> None:
        name, own = next(self._names), {}
        if at_the_newest and self._answers:
            own = {"datetime": str(max(each.until for each in self._answers.values()))}
        loc = f"http://example.com/{name}"
        self._answers[loc] = await self._hubs[hub].publish(CHANNEL, submission(name, **own))
        self._publishers[loc] = hub

    async def _read_on(self, hub: Journals) -> None:
        await hub.checking.check_all()
        await hub.following.read_new()

    async def settle(self) -> None:
        for hub in (*self._hubs.values(), *self._hubs.values()):
            await self._read_on(hub)

    async def wrong(self) -> list[str]:
        entries, gaps = await self._client.together(
            [("XRANGE", keys.stream(CHANNEL), "-", "+"), ("HGET", keys.record(CHANNEL), "gaps")]
        )
        journal = [(str(at), LOC.findall(xml)[0].decode()) for at, xml in rows_of(entries)]
        number = len((gaps or b"").split())
        stories = [self._readers[name].story for name in self._hubs]
        found = wrong(journal, self._known(), stories, gaps=number, may_lose=True)
        if number and not lost(journal, self._all()):
            found.append("a gap was left, though nothing is lost")
        return found + [
            f"who polls reads on from {begin}"
            for _, (begin, _) in lost(journal, self._known())
            if not await self._is_told(Position.parse(begin))
        ]

    async def _is_told(self, cursor: Position) -> bool:
        """Whoever reads on from there, behind which something is lost."""
        journal = JournalStore(self._client, window_changes=10)
        with suppress(Trimmed):
            while rows := await journal.read(CHANNEL, cursor, count=100):
                cursor = rows[-1][0]
            return False
        return True

    def _all(self) -> dict[str, list[tuple[str, str]]]:
        return {loc: [(str(each.from_), str(each.until))] for loc, each in self._answers.items()}

    def _known(self) -> Mapping[str, list[tuple[str, str]]]:
        """Of what somebody knows who is left."""
        heard = {
            loc
            for hub in self._hubs
            for _, loc in (*self._readers[hub].story.rows, *self._readers[hub].story.before)
        }
        own = {loc for loc, hub in self._publishers.items() if hub in self._hubs}
        return {loc: ends for loc, ends in self._all().items() if loc in heard | own}


def orders(steps: int) -> Iterator[tuple[Step, ...]]:
    """Each begins with a publish of the first hub, as the hubs are alike; nothing is lost unless
    something came between the copy and the loss."""
    acts = [*product((PUBLISH, READ), "ab"), (SAME, "b")]
    for some in product(acts, repeat=steps - 1):
        done = ((PUBLISH, "a"), *some)
        for copied, loses in combinations_with_replacement(range(steps + 1), 2):
            if all(what == READ for what, _ in done[copied:loses]):
                continue
            before, between, after = done[:copied], done[copied:loses], done[loses:]
            order = (*before, (COPY, ""), *between, (LOSE, ""), *after)
            yield order
            if all(hub == "b" for _, hub in after):
                yield (*before, (COPY, ""), *between, (CRASH, "a"), (LOSE, ""), *after)


@pytest.mark.evidence
@pytest.mark.timeout(600)
async def test_no_loss_is_silent_in_whatever_order_things_happen(own_redis):
    async with connect(own_redis.url) as client:
        tried = 0
        for order in orders(STEPS):
            await client.flushall()
            first = await started(client)
            await first.add_set("a", SetOptions())
            world = World(client, {"a": first, "b": await started(client)})
            for step in order:
                await world.do(step)
            await world.settle()
            assert await world.wrong() == [], order
            tried += 1
        print(f"{tried} orders")
        assert tried > 200
