"""The same channels under an ASGI server that knows nothing of our readers."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
import uvicorn
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from rsnotify.access import Access
from rsnotify.app import build_app, following
from rsnotify.base_url import Origin
from rsnotify.core.submission import Submission, read_submission
from rsnotify.delivery.channels.admission import Channels
from rsnotify.delivery.channels.keepalive import Keepalive
from rsnotify.delivery.topic import Topic
from rsnotify.hub import Hub
from rsnotify.loops import end
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.storage.bell import Bell
from rsnotify.storage.connection import Client
from rsnotify.storage.journal import Journal
from rsnotify.storage.sets import Sets
from rsnotify.storage.tokens import Tokens
from rsnotify_client.notification import read_notification

CHANNEL = ChannelName("dataset1", "change")


@pytest.fixture
async def hub(client: Client, redis_url: str) -> AsyncIterator[Hub]:
    """A hub in this process, following its journals."""
    journal = Journal(client, window_changes=10_000)
    followed = Hub(journal, Sets(client), Bell(redis_url), base_url="http://hub.example")
    await followed.start()
    await followed.add_set("dataset1")
    following = asyncio.create_task(followed.follow())
    yield followed
    await end([following])


@pytest.fixture
async def channels(hub: Hub, client: Client) -> Channels:
    return Channels(hub, Access(Tokens(client), "admin"), Keepalive(send_timeout_seconds=60))


@pytest.fixture
async def url(hub: Hub, channels: Channels, client: Client) -> AsyncIterator[str]:
    """The channel's address at a server as it comes."""
    topic = Topic(hub, Access(Tokens(client), "admin"), Origin(None))
    app = build_app(following(channels, topic))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, ws="websockets-sansio", lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server._serve([listening]))
        yield f"ws://127.0.0.1:{listening.getsockname()[1]}{CHANNEL.path}"
        server.should_exit = True
        await serving


def of(*locs: str) -> Submission:
    body = b"\n".join(b'{"loc": "%s", "change": "updated"}' % loc.encode() for loc in locs)
    return read_submission(body, "application/ndjson", "change", None)


async def test_a_reader_follows_and_resumes(hub: Hub, url: str) -> None:
    async with connect(url) as channel:
        for number in range(3):
            interval = await hub.publish(CHANNEL, of(f"http://example.com/res{number}"))
            found = read_notification(await channel.recv())
            assert (found.from_, found.until) == interval
    async with connect(f"{url}?from={interval.from_}") as channel:
        assert read_notification(await channel.recv()) == found


async def test_a_reader_is_told_why_it_is_closed(url: str) -> None:
    async with connect(f"{url}?from=broken") as channel:
        with pytest.raises(ConnectionClosed) as closed:
            await channel.recv()
    assert closed.value.rcvd.code == 4400


async def test_a_reader_that_leaves_is_forgotten(hub: Hub, channels: Channels, url: str) -> None:
    async with connect(url) as channel:
        await hub.publish(CHANNEL, of("http://example.com/res1"))
        await channel.recv()
        (known,) = channels._channels.values()
        assert len(known.readers) == 1
    while known.readers:
        await asyncio.sleep(0)


async def test_readers_are_sent_away_when_the_hub_ends(channels: Channels, url: str) -> None:
    async with connect(url) as channel:
        await channels.drain(0)
        with pytest.raises(ConnectionClosed) as closed:
            await channel.recv()
    assert closed.value.rcvd.code == 1001


async def test_a_position_that_another_hub_process_gave_is_kept_by_one_that_lags_behind(
    hub: Hub, client: Client, redis_url: str
) -> None:
    journal = Journal(client, window_changes=10_000)
    lagging = Hub(journal, Sets(client), Bell(redis_url), base_url="http://hub.example")
    await lagging.start()
    interval = await hub.publish(CHANNEL, of("http://example.com/res1"))
    channels = Channels(lagging, Access(Tokens(client), "admin"), Keepalive(send_timeout_seconds=1))
    assert lagging.feed(CHANNEL).tail.head < interval.until
    assert await channels.cursor(CHANNEL, str(interval.until)) == interval.until
