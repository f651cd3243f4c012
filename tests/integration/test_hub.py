"""The hub over a real Redis: what it keeps in memory is never more than the journal holds."""

import asyncio

import pytest

from rsnotify.access.access import Access
from rsnotify.access.tokens import Tokens
from rsnotify.channels.channels import Channels
from rsnotify.channels.keepalive import Keepalive
from rsnotify.coordination import keys
from rsnotify.errors import NoSuchSet, TryAgain
from rsnotify.journal.journal_store import Standing
from rsnotify.live.feed import Feed
from rsnotify.loops import end
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, render_notification
from tests.support.hubs import hub_on, submission

CHANNEL = ChannelName("dataset1", "change")


async def test_sets_that_redis_has_lost_are_named_and_those_that_were_removed_are_not(
    client, caplog
):
    hub = hub_on(client)
    for name in ("dataset1", "dataset2", "dataset3"):
        await hub.add_set(name)
    await hub.remove_set("dataset1")
    assert not hub.known.lost.is_set()
    await client.flushall()
    await hub.start()
    assert hub.known.lost.is_set()
    assert hub.sets == {}
    assert "lost with their changes: dataset2, dataset3" in caplog.text


async def test_a_loss_is_seen_though_somebody_was_quicker_to_make_the_set_again(client):
    one, two = hub_on(client), hub_on(client)
    await one.add_set("dataset1")
    await two.start()
    await client.flushall()
    made, _ = await one.add_set("dataset1")
    for hub in (one, two):
        await hub.start()
        assert hub.known.lost.is_set()
        assert hub.sets == {"dataset1": made}


async def test_data_of_before_are_no_loss(client):
    await hub_on(client).add_set("dataset1")
    await client.delete(keys.DATA_ID)
    hub = hub_on(client)
    await hub.start()
    await hub.add_set("dataset2")
    assert not hub.known.lost.is_set()


async def test_a_position_that_another_hub_process_gave_is_kept_by_one_that_lags_behind(client):
    hub, lagging = hub_on(client), hub_on(client)
    await hub.add_set(CHANNEL.set_name)
    await lagging.start()
    interval = await hub.publish(CHANNEL, submission("res1"))
    channels = Channels(lagging, Access(Tokens(client), "admin"), Keepalive(send_timeout_seconds=1))
    assert lagging.feed(CHANNEL).tail.head < interval.until
    assert await channels.admission.cursor(CHANNEL, interval.until) == interval.until


@pytest.mark.parametrize("while_it", ["asks for the head", "waits to be there"])
@pytest.mark.parametrize(("is_made_anew", "told"), [(False, NoSuchSet), (True, TryAgain)])
async def test_whoever_asks_for_the_topic_while_its_set_is_removed_is_told_so(
    client, monkeypatch, is_made_anew, told, while_it
):
    hub, other = hub_on(client), hub_on(client)
    await hub.add_set(CHANNEL.set_name)
    feed = hub.feed(CHANNEL)
    rows = [(Position(feed.tail.head + 1), b"<url><loc>http://example.com/heard</loc></url>")]
    feed.push(render_notification(CHANNEL, feed.tail.head, rows, base_url="http://hub.example"))
    await other.start()
    await other.publish(CHANNEL, submission("not heard of here"))
    standing, reached = hub.reading.standing, hub.following.reached

    async def remove() -> None:
        await hub.remove_set(CHANNEL.set_name)
        if is_made_anew:
            await hub.add_set(CHANNEL.set_name)

    async def head_and_no_more(channel: ChannelName) -> Standing:
        monkeypatch.setattr(hub.reading, "standing", standing)  # it is removed once
        found = await standing(channel)
        await remove()
        return found

    async def reached_by_nobody(feed: Feed, position: Position) -> None:
        await remove()
        await reached(feed, position)

    if while_it == "asks for the head":
        monkeypatch.setattr(hub.reading, "standing", head_and_no_more)
    else:
        monkeypatch.setattr(hub.following, "reached", reached_by_nobody)
    with pytest.raises(told, match=CHANNEL.set_name):
        await hub.newest_notification(feed)


async def test_what_came_before_anybody_read_joins_what_was_followed_since(client):
    """A subscription may be stored a moment before this process follows its channel."""
    hub = hub_on(client)
    await hub.add_set(CHANNEL.set_name)
    feed = hub.feed(CHANNEL)
    begin = feed.tail.head
    feed.skip_to((await hub.publish(CHANNEL, submission("skipped"))).until)
    for number in (1, 2):
        until = (await hub.publish(CHANNEL, submission(f"followed {number}"))).until
        rows = [(until, b"<url><loc>http://example.com/followed</loc></url>")]
        feed.push(render_notification(CHANNEL, feed.tail.head, rows, base_url="http://hub"))
        owed = await hub.reading.batch_after(feed, begin)
        assert (owed.from_, owed.until, owed.count) == (begin, until, 1 + number)


@pytest.mark.parametrize("way", ["read", "lost", "removed"])
async def test_whoever_waits_for_a_position_goes_on_when_it_is_passed_or_cannot_come_any_more(
    client, way
):
    hub = hub_on(client)
    await hub.add_set(CHANNEL.set_name)
    feed = hub.feed(CHANNEL)
    head = Position(feed.tail.head + 5)
    following = asyncio.create_task(hub.following.run())
    first, second = (
        asyncio.create_task(hub.following.reached(feed, Position(head + more))) for more in (0, 1)
    )
    await asyncio.sleep(0)
    if way == "read":
        feed.skip_to(head)
    elif way == "lost":
        feed.pass_gap(head)
    else:
        await hub.remove_set(CHANNEL.set_name)
    hub.feeds.woken.set()
    await first
    assert second.done() == (way == "removed")
    await end([following, second])
