"""RFC 6455 on the channel endpoint, clause by clause, with bytes made by hand."""

from collections.abc import AsyncIterator
from itertools import chain

import pytest
import pytest_asyncio

from tests.support.raw import BINARY, CLOSE, PING, PONG, TEXT, Frame, Raw, close, frame, raw_channel
from tests.support.running import RunningHub

CONTINUATION = 0
EURO = "€".encode()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningHub]:
    """One hub for all: a fault of one connection is none of another's."""
    async with RunningHub(tmp_path_factory.mktemp("frames") / "data") as running:
        yield running
        assert "Traceback" not in running.log.read_text()


@pytest_asyncio.fixture(loop_scope="module")
async def raw(hub: RunningHub) -> AsyncIterator[Raw]:
    async with raw_channel(hub.channel()) as opened:
        assert opened.status == 101
        yield opened


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def reply(raw: Raw) -> Frame:
    """The next frame but for pings: the hub asks, too, now and then."""
    while (found := await raw.frame()).opcode == PING:
        pass
    return found


async def lives(raw: Raw) -> None:
    """A ping is answered, so what came before it did no harm."""
    await raw.send(frame(PING, b"still there?"))
    assert await reply(raw) == Frame(PONG, b"still there?")


# --- what is allowed -----------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"hello", bytes(125), b"\xff\xfe"])
async def test_a_ping_is_answered_with_its_data(raw, data):
    await raw.send(frame(PING, data))
    assert await reply(raw) == Frame(PONG, data)


async def test_pings_in_one_packet_are_all_answered(raw):
    await raw.send(b"".join(frame(PING, b"%d" % number) for number in range(10)))
    assert [(await reply(raw)).data for _ in range(10)] == [b"%d" % n for n in range(10)]


async def test_a_frame_may_come_byte_by_byte(raw):
    for byte in frame(PING, b"slow"):
        await raw.send(bytes([byte]))
    assert await reply(raw) == Frame(PONG, b"slow")


async def test_an_unasked_pong_is_ignored(raw):
    await raw.send(frame(PONG, b"nobody asked"))
    await lives(raw)


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
@pytest.mark.parametrize("length", [0, 1, 125, 126, 4096])
async def test_what_a_reader_says_is_ignored_up_to_4_kib(raw, opcode, length):
    await raw.send(frame(opcode, b"x" * length))
    await lives(raw)


async def test_a_fragmented_message_is_ignored_too(raw):
    await raw.send(frame(TEXT, b"a", fin=False) + frame(CONTINUATION, b"b", fin=False))
    await raw.send(frame(CONTINUATION, b"c"))
    await lives(raw)


async def test_control_frames_may_come_between_fragments(raw):
    await raw.send(frame(TEXT, b"a", fin=False) + frame(PING, b"1") + frame(PONG))
    assert await reply(raw) == Frame(PONG, b"1")
    await raw.send(frame(CONTINUATION, b"b", fin=False) + frame(PING, b"2"))
    assert await reply(raw) == Frame(PONG, b"2")
    await raw.send(frame(CONTINUATION, b"c"))
    await lives(raw)


async def test_a_character_may_be_cut_by_fragments(raw):
    await raw.send(frame(TEXT, EURO[:1], fin=False) + frame(CONTINUATION, EURO[1:]))
    await lives(raw)


async def test_binary_data_need_not_be_utf_8(raw):
    await raw.send(frame(BINARY, b"\xff", fin=False) + frame(CONTINUATION, b"\xfe"))
    await lives(raw)


# --- what is not ---------------------------------------------------------------------------------

BREACHES = {
    "an unmasked text": frame(TEXT, b"x", mask=False),
    "an unmasked ping": frame(PING, mask=False),
    "an unmasked pong": frame(PONG, mask=False),
    "reserved bit 1": frame(TEXT, b"x", reserved=0x40),
    "reserved bit 2": frame(TEXT, b"x", reserved=0x20),
    "reserved bit 3": frame(TEXT, b"x", reserved=0x10),
    "reserved bit of a ping": frame(PING, reserved=0x40),
    **{f"opcode {opcode}": frame(opcode) for opcode in chain(range(3, 8), range(11, 16))},
    "a ping of 126 bytes": frame(PING, bytes(126)),
    "a pong of 126 bytes": frame(PONG, bytes(126)),
    "a close of 126 bytes": close(1000, bytes(124)),
    "a fragmented ping": frame(PING, fin=False),
    "a fragmented pong": frame(PONG, fin=False),
    "a continuation of nothing": frame(CONTINUATION, b"x"),
    "a text within a text": frame(TEXT, b"a", fin=False) + frame(TEXT, b"b"),
    "a continuation after the end": frame(TEXT, b"a", fin=False)
    + frame(CONTINUATION)
    + frame(CONTINUATION),
    "a close of one byte": frame(CLOSE, b"\x03"),
    **{
        f"a close with {code}": close(code)
        for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000)
    },
}


NOT_UTF_8 = {
    "a stray byte": frame(TEXT, b"\xff"),
    "an overlong form": frame(TEXT, b"\xc0\xaf"),
    "a surrogate": frame(TEXT, b"\xed\xa0\x80"),
    "beyond Unicode": frame(TEXT, b"\xf4\x90\x80\x80"),
    "a character that never ends": frame(TEXT, EURO[:2]),
    "broken by its fragments": frame(TEXT, EURO[:1], fin=False) + frame(CONTINUATION, b"x"),
    "ending too soon in fragments": frame(TEXT, b"x", fin=False) + frame(CONTINUATION, EURO[:1]),
    "a close reason": close(1000, b"\xff"),
    "at once, though the message goes on": frame(TEXT, b"\xff", fin=False),
}
ABOVE_4_KIB = {
    "text": frame(TEXT, b"x" * 4097),
    "binary": frame(BINARY, b"x" * 4097),
    "fragments": frame(TEXT, b"x" * 4096, fin=False) + frame(CONTINUATION, b"x"),
    "sent in full": frame(TEXT, b"x" * 2**20),
    "8 EiB announced": b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0",
}
CLOSED_WITH = {1002: BREACHES, 1007: NOT_UTF_8, 1009: ABOVE_4_KIB}


@pytest.mark.parametrize(
    ("code", "name"), [(code, name) for code, faults in CLOSED_WITH.items() for name in faults]
)
async def test_what_a_reader_may_not_send_is_closed_with_its_code(raw, code, name):
    await raw.send(CLOSED_WITH[code][name])
    assert (await raw.closed_with())[0] == code


# --- closing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code", [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999]
)
async def test_a_close_is_answered_with_its_code(raw, code):
    await raw.send(close(code, b"bye"))
    assert await raw.closed_with() == (code, "bye")


async def test_a_close_without_a_code_is_answered_without_one(raw):
    await raw.send(close())
    assert await raw.closed_with() == (None, "")


async def test_a_close_within_a_fragmented_message_is_a_close(raw):
    await raw.send(frame(TEXT, b"a", fin=False) + close(1000))
    assert (await raw.closed_with())[0] == 1000


async def test_nothing_after_a_close_counts(raw):
    await raw.send(close(1000) + frame(PING, b"late") + b"\xff" * 100)
    assert (await raw.closed_with())[0] == 1000


async def test_a_half_close_ends_the_connection(raw):
    await lives(raw)
    raw.writer.write_eof()
    assert await raw.body() == b""


async def test_what_the_hub_sends_is_one_whole_unmasked_text(hub, raw):
    await hub.publish("http://example.com/res1")
    found = await reply(raw)
    assert (found.opcode, found.is_compressed) == (TEXT, False)
    assert found.data.startswith(b"<?xml")


# --- compression ---------------------------------------------------------------------------------

OFFERS = {
    "permessage-deflate": True,
    "permessage-deflate; client_max_window_bits": True,
    "permessage-deflate; server_no_context_takeover": True,
    "permessage-deflate; server_no_context_takeover; client_max_window_bits": True,
    "permessage-deflate; server_no_context_takeover; server_max_window_bits=10": False,
    "permessage-deflate; client_no_context_takeover": True,
    "permessage-deflate; server_max_window_bits=10, permessage-deflate": True,
    "permessage-deflate; server_no_context_takeover=1": False,
    "x-unknown; server_no_context_takeover": False,
}


@pytest.mark.parametrize(("offer", "is_taken"), OFFERS.items())
async def test_every_offer_is_taken_that_lets_all_readers_share_a_frame(hub, offer, is_taken):
    async with raw_channel(hub.channel(), {"Sec-WebSocket-Extensions": offer}) as raw:
        answer = raw.headers.get("sec-websocket-extensions", "")
        assert ("server_no_context_takeover" in answer) == is_taken
        await hub.publish("http://example.com/res1")
        assert (await reply(raw)).is_compressed == is_taken


async def test_a_compressed_message_of_a_reader_is_ignored_too(hub):
    offer = {"Sec-WebSocket-Extensions": "permessage-deflate; server_no_context_takeover"}
    async with raw_channel(hub.channel(), offer) as raw:
        await raw.send(
            frame(TEXT, bytes([0xF2, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00]), reserved=0x40)
        )
        await lives(raw)
