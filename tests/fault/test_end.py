"""The end of a hub: it comes, whatever swallows a cancellation, and takes its Redis with it."""

import asyncio
import json
import re
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rsnotify.errors import InvalidSettings
from rsnotify.process import workers
from rsnotify.process.listening import bound_socket
from rsnotify.process.settings import Settings
from rsnotify.process.webserver import GRACE_SECONDS
from tests.support.running import RunningHub

ENDS = r"(\w+): the hub ends, and lets (\d+ \w+) go, until 20[-\dT:]+Z at the latest"
DEAF = ("-m", "tests.fault.deaf")


class DeafHub(RunningHub):
    """A hub whose tasks each swallow one cancellation."""

    program = DEAF


def redis_is_gone(data: Path) -> bool:
    pid = int((data / "redis.lock").read_text())
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.evidence
async def test_a_hub_whose_tasks_each_swallow_a_cancellation_ends_in_good_order(tmp_path):
    hub = DeafHub(tmp_path / "data", drain_seconds="0")
    await hub.start()
    await hub.publish("http://example.com/1")
    assert await hub.stop() == 0
    assert "did not end" not in hub.log.read_text()
    assert redis_is_gone(hub.data)


@pytest.mark.evidence
async def test_a_loop_that_never_hears_is_named_and_the_process_goes_without_it(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("DEAF_LOOP", "yes")
    hub = DeafHub(tmp_path / "data", drain_seconds="0")
    await hub.start()
    assert await hub.stop() == 1
    assert "'listen to the bell' did not end" in hub.log.read_text()
    assert redis_is_gone(hub.data)


@pytest.mark.parametrize(
    ("asked", "options", "let_go"),
    [
        (signal.SIGTERM, (), ["1 connection"]),
        (signal.SIGINT, (), ["1 connection"]),
        pytest.param(
            *(signal.SIGTERM, ("--workers", "2"), ["2 workers", "0 connections", "1 connection"]),
            marks=pytest.mark.evidence,
        ),
    ],
)
async def test_a_hub_that_is_asked_to_end_says_so_and_at_last_that_it_has_ended(
    tmp_path, asked, options, let_go
):
    hub = RunningHub(tmp_path / "data", *options, drain_seconds="0")
    await hub.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", hub.port)
    writer.write(b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    hub.process.send_signal(asked)
    assert await hub.process.wait() == 0
    writer.close()
    lines = hub.log.read_text().splitlines()
    said = [found.groups() for line in lines if (found := re.search(ENDS, line))]
    assert said[0] == (asked.name, let_go[0])
    assert sorted(what for _, what in said) == sorted(let_go)
    assert len([line for line in lines if line.endswith(" the hub has ended")]) == len(let_go)
    assert lines[-1].endswith(" the hub has ended")


async def test_the_end_of_a_hub_has_fields_in_a_log_of_json(tmp_path):
    hub = RunningHub(tmp_path / "data", drain_seconds="0", log="json")
    await hub.start()
    began = datetime.now(UTC)
    assert await hub.stop() == 0
    *_, begins, ended = map(json.loads, hub.log.read_text().splitlines())
    assert (begins["signal"], begins["connections"]) == ("SIGTERM", 0)
    most = timedelta(seconds=GRACE_SECONDS)
    assert datetime.fromisoformat(begins["until"]) > began + most - timedelta(seconds=1)
    assert ended["message"] == "the hub has ended"


STUCK = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('rsnotify ready')
time.sleep(99)
"""


@pytest.mark.evidence
async def test_a_worker_that_is_stuck_for_good_is_killed(caplog):
    command = [sys.executable, "-u", "-c", STUCK]
    settings = Settings(workers=2, drain_seconds=0)
    ready: list[str] = []

    def end() -> None:
        ready.append("ready")
        signal.raise_signal(signal.SIGTERM)

    with await bound_socket(Settings(port=0), None) as bound:
        await workers.run_workers(
            settings, [], "redis://nowhere", bound, end, command=command, kill_seconds=0.1
        )
    assert ready == ["ready"]
    assert len([text for text in caplog.messages if "does not end" in text]) == 2


async def test_a_port_that_a_killed_hub_still_holds_is_waited_for(caplog):
    """A worker that was just starting notices late that its parent was killed."""
    with await bound_socket(Settings(port=0), None) as held:
        held.listen()
        settings = Settings(port=held.getsockname()[1])
        with pytest.raises(InvalidSettings, match="already in use; choose another"):
            await bound_socket(settings, None, taken_seconds=0.2)
        assert len(caplog.messages) == 1
        assert "is in use; waiting up to" in caplog.text
        waiting = asyncio.create_task(bound_socket(settings, None))
        await asyncio.sleep(0.2)
        assert not waiting.done()
    (await waiting).close()
