"""A document that is sent while it is read."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.types import Message

from rsnotify.documents.documents import change_list_head
from rsnotify.documents.responses import DocumentInfo, document_response, stream_list
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.forms import JSON
from rsnotify.resourcesync.json_writer import EntriesAsJson

SCOPE = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}


class Peer:
    """Receives a document, and leaves when it is told to."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.heard.put_nowait(message.get("body", b""))

    async def get(self, pieces: AsyncIterator[bytes]) -> None:
        async def make(_: bool) -> AsyncIterator[bytes]:
            return pieces

        response = await document_response(Request(SCOPE), DocumentInfo("tag", 0), make)
        await response(SCOPE, self.receive, self.send)


async def test_what_is_read_for_a_peer_ends_when_it_leaves():
    ended = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        try:
            yield b"first"
            await asyncio.Future()
        finally:
            ended.set()

    peer = Peer()
    getting = asyncio.create_task(peer.get(pieces()))
    while await peer.heard.get() != b"first":
        pass
    assert not ended.is_set()
    peer.left.set()
    await getting
    assert ended.is_set()


async def test_an_answer_that_is_given_up_is_read_no_further():
    async def pieces() -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.Future()

    peer = Peer()
    getting = asyncio.create_task(peer.get(pieces()))
    while await peer.heard.get() != b"first":
        pass
    getting.cancel()
    await asyncio.wait([getting])
    assert getting.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_one_thread_makes_json_for_all_lists(monkeypatch):
    """Each thread that runs Python keeps the event loop waiting."""
    begun, may_end = 0, threading.Event()

    def feed(_: EntriesAsJson, piece: bytes) -> bytes:
        nonlocal begun
        begun += 1
        may_end.wait(30)
        return piece

    monkeypatch.setattr(EntriesAsJson, "feed", feed)
    head = change_list_head("http://h", "dataset1", Position(0), None)

    async def entries() -> AsyncIterator[bytes]:
        yield b"<url/>"

    async def read() -> bytes:
        stream = await stream_list(head, JSON, entries(), in_gzip=False)
        return b"".join([piece async for piece in stream])

    reading = [asyncio.create_task(read()) for _ in range(5)]
    while not begun:
        await asyncio.sleep(0)
    for _ in range(1_000):
        await asyncio.sleep(0)
    at_once = begun
    may_end.set()
    await asyncio.gather(*reading)
    assert (at_once, begun) == (1, 5)


def test_the_first_answer_loads_nothing_more():
    """anyio takes 0.2 s to be loaded, which whoever asks first would wait for."""
    program = (
        "import asyncio, sys\n"
        "from tests.unit.test_streamed_answers import Peer\n"
        "async def pieces():\n"
        "    yield b'all'\n"
        "async def main():\n"
        "    before = set(sys.modules)\n"
        "    await Peer().get(pieces())\n"
        "    print(*sorted(set(sys.modules) - before))\n"
        "asyncio.run(main())\n"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert loaded.stdout.decode().split() == []
