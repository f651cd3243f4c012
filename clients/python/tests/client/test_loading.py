"""A whole state, loaded by the client: its moment, what waits before it, what becomes of it."""

import asyncio
import json
import os
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import sleep

import pytest

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.retry import Backoff
from rsnotify_bridge.target import HubTarget
from rsnotify_client import (
    AsyncPublisher,
    HubUnreachable,
    InvalidArgument,
    Publisher,
    TimedOut,
    WrongToken,
    loading,
)
from rsnotify_client.hub import HubAnswer, HubClient
from rsnotify_client.loading import LoadBody, LoadRequest, line_of, lines_of, standing_of
from tests.support.hub_processes import Answer, granting, loading_hub, serving_by
from tests.support.running import TOKEN, RunningHub

SET = "dataset1"
States = Generator[dict[str, object], None, None]


def loc(name: str) -> str:
    return f"http://example.com/{name}"


def states(*names: str, **fields: object) -> list[dict[str, object]]:
    return [{"loc": loc(name)} | fields for name in names]


async def in_thread(hub: RunningHub, work: Callable[[Publisher], None]) -> None:
    def act() -> None:
        with Publisher(hub.url, TOKEN) as publisher:
            work(publisher)

    await asyncio.to_thread(act)


async def test_a_state_is_loaded_and_what_is_newer_stays(hub):
    def work(publisher: Publisher) -> None:
        assert publisher.load(SET, states("a", "draft")).created == 2
        as_of = publisher.position(SET)
        exported = states("a", "draft", "b")
        publisher.deleted(SET, loc("draft"))
        publisher.flush()
        done = publisher.load(SET, exported, as_of=as_of)
        counts = (done.created, done.unchanged, done.newer, done.published, done.as_of)
        assert counts == (1, 2, 1, True, as_of)
        assert publisher.load(SET, states("a", "b"), as_of=publisher.position(SET)).unchanged == 2

    await in_thread(hub, work)


async def test_a_token_that_is_refused_is_told_as_by_a_publish(hub):
    words = f"^{hub.url}: .* revoked; give a token"

    def work() -> None:
        with Publisher(hub.url, "x" * 40) as publisher, pytest.raises(WrongToken, match=words):
            publisher.load(SET, states("a"))

    await asyncio.to_thread(work)


async def test_without_its_moment_an_older_state_is_refused_unless_it_is_meant(hub):
    def work(publisher: Publisher) -> None:
        publisher.load(SET, states("a", "draft"))
        publisher.publish(SET, [Change(loc("draft"), "deleted")])
        with pytest.raises(Rejected, match="published since the load before") as refused:
            publisher.load(SET, states("a", "draft"))
        assert refused.value.status == 409
        assert publisher.load(SET, states("a", "draft"), overwrite=True).created == 1

    await in_thread(hub, work)


async def test_what_was_put_before_is_published_before_the_load(hub):
    """Else the load would come first, and an older change of the same resource after it."""

    def work(publisher: Publisher) -> None:
        publisher.load(SET, states("a"))
        as_of = publisher.position(SET)

        def read() -> States:
            publisher.updated(SET, loc("a"), length=1)
            publisher.deleted(SET, loc("a"))
            yield from states("b")

        done = publisher.load(SET, read(), as_of=as_of)
        assert (done.created, done.deleted) == (1, 0)
        assert publisher.counters.waiting == 0

    await in_thread(hub, work)


async def test_progress_is_told_after_each_thousand_and_at_the_end(hub):
    def work(publisher: Publisher) -> None:
        said: list[int] = []
        names = [f"res{number}" for number in range(2_001)]
        publisher.load(SET, states(*names), progress=said.append)
        assert said == [1_000, 2_000, 2_001]

    await in_thread(hub, work)


async def test_an_event_loop_goes_on_while_a_state_is_loaded(hub):
    async with AsyncPublisher(hub.url, TOKEN) as publisher:
        as_of = await publisher.position(SET)
        main = threading.get_ident()
        read_in = list[int]()

        def read() -> States:
            read_in.append(threading.get_ident())
            yield from states("a", "b")

        done = await publisher.load(SET, read(), as_of=as_of)
        assert done.created == 2
        assert read_in != [main]


def test_a_publisher_that_is_switched_off_reads_nothing():
    def read() -> States:
        raise AssertionError("read")
        yield

    with Publisher("", enabled=False) as publisher:
        assert publisher.position(SET) == ""
        assert publisher.load(SET, read()).resources == 0


def test_a_resource_is_listed_without_what_says_how_it_changed():
    change = Change(loc("a"), "updated", length=5, datetime="2026-01-01T00:00:00Z")
    assert json.loads(line_of(change)) == {"loc": loc("a"), "length": 5}
    fields = {"loc": loc("a"), "change": "created", "length": 5}
    assert json.loads(line_of(fields)) == {"loc": loc("a"), "length": 5}


def test_the_moment_stands_in_the_first_line():
    position = "2026-11-20T21:34:00.123456Z"
    first, second = b"".join(lines_of(states("a"), position)).splitlines()
    assert (json.loads(first), json.loads(second)) == ({"as_of": position}, {"loc": loc("a")})


# A load that goes on after its answer -------------------------------------------------------------

COUNTS = dict.fromkeys(("resources", "created", "updated", "deleted", "unchanged", "newer"), 1)
ANSWER = {"stage": "publishing", "published": True, "at": "2026-01-02T00:00:00Z", **COUNTS}


def standing(load: object, last_load: object) -> HubAnswer:
    return HubAnswer("http://127.0.0.1", 200, {"load": load, "last_load": last_load})


DONE = Answer(200, dict.fromkeys(loading.OUTCOME, 0) | {"stage": "done"})
BUSY = Answer(503, {"detail": "busy"})


@pytest.fixture
def _soon(monkeypatch):
    monkeypatch.setattr(loading, "BACKOFF", Backoff(0.01, 0.01))


@pytest.mark.usefixtures("_soon")
def test_a_load_that_the_hub_cannot_take_now_is_sent_again_whole_under_its_key():
    body = LoadBody({}, lambda: (each for each in (b"1", b"2")))
    with loading_hub(BUSY, BUSY, DONE) as (url, loads):
        outcome = loading.load(url, None, "a", body, LoadRequest())
    assert outcome["stage"] == "done"
    assert [content for _, content in loads] == [b"12"] * 3
    assert len({key for key, _ in loads}) == 1


@pytest.mark.usefixtures("_soon")
def test_a_load_that_can_be_read_only_once_is_sent_once():
    body = LoadBody({}, lambda: (each for each in (b"1",)), is_repeatable=False)
    with loading_hub(BUSY) as (url, loads), pytest.raises(TryAgain, match="busy"):
        loading.load(url, None, "a", body, LoadRequest())
    assert len(loads) == 1


def test_a_load_is_not_waited_for_longer_than_there_is_patience():
    later = BUSY._replace(headers=(("Retry-After", "50"),))
    body = LoadBody({}, lambda: (each for each in (b"1",)))
    with loading_hub(later) as (url, loads), pytest.raises(TryAgain, match="busy"):
        loading.load(url, None, "a", body, LoadRequest(), patience_seconds=49)
    assert len(loads) == 1


def test_a_load_that_goes_on_is_waited_for():
    assert standing_of(ANSWER, standing(ANSWER, None))["stage"] == "publishing"


@pytest.mark.parametrize("other", [None, ANSWER | {"at": "2026-01-02T00:00:00.000001Z"}])
def test_a_load_that_was_the_last_is_done(other):
    last = ANSWER | {"stage": "done", "created": 5}
    assert standing_of(ANSWER, standing(other, last)) == last


def test_a_load_after_which_another_was_done_is_done():
    later = ANSWER | {"stage": "done", "at": "2026-01-02T00:00:00.000001Z", "created": 5}
    assert standing_of(ANSWER, standing(None, later)) == ANSWER | {"stage": "done"}


async def test_a_bridge_is_told_that_the_set_of_its_load_vanished():
    with granting(json.dumps(ANSWER | {"load": None, "last_load": None}).encode()) as url:
        target = HubTarget(url, TOKEN, SET)
        with closing(target), pytest.raises(Rejected, match="the load is gone"):
            await target.load(no_states, "key", LoadRequest(max_delete=0))


def no_states() -> Generator[Change, None, None]:
    yield from ()


@pytest.mark.parametrize(
    "last", [None, ANSWER | {"stage": "done", "at": "2026-01-01T23:59:59.999999Z"}]
)
def test_a_load_whose_set_vanished_is_gone(last):
    with pytest.raises(Rejected, match="the load is gone"):
        standing_of(ANSWER, standing(None, last))


# A hub that does not get done with it -------------------------------------------------------------


@pytest.mark.timeout(60)  # without a limit of its own each waits for minutes
@pytest.mark.parametrize("timeout", [0.05, 0.6])
def test_a_load_waits_no_longer_than_it_was_told_for_a_hub_that_says_nothing(timeout):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        publisher = Publisher(f"http://127.0.0.1:{silent.getsockname()[1]}", "token")
        with pytest.raises(TryAgain, match=r"no answer in time|took more than"):
            publisher.load(SET, states("a"), timeout=timeout)


@pytest.mark.timeout(60)
def test_nor_for_one_that_takes_a_large_body_too_slowly():
    large = [{"loc": loc(os.urandom(500).hex())} for _ in range(20_000)]  # no buffer takes it
    with socket.create_server(("127.0.0.1", 0)) as silent:
        publisher = Publisher(f"http://127.0.0.1:{silent.getsockname()[1]}", "token")
        with pytest.raises(TryAgain):
            publisher.load(SET, large, timeout=0.3)


@pytest.mark.timeout(60)
def test_nor_for_an_answer_when_its_time_is_over_once_all_is_sent():
    def body() -> Iterator[bytes]:
        yield b"[]"
        sleep(0.2)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = HubClient(f"http://127.0.0.1:{silent.getsockname()[1]}", "token")
        with closing(client), pytest.raises(HubUnreachable, match="no answer in time"):
            client.ask("PUT", "/", body=body(), seconds=0.1)


@pytest.mark.timeout(60)
async def test_nor_for_one_that_compares_for_ever_and_then_its_key_repeats_it():
    comparing = ANSWER | {"stage": "comparing"}
    content = json.dumps(comparing | {"load": comparing, "last_load": None}).encode()
    said = (
        r"load of 'dataset1' took more than [\d.]+ s; the hub is at it: comparing: repeat it with"
    )
    with granting(content) as url:
        with Publisher(url, TOKEN) as publisher, pytest.raises(TryAgain, match=said):
            publisher.load(SET, states("a"), timeout=2)
        async with AsyncPublisher(url, TOKEN) as publisher_of_loop:
            with pytest.raises(TryAgain, match=said):
                await publisher_of_loop.load(SET, states("a"), timeout=2)


@pytest.mark.timeout(60)
def test_where_a_hub_says_no_more_of_a_load_its_last_answer_is_told_and_no_wrong_address():
    stopped = threading.Event()

    class Takes(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            content = json.dumps(ANSWER | {"stage": "comparing"}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            self.close_connection = True

        def do_GET(self) -> None:
            stopped.wait(30)

        def log_message(self, *_: object) -> None:
            pass

    said = r"took more than [\d.]+ s; the hub is at it: comparing, as it answered last: repeat it"
    with serving_by(ThreadingHTTPServer(("127.0.0.1", 0), Takes)) as url:
        with Publisher(url, TOKEN) as publisher, pytest.raises(TryAgain, match=said):
            publisher.load(SET, states("a"), timeout=loading.LOOK_SECONDS + 1)
        stopped.set()


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("publishing", "the hub publishes 3 differences"),
        ("listing", "the hub lists 1 resources"),
        ("comparing", "the hub is at it: comparing"),
    ],
)
def test_what_the_hub_does_with_a_load_that_it_has_taken_is_said(stage, words):
    at_it, said = ANSWER | {"stage": stage}, list[str]()
    body = LoadBody({}, lambda: (each for each in (b"[]",)))
    content = json.dumps(at_it | {"load": at_it, "last_load": None}).encode()
    with granting(content) as url, pytest.raises(TryAgain, match="took more than"):
        loading.load(url, TOKEN, SET, body, LoadRequest(), timeout=0.2, say=said.append)
    assert set(said) == {words}


def test_nor_for_what_it_was_given_before():
    publisher = Publisher("http://127.0.0.1:9", TOKEN)
    publisher.updated(SET, loc("a"))
    with pytest.raises(TimedOut, match="1 change is not published after"):
        publisher.load(SET, states("a"), timeout=0.05)
    with suppress(TimedOut):
        publisher.close(0)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_no_time_at_all_is_refused(timeout):
    with pytest.raises(InvalidArgument, match="timeout is"):
        Publisher("http://127.0.0.1:9").load(SET, states("a"), timeout=timeout)


@pytest.mark.parametrize("wrong", ["http://a/1", 5, None, ["http://a/1"]])
def test_a_state_that_is_no_resource_is_refused_with_what_to_give_instead(wrong):
    with pytest.raises(InvalidArgument, match="is no resource: give a dict, such as"):
        line_of(wrong)


@pytest.mark.parametrize("wrong", [5, None, "http://a/1", b"http://a/1", {"loc": "http://a/1"}])
def test_what_is_no_row_of_states_is_refused_with_what_to_give_instead(wrong):
    with (
        pytest.raises(InvalidArgument, match=r"states is .*: give several"),
        loading.spooled(wrong),
    ):
        pass
