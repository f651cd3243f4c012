"""The units of docs/operations, run as systemd would confine them: by another user, with the system
calls and addresses that they name alone, and nothing to write in but their state."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple, Self
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from rsnotify_client import Outbox
from tests.evidence.soak import databases
from tests.support import postgresql
from tests.support.contained import contained, filtered
from tests.support.files import source_of_files
from tests.support.hub_processes import HubProcess, accept, eventually, scripted_hub
from tests.support.redis_server import free_port
from tests.support.running import TOKEN

FOLDER = Path(__file__).parents[2] / "docs/operations"
USER = 61_184  # the first that systemd gives by `DynamicUser=yes`
COMMAND = "/opt/rsnotify/bin/rsnotify "


class Unit(NamedTuple):
    """What a unit says, and where its state is."""

    text: str
    folder: Path

    @classmethod
    def read(cls, name: str, folder: Path) -> Self:
        text = (FOLDER / f"{name}.service").read_text()
        for expected in (
            "DynamicUser=yes",
            "NoNewPrivileges=yes",
            "ProtectSystem=strict",
            "SystemCallFilter=@system-service",
            "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
        ):
            assert f"\n{expected}\n" in text
        return cls(text.replace("/var/lib", str(folder)), folder)

    def all(self, name: str) -> list[str]:
        return re.findall(rf"(?m)^{name}=(.*)$", self.text)

    @property
    def state(self) -> Path | None:
        return next((self.folder / name for name in self.all("StateDirectory")), None)

    def start(self, **environment: str) -> "subprocess.Popen[bytes]":
        (line,) = self.all("ExecStart")
        given = dict(each.split("=", 1) for each in self.all("Environment"))
        words = [sys.executable, "-m", "rsnotify", *line.removeprefix(COMMAND).split()]
        command = [*contained(USER, self.state), *filtered("@system-service"), *words]
        clean = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ["PYTHONPATH"]}
        if self.state is not None and self.all("PrivateTmp") == ["yes"]:
            clean["TMPDIR"] = str(self.state)
        return subprocess.Popen(command, env=clean | given | environment, cwd="/")


@pytest.fixture
def folder() -> Iterator[Path]:
    """In the place of /var/lib."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def listening(folder: Path) -> Iterator[socket.socket]:
    """What systemd is told is heard here."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(folder / "notify"))
        (folder / "notify").chmod(0o777)
        heard.settimeout(60)
        yield heard


def until_ready(heard: socket.socket) -> None:
    while not heard.recv(4096).startswith(b"READY=1"):
        pass


def test_the_unit_of_the_hub_serves_with_a_redis_of_its_own_and_is_reloaded(folder):
    unit = Unit.read("rsnotify", folder)
    port = free_port()
    settings = {"RSNOTIFY_PORT": str(port), "RSNOTIFY_ADMIN_TOKEN": TOKEN}
    with (
        listening(folder) as heard,
        unit.start(NOTIFY_SOCKET=str(folder / "notify"), **settings) as hub,
    ):
        try:
            until_ready(heard)
            ask(port, "PUT", "sets/dataset1", b"{}")
            publish(port, "one")
            hub.send_signal(signal.SIGHUP)
            until_ready(heard)
            publish(port, "two")
        finally:
            hub.terminate()
    assert hub.returncode == 0
    assert unit.state is not None
    assert (unit.state / "appendonlydir").is_dir()


def publish(port: int, name: str) -> None:
    """Each worker learns of the set a moment after it was made with another."""
    change = {"loc": f"http://example.com/{name}", "change": "created"}
    body = json.dumps([change]).encode()
    eventually(lambda: ask(port, "POST", "sets/dataset1/changes", body) == 201, 60)


def ask(port: int, method: str, path: str, body: bytes) -> int:
    request = Request(f"http://127.0.0.1:{port}/api/{path}", body, method=method)
    request.add_header("Authorization", f"Bearer {TOKEN}")
    request.add_header("Content-Type", "application/json")
    try:
        with urlopen(request) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


def test_the_unit_of_the_relay_publishes_an_outbox_in_postgresql(folder):
    unit = Unit.read("rsnotify-relay", folder)
    with postgresql.running() as database, scripted_hub(accept) as (url, posted):
        databases.prepare(database)
        settings = {"RSNOTIFY_DATABASE": database, "RSNOTIFY_URL": url, "RSNOTIFY_TOKEN": TOKEN}
        assert all(f"#   {name}=" in unit.text for name in settings)
        with (
            listening(folder) as heard,
            unit.start(NOTIFY_SOCKET=str(folder / "notify"), **settings) as relay,
        ):
            try:
                until_ready(heard)
                with closing(databases.connect(database)) as connection:
                    Outbox().created(connection, "a", "1")
                    connection.commit()
                eventually(lambda: posted, 60)
            finally:
                relay.terminate()
        assert relay.returncode == 0
    assert [request.locs for request in posted] == [["1"]]


def test_the_units_of_a_mirror_and_of_its_audit_keep_a_copy_and_find_it_in_sync(folder, tmp_path):
    with source_of_files(tmp_path) as url:
        mirror, audit = (
            Unit(each.text.replace("http://example.com/", f"{url}/"), folder)
            for each in (Unit.read(f"rsnotify-{name}", folder) for name in ("mirror", "audit"))
        )
        with (
            listening(folder) as heard,
            mirror.start(NOTIFY_SOCKET=str(folder / "notify")) as following,
        ):
            try:
                until_ready(heard)
                copies = folder / "mirror/copy"
                eventually(lambda: [*copies.rglob("a.txt")], 60)
                with audit.start() as auditing:
                    assert auditing.wait() == 0
            finally:
                following.terminate()
        assert str(following.returncode) in mirror.all("SuccessExitStatus")
    assert "rsnotify" in (folder / "mirror/audit.prom").read_text()


def test_the_unit_of_bridges_publishes_what_a_site_lists_and_keeps_it(folder, tmp_path):
    unit = Unit.read("rsnotify-bridge", folder)
    config = folder / "bridges.toml"
    unit = unit._replace(text=unit.text.replace("/etc/rsnotify-bridges.toml", str(config)))
    with source_of_files(tmp_path) as url, HubProcess(folder / "hub", "dataset1") as hub:
        config.write_text(f'[[bridge]]\nfrom = "{url}/"\nset = "dataset1"\n')
        settings = {"RSNOTIFY_URL": hub.url, "RSNOTIFY_TOKEN": TOKEN}
        assert all(f"#   {name}=" in unit.text for name in settings)
        with (
            listening(folder) as heard,
            unit.start(NOTIFY_SOCKET=str(folder / "notify"), **settings) as bridge,
        ):
            try:
                until_ready(heard)
                eventually(lambda: resources_of(hub) == 1, 60)
            finally:
                bridge.terminate()
        assert str(bridge.returncode) in unit.all("SuccessExitStatus")
    assert unit.state is not None
    assert (unit.state / "bridge.db").is_file()


def resources_of(hub: HubProcess) -> int:
    with urlopen(f"{hub.url}/api/sets/dataset1/resources") as answer:
        return int(json.load(answer)["resources"])


def test_a_unit_that_makes_a_system_call_beyond_its_own_is_ended():
    """Else the tests above would show nothing."""
    code = "import os; os.chroot('/'); print('went on')"
    words = [*filtered("@system-service"), sys.executable, "-c", code]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (-signal.SIGSYS, "")


def test_a_unit_that_opens_a_socket_of_another_family_is_refused():
    code = "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)"
    words = [*filtered("@system-service"), sys.executable, "-c", code]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "Address family not supported by protocol" in ended.stderr
