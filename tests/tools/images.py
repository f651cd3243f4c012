"""Build the image, start docker-compose.yml, use it and break it; this is `make images`.

Then docs/operations/compose-clients.yml runs beside it: its relay for a PostgreSQL, its mirror of a
Source that is a folder of files.

    python -m tests.tools.images

It needs docker, or podman with `COMPOSE=podman-compose`. For a minute or two it takes the ports 80,
443 and 8080 of this machine. What it makes is removed at the end, except for the images.
"""

import os
import secrets
import shlex
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path
from time import monotonic, sleep

from rsnotify_client import Outbox
from tests.support.files import write_source

ROOT = Path(__file__).parents[2]
PROJECT = "rsnotify-images"
COMPOSE = [*shlex.split(os.environ.get("COMPOSE", "docker compose")), "-p", PROJECT]
CLIENTS = ["-p", f"{PROJECT}-clients", "-f", "docs/operations/compose-clients.yml"]
RSNOTIFY = [sys.executable, "-m", "rsnotify"]
HUB = "https://localhost"
SET = "dataset1"
CHANNEL = f"/channels/{SET}/change_notification_channel"
BEGIN = "2000-01-01T00:00:00Z"
AUTHORITY = "/data/caddy/pki/authorities/local/root.crt"  # of Caddy, which signs for localhost
STOP_SECONDS = 30.0
BESIDE_CLIENTS = """
services:
  db:
    image: postgres:17.6
    environment: {{POSTGRES_USER: app, POSTGRES_PASSWORD: app}}
    healthcheck: {{test: [CMD, pg_isready, -h, 127.0.0.1, -U, app], interval: 1s, retries: 60}}
  source:
    image: caddy:2.10.2
    command: [caddy, file-server, --root, /srv]
    volumes: ["{folder}/source:/srv:ro"]
  mirror:
    volumes: ["{folder}/copy:/copy"]
networks:
  default: {{name: {project}_default, external: true}}
"""


class Deployment:
    """What docker-compose.yml starts, as its operator and its users see it."""

    def __init__(self, folder: Path) -> None:
        token = secrets.token_hex(32)
        self._authority = folder / "root.crt"
        self._environment = os.environ | {
            "SITE": "localhost",
            "RSNOTIFY_ADMIN_TOKEN": token,
            "RSNOTIFY_TOKEN": token,
            "RSNOTIFY_URL": HUB,
            "SSL_CERT_FILE": str(self._authority),
        }

    def run(self, *words: str, **more: str) -> str:
        whole = {"cwd": ROOT, "env": self._environment | more, "text": True}
        return subprocess.run(words, check=True, stdout=subprocess.PIPE, **whole).stdout

    # --- what an operator does -------------------------------------------------------------------

    def compose(self, *words: str) -> str:
        return self.run(*COMPOSE, *words)

    def start(self) -> None:
        self.compose("up", "--build", "--detach")
        until(self.has_authority)
        until(self.is_ready)
        self.run(*RSNOTIFY, "sets", "add", SET)

    def kill(self, service: str) -> None:
        self.compose("kill", "-s", "KILL", service)
        self.compose("up", "--detach")
        until(self.is_ready)

    def seconds_to_stop(self) -> float:
        began = monotonic()
        self.compose("stop", "hub")
        return monotonic() - began

    def has_authority(self) -> bool:
        try:
            self._authority.write_text(self.compose("exec", "-T", "caddy", "cat", AUTHORITY))
        except subprocess.CalledProcessError:
            return False
        return True

    def is_ready(self) -> bool:
        try:
            with self.asked("/health/ready"):
                return True
        except OSError:
            return False

    # --- what others do, through Caddy -----------------------------------------------------------

    def publish(self, *locs: str) -> None:
        self.run(*RSNOTIFY, "publish", SET, *locs)

    @contextmanager
    def following(self, count: int) -> Iterator[Callable[[], list[str]]]:
        """A reader that comes back by itself; hands out what waits for its changes."""
        words = [*RSNOTIFY, "subscribe", SET, "--position", BEGIN, "--count", str(count)]
        whole = {"env": self._environment, "text": True}
        with subprocess.Popen(words, stdout=subprocess.PIPE, **whole) as reader:
            try:
                yield lambda: [line.split()[-1] for line in reader.stdout]
            finally:
                reader.kill()

    def asked(self, path: str, accept: str = "*/*") -> HTTPResponse:
        trusted = ssl.create_default_context(cafile=self._authority)
        request = urllib.request.Request(HUB + path, headers={"Accept": accept})
        return urllib.request.urlopen(request, timeout=30, context=trusted)

    def event(self, loc: str) -> bytes:
        """The event of this change, in an event stream."""
        with self.asked(f"{CHANNEL}?from={BEGIN}", "text/event-stream") as stream:
            return next(line for line in stream if loc.encode() in line)


class Clients:
    """What compose-clients.yml starts, in the network of a deployment."""

    def __init__(self, deployment: Deployment, folder: Path) -> None:
        self._deployment = deployment
        self._folder = folder
        self._beside = folder / "beside-clients.yml"
        self._beside.write_text(BESIDE_CLIENTS.format(folder=folder, project=PROJECT))
        self._environment = {
            "RSNOTIFY_URL": "http://hub:8080",
            "SOURCE": "http://source/",
            "MIRROR_USER": f"{os.getuid()}:{os.getgid()}",
        }

    def compose(self, *words: str) -> str:
        engine = COMPOSE[: COMPOSE.index("-p")]
        files = [*CLIENTS, "-f", str(self._beside)]
        return self._deployment.run(*engine, *files, *words, **self._environment)

    def relay(self, loc: str) -> None:
        """Start it; it publishes what is in the database."""
        self.compose("up", "--detach", "--wait", "db")
        row = f"""INSERT INTO rsnotify_outbox (set_name, body)
            VALUES ('{SET}', '{{"loc":"{loc}","change":"created"}}')"""
        for statement in (Outbox.sql("postgresql"), row):
            self.compose("exec", "-T", "db", "psql", "-U", "app", "-c", statement)
        self.compose("up", "--build", "--detach", "relay")
        self._deployment.event(loc)

    def mirror(self) -> None:
        """Start it; it has a copy of the Source's one file."""
        source, copy = self._folder / "source", self._folder / "copy"
        write_source(source, "http://source")
        copy.mkdir()
        self.compose("up", "--build", "--detach", "source", "mirror")
        until(lambda: any(path.name == "a.txt" for path in copy.rglob("*.txt")))


def until(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = monotonic() + seconds
    while not condition():
        if monotonic() > end:
            raise TimeoutError(f"{condition.__name__}: not within {seconds:.0f} s")
        sleep(0.2)


def use(deployment: Deployment) -> None:
    """Publish, follow and read; kill the hub, then Valkey: nothing is lost or told twice."""
    locs = [f"http://example.com/res{number}" for number in range(300)]
    with deployment.following(len(locs)) as followed:
        deployment.publish(*locs[:100])
        say("100 changes are published through Caddy, with TLS")
        assert deployment.event(locs[99])
        say("an event stream tells them")
        deployment.kill("hub")
        deployment.publish(*locs[100:200])
        say("the hub was killed, and serves again")
        deployment.kill("redis")
        deployment.publish(*locs[200:])
        say("Valkey was killed, and the hub goes on with it")
        assert followed() == locs
        say("one WebSocket reader got all 300 changes once, in order")
    with deployment.asked(f"/{SET}/changelist.xml") as document:
        text = document.read().decode()
        assert all(f"<loc>{loc}</loc>" in text for loc in locs)
    say("the Change List has them all")


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        deployment = Deployment(Path(folder))
        try:
            deployment.start()
            say("the image is built, and the hub is ready behind Caddy")
            use(deployment)
            clients = Clients(deployment, Path(folder))
            try:
                clients.relay("http://example.com/relayed")
                say("a relay published what is in PostgreSQL")
                clients.mirror()
                say("a mirror has a copy")
            finally:
                clients.compose("down", "--volumes")
            with deployment.asked(CHANNEL, "text/event-stream") as stream:
                seconds = deployment.seconds_to_stop()
                assert stream.read(), "the stream was broken off"
            assert seconds < STOP_SECONDS, seconds
            say(f"the hub stopped within {seconds:.1f} s, while it was read")
        finally:
            deployment.compose("down", "--volumes")


if __name__ == "__main__":
    main()
