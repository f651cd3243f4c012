"""The end of a hub: it comes, whatever swallows a cancellation, and takes its Redis with it."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from rsnotify.errors import InvalidSettings
from rsnotify.process import workers
from rsnotify.process.listening import bound_socket
from rsnotify.process.settings import Settings
from tests.support.running import RunningHub

DEAF = ("-m", "tests.fault.deaf")


class DeafHub(RunningHub):
    """A hub whose tasks each swallow one cancellation."""

    program = DEAF


def redis_is_gone(data: Path) -> bool:
    pid = int((data / "redis.lock").read_text())
    return not Path(f"/proc/{pid}").exists()


async def test_a_hub_whose_tasks_each_swallow_a_cancellation_ends_in_good_order(tmp_path):
    hub = DeafHub(tmp_path / "data", drain_seconds="0")
    await hub.start()
    await hub.publish("http://example.com/1")
    assert await hub.stop() == 0
    assert "did not end" not in hub.log.read_text()
    assert redis_is_gone(hub.data)


async def test_a_loop_that_never_hears_is_named_and_the_process_goes_without_it(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("DEAF_LOOP", "yes")
    hub = DeafHub(tmp_path / "data", drain_seconds="0")
    await hub.start()
    assert await hub.stop() == 1
    assert "'listen to the bell' did not end" in hub.log.read_text()
    assert redis_is_gone(hub.data)


STUCK = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('rsnotify ready')
time.sleep(99)
"""


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
