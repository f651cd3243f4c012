"""An answer as bytes: one write, one end, and no header that begins a line of its own."""

import asyncio
from typing import Any

import pytest
from uvicorn.server import ServerState

from rsnotify.http.deadlines import Deadlines
from rsnotify.http.exchange import JOINED_BYTES, Exchange, render_head
from rsnotify.http.unread_output import UnreadOutput
from tests.unit.test_http_protocol import Transport


class Writes(Transport):
    """Counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def write(self, data: Any) -> None:
        self.calls.append("write")
        super().write(data)

    def writelines(self, parts: Any) -> None:
        self.calls.append("writelines")
        super().write(b"".join(parts))


class Peer:
    """A connection with nothing behind it."""

    def __init__(self) -> None:
        self.transport = Writes()
        self.output = UnreadOutput(self.transport, Deadlines(), 60)
        self.server_state = ServerState()
        self.ends = 0

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def answered(self, _: Exchange) -> None:
        self.ends += 1


def exchange(peer: Peer, method: str = "GET", version: str = "1.1") -> Exchange:
    scope = {"method": method, "http_version": version, "path": "/"}
    made = Exchange(peer, scope, keep_alive=True, expects_continue=False)
    made.complete()
    return made


async def answer(made: Exchange, *parts: bytes, status: int = 200, **headers: str) -> None:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    await made.send({"type": "http.response.start", "status": status, "headers": raw})
    for part in parts:
        await made.send({"type": "http.response.body", "body": part, "more_body": True})
    await made.send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize(
    ("size", "call"), [(JOINED_BYTES, "write"), (JOINED_BYTES + 1, "writelines")]
)
async def test_head_and_body_leave_in_one_call(size, call):
    peer = Peer()
    await answer(exchange(peer), b"x" * size, content_length=str(size))
    assert peer.transport.calls == [call]
    assert peer.ends == 1


async def test_an_answer_of_unknown_length_comes_in_chunks():
    peer = Peer()
    await answer(exchange(peer), b"ab", b"c")
    assert peer.transport.written.endswith(b"\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")


async def test_to_http_1_0_it_ends_with_the_connection():
    peer = Peer()
    await answer(exchange(peer, version="1.0"), b"ab")
    assert b"chunked" not in peer.transport.written
    assert peer.transport.written.endswith(b"connection: close\r\n\r\nab")


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 304), ("GET", 204)])
async def test_some_answers_have_no_body(method, status):
    peer = Peer()
    await answer(exchange(peer, method), b"ab", status=status, content_length="2")
    assert peer.transport.written.endswith(b"content-length: 2\r\n\r\n")


@pytest.mark.parametrize("body", [b"a", b"abc"])
async def test_an_answer_that_is_not_as_long_as_it_says_is_broken_off(body):
    peer = Peer()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    await exchange(peer).run(app)
    assert peer.transport.ended == ["aborted"]


async def test_a_bug_is_answered_and_logged_without_the_query(caplog):
    peer = Peer()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError

    made = exchange(peer)
    made.scope["query_string"] = b"access_token=secret"
    await made.run(app)
    assert peer.transport.statuses == [500]
    assert "internal error" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("value", [b"a\r\nb: c", b"a\nb", b"a\rb", b"a\0b"])
def test_no_header_begins_a_line_of_its_own(value):
    with pytest.raises(RuntimeError):
        render_head(200, [(b"a", value)])


async def test_a_cancelled_answer_is_broken_off():
    peer = Peer()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    running = asyncio.create_task(exchange(peer).run(app))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert peer.transport.ended == ["aborted"]


async def test_a_response_that_is_broken_off_is_no_internal_error(caplog):
    async def breaks_off(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})

    async def forgets(scope: Any, receive: Any, send: Any) -> None: ...

    for app, level in ((breaks_off, "WARNING"), (forgets, "ERROR")):
        caplog.clear()
        await exchange(Peer()).run(app)
        assert [each.levelname for each in caplog.records] == [level]
