"""What an outbox, and what else is told of forks, does when its process forks."""

import gc
import os
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Self

import pytest

from rsnotify.resourcesync.notification import ChannelName
from rsnotify_client import Outbox, OutboxError, Relay
from rsnotify_client.outbox import OutboxTable
from rsnotify_client.outboxfile import OutboxFile
from rsnotify_client.threads import notify_of_forks
from tests.support.hub_processes import accept, eventually, python, scripted_hub

pytestmark = [
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
    pytest.mark.filterwarnings(
        "ignore:unclosed database"
    ),  # dropped, in another thread than its own
]

A = ChannelName("a", "change")

UNTOLD = """
import _imp, ctypes, os, sys, threading
from rsnotify.resourcesync.notification import ChannelName
from rsnotify_client import OutboxError
from rsnotify_client.outboxfile import OutboxFile

A = ChannelName("a", "change")

def fork():  # as uWSGI does it with py-call-uwsgi-fork-hooks
    _imp.acquire_lock()
    child = ctypes.PyDLL(None).fork()
    if child == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        _imp.release_lock()
    return child

outbox = OutboxFile(sys.argv[1])
outbox.put(A, b"1")
"""


def after_an_untold_fork(path: Path, program: str) -> list[bytes]:
    """What the file holds when parent and child have ended."""
    process = python("-c", UNTOLD + program, str(path))
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    with closing(OutboxFile(path)) as outbox:
        batch = outbox.take((), 10)
    assert batch is not None
    return list(batch.changes)


def test_nothing_is_lost_when_a_parent_closes_that_told_of_its_fork_only_afterwards(tmp_path):
    program = """
has_put, may_know = os.pipe()
is_closed, may_go_on = os.pipe()
if fork() == 0:
    outbox.put(A, b"2")
    os.write(may_know, b".")
    os.read(is_closed, 1)
    outbox.put(A, b"3")
    os._exit(0)
os.read(has_put, 1)
outbox.close()
os.write(may_go_on, b".")
sys.exit(os.wait()[1] != 0)
"""
    assert after_an_untold_fork(tmp_path / "outbox", program) == [b"1", b"2", b"3"]


def test_an_outbox_in_use_at_a_fork_that_nobody_told_of_takes_nothing_in_the_child(tmp_path):
    program = """
amid, goes_on = threading.Event(), threading.Event()

class Slow(bytes):
    def decode(self):
        amid.set()
        goes_on.wait()
        return "2"

writer = threading.Thread(target=outbox.put, args=(A, Slow()))
writer.start()
amid.wait()
if fork() == 0:
    try:
        outbox.put(A, b"3")
    except OutboxError as error:
        os._exit("still in use when this process was forked" not in str(error))
    os._exit(2)
goes_on.set()
writer.join()
outbox.put(A, b"4")
sys.exit(os.wait()[1] != 0)
"""
    assert after_an_untold_fork(tmp_path / "outbox", program) == [b"1", b"2", b"4"]


class Slow(bytes):
    """A change that is not written before it may be."""

    amid: threading.Event
    goes_on: threading.Event

    def decode(self, *_: str) -> str:
        self.amid.set()
        self.goes_on.wait(30)
        return "{}"


def slow(amid: threading.Event, goes_on: threading.Event) -> Slow:
    change = Slow()
    change.amid, change.goes_on = amid, goes_on
    return change


class Watched:
    """A lock that tells how many threads came for it, and when one came that waits only so long."""

    def __init__(self, hurried: threading.Event) -> None:
        self._lock = threading.RLock()
        self._hurried = hurried
        self.came = 0
        self.release = self._lock.release

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if timeout >= 0:
            self._hurried.set()
        return self._lock.acquire(blocking, timeout)

    def __enter__(self) -> None:
        self.came += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def child_s_put(outbox: OutboxFile, is_forked: threading.Event) -> str:
    """What a child that is forked now is told when it puts a change."""
    told, tell = os.pipe()
    if (child := os.fork()) == 0:
        try:
            outbox.put(A, b"{}")
            os.write(tell, b"taken")
        except OutboxError as error:
            os.write(tell, str(error).encode())
        finally:
            os._exit(0)
    is_forked.set()
    os.close(tell)
    os.waitpid(child, 0)
    with open(told, "rb") as answer:
        return answer.read().decode()


def test_a_fork_goes_before_all_that_wait_for_the_outbox(tmp_path, monkeypatch):
    forks, is_forked, amid = threading.Event(), threading.Event(), threading.Event()
    with closing(OutboxFile(tmp_path / "outbox")) as outbox, ThreadPoolExecutor(4) as threads:
        lock = Watched(forks)
        monkeypatch.setattr(outbox, "_lock", lock)
        threads.submit(outbox.put, A, slow(amid, forks))
        assert amid.wait(60)
        for _ in range(3):  # would hold up the fork for too long
            threads.submit(outbox.put, A, slow(amid, is_forked))
        eventually(lambda: lock.came == 4)
        assert child_s_put(outbox, is_forked) == "taken"


def test_an_outbox_in_use_for_too_long_at_a_fork_takes_nothing_in_the_child(tmp_path):
    amid, is_forked = threading.Event(), threading.Event()
    used = OutboxFile(tmp_path / "outbox", let_go_seconds=0.05)
    with closing(used) as outbox, ThreadPoolExecutor(1) as thread:
        thread.submit(outbox.put, A, slow(amid, is_forked))
        assert amid.wait(60)
        said = child_s_put(outbox, is_forked)
    assert "was still in use when this process was forked: publish nothing" in said


class Member:
    """Is told of forks, and may fail at it."""

    def __init__(self, *, fails: bool = False) -> None:
        self.told: list[str] = []
        self._fails = fails
        notify_of_forks(self)

    def before_fork(self) -> None:
        self.told.append("before")
        if self._fails:
            raise RuntimeError("no fork now")

    def after_fork(self, *, in_child: bool) -> None:
        self.told.append("in the child" if in_child else "in the parent")
        if self._fails:
            raise RuntimeError("too late")


def fork() -> None:
    """Wait for a child that does nothing."""
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)


def test_whoever_fails_before_a_fork_keeps_no_other_from_being_told(caplog):
    faulty, *others = Member(fails=True), Member(), Member()
    fork()
    again = threading.Thread(target=fork, daemon=True)
    again.start()
    again.join(60)
    assert not again.is_alive()
    assert [each.told for each in others] == [["before", "in the parent"] * 2] * 2
    assert faulty.told == ["before", "before"]
    assert "no fork now" in caplog.text


def test_a_child_goes_on_whoever_fails_after_its_fork():
    members = [Member(fails=True), Member(), Member()]
    if (child := os.fork()) == 0:
        os._exit(sum(each.told[-1:] == ["in the child"] for each in members))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def test_a_relay_with_connections_of_one_thread_ends_and_survives_a_fork(tmp_path):
    database = tmp_path / "app.db"
    with scripted_hub(accept) as (url, posted), closing(sqlite3.connect(database)) as connection:
        connection.executescript(Outbox.sql("sqlite"))
        with Relay(lambda: sqlite3.connect(database), url):
            for number in "12":
                Outbox().updated(connection, "a", number)
                connection.commit()
                eventually(lambda: [number] in [each.locs for each in posted])  # noqa: B023
                fork()


class HangingDatabase:
    """A table whose driver does not come back, as when the network is cut."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._hangs, self._answers = threading.Event(), threading.Event()
        self.table = OutboxTable(self._connect, "in the database", let_go_seconds=0.05)
        self.asking = threading.Thread(target=self.table.waiting)

    def __enter__(self) -> Self:
        self.asking.start()
        self._hangs.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.set()
        self.asking.join()
        self.table.close()

    def _connect(self) -> sqlite3.Connection:
        self._hangs.set()
        self._answers.wait(60)
        connection = sqlite3.connect(self._database, check_same_thread=False)
        connection.executescript(Outbox.sql("sqlite"))
        return connection


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[HangingDatabase]:
    with HangingDatabase(tmp_path / "app.db") as database:
        yield database


def test_a_fork_does_not_wait_for_a_database_that_does_not_answer(hanging):
    fork()
    assert hanging.asking.is_alive()


def test_a_table_ends_without_a_database_that_does_not_answer(hanging):
    hanging.table.close()
    assert hanging.asking.is_alive()


def test_a_connection_of_another_thread_is_an_error_that_says_how_to_connect(tmp_path):
    with scripted_hub(accept) as (url, posted), closing(sqlite3.connect(tmp_path / "db")) as own:
        own.executescript(Outbox.sql("sqlite"))
        Outbox().updated(own, "a", "1")
        own.commit()
        with Relay(lambda: sqlite3.connect(tmp_path / "db"), url) as relay:
            eventually(lambda: posted)
            with pytest.raises(OutboxError, match="check_same_thread=False"):
                relay.table.waiting()
    gc.collect()  # what no thread could close goes here, where its warning is expected
