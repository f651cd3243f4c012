"""A mirror that makes dumps while it runs."""

import asyncio
import signal
import sys

import pytest

from clients.python.tests.mirror.test_dumps import state_of
from rsnotify.errors import InvalidSettings
from rsnotify_mirror.commands.mirror import seconds_of
from tests.support.forks import run
from tests.support.running import clean_environment
from tests.support.sources import CAPABILITIES


async def test_each_dump_has_what_the_mirror_has(source, tmp_path):
    out = tmp_path / "out"
    words = ("--dump-every", "1s", "--dump", f"{out} --base http://d.example/ --changes")
    running = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "rsnotify",
            "mirror",
            source.url + CAPABILITIES,
            str(tmp_path / "copy"),
            *words,
        ),
        env=clean_environment(),
    )
    try:
        async with asyncio.timeout(60):
            while not (out / "resourcedump.xml").exists():
                await asyncio.sleep(0.02)
        found = state_of(sorted(out.glob("packages/*.zip")))
        assert found == {source.url + path: body for path, body in source.resources.items()}
    finally:
        running.send_signal(signal.SIGTERM)
        assert await running.wait() == 130


@pytest.mark.parametrize(
    ("text", "seconds"), [("1s", 1), ("30m", 1_800), ("24h", 86_400), ("7d", 604_800)]
)
def test_how_often(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "24", "h", "-1h", "1.5h", "1w"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(InvalidSettings, match="such as 30m, 24h or 7d"):
        seconds_of(text)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--dump-every", "1h"), "--dump-every goes with --dump"),
        (("--dump", "out"), "--dump-every goes with --dump"),
        (("--dump-every", "1h", "--dump", "out", "--once"), "without --once"),
        (("--dump-every", "1h", "--dump", "out", "--all-sets"), "with one set"),
    ],
)
async def test_wrong_use_is_said_at_once(tmp_path, words, said):
    command = ("mirror", "http://127.0.0.1:9/", str(tmp_path / "copy"), *words)
    ended = await run(command, clean_environment())
    assert ended.status == 2
    assert said in ended.err
