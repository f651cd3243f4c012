"""The events of a stream, and how it ends."""

import json

from rsnotify.channels.frames import in_chunks
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, render_notification
from rsnotify.streams.stream_events import PINGS, STREAM_EVENT, StreamReader
from tests.unit.test_sse_reader import Stream, stream  # noqa: F401

CHANNEL = ChannelName("dataset1", "change")
FRAGMENT = b'<url><loc>http://example.com/%d</loc><rs:md change="updated" datetime="\0"/></url>'
FOUND = render_notification(
    CHANNEL, Position(0), [(Position(n), FRAGMENT % n) for n in (1, 2)], base_url="http://hub"
)


def parsed(events: bytes) -> list[tuple[str, object]]:
    found = []
    for event in events.decode().split("\n\n")[:-1]:
        kind, *lines = event.split("\n")
        data = "\n".join(line.removeprefix("data:") for line in lines)
        found.append((kind.removeprefix("event: "), json.loads(data)))
    return found


def test_the_newest_notification_says_that_it_is_and_no_other():
    for is_newest in (True, False, True):
        (kind, data), (then, said) = parsed(STREAM_EVENT.render(FOUND, is_newest=is_newest))
        assert (kind, [each["loc"][-1] for each in data]) == ("data", ["1", "2"])
        assert (then, said.get("upToDate", False)) == ("control", is_newest)
        assert said["streamNextOffset"] == str(FOUND.until)


def test_what_is_newest_is_a_chunk_of_its_own():
    plain = STREAM_EVENT.render(FOUND, is_newest=True)
    chunk = in_chunks(STREAM_EVENT).render(FOUND, is_newest=True)
    assert chunk == b"%x\r\n%b\r\n" % (len(plain), plain)
    assert in_chunks(STREAM_EVENT).render(FOUND) != chunk


async def test_a_stream_ends_with_the_ping_after_the_last(stream: Stream):  # noqa: F811
    reader = StreamReader(
        STREAM_EVENT, stream.transport, stream.reader.turns, is_chunked=stream.is_chunked
    )
    reader.take_over()
    for _ in range(PINGS):
        assert not reader.ping()
        assert reader.is_open
    reader.ping()
    assert not reader.is_open
    comments = reader.wire_format.idle * PINGS
    assert await stream.received() == comments + (b"0\r\n\r\n" if stream.is_chunked else b"")
