"""What `http` promises as uvicorn's own protocol does: the same requests to both, byte for byte."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from rsnotify.http.protocol import HttpProtocol

SECONDS = 20
PROTOCOLS = {
    "ours": partial(HttpProtocol, send_timeout_seconds=SECONDS),
    "uvicorn": "httptools",
}


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Says what it was asked, in several ways."""
    request = Request(scope, receive)
    answer: Response
    match request.url.path:
        case "/stream":
            answer = StreamingResponse(parts(), media_type="text/plain")
        case "/nothing":
            answer = Response(status_code=204)
        case "/broken":
            raise ValueError("a bug")
        case _:
            body = await request.body()
            asked = f"{request.method} {request.url.path}?{request.url.query} {body!r}"
            answer = PlainTextResponse(asked, headers={"x-seen": request.headers.get("x-one", "")})
    await answer(scope, receive, send)


async def parts() -> AsyncIterator[bytes]:
    for part in (b"one", b"", b"two"):
        yield part


@asynccontextmanager
async def served(protocol: str) -> AsyncIterator[int]:
    config = uvicorn.Config(
        app,
        port=0,
        http=PROTOCOLS[protocol],
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
    )
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        await server.shutdown()


async def said(port: int, *requests: bytes) -> bytes:
    """All that comes back, until the server closes; the last request asks it to."""
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for part in requests:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.01)  # so that a request may arrive in parts
        found = await reader.read()
        writer.close()
    return found


def told_apart(answers: bytes) -> list[tuple[bytes, ...]]:
    """Each head with its headers in order of name, and its body."""
    found = []
    for answer in re.split(rb"(?=HTTP/1\.1 )", answers)[1:]:
        head, _, body = answer.partition(b"\r\n\r\n")
        status, *lines = head.split(b"\r\n")
        headers = sorted(line.lower() for line in lines)
        found.append((status, *headers, body))
    return found


LAST = b"GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
REQUESTS: dict[str, Sequence[bytes]] = {
    "one": [LAST],
    "query and header": [b"GET /a?b=%20c&d HTTP/1.1\r\nHost: h\r\nX-One: 1\r\n\r\n", LAST],
    "pipelined": [b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n" + LAST],
    "in single bytes": [bytes([byte]) for byte in LAST],
    "with a length": [b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody", LAST],
    "in chunks": [
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n",
        b"2;x=y\r\ndy\r\n0\r\n\r\n",
        LAST,
    ],
    "expects 100": [
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n",
        b"body",
        LAST,
    ],
    "HEAD": [b"HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n", LAST],
    "a stream": [b"GET /stream HTTP/1.1\r\nHost: h\r\n\r\n", LAST],
    "nothing": [b"GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n", LAST],
    "HTTP/1.0": [b"GET /a HTTP/1.0\r\nHost: h\r\n\r\n"],
    "a bug": [b"GET /broken HTTP/1.1\r\nHost: h\r\n\r\n"],  # after which they close it
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_peer_cannot_tell_them_apart(name):
    answers = {}
    for protocol in PROTOCOLS:
        async with served(protocol) as port:
            answers[protocol] = told_apart(await said(port, *REQUESTS[name]))
    assert answers["ours"]
    assert answers["ours"] == answers["uvicorn"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "wrong",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : h\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_refused_and_ends_the_connection(protocol, wrong):
    async with served(protocol) as port:
        assert (await said(port, wrong)).startswith(b"HTTP/1.1 400 ")
