"""The bytes of event streams: made once for all, and decoded by each as they come."""

import zlib

import pytest
from websockets.frames import Frame, Opcode

from rsnotify.channels import frames
from rsnotify.channels.frames import flushed
from rsnotify.journal.gzip_parts import GZIP_HEAD
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.forms import JSON, XML
from rsnotify.resourcesync.notification import (
    ChannelName,
    Notification,
    render_notification,
)

FIRST = Notification(Position(0), Position(1), 1, b"<urlset>\n</urlset>" * 50, slice(0, 0))
SECOND = Notification(Position(1), Position(2), 1, b"<urlset/>" * 50, slice(0, 0))
FRAGMENT = b'<url><loc>u:a</loc><lastmod>\0</lastmod><rs:md change="deleted" datetime="\0"/></url>'
TOLD = b"a@T,b@T" * 1_000


@pytest.mark.parametrize("notification", [FIRST, SECOND])
def test_a_compressed_frame_is_what_the_library_itself_would_decode(notification):
    frame = frames.DEFLATED.make(notification)
    data = frame[2:] if frame[1] < 126 else frame[4:]
    assert frame[0] == 0xC1
    decoded = frames.deflate().decode(Frame(Opcode.TEXT, data, rsv1=True))
    assert bytes(decoded.data) == notification.payload


@pytest.mark.parametrize("notification", [FIRST, SECOND])
def test_an_event_is_the_same_in_gzip(notification):
    for plain, zipped in [(frames.EVENT, frames.GZIP_EVENT), (frames.DATA, frames.GZIP_DATA)]:
        inflate = zlib.decompressobj(31)
        inflate.decompress(GZIP_HEAD)
        assert inflate.decompress(zipped.make(notification)) == plain.make(notification)
        assert inflate.decompress(zipped.idle) == plain.idle


def test_every_reader_can_decode_what_comes_from_wherever_it_began():
    for begun_with in ([FIRST], [], [SECOND, FIRST]):
        inflate = zlib.decompressobj(31)
        inflate.decompress(GZIP_HEAD + flushed(b"id: 1\n\n"))
        for each in begun_with:
            inflate.decompress(frames.GZIP_EVENT.render(each))
        assert inflate.decompress(frames.GZIP_EVENT.render(SECOND)).startswith(b"id: 1970")


def test_an_event_of_several_channels_has_the_cursors_before_the_data_that_all_share():
    assert frames.DATA.write_cursors is not None
    assert frames.GZIP_DATA.write_cursors is not None
    told = frames.DATA.write_cursors(TOLD)
    assert told == b"id: %s\n" % TOLD
    inflate = zlib.decompressobj(31)
    stream = GZIP_HEAD + frames.GZIP_DATA.write_cursors(TOLD)
    assert inflate.decompress(stream + frames.GZIP_DATA.render(FIRST)) == (
        told + frames.DATA.render(FIRST)
    )


def told() -> Notification:
    channel, at = ChannelName("a", "change"), Position(2)
    return render_notification(channel, Position(1), [(at, FRAGMENT)], base_url="http://h")


def json_of(notification: Notification) -> bytes | None:
    """Its JSON, if it was made."""
    return notification.derived(JSON.name, lambda _: b"") or None


def test_readers_of_xml_cost_no_json():
    notification = told()
    for wire_format in frames.WIRE_FORMATS[XML]:
        wire_format.render(notification)
    assert json_of(notification) is None


def test_json_is_made_once_for_all_its_readers():
    notification = told()
    size = notification.size
    frame = frames.WIRE_FORMATS[JSON].text.render(notification)
    made = json_of(notification)
    frames.WIRE_FORMATS[JSON].event.render(notification)
    assert frames.WIRE_FORMATS[JSON].text.render(notification) is frame
    assert made is not None
    assert json_of(notification) is made
    assert notification.size > size + len(frame) + len(made)  # the budget counts what was made
