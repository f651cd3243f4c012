"""The dialler against names that lie, receivers that never end, and connections that break."""

import asyncio
import socket
from collections.abc import Sequence

import pytest
from yarl import URL

from rsnotify.core.subscription import Answer
from rsnotify.delivery.websub.dialler import ANSWER_BYTES, Dialler
from tests.receivers import Asked, Receiver, answers, response


class Names:
    """A name server whose answers are given beforehand; the last one stays."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.asked = 0
        self._answers = answers

    async def __call__(self, _host: str, _port: int) -> Sequence[str]:
        self.asked += 1
        return self._answers[min(self.asked, len(self._answers)) - 1]


async def post(dialler: Dialler, url: str, *, maybe_stale: bool = False) -> Answer:
    return await dialler.post(URL(url, encoded=True), b"body", {}, maybe_stale=maybe_stale)


async def test_what_a_receiver_says_can_be_written_down_and_shown() -> None:
    async def hostile(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 \xff\x1b[31m\r\nContent-Length: 0\r\n\r\n")

    async with Receiver(post=hostile) as receiver, Dialler(private=True) as dialler:
        answer = await post(dialler, f"http://127.0.0.1:{receiver.port}/")
    assert answer.note.isascii()
    assert answer.note.isprintable()


async def test_a_name_is_checked_anew_at_every_attempt() -> None:
    names = Names(["192.0.2.1"], ["127.0.0.1"])
    async with Receiver() as receiver, Dialler(private=False, resolve=names) as dialler:
        for _ in range(2):
            answer = await dialler.get(f"http://rebinding.test:{receiver.port}/")
            assert answer.refused
            assert "not allowed" in answer.note
        assert (names.asked, receiver.asked) == (2, [])


async def test_a_name_that_turns_private_after_it_was_public_is_refused() -> None:
    names = Names(["127.0.0.1"], ["10.0.0.1"])
    async with (
        Receiver(post=answers("200 OK", Connection="close")) as receiver,
        Dialler(private=False, resolve=names) as dialler,
    ):
        dialler._private = True  # stands for a public address, of which loopback has none
        assert (await post(dialler, f"http://rebinding.test:{receiver.port}/")).succeeded
        dialler._private = False
        assert (await post(dialler, f"http://rebinding.test:{receiver.port}/")).refused
        assert len(receiver.asked) == 1


async def test_one_address_that_may_not_be_called_condemns_the_name() -> None:
    names = Names(["93.184.216.34", "127.0.0.1"])
    sockets = []

    class Watched(Dialler):
        def _socket(self, address):
            sockets.append(address)
            return super()._socket(address)

    async with Receiver() as receiver, Watched(private=False, resolve=names) as dialler:
        assert (await dialler.get(f"http://both.test:{receiver.port}/")).refused
        assert (receiver.asked, sockets) == ([], [])


async def test_the_checked_address_is_dialled_and_the_name_is_kept_as_host() -> None:
    names = Names(["127.0.0.1"])
    async with Receiver() as receiver, Dialler(private=True, resolve=names) as dialler:
        assert (await dialler.get(f"http://some.test:{receiver.port}/")).succeeded
        assert receiver.asked[0].headers["host"] == f"some.test:{receiver.port}"
        assert names.asked == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "2130706433", "127.1", "localhost"])
async def test_whatever_the_url_looks_like_no_socket_is_made_for_loopback(
    host: str,
) -> None:
    async with Receiver() as receiver, Dialler(private=False) as dialler:
        answer = await dialler.get(f"http://{host}:{receiver.port}/")
        assert (answer.status, answer.succeeded, receiver.asked) == (0, False, [])


async def test_a_name_that_does_not_exist_is_a_connection_that_was_not_made() -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with Dialler(private=False, resolve=resolve) as dialler:
        answer = await dialler.get("http://nowhere.test/")
        assert (answer.reached, answer.refused) == (False, False)
        assert "Name or service not known" in answer.note


async def test_nothing_listens_is_a_connection_that_was_not_made() -> None:
    async with Receiver() as receiver:
        url = receiver.callback
    async with Dialler(private=True) as dialler:
        assert not (await dialler.get(url)).reached


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async with (
        Receiver(get=answers("302 Found", Location="/elsewhere")) as receiver,
        Dialler(private=True) as dialler,
    ):
        assert (await dialler.get(receiver.callback)).status == 302
        assert len(receiver.asked) == 1


async def test_of_an_answer_without_end_only_a_little_is_read() -> None:
    async def endless(asked, writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")
            await writer.drain()

    async with Receiver(get=endless, post=endless) as receiver, Dialler(private=True) as dialler:
        assert len((await dialler.get(receiver.callback)).body) == ANSWER_BYTES + 1
        assert (await post(dialler, receiver.callback)).succeeded


async def test_what_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rsnotify.delivery.websub.dialler.CALL_SECONDS", 0.1)

    async def hangs(asked, writer) -> None:
        await writer.wait_closed()

    async with Receiver(get=hangs) as receiver, Dialler(private=True) as dialler:
        answer = await dialler.get(receiver.callback)
        assert (answer.status, answer.reached) == (0, True)
        assert answer.note.startswith("no answer within")


async def test_a_connection_that_broke_is_tried_anew_only_if_it_may_have_been_stale() -> None:
    async def resets(asked, writer) -> None:
        writer.transport.abort()

    async with Receiver(post=resets) as receiver, Dialler(private=True) as dialler:
        await post(dialler, receiver.callback)
        assert len(receiver.asked) == 1
        assert (await post(dialler, receiver.callback, maybe_stale=True)).status == 0
        assert len(receiver.asked) == 3


async def test_a_connection_is_used_again() -> None:
    async with Receiver() as receiver, Dialler(private=True) as dialler:
        peers = set()

        async def remembers(asked, writer) -> None:
            peers.add(writer.get_extra_info("peername"))
            writer.write(response("200 OK", b"a short body"))

        receiver.post = remembers
        for _ in range(5):
            await post(dialler, receiver.callback)
        assert len(peers) == 1


async def test_a_name_server_that_hangs_does_not_stop_the_others() -> None:
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


async def test_a_status_line_of_any_bytes_becomes_text_that_can_be_stored_and_logged() -> None:
    async def behave(_: object, writer: asyncio.StreamWriter) -> None:
        writer.write(response("500 Oh").replace(b"Oh", b"\xff\xfe\x1b[31mOh"))

    async with Receiver(post=behave) as receiver, Dialler(private=True) as dialler:
        answer = await post(dialler, receiver.callback)
        assert answer.text == "500 ???[31mOh"
