"""What others' code hands to ours and asks of it: whatever moves there is noticed here first."""

import asyncio
import socket

from starlette.types import Receive, Scope, Send

from rsnotify.serving.http_protocol import HttpProtocol
from rsnotify.serving.webserver import WebServer, web_config
from rsnotify.settings import Settings

REQUEST = b"GET /%b HTTP/1.1\r\nHost: h\r\n\r\n"


async def test_uvicorn_serves_by_our_protocol_and_ends_it() -> None:
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
        server = WebServer(web_config(app, Settings()), is_ready.set, drain)
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
