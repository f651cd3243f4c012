"""What `serve` prints on a terminal, and what it keeps from a log."""

import asyncio
import os
import pty
import select
import sys
from asyncio.subprocess import DEVNULL

from tests.support.running import RunningHub, clean_environment

ADDRESS = "/#token="


async def test_a_terminal_shows_the_address_that_opens_the_page(tmp_path):
    ours, theirs = pty.openpty()
    hub = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rsnotify", "serve", "--port", "0", "--data", str(tmp_path)),
        stdout=DEVNULL,
        stderr=theirs,
        env=clean_environment(),
    )
    os.close(theirs)
    try:
        shown = await asyncio.to_thread(_shown_until, ours, "Publish a change")
    finally:
        hub.terminate()
        await hub.wait()
        os.close(ours)
    token = (tmp_path / "admin-token").read_text().strip()
    assert f"{ADDRESS}{token}" in shown
    assert shown.count(token) == 1


async def test_a_log_shows_no_token_and_no_hints(tmp_path):
    """But where the token is."""
    async with RunningHub(tmp_path / "data", "--workers", "2", admin_token="") as hub:
        pass
    file = tmp_path / "data/admin-token"
    shown = hub.log.read_text()
    assert "Publish a change" not in shown
    assert shown.count(f"The admin token is in {file}") == 1
    assert file.read_text().strip() not in shown


def _shown_until(terminal: int, words: str) -> str:
    shown = ""
    while words not in shown:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, shown
        shown += os.read(terminal, 65_536).decode()
    return shown
