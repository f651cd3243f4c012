"""Commands in a network namespace whose only way out is a proxy: publish, subscribe, mirror, audit,
validate, and a hub that calls a WebSub callback.

Needs Linux and the right to make a namespace; without it, this says so and skips. The same proxy,
with names that only it knows, is in test_network.py and needs no right.
"""

import asyncio
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.forward_proxy import ForwardProxy, forward_proxy, pump
from tests.support.receivers import Receiver
from tests.support.running import TOKEN, clean_environment
from tests.support.sources import CAPABILITIES, Source

INSIDE = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c"]
BRIDGE = """
import os, socket, subprocess, sys, threading
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)

def pump(one, other):
    while data := one.recv(65536):
        other.sendall(data)
    other.shutdown(socket.SHUT_WR)

def serve(client):
    outside = socket.socket(socket.AF_UNIX)
    outside.connect(sys.argv[1])
    threading.Thread(target=pump, args=(client, outside), daemon=True).start()
    try:
        pump(outside, client)
    except OSError:
        pass

listener = socket.create_server(("127.0.0.1", 3128))

def accept():
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

threading.Thread(target=accept, daemon=True).start()
sys.exit(subprocess.run(sys.argv[2:]).returncode)
"""
"""In the namespace: a port that leads to the proxy outside, by a socket in a file."""


def can_make_a_namespace() -> bool:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run([*INSIDE, "pass"], check=False, capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(
    not can_make_a_namespace(), reason="no right to make a network namespace, or no `ip`"
)


@contextmanager
def way_out(path: Path, port: int) -> Iterator[None]:
    """A socket in a file that leads to the proxy."""

    def lead(client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", port)) as proxy:
            pump(client, proxy)

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=lead, args=(client,), daemon=True).start()

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


@contextmanager
def gate_for(path: Path, *names: str) -> Iterator[ForwardProxy]:
    """The proxy, which alone knows these names, and the way to it."""
    known = dict.fromkeys(names, "127.0.0.1")
    with forward_proxy(known, "secret") as gate, way_out(path, gate.port):
        yield gate


async def inside(
    bridge: Path, *words: str, proxy: bool = True, **environment: str
) -> tuple[int, str]:
    """A command that nothing but the proxy can be reached from."""
    by = {"ALL_PROXY": "http://user:secret@127.0.0.1:3128"} if proxy else {}
    command = [str(Path(sys.executable).with_name("rsnotify")), *words]
    process = await asyncio.create_subprocess_exec(
        *(*INSIDE, BRIDGE, str(bridge), *command),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=clean_environment() | by | environment,
    )
    async with asyncio.timeout(60):
        said = (await process.communicate())[0].decode()
    return process.returncode or 0, said


async def test_nothing_is_reached_without_the_proxy_and_commands_say_so(tmp_path):
    with gate_for(tmp_path / "gate") as gate:
        async with Source() as source:
            words = ("mirror", source.url + CAPABILITIES, str(tmp_path / "copy"), "--once")
            status, said = await inside(tmp_path / "gate", *words, proxy=False)
    assert (status, gate.seen) == (2, [])
    assert "cannot be reached" in said


async def test_a_source_is_mirrored_audited_and_validated(tmp_path):
    bridge, copy = tmp_path / "gate", str(tmp_path / "copy")
    with gate_for(bridge, "source.example"):
        async with Source() as source:
            source.url = source.url.replace("127.0.0.1", "source.example")
            source.documents[CAPABILITIES] = source.capability_list("resourcelist", "changelist")
            source.add("a.txt", b"a")
            source.list_resources()
            address = source.url + CAPABILITIES
            mirrored = await inside(bridge, "mirror", address, copy, "--once")
            audited = await inside(bridge, "audit", address, copy)
            judged = await inside(bridge, "validate", address)
    assert (mirrored[0], audited[0], judged[0]) == (0, 0, 0), (mirrored, audited, judged)
    assert "IN SYNC" in audited[1]


async def test_changes_are_published_and_followed(tmp_path, hub):
    bridge, loc = tmp_path / "gate", "http://example.com/1"
    with gate_for(bridge, "hub.example") as gate:
        of_hub = {"RSNOTIFY_URL": f"http://hub.example:{hub.port}", "RSNOTIFY_TOKEN": TOKEN}
        published = await inside(bridge, "publish", "dataset1", loc, **of_hub)
        words = ("subscribe", "dataset1", "--position", "2020-01-01T00:00:00Z", "--count", "1")
        status, followed = await inside(bridge, *words, **of_hub)
    assert published[0] == 0, published
    assert status == 0, followed
    assert loc in followed
    assert any(line.startswith("CONNECT hub.example") for line in gate.seen)


HUB = """
import os, subprocess, sys, time, urllib.parse, urllib.request
rsnotify, data, callback, end = sys.argv[1:]
url = "http://127.0.0.1:8099"
serve = [rsnotify, "serve", "--set", "dataset1", "--data", data, "--port", "8099"]
hub = subprocess.Popen(serve)
while subprocess.run([rsnotify, "health", "--url", url], capture_output=True).returncode:
    time.sleep(0.1)
form = {"hub.mode": "subscribe", "hub.callback": callback,
        "hub.topic": url + "/channels/dataset1/change_notification_channel"}
urllib.request.urlopen(url + "/hub", urllib.parse.urlencode(form).encode()).close()
while not os.path.exists(end + ".verified"):
    time.sleep(0.05)
while not os.path.exists(end):
    subprocess.run([rsnotify, "publish", "dataset1", "http://example.com/1", "--url", url,
                    "--data", data])
    time.sleep(0.2)
hub.terminate()
hub.wait()
"""


async def test_a_hub_calls_its_callbacks(tmp_path):
    end, bridge = tmp_path / "end", tmp_path / "gate"
    with gate_for(bridge, "callback.example") as gate:
        async with Receiver() as receiver:
            callback = f"http://callback.example:{receiver.port}/"
            program = str(Path(sys.executable).with_name("rsnotify"))
            words = (program, str(tmp_path / "data"), callback, str(end))
            by = {"RSNOTIFY_PROXY": "http://user:secret@127.0.0.1:3128"}
            process = await asyncio.create_subprocess_exec(
                *(*INSIDE, BRIDGE, str(bridge), sys.executable, "-c", HUB, *words),
                env=clean_environment() | by,
            )
            async with asyncio.timeout(60):
                while not [each for each in receiver.asked if each.mode == "subscribe"]:
                    await asyncio.sleep(0.05)
                end.with_name("end.verified").touch()
                while not [each for each in receiver.asked if each.method == "POST"]:
                    await asyncio.sleep(0.05)
                end.touch()
                await process.wait()
            locs = [each.locs for each in receiver.asked if each.method == "POST"]
    assert locs[0] == ["http://example.com/1"]
    assert any(callback in line for line in gate.seen)
