"""One change from a POST to a WebSocket, through real processes."""

from websockets.asyncio.client import connect

from rsnotify_client.notification import read_notification
from tests.support.running import RunningHub


async def test_a_published_change_reaches_whoever_is_connected(hub: RunningHub) -> None:
    async with connect(hub.channel()) as channel:
        answer = await hub.publish("http://example.com/res1")
        received = read_notification(await channel.recv())
    assert [change.loc for change in received.changes] == ["http://example.com/res1"]
    assert (str(received.from_), str(received.until)) == (answer["from"], answer["until"])


async def test_a_reader_resumes_after_a_position(hub: RunningHub) -> None:
    first = await hub.publish("http://example.com/res1")
    await hub.publish("http://example.com/res2")
    async with connect(f"{hub.channel()}?from={first['until']}") as channel:
        received = read_notification(await channel.recv())
    assert [change.loc for change in received.changes] == ["http://example.com/res2"]
    assert str(received.from_) == first["until"]
