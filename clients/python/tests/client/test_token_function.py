"""A token that a function gives: when it is asked, what it may answer, what goes on meanwhile."""

import asyncio
import json
import logging
import os
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from time import time
from typing import Any

import jwt
import pytest
import pytest_asyncio

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Change
from rsnotify_client import (
    AsyncPublisher,
    InvalidArgument,
    Publisher,
    TimedOut,
    TokenFile,
    TokenUnavailable,
    follow_async,
)
from rsnotify_client import token as module
from rsnotify_client.discovery import Capabilities
from rsnotify_client.follower import Follower, SetsFollower
from rsnotify_client.token import HeldToken, end_of
from tests.support.amount import enough
from tests.support.hub_processes import Answer, eventually, problem, scripted_hub
from tests.support.running import RunningHub, clean_environment

SECRET = "a secret of exactly thirty-two b"
SECONDS = 2.0  # of a token: the least that the hub's own checks, each second, let live
RENEWALS = 4


def signed(seconds: float = SECONDS, *, may: bool = True, **claims: Any) -> str:
    rights = {"read": ["secret", "other"], "publish": ["secret"]} if may else {"read": ["another"]}
    return jwt.encode({"exp": time() + seconds, "rsnotify": rights} | claims, SECRET, "HS256")


class Function:
    """Counts how often it was asked; the n-th answer is what `answer(n)` gives."""

    def __init__(self, answer: Callable[[int], Any]) -> None:
        self.asked = 0
        self._answer = answer
        self._lock = threading.Lock()

    def __call__(self) -> Any:
        with self._lock:
            self.asked += 1
            number = self.asked
        return self._answer(number)


def failing(number: int) -> str:
    raise ConnectionError(f"no route to https://tokens.example/?access_token=hidden-{number}")


# Which token is shown -----------------------------------------------------------------------------


def test_a_token_without_an_end_is_asked_for_once():
    function = Function(lambda number: f"opaque-{number}")
    held = HeldToken(function)
    assert function.asked == 0
    assert [held.shown() for _ in range(3)] == ["opaque-1"] * 3


def test_another_one_is_asked_for_before_a_jwt_ends_and_nobody_waits_for_it():
    allowed = threading.Event()

    def answer(number: int) -> str:
        if number > 1:
            assert allowed.wait(20)
        return signed(2 if number == 1 else 600, jti=str(number))

    function = Function(answer)
    held = HeldToken(function)
    first = held.shown()
    eventually(lambda: held.shown() == first and function.asked == 2)
    allowed.set()
    eventually(lambda: held.shown() != first)
    assert function.asked == 2


def test_one_thread_asks_for_forty():
    together = threading.Barrier(40)
    function, found = Function(lambda number: f"opaque-{number}"), []
    held = HeldToken(function)

    def ask() -> None:
        together.wait(20)
        shown = held.shown()
        together.wait(20)
        found.append((shown, held.has_another(shown), held.shown()))

    threads = [threading.Thread(target=ask) for _ in range(40)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [("opaque-1", True, "opaque-2")] * 40
    assert function.asked == 2


def test_forty_who_were_refused_learn_together_that_there_is_no_other():
    function, together, found = Function(lambda _: "the-same"), threading.Barrier(40), []
    held = HeldToken(function)
    held.shown()

    def ask() -> None:
        together.wait(20)
        found.append(held.has_another("the-same"))

    threads = [threading.Thread(target=ask) for _ in range(40)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [False] * 40
    assert function.asked == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "what the token function gave is of type NoneType: a token is text"),
        (b"bytes", "what the token function gave is of type bytes: a token is text"),
        ("", "what the token function gave is empty"),
        ("a\nb", "what the token function gave cannot be sent: it has a line break"),
        (" a", "what the token function gave cannot be sent: it has a line break"),
    ],
)
def test_what_is_no_token_is_an_error_of_whoever_gave_it(given, said):
    with pytest.raises(InvalidArgument, match=f"^{said}"):
        HeldToken(lambda: given).shown()


async def of_a_loop() -> str:
    return "opaque"


@pytest.mark.parametrize("given", [b"bytes", 5, of_a_loop])
def test_what_is_neither_text_nor_a_plain_function_is_refused_at_once(given):
    for make in (Publisher, AsyncPublisher):
        with pytest.raises(InvalidArgument, match=r"^the token (is of type|function is a corou)"):
            make("http://127.0.0.1:1", given)


def test_a_function_that_gives_a_coroutine_is_named_for_it():
    with pytest.raises(InvalidArgument, match="is of type coroutine: a token is text"):
        HeldToken(lambda: asyncio.sleep(0)).shown()


def test_what_a_function_raises_is_said_without_a_token():
    with pytest.raises(TokenUnavailable) as raised:
        HeldToken(Function(failing)).shown()
    assert str(raised.value).startswith("the token function has failed: ConnectionError: no route")
    assert "hidden" not in str(raised.value)


def test_a_function_that_has_failed_is_not_asked_again_at_once():
    function = Function(failing)
    held = HeldToken(function)
    for _ in range(50):
        with pytest.raises(TokenUnavailable):
            held.shown()
    assert function.asked <= 2


def test_a_function_that_ends_its_thread_fails_as_any_other():
    def leave() -> str:
        raise SystemExit(3)

    with pytest.raises(TokenUnavailable, match="SystemExit: 3"):
        HeldToken(leave).shown()


def test_a_function_is_waited_for_as_long_as_was_said_and_asked_once_meanwhile():
    allowed = threading.Event()
    function = Function(lambda _: allowed.wait(60) and "opaque")
    held = HeldToken(function)
    for _ in range(3):
        with pytest.raises(TokenUnavailable, match=r"has not answered in 0\.05 s"):
            held.shown(0.05)
    allowed.set()
    assert held.shown() == "opaque"
    assert function.asked == 1


def test_a_token_that_has_ended_by_a_wrong_clock_is_shown_until_it_is_refused(caplog):
    function = Function(lambda number: signed(-3_600, jti=str(number)))
    held = HeldToken(function)
    shown = held.shown()
    assert [held.shown() for _ in range(3)] == [shown] * 3
    assert function.asked == 1
    assert caplog.text.count("by the clock of this machine the token has ended") == 1
    assert held.has_another(shown)
    assert function.asked == 2


@pytest.mark.parametrize(
    "text",
    [
        "rsn_abc",
        "a.b.c",
        "e30.bm8ganNvbg.c2ln",
        "e30.eyJleHAiOnRydWV9.c2ln",
        "e30.eyJleHAiOjFlOTk5fQ.c2ln",
        "e30.W10.c2ln",
        "e30.=.c2ln",
        "a.é.c",
    ],
)
def test_a_token_that_does_not_say_when_it_ends_has_no_end(text):
    assert end_of(text) is None


def test_nothing_shows_a_token():
    publisher = Publisher("http://127.0.0.1:1", "opaque-secret")
    for each in (HeldToken("opaque-secret"), publisher, vars(publisher)):
        assert "opaque-secret" not in repr(each)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")
def test_a_forked_process_asks_for_itself():
    """Whoever was asked in the parent is not in the child, and would never answer there."""
    allowed = threading.Event()
    function = Function(lambda number: "opaque" if number > 1 or allowed.wait(60) else "")
    held = HeldToken(function)
    with pytest.raises(TokenUnavailable):
        held.shown(0.01)
    process = os.fork()
    if process == 0:
        os._exit(0 if held.shown() == "opaque" else 1)
    assert os.waitpid(process, 0)[1] == 0
    allowed.set()
    assert held.shown() == "opaque"


# Files --------------------------------------------------------------------------------------------


def test_a_file_is_read_anew_when_its_token_is_refused(tmp_path):
    file = tmp_path / "token"
    file.write_text("first\n")
    held = HeldToken(TokenFile(file))
    assert held.shown() == "first"
    assert not held.has_another("first")
    file.write_text("second\n")
    eventually(lambda: held.has_another("first"))
    assert held.shown() == "second"


@pytest.mark.parametrize("way", ["written", "renamed"])
def test_a_file_that_was_replaced_is_read_though_nobody_has_refused_its_token(
    tmp_path, monkeypatch, way
):
    monkeypatch.setattr(module, "LOOK_SECONDS", 0)
    file, beside = tmp_path / "token", tmp_path / "beside"
    file.write_text("first\n")
    held = HeldToken(TokenFile(file))
    assert [held.shown() for _ in range(3)] == ["first"] * 3
    if way == "written":
        file.write_text("the second\n")
    else:
        beside.write_text("other\n")  # as long
        beside.rename(file)
    eventually(lambda: held.shown() in ("the second", "other"))
    file.unlink()
    assert held.shown() in ("the second", "other")


def test_a_file_that_was_replaced_is_read_by_all_clients_that_share_it(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LOOK_SECONDS", 0)
    file = tmp_path / "token"
    file.write_text("first\n")
    shared = TokenFile(file)
    clients = HeldToken(shared), HeldToken(shared)
    assert [held.shown() for held in clients] == ["first"] * 2
    file.write_text("the second\n")
    for held in clients:
        eventually(lambda held=held: held.shown() == "the second")


def test_a_file_that_nobody_has_replaced_is_not_read_again_and_seldom_looked_at(tmp_path):
    file = tmp_path / "token"
    file.write_text("first\n")
    source = TokenFile(file)
    assert source() == "first"
    assert not source.is_replaced
    file.write_text("the second\n")
    assert not source.is_replaced  # it was looked at a moment ago


def test_a_file_that_is_away_or_empty_for_a_moment_is_tried_again(tmp_path):
    file = tmp_path / "token"
    with pytest.raises(TokenUnavailable, match=f"^the token file {file}: No such file"):
        TokenFile(file)()
    file.write_text("\n")
    with pytest.raises(TokenUnavailable, match=f"^the token file {file}: it is empty"):
        TokenFile(file)()
    file.write_bytes(b"\xff")
    with pytest.raises(InvalidArgument, match=f"^the token file {file}: it has no text"):
        TokenFile(file)()


# Publishing ---------------------------------------------------------------------------------------

CHANGE = Change("http://example.com/a", "updated")


def refusing(*tokens: str) -> Callable[[Any], Answer]:
    """A hub that knows these tokens no longer."""
    return lambda request: (
        problem(401, "the token has expired") if request.token in tokens else Answer(201, ACCEPTED)
    )


ACCEPTED = {"accepted": 1, "from": "a", "until": "b"}


def test_a_refused_token_is_asked_for_once_more_and_the_request_repeated():
    function = Function(lambda number: f"opaque-{number}")
    with scripted_hub(refusing("opaque-1")) as (url, posted), Publisher(url, function) as publisher:
        assert publisher.publish("a", [CHANGE], key="k").accepted == 1
        assert [(each.token, each.key) for each in posted] == [("opaque-1", "k"), ("opaque-2", "k")]
        assert function.asked == 2


@pytest.mark.parametrize("answers", [["opaque"], ["opaque", "other"]])
def test_the_same_token_or_a_second_refusal_is_the_error(answers):
    function = Function(lambda number: answers[(number - 1) % len(answers)])
    with scripted_hub(refusing(*answers)) as (url, posted):
        with Publisher(url, function) as publisher, pytest.raises(Rejected, match="has expired"):
            publisher.publish("a", [CHANGE])
        assert len(posted) == len(answers)
        assert function.asked == 2


def test_a_publisher_keeps_its_changes_while_no_token_can_be_had(quick_retries):
    function = Function(lambda number: failing(number) if number < 3 else "opaque")
    with scripted_hub(refusing()) as (url, posted), Publisher(url, function) as publisher:
        publisher.updated("a", "http://example.com/a")
        publisher.flush(20)
    assert [each.token for each in posted] == ["opaque"]
    assert function.asked == 3


def test_what_is_no_token_is_reported_to_who_waits_for_a_publisher(quick_retries, caplog):
    given: list[Any] = [None]
    with scripted_hub(refusing()) as (url, posted), Publisher(url, lambda: given[0]) as publisher:
        publisher.updated("a", "http://example.com/a")
        with pytest.raises(Rejected, match="gave is of type NoneType"):
            publisher.flush(20)
        with pytest.raises(InvalidArgument, match="gave is of type NoneType"):
            publisher.publish("a", [CHANGE])
        given[0] = "opaque"
        eventually(lambda: publisher.counters.published == 1)
    assert [each.token for each in posted] == ["opaque"]
    assert not any(record.exc_info for record in caplog.records)


def test_a_function_that_does_not_answer_delays_no_longer_than_the_timeout_says():
    allowed = threading.Event()
    with scripted_hub(refusing()) as (url, posted):
        publisher = Publisher(url, lambda: str(allowed.wait(60)))
        with pytest.raises(TokenUnavailable, match="has not answered"):
            publisher.publish("a", [CHANGE], timeout=0.2)
        publisher.updated("a", "http://example.com/a")
        with pytest.raises(TimedOut):
            publisher.flush(0.1)
        allowed.set()
        publisher.close()
    assert [each.token for each in posted] == ["True"]


async def test_forty_tasks_ask_once(quick_retries):
    function = Function(lambda number: f"opaque-{number}")
    with scripted_hub(refusing("opaque-1")) as (url, posted):
        async with AsyncPublisher(url, function) as publisher:
            await asyncio.gather(*(publisher.publish("a", [CHANGE]) for _ in range(40)))
    assert function.asked == 2
    assert {each.token for each in posted} == {"opaque-1", "opaque-2"}


# Following ----------------------------------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def jwt_hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningHub]:
    """Two private sets, secret and other."""
    data = tmp_path_factory.mktemp("tokens") / "data"
    async with RunningHub(data, jwt_key=SECRET) as running:
        for name in ("secret", "other"):
            await running.ask("PUT", f"/api/sets/{name}", json={"private": True})
        yield running


of_the_session = pytest.mark.asyncio(loop_scope="session")


class Stream:
    """Changes that are published one after the other, until it is left; the last is answered then,
    so that none comes to whoever follows the set next."""

    def __init__(self, hub: RunningHub, set_name: str = "secret") -> None:
        self._hub, self._set_name = hub, set_name
        self._is_left = False
        self.published: list[str] = []

    async def __aenter__(self) -> "Stream":
        self._task = asyncio.create_task(self._publish())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_left = True
        await self._task

    async def _publish(self) -> None:
        while not self._is_left:
            loc = f"http://example.com/{len(self.published)}"
            await self._hub.publish(loc, set_name=self._set_name)
            self.published.append(loc)
            await asyncio.sleep(0.02)


def by(
    way: str, hub: RunningHub, function: Callable[[], str] | HeldToken
) -> Follower | SetsFollower:
    """A follower by this way from now on."""
    if way.startswith("several"):
        transport = "long-poll" if "long-poll" in way else None
        cursors = {"secret": None, "other": None}
        return SetsFollower(hub.url, cursors, token=function, transport=transport)
    address = hub.channel("secret")
    offered = Capabilities(address, socket=address)
    return Follower(address, token=function, offered=offered, transport=way)


async def locs(follower: Any, is_enough: Callable[[list[str]], bool]) -> list[str]:
    found: list[str] = []
    async with asyncio.timeout(60), aclosing(aiter(follower)) as pieces:
        async for piece in pieces:
            received = piece[1] if isinstance(piece, tuple) else piece
            found += [change.loc for change in received.changes]
            if is_enough(found):
                break
    return found


def check(found: list[str]) -> None:
    """Each once, in order, and none left out."""
    first = int(found[0].rpartition("/")[2])
    assert found == [f"http://example.com/{number}" for number in range(first, first + len(found))]


WAYS = ("websocket", "long-poll", "sse", "several", "several by long-poll")


@of_the_session
@pytest.mark.parametrize("way", enough(WAYS, 1))
async def test_a_channel_is_renewed_without_a_gap(jwt_hub, way, caplog):
    function = Function(lambda number: signed(jti=str(number)))
    follower = by(way, jwt_hub, function)
    troubles = []

    def is_enough(found: list[str]) -> bool:
        troubles.append(follower.trouble)
        return function.asked > RENEWALS and len(found) > 20

    async with Stream(jwt_hub):
        found = await locs(follower, is_enough)
    check(found)
    assert set(troubles) == {None}
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
    assert "eyJ" not in caplog.text


@of_the_session
@pytest.mark.parametrize("way", enough(WAYS, 1))
async def test_a_function_that_fails_once_is_asked_again_and_nothing_is_lost(
    jwt_hub, way, quick_retries
):
    failed = []

    def answer(number: int) -> str:
        if number in (2, 4):
            failed.append(number)
            failing(number)
        return signed(jti=str(number))

    function = Function(answer)
    async with Stream(jwt_hub):
        found = await locs(by(way, jwt_hub, function), lambda _: function.asked > 6)
    check(found)
    assert failed == [2, 4]


@of_the_session
@pytest.mark.parametrize("way", enough(WAYS, 1))
async def test_a_right_that_is_withdrawn_at_a_renewal_ends_it_plainly(jwt_hub, way):
    function = Function(lambda number: signed(jti=str(number), may=number < 3))
    async with Stream(jwt_hub):
        with pytest.raises(Rejected, match="there is no set 'secret'") as ended:
            await locs(by(way, jwt_hub, function), lambda _: False)
    assert ended.value.status == 404
    assert function.asked == 3


@of_the_session
@pytest.mark.parametrize("way", enough(WAYS, 1))
async def test_a_function_that_gives_the_same_token_again_ends_it_with_its_refusal(
    jwt_hub, way, quick_retries
):
    token = signed()
    with pytest.raises(Rejected, match=r"has (been revoked or has )?expired") as ended:
        await locs(by(way, jwt_hub, lambda: token), lambda _: False)
    assert "eyJ" not in str(ended.value)


@of_the_session
@pytest.mark.evidence
@pytest.mark.parametrize("way", WAYS)
async def test_a_clock_that_is_behind_costs_a_reconnection_and_no_change(
    jwt_hub, way, monkeypatch, quick_retries
):
    """The token counts here for an hour after the hub has ended it."""
    monkeypatch.setattr(module, "time", lambda: time() - 3_600)
    function = Function(lambda number: signed(jti=str(number)))
    async with Stream(jwt_hub):
        found = await locs(by(way, jwt_hub, function), lambda _: function.asked > 2)
    check(found)


@of_the_session
@pytest.mark.parametrize("way", enough(["websocket", "sse", "several"], 1))
async def test_a_channel_that_is_opened_while_the_function_is_slow_stays(jwt_hub, way, caplog):
    """Another token is due, and is not there yet. Each long poll has the newest by itself."""
    allowed = threading.Event()
    function = Function(lambda number: signed(4 if number == 1 or not allowed.wait(20) else 600))
    held = HeldToken(function)
    eventually(lambda: held.shown() and function.asked == 2)
    caplog.set_level(logging.INFO, "rsnotify_client")
    begun = asyncio.get_running_loop().time()

    def is_enough(_: list[str]) -> bool:
        if asyncio.get_running_loop().time() - begun > 0.5:
            allowed.set()
        return function.asked == 2 and "renewed" in caplog.text

    async with Stream(jwt_hub):
        check(await locs(by(way, jwt_hub, held), is_enough))
    assert caplog.text.count("the token was renewed") == 1


@of_the_session
@pytest.mark.parametrize("way", enough(WAYS, 1))
async def test_a_silent_channel_outlives_any_number_of_tokens(jwt_hub, way):
    """Nothing comes until several of them have ended."""
    function = Function(lambda number: signed(jti=str(number)))
    reading = asyncio.create_task(locs(by(way, jwt_hub, function), bool))
    async with asyncio.timeout(60):
        while function.asked < RENEWALS and not reading.done():
            await asyncio.sleep(0.05)
    await jwt_hub.publish("http://example.com/0", set_name="secret")
    assert await reading == ["http://example.com/0"]


@of_the_session
async def test_a_follower_begins_once_a_token_can_be_had(jwt_hub, quick_retries):
    function = Function(lambda number: failing(number) if number < 3 else signed(600))
    changes = follow_async(jwt_hub.channel("secret"), position="2020-01-01", token=function)
    async with Stream(jwt_hub), asyncio.timeout(30), aclosing(changes):
        assert (await anext(changes)).change == "updated"
    assert function.asked == 3


@pytest.mark.evidence
@of_the_session
async def test_a_command_goes_on_with_what_its_token_file_has_next(jwt_hub, tmp_path):
    file, written = tmp_path / "token", 0

    async def renew() -> None:
        nonlocal written
        while True:
            file.write_text(signed(jti=str(written)))
            written += 1
            await asyncio.sleep(SECONDS / 4)

    renewing = asyncio.create_task(renew())
    await asyncio.sleep(0)
    settings = {"RSNOTIFY_TOKEN_FILE": str(file), "RSNOTIFY_URL": jwt_hub.url}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rsnotify", "subscribe", "secret", "--json"),
        stdout=PIPE,
        stderr=PIPE,
        env=clean_environment() | settings,
    )
    found: list[str] = []
    async with Stream(jwt_hub), asyncio.timeout(60):
        while written < 6 * RENEWALS or not found:
            line = json.loads(await process.stdout.readline())
            found += [each["loc"] for each in line.get("changes", [line])]
    process.terminate()
    _, said = await process.communicate()
    renewing.cancel()
    check(found)
    assert "eyJ" not in said.decode()
    assert "lost" not in said.decode()


@of_the_session
async def test_a_revoked_token_of_the_hubs_own_is_asked_for_again(jwt_hub, quick_retries):
    made: list[dict[str, Any]] = []

    async def make() -> None:
        _, found = await jwt_hub.ask(
            "POST", "/api/tokens", json={"sets": ["secret"], "rights": ["read"]}
        )
        made.append(found)

    await make()
    follower = by("websocket", jwt_hub, Function(lambda _: made[-1]["token"]))
    reading = asyncio.create_task(locs(follower, lambda found: len(found) == 2))
    await asyncio.sleep(0)
    while follower.cursor is None:
        await asyncio.sleep(0.01)
    await jwt_hub.publish("http://example.com/0", set_name="secret")
    await make()
    await jwt_hub.ask("DELETE", f"/api/tokens/{made[0]['id']}")
    await jwt_hub.publish("http://example.com/1", set_name="secret")
    assert await reading == ["http://example.com/0", "http://example.com/1"]
