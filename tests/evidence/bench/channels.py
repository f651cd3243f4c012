"""Channels measured: many readers, a busy channel, idle readers; beside nchan and starlette.

The server has one core and the load the other; everything is measured in one run, by one load.
"""

import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from socket import create_connection
from time import sleep
from typing import Any

from tests.evidence.bench.pictures import Chart, save
from tests.support.redis_server import free_port
from tests.support.running import TOKEN, RunningHub

CHANGES = {1: 2_000, 100: 1_000, 1_000: 300, 5_000: 60, 10_000: 30}
"""By how many readers there are; server and load each need so many open files."""
BUSY_READERS, BUSY_SECONDS, PUBLISHERS = (1, 100, 1_000), 5.0, 64
IDLE = 10_000
ROUNDS = 3
NOTIFICATION_BYTES = 440

CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, LOAD_CORE = CORES[0], CORES[-1]

NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
load_module {module};
events {{ worker_connections 20000; }}
http {{
  {upstream}
  access_log off; client_body_temp_path {folder}/body;
  nchan_max_reserved_memory 256M; keepalive_requests 100000000;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location = /channel {{ nchan_subscriber websocket; nchan_channel_id c; {kept} }}
    location = /publish {{
      nchan_publisher; nchan_channel_id c; nchan_message_buffer_length 10000; {kept}
    }}
  }}
}}
"""
NGINX_PATH = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
MODULE = Path("/usr/lib/nginx/modules/ngx_nchan_module.so")

Target = dict[str, Any]
Found = dict[int, dict[str, dict[str, float]]]
"""By the number of readers and the server."""


class Server:
    """A server on its core: what the load needs to know of it, and how much memory it has."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def resident(self) -> int:
        pages = sum(
            int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.target["pids"]
        )
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def hub() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        running = RunningHub(Path(folder) / "data")
        runner.run(running.start())
        assert running.process is not None
        pids = [running.process.pid, *_children(running.process.pid)]
        change = {"loc": f"http://example.com/zzzNUMBER{'x' * 75}", "change": "updated"}
        headers = f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
        yield Server(
            _target(
                running.port,
                "/channels/dataset1/change_notification_channel",
                "/api/sets/dataset1/changes",
                pids,
                body=json.dumps(change),
                headers=headers,
            )
        )
        runner.run(running.stop())


@contextmanager
def nchan(upstream: str = "", kept: str = "") -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        config = Path(folder) / "nginx.conf"
        written = NGINX.format(
            folder=folder, module=MODULE, port=port, upstream=upstream, kept=kept
        )
        config.write_text(written)
        with _process(port, str(NGINX_PATH), "-c", str(config), "-p", folder) as process:
            while not (workers := _children(process.pid)):  # the port answers before they exist
                sleep(0.05)
            yield Server(_target(port, "/channel", "/publish", workers))


@contextmanager
def plain() -> Iterator[Server]:
    port = free_port()
    with _process(port, sys.executable, "-m", "tests.evidence.bench.plain", str(port)) as process:
        yield Server(_target(port, "/channel", "/publish", [process.pid]))


@contextmanager
def compressing_hub() -> Iterator[Server]:
    with hub() as server:
        server.target["offer"] = "Sec-WebSocket-Extensions: permessage-deflate\r\n"
        yield server


def _target(
    port: int, channel: str, publish: str, pids: list[int], *, body: str = "", headers: str = ""
) -> Target:
    return {
        "host": "127.0.0.1",
        "port": port,
        "channel": channel,
        "publish": publish,
        "pids": pids,
        "offer": "",  # a header field of the handshake
        "body": body or "zzzNUMBER".ljust(NOTIFICATION_BYTES - 1, "x"),
        "headers": headers or "Content-Type: application/xml\r\n",
    }


class Load:
    """The load program on its own core."""

    def __init__(self, server: Server) -> None:
        with _on(LOAD_CORE):
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.evidence.bench.readers"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        self.pid = self._process.pid
        self._say(server.target)

    def __enter__(self) -> "Load":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, *act: Any) -> Any:
        self._say(act)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the load failed at {act}")
        return json.loads(answer)

    def _say(self, words: Any) -> None:
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()


def measure(readers: int, start: Callable[[], Any]) -> dict[str, float]:
    """One server's figures with so many readers."""
    with served(start) as (_, load):
        load.ask("open", readers)
        found = load.ask("one_by_one", CHANGES[readers])
    return {
        "a second": found["deliveries"] / found["seconds"],
        "sending": found["deliveries"] / found["sending_seconds"] if readers > 1 else 0.0,
        "core second": found["deliveries"] / found["cpu_seconds"],
        "p50": -found["p50_ms"],
        "p99": -found["p99_ms"],
    }


def measure_busy(readers: int, start: Callable[[], Any]) -> dict[str, float]:
    with served(start) as (_, load):
        load.ask("open", readers)
        found = load.ask("busy", BUSY_SECONDS, PUBLISHERS)
    rates = {each: found[each] / found["seconds"] for each in ("published", "delivered")}
    return rates | {"core second": found["delivered"] / found["cpu_seconds"]}


def measure_idle(start: Callable[[], Any]) -> dict[str, float]:
    """Memory a reader, the first hundred not counted: they pay for what is made once."""
    with served(start) as (server, load):
        load.ask("open", 100)
        before = server.resident()
        load.ask("open", IDLE)
        return {"kilobytes": (before - server.resident()) / (IDLE - 100) / 1024}


def best(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    """The least disturbed: the machine may have other things to do. What is better is greater."""
    return {each: max(found[each] for found in rounds) for each in rounds[0]}


@contextmanager
def served(start: Callable[[], Any]) -> Iterator[tuple[Server, Load]]:
    with ExitStack() as stack:
        with _on(SERVER_CORE):
            server = stack.enter_context(start())
        yield server, stack.enter_context(Load(server))


def main(rounds: int = ROUNDS) -> None:
    """Print the tables, and draw two of them."""
    raise_open_files()
    servers = dict(present())
    shown = servers | {"rsnotify, compressed": compressing_hub}
    sent = {readers: side_by_side(shown, partial(measure, readers), rounds) for readers in CHANGES}
    print_one_by_one(sent)
    busy = {
        readers: side_by_side(servers, partial(measure_busy, readers), rounds)
        for readers in BUSY_READERS
    }
    print_busy(busy)
    print(f"\n| idle, {IDLE:,} readers | KB a reader |\n|---|---|")
    for name, found in side_by_side(servers, measure_idle, rounds).items():
        print(f"| {name} | {-found['kilobytes']:.1f} |", flush=True)
    unit = "deliveries for each second of the server's processor time"
    save("channels", Chart("One change after another", unit, _core_seconds(sent)))
    save("busy", Chart("A busy channel", f"changes, {unit}", _core_seconds(busy)))


def raise_open_files() -> None:
    """To what is allowed at most; what is started inherits it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def print_one_by_one(sent: Found) -> None:
    print("| readers | server | deliveries/s | while sending | a core second | p50 ms | p99 ms |")
    print("|---|---|---|---|---|---|---|")
    _print_rows(
        sent,
        lambda found: (
            f"{found['a second']:,.0f} | {found['sending']:,.0f} "
            f"| {found['core second']:,.0f} | {-found['p50']:.2f} | {-found['p99']:.2f}"
        ),
    )


def print_busy(busy: Found) -> None:
    print("\n| busy, readers | server | changes published/s | delivered/s | a core second |")
    print("|---|---|---|---|---|")
    _print_rows(
        busy,
        lambda found: (
            f"{found['published']:,.0f} | {found['delivered']:,.0f} | {found['core second']:,.0f}"
        ),
    )


def _print_rows(measured: Found, cells: Callable[[dict[str, float]], str]) -> None:
    for readers, servers in measured.items():
        for name, found in servers.items():
            print(f"| {readers:,} | {name} | {cells(found)} |", flush=True)


def _core_seconds(measured: Found) -> dict[str, dict[str, float]]:
    return {
        f"{readers:,} reader{'s' * (readers > 1)}": {
            name: round(found["core second"]) for name, found in servers.items()
        }
        for readers, servers in measured.items()
    }


def present() -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "rsnotify", hub
    if NGINX_PATH and MODULE.exists():
        yield "nginx with nchan", nchan
    else:
        print("nchan is skipped: Debian has it as nginx and libnginx-mod-nchan\n")
    yield "starlette send_text", plain


def side_by_side(
    servers: dict[str, Callable[[], Any]],
    act: Callable[[Callable[[], Any]], dict[str, float]],
    rounds: int,
) -> dict[str, dict[str, float]]:
    """Each server in turn, several times over, so that all share the machine's moods."""
    found = [{name: act(start) for name, start in servers.items()} for _ in range(rounds)]
    return {name: best([each[name] for each in found]) for name in servers}


@contextmanager
def _on(core: int) -> Iterator[None]:
    """What is started here runs on this core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _process(port: int, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command) as process:
        try:
            while not _answers(port):
                if process.poll() is not None:
                    raise RuntimeError(f"{command} ended with {process.returncode}")
                sleep(0.05)
            yield process
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    with suppress(OSError), create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
