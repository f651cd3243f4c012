"""The publisher against a hub that answers what a test tells it to."""

import asyncio
import gc
import inspect
import math
import re
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import pytest

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.resourcesync.retry import Backoff
from rsnotify_client import (
    AsyncPublisher,
    HubUnreachable,
    InvalidArgument,
    Outbox,
    Publisher,
    QueueFull,
    RefusedChange,
    network,
    sender,
    threads,
)
from rsnotify_client import publisher as publisher_module
from rsnotify_client.answer import NotAHub, WrongToken
from rsnotify_client.asyncpublisher import THREADS
from rsnotify_client.queue import MemoryQueue
from rsnotify_client.sender import Troubles
from tests.support.children import in_child
from tests.support.hub_processes import (
    ACCEPTED,
    Answer,
    Posted,
    accept,
    eventually,
    problem,
    python,
    scripted_hub,
)

pytestmark = [
    pytest.mark.usefixtures("quick_retries"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
]


def in_turn(*answers: Answer) -> Callable[[Posted], Answer]:
    """Each answer once, then everything is accepted."""
    left = list(answers)
    return lambda _: left.pop(0) if left else ACCEPTED


BUSY = problem(503, "busy")


@contextmanager
def held_hub() -> Iterator[tuple[str, list[Posted], threading.Event]]:
    """A hub that answers no request until the event is set."""
    gate = threading.Event()

    def slow(_: Posted) -> Answer:
        gate.wait(60)
        return ACCEPTED

    with scripted_hub(slow) as (url, posted):
        yield url, posted, gate


def test_what_comes_while_the_hub_is_answering_goes_together_in_order():
    with held_hub() as (url, posted, gate), Publisher(url) as publisher:
        publisher.created("a", "first")
        eventually(lambda: posted)
        for number in range(50):
            publisher.updated("a", str(number))
        gate.set()
        publisher.flush(10)
    assert [request.locs for request in posted] == [["first"], [str(n) for n in range(50)]]


def test_a_repeated_request_has_the_same_key_and_the_same_changes():
    with scripted_hub(in_turn(BUSY, BUSY)) as (url, posted), Publisher(url) as publisher:
        publisher.created("a", "1")
        eventually(lambda: len(posted) > 1)
        publisher.created("a", "2")
        publisher.flush(10)
    assert posted[0] == posted[1] == posted[2]
    assert posted[3].locs == ["2"]
    assert posted[3].key != posted[0].key


def test_an_answer_that_was_lost_is_asked_for_under_the_same_key():
    def lost(request: Posted) -> Answer:
        if len(posted) == 1:
            raise ConnectionAbortedError
        return ACCEPTED

    with scripted_hub(lost) as (url, posted), Publisher(url) as publisher:
        publisher.created("a", "1")
        publisher.flush(10)
    assert posted[0] == posted[1]


def test_a_refused_change_is_told_and_does_not_block_those_behind_it():
    refused: list[RefusedChange] = []

    def one_is_bad(request: Posted) -> Answer:
        if "bad" not in request.locs:
            return ACCEPTED
        return problem(400, "", (request.locs.index("bad"), "no URI"))

    with (
        scripted_hub(one_is_bad) as (url, posted),
        Publisher(url, on_refused=refused.append, batch_seconds=10) as publisher,
    ):
        for loc in ("1", "bad", "3"):
            publisher.updated("a", loc)
        publisher.flush(10)
        assert publisher.counters[:4] == (3, 2, 1, 0)
    assert [(each.set_name, each.change.loc, each.reason) for each in refused] == [
        ("a", "bad", "no URI")
    ]
    assert posted[-1].locs == ["1", "3"]
    assert posted[-1].key != posted[0].key


def no_bad(request: Posted) -> Answer:
    return problem(400, "", (0, "bad")) if request.locs[0] == "bad" else ACCEPTED


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_a_callback_that_fails_or_publishes_does_not_stop_the_publisher(error):
    def report(refused: RefusedChange) -> None:
        publisher.updated("log", f"refused: {refused.reason}")
        raise error("the callback's own fault")

    with scripted_hub(no_bad) as (url, posted), Publisher(url, on_refused=report) as publisher:
        publisher.updated("a", "bad")
        eventually(lambda: publisher.counters.published == 1)
    assert posted[-1].set_name == "log"


def test_a_callback_that_flushes_is_told_that_it_cannot(caplog):
    with (
        scripted_hub(in_turn(problem(400, "", (0, "bad")))) as (url, _),
        Publisher(url, on_refused=lambda _: publisher.flush()) as publisher,
    ):
        publisher.updated("a", "bad")
        publisher.flush(10)
        eventually(lambda: "on_refused cannot flush" in caplog.text)


def test_a_proxy_with_a_smaller_limit_gets_smaller_batches():
    def at_most_two(request: Posted) -> Answer:
        return Answer(413, b"<html>") if len(request.locs) > 2 else ACCEPTED

    with scripted_hub(at_most_two) as (url, posted), Publisher(url) as publisher:
        for number in range(20):
            publisher.updated("a", str(number))
        publisher.flush(10)
    published = [loc for request in posted if len(request.locs) <= 2 for loc in request.locs]
    assert published == [str(number) for number in range(20)]


def test_a_key_that_was_used_is_replaced_at_once_but_not_again_and_again(monkeypatch):
    monkeypatch.setattr(sender, "HUB_BACKOFF", Backoff(60.0, 60.0, certain=1.0))
    used = problem(409, "this key was used for other changes")
    with scripted_hub(in_turn(used, used)) as (url, posted):
        publisher = Publisher(url)
        with publisher._store._lock:
            publisher.updated("a", "1")
            publisher.updated("a", "2")
        with pytest.raises(Rejected, match="used for other changes"):
            publisher.flush(10)
        assert publisher.counters.retries == 1
        publisher.close()
    assert [request.locs for request in posted] == [["1", "2"], ["1"], ["1"], ["2"]]
    assert len({request.key for request in posted}) == 4


def test_trouble_with_one_set_does_not_hold_up_another():
    mended = threading.Event()

    def no_set_a(request: Posted) -> Answer:
        there = request.set_name != "a" or mended.is_set()
        return ACCEPTED if there else problem(404, "there is no set 'a'")

    with scripted_hub(no_set_a) as (url, posted), Publisher(url) as publisher:
        publisher.updated("a", "1")
        publisher.updated("b", "2")
        with pytest.raises(Rejected, match="there is no set 'a'"):
            publisher.flush()
        eventually(lambda: any(request.set_name == "b" for request in posted))
        mended.set()
        publisher.flush(10)
    assert posted[-1].locs == ["1"]


@pytest.mark.parametrize(("asked", "is_told"), [(0.9, False), (1.0, True)])
def test_a_refusal_of_what_was_asked_before_a_flush_does_not_end_it(asked, is_told):
    troubles, channel, refusal = Troubles(), ChannelName("a", "change"), Rejected("no such set")
    troubles.forgive(1.0)
    troubles.postpone(channel, refusal, 1.1, 1.0, asked=asked)
    assert troubles.hopeless(1.0) is (refusal if is_told else None)
    assert troubles.postponed(1.1) == ([channel] if is_told else [])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (problem(401, "the token is not known"), "the token is not known"),
        (Answer(404, b"<html>"), "answered 404 Not Found; is this the hub's address?"),
        (Answer(200, b"<html>"), "with something else than JSON; is this the hub's address?"),
        (Answer(200, {"hello": 1}), "does not say what it accepted; is this the hub's address?"),
        (Answer(301, b"", (("Location", "/"),)), "answered 301 Moved Permanently"),
    ],
)
def test_what_only_an_operator_can_mend_is_said_at_once_and_nothing_is_lost(answer, message):
    given = [answer]
    with scripted_hub(lambda _: given[-1]) as (url, posted), Publisher(url) as publisher:
        publisher.updated("a", "1")
        with pytest.raises(Rejected, match=message):
            publisher.flush()
        given.append(ACCEPTED)
        eventually(lambda: publisher.counters.published == 1)
    assert posted[-1].locs == ["1"]


NEEDED = "a token is needed: send `Authorization: Bearer <token>`"
UNKNOWN = "the token is unknown or has been revoked"
NO_RIGHT = "the token has no right to publish to 'a'"


@pytest.mark.parametrize(
    ("token", "answer", "said"),
    [
        ("", problem(401, NEEDED), NEEDED),
        ("old", problem(401, UNKNOWN), UNKNOWN),
        ("old", problem(403, NO_RIGHT), NO_RIGHT),
    ],
)
def test_a_token_that_is_refused_is_told_with_its_hub_and_the_mend(token, answer, said):
    with (
        scripted_hub(lambda _: answer) as (url, _),
        Publisher(url, token) as publisher,
        pytest.raises(Rejected) as refused,
    ):
        publisher.publish("a", [])
    mend = "give a token that may publish here (`rsnotify tokens create` makes one)"
    assert refused.value.detail == f"{url}: {said}; {mend}"


@pytest.mark.parametrize(
    "given", [iter, list, tuple, lambda found: {each.loc: each for each in found}.values()]
)
def test_changes_may_come_in_whatever_gives_them_one_by_one(given):
    changes = [Change("1", "updated"), Change("2", "updated")]
    with scripted_hub(lambda _: ACCEPTED) as (url, posted), Publisher(url) as publisher:
        publisher.publish("a", given(changes))
    assert [each.locs for each in posted] == [["1", "2"]]


def test_an_address_with_a_path_too_many_is_told_without_it():
    nothing = problem(404, "there is nothing at /api/api/sets/a/changes")
    with (
        scripted_hub(lambda _: nothing) as (url, _),
        Publisher(f"{url}/api") as publisher,
        pytest.raises(Rejected, match="; give the hub's address without /api"),
    ):
        publisher.publish("a", [])


@pytest.mark.parametrize("outbox", [None, "outbox"])
def test_what_no_thread_can_send_is_sent_once_by_the_next_one(
    outbox, tmp_path, monkeypatch, caplog
):
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with scripted_hub(accept) as (url, posted):
        publisher = Publisher(url, outbox=outbox and tmp_path / outbox)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start)
            publisher.updated("a", "1")
        assert "can't start new thread: what waits is published once" in caplog.text
        publisher.updated("a", "2")
        publisher.close()
    assert [loc for request in posted for loc in request.locs] == ["1", "2"]


class Away(Protocol):
    """Makes a publisher to a hub that is away."""

    def __call__(self, **options: Any) -> Publisher: ...


@pytest.fixture
def away() -> Iterator[Away]:
    made: list[Publisher] = []

    def make(**options: Any) -> Publisher:
        made.append(Publisher("http://127.0.0.1:9", **options))
        return made[-1]

    yield make
    for publisher in made:
        with suppress(TimeoutError):
            publisher.close(0)


def test_a_flush_that_takes_too_long_says_what_is_in_the_way(away):
    publisher = away()
    publisher.updated("a", "1")
    eventually(lambda: publisher.counters.retries)
    with pytest.raises(TimeoutError, match=r"1 change is not published after \d+\.\d s: .*refused"):
        publisher.flush(0.1)


def test_what_was_in_the_way_is_known_while_the_hub_is_tried_again():
    troubles, channel = Troubles(), ChannelName("a", "change")
    assert troubles.words() == "the hub has not answered yet"
    troubles.postpone(channel, TryAgain("refused"), now=1.0, chance=1.0)
    troubles.pause(now=1_000.0, longest=1.0)
    assert "refused" in troubles.words()
    troubles.end(channel)
    assert troubles.words() == "the hub has not answered yet"


def test_a_publisher_whose_hub_does_not_answer_says_where_it_looks_for_it(away, caplog):
    away().updated("a", "1")
    eventually(lambda: caplog.messages)
    assert caplog.messages[0].startswith("the hub http://127.0.0.1:9 does not answer (")


def test_an_end_that_would_lose_changes_is_an_error(away):
    publisher = away()
    publisher.updated("a", "1")
    with pytest.raises(TimeoutError, match="is lost when the process ends"):
        publisher.close(0.1)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (problem(404, "there is no set 'a'"), Rejected),
        (problem(401, UNKNOWN), WrongToken),
        (Answer(404, b"<html>"), NotAHub),
    ],
)
def test_an_end_that_is_refused_says_by_whom_and_what_becomes_of_the_changes(answer, kind):
    with scripted_hub(lambda _: answer) as (url, _):
        publisher = Publisher(url)
        publisher.updated("a", "1")
        with pytest.raises(Rejected) as flushed:
            publisher.flush()
        before = flushed.value.detail
        with pytest.raises(Rejected) as refused:
            publisher.close()
    assert type(refused.value) is kind
    assert refused.value.detail == str(refused.value) == f"{before}; {publisher_module.LOST}"


def test_an_end_that_is_tried_again_says_once_what_becomes_of_the_changes():
    with scripted_hub(lambda _: problem(404, "there is no set 'a'")) as (url, _):
        publisher = Publisher(url)
        publisher.updated("a", "1")
        for timeout in (10, 0):
            with pytest.raises((Rejected, TimeoutError)) as refused:
                publisher.close(timeout)
    assert str(refused.value).count(publisher_module.LOST) == 1


def test_an_outbox_that_cannot_be_opened_is_not_said_to_hold_changes(tmp_path):
    program = (
        "import sys; from rsnotify_client import OutboxError, Publisher\n"
        "publisher = Publisher('http://127.0.0.1:9', outbox=sys.argv[1])\n"
        "publisher.start()\n"
    )
    _, errors = python("-c", program, str(tmp_path / "missing" / "outbox")).communicate(timeout=200)
    said = [line for line in errors.splitlines() if line.startswith("the process ends: ")]
    (line,) = said
    assert "its directory must exist; what was written to the outbox stays there" in line


def test_an_outbox_that_cannot_be_read_at_the_end_hides_no_other_error(tmp_path):
    outbox = tmp_path / "missing" / "outbox"
    with pytest.raises(KeyError), Publisher("http://127.0.0.1:9", outbox=outbox):
        raise KeyError


def test_a_change_that_comes_after_the_last_flush_is_refused_not_lost(monkeypatch):
    def stop(*seconds: float) -> None:
        with pytest.raises(RuntimeError, match="the publisher is closed"):
            publisher.updated("a", "2")
        original(*seconds)

    with scripted_hub(accept) as (url, posted), Publisher(url) as publisher:
        original = publisher._sender.stop
        monkeypatch.setattr(publisher._sender, "stop", stop)
        publisher.updated("a", "1")
    assert [request.locs for request in posted] == [["1"]]


def test_what_a_callback_publishes_after_the_last_flush_is_published(monkeypatch):
    is_flushed = threading.Event()

    def flush(seconds: float) -> None:
        original(seconds)
        is_flushed.set()

    def report(refused: RefusedChange) -> None:
        assert is_flushed.wait(20)
        publisher.updated("log", f"refused: {refused.reason}")

    with scripted_hub(no_bad) as (url, posted), Publisher(url, on_refused=report) as publisher:
        original = publisher._sender.flush
        monkeypatch.setattr(publisher._sender, "flush", flush)
        publisher.updated("a", "bad")
    assert [request.set_name for request in posted] == ["a", "log"]


def test_a_caller_that_waits_for_room_is_refused_when_the_publisher_closes(away):
    publisher = away(queue_size=1)
    publisher.updated("a", "1")

    def put() -> None:
        with suppress(QueueFull, RuntimeError):  # before it closes, or after
            publisher.updated("a", "2")

    waiting = threading.Thread(target=put, daemon=True)
    waiting.start()
    with pytest.raises(TimeoutError):
        publisher.close(0.1)
    waiting.join(20)
    assert not waiting.is_alive()
    assert publisher.counters.waiting == 1


def test_a_flush_of_another_thread_ends_with_the_publisher(away, monkeypatch):
    publisher, looked, said = away(), [], []
    original = publisher._store.ends

    def ends() -> tuple[int, int] | None:
        looked.append(threading.current_thread())
        return original()

    def flush() -> None:
        try:
            publisher.flush()
        except TimeoutError as error:
            said.append(str(error))

    monkeypatch.setattr(publisher._store, "ends", ends)
    publisher.updated("a", "1")
    flushing = threading.Thread(target=flush, daemon=True)
    flushing.start()
    eventually(lambda: looked.count(flushing) > 1)
    with pytest.raises(TimeoutError):
        publisher.close(0.1)
    flushing.join(20)
    assert [text.rpartition(": ")[2] for text in said] == ["it was closed meanwhile"]


def test_an_end_waits_no_longer_than_it_was_told_for_a_hub_that_is_silent(monkeypatch):
    monkeypatch.setattr(sender, "EXIT_SECONDS", 600)
    is_closed = threading.Event()

    def silent(_: Posted) -> Answer:
        is_closed.wait(20)
        return ACCEPTED

    def close() -> None:
        with suppress(TimeoutError):
            publisher.close(0.1)
        is_closed.set()

    with scripted_hub(silent) as (url, posted):
        publisher = Publisher(url)
        publisher.updated("a", "1")
        eventually(lambda: posted)
        closing = threading.Thread(target=close, daemon=True)
        closing.start()
        assert is_closed.wait(60)
        closing.join()


def test_an_end_may_take_for_ever():
    with scripted_hub(accept) as (url, posted):
        publisher = Publisher(url)
        publisher.updated("a", "1")
        publisher.close(math.inf)
    assert [request.locs for request in posted] == [["1"]]


def connections() -> set[threading.Thread]:
    """Those that hubs of this process serve."""
    return {each for each in threading.enumerate() if "process_request_thread" in each.name}


def test_after_the_end_connections_are_kept_again():
    with scripted_hub(accept) as (url, posted):
        before, publisher = connections(), Publisher(url)
        publisher.close()
        publisher.publish("a", [])
        publisher.publish("a", [])
        assert len(connections() - before) == 1
        publisher.close()
        eventually(lambda: not connections() - before)
    assert len(posted) == 2


def test_a_request_that_an_end_does_not_wait_for_keeps_no_connection():
    with held_hub() as (url, posted, gate):
        before, publisher = connections(), Publisher(url)
        publishing = threading.Thread(target=publisher.publish, args=("a", []))
        publishing.start()
        eventually(lambda: posted)
        publisher.close()
        gate.set()
        publishing.join()
        eventually(lambda: not connections() - before)


def test_a_process_that_ends_does_not_wait_twice():
    program = (
        "from rsnotify_client import Publisher, sender\n"
        "sender.EXIT_SECONDS = 0.1\n"
        "sender.Sender.stop = lambda self, seconds=0.1: print(seconds <= 0)\n"
        "Publisher('http://127.0.0.1:9').updated('a', '1')\n"
    )
    out, _ = python("-c", program).communicate(timeout=200)
    assert out == "True\n"


ENDING = (
    "import atexit, sys\n"
    "def publish():\n"
    "    for number in '123':\n"
    "        try: publisher.updated('a', number)\n"
    "        except QueueFull: print('full')\n"
    "if sys.argv[2] == 'late': atexit.register(publish)\n"
    "from rsnotify_client import Publisher, QueueFull, sender\n"
    "publisher = Publisher(sys.argv[1], queue_size=2)\n"
    "if sys.argv[2] == 'early': atexit.register(publish)\n"
)


@pytest.mark.parametrize("when", ["early", "late"])
@pytest.mark.parametrize("before", [[], ["0"]])
def test_what_a_handler_publishes_as_the_process_ends_is_published(when, before):
    program = ENDING + "".join(f"publisher.updated('a', {each!r})\n" for each in before)
    with scripted_hub(accept) as (url, posted):
        _, errors = python("-c", program, url, when).communicate(timeout=200)
    assert [loc for request in posted for loc in request.locs] == [*before, "1", "2", "3"], errors


def test_what_a_handler_publishes_at_the_very_end_in_vain_is_said_and_not_waited_for():
    program = ENDING.replace("publisher =", "sender.EXIT_SECONDS = 0.1\npublisher =")
    out, errors = python("-c", program, "http://127.0.0.1:9", "late").communicate(timeout=200)
    assert out == "full\n"  # nobody makes room
    assert "the process ends: 1 change is not published after" in errors
    assert "the process ends: 2 changes are not published after" in errors
    assert errors.count("the changes are lost") == 2


def test_what_comes_when_no_thread_runs_any_more_is_said_to_be_lost():
    program = (
        "from rsnotify_client import Publisher\n"
        "class Last:\n"
        "    publisher = Publisher('http://127.0.0.1:9')\n"
        "    def __del__(self, Timeout=TimeoutError):\n"
        "        self.publisher.updated('a', '1')\n"
        "        try: self.publisher.flush()\n"
        "        except Timeout as error: print(error)\n"
        "last = Last()\n"
    )
    out, errors = python("-c", program).communicate(timeout=200)
    lost = r"1 change is not published after \d+\.\d s: the process has no threads any more"
    assert re.fullmatch(f"{lost}\n", out)
    assert re.search(f"^the process ends: {lost}; the changes are lost$", errors, re.MULTILINE)


def test_a_publisher_that_was_not_used_is_not_kept():
    kept = weakref.ref(Publisher("http://127.0.0.1:9"))
    gc.collect()
    assert kept() is None


def test_a_connection_that_the_hub_closed_meanwhile_costs_no_retry():
    closes = Answer(201, {"accepted": 1, "from": "a", "until": "b"}, closes=True)
    with scripted_hub(in_turn(closes)) as (url, _), Publisher(url) as publisher:
        publisher.updated("a", "1")
        publisher.flush(10)
        publisher.updated("a", "2")
        publisher.flush(10)
        assert publisher.counters.retries == 0


LAST = Answer(201, {"accepted": 1, "from": "a", "until": "b"}, (("Connection", "close"),))


def test_an_answer_that_ends_its_connection_costs_no_retry():
    with scripted_hub(in_turn(LAST)) as (url, posted), Publisher(url) as publisher:
        for loc in ("1", "2"):
            publisher.updated("a", loc)
            publisher.flush(10)
        assert publisher.counters.retries == 0
    assert [request.locs for request in posted] == [["1"], ["2"]]


@pytest.mark.parametrize(
    "broken",
    [
        Answer(201, b"no chunk\r\n", (("Transfer-Encoding", "chunked"),)),
        Answer(201, b"{", (("Content-Length", "99"), ("Connection", "close"))),
        Answer(201, b"", (("Content-Length", "99"), ("Connection", "close"))),
    ],
    ids=["a chunk", "a part", "the head alone"],
)
def test_an_answer_that_breaks_off_is_asked_for_again_on_a_new_connection(broken):
    answers = iter((broken, ACCEPTED))
    with scripted_hub(lambda _: next(answers)) as (url, posted), Publisher(url) as publisher:
        publisher.updated("a", "1")
        publisher.flush(10)
    first, second = posted
    assert first == second
    gc.collect()  # a socket that was left open is an error now


def test_ten_thousand_changes_wait_in_memory_unless_told_otherwise(away):
    publisher = away(when_full="raise")
    for number in range(10_000):
        publisher.updated("a", str(number))
    with pytest.raises(QueueFull):
        publisher.updated("a", "one more")


def test_a_time_may_be_a_datetime_with_its_zone(away):
    publisher = away()
    publisher.updated("a", "1", lastmod=datetime(2026, 11, 20, 21, 34, tzinfo=UTC))
    with pytest.raises(ValueError, match="has no time zone"):
        publisher.updated("a", "1", lastmod=datetime(2026, 11, 20))


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://hub", "http://", "hub"])
def test_an_address_that_is_none_is_refused_with_one_that_is(url):
    with pytest.raises(
        ValueError, match=r"an address such as http://127\.0\.0\.1:8080|write http://"
    ):
        Publisher(url)


def test_a_publisher_that_is_switched_off_takes_every_call_and_does_nothing(tmp_path):
    outbox, before = tmp_path / "outbox", set(threading.enumerate())
    with Publisher("", outbox=outbox, when_full="raise", enabled=False) as publisher:
        publisher.start()
        for number in range(3):
            publisher.updated("a", str(number))
        publisher.flush(10)
        assert publisher.publish("a", [Change("1", "updated")]).accepted == 0
        assert publisher.counters == (0, 0, 0, 0, 0, 0)
        assert not set(threading.enumerate()) - before
    assert not outbox.exists()


async def test_an_async_publisher_can_be_switched_off():
    async with AsyncPublisher("", enabled=False) as publisher:
        await publisher.updated("a", "1")
        await publisher.flush(10)
        assert (await publisher.publish("a", [Change("1", "updated")])).accepted == 0


async def test_a_mock_in_the_place_of_send_is_told_each_change():
    publisher = AsyncPublisher("", enabled=False)
    with patch.object(AsyncPublisher, "send") as send:
        for call in (publisher.created, publisher.updated, publisher.deleted):
            await call("a", "1")
    assert [each.args[1].change for each in send.await_args_list] == [
        "created",
        "updated",
        "deleted",
    ]


@pytest.mark.parametrize("wrong", ["http://example.com/a", "A", "a b", "", "hub", "a" * 65])
def test_a_name_that_no_set_can_have_is_refused_at_the_call(away, wrong):
    publisher, connection = away(), sqlite3.connect(":memory:")
    calls: tuple[Callable[[], Any], ...] = (
        lambda: publisher.updated(wrong, "a"),
        lambda: publisher.publish(wrong, []),
        lambda: Outbox().updated(connection, wrong, "a"),
    )
    for call in calls:
        with pytest.raises(ValueError, match=r"the name 'hub' is reserved|is not a valid name"):
            call()
    assert publisher.counters.taken == 0
    connection.close()


def test_a_token_with_a_line_break_is_refused_and_not_shown():
    with pytest.raises(ValueError, match=r"^the token cannot be sent: it has a line break"):
        Publisher("http://127.0.0.1:8080", "secret\n")


# Processes -------------------------------------------------------------------------------------


def test_no_thread_runs_before_the_first_change():
    program = (
        "import sys, threading, rsnotify_client\n"
        "publisher = rsnotify_client.Publisher('http://127.0.0.1:9')\n"
        "assert threading.active_count() == 1\n"
        "assert not {'aiohttp', 'asyncio', 'lxml', 'sqlite3', 'websockets'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def published_around_a_fork(outbox: Path | None = None) -> list[list[str]]:
    """What each request holds when a process forks amid its first one, and the child publishes."""
    with held_hub() as (url, posted, gate), Publisher(url, outbox=outbox) as publisher:
        publisher.updated("a", "parent")
        eventually(lambda: posted)
        threading.Timer(0.2, gate.set).start()

        def child() -> None:
            publisher.updated("a", "child")
            publisher.flush(10)

        assert in_child(child) == 0
        publisher.flush(10)
    return [request.locs for request in posted]


def test_a_forked_process_publishes_its_own_changes_and_not_those_of_its_parent():
    assert sorted(published_around_a_fork()) == [["child"], ["parent"]]


def test_a_process_that_forks_amid_a_request_goes_on_sending_alone(tmp_path):
    assert published_around_a_fork(tmp_path / "outbox") == [["parent"], ["child"]]


def test_a_fork_from_a_thread_amid_publishing_never_hangs_the_child():
    with scripted_hub(accept) as (url, posted), Publisher(url) as publisher:
        stop = threading.Event()

        def publish() -> None:
            while not stop.is_set():
                publisher.updated("parent", "1")

        def child() -> None:
            publisher.updated("child", "1")
            publisher.flush(10)

        statuses: list[int] = []
        busy = [threading.Thread(target=publish) for _ in range(3)]
        forking = threading.Thread(target=lambda: statuses.extend(in_child(child) for _ in "123"))
        for thread in (*busy, forking):
            thread.start()
        forking.join()
        stop.set()
        for thread in busy:
            thread.join()
        publisher.flush(30)
    assert statuses == [0, 0, 0]
    assert sum(request.set_name == "child" for request in posted) == 3


def test_a_process_that_learns_of_its_fork_only_afterwards_publishes_too(tmp_path):
    def child() -> None:
        publisher._store._lock.acquire()
        publisher._sender._starting.acquire()
        threads._after_in_child()
        publisher.updated("a", "2")
        publisher.flush(10)

    with (
        scripted_hub(accept) as (url, posted),
        Publisher(url, outbox=tmp_path / "outbox") as publisher,
    ):
        publisher.updated("a", "1")
        publisher.flush(10)
        assert in_child(child) == 0
    assert [request.locs for request in posted] == [["1"], ["2"]]


def check_a_fork_amid(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, url: str) -> None:
    """A process that forks while its sender is in this function for the first time."""
    begun: list[bool] = []  # an event has a lock, which the child would inherit locked
    may_end: list[bool] = []
    make = getattr(module, name)

    def slow(*given: Any) -> Any:
        begun.append(True)
        eventually(lambda: may_end)
        return make(*given)

    def child() -> None:
        signal.alarm(10)
        may_end.append(True)
        with suppress(TryAgain):
            publisher.publish("a", [], timeout=0.001)

    monkeypatch.setattr(module, name, slow)
    publisher = Publisher(url)
    publisher.updated("a", "1")
    eventually(lambda: begun)
    assert in_child(child) == 0
    may_end.append(True)
    with pytest.raises(TimeoutError):
        publisher.close(0)


def test_a_fork_amid_the_first_use_of_tls_never_hangs_the_child(monkeypatch):
    check_a_fork_amid(monkeypatch, ssl, "create_default_context", "https://127.0.0.1:9")


def test_a_fork_amid_the_first_look_at_a_netrc_never_hangs_the_child(monkeypatch, tmp_path):
    """In Python 3.11 a `cached_property` has a lock, which the child would inherit locked."""
    logins = tmp_path / "netrc"
    logins.touch()
    monkeypatch.setenv("NETRC", str(logins))
    check_a_fork_amid(monkeypatch, network, "netrc", "http://127.0.0.1:9")


@pytest.mark.timeout(20)  # without a limit of its own a request has 40 s
@pytest.mark.parametrize("ask", ["publish", "publish_body", "position"])
def test_a_call_waits_no_longer_for_a_hub_that_says_nothing_than_it_was_told(ask):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        publisher = Publisher(f"http://127.0.0.1:{silent.getsockname()[1]}", "token")
        given = {"publish": ([],), "publish_body": (b"", "application/xml"), "position": ()}[ask]
        with pytest.raises(HubUnreachable, match="no answer in time"):
            getattr(publisher, ask)("dataset1", *given, timeout=0.2)


@pytest.mark.timeout(20)
async def test_so_it_does_in_an_event_loop():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        publisher = AsyncPublisher(f"http://127.0.0.1:{silent.getsockname()[1]}", "token")
        with pytest.raises(HubUnreachable):
            await publisher.publish("dataset1", [], timeout=0.2)


def test_a_call_that_is_told_to_wait_long_enough_is_answered():
    with scripted_hub(accept) as (url, _):
        assert (
            Publisher(url).publish("dataset1", [Change("a", "updated")], timeout=60).accepted == 1
        )


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_no_time_at_all_is_refused(timeout):
    with pytest.raises(InvalidArgument, match="timeout is"):
        Publisher("http://127.0.0.1:9").publish("dataset1", [], timeout=timeout)


# Async -----------------------------------------------------------------------------------------


def test_both_publishers_have_the_same_names_with_the_same_parameters():
    def signatures(kind: type) -> Iterator[tuple[str, list[str]]]:
        for name, value in inspect.getmembers(kind):
            if not name.startswith("_"):
                has_some = inspect.isfunction(value)
                yield name, list(inspect.signature(value).parameters) if has_some else []

    assert dict(signatures(AsyncPublisher)) == dict(signatures(Publisher))


def test_both_publishers_take_the_same_options():
    assert inspect.signature(AsyncPublisher) == inspect.signature(Publisher)


async def test_an_event_loop_publishes_in_order():
    with scripted_hub(accept) as (url, posted):
        async with AsyncPublisher(url) as publisher:
            for number in range(100):
                await publisher.updated("a", str(number))
            await publisher.flush(10)
            accepted = await publisher.publish("a", [], key="own")
    assert [loc for request in posted for loc in request.locs] == [str(n) for n in range(100)]
    assert (accepted.until, posted[-1].key) == ("b", "own")


async def test_a_full_queue_does_not_hold_up_the_event_loop():
    with held_hub() as (url, posted, gate):
        async with AsyncPublisher(url, queue_size=1) as publisher:
            await publisher.updated("a", "1")
            waiting = asyncio.ensure_future(publisher.updated("a", "2"))
            for _ in range(10):
                await asyncio.sleep(0.01)
            assert not waiting.done()
            gate.set()
            await waiting
            await publisher.flush(10)
    assert [request.locs for request in posted] == [["1"], ["2"]]


def asked_for(name: str, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Gets an item whenever a queue in memory is asked to do this."""
    asked: list[None] = []
    original = getattr(MemoryQueue, name)

    def ask(*words: Any) -> Any:
        asked.append(None)
        return original(*words)

    monkeypatch.setattr(MemoryQueue, name, ask)
    return asked


async def test_calls_that_wait_for_room_hold_up_neither_a_flush_nor_the_end(monkeypatch):
    publisher = AsyncPublisher("http://127.0.0.1:9", queue_size=1)
    await publisher.updated("a", "0")
    puts = asked_for("put", monkeypatch)
    calls = (publisher.updated("a", str(number)) for number in range(THREADS))
    waiting = [asyncio.ensure_future(call) for call in calls]
    each_twice = 2 * THREADS  # at once, and then in its thread
    await asyncio.to_thread(eventually, lambda: len(puts) == each_twice)
    for end in (publisher.flush(0.1), publisher.close(0.1)):
        with pytest.raises(TimeoutError, match="1 change is not published"):
            await asyncio.wait_for(end, 10)
    ended = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)
    assert {type(error) for error in ended} == {QueueFull}


def serving() -> set[threading.Thread]:
    """The threads that serve calls of any `AsyncPublisher`."""
    return {thread for thread in threading.enumerate() if "(_serve)" in thread.name}


async def test_an_end_that_fails_leaves_no_thread(monkeypatch):
    before = serving()
    publisher = AsyncPublisher("http://127.0.0.1:9", queue_size=1)
    await publisher.updated("a", "0")
    puts = asked_for("put", monkeypatch)
    waiting = asyncio.ensure_future(publisher.updated("a", "1"))
    await asyncio.to_thread(eventually, lambda: len(puts) == 2)
    with pytest.raises(TimeoutError):
        await publisher.close(0.1)
    with pytest.raises(QueueFull):
        await waiting
    await asyncio.to_thread(eventually, lambda: not serving() - before)


async def test_a_publisher_that_is_dropped_leaves_no_thread():
    before = serving()
    with scripted_hub(lambda _: LAST) as (url, _):
        publisher = AsyncPublisher(url)
        await publisher.publish("a", [])
        assert len(serving() - before) == 1
        del publisher
        gc.collect()
        await asyncio.to_thread(eventually, lambda: not serving() - before)


async def test_an_end_that_is_cancelled_goes_on(monkeypatch):
    before = serving()
    with held_hub() as (url, posted, gate):
        publisher = AsyncPublisher(url)
        await publisher.updated("a", "1")
        await asyncio.to_thread(eventually, lambda: posted)
        await publisher.updated("a", "2")
        looked = asked_for("ends", monkeypatch)
        closing = asyncio.ensure_future(publisher.close())
        await asyncio.to_thread(eventually, lambda: looked)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        looked.clear()
        await asyncio.to_thread(eventually, lambda: len(looked) > 1)  # it still waits
        gate.set()
        await asyncio.to_thread(eventually, lambda: not serving() - before)
    assert [request.locs for request in posted] == [["1"], ["2"]]


async def test_an_end_that_is_cancelled_and_fails_is_logged(caplog):
    before, gate = serving(), threading.Event()

    def refuse(_: Posted) -> Answer:
        gate.wait(60)
        return problem(401, "who are you?")

    with scripted_hub(refuse) as (url, posted):
        publisher = AsyncPublisher(url)
        await publisher.updated("a", "1")
        closing = asyncio.ensure_future(publisher.close())
        await asyncio.to_thread(eventually, lambda: posted)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        gate.set()
        await asyncio.to_thread(eventually, lambda: not serving() - before)
    own = [each for each in caplog.records if each.name == "rsnotify_client.asyncpublisher"]
    assert ["who are you?" in each.getMessage() for each in own] == [True]


async def test_a_call_that_is_cancelled_publishes_nothing():
    with held_hub() as (url, posted, gate):
        async with AsyncPublisher(url, queue_size=1) as publisher:
            await publisher.updated("a", "1")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(publisher.updated("a", "2"), 0.1)
            gate.set()
            await publisher.updated("a", "3")
    assert [request.locs for request in posted] == [["1"], ["3"]]


async def test_a_flush_that_is_cancelled_ends_its_thread():
    publisher = AsyncPublisher("http://127.0.0.1:9")
    await publisher.updated("a", "1")
    before = set(threading.enumerate())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(publisher.flush(), 0.1)
    eventually(lambda: not set(threading.enumerate()) - before)
    with pytest.raises(TimeoutError):
        await publisher.close(0)


LATER = Answer(503, {"detail": "busy"}, (("Retry-After", "50"),))


async def test_requests_that_are_cancelled_are_not_repeated_and_hold_up_no_other():
    with scripted_hub(lambda posted: LATER if posted.set_name == "a" else ACCEPTED) as (
        url,
        posted,
    ):
        async with AsyncPublisher(url) as publisher:
            requests = [asyncio.ensure_future(publisher.publish("a", [])) for _ in range(THREADS)]
            await asyncio.to_thread(eventually, lambda: len(posted) == THREADS)
            for request in requests:
                request.cancel()
            await asyncio.wait_for(publisher.publish("b", []), 20)
    assert [request.set_name for request in posted] == ["a"] * THREADS + ["b"]


def test_ctrl_c_ends_a_command_that_publishes_to_a_hub_that_is_busy():
    program = (
        "import signal; from rsnotify.cli import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler); main()"
    )
    with scripted_hub(lambda _: LATER) as (url, _):
        process = python("-c", program, "publish", "a", "http://a/1", "--url", url)
        assert process.stderr is not None
        assert "trying again in 50." in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=200)
    assert process.returncode == 130
