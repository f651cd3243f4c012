"""A folder of a copy is another mount: what is long is copied there while all else goes on."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from subprocess import run
from threading import Event
from typing import Any, TypeVar

import pytest

from clients.python.tests.client.test_watched import until
from clients.python.tests.mirror.test_mirror import leavings, once
from rsnotify.errors import TryAgain
from rsnotify_client.web import SMALL_BYTES
from rsnotify_mirror.across import BESIDE
from rsnotify_mirror.audit import audit
from rsnotify_mirror.disk import Disk
from rsnotify_mirror.paths import place_of
from rsnotify_mirror.room import NoRoom
from tests.support import disks
from tests.support.running import clean_environment
from tests.support.sources import CAPABILITIES, Source

LONG = b"a" * (SMALL_BYTES + 1)
OTHER = b"b" * (SMALL_BYTES + 1)
Made = TypeVar("Made")

KILLED = """
import os, signal, sys
from rsnotify.__main__ import main
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
sys.argv[0] = "rsnotify"
main()
"""


class Gate:
    """Holds up every copy at its last step, until it is opened."""

    def __init__(self) -> None:
        self.reached = 0
        self._is_open = Event()

    def __call__(self, _: int) -> None:
        self.reached += 1
        assert self._is_open.wait(30)

    def open(self) -> None:
        self._is_open.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setattr(os, "fsync", gate)
    yield gate
    gate.open()


@pytest.fixture
async def mount(source: Source, tmp_path: Path) -> AsyncIterator[Path]:
    """The folder `sub` of a copy that has nothing yet."""
    source.resources.clear()
    source.list_resources()
    await once(source, tmp_path / "copy")
    folder = tmp_path / "copy" / place_of(source.loc("sub"))
    folder.parent.mkdir()
    with disks.Disk(folder) as disk:
        if not disk.is_mounted:
            pytest.skip("this user cannot mount a disk")
        yield folder


@pytest.fixture
def copy(mount: Path, tmp_path: Path) -> Path:
    return tmp_path / "copy"


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, Made]) -> AsyncIterator[asyncio.Task[Made]]:
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def killed(source: Source, copy: Path, *options: str) -> None:
    """A mirror that is killed while it copies to another mount."""
    words = ("mirror", source.url + CAPABILITIES, str(copy), "--once", *options)
    ended = run([sys.executable, "-c", KILLED, *words], env=clean_environment(), check=False)
    assert ended.returncode == -9


async def test_what_is_long_is_copied_while_all_else_goes_on(source, mount, copy, gate):
    source.change("sub/long", LONG)
    async with beside(once(source, copy)) as mirror:
        await until(lambda: gate.reached)
        (name,) = contents(mount)
        assert name.startswith(BESIDE)
        found = await audit(source.url + CAPABILITIES, copy)
        assert [each.kind for each in found.findings] == ["missing"]
        assert not mirror.done()
        gate.open()
        assert (await mirror).is_whole
    assert contents(mount) == {"long": LONG}
    assert leavings(copy) == []


async def test_small_and_long_ones_are_on_their_way_into_one_folder(source, mount, copy, gate):
    for name, content in {"1": LONG, "2": OTHER, "small": b"small"}.items():
        source.change(f"sub/{name}", content)
    async with beside(once(source, copy)) as mirror:
        await until(lambda: gate.reached == 2 and "small" in contents(mount))
        gate.open()
        assert (await mirror).is_whole
    assert contents(mount) == {"1": LONG, "2": OTHER, "small": b"small"}


async def test_what_is_stopped_meanwhile_is_gone_on_with(source, mount, copy, gate):
    source.change("sub/long", LONG)
    async with beside(once(source, copy)) as mirror:
        await until(lambda: gate.reached)
        mirror.cancel()
        await asyncio.sleep(0)
        gate.open()
        with pytest.raises(asyncio.CancelledError):
            await mirror
    assert contents(mount) == {}
    assert (await once(source, copy)).is_whole
    assert contents(mount) == {"long": LONG}


async def test_what_a_killed_mirror_leaves_the_next_one_removes(source, mount, copy):
    source.change("sub/long", LONG)
    await asyncio.to_thread(killed, source, copy)
    (name,) = contents(mount)
    assert name.startswith(BESIDE)
    found = await audit(source.url + CAPABILITIES, copy)
    assert [each.kind for each in found.findings] == ["missing"]
    assert (await once(source, copy)).is_whole
    assert contents(mount) == {"long": LONG}
    assert leavings(copy) == []


@pytest.mark.parametrize("option", ["--keep-deleted", "--keep-versions"])
async def test_so_is_what_was_on_its_way_out_of_the_copy(source, mount, copy, tmp_path, option):
    kept = tmp_path / "kept"
    source.change("sub/long", LONG)
    options = {option.removeprefix("--").replace("-", "_"): kept}
    assert (await once(source, copy, **options)).is_whole
    source.change("sub/long", None)
    await asyncio.to_thread(killed, source, copy, option, str(kept))
    assert [each.name for each in kept.rglob(f"{BESIDE}-*")]
    assert contents(mount) == {"long": LONG}
    assert (await once(source, copy, **options)).is_whole
    assert not [each.name for each in kept.rglob(f"{BESIDE}*")]
    assert LONG in [each.read_bytes() for each in kept.rglob("*") if each.is_file()]
    assert contents(mount) == {}


async def test_what_nobody_has_noted_is_a_stranger(source, mount, copy):
    source.change("sub/small", b"small")
    assert (await once(source, copy)).is_whole
    (mount / BESIDE).write_bytes(b"of another time")
    found = await audit(source.url + CAPABILITIES, copy)
    assert [Path(each.path or "").name for each in found.findings] == [BESIDE]


# --- several at one place -----------------------------------------------------------------------


def part(disk: Disk, loc: str, content: bytes) -> str:
    with disk.open_part(loc) as file:
        file.write(content)
    return loc


async def test_of_two_that_are_on_their_way_to_one_place_each_is_whole(mount, copy, gate):
    place = str((mount / "long").relative_to(copy))
    with closing(Disk(copy)) as disk:
        first = disk.put_part(part(disk, "1", LONG), place, None)
        second = disk.put_part(part(disk, "2", OTHER), place, None)
        async with beside(first) as one, beside(second) as other:
            await until(lambda: gate.reached == 2)
            gate.open()
            await asyncio.gather(one, other)
        assert contents(mount) in ({"long": LONG}, {"long": OTHER})
        disk.sweep(list)
    assert leavings(copy) == []


async def test_a_part_that_is_begun_again_meanwhile_changes_nothing(mount, copy, gate):
    place = str((mount / "long").relative_to(copy))
    with closing(Disk(copy)) as disk:
        async with beside(disk.put_part(part(disk, "1", LONG), place, None)) as copying:
            await until(lambda: gate.reached)
            part(disk, "1", b"anew")
            gate.open()
            await copying
        assert contents(mount) == {"long": LONG}
        assert disk.part_length("1") == len(b"anew")


async def test_what_is_refused_while_it_is_copied_gets_no_place(mount, copy, gate):
    place = str((mount / "long").relative_to(copy))
    allowed = [True, False]

    def check() -> None:
        if not allowed.pop(0):
            raise NoRoom("another took it")

    gate.open()
    with closing(Disk(copy)) as disk, pytest.raises(NoRoom):
        await disk.put_part(part(disk, "1", LONG), place, None, check)
    assert contents(mount) == {}


async def test_what_replaces_a_file_that_is_moved_aside_is_not_removed(mount, copy, tmp_path, gate):
    place, kept = str((mount / "long").relative_to(copy)), tmp_path / "kept"
    kept.mkdir()
    (mount / "long").write_bytes(LONG)
    with closing(Disk(copy)) as disk, closing(Disk(kept)) as aside:
        async with beside(disk.move_to(aside, place, "mark")) as moving:
            await until(lambda: gate.reached)
            disk.put(place, b"new", None)
            gate.open()
            with pytest.raises(TryAgain):
                await moving
    assert contents(mount) == {"long": b"new"}
    assert not [each for each in kept.rglob("*") if each.is_file()]
