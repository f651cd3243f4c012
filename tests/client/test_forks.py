"""What an outbox, and what else is told of forks, does when its process forks."""

from contextlib import closing
from pathlib import Path

from rsnotify_client.outboxfile import OutboxFile
from tests.client.hubs import python

UNTOLD = """
import ctypes, os, sys, threading
from rsnotify.resourcesync.notification import ChannelName
from rsnotify_client import OutboxError
from rsnotify_client.outboxfile import OutboxFile

A = ChannelName("a", "change")

def fork():  # as uWSGI does it
    child = ctypes.PyDLL(None).fork()
    if child == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    return child

outbox = OutboxFile(sys.argv[1])
outbox.put(A, b"1")
"""


def after_an_untold_fork(path: Path, program: str) -> list[bytes]:
    """What the file holds when parent and child have ended."""
    process = python("-c", UNTOLD + program, str(path))
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    with closing(OutboxFile(path)) as outbox:
        batch = outbox.take((), 10)
    assert batch is not None
    return list(batch.changes)


def test_nothing_is_lost_when_a_parent_closes_that_told_of_its_fork_only_afterwards(
    tmp_path: Path,
) -> None:
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


def test_an_outbox_in_use_at_a_fork_that_nobody_told_of_takes_nothing_in_the_child(
    tmp_path: Path,
) -> None:
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
        os._exit("in use when this process was forked" not in str(error))
    os._exit(2)
goes_on.set()
writer.join()
outbox.put(A, b"4")
sys.exit(os.wait()[1] != 0)
"""
    assert after_an_untold_fork(tmp_path / "outbox", program) == [b"1", b"2", b"4"]
