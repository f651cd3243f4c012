"""A real Prometheus reads a hub and, by the node exporter, what its clients have written.

`test_operations.py` holds each alert to series that fire it and to series that do not.
"""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml

from rsnotify_client import Outbox
from tests.support.files import source_of_files
from tests.support.hub_processes import HubProcess, eventually
from tests.support.needs import need
from tests.support.redis_server import free_port
from tests.support.running import TOKEN, clean_environment

FOLDER = Path(__file__).parents[2] / "docs/operations"
PANELS = json.loads((FOLDER / "grafana.json").read_text())["panels"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
MAP = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{}</urlset>'


class Prometheus:
    """One that runs, and what it answers."""

    def __init__(self, url: str) -> None:
        self._url = url

    def is_ready(self) -> bool:
        with suppress(URLError), urlopen(f"{self._url}/-/ready") as answer:
            return bool(answer.status == 200)
        return False

    def ask(self, path: str, **query: str) -> Any:
        with urlopen(f"{self._url}/api/v1/{path}?{urlencode(query)}") as answer:
            return json.load(answer)["data"]

    def values(self, expression: str) -> list[Any]:
        return list(self.ask("query", query=expression.replace("$instance", ".*"))["result"])


@contextmanager
def running(*words: str) -> Iterator[None]:
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


@contextmanager
def prometheus(folder: Path, hub: HubProcess, files: Path) -> Iterator[Prometheus]:
    """It scrapes the hub, and a node exporter that shows these files."""
    mine, of_node = (f"127.0.0.1:{free_port()}" for _ in range(2))
    jobs = {"rsnotify": hub.url.partition("://")[2], "node": of_node}
    scraped = [
        {"job_name": name, "static_configs": [{"targets": [target]}]}
        for name, target in jobs.items()
    ]
    (folder / "prometheus.yml").write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(FOLDER / "alerts.yml")],
                "scrape_configs": scraped,
            }
        )
    )
    exporter = (
        need("prometheus-node-exporter"),
        *("--collector.disable-defaults", "--collector.textfile"),
        *(f"--collector.textfile.directory={files}", f"--web.listen-address={of_node}"),
    )
    server = (
        need("prometheus"),
        *(f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"),
        f"--web.listen-address={mine}",
    )
    with running(*exporter), running(*server):
        found = Prometheus(f"http://{mine}")
        eventually(found.is_ready, 60)
        yield found


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Of a hub, a mirror and its audit, a bridge, and two relays, which all have done something."""
    need("prometheus")
    need("prometheus-node-exporter")
    folder = tmp_path_factory.mktemp("watched")
    files = folder / "files"
    files.mkdir()
    with HubProcess(folder / "data", "dataset1", "bridged") as hub:
        publish_and_back_up(hub, folder)
        mirror_and_bridge(hub, folder, files)
        for name in ("one", "two"):
            relay(hub, f"sqlite:///{folder}/{name}.db", files / f"{name}.prom")
        with prometheus(folder, hub, files) as found:
            yield found


def rsnotify(hub: HubProcess, *words: str) -> None:
    environment = clean_environment() | {"RSNOTIFY_URL": hub.url, "RSNOTIFY_TOKEN": TOKEN}
    command = [sys.executable, "-m", "rsnotify", *words]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def publish_and_back_up(hub: HubProcess, folder: Path) -> None:
    rsnotify(hub, "publish", "dataset1", "http://example.com/1")
    rsnotify(hub, "sets", "snapshot", "dataset1")
    rsnotify(hub, "backup", str(folder / "backup"), "--data", str(folder / "data"))


def mirror_and_bridge(hub: HubProcess, folder: Path, files: Path) -> None:
    site, copy = folder / "site", str(folder / "copy")
    site.mkdir()
    with source_of_files(site) as url:
        rsnotify(hub, "mirror", url, copy, "--once", "--metrics", f"{files}/mirror.prom")
        rsnotify(hub, "audit", url, copy, "--metrics", f"{files}/audit.prom")
        for count in (1, 2):  # the first is loaded, the second is a change
            locs = "".join(f"<url><loc>{url}/{each}</loc></url>" for each in range(count))
            (site / "map.xml").write_text(MAP.format(locs))
            kept = ("--state", f"{folder}/bridge.db", "--metrics", f"{files}/bridge.prom")
            rsnotify(hub, "bridge", f"{url}/map.xml", "bridged", "--once", *kept)


def relay(hub: HubProcess, database: str, numbers: Path) -> None:
    """Until it has published a change; another waits that nobody publishes."""
    with closing(sqlite3.connect(database.removeprefix("sqlite:///"))) as connection:
        Outbox.create(connection)
        Outbox().created(connection, "dataset1", f"http://example.com/{numbers.stem}")
        connection.commit()
        environment = clean_environment() | {"RSNOTIFY_URL": hub.url, "RSNOTIFY_TOKEN": TOKEN}
        words = ("relay", "--database", database, "--metrics", str(numbers))
        command = [sys.executable, "-m", "rsnotify", *words]
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
            eventually(lambda: ("created", numbers.stem) in hub.told(), 60)
            process.terminate()
    assert process.returncode == 0


@pytest.mark.parametrize("expression", dict.fromkeys(EXPRESSIONS))
def test_a_panel_shows_data(watched, expression):
    eventually(lambda: watched.values(expression), 60)


def test_each_rule_is_evaluated_and_what_is_well_fires_none(watched):
    eventually(lambda: watched.values("rsnotify_mirror_in_step"), 60)

    def rules() -> list[Any]:
        found = watched.ask("rules", type="alert")["groups"]
        return [rule for group in found for rule in group["rules"]]

    eventually(lambda: rules() and all(rule["health"] != "unknown" for rule in rules()), 60)
    assert {rule["health"] for rule in rules()} == {"ok"}
    assert [rule["name"] for rule in rules() if rule["state"] == "firing"] == []


def test_the_numbers_of_two_relays_stand_beside_each_other(watched):
    """The node exporter takes no two series that are the same, whatever files they are in."""
    eventually(lambda: len(watched.values("rsnotify_relay_published_total == 1")) == 2, 60)
    assert [each["value"][1] for each in watched.values("node_textfile_scrape_error")] == ["0"]
