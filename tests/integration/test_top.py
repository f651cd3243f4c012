"""`rsnotify top` as a person and as a pipe see it."""

import asyncio
import os
import pty
import re
import signal
import sys
import termios
from asyncio.subprocess import PIPE, Process

import pytest

from tests.support.running import TOKEN, RunningHub, clean_environment, rsnotify

PROGRAM = """
import signal
from rsnotify.__main__ import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have tests ignore it
main()
"""


@pytest.fixture
async def hub(tmp_path):
    async with RunningHub(tmp_path / "data", sets=("dataset1", "dataset2")) as running:
        yield running


async def start(hub: RunningHub, *options: str, stdin: int, stdout: int) -> Process:
    environment = {"RSNOTIFY_URL": hub.url, "RSNOTIFY_TOKEN": TOKEN, "TERM": "xterm"}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, "top", "--interval", "0.5", *options),
        stdin=stdin, stdout=stdout, stderr=PIPE, env=clean_environment() | environment,
    )  # fmt: skip


async def test_once_prints_the_sets_by_their_last_change_and_ends(hub):
    await hub.publish("http://example.com/1", set_name="dataset2")
    ended = await rsnotify("top", "--once", hub=hub)
    assert ended.status == 0, ended.err
    first, store, rates, _, *rows, _, _ = ended.out.splitlines()
    assert first.endswith(f" at {hub.url} is ready")
    assert " and uses " in store
    assert rates.startswith("each second: ")
    cells = [row.split("\t") for row in rows]
    assert [row[0] for row in cells] == ["dataset2", "dataset1"]
    assert cells[0][1].endswith(" s ago")
    assert cells[0][2:6] == ["-", "1", "0", "0"]


async def test_once_without_a_hub_ends_with_1_and_says_why(tmp_path):
    ended = await rsnotify("top", "--once", RSNOTIFY_URL="http://127.0.0.1:1")
    assert ended.status == 1
    assert "http://127.0.0.1:1 cannot be reached" in ended.err


async def line_with(process: Process, words: str) -> str:
    """The next one in which this pattern is found."""
    assert process.stdout is not None
    while True:
        line = (await process.stdout.readline()).decode()
        assert line, "it has ended"
        if re.search(words, line):
            return line.rstrip()


async def test_a_pipe_gets_each_look_and_hears_that_the_hub_is_away_and_back(hub):
    process = await start(hub, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE)
    try:
        await line_with(process, "is ready")
        await hub.publish("http://example.com/1")
        assert (await line_with(process, r"dataset1\t\d+ s ago\t")).split("\t")[2] != "-"
        await hub.stop()
        said = await line_with(process, "no answer: ")
        assert said.endswith("; trying again")
        await line_with(process, "dataset1\t")  # what was seen last
        await hub.start()
        await line_with(process, "is ready")
    finally:
        process.send_signal(signal.SIGINT)
        await process.communicate()
    assert process.returncode == 130


class Terminal:
    """One that a command runs on, and what it shows."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        termios.tcsetwinsize(self.theirs, (24, 100))
        self.shown = ""

    def read_until(self, words: str) -> None:
        while words not in self.shown:
            self.shown += os.read(self.ours, 65_536).decode()


@pytest.mark.parametrize("way", ["q", "Ctrl-C"])
async def test_on_a_terminal_it_shows_a_table_until_q_or_ctrl_c(hub, way):
    terminal = Terminal()
    before = termios.tcgetattr(terminal.theirs)
    process = await start(hub, stdin=terminal.theirs, stdout=terminal.theirs)
    async with asyncio.timeout(60):
        await asyncio.to_thread(terminal.read_until, "q ends")
        assert "dataset1" in terminal.shown
        if way == "q":
            os.write(terminal.ours, b"xq")
        else:
            process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        status, said = await process.wait(), await process.stderr.read()
    assert (status, said) == ({"q": 0, "Ctrl-C": 130}[way], b"")
    assert termios.tcgetattr(terminal.theirs) == before
    os.close(terminal.ours)
    os.close(terminal.theirs)
