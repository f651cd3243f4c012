"""Copies that may be read and not written, or that another process writes."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.paths import OURS
from tests.support.running import clean_environment
from tests.support.sources import CAPABILITIES, Source

MODES_HOLD = """
import ctypes, os, sys
PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
    os.geteuid() or ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-m", "rsnotify", *sys.argv[1:]])
"""
"""Runs the command line so that file modes hold for root too."""


class Copied(NamedTuple):
    """A Source, and the copy that was made of it."""

    url: str
    directory: Path

    @property
    def file(self) -> Path:
        return next(self.directory.rglob("a.txt"))


@pytest.fixture
async def copied(source: Source, copy: Path) -> AsyncIterator[Copied]:
    url = source.url + CAPABILITIES
    async with AsyncMirror(url, copy) as mirror:
        assert await mirror.once()
    try:
        yield Copied(url, copy)
    finally:
        copy.chmod(0o755)
        for each in copy.iterdir():
            each.chmod(0o755)


async def ran(command: str, copied: Copied, *options: str) -> tuple[int | None, str, str]:
    words = (command, copied.url, str(copied.directory), *options)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", MODES_HOLD, *words),
        stdout=PIPE,
        stderr=PIPE,
        env=clean_environment(),
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize("is_open", [False, True])
async def test_a_copy_that_may_only_be_read_is_audited(copied, is_open):
    async with AsyncExitStack() as stack:
        if is_open:
            await stack.enter_async_context(AsyncMirror(copied.url, copied.directory))
        before = set(copied.directory.iterdir())
        copied.directory.chmod(0o555)
        status, out, err = await ran("audit", copied)
        assert (status, out.splitlines()[-1:], err) == (0, ["IN SYNC"], "")
        assert set(copied.directory.iterdir()) == before


async def test_a_file_of_a_copy_that_may_not_be_read_is_named(copied):
    copied.file.chmod(0)
    status, out, err = await ran("audit", copied)
    assert (status, out.splitlines()[-1:], err) == (1, ["OUT OF SYNC"], "")
    assert skipped(out) == [unreadable(copied, "a")]
    assert "in sync                           2" in out.splitlines()


def skipped(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith("skipped: ")]


def unreadable(copied: Copied, name: str) -> str:
    loc = copied.url.replace(CAPABILITIES, f"/{name}.txt")
    return f"skipped: cannot read the file of {loc}: Permission denied"


async def test_a_folder_in_which_files_may_not_be_looked_for_is_named(copied):
    folder = copied.directory / "folder"
    folder.mkdir()
    (folder / "stray").touch()
    folder.chmod(0)
    status, out, err = await ran("audit", copied)
    assert (status, out.splitlines()[-1:], err) == (1, ["OUT OF SYNC"], "")
    assert skipped(out) == [f"skipped: cannot read the folder {folder}: Permission denied"]


async def test_what_is_extra_is_found_beside_what_may_not_be_read(copied, source):
    source.change("a.txt", None)
    (copied.directory / "stray").touch()
    folder = copied.file.parent
    folder.chmod(0)
    _, out, _ = await ran("audit", copied)
    assert "extra: stray no resource is stored there" in out.splitlines()
    files = [unreadable(copied, name) for name in "bca"]  # what is extra is looked for last
    assert sorted(skipped(out)) == sorted(
        [*files, f"skipped: cannot read the folder {folder}: Permission denied"]
    )


@pytest.mark.parametrize("words", [("mirror", "--once"), ("audit", "--repair")])
async def test_whoever_has_to_write_a_copy_and_may_not_is_told_how_to_mend_it(copied, words):
    copied.directory.chmod(0o555)
    status, out, err = await ran(words[0], copied, *words[1:])
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {copied.directory}/{OURS}.sqlite cannot be used: ")
    assert err.endswith(": the file and its directory must be writable\n")
    assert err.count("\n") == 1


async def test_a_copy_whose_state_may_not_be_read_is_told(copied):
    (copied.directory / f"{OURS}.sqlite").chmod(0)
    status, out, err = await ran("audit", copied)
    assert (status, out) == (2, "")
    assert err.endswith(": give the right to read it, or to write in its directory\n")


async def test_a_copy_of_a_mirror_that_was_killed_and_may_only_be_read_is_told(copied):
    state = copied.directory / f"{OURS}.sqlite"
    state.with_name(f"{OURS}.sqlite-wal").touch()  # what it wrote last stands only there
    copied.directory.chmod(0o555)
    status, out, err = await ran("audit", copied)
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {state}: ")
    assert err.endswith(": give the right to read it, or to write in its directory\n")


@pytest.mark.parametrize("is_in_sync", [True, False])
async def test_a_repair_beside_a_running_mirror_is_refused_before_the_audit(copied, is_in_sync):
    if not is_in_sync:
        copied.file.unlink()
    async with AsyncMirror(copied.url, copied.directory):
        status, out, err = await ran("audit", copied, "--repair")
    refused = f"error: {copied.directory} is in use by another mirror: end that first\n"
    assert (status, out, err) == (2, "", refused)
