"""A folder of a copy is another mount: what is long is copied there while all else goes on."""

import asyncio
import errno
import os
import shutil
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
from rsnotify_mirror.disk import FOLDERS_OPEN, Disk, InTheWay
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
async def mounted(source: Source, tmp_path: Path) -> AsyncIterator[disks.Disk]:
    source.resources.clear()
    source.list_resources()
    await once(source, tmp_path / "copy")
    folder = tmp_path / "copy" / place_of(source.loc("sub"))
    folder.parent.mkdir()
    with disks.Disk(folder) as disk:
        if not disk.is_mounted:
            pytest.skip("this user cannot mount a disk")
        yield disk


@pytest.fixture
def mount(mounted: disks.Disk, source: Source, tmp_path: Path) -> Path:
    """The folder `sub` of a copy that has nothing yet."""
    return tmp_path / "copy" / place_of(source.loc("sub"))


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


async def test_a_file_is_copied_between_more_folders_than_are_held_open(mount, copy):
    path = "deep/" * (FOLDERS_OPEN + 10) + "file"
    place = f"{mount.relative_to(copy)}/{path}"
    with closing(Disk(copy)) as disk:
        disk.put(path, b"content", None)
        await disk.move(path, place)
        assert disk.status(place) is not None
    assert not (copy / "deep").exists()


# --- what fails -----------------------------------------------------------------------------------


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_a_folder_that_somebody_has_removed_is_made_again(mount, copy):
    folder = mount / "folder"
    place = str(folder.relative_to(copy))
    with closing(Disk(copy)) as disk:
        disk.put(f"{place}/small", b"small", None)
        shutil.rmtree(folder)
        await disk.put_part(part(disk, "1", LONG), f"{place}/long", None)
        shutil.rmtree(folder)
        disk.put(f"{place}/small", b"small", None)
    assert contents(folder) == {"small": b"small"}


async def test_what_cannot_be_removed_is_not_moved_aside(mounted, mount, copy, tmp_path):
    place, kept = str((mount / "file").relative_to(copy)), tmp_path / "kept"
    kept.mkdir()
    (mount / "file").write_bytes(b"content")
    mounted.write_protect()
    with closing(Disk(copy)) as disk, closing(Disk(kept)) as aside:
        for mark in ("1", "2"):
            with pytest.raises(OSError, match="Read-only"):
                await disk.move_to(aside, place, mark)
    assert contents(mount) == {"file": b"content"}
    assert not [each for each in kept.rglob("*") if each.is_file()]


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
async def test_what_is_no_file_is_not_moved_aside(mount, copy, tmp_path, make):
    place, kept = str((mount / "stranger").relative_to(copy)), tmp_path / "kept"
    kept.mkdir()
    make(mount / "stranger")
    with closing(Disk(copy)) as disk, closing(Disk(kept)) as aside:
        for attempt in range(3):
            with pytest.raises(OSError, match="no file"):
                await disk.move_to(aside, place, "mark")
            if attempt == 0:
                before = open_files()
        assert open_files() == before
    assert (mount / "stranger").exists()
    assert not [each for each in kept.rglob("*") if not each.is_dir()]


async def test_a_copy_that_cannot_be_removed_is_removed_later(mounted, mount, copy):
    place = str((mount / "long").relative_to(copy))

    def check() -> None:
        if contents(mount):
            mounted.write_protect()

    with closing(Disk(copy)) as disk:
        with pytest.raises(OSError, match="Read-only"):
            await disk.put_part(part(disk, "1", LONG), place, None, check)
        disk.sweep(list)
        (name,) = contents(mount)
        assert name.startswith(BESIDE)
        mounted.make_room(os.getpid())
        disk.sweep(list)
    assert contents(mount) == {}
    assert leavings(copy) == []


async def test_a_process_with_too_many_open_files_leaves_nothing(mount, copy, monkeypatch):
    def refuse(_: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    place = str((mount / "long").relative_to(copy))
    with closing(Disk(copy)) as disk:
        content = part(disk, "1", LONG)
        await disk.put_part(content, place, None)
        part(disk, "1", LONG)
        before = open_files()
        monkeypatch.setattr(os, "dup", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            await disk.put_part(content, place, None)
        assert open_files() == before
    assert contents(mount) == {"long": LONG}


def test_a_small_file_with_a_folder_in_its_way_leaves_nothing(mount, copy):
    (mount / "folder/file").mkdir(parents=True)
    place = str(mount.relative_to(copy))
    with closing(Disk(copy)) as disk:
        with pytest.raises(InTheWay):
            disk.put(f"{place}/folder/file", b"content", None)
        disk.put(f"{place}/other", b"content", None)
        disk.sweep(list)
    assert [each.name for each in mount.rglob(f"{BESIDE}*")] == []


def test_a_small_file_that_a_disk_refuses_leaves_no_file_open(mounted, mount, copy):
    place = str((mount / "file").relative_to(copy))
    mounted.write_protect()
    with closing(Disk(copy)) as disk:
        for attempt in range(3):
            with pytest.raises(OSError, match="Read-only"):
                disk.put(place, b"content", None)
            if attempt == 0:
                before = open_files()
        assert open_files() == before
