"""What a stream has of the past: packed, deleted, and lost, also while somebody waits for it."""

import asyncio
import json
from urllib.parse import quote

import pytest

from rsnotify.access.access import Access
from rsnotify.access.tokens import Tokens
from rsnotify.channels.channels import Channels
from rsnotify.channels.keepalive import Keepalive
from rsnotify.coordination import keys
from rsnotify.redis_client import Client
from rsnotify.streams.long_polls import LongPolls, PollEntry, TaskPoller
from rsnotify.streams.replies import variant_of
from tests.support.faults import Losing
from tests.support.pulling import CHANGES, Answer, Pulling
from tests.support.running import TOKEN, until

PATH = "/streams/dataset1"


async def read(pulling: Pulling, offset: object = "-1", live: str = "") -> Answer:
    query = f"offset={quote(str(offset))}"
    return await pulling.get(f"{PATH}?{f'live={live}&' if live else ''}{query}")


def names(answer: Answer) -> list[str]:
    assert answer.status == 200, answer.body
    return [each["loc"].rpartition("/")[2] for each in json.loads(answer.body)]


async def all_names(pulling: Pulling, offset: object = "-1") -> list[str]:
    """To the end, chunk by chunk."""
    found: list[str] = []
    while True:
        answer = await read(pulling, offset)
        found += names(answer)
        if "stream-up-to-date" in answer.headers:
            return found
        offset = answer.headers["stream-next-offset"]


async def test_what_is_packed_is_read_as_what_is_not(pulling):
    intervals = [await pulling.update(str(number)) for number in range(8)]
    await pulling.keep_windows()
    await pulling.let_go_of_all()
    assert await all_names(pulling) == [*map(str, range(8))]
    for number, interval in enumerate(intervals):
        assert await all_names(pulling, interval.until) == [*map(str, range(number + 1, 8))]


async def test_before_what_is_kept_an_offset_is_gone_and_the_beginning_is_what_is_left(client):
    async with Pulling(client, changes=3, retention_days=1) as pulling:
        intervals = [await pulling.update(str(number)) for number in range(7)]
        await pulling.keep_windows()
        await pulling.let_go_of_all()
        await client.zremrangebyrank("rsnotify:{dataset1}:change:windows", 0, 0)
        gone = await read(pulling, intervals[0].until)
        assert gone.status == 410
        assert "what is kept begins at" in json.loads(gone.body)["detail"]
        assert gone.headers["cache-control"] == "no-store"
        assert await all_names(pulling) == ["3", "4", "5", "6"]


@pytest.fixture
def losing(client: Client) -> Losing:
    return Losing(client, "rsnotify:{dataset1}*")


async def test_across_a_gap_an_offset_is_gone_and_the_beginning_is_behind_it(
    pulling, client, losing
):
    kept = await pulling.update("kept")
    async with losing:
        lost = await pulling.update("lost")
    after = await pulling.update("after")
    assert names(await read(pulling, kept.from_)) == ["kept"]
    for offset in (kept.until, lost.until):
        gone = await read(pulling, offset)
        assert gone.status == 410, offset
    assert names(await read(pulling, after.from_)) == ["after"]
    assert await all_names(pulling) == ["after"]


async def test_who_waits_while_changes_are_lost_is_told(pulling, client, losing):
    """Whatever comes next: they do not go on behind the gap as if nothing had been."""
    kept = await pulling.update("kept")
    async with losing:
        lost = await pulling.update("lost")
        await pulling.is_level()
        waiting = asyncio.create_task(read(pulling, lost.until, "long-poll"))
        feed = pulling.hub.feed(CHANGES)

        async def is_waiting() -> bool:
            return feed.is_watched

        await until(is_waiting)
    await pulling.update("after")
    found = await waiting
    assert found.status == 410
    assert names(await read(pulling, kept.from_)) == ["kept"]
    assert await client.hget(keys.record(CHANGES), "gaps")


async def test_what_was_lost_is_given_to_nobody_once_that_is_known(pulling, losing):
    async with losing:
        lost = await pulling.update("lost")
        await pulling.is_level()
        assert names(await read(pulling, lost.from_, "long-poll")) == ["lost"]
    await pulling.update("after")
    await pulling.is_level()
    assert (await read(pulling, lost.from_, "long-poll")).status == 410


class FailingPoller(TaskPoller):
    """There is a bug in its answer."""

    def answer(self, *_: object, **__: object) -> None:
        raise ValueError


async def test_a_bug_in_one_answer_keeps_nobody_else_waiting(pulling, client, caplog):
    access = Access(Tokens(client), TOKEN)
    channels = Channels(pulling.hub, access, Keepalive(send_timeout_seconds=60))
    polls, feed = LongPolls(pulling.hub, channels, 300), pulling.hub.feed(CHANGES)
    variant = variant_of((), is_shared=True)
    entry = PollEntry(feed, False, feed.tail.head, "192.0.2.1", "")
    failing, other = FailingPoller(None, variant), TaskPoller(None, variant)
    for poller in (failing, other):
        polls.enter(poller, entry)
    await pulling.update("a")
    reply, _ = await other.answered
    assert reply.status == 200
    assert failing.channel is None
    assert len(channels.limits.addresses) == 0
    assert "internal error while somebody who waits is answered" in caplog.text
