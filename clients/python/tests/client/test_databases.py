"""SQLite, wherever the clients keep something in it: what is wrong with a file is said alike."""

import asyncio
import os
import resource
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName
from rsnotify_bridge.memory import BridgeStore
from rsnotify_client import database
from rsnotify_client.cursor import CursorError, SqliteCursor
from rsnotify_client.database import READ_ONLY, keep, open_file, open_scratch, with_advice
from rsnotify_client.folder import Folder
from rsnotify_client.outboxfile import OutboxFile
from rsnotify_client.queue import OutboxError
from rsnotify_client.resource import SourceResource
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.plan import Options
from rsnotify_mirror.state import FILE, State
from tests.support.amount import enough
from tests.support.children import begun, in_child
from tests.support.disks import Disk

MANY = 500
A = ChannelName("a", "change")


def of_a_mirror(path: Path) -> None:
    with State(path.parent) as state:
        wanted = [SourceResource(f"http://a.example/{each:0100}") for each in range(MANY)]
        state.plan(wanted, 1, 0.0)
        state.set_fact("source", "http://a.example/")


async def mirrored(path: Path) -> None:
    options = Options(first_retry_seconds=0.001)
    async with AsyncMirror("http://127.0.0.1:9/", path.parent, options) as mirror:
        await mirror.once()


def of_a_bridge(path: Path) -> None:
    with closing(BridgeStore(path)) as store, store.transaction():
        for each in range(MANY):
            store.bridge(f"http://a.example/{each:0100}", "http://hub.example", "a")


def bridged(path: Path) -> None:
    with closing(BridgeStore(path)) as store, store.checked():
        store.all()
        store.bridge("http://b.example/", "http://hub.example", "a")


def files_of(path: Path) -> Path:
    files = path.parent / "files"
    files.mkdir(exist_ok=True)
    for each in range(MANY):
        (files / f"{each:0100}").write_bytes(b"x")
    return files


def of_a_folder(path: Path) -> None:
    with closing(Folder(files_of(path), "http://a.example/", "a", path)) as folder:
        folder.look(is_loaded=False)


def looked_at(path: Path) -> None:
    files = files_of(path)
    (files / "new").write_bytes(b"y")
    opened = Folder(files, "http://a.example/", "a", path)
    with closing(opened) as folder, folder.checked():
        folder.look()


def of_a_cursor(path: Path) -> None:
    for each in range(MANY):
        SqliteCursor(path, f"{each:0100}").save(Position(1))


def followed(path: Path) -> None:
    for each in range(MANY):
        cursor = SqliteCursor(path, f"{each:0100}")
        cursor.load()
        cursor.save(Position(2))


def of_an_outbox(path: Path) -> None:
    with closing(OutboxFile(path)) as outbox:
        for each in range(MANY):
            outbox.put(A, b'"%0100d"' % each)


def published(path: Path) -> None:
    with closing(OutboxFile(path)) as outbox:
        outbox.take((), MANY)
        outbox.put(A, b'"x"')


class User(NamedTuple):
    """Who keeps something in a file: how it is made, and used again."""

    name: str
    make: Callable[[Path], None]
    use: Callable[[Path], object]
    error: type[Exception]


USERS = {
    "mirror": User(FILE, of_a_mirror, lambda path: asyncio.run(mirrored(path)), InvalidSettings),
    "bridge": User("bridge.db", of_a_bridge, bridged, InvalidSettings),
    "folder": User("folder.db", of_a_folder, looked_at, InvalidSettings),
    "cursor": User("cursor.db", of_a_cursor, followed, CursorError),
    "outbox": User("outbox.db", of_an_outbox, published, OutboxError),
}


def replaced(path: Path) -> None:
    path.write_bytes(b"x" * 8_192)


def torn(path: Path) -> None:
    """All but the first page of it, which says what tables there are."""
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))


@pytest.mark.parametrize("damage", [replaced, torn])
@pytest.mark.parametrize("user", enough([*USERS], 2))
def test_a_damaged_file_is_named_with_what_to_do(user, damage, tmp_path):
    """By one sentence, and nothing is made of what it had."""
    name, make, use, error = USERS[user]
    path = tmp_path / "of" / name
    path.parent.mkdir()
    make(path)
    damage(path)
    with pytest.raises(error) as raised:
        use(path)
    said = str(raised.value)
    assert str(path) in said, said
    assert "\n" not in said
    assert any(word in said for word in ("not a database", "malformed")), said
    assert any(word in said for word in ("move it away", "move that file away", "take an empty"))


@pytest.mark.parametrize("user", enough([*USERS], 2))
def test_a_disk_that_is_full_is_named_and_asked_for_room(user, tmp_path):
    """Here a limit of the process; the file is whole afterwards."""
    name, make, use, error = USERS[user]
    path = tmp_path / "of" / name
    path.parent.mkdir()
    make(path)

    def on_a_full_disk() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, 4_096))
        with pytest.raises(error) as raised:
            use(path)
        said = str(raised.value)
        assert str(path) in said, said
        assert said.endswith(": make room on its disk"), said

    assert in_child(on_a_full_disk) == 0
    with closing(open_file(path, mode="rw")) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.evidence
def test_many_may_begin_with_a_new_file_at_once(tmp_path):
    """To go over to a log beside the file is refused, not waited for, while others do it."""
    path = tmp_path / "cursors.db"

    def follow(number: int) -> None:
        os.read(begin, 1)
        for each in range(20):
            SqliteCursor(path, f"{number}").save(Position(each))

    for _ in range(5):
        begin, end = os.pipe()
        children = [begun(partial(follow, number)) for number in range(8)]
        os.write(end, bytes(8))
        for pipe in (begin, end):
            os.close(pipe)
        for child in children:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        path.unlink()


@pytest.mark.parametrize("user", ["mirror", "bridge", "folder"])
def test_a_file_of_a_later_version_is_refused_and_left_as_it_is(user, tmp_path):
    name, make, use, error = USERS[user]
    path = tmp_path / "of" / name
    path.parent.mkdir()
    make(path)
    with closing(open_file(path)) as file:
        (written,) = file.execute("PRAGMA user_version").fetchone()
        assert written > 0
        file.execute(f"PRAGMA user_version = {written + 1}")
    before = path.read_bytes()
    with pytest.raises(error, match="was written by another version of rsnotify") as raised:
        use(path)
    assert str(path) in str(raised.value)
    assert path.read_bytes() == before
    with closing(open_file(path)) as file:
        file.execute(f"PRAGMA user_version = {written}")
    make(path)


def test_to_go_over_to_a_log_is_waited_for_while_others_have_the_file(tmp_path, monkeypatch):
    """As long as was said, though SQLite itself does not wait for it."""
    path, waits = tmp_path / "a.db", list[float]()
    with closing(open_file(path)) as other, closing(open_file(path, locked_seconds=0.0)) as own:

        def waited(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 3:
                other.execute("ROLLBACK")

        monkeypatch.setattr(database, "sleep", waited)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            keep(own, -1.0)
        assert waits == []
        keep(own, 60.0)
        assert len(waits) == 3
        assert own.execute("PRAGMA journal_mode").fetchone() == ("wal",)


ADVICE = [
    ("database is locked", "another process kept it locked for 10 s"),
    ("database table is locked", "another process kept it locked for 10 s"),
    ("database or disk is full", "database or disk is full: make room on its disk"),
    ("disk I/O error", "disk I/O error: make room on its disk"),
    ("file is not a database", "file is not a database: begin anew"),
    ("database disk image is malformed", "database disk image is malformed: begin anew"),
    ("no such column: x", None),  # a bug of ours, or another version
]


@pytest.mark.parametrize(("problem", "said"), ADVICE)
def test_what_sqlite_says_comes_with_what_to_do(problem, said, tmp_path):
    assert with_advice(problem, tmp_path / "a.db", "begin anew") == said


def test_a_file_that_cannot_be_opened_is_said_to_be_where_none_can_be(tmp_path):
    for place, said in [
        (tmp_path, "it is a directory; name a file in it"),
        (tmp_path / "no" / "a.db", "its directory must exist"),
        (tmp_path / "a.db", "the file and its directory must be writable"),
    ]:
        problem = "unable to open database file"
        assert with_advice(problem, place) == f"{problem}: {said}"


def test_a_disk_that_may_only_be_read_is_asked_for_no_room(tmp_path):
    with Disk(tmp_path / "disk") as disk:
        if not disk.is_mounted:
            pytest.skip("this user cannot mount a disk")
        file = tmp_path / "disk" / "a.db"
        for problem in ("disk I/O error", "attempt to write a readonly database"):
            assert READ_ONLY not in (with_advice(problem, file) or "")
        disk.write_protect()
        for problem in ("disk I/O error", "attempt to write a readonly database"):
            assert with_advice(problem, file) == f"{problem}: {READ_ONLY}"


def test_a_mistyped_path_makes_no_file(tmp_path):
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        open_file(tmp_path / "a?b%3F#c.db", mode="rw")
    assert [*tmp_path.iterdir()] == []
    with closing(open_file(tmp_path / "a?b%3F#c.db")) as file:
        keep(file)
    assert (tmp_path / "a?b%3F#c.db").exists()


def test_room_for_what_does_not_fit_into_memory_has_no_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with closing(open_scratch("CREATE TABLE a (b)", cache_kib=64)) as scratch:
        scratch.executemany("INSERT INTO a VALUES (?)", ((bytes(1_000),) for _ in range(1_000)))
        assert scratch.execute("SELECT COUNT(*) FROM a").fetchone() == (1_000,)
        assert [*tmp_path.iterdir()] == []
