"""Several sets over one connection, by WebSocket and as an event stream."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidMessage

from tests.protocol.test_channels import BEARER, close_of, received, refusal, token_for
from tests.protocol.test_sse import Stream
from tests.support.raw import raw_channel
from tests.support.running import PATIENT_SECONDS, RunningHub

PATH = "/channels/{}_notification_channel"
UP = re.compile(rb'<rs:ln rel="up" href="[^"]*/([^/"]+)/capabilitylist.xml"/>')
INTERVAL = re.compile(rb' from="([^"]+)" until="([^"]+)"')


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningHub]:
    async with RunningHub(tmp_path_factory.mktemp("several") / "data", sets=()) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def hub(shared: RunningHub) -> RunningHub:
    """The hub that all share, with three empty sets and no tokens."""
    for name in ("a", "b", "c", "secrets", "more"):
        await shared.ask("DELETE", f"/api/sets/{name}")
    for each in (await shared.ask("GET", "/api/tokens"))[1]:
        await shared.ask("DELETE", f"/api/tokens/{each['id']}")
    for name in "abc":
        await shared.ask("PUT", f"/api/sets/{name}")
    return shared


@pytest_asyncio.fixture(loop_scope="module")
async def own_hub(tmp_path: Path) -> AsyncIterator[RunningHub]:
    """A hub to end."""
    async with RunningHub(tmp_path / "data", sets=("a", "b")) as running:
        yield running


pytestmark = pytest.mark.asyncio(loop_scope="module")


def channels(hub: RunningHub, *sets: str, kind: str = "change", more: str = "") -> str:
    query = "&".join(f"set={each}" for each in sets)
    return f"ws://127.0.0.1:{hub.port}{PATH.format(kind)}?{query}{more}"


class Heard:
    """What a reader has got of each set: its cursors, and whether the intervals joined."""

    def __init__(self, **cursors: str) -> None:
        self.cursors = cursors

    def take(self, payload: bytes) -> str:
        """One notification; the name of its set."""
        (name,) = UP.findall(payload)
        self._move(name.decode(), payload)
        return str(name, "ascii")

    def take_of_the_source(self, payload: bytes) -> None:
        """A change of the Source Description: its set is the one whose interval it continues."""
        assert b'capability="description"' in payload
        names = {cursor: name for name, cursor in self.cursors.items()}
        self._move(names[INTERVAL.findall(payload)[0][0].decode()], payload)

    def _move(self, name: str, payload: bytes) -> None:
        ((from_, until),) = INTERVAL.findall(payload)
        assert self.cursors[name] == from_.decode(), "a gap or a repetition"
        self.cursors[name] = until.decode()

    @property
    def text(self) -> str:
        return ",".join(f"{name}@{cursor}" for name, cursor in self.cursors.items())

    @classmethod
    def from_text(cls, text: str) -> "Heard":
        return cls(**dict(each.split("@") for each in text.split(",")))


async def begun(channel: ClientConnection) -> Heard:
    return Heard.from_text(channel.response.headers["Rsnotify-From"])


# --- what comes ----------------------------------------------------------------------------------


async def test_each_notification_is_of_the_set_that_its_up_link_names(hub):
    async with connect(channels(hub, "a", "b")) as channel:
        heard = await begun(channel)
        for name in ("a", "b", "c", "b", "a"):
            await hub.publish("http://example.com/1", set_name=name)
        assert [heard.take((await received(channel)).payload) for _ in range(4)] == list("abba")


async def test_each_set_has_a_cursor_of_its_own(hub):
    first = {name: await hub.publish("http://e.com/1", set_name=name) for name in ("a", "b", "c")}
    last = {name: await hub.publish("http://e.com/2", set_name=name) for name in ("a", "b", "c")}
    for query in (
        channels(hub, f"a@{first['a']['from']}", f"b@{first['b']['until']}", "c"),
        channels(hub, "a", f"b@{first['b']['until']}", f"c@{last['c']['until']}")
        + f"&since={first['a']['from']}",
    ):
        async with connect(query) as channel:
            heard = await begun(channel)
            while heard.cursors != {name: last[name]["until"] for name in last}:
                heard.take((await received(channel)).payload)
            await hub.publish("http://e.com/3", set_name="c")
            assert heard.take((await received(channel)).payload) == "c"
            last["c"]["until"] = heard.cursors["c"]


async def test_framework_channels_are_read_together_too(hub):
    change = {"loc": "http://example.com/rl.xml", "change": "created", "capability": "resourcelist"}
    async with connect(channels(hub, "a", "b", kind="framework")) as channel:
        heard = await begun(channel)
        for name in ("b", "a"):
            await hub.ask("POST", f"/api/sets/{name}/framework", json=change)
            while not UP.search(payload := (await received(channel)).payload):
                heard.take_of_the_source(payload)  # the sets were made a moment ago
            assert heard.take(payload) == name


async def test_a_hundred_sets_take_one_socket_and_one_more_is_refused(hub):
    names = [f"s{number}" for number in range(100)]
    for name in names:
        await hub.ask("PUT", f"/api/sets/{name}")
    async with connect(channels(hub, *names)) as channel:
        heard = await begun(channel)
        await asyncio.gather(*(hub.publish("http://e.com/1", set_name=name) for name in names))
        assert {heard.take((await received(channel)).payload) for _ in names} == set(names)
    code, reason = await close_of(channels(hub, *names, "a"))
    assert (code, "101 sets" in reason) == (4400, True)


async def test_an_event_s_id_has_all_cursors_and_resumes(hub):
    headers = {"Accept": "text/event-stream"}
    url = hub.url + PATH.format("change") + "?set=a&set=b"
    first = await hub.publish("http://example.com/1", set_name="b")
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.get(f"{url}@{first['until']}") as answer:
            heard = Heard.from_text(answer.headers["Rsnotify-From"])
            assert (await answer.content.readline()).decode() == f"id: {heard.text}\n"
            for name in "abba":
                await hub.publish("http://example.com/1", set_name=name)
                event = await Stream(answer).event()
                assert heard.take(event["data"].encode()) == name
                assert event["id"] == heard.text
        await hub.publish("http://example.com/2", set_name="a")
        await hub.publish("http://example.com/2", set_name="b")
        async with session.get(url, headers={"Last-Event-ID": heard.text}) as answer:
            assert {heard.take((await Stream(answer).event())["data"].encode()) for _ in "ab"} == {
                *"ab"
            }


@pytest.mark.evidence
@pytest.mark.parametrize("form", ["WebSocket", "events"])
async def test_a_kill_leaves_no_gap_and_no_repetition_in_a_busy_set_and_a_quiet_one(own_hub, form):
    heard = Heard.from_text(
        ",".join(
            [
                f"{name}@{(await own_hub.publish('http://e.com/', set_name=name))['until']}"
                for name in "ab"
            ]
        )
    )
    for _ in range(2):
        reading = asyncio.create_task(read_until_cut(own_hub, heard, form))
        await asyncio.gather(
            *(own_hub.publish(f"http://e.com/{number}", set_name="a") for number in range(100)),
            own_hub.publish("http://e.com/", set_name="b"),
        )
        await own_hub.kill()
        await reading
        await own_hub.start()
    last = {name: await own_hub.publish("http://e.com/last", set_name=name) for name in "ab"}
    reading = asyncio.create_task(read_until_cut(own_hub, heard, form))
    async with asyncio.timeout(PATIENT_SECONDS):
        while heard.cursors != {name: last[name]["until"] for name in "ab"}:
            await asyncio.sleep(0.01)
    await own_hub.stop()
    await reading


async def read_until_cut(hub: RunningHub, heard: Heard, form: str) -> None:
    """Follow a and b from where they were left, until the connection ends."""
    read = by_socket if form == "WebSocket" else by_events
    with suppress(ConnectionClosed, InvalidMessage, EOFError, OSError, aiohttp.ClientError):
        await read(hub, heard)


async def by_socket(hub: RunningHub, heard: Heard) -> None:
    async with connect(channels(hub, *heard.text.split(","))) as channel:
        while True:
            heard.take((await channel.recv()).encode())


async def by_events(hub: RunningHub, heard: Heard) -> None:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": heard.text}
    url = hub.url + PATH.format("change") + "?set=a&set=b"
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        while True:
            heard.take((await Stream(answer).event())["data"].encode())


@pytest.mark.evidence
async def test_a_slow_reader_holds_up_nobody_and_gets_all_of_each_set_later(hub):
    locs = [f"http://example.com/{number}/{'x' * 1000}" for number in range(300)]
    async with (
        raw_channel(channels(hub, "a", "b"), buffer_bytes=4096) as slow,
        connect(channels(hub, "a", "b")) as quick,
    ):
        heard = Heard.from_text(slow.headers["rsnotify-from"])
        for _ in range(12):
            await hub.publish(*locs, set_name="a")
            await hub.publish("http://example.com/b", set_name="b")
            for _ in range(2):
                await received(quick)
        last = {name: await hub.publish("http://e.com/", set_name=name) for name in "ab"}
        while heard.cursors != {name: last[name]["until"] for name in "ab"}:
            heard.take(await slow.text())


# --- who may read, and how it ends ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("", "0 sets"),
        ("?set=a&set=a", "'a' is named twice"),
        ("?set=a&set=b@soon", "malformed `set=b@`"),
        (
            "?set=a&form=2026-11-20",
            "unknown parameter 'form'; did you mean format? Known here: access_",
        ),
    ],
)
async def test_an_address_that_cannot_be_read_is_4400_or_400(hub, query, says):
    path = PATH.format("change") + query
    code, reason = await close_of(f"ws://127.0.0.1:{hub.port}{path}")
    assert (code, says in reason) == (4400, True)
    status, problem = await hub.ask("GET", path, headers={"Accept": "text/event-stream"})
    assert (status, says in problem["detail"]) == (400, True)


async def test_one_unknown_set_or_kind_refuses_all(hub):
    status, body = await refusal(channels(hub, "a", "nosuchset"))
    assert (status, "nosuchset" in body) == (404, True)
    assert (await refusal(channels(hub, "a", kind="weather")))[0] == 404


async def test_it_is_no_topic(hub):
    path = PATH.format("change") + "?set=a&set=b"
    assert (await hub.ask("GET", path))[0] == 406
    async with aiohttp.ClientSession() as session, session.head(hub.url + path) as answer:
        assert (answer.status, answer.headers["Rsnotify-From"].count("@")) == (200, 2)


@pytest_asyncio.fixture(loop_scope="module")
async def secrets(hub: RunningHub) -> RunningHub:
    """The hub, with a private set of this name."""
    await hub.ask("PUT", "/api/sets/secrets", json={"private": True})
    return hub


async def test_private_sets_need_rights_to_each(secrets):
    await secrets.ask("PUT", "/api/sets/more", json={"private": True})
    url = channels(secrets, "a", "secrets", "more")
    assert (await refusal(url))[0] == 404
    one = {"Authorization": f"Bearer {await token_for(secrets, 'read')}"}
    assert (await refusal(url, additional_headers=one))[0] == 404
    origin = {"origin": "https://anywhere.example", "additional_headers": BEARER}
    assert (await refusal(url, **origin))[0] == 403
    async with (
        connect(channels(secrets, "a", "secrets"), additional_headers=one) as channel,
        connect(url, additional_headers=BEARER) as admin,
    ):
        await secrets.publish("http://example.com/1", set_name="secrets")
        assert await channel.recv() == await admin.recv()


async def test_it_ends_with_its_token(secrets):
    bearer = {"Authorization": f"Bearer {await token_for(secrets, 'read')}"}
    (made,) = (await secrets.ask("GET", "/api/tokens"))[1]
    async with connect(channels(secrets, "a", "secrets"), additional_headers=bearer) as channel:
        await secrets.ask("DELETE", f"/api/tokens/{made['id']}")
        assert await end_of(channel) == (1008, "the token has been revoked or has expired")


async def test_a_set_that_is_removed_ends_it_by_name(hub):
    async with connect(channels(hub, "a", "b")) as channel, connect(channels(hub, "a")) as other:
        await hub.ask("DELETE", "/api/sets/b")
        assert await end_of(channel) == (4404, "there is no set 'b'")
        await hub.publish("http://example.com/1", set_name="a")
        await received(other)


async def test_a_set_that_becomes_private_ends_it_by_name(hub):
    async with connect(channels(hub, "a", "b")) as channel:
        await hub.ask("PATCH", "/api/sets/b", json={"private": True})
        assert await end_of(channel) == (
            *(1013, "set 'b' has become private: reconnect with a token"),
        )


async def end_of(channel: ClientConnection) -> tuple[int, str]:
    with pytest.raises(ConnectionClosed) as closed:
        await received(channel)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code, closed.value.rcvd.reason
