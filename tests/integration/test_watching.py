"""What a running hub tells those who watch it."""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from time import time
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request

from rsnotify import __version__
from rsnotify.access.access import Access
from rsnotify.access.tokens import Tokens
from rsnotify.coordination.bell import Bell
from rsnotify.journal.journal_store import JournalStore
from rsnotify.live.journals import Journals
from rsnotify.operation.machine import FILES
from rsnotify.operation.metrics import METRICS, Metrics, shown_names
from rsnotify.operation.reports import Identity, Peers, Report
from rsnotify.operation.status import Overview, SetNumbers
from rsnotify.redis_client import connect
from rsnotify.sets.options import SetOptions
from rsnotify.sets.records import Sets
from tests.support.receivers import Receiver, has, subscribe
from tests.support.running import TOKEN, RunningHub, rsnotify, until

DOCS = Path(__file__).parents[2] / "docs"
Numbers = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def metrics(hub: RunningHub, token: str | None = None) -> tuple[int, Numbers]:
    """The status, and each number by its name and labels."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"{hub.url}/metrics") as answer,
    ):
        families = text_string_to_metric_families(await answer.text()) if answer.ok else ()
        found = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }
        return answer.status, found


def total(numbers: Numbers, name: str, **labels: str) -> float:
    wanted = set(labels.items())
    return sum(number for (each, its), number in numbers.items() if each == name and wanted <= its)


async def test_what_passes_through_the_hub_stands_in_its_metrics(tmp_path):
    hub = RunningHub(tmp_path / "data", callback_private="allow", sets=("dataset1", "secret"))
    async with hub, Receiver() as receiver, aiohttp.ClientSession() as session:
        await hub.ask("PATCH", "/api/sets/secret", json={"private": True})
        await subscribe(hub, receiver)
        async with session.ws_connect(hub.channel()) as reader:
            await hub.publish("http://example.com/1", "http://example.com/2")
            await reader.receive()
            await has(receiver, 1)
            refused = await session.post(f"{hub.url}/api/sets/dataset1/changes", data=b"{}")
            assert refused.status == 401
            await until(lambda: told(hub, 'rsnotify_websub_subscribers{place="up to date"', 1))
            status, numbers = await metrics(hub)
            assert status == 200
            assert total(numbers, "rsnotify_changes_accepted_total", kind="change") == 2
            assert total(numbers, "rsnotify_publishes_refused_total", status="401") == 1
            assert total(numbers, "rsnotify_append_seconds_count") >= 1
            assert total(numbers, "rsnotify_readers", set="dataset1", kind="change") == 1
            assert total(numbers, "rsnotify_notifications_sent_total") == 1
            assert total(numbers, "rsnotify_sent_bytes_total") > 100
            assert total(numbers, "rsnotify_websub_deliveries_total", outcome="delivered") == 1
            assert total(numbers, "rsnotify_journal_changes", set="dataset1") == 2
            assert total(numbers, "rsnotify_ready", worker="1") == 1
            await check_status(hub)
            await check_private_sets(hub)
        await until(lambda: is_read_by_nobody(hub))


async def told(hub: RunningHub, begins: str, number: float) -> bool:
    """Whether a line of the metrics begins so and ends with this number."""
    async with aiohttp.ClientSession() as session, session.get(f"{hub.url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return any(line.startswith(begins) and float(line.split()[-1]) == number for line in lines)


async def is_read_by_nobody(hub: RunningHub) -> bool:
    """Whether no row tells of readers."""
    _, numbers = await metrics(hub)
    return not any(name == "rsnotify_readers" for name, _ in numbers)


async def check_status(hub: RunningHub) -> None:
    _, status = await hub.ask("GET", "/api/status")
    (first, _) = status["sets"]
    assert (first["name"], first["changes"], status["ready"]) == ("dataset1", 2, True)
    assert first["channels"][0]["readers"] == {"websocket": 1, "event stream": 0, "long poll": 0}
    assert status["websub"]["subscribers"]["up to date"] == 1
    assert len(status["processes"]) == 1


async def check_private_sets(hub: RunningHub) -> None:
    """Only the admin is told of them, and of WebSub."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{hub.url}/api/status") as status,
        session.get(f"{hub.url}/metrics") as public,
    ):
        content = await status.json()
        assert [each["name"] for each in content["sets"]] == ["dataset1"]
        assert not {"websub", "processes"} & content.keys()
        assert "secret" not in await public.text()
    _, everything = await metrics(hub, TOKEN)
    assert total(everything, "rsnotify_journal_changes", set="secret") == 0
    assert any(("set", "secret") in labels for _, labels in everything)


async def test_what_a_set_takes_of_redis_and_may_take_is_told(tmp_path):
    async with RunningHub(tmp_path / "data", sets=("dataset1", "small")) as hub:

        async def taken(name: str) -> tuple[int, int | None]:
            (found,) = (await hub.ask("GET", f"/api/status?name={name}"))[1]["sets"]
            return found["bytes"], found["max_bytes"]

        assert (await taken("dataset1"))[1] is None  # its Redis has no maxmemory
        await hub.ask("PATCH", "/api/sets/small", json={"max_bytes": 2**20})
        assert (await taken("small"))[1] == 2**20
        before = (await taken("dataset1"))[0]
        await hub.publish("http://example.com/1", "http://example.com/2")
        assert (await taken("dataset1"))[0] > before + 200
        numbers = (await metrics(hub))[1]
        named = ("rsnotify_set_memory_bytes", "rsnotify_set_memory_limit_bytes")
        found = [
            [total(numbers, name, set=each) for name in named] for each in ("dataset1", "small")
        ]
        assert found[0][0] > before + 200
        assert [limit for _, limit in found] == [0, 2**20]


async def test_a_bounded_redis_gives_each_set_half_of_it(tmp_path, own_redis):
    await own_redis.client.config_set("maxmemory", 10 * 2**20)
    async with RunningHub(tmp_path / "data", "--redis", own_redis.url) as hub:

        async def is_half() -> bool:  # once the hub has looked at it
            (found,) = (await hub.ask("GET", "/api/status"))[1]["sets"]
            return found["max_bytes"] == 5 * 2**20

        await until(is_half)


class Telling:
    """A process that has a reader in each of these sets."""

    identity = Identity("here:1", 1, 0.0)

    def __init__(self, *names: str) -> None:
        self._rows = [((name, "change", "frame"), 1.0) for name in names]

    def report(self) -> Report:
        return Report(self.identity, {"rsnotify_readers": [*self._rows]}, {})


class SlowOverview(Overview):
    """While it reads, one set turns private, and another is made that was so from the beginning."""

    hub: Journals

    async def of(self, set_names: Sequence[str]) -> dict[str, SetNumbers]:
        found = await super().of(set_names)
        await self.hub.edit_set("turned", {"private": True})
        await self.hub.add_set("made", SetOptions(private=True))
        return found


@pytest.mark.parametrize(
    ("sent", "told"),
    [(None, {"open"}), ("the-admin-token", {"open", "turned", "made", "unknown"})],
)
async def test_only_sets_that_are_public_in_the_end_are_told_of_to_everybody(client, sent, told):
    """Another process may have readers in a set that this one does not know yet."""
    bell: Any = Bell(connect("redis://none"))
    hub = Journals(
        JournalStore(client, window_changes=100), Sets(client), bell, base_url="http://h"
    )
    for name in ("open", "turned"):
        await hub.add_set(name)
    overview = SlowOverview(client)
    overview.hub = hub
    nothing: Any = None
    this: Any = Telling("open", "turned", "made", "unknown")
    access = Access(Tokens(client), "the-admin-token")
    watched = Metrics(hub, access, Peers(this, nothing, bell), overview, token=None)
    headers = [(b"authorization", f"Bearer {sent}".encode())] if sent else []
    scope = {"type": "http", "headers": headers, "query_string": b"", "client": ("c", 1)}
    answer = (await watched.get(Request(scope))).body
    assert set(re.findall(r'set="(\w+)"', bytes(answer).decode())) == told


@pytest.mark.evidence
async def test_any_worker_tells_of_all_and_a_token_may_be_asked_for(tmp_path):
    options = {"metrics_token": "the-token-of-prometheus"}
    async with RunningHub(tmp_path / "data", "--workers", "2", **options) as hub:
        assert (await metrics(hub))[0] == 401
        assert (await metrics(hub, "another-token"))[0] == 401

        async def both() -> bool:
            _, numbers = await metrics(hub, options["metrics_token"])
            return total(numbers, "rsnotify_ready") == 2

        await until(both)
        for number in range(8):  # over connections of their own, so that both workers get some
            await hub.publish(f"http://example.com/{number}")

        async def all_of_it() -> bool:
            _, numbers = await metrics(hub, options["metrics_token"])
            return total(numbers, "rsnotify_changes_accepted_total", kind="change") == 8

        await until(all_of_it)


async def test_a_redis_that_takes_no_write_makes_the_hub_unready_and_says_why(tmp_path, own_redis):
    async with RunningHub(tmp_path / "data", "--redis", own_redis.url) as hub:
        assert (await hub.ask("GET", "/health/ready"))[0] == 200
        await own_redis.client.config_set("min-replicas-to-write", 1)

        async def unready() -> bool:  # a slow machine's hub may say something else before
            status, answer = await hub.ask("GET", "/health/ready")
            return status == 503 and "too few replicas" in answer["detail"]

        await until(unready)
        assert (await hub.ask("GET", "/health/live"))[0] == 200
        status, told = await hub.ask("GET", "/api/status")
        assert (status, told["ready"]) == (200, False)
        await own_redis.client.config_set("min-replicas-to-write", 0)

        async def ready() -> bool:
            return (await hub.ask("GET", "/health/ready"))[0] == 200

        await until(ready)
        assert "publishing works again after" in hub.log.read_text()


async def test_every_metric_of_the_table_is_shown(hub):
    await hub.publish("http://example.com/1")
    async with aiohttp.ClientSession() as session, session.get(f"{hub.url}/metrics") as answer:
        shown = {family.name for family in text_string_to_metric_families(await answer.text())}
    assert shown == METRICS.keys()


async def test_each_request_is_logged_without_its_token_if_that_is_wanted(tmp_path):
    settings = {"log": "json", "access_log": "on", "trusted_proxies": "127.0.0.1"}
    async with RunningHub(tmp_path / "data", **settings) as hub:
        headers = {"X-Forwarded-For": "192.0.2.7"}
        await hub.ask(
            "GET", "/dataset1/capabilitylist.xml?access_token=rsn_secret", headers=headers
        )
        async with aiohttp.ClientSession() as session, session.ws_connect(hub.channel()):
            pass
    log = hub.log.read_text()
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    told = [line["message"] for line in lines if line["room"] == "rsnotify.access_log"]
    assert re.fullmatch(r"192\.0\.2\.7 GET /dataset1/capabilitylist\.xml 200 [\d.]+ ms", told[0])
    assert re.fullmatch(r"127\.0\.0\.1 WEBSOCKET /channels/\S+ 101 [\d.]+ ms", told[1])
    assert "secret" not in log
    assert TOKEN not in log


async def test_what_an_operator_sizes_by_is_told_of_a_hub_that_was_just_started(hub):
    async def known() -> Numbers:
        _, numbers = await metrics(hub, TOKEN)
        return numbers if total(numbers, "rsnotify_redis_memory_bytes") else {}

    found = await until(known)  # as soon as Redis was looked at
    assert total(found, "rsnotify_build_info", version=__version__) == 1
    assert total(found, "rsnotify_cpu_seconds_total") > 0
    assert total(found, "rsnotify_redis_memory_limit_bytes") == 0
    assert total(found, "rsnotify_redis_machine_memory_bytes") > 100_000_000
    assert total(found, "rsnotify_disk_bytes") > total(found, "rsnotify_disk_free_bytes") > 0
    assert total(found, "rsnotify_open_files_limit") > 100
    refused = [dict(labels) for name, labels in found if name == "rsnotify_publishes_refused_total"]
    assert {"status": "401", "worker": "1"} in refused
    if sys.platform == "linux":
        assert total(found, "rsnotify_resident_memory_bytes") > 20_000_000
        assert total(found, "rsnotify_open_files") > 5 or not FILES.stat().st_size


# A channel that nobody reads has no sample: 10,000 sets would have 40,000 for each worker.
OF_CHANNELS = {
    *("rsnotify_readers", "rsnotify_readers_behind", "rsnotify_readers_behind_seconds"),
    "rsnotify_last_gap_timestamp_seconds",
}
OF_LINUX = {"rsnotify_resident_memory_bytes", "rsnotify_open_files"}
# What has never happened has no age, and its panel says so.
AGES = {
    *("Age of the Resource List", "Age of the last backup"),
    *("Mirrors: since they were in step", "Bridges: since the Source was read, looked at, changed"),
}


async def test_a_fresh_hub_shows_every_panel_something(hub, tmp_path):
    """A number that begins when something happens is one that no alert can wait for."""

    async def is_whole() -> bool:  # WebSub begins a moment after the hub answers
        there = {name for name, _ in (await metrics(hub))[1]}
        shown = {each for name in METRICS for each in shown_names(name)}
        return shown - OF_CHANNELS - OF_LINUX <= there

    await until(is_whole)
    panels = json.loads((DOCS / "operations/grafana.json").read_text())["panels"]
    assert {panel["title"] for panel in panels if "noValue" in str(panel)} == AGES
    for panel in panels:
        for expression in [each["expr"] for each in panel["targets"]]:
            if OF_CHANNELS & set(re.findall(r"\brsnotify_\w+", expression)):
                assert expression.endswith("or vector(0)")
            assert ("> 0)" in expression) == (panel["title"] in AGES)
    numbers = (await metrics(hub))[1]
    for name in ("rsnotify_notifications_sent_total", "rsnotify_websub_deliveries_total"):
        assert total(numbers, name) == 0
    for name in ("rsnotify_snapshot_resources", "rsnotify_snapshot_timestamp_seconds"):
        assert total(numbers, name, set="dataset1") == 0
    assert total(numbers, "rsnotify_last_backup_timestamp_seconds") == 0
    ended = await rsnotify("backup", str(tmp_path / "file"), "--data", str(hub.data))
    assert ended.status == 0, ended

    async def is_backed_up() -> bool:
        found = (await metrics(hub))[1]
        return total(found, "rsnotify_last_backup_timestamp_seconds") > time() - 3_600

    await until(is_backed_up)
