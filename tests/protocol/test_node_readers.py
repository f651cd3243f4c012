"""Libraries of Node that others wrote read channels, in XML and in JSON: `ws`, `eventsource`.

They are installed from their registry into a cache of their own, as the receivers are.
"""

from pathlib import Path

import pytest

from rsnotify_client.notification import read_notification
from tests.protocol.test_foreign_receivers import Foreign, installed, running
from tests.support.amount import enough
from tests.support.jsonform import told
from tests.support.needs import need
from tests.support.receivers import topic
from tests.support.running import RunningHub

pytestmark = pytest.mark.asyncio(loop_scope="session")

PACKAGES = ("ws@8.18.3", "eventsource@2.0.2")

WEBSOCKET = """
const [url, ...subprotocols] = process.argv.slice(1);
const WebSocket = require("ws");
const say = (...words) => console.log(JSON.stringify(words));
const socket = new WebSocket(url.replace("http", "ws"), subprotocols);
socket.on("open", () => say("open", socket.protocol, socket.extensions));
socket.on("message", (data) => say("message", data.toString()));
socket.on("error", (error) => say("error", error.message));
"""
EVENTS = """
const [url] = process.argv.slice(1);
const EventSource = require("eventsource");
const say = (...words) => console.log(JSON.stringify(words));
const events = new EventSource(url);
events.onopen = () => say("open");
events.onmessage = (event) => say("message", event.data, event.lastEventId);
events.onerror = (event) => say("error", event.message);
"""


def node_modules() -> Path:
    """Where these packages are, or a skip."""
    need("Node", "node")
    npm = (need("npm"), "install", "--loglevel=error", "--no-fund", "--no-audit")
    return installed("node-readers", (*npm, *PACKAGES, "--prefix")) / "node_modules"


@pytest.fixture(scope="session")
def modules() -> Path:
    return node_modules()


async def next_notification(reader: Foreign, hub: RunningHub, set_name: str) -> list[str]:
    await hub.publish("http://example.com/a?b&c", set_name=set_name)
    kind, *told_ = await reader.hears()
    assert kind == "message", told_
    return told_


def locs(data: str, form: str) -> list[str]:
    if form == "json":
        return [change["loc"] for change in told(data)["changes"]]
    return [change.loc for change in read_notification(data).changes]


@pytest.mark.parametrize("form", enough(["xml", "json"], 1))
async def test_ws_reads_a_channel(websub_hub, new_set, modules, form):
    subprotocol = "rsnotify.json" if form == "json" else ""
    command = (
        "node",
        "-e",
        WEBSOCKET,
        "--",
        topic(websub_hub, new_set),
        *filter(None, [subprotocol]),
    )
    async with running(*command, NODE_PATH=str(modules)) as reader:
        assert (await reader.hears())[:2] == ["open", subprotocol]
        (data,) = await next_notification(reader, websub_hub, new_set)
        assert locs(data, form) == ["http://example.com/a?b&c"]


@pytest.mark.parametrize("form", enough(["xml", "json"], 1))
async def test_eventsource_reads_a_channel(websub_hub, new_set, modules, form):
    url = f"{topic(websub_hub, new_set)}?format={form}"
    async with running("node", "-e", EVENTS, "--", url, NODE_PATH=str(modules)) as reader:
        assert await reader.hears() == ["open"]
        data, cursor = await next_notification(reader, websub_hub, new_set)
        assert locs(data, form) == ["http://example.com/a?b&c"]
        assert cursor in data
