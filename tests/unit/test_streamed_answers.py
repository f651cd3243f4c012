"""A document that is sent while it is read."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.types import Message

from rsnotify.documents.documents import change_list_head
from rsnotify.documents.responses import (
    JSON_BYTES,
    DocumentInfo,
    document_response,
    stream_list,
)
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


async def test_json_of_all_lists_is_made_one_step_at_a_time(monkeypatch):
    """…each in a turn of the event loop, in which everybody else is served, too."""
    turns, steps, sizes = 0, [], []
    feed = EntriesAsJson.feed

    def noted(writer: EntriesAsJson, piece: bytes) -> bytes:
        steps.append(turns)
        sizes.append(len(piece))
        return feed(writer, piece)

    monkeypatch.setattr(EntriesAsJson, "feed", noted)
    head = change_list_head("http://h", "dataset1", Position(0), None)
    entry = b"<url><loc>http://example.com/%d</loc></url>"
    entries = [b"".join(entry % number for number in range(2_000))] * 2
    turn = asyncio.Lock()

    async def pieces() -> AsyncIterator[bytes]:
        for each in entries:
            yield each

    async def read() -> list[Any]:
        stream = await stream_list(head, JSON, pieces(), in_gzip=False, json_turn=turn)
        return json.loads(b"".join([piece async for piece in stream]))["changes"]

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count_turns())
    read_by_each = await asyncio.gather(*(read() for _ in range(5)))
    counting.cancel()
    expected = [{"loc": f"http://example.com/{number}"} for number in range(2_000)] * 2
    assert read_by_each == [expected] * 5
    assert max(sizes) == JSON_BYTES
    assert len(steps) > 5 * 2
    assert len(set(steps)) == len(steps)


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
