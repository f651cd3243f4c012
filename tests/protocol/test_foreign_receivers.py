"""Receivers that others wrote: they discover the hub, subscribe, are verified, and receive.

They are installed from their registries into a cache of their own; without a registry, or without
Node, there is nothing to try.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.needs import need
from tests.support.receivers import topic
from tests.support.redis_server import free_port
from tests.support.running import PATIENT_SECONDS
from tests.support.shell import environment

pytestmark = pytest.mark.asyncio(loop_scope="session")

CACHE = Path(tempfile.gettempdir()) / f"rsnotify-receivers-{os.getuid()}"
FLASK_WEBSUB = "Flask-WebSub==0.4.1"
PUBSUBHUBBUB = "pubsubhubbub@1.0.2"

FLASK_RECEIVER = """
import json, sys
from flask import Flask
from flask_websub.subscriber import (
    SQLite3SubscriberStorage, SQLite3TempSubscriberStorage, Subscriber, discover,
)
from werkzeug.serving import make_server

topic, folder = sys.argv[1:]
subscriber = Subscriber(
    SQLite3SubscriberStorage(f"{folder}/long"), SQLite3TempSubscriberStorage(f"{folder}/short")
)
app = Flask(__name__)
app.register_blueprint(subscriber.build_blueprint(url_prefix="/callbacks"))

def say(*words):
    print(json.dumps(words), flush=True)

@subscriber.add_success_handler
def verified(topic, callback, mode):
    say(mode, topic)

@subscriber.add_listener
def received(topic, callback, body):
    say("received", topic, body.decode())

server = make_server("127.0.0.1", 0, app, threaded=True)
import threading
threading.Thread(target=server.serve_forever, daemon=True).start()
with app.test_request_context(base_url=f"http://127.0.0.1:{server.port}"):
    callback = subscriber.subscribe(**discover(topic))
    for line in sys.stdin:
        subscriber.unsubscribe(callback)
"""

NODE_RECEIVER = """
const [topic, hub, port] = process.argv.slice(1);
const receiver = require("pubsubhubbub").createServer({
  callbackUrl: `http://127.0.0.1:${port}/callback?own=query`,
});
const say = (...words) => console.log(JSON.stringify(words));
receiver.on("subscribe", (data) => say("subscribe", data.topic));
receiver.on("unsubscribe", (data) => say("unsubscribe", data.topic));
receiver.on("error", (error) => say("error", error.message));
receiver.on("feed", (data) => say("received", data.topic, data.feed.toString()));
receiver.on("listen", () => receiver.subscribe(topic, hub));
receiver.listen(Number(port));
process.stdin.on("data", () => receiver.unsubscribe(topic, hub));
"""


def installed(name: str, command: Sequence[str]) -> Path:
    """The folder that the command has installed into, at the first time."""
    folder = CACHE / name
    if not folder.exists():
        CACHE.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as unfinished:
            words = [*command, unfinished]
            done = subprocess.run(words, capture_output=True, check=False, env=environment())
            if done.returncode:
                print(done.stderr.decode())
                pytest.skip(f"no {name}, which cannot be installed")
            with suppress(OSError):  # another process was first
                Path(unfinished).rename(folder)
                Path(unfinished).mkdir()
    return folder


@pytest.fixture(scope="session")
def flask_websub() -> Path:
    pip = (sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check")
    return installed("flask-websub", (*pip, FLASK_WEBSUB, "--target"))


@pytest.fixture(scope="session")
def pubsubhubbub() -> Path:
    need("Node", "node")
    npm = (need("npm"), "install", "--loglevel=error", "--no-fund", "--no-audit")
    return installed("pubsubhubbub", (*npm, PUBSUBHUBBUB, "--prefix"))


class Foreign:
    """A receiver in a process of its own; what it says is read line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def hears(self) -> list[Any]:
        async with asyncio.timeout(PATIENT_SECONDS):
            line = await self._process.stdout.readline()
        return json.loads(line) if line else ["ended"]

    def unsubscribe(self) -> None:
        self._process.stdin.write(b"unsubscribe\n")


@asynccontextmanager
async def running(*command: str, **environment: str) -> AsyncIterator[Foreign]:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=os.environ | environment,
    )
    yield Foreign(process)
    process.kill()
    await process.wait()


async def follows(foreign: Foreign, hub, set_name: str) -> None:
    url = topic(hub, set_name)
    assert await foreign.hears() == ["subscribe", url]
    for number in (1, 2):
        await hub.publish(f"http://example.com/{number}", set_name=set_name)
        heard, about, body = await foreign.hears()
        assert (heard, about) == ("received", url)
        assert f"<loc>http://example.com/{number}</loc>" in body
    foreign.unsubscribe()
    assert await foreign.hears() == ["unsubscribe", url]


@pytest.mark.evidence
async def test_flask_websub_follows_a_channel(websub_hub, new_set, flask_websub, tmp_path):
    command = (sys.executable, "-c", FLASK_RECEIVER, topic(websub_hub, new_set), str(tmp_path))
    async with running(*command, PYTHONPATH=str(flask_websub)) as foreign:
        await follows(foreign, websub_hub, new_set)


@pytest.mark.evidence
async def test_pubsubhubbub_of_npm_follows_a_channel(websub_hub, new_set, pubsubhubbub):
    """Without a secret: it sends the hub another one than it later checks with."""
    port = str(free_port())
    url, hub = topic(websub_hub, new_set), f"{websub_hub.url}/hub"
    command = ("node", "-e", NODE_RECEIVER, "--", url, hub, port)
    async with running(*command, NODE_PATH=str(pubsubhubbub / "node_modules")) as foreign:
        await follows(foreign, websub_hub, new_set)
