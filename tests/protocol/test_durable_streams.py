"""The official clients of Durable Streams, as their registries have them, follow a set.

Each runs as a program of its own, by both ways to wait. It is killed and goes on with the offset
that it said last; the hub is killed under it, and comes back. Each change comes once, in order.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.protocol.test_foreign_receivers import Foreign, installed, running
from tests.support.amount import enough
from tests.support.needs import need
from tests.support.running import RunningHub

TYPESCRIPT_CLIENT, PYTHON_CLIENT = "@durable-streams/client@0.2.7", "durable-streams==0.1.0"

IN_PYTHON = """
import json, sys
from time import sleep
from durable_streams import stream

url, live, offset = sys.argv[1:]
while True:
    try:
        with stream(url, offset=offset, live=live) as response:
            for event in response.iter_events(mode="json"):
                changes = event.data if isinstance(event.data, list) else [event.data]
                offset = event.next_offset
                if changes:
                    print(json.dumps([[each["loc"] for each in changes], offset]), flush=True)
    except Exception as error:
        print(repr(error), file=sys.stderr)
        sleep(0.1)
"""
IN_TYPESCRIPT = """
import { stream } from "@durable-streams/client"

const [url, live, offset] = process.argv.slice(2)
const response = await stream({ url, live: live === "auto" ? true : live, offset })
response.subscribeJson(async (batch) => {
  if (batch.items.length) {
    console.log(JSON.stringify([batch.items.map((item) => item.loc), batch.offset]))
  }
})
"""


def python_client(folder: Path) -> tuple[list[str], dict[str, str]]:
    pip = (sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check")
    there = installed("durable-streams-py", (*pip, PYTHON_CLIENT, "--target"))
    program = folder / "follow.py"
    program.write_text(IN_PYTHON)
    return [sys.executable, str(program)], {"PYTHONPATH": str(there)}


def typescript_client(folder: Path) -> tuple[list[str], dict[str, str]]:
    node = need("Node", "node")
    npm = (need("npm"), "install", "--loglevel=error", "--no-fund", "--no-audit")
    there = installed("durable-streams-ts", (*npm, TYPESCRIPT_CLIENT, "--prefix"))
    (folder / "node_modules").symlink_to(there / "node_modules")
    program = folder / "follow.mjs"
    program.write_text(IN_TYPESCRIPT)
    return [node, str(program)], {}


CLIENTS = pytest.mark.parametrize("client", [python_client, typescript_client])
WAYS = pytest.mark.parametrize("live", enough(["long-poll", "sse"], 1))


@asynccontextmanager
async def following(
    client, folder: Path, hub: RunningHub, live: str, offset: str, wanted: str = ""
):
    words, environment = client(folder)
    url = f"{hub.url}/streams/dataset1{wanted}"
    async with running(*words, url, live, offset, **environment) as program:
        yield program


class Copy:
    """What a program has got, and where it stands."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.offset = "-1"

    async def has(self, program: Foreign, names: list[str]) -> None:
        while self.names != names:
            locs, self.offset = await program.hears()
            self.names += [loc.rpartition("/")[2] for loc in locs]
            assert self.names == names[: len(self.names)]


@pytest.fixture
async def hub(tmp_path) -> AsyncIterator[RunningHub]:
    async with RunningHub(tmp_path / "data", drain_seconds="0") as running_hub:
        yield running_hub


async def publish(hub: RunningHub, names: list[str], count: int) -> None:
    more = [f"{len(names) + number}" for number in range(count)]
    await hub.publish(*(f"http://example.com/{name}" for name in more))
    names += more


@CLIENTS
@WAYS
async def test_a_client_has_each_change_once_whatever_is_killed(hub, tmp_path, client, live):
    folder, names, copy = tmp_path / "client", [], Copy()
    folder.mkdir()
    await publish(hub, names, 1_500)  # more than a chunk
    async with following(client, folder, hub, live, copy.offset) as program:
        await copy.has(program, names)
        for _ in range(3):
            await publish(hub, names, 2)
            await copy.has(program, names)
    (folder / "node_modules").unlink(missing_ok=True)
    await publish(hub, names, 3)  # while nobody follows
    async with following(client, folder, hub, live, copy.offset) as program:
        await copy.has(program, names)
        await hub.kill()
        await hub.start()
        await publish(hub, names, 3)
        await copy.has(program, names)


@CLIENTS
@WAYS
async def test_a_client_whose_address_has_a_filter_gets_that_part(hub, tmp_path, client, live):
    wanted = "?change=created&prefix=http%3A%2F%2Fexample.com%2Fpapers%2F"
    folder, names, copy = tmp_path / "client", list[str](), Copy()
    folder.mkdir()

    async def publish_papers() -> None:
        for number in range(len(names), len(names) + 3):
            await hub.publish("http://example.com/pages/1", change="created")
            await hub.publish(f"http://example.com/papers/{number}", change="created")
            await hub.publish(f"http://example.com/papers/{number}")
            names.append(f"{number}")

    await publish_papers()
    async with following(client, folder, hub, live, copy.offset, wanted) as program:
        await copy.has(program, names)
        await publish_papers()
        await copy.has(program, names)


@CLIENTS
async def test_a_client_that_chooses_how_to_wait_follows(hub, tmp_path, client):
    """Without a word on it, as the documents of the clients begin."""
    folder, names, copy = tmp_path / "client", [], Copy()
    folder.mkdir()
    await publish(hub, names, 1)
    async with following(client, folder, hub, "auto", copy.offset) as program:
        await copy.has(program, names)
        await publish(hub, names, 2)
        await copy.has(program, names)
