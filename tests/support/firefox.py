"""`python firefox.py [--finger] FIREFOX ARGUMENT...`: this Firefox, for Playwright.

Playwright speaks WebDriver BiDi with a Firefox that is not its own (its channel `moz-firefox`). For
each window it sends a command with the colours that are preferred, which Firefox 153 does not have.
Where that command asks for nothing it is answered here, in Firefox's place; everything else is
handed on. Once all Firefoxes have it, this can go.

Nor can Playwright touch anything in it: with `--finger`, what a mouse would do is done by a finger.
The page is touched so, but nothing scrolls: Firefox does that before the page is asked.
"""

import asyncio
import json
import re
import sys
from asyncio import StreamReader
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator

from websockets import ConnectionClosed
from websockets.asyncio.client import connect
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import ServerConnection, serve

FINGER = "--finger"
CHUNK_BYTES = 65_536
ADDRESS = re.compile(rb"(?<=WebDriver BiDi listening on )ws://\S+")


def answer(sent: str | bytes) -> str | None:
    """What is said in Firefox's place."""
    match json.loads(sent):
        case {"id": id_, "method": "emulation.setMediaFeaturesOverride", "params": params}:
            if not any(params["features"].values()):
                return json.dumps({"type": "success", "id": id_, "result": {}})
    return None


def by_finger(sent: str | bytes) -> str | bytes:
    """A mouse's actions as those of a finger; all else as it is."""
    match command := json.loads(sent):
        case {"method": "input.performActions", "params": {"actions": actions}}:
            for source in actions:
                if source["type"] == "pointer":
                    source["parameters"] = {"pointerType": "touch"}
            return json.dumps(command)
    return sent


async def _hand_on(sender: Connection, receiver: Connection) -> None:
    try:
        async for message in sender:
            await receiver.send(message)
    except ConnectionClosed:
        pass
    await receiver.close()


async def _lines(stream: StreamReader) -> AsyncIterator[bytes]:
    """However long they are: the stream's own iterator fails at one that is too long for it."""
    begun = b""
    while chunk := await stream.read(CHUNK_BYTES):
        *whole, begun = (begun + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"
    yield begun


async def main() -> int:
    has_finger = sys.argv[1] == FINGER
    firefox = await asyncio.create_subprocess_exec(*sys.argv[1 + has_finger :], stderr=PIPE)
    address = ""

    async def carry(playwright: ServerConnection) -> None:
        path = playwright.request.path
        async with connect(address + path, proxy=None, max_size=None, ping_interval=None) as bidi:
            handing_on = asyncio.create_task(_hand_on(bidi, playwright))
            async for message in playwright:
                if (said := answer(message)) is not None:
                    await playwright.send(said)
                else:
                    await bidi.send(by_finger(message) if has_finger else message)
            handing_on.cancel()

    async with serve(carry, "127.0.0.1", 0, max_size=None, ping_interval=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        ours = f"ws://127.0.0.1:{port}".encode()
        assert firefox.stderr is not None
        async for line in _lines(firefox.stderr):
            if found := ADDRESS.search(line):
                address = found[0].decode()
            sys.stderr.buffer.write(ADDRESS.sub(ours, line))
            sys.stderr.flush()
    return await firefox.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
