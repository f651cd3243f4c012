"""Places that cannot be used, or become unusable: whatever the clients raise is an `Error`."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rsnotify_client import (
    CursorError,
    CursorStore,
    Error,
    FileCursor,
    InvalidSettings,
    OutboxError,
    Position,
    Publisher,
    Relay,
    SqliteCursor,
)
from rsnotify_mirror import AsyncMirror, Mirror, Options
from rsnotify_mirror.disk import PARTS
from rsnotify_mirror.state import FILE
from tests.support.disks import Disk
from tests.support.sources import Source

HUB = "http://127.0.0.1:9"
POSITION = Position.parse("2026-01-01T00:00:00Z")


async def mirror(path: Any) -> None:
    async with AsyncMirror(HUB, path):
        pass


def outbox(path: Any) -> None:
    publisher = Publisher(HUB, "token", outbox=path)
    try:
        publisher.updated("a", "http://example.com/a")
    finally:
        publisher.close(0)


def file_cursor(path: Any) -> None:
    cursor = FileCursor(path)
    cursor.load()
    cursor.save(POSITION)


USES: dict[str, Callable[[Any], object]] = {
    "Mirror": lambda path: Mirror(HUB, path).close(),
    "AsyncMirror": lambda path: asyncio.run(mirror(path)),
    "keep_deleted": lambda path: Mirror(HUB, "copy", Options(keep_deleted=Path(path))).close(),
    "FileCursor": file_cursor,
    "SqliteCursor": SqliteCursor,
    "outbox": outbox,
    "Relay": lambda path: Relay(f"sqlite:///{path}", HUB, "token").table.waiting_by_channel(),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", ["NUL", "too long", "below a file", "in nothing", "surrogate"])
def test_a_place_where_nothing_can_be_is_named(tmp_path, monkeypatch, use, kind):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("text")
    place = {
        "NUL": "a\0b",
        "too long": "x" * 300,
        "below a file": "file/place",
        "in nothing": "/proc/nothing/place",
        "surrogate": "a\ud800b",
    }[kind]
    with pytest.raises(Error) as raised:
        USES[use](place)
    said = str(raised.value)
    assert place in said or repr(place)[1:-1] in said
    assert "Errno" not in said


def save_often(cursor: CursorStore) -> None:
    for number in range(5_000):
        cursor.save(Position(POSITION + number))


@pytest.mark.parametrize("use", [FileCursor, SqliteCursor])
def test_a_cursor_on_a_full_disk_says_to_make_room(tmp_path, use):
    with Disk(tmp_path / "disk") as disk:
        cursor = use(tmp_path / "disk" / "cursor")
        cursor.save(POSITION)
        disk.fill(os.getpid())
        try:
            with pytest.raises(CursorError, match="make room on its disk"):
                save_often(cursor)
        finally:
            disk.make_room(os.getpid())


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"no position", b"text " * 2_000])
def test_a_cursor_that_is_none_says_how_to_go_on(tmp_path, content):
    file = tmp_path / "cursor"
    file.write_bytes(content)
    with pytest.raises(CursorError, match=f"^cursor {file}: .*give another, or move it away"):
        FileCursor(file).load()


# While a mirror is at work ------------------------------------------------------------------------


def damage(copy: Path) -> None:
    """In place: what is mapped into memory stays."""
    for each in (copy / FILE, copy / f"{FILE}-wal"):
        if each.exists():
            with each.open("r+b") as file:
                file.write(b"nothing " * (each.stat().st_size // 8))


def put_a_file_in_the_way(copy: Path) -> None:
    with suppress(FileNotFoundError):
        (copy / PARTS).rmdir()
    (copy / PARTS).write_text("a file")


@pytest.mark.parametrize("spoil", [damage, put_a_file_in_the_way])
async def test_a_mirror_whose_place_is_spoilt_while_it_works_ends_with_an_error(
    source: Source, copy: Path, spoil: Callable[[Path], None]
):
    mirror = AsyncMirror(source.loc("resourcelist.xml"), copy)
    assert await mirror.once()
    source.change("a.txt", b"another a, longer than before")
    spoil(copy)
    with suppress(Error):
        await mirror.once()
    with suppress(Error):
        await mirror.__aexit__(None, None, None)
    with suppress(Error):  # and nothing of it holds the place
        async with AsyncMirror(source.loc("resourcelist.xml"), copy):
            pytest.fail("it is spoilt")


async def test_a_mirror_that_cannot_record_its_end_lets_go_of_its_place(source, copy):
    mirror = AsyncMirror(source.loc("resourcelist.xml"), copy)
    assert await mirror.once()
    mirror.state.set_fact("another", "fact")
    damage(copy)
    with suppress(Error):
        await mirror.__aexit__(None, None, None)
    for each in copy.glob(f"{FILE}*"):
        each.unlink()
    with pytest.raises(InvalidSettings, match="holds files, but no mirror"):
        AsyncMirror(source.loc("resourcelist.xml"), copy)


def test_the_errors_of_an_outbox_are_its_own(tmp_path):
    (tmp_path / "outbox").write_bytes(b"nothing " * 1_000)
    with pytest.raises(OutboxError, match="not a database: give another path, or move that file"):
        outbox(tmp_path / "outbox")
