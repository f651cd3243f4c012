"""Channels measured: many readers, a busy channel, idle readers; beside nchan and starlette.

The server has one core and the load the other; everything is measured in one run, by one load.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from socket import create_connection, socket
from time import sleep
from typing import Any

from tests.running import TOKEN, RunningHub

READERS = (1, 100, 1_000, 5_000)
CHANGES = {1: 2_000, 100: 1_000, 1_000: 300, 5_000: 60}
BUSY_READERS, BUSY_SECONDS, PUBLISHERS = 1_000, 5.0, 16
IDLE = 10_000
NOTIFICATION_BYTES = 440

CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, LOAD_CORE = CORES[0], CORES[-1]

NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
load_module {module};
events {{ worker_connections 20000; }}
http {{
  access_log off; client_body_temp_path {folder}/body;
  nchan_max_reserved_memory 256M; keepalive_requests 100000000;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location = /channel {{ nchan_subscriber websocket; nchan_channel_id c; }}
    location = /publish {{
      nchan_publisher; nchan_channel_id c; nchan_message_buffer_length 10000;
    }}
  }}
}}
"""
MODULE = Path("/usr/lib/nginx/modules/ngx_nchan_module.so")

Target = dict[str, Any]


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
def nchan() -> Iterator[Server]:
    nginx = shutil.which("nginx") or "/usr/sbin/nginx"
    if not (MODULE.exists() and Path(nginx).exists()):
        raise FileNotFoundError("nginx with nchan is not installed")
    with tempfile.TemporaryDirectory() as folder:
        port = _free_port()
        config = Path(folder) / "nginx.conf"
        config.write_text(NGINX.format(folder=folder, module=MODULE, port=port))
        with _process(port, nginx, "-c", str(config), "-p", folder) as process:
            yield Server(_target(port, "/channel", "/publish", _children(process.pid)))


@contextmanager
def plain() -> Iterator[Server]:
    port = _free_port()
    with _process(port, sys.executable, "-m", "tests.bench.plain", str(port)) as process:
        yield Server(_target(port, "/channel", "/publish", [process.pid]))


def _target(
    port: int, channel: str, publish: str, pids: list[int], *, body: str = "", headers: str = ""
) -> Target:
    return {
        "host": "127.0.0.1",
        "port": port,
        "channel": channel,
        "publish": publish,
        "pids": pids,
        "body": body or "zzzNUMBER".ljust(NOTIFICATION_BYTES - 1, "x"),
        "headers": headers or "Content-Type: application/xml\r\n",
    }


class Load:
    """The load program on its own core."""

    def __init__(self, server: Server) -> None:
        with _on(LOAD_CORE):
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.bench.readers"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
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


def measure(start: Callable[[], Any]) -> dict[str, Any]:
    """All figures of one server."""
    figures: dict[str, Any] = {}
    for readers in READERS:
        with _running(start) as (_, load):
            load.ask("open", readers)
            figures[f"{readers}"] = load.ask("one_by_one", CHANGES[readers])
    with _running(start) as (_, load):
        load.ask("open", BUSY_READERS)
        figures["busy"] = load.ask("busy", BUSY_SECONDS, PUBLISHERS)
    with _running(start) as (server, load):
        load.ask("open", 100)
        before = server.resident()
        load.ask("open", IDLE)
        figures["idle"] = (server.resident() - before) / (IDLE - 100)
    return figures


@contextmanager
def _running(start: Callable[[], Any]) -> Iterator[tuple[Server, Load]]:
    with ExitStack() as stack:
        with _on(SERVER_CORE):
            server = stack.enter_context(start())
        yield server, stack.enter_context(Load(server))


def report(name: str, figures: dict[str, Any]) -> None:
    for readers in READERS:
        found = figures[str(readers)]
        per_second = found["deliveries"] / found["seconds"]
        per_core = found["deliveries"] / found["cpu_seconds"] if found["cpu_seconds"] else 0
        print(
            f"| {name} | {readers:,} | {per_second:,.0f} | {per_core:,.0f} "
            f"| {found['p50_ms']:.2f} | {found['p99_ms']:.2f} |"
        )
    busy = figures["busy"]
    print(
        f"{name}, busy: {busy['published'] / busy['seconds']:,.0f} changes/s published, "
        f"{busy['delivered'] / busy['seconds']:,.0f} changes/s delivered to {BUSY_READERS:,}"
    )
    print(f"{name}, idle: {figures['idle'] / 1024:.1f} KB a reader at {IDLE:,}", flush=True)


def main() -> None:
    print("| server | readers | deliveries/s | a core second | p50 ms | p99 ms |")
    print("|---|---|---|---|---|---|")
    chosen = os.environ.get("BENCH_SERVERS", "hub nchan plain").split()
    for name in chosen:
        try:
            report(name, measure({"hub": hub, "nchan": nchan, "plain": plain}[name]))
        except FileNotFoundError as absent:
            print(f"{name} skipped: {absent}")


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


def _free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
