"""The bell of the hub processes, at a Redis that fails, goes silent, or is replaced."""

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop

from rsnotify.coordination import keys
from rsnotify.coordination.bell import Bell, BellTimes
from rsnotify.loops import end
from rsnotify.redis_client import connect
from tests.support.redis_server import RedisServer
from tests.support.running import until
from tests.support.threaded_peer import ThreadedPeer

SUBSCRIBED = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:1\r\n"
PONG = b"*2\r\n$4\r\npong\r\n$0\r\n\r\n"
MESSAGE = b"*3\r\n$7\r\nmessage\r\n$1\r\nb\r\n$3\r\n%s\r\n"


QUICK = BellTimes(ping_seconds=0.5, deaf_seconds=60.0, again_seconds=0.05)
"""A busy machine is not deaf."""


class Listener:
    """Keeps what it hears."""

    def __init__(self, url: str) -> None:
        self.bell = Bell(connect(url), times=QUICK)
        self.heard: list[str] = []
        self.listening = asyncio.create_task(self.bell.listen(self.heard.append))

    async def is_connected(self, times: int) -> bool:
        return self.bell.connections == times and self.bell.is_heard

    async def has_heard(self, *messages: str) -> bool:
        return self.heard == [*messages]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with RedisServer(tmp_path, "--save", "") as server:
        yield server


@pytest.fixture
async def listener(server: RedisServer) -> AsyncIterator[Listener]:
    listener = Listener(server.url)
    await until(partial(listener.is_connected, 1))
    yield listener
    await end([listener.listening])


@pytest.fixture
async def client(server: RedisServer) -> AsyncIterator[Any]:
    async with server.client() as client:
        yield client


async def test_what_is_rung_at_a_former_primary_is_not_heard(listener, client):
    """Nothing tells this listener that another has taken over: its connection lives on."""
    await client.publish(keys.BELL, "before")
    await until(partial(listener.has_heard, "before"))
    listener.bell.doubt()
    await client.publish(keys.BELL, "of the former")
    await until(partial(listener.is_connected, 2))
    await client.publish(keys.BELL, "after")
    await until(partial(listener.has_heard, "before", "after"))


async def test_a_connection_that_is_killed_is_made_again(listener, client):
    for times in range(2, 5):
        await client.client_kill_filter(_type="pubsub")
        await until(partial(listener.is_connected, times))
        await client.publish(keys.BELL, "there")
        await until(partial(listener.has_heard, *["there"] * (times - 1)))


async def test_a_redis_that_is_started_again_is_heard_again(listener, server):
    await server.kill()

    async def is_deaf() -> bool:
        return not listener.bell.is_heard

    await until(is_deaf)
    await server.start()
    await until(partial(listener.is_connected, 2))


async def test_a_redis_that_is_silent_is_not_taken_to_be_there(listener, server, client):
    server.signal(signal.SIGSTOP)

    async def is_deaf() -> bool:
        return not listener.bell.is_heard

    await until(is_deaf)
    server.signal(signal.SIGCONT)
    await until(partial(listener.is_connected, 2))
    await client.publish(keys.BELL, "there")
    await until(partial(listener.has_heard, "there"))


async def test_who_hears_nothing_asks_and_stays(listener, client):
    async def has_asked() -> bool:
        return bool((await client.info("commandstats"))["cmdstat_ping"]["calls"] > 5)

    await until(has_asked)
    assert await listener.is_connected(1)


async def test_a_failure_of_who_hears_is_not_taken_for_one_of_redis(server, client, caplog):
    heard: list[str] = []

    def hear(message: str) -> None:
        heard.append(message)
        if message == "bad":
            raise ZeroDivisionError(message)

    bell = Bell(connect(server.url), times=QUICK)
    listening = asyncio.create_task(bell.listen(hear))

    async def is_heard() -> bool:
        return bell.is_heard and bell.connections == 1

    async def has_heard_all() -> bool:
        return heard == ["bad", "good"]

    await until(is_heard)
    for message in ("bad", "good"):
        await client.publish(keys.BELL, message)
    await until(has_heard_all)
    assert bell.connections == 1
    assert [record.getMessage() for record in caplog.records] == [
        "a message of the bell cannot be read"
    ]
    assert "ZeroDivisionError: bad" in caplog.text
    await end([listening])


@pytest.fixture
def peer() -> Any:
    server = ThreadedPeer()
    yield server
    server.close()


async def test_who_doubts_while_a_connection_is_made_makes_another(peer):
    listener = Listener(f"redis://127.0.0.1:{peer.port}?protocol=2")
    await asyncio.sleep(0)
    listener.bell.doubt()
    await connected(peer)
    first = peer.accepted[0]
    asked = await asyncio.to_thread(lambda: b"".join(iter(partial(first.recv, 4096), b"")))
    assert b"PING" not in asked  # it was given up, not found silent
    await connected(peer)
    await end([listener.listening])


async def test_messages_come_whole_however_they_were_cut(peer):
    listener = Listener(f"redis://127.0.0.1:{peer.port}?protocol=2")
    await connected(peer)
    said = SUBSCRIBED + MESSAGE % b"one" + PONG + MESSAGE % b"two" + MESSAGE % b"\xff\xfex"
    peer.says(*[each for byte in said for each in (bytes([byte]), 0.001)])
    await until(partial(listener.has_heard, "one", "two", "\ufffd\ufffdx"))
    peer.says(MESSAGE % b"tre" + MESSAGE % b"for")
    await until(partial(listener.has_heard, "one", "two", "\ufffd\ufffdx", "tre", "for"))
    await end([listener.listening])


@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"-NOPERM no\r\n", b"-LOADING loading\r\n", None]
)
async def test_who_hears_what_is_no_bell_connects_again(peer, said):
    listener = Listener(f"redis://127.0.0.1:{peer.port}?protocol=2")
    await connected(peer)
    peer.says(SUBSCRIBED + MESSAGE % b"one")
    await until(partial(listener.has_heard, "one"))
    if said is None:
        peer.accepted[-1].shutdown(2)
    else:
        peer.says(said + MESSAGE % b"not")
    await connected(peer)
    peer.says(SUBSCRIBED + MESSAGE % b"two")
    await until(partial(listener.has_heard, "one", "two"))
    assert listener.bell.connections == 2
    await end([listener.listening])


def test_what_is_said_while_this_process_is_busy_is_heard(peer):
    uvloop.run(_listened_and_busy(peer))


async def _listened_and_busy(peer: ThreadedPeer) -> None:
    """Busy with what another socket brought: then timers are looked at before any socket."""
    listener = Listener(f"redis://127.0.0.1:{peer.port}?protocol=2")
    await connected(peer)
    here, there = socket.socketpair()

    def be_busy() -> None:
        here.recv(1)
        peer.accepted[-1].sendall(PONG)
        time.sleep(2 * QUICK.ping_seconds)

    asyncio.get_running_loop().add_reader(here, be_busy)
    for _ in range(3):
        assert await asyncio.to_thread(asks, peer.accepted[-1])
        there.send(b"x")
    assert await asyncio.to_thread(asks, peer.accepted[-1])
    asyncio.get_running_loop().remove_reader(here)
    for each in (here, there):
        each.close()
    await end([listener.listening])


def asks(connection: socket.socket) -> bool:
    """Whether the hub asks this connection for a sign of life; False if it has closed it."""
    said = b""
    while piece := connection.recv(100):
        said += piece
        if said.endswith(b"PING\r\n"):
            return True
    return False


async def connected(peer: ThreadedPeer) -> None:
    await asyncio.to_thread(peer.newest.acquire)
