"""Mirrors and relays that are watched: their status, their metrics, what systemd is told."""

import asyncio
import fcntl
import json
import os
import signal
import socket
import sqlite3
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from time import time

import pytest

from clients.python.tests.client.test_outbox import write_changes
from clients.python.tests.client.test_publisher import ACCEPTED
from clients.python.tests.mirror.test_mirror import once
from rsnotify.errors import InvalidSettings
from rsnotify_client.locks import is_held
from rsnotify_client.textfile import exposition, write
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.plan import Options
from rsnotify_mirror.report import METRICS, CopyStatus, Sums, status_of
from rsnotify_mirror.state import FILE, State
from tests.support.amount import amount
from tests.support.hub_processes import Answer, Posted, scripted_hub
from tests.support.running import clean_environment, rsnotify
from tests.support.sources import CAPABILITIES


def status(copy: Path) -> CopyStatus:
    with State(copy, is_writer=False) as state:
        return status_of(state)


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not fact():
            await asyncio.sleep(0.01)


@contextmanager
def systemd(folder: Path) -> Iterator[tuple[socket.socket, dict[str, str]]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(folder / "notify"))
        heard.settimeout(60)
        yield heard, {"NOTIFY_SOCKET": str(folder / "notify")}


@asynccontextmanager
async def running(*words: str, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rsnotify", *words),
        stdout=PIPE,
        stderr=PIPE,
        env=clean_environment() | environment,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


# What a run leaves behind -----------------------------------------------------------------------


async def test_a_copy_that_is_complete_is_in_step_and_says_since_when(source, tmp_path):
    source.add("a", b"1")
    source.list_resources()
    await once(source, tmp_path)
    first = status(tmp_path)
    count = len(source.resources)
    assert (first.in_step, first.resources, first.to_do, first.failed) == (True, count, 0, 0)
    assert (first.source, first.running) == (source.url + CAPABILITIES, False)
    await once(source, tmp_path)
    second = status(tmp_path)
    assert second.in_step_since == first.in_step_since
    assert (second.in_step_at or "") > (first.in_step_at or "")


async def test_what_failed_puts_a_copy_out_of_step_until_it_is_mended(source, tmp_path):
    source.add("a", b"1")
    source.list_resources()
    source.resources["/a"] = b"another"
    await once(source, tmp_path)
    found = status(tmp_path)
    assert (found.in_step, found.failed, found.in_step_at) == (False, 1, None)
    assert source.loc("a") in (found.last_error or "")
    source.resources["/a"] = b"1"
    await once(source, tmp_path)
    assert (status(tmp_path).in_step, status(tmp_path).failed) == (True, 0)


async def test_a_source_that_cannot_be_read_leaves_when_it_was_in_step_last(source, tmp_path):
    source.add("a", b"1")
    source.list_resources()
    await once(source, tmp_path)
    before = status(tmp_path)
    source.documents["/resourcelist.xml"] = source.documents["/changelist.xml"] = b"<html>"
    with State(tmp_path) as state:
        state.set_fact("cursor", None)
    assert not (await once(source, tmp_path)).is_whole
    found = status(tmp_path)
    assert (found.in_step, found.in_step_at) == (False, before.in_step_at)
    assert "resourcelist.xml" in (found.last_error or "")


async def test_the_error_of_an_earlier_run_is_not_the_last_one_of_this(source, tmp_path):
    source.add("a", b"1")
    source.list_resources()
    source.resources["/a"] = b"another"
    await once(source, tmp_path)
    assert source.loc("a") in (status(tmp_path).last_error or "")
    source.resources["/a"] = b"1"
    found: list[CopyStatus] = []
    url, options = source.url + CAPABILITIES, Options(first_retry_seconds=0.01)
    async with AsyncMirror(
        url, tmp_path, options, on_status=lambda now, _: found.append(now)
    ) as mirror:
        keeping = asyncio.create_task(mirror.run())
        await until(lambda: bool(found))
        keeping.cancel()
        await asyncio.wait([keeping])
    assert [(each.last_error, each.last_error_at) for each in found] == [(None, None)] * len(found)


async def test_a_mirror_that_follows_is_in_step_only_while_its_source_answers(
    source, tmp_path, monkeypatch
):
    monkeypatch.setattr("rsnotify_mirror.mirror.LOOK_SECONDS", 0.02)
    source.add("a", b"1")
    source.list_resources()
    found: list[CopyStatus] = []
    options = Options(poll_seconds=0.02, first_retry_seconds=0.01)
    url = source.url + CAPABILITIES

    def tell(status: CopyStatus, _: Sums) -> None:
        found.append(status)

    async with AsyncMirror(url, tmp_path, options, on_status=tell) as mirror:
        keeping = asyncio.create_task(mirror.run())
        await until(lambda: bool(found) and found[-1].in_step)
        assert found[-1].running

        source.answer("/changelist.xml", status=503)
        await until(lambda: not found[-1].in_step)
        del source.handlers["/changelist.xml"]
        await until(lambda: found[-1].in_step)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
    assert (status(tmp_path).in_step, status(tmp_path).running) == (True, False)


# The command ------------------------------------------------------------------------------------


async def test_the_status_of_a_copy_is_its_exit_status(source, tmp_path):
    copy = str(tmp_path / "copy")
    source.add("a", b"1")
    source.list_resources()
    assert (await rsnotify("mirror", "--status", copy)).status == 2
    await once(source, tmp_path / "copy")
    said = await rsnotify("mirror", "--status", copy)
    assert (said.status, said.out.splitlines()[-1]) == (0, "IN STEP")
    assert "rsnotify audit" in said.out  # a status says nothing of what is in the files
    said = await rsnotify("mirror", "--status", copy, "--json")
    assert (said.status, json.loads(said.out)["in_step"]) == (0, True)
    said = await rsnotify("mirror", "--status", copy, "--max-behind", "0")
    assert (said.status, said.out.splitlines()[-1][:12]) == (1, "OUT OF STEP:")
    source.change("a", b"2", length=3)
    await once(source, tmp_path / "copy")
    said = await rsnotify("mirror", "--status", copy)
    assert (said.status, said.out.splitlines()[-1]) == (1, "OUT OF STEP")
    (error,) = [line for line in said.out.splitlines() if line.startswith("last error, at ")]
    source.change("a", b"3")
    await once(source, tmp_path / "copy")
    said = await rsnotify("mirror", "--status", copy)
    assert said.status == 0
    assert error.removeprefix("last error") not in said.out  # that was another run


async def test_a_mirror_that_was_killed_does_not_run_and_looking_holds_up_none(source, tmp_path):
    source.add("a", b"1")
    source.list_resources()
    copy = tmp_path / "copy"
    words = ("mirror", source.url + CAPABILITIES, str(copy))
    async with running(*words) as mirror:
        await until(lambda: (copy / FILE).exists() and any(copy.glob("*/a")))
        said = await rsnotify("mirror", "--status", str(copy))
        assert "; a mirror runs\n" in said.out
        mirror.kill()
        await mirror.wait()
    said = await rsnotify("mirror", "--status", str(copy))
    assert "; no mirror runs\n" in said.out
    with State(copy, is_writer=False):
        looked = os.open(copy, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(looked, fcntl.LOCK_SH)  # as one who looks at this moment
        threading.Timer(0.03, os.close, (looked,)).start()
        with State(copy):
            assert is_held(copy)
    assert not is_held(copy)
    assert not is_held(tmp_path / "nothing")


async def test_the_last_error_of_a_run_with_once_is_of_that_run(source, tmp_path):
    source.add("a", b"1")
    source.list_resources()
    source.resources["/a"] = b"another"
    await once(source, tmp_path)
    assert source.loc("a") in (status(tmp_path).last_error or "")
    source.resources["/a"] = b"1"
    await once(source, tmp_path)
    assert status(tmp_path).last_error is None


async def test_metrics_are_written_whole_and_systemd_is_told(source, tmp_path):
    source.add("a", b"1")
    source.list_resources()
    metrics, copy = tmp_path / "copy.prom", tmp_path / "copy"
    with systemd(tmp_path) as (heard, environment):
        words = ("mirror", source.url + CAPABILITIES, str(copy), "--metrics", str(metrics))
        async with running(*words, **environment) as mirror:
            said = (await asyncio.to_thread(heard.recv, 1000)).decode()
            assert said.startswith("READY=1\nSTATUS=")
            await until(lambda: any(copy.glob("*/a")))
            mirror.send_signal(signal.SIGTERM)
            assert await mirror.wait() == 130
        while not said.startswith("STOPPING=1"):
            said = (await asyncio.to_thread(heard.recv, 1000)).decode()
    written = metrics.read_text()
    for name in METRICS:
        assert f'\n{name}{{directory="{copy}"}} ' in written
    assert f'rsnotify_mirror_resources{{directory="{copy}"}} {len(source.resources)}\n' in written
    assert [each.name for each in tmp_path.glob("*.new")] == []


async def test_metrics_that_cannot_be_written_are_named_at_once(source, tmp_path):
    words = ("mirror", source.url, str(tmp_path / "copy"), "--once")
    said = await rsnotify(*words, "--metrics", str(tmp_path / "no" / "copy.prom"))
    assert (said.status, "--metrics" in said.err) == (2, True)
    assert not (tmp_path / "copy").exists()


def test_numbers_take_the_place_of_no_device(tmp_path):
    pipe = tmp_path / "pipe"  # /dev/stdout and /dev/null are no files either
    os.mkfifo(pipe)
    with pytest.raises(InvalidSettings, match=f"--metrics {pipe}: it is no file"):
        write(pipe, "")
    assert [*tmp_path.iterdir()] == [pipe]
    assert pipe.is_fifo()


def test_a_label_may_have_any_character():
    values = {(("of", 'a"\\\n'), ("by", "b")): [1.5]}
    assert exposition({"n": ("gauge", "N")}, values).endswith('n{of="a\\"\\\\\\n",by="b"} 1.5\n')


# A relay ----------------------------------------------------------------------------------------


async def test_the_status_of_a_relay_is_how_long_a_change_waits(database):
    words = ("relay", "--status", "--database", f"sqlite:///{database}")
    said = await rsnotify(*words)
    assert (said.status, said.out) == (0, "IN STEP: nothing waits\n")
    write_changes(database, "a")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE rsnotify_outbox SET queued_at = datetime('now', '-100 seconds')")
    for most, status in ((90, 1), (200, 0)):
        said = await rsnotify(*words, "--json", "--max-behind", str(most))
        assert said.status == status
    assert 99 < json.loads(said.out)["behind_seconds"] < 160


async def test_a_relay_tells_systemd_and_prometheus(database, tmp_path):
    metrics = tmp_path / "relay.prom"
    with scripted_hub(lambda _: ACCEPTED) as (url, _), systemd(tmp_path) as (heard, environment):
        words = ("--database", f"sqlite:///{database}", "--url", url, "--metrics", str(metrics))
        token = {"RSNOTIFY_TOKEN": "good"}
        async with running("relay", *words, **environment, **token) as relay:
            said = await asyncio.to_thread(heard.recv, 1000)
            assert said == b"READY=1\nSTATUS=0 waiting"
            relay.send_signal(signal.SIGTERM)
            assert await relay.wait() == 0
            assert await asyncio.to_thread(heard.recv, 1000) == b"STOPPING=1"
    assert f'rsnotify_relay_waiting{{database="sqlite:///{database}"}} 0\n' in metrics.read_text()
    assert time() - os.stat(metrics).st_mtime < 600


async def test_the_numbers_of_a_relay_are_those_of_its_end(database, tmp_path):
    metrics, posted = tmp_path / "relay.prom", asyncio.Event()
    loop = asyncio.get_running_loop()

    def accept(_: Posted) -> Answer:
        loop.call_soon_threadsafe(posted.set)
        return ACCEPTED

    with scripted_hub(accept) as (url, _):
        words = ("--database", f"sqlite:///{database}", "--url", url, "--metrics", str(metrics))
        async with running("relay", *words, RSNOTIFY_TOKEN="good") as relay:
            assert relay.stdout is not None
            assert (await relay.stdout.readline()).startswith(b"rsnotify relay ready")
            posted.clear()  # by questions of its start
            write_changes(database, "a")
            await posted.wait()  # long before the next look
            relay.send_signal(signal.SIGTERM)
            assert await relay.wait() == 0
    written, labels = metrics.read_text(), f'{{database="sqlite:///{database}"}}'
    assert f"rsnotify_relay_published_total{labels} 1\n" in written
    assert f"rsnotify_relay_waiting{labels} 0\n" in written


ENDED_OFTEN = f"""
import os, signal, sys, threading
from rsnotify_client.commands.relay import rung_by_signals
for _ in range({amount(300, evidence=3_000)}):
    ended = rung_by_signals()
    threading.Timer(0.0005, os.kill, (os.getpid(), signal.SIGTERM)).start()
    while not ended.wait(0):
        pass
"""


@pytest.mark.evidence
async def test_a_signal_that_comes_as_the_wait_begins_ends_it():
    ending = await asyncio.create_subprocess_exec(sys.executable, "-c", ENDED_OFTEN)
    try:
        assert await asyncio.wait_for(ending.wait(), 240) == 0
    finally:
        if ending.returncode is None:
            ending.kill()
