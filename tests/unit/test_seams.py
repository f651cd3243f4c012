"""What others' code hands to ours and asks of it: whatever moves there is noticed here first."""

import asyncio
import gc
import socket
import weakref
import zlib
from collections.abc import AsyncIterator, Sequence

import pytest
from hiredis import pack_command
from redis.exceptions import (
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from websockets.http11 import Request
from websockets.server import ServerProtocol

from rsnotify.channels.frames import DEFLATED, SharedDeflate
from rsnotify.channels.received_frames import MESSAGE_BYTES, ReaderProtocol
from rsnotify.documents.documents import Frame
from rsnotify.documents.responses import DocumentInfo, document_response, stream_document
from rsnotify.errors import TryAgain
from rsnotify.http.endpoints import JsonResponse, Route
from rsnotify.http.protocol import HttpProtocol
from rsnotify.process.app import build_app
from rsnotify.process.settings import Settings
from rsnotify.process.webserver import WebServer, web_config
from rsnotify.redis_client import connect
from rsnotify.redis_client.client import round_trip
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import Notification
from tests.support import raw
from tests.support.stream_server import StreamServer

PAYLOAD = b"<urlset/>" * 10
REQUEST = b"GET /%b HTTP/1.1\r\nHost: h\r\n\r\n"


# --- redis-py ----------------------------------------------------------------------------------

COMMANDS = [("GET", "key"), ("EVALSHA", "sha", 1, "é", b"\x00\r\n", 2**53, 0, "", b"x" * 7_000)]


@pytest.mark.parametrize("command", COMMANDS)
def test_hiredis_packs_a_command_as_redis_py_does(command):
    connection = connect("redis://127.0.0.1:1").connection_pool.make_connection()
    assert pack_command(command) == b"".join(connection.pack_command(*command))


async def test_what_is_written_past_redis_py_is_answered_through_it():
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"ECHO\r\n$2\r\n"):
            writer.write(b"$2\r\n" + await reader.readexactly(2) + b"\r\n")

    async with StreamServer(echo) as server:
        client = connect(f"redis://127.0.0.1:{server.port}")
        assert await client.once([("ECHO", "é"), ("ECHO", b"hi")]) == ["é".encode(), b"hi"]
        await client.aclose()


ERRORS = {
    "ERR unknown command": ResponseError,
    "MOVED 3999 127.0.0.1:6381": MovedError,
    "NOPERM this user has no permissions to run it": NoPermissionError,
    "NOSCRIPT No matching script.": NoScriptError,
    "OOM command not allowed": OutOfMemoryError,
    "READONLY You can't write against a read only replica.": ReadOnlyError,
}


async def test_what_is_read_past_redis_py_is_the_error_that_redis_py_makes_of_it():
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.writelines(f"-{said}\r\n".encode() for said in ERRORS)
        await reader.read()

    async with StreamServer(refuse) as server:
        client = connect(f"redis://127.0.0.1:{server.port}")
        answers = await round_trip(client.connection_pool, [("GET", "key")] * len(ERRORS))
        assert [type(each) for each in answers] == [*ERRORS.values()]
        await client.aclose()


# --- uvicorn -----------------------------------------------------------------------------------


async def test_uvicorn_serves_by_our_protocol_and_ends_it():
    """Its state holds our connections and tasks, and `shutdown` reaches each."""
    slow, is_asked, is_ready = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            is_asked.set()
            await slow.wait()
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    async def drain() -> None:
        slow.set()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        server = WebServer(web_config(app, Settings()), is_ready.set, drain, is_worker=False)
        serving = asyncio.create_task(server.serve([listening]))
        await is_ready.wait()
        idle, idle_writer = await asyncio.open_connection("127.0.0.1", port)
        busy, busy_writer = await asyncio.open_connection("127.0.0.1", port)
        idle_writer.write(REQUEST % b"quick")
        head = await idle.readuntil(b"\r\n\r\n")
        assert b"date: " in head
        assert b"connection: close" not in head
        assert await idle.readexactly(2) == b"ok"
        busy_writer.write(REQUEST % b"slow")
        await is_asked.wait()
        connections = server.server_state.connections
        assert [type(each) for each in connections] == [HttpProtocol, HttpProtocol]
        assert len(server.server_state.tasks) == 1
        server.should_exit = True
        assert await idle.read() == b""
        assert b"\r\nconnection: close\r\n\r\nok" in await busy.read()
        await serving
        assert server.server_state.connections == set()
    for writer in (idle_writer, busy_writer):
        writer.close()
        await writer.wait_closed()


# --- websockets --------------------------------------------------------------------------------


OFFER = "permessage-deflate; server_no_context_takeover; client_max_window_bits"


def handshake(offer: str) -> ServerProtocol:
    """A connection that has been asked for with this offer of compression, and accepted."""
    protocol = ServerProtocol(extensions=[SharedDeflate()])
    protocol.receive_data(
        b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        b"Sec-WebSocket-Extensions: %b\r\n\r\n" % offer.encode()
    )
    (request,) = protocol.events_received()
    assert isinstance(request, Request)
    response = protocol.accept(request)
    assert response.status_code == 101
    protocol.send_response(response)
    return protocol


@pytest.mark.parametrize(
    ("offer", "is_accepted"),
    [
        (OFFER, True),
        ("permessage-deflate", True),
        ("permessage-deflate; client_max_window_bits=8", True),
        (f"{OFFER}; server_max_window_bits=15", True),
        (f"{OFFER}; server_max_window_bits=14", False),
    ],
)
def test_websockets_agrees_on_compression_by_our_rule(offer, is_accepted):
    assert bool(handshake(offer).extensions) is is_accepted


def test_websockets_compresses_a_frame_that_needs_no_other():
    """The very bytes that are sent to all: RSV1, and deflate that begins and ends by itself."""
    notification = Notification(Position(0), Position(1), 1, PAYLOAD, slice(0, 0))
    for _ in range(2):
        frame = DEFLATED.make(notification)
        assert (frame[0], frame[1]) == (0xC1, len(frame) - 2)
        inflate = zlib.decompressobj(-15)
        assert inflate.decompress(frame[2:] + b"\0\0\xff\xff") == PAYLOAD


def close_code_after(*frames: bytes, is_deflated: bool = False) -> int | None:
    protocol = ReaderProtocol(is_deflated=is_deflated)
    for each in frames:
        protocol.receive_data(each)
    return None if protocol.close_sent is None else protocol.close_sent.code


def test_websockets_hands_each_frame_to_our_check():
    assert close_code_after(raw.frame(raw.TEXT, "é".encode())) is None
    assert close_code_after(raw.frame(raw.TEXT, "é".encode()[:1])) == 1007


def test_websockets_lets_a_close_stand_between_fragments():
    begun = raw.frame(raw.TEXT, b"begun", fin=False)
    assert close_code_after(begun, raw.frame(raw.CLOSE, b"\x03\xe8")) == 1000


def test_websockets_bounds_a_message():
    assert close_code_after(raw.frame(raw.BINARY, bytes(MESSAGE_BYTES))) is None
    assert close_code_after(raw.frame(raw.BINARY, bytes(MESSAGE_BYTES + 1))) == 1009


def test_websockets_answers_a_ping_and_is_freed_at_once():
    protocol = ReaderProtocol(is_deflated=False)
    protocol.receive_data(raw.frame(raw.PING, b"x"))
    assert protocol.data_to_send() == [b"\x8a\x01x"]
    freed = weakref.ref(protocol)
    gc.disable()
    try:
        protocol.close()
        del protocol
        assert freed() is None
    finally:
        gc.enable()


# --- starlette ---------------------------------------------------------------------------------


async def ask(app: ASGIApp, method: str, path: str) -> list[Message]:
    """The messages by which an application answers."""
    sent: list[Message] = []

    async def receive() -> Message:
        await asyncio.Event().wait()  # the peer says nothing more
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
    await app(scope, receive, send)
    return sent


async def test_no_request_is_redirected_to_another_slash():
    async def found(request: StarletteRequest) -> Response:
        return Response(b"found")

    app = build_app([Route("/a/", found)])
    statuses = [(await ask(app, "GET", path))[0]["status"] for path in ("/a/", "/a")]
    assert statuses == [200, 404]


def test_an_answer_in_json_is_the_response_that_starlette_would_make():
    made = vars(JsonResponse({"a": 1}, 201))
    kept = {"content-length": "7", "content-type": "application/json", "cache-control": "no-store"}
    by_starlette = vars(Response(b'{"a":1}', 201, kept, media_type="application/json"))
    del by_starlette["media_type"]  # only read while it is made
    assert made == by_starlette


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_starlette_says_no_length_of_a_document_that_was_not_made(method):
    async def make(in_gzip: bool) -> Sequence[bytes]:
        return [b"<urlset>", b"</urlset>"]

    async def document(request: StarletteRequest) -> Response:
        return await document_response(request, DocumentInfo("tag", 0), make)

    app = build_app([Route("/document", document)])
    start, *parts = await ask(app, method, "/document")
    is_whole = method == "GET"
    assert any(name == b"content-length" for name, _ in start["headers"]) is is_whole
    assert b"".join(part["body"] for part in parts) == (b"<urlset></urlset>" if is_whole else b"")


async def test_an_answer_that_cannot_go_on_is_left_open():
    """So the server breaks it off, and the peer sees that it is not complete."""

    async def entries() -> AsyncIterator[bytes]:
        yield b"<url/>"
        raise TryAgain("Redis is away")

    async def make(in_gzip: bool) -> AsyncIterator[bytes]:
        return await stream_document(Frame(b"<urlset>", b"</urlset>"), entries(), in_gzip=False)

    async def document(request: StarletteRequest) -> Response:
        return await document_response(request, DocumentInfo("tag", 0), make)

    sent = await ask(build_app([Route("/document", document)]), "GET", "/document")
    assert b"".join(part["body"] for part in sent[1:]) == b"<urlset><url/>"
    assert sent[-1]["more_body"] is True
