"""A server of a test leaves no connection behind, whenever its peer comes and whatever it reads."""

import asyncio
import gc
import socket
from asyncio import StreamReader, StreamWriter
from contextlib import ExitStack

import pytest
from aiohttp import web

from tests.support.stream_server import StreamServer, WebServer, one_answer

SAID = b"x" * 8_000_000
"""More than lies between two ends whose reader reads nothing."""


async def says_much(reader: StreamReader, writer: StreamWriter) -> None:
    writer.write(SAID)


async def answers_much(request: web.Request) -> web.Response:
    return web.Response(body=SAID)


async def come_as_it_ends(server: StreamServer | WebServer, turns: int) -> socket.socket:
    """A peer that connects so many turns of the loop before."""
    async with server:
        port = server.port
        peer = socket.create_connection(("127.0.0.1", port))
        peer.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        for _ in range(turns):
            await asyncio.sleep(0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    return peer


def test_who_comes_as_it_ends_is_let_go():
    """Python tells of a connection that was left open when it is collected: an error here."""
    with ExitStack() as peers:
        for turns in range(8):
            for server in (StreamServer(says_much), WebServer(one_answer(answers_much))):
                peers.enter_context(asyncio.run(come_as_it_ends(server, turns)))
        gc.collect()
