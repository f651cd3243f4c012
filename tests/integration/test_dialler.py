"""The dialler against names that lie, receivers that never end, and connections that break."""

import asyncio
import gzip
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest
from yarl import URL

from rsnotify.outbound.answer import CallAnswer
from rsnotify.outbound.bounded_answer import ANSWER_BYTES, ANSWER_LINES, BoundedHandler
from rsnotify.outbound.dialler import BODY_BYTES, CALL_SECONDS, Dialler
from tests.support.forward_proxy import forward_proxy
from tests.support.receivers import ReceivedRequest, Receiver, answers, response
from tests.support.stream_server import StreamServer

CERTIFICATE = Path(__file__).parent / "self-signed.pem"


class Names:
    """A name server whose answers are given beforehand; the last one stays."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.asked = 0
        self._answers = answers

    async def __call__(self, _host: str, _port: int) -> Sequence[str]:
        self.asked += 1
        return self._answers[min(self.asked, len(self._answers)) - 1]


async def post(dialler: Dialler, url: str, *, maybe_stale: bool = False) -> CallAnswer:
    return await dialler.post(URL(url, encoded=True), b"body", {}, maybe_stale=maybe_stale)


async def test_what_a_receiver_says_can_be_written_down_and_shown():
    async def hostile(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 \xff\x1b[31m\r\nContent-Length: 0\r\n\r\n")

    async with Receiver(post=hostile) as receiver, Dialler(private=True) as dialler:
        answer = await post(dialler, f"http://127.0.0.1:{receiver.port}/")
    assert answer.note.isascii()
    assert answer.note.isprintable()


async def test_a_name_is_checked_anew_at_every_attempt():
    names = Names(["192.0.2.1"], ["127.0.0.1"])
    async with Receiver() as receiver, Dialler(private=False, resolve=names) as dialler:
        for _ in range(2):
            answer = await dialler.get(f"http://rebinding.test:{receiver.port}/")
            assert answer.refused
            assert "not allowed" in answer.note
        assert (names.asked, receiver.asked) == (2, [])


async def test_a_name_that_turns_private_after_it_was_public_is_refused():
    names = Names(["127.0.0.1"], ["10.0.0.1"])
    async with (
        Receiver(post=answers("200 OK", Connection="close")) as receiver,
        Dialler(private=False, resolve=names) as dialler,
    ):
        dialler.private = True  # stands for a public address, of which loopback has none
        assert (await post(dialler, f"http://rebinding.test:{receiver.port}/")).succeeded
        dialler.private = False
        assert (await post(dialler, f"http://rebinding.test:{receiver.port}/")).refused
        assert len(receiver.asked) == 1


async def test_one_address_that_may_not_be_called_condemns_the_name():
    names = Names(["93.184.216.34", "127.0.0.1"])
    sockets = []

    class Watched(Dialler):
        def open_socket(self, address):
            sockets.append(address)
            return super().open_socket(address)

    async with Receiver() as receiver, Watched(private=False, resolve=names) as dialler:
        assert (await dialler.get(f"http://both.test:{receiver.port}/")).refused
        assert (receiver.asked, sockets) == ([], [])


async def test_the_checked_address_is_dialled_and_the_name_is_kept_as_host():
    names = Names(["127.0.0.1"])
    async with Receiver() as receiver, Dialler(private=True, resolve=names) as dialler:
        assert (await dialler.get(f"http://some.test:{receiver.port}/")).succeeded
        assert receiver.asked[0].headers["host"] == f"some.test:{receiver.port}"
        assert names.asked == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "2130706433", "127.1", "localhost"])
async def test_whatever_the_url_looks_like_no_socket_is_made_for_loopback(host):
    async with Receiver() as receiver, Dialler(private=False) as dialler:
        answer = await dialler.get(f"http://{host}:{receiver.port}/")
        assert (answer.status, answer.succeeded, receiver.asked) == (0, False, [])


async def test_a_name_that_does_not_exist_is_a_connection_that_was_not_made():
    async def resolve(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with Dialler(private=False, resolve=resolve) as dialler:
        answer = await dialler.get("http://nowhere.test/")
        assert (answer.reached, answer.refused) == (False, False)
        assert "Name or service not known" in answer.note


async def test_nothing_listens_is_a_connection_that_was_not_made():
    async with Receiver() as receiver:
        url = receiver.callback
    async with Dialler(private=True) as dialler:
        assert not (await dialler.get(url)).reached


async def test_a_redirect_is_an_answer_and_is_not_followed():
    async with (
        Receiver(get=answers("302 Found", Location="/elsewhere")) as receiver,
        Dialler(private=True) as dialler,
    ):
        assert (await dialler.get(receiver.callback)).status == 302
        assert len(receiver.asked) == 1


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
WITHOUT_END = {  # what comes first, what comes for ever, whether the status is known by then
    "a status line": (b"HTTP/1.1 200 ", b"O" * 1000, False),
    "Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, False),
    "Processing": (b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 1000, False),
    "Early Hints": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 1000, False),
    "a header": (OK + b"A: ", b"b" * 1000, False),
    "headers": (OK, b"A: b\r\n" * 1000, False),
    "folded lines": (OK + b"A: b\r\n", b" b\r\n" * 1000, False),
    "empty lines": (b"", b"\r\n" * 1000, False),
    "a chunk's extension": (CHUNKED + b"1;", b"a" * 1000, True),
    "chunks of one byte": (CHUNKED, b"1\r\nx\r\n" * 1000, True),
    "trailers": (CHUNKED + b"0\r\n", b"A: b\r\n" * 1000, None),  # aiohttp has a limit of its own
    "a body": (OK + b"\r\n", b"x" * 1000, True),
    "a packed body": (
        OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"x" * 1000)[:10],
        b"\xff" * 1000,
        True,
    ),
}


@pytest.mark.parametrize("kind", WITHOUT_END)
async def test_of_an_answer_without_end_only_a_little_is_heard(kind):
    begin, more, status_known = WITHOUT_END[kind]
    written = 0

    async def endless(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(begin)
        while not writer.is_closing():
            writer.write(more)
            written += len(more)
            await writer.drain()

    async with Receiver(get=endless, post=endless) as receiver, Dialler(private=True) as dialler:
        for answer in await dialler.get(receiver.callback), await post(dialler, receiver.callback):
            assert answer.seconds < CALL_SECONDS, "it was heard until the time was over"
            assert answer.body == b""
            known = answer.status == 200
            assert status_known in (known, None), answer.note
    assert written < 64 * 1024 * 1024, "what fits into the buffers of two sockets and a little"


def answer_after(hints: bytes, size: int) -> bytes:
    """A good answer of so many bytes in all."""
    head = hints + OK + b"Content-Length: %05d\r\n\r\n"
    room = size - len(head % 0)
    return head % room + b"x" * room


ONE_LINE_AND_ANOTHER = b"HTTP/1.1 100 Continue\r\n\r\n"
LONG_HINT = b"HTTP/1.1 103 Early Hints\r\nA: %b\r\n\r\n" % (b"b" * 6000)
AT_THE_BOUND = {
    "bytes": lambda past: answer_after(LONG_HINT * 4, ANSWER_BYTES + past),
    "lines": lambda past: (
        ONE_LINE_AND_ANOTHER * (ANSWER_LINES // 2 - 1) + OK + b"A: b\r\n" * past + b"\r\n"
    ),
}


@pytest.mark.parametrize("kind", AT_THE_BOUND)
@pytest.mark.parametrize("past", [0, 1])
async def test_an_answer_is_heard_up_to_the_bound_and_no_further(kind, past):
    async def behave(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(AT_THE_BOUND[kind](past))
        writer.close()

    async with Receiver(get=behave) as receiver, Dialler(private=True) as dialler:
        answer = await dialler.get(receiver.callback)
    if past:
        assert (answer.status, answer.body) == (200 if kind == "bytes" else 0, b"")
    else:
        assert answer.succeeded, answer.note
        assert len(answer.body) > 0 or kind == "lines"


@pytest.mark.parametrize("size", [BODY_BYTES, BODY_BYTES + 1])
async def test_a_body_is_read_whole_or_not_at_all(size):
    async with (
        Receiver(get=answers("200 OK", b"x" * size)) as receiver,
        Dialler(private=True) as dialler,
    ):
        answer = await dialler.get(receiver.callback)
        assert answer.body == (b"x" * size if size == BODY_BYTES else b"")


async def test_a_packed_body_stays_packed():
    packed = gzip.compress(b"x" * 10_000_000)
    async with (
        Receiver(get=answers("200 OK", packed, Content_Encoding="gzip")) as receiver,
        Dialler(private=True) as dialler,
    ):
        assert (await dialler.get(receiver.callback)).body == packed


async def test_a_body_of_a_byte_now_and_then_ends_with_the_call():
    async def trickles(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"Content-Length: 1000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x")
            await asyncio.sleep(0.01)

    async with Receiver(get=trickles, post=trickles) as receiver:
        async with Dialler(private=True, call_seconds=0.2) as dialler:
            answer = await dialler.get(receiver.callback)
            assert answer.note.startswith("no answer within")
        async with Dialler(private=True) as dialler:
            assert (await post(dialler, receiver.callback)).succeeded


async def test_each_answer_on_a_connection_has_the_whole_bound(monkeypatch):
    """The seam: aiohttp makes its connections by our class, and tells it of each request."""
    heard: list[BoundedHandler] = []
    listen_anew = BoundedHandler.listen_anew

    def remembered(self: BoundedHandler) -> None:
        heard.append(self)
        listen_anew(self)

    monkeypatch.setattr(BoundedHandler, "listen_anew", remembered)
    body = b"x" * (BODY_BYTES - 1)
    async with (
        Receiver(post=answers("200 OK", body)) as receiver,
        Dialler(private=True) as dialler,
    ):
        for _ in range(4):
            assert (await post(dialler, receiver.callback)).succeeded
    assert len(heard) == 1 + 4
    assert len(set(map(id, heard))) == 1


async def test_a_certificate_that_is_not_trusted_is_called_so():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)

    async def never_reached(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise AssertionError

    async with (
        StreamServer(never_reached, ssl=context) as server,
        Dialler(private=True) as dialler,
    ):
        answer = await dialler.get(f"https://127.0.0.1:{server.port}/")
    assert answer.text.startswith("its certificate is not trusted: ")
    assert "self-signed" in answer.text
    assert not answer.reached


async def test_what_never_answers_is_given_up():
    async def hangs(asked, writer) -> None:
        await writer.wait_closed()

    patience = {"private": True, "call_seconds": 0.1}
    async with Receiver(get=hangs) as receiver, Dialler(**patience) as dialler:
        answer = await dialler.get(receiver.callback)
        assert (answer.status, answer.reached) == (0, True)
        assert answer.note.startswith("no answer within")


async def test_a_connection_that_broke_is_tried_anew_only_if_it_may_have_been_stale():
    async def resets(asked, writer) -> None:
        writer.transport.abort()

    async with Receiver(post=resets) as receiver, Dialler(private=True) as dialler:
        await post(dialler, receiver.callback)
        assert len(receiver.asked) == 1
        assert (await post(dialler, receiver.callback, maybe_stale=True)).status == 0
        assert len(receiver.asked) == 3


async def test_a_connection_is_used_again():
    async with Receiver() as receiver, Dialler(private=True) as dialler:
        peers = set()

        async def remembers(asked, writer) -> None:
            peers.add(writer.get_extra_info("peername"))
            writer.write(response("200 OK", b"a short body"))

        receiver.post = remembers
        for _ in range(5):
            await post(dialler, receiver.callback)
        assert len(peers) == 1


async def test_a_name_server_that_hangs_does_not_stop_the_others():
    never = asyncio.Event()

    async def resolve(host: str, port: int) -> Sequence[str]:
        if host == "slow.test":
            await never.wait()
        return ["127.0.0.1"]

    async with Receiver() as receiver, Dialler(private=True, resolve=resolve) as dialler:
        slow = asyncio.create_task(dialler.get(f"http://slow.test:{receiver.port}/"))
        assert (await dialler.get(f"http://fast.test:{receiver.port}/")).succeeded
        assert not slow.done()
        slow.cancel()


async def test_a_status_line_of_any_bytes_becomes_text_that_can_be_stored_and_logged():
    async def behave(_: object, writer: asyncio.StreamWriter) -> None:
        writer.write(response("500 Oh").replace(b"Oh", b"\xff\xfe\x1b[31mOh"))

    async with Receiver(post=behave) as receiver, Dialler(private=True) as dialler:
        answer = await post(dialler, receiver.callback)
        assert answer.text == "500 ???[31mOh"


# By a proxy --------------------------------------------------------------------------------------


async def unknown(_host: str, _port: int) -> Sequence[str]:
    raise socket.gaierror(-2, "Name or service not known")


async def test_a_callback_that_only_the_proxy_can_look_up_is_called_by_it():
    with forward_proxy({"callback.example": "127.0.0.1"}, "secret") as proxy:
        async with (
            Receiver() as receiver,
            Dialler(private=False, proxy=proxy.url, resolve=unknown) as dialler,
        ):
            answer = await post(dialler, f"http://callback.example:{receiver.port}/")
            assert answer.status == 204
            assert len(receiver.asked) == 1
    assert proxy.seen == [f"POST http://callback.example:{receiver.port}/ HTTP/1.1"]


@pytest.mark.parametrize(
    ("host", "found"),
    [("127.0.0.1", []), ("10.0.0.1", []), ("inside.example", ["10.0.0.1"]), ("[::1]", [])],
)
async def test_the_rules_on_addresses_hold_before_a_proxy(host, found):
    with forward_proxy() as proxy:
        async with Dialler(private=False, proxy=proxy.url, resolve=Names(found)) as dialler:
            answer = await post(dialler, f"http://{host}:9/")
            # the address of the proxy is the operator's choice, and no callback's
            its_own = await post(dialler, f"http://127.0.0.1:{proxy.port}/")
    assert answer.refused
    assert its_own.refused
    assert proxy.seen == []


async def test_what_is_private_and_allowed_is_called_without_the_proxy():
    with forward_proxy() as proxy:
        async with (
            Receiver() as receiver,
            Dialler(private=True, proxy=proxy.url, resolve=Names(["127.0.0.1"])) as dialler,
        ):
            for host in ("127.0.0.1", "inside.example"):
                assert (await post(dialler, f"http://{host}:{receiver.port}/")).status == 204
    assert proxy.seen == []


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_refuses_is_named_without_its_password(scheme):
    with forward_proxy(password="right") as proxy:
        address = f"http://user:wr0ng@127.0.0.1:{proxy.port}"
        async with Dialler(private=False, proxy=address, resolve=unknown) as dialler:
            answer = await post(dialler, f"{scheme}://callback.example/")
    assert "wr0ng" not in repr(answer)
    assert "407" in f"{answer.status} {answer.note}"


async def test_a_proxy_that_is_not_there_is_named(unused_tcp_port):
    address = f"http://user:secret@127.0.0.1:{unused_tcp_port}"
    async with Dialler(private=False, proxy=address, resolve=unknown) as dialler:
        answer = await post(dialler, "http://callback.example/")
    assert (answer.status, answer.reached) == (0, False)
    assert answer.note.startswith("no connection to the proxy")
    assert "secret" not in answer.note
