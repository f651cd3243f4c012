"""A channel as a Durable Stream: readers who wait for the next change (PROTOCOL.md 5.7, 10.1)."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

import pytest
import pytest_asyncio

from tests.protocol.test_streams import Answer, ask, publish
from tests.support.faults import OwnRedis
from tests.support.running import PATIENT_SECONDS, RunningHub, until

SHORT = "2"  # seconds: no change comes in most of these tests


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def hub_of_polls(tmp_path_factory) -> AsyncIterator[RunningHub]:
    data = tmp_path_factory.mktemp("polls") / "data"
    async with RunningHub(data, long_poll_seconds=SHORT) as running:
        yield running


@pytest.fixture
async def hub(hub_of_polls: RunningHub) -> RunningHub:
    """With an empty set, dataset1, that others have had before."""
    await hub_of_polls.ask("DELETE", "/api/sets/dataset1")
    await hub_of_polls.ask("PUT", "/api/sets/dataset1")
    return hub_of_polls


@pytest.fixture
async def patient_hub(tmp_path) -> AsyncIterator[RunningHub]:
    """Where a wait ends with a change, or not in the time of a test."""
    async with RunningHub(tmp_path / "data", long_poll_seconds="300", drain_seconds="0") as running:
        yield running


async def poll(hub: RunningHub, offset: str, **query: str) -> Answer:
    return await ask(hub, live="long-poll", offset=offset, **query)


@asynccontextmanager
async def polling(hub: RunningHub, offset: str, **query: str) -> AsyncIterator[asyncio.Task]:
    """Somebody who waits, as the hub sees it."""
    before = await waiting(hub)
    task = asyncio.create_task(poll(hub, offset, **query))

    async def is_waiting() -> bool:
        return await waiting(hub) > before or task.done()

    await until(is_waiting)
    yield task
    task.cancel()


async def waiting(hub: RunningHub, name: str = "dataset1") -> int:
    """How many wait, as the metrics say."""
    _, text = await hub.ask("GET", "/metrics")
    lines = [
        line
        for line in text.decode().splitlines()
        if line.startswith("rsnotify_readers{") and 'form="long poll"' in line
    ]
    return sum(int(float(line.split()[-1])) for line in lines if f'set="{name}"' in line)


def told(answer: Answer) -> dict[str, str]:
    names = ("Stream-Next-Offset", "Stream-Up-To-Date", "Stream-Cursor", "Cache-Control")
    return {name: answer.headers[name] for name in names}


# --- what is answered -----------------------------------------------------------------------------


async def test_what_is_there_is_answered_at_once(hub):
    until_ = (await publish(hub, "a"))["until"]
    found = await poll(hub, "-1")
    assert (found.status, found.locs) == (200, ["a"])
    assert found.headers["Content-Type"] == "application/json"
    assert told(found)["Stream-Next-Offset"] == until_
    assert told(found)["Stream-Up-To-Date"] == "true"
    assert told(found)["Cache-Control"] == "public, max-age=60"
    assert "ETag" in found.headers


async def test_whoever_waits_gets_the_next_change(patient_hub):
    offset = (await ask(patient_hub, method="HEAD")).next
    async with polling(patient_hub, offset) as waits:
        until_ = (await publish(patient_hub, "a", "b"))["until"]
        found = await waits
    assert (found.status, found.locs, found.next) == (200, ["a", "b"], until_)
    assert told(found)["Stream-Up-To-Date"] == "true"
    again = await poll(patient_hub, offset)
    assert (again.body, again.headers["ETag"]) == (found.body, found.headers["ETag"])


async def test_who_waits_for_the_end_gets_what_comes_after_it(patient_hub):
    await publish(patient_hub, "a")
    async with polling(patient_hub, "now") as waits:
        await publish(patient_hub, "b")
        found = await waits
    assert (found.status, found.locs) == (200, ["b"])
    assert found.headers["Cache-Control"] == "no-store"


async def test_a_wait_without_changes_ends_with_204(hub):
    offset = (await publish(hub, "a"))["until"]
    found = await poll(hub, offset)
    assert (found.status, found.body, found.next) == (204, b"", offset)
    assert told(found)["Stream-Up-To-Date"] == "true"
    assert told(found)["Cache-Control"] == "public, max-age=1"
    assert found.headers["Stream-Cursor"].isdecimal()
    assert "Content-Length" not in found.headers


async def test_the_connection_of_a_wait_serves_the_next_requests(hub):
    reader, writer = await asyncio.open_connection("127.0.0.1", hub.port)
    offset = (await ask(hub, method="HEAD")).next
    for _ in range(2):
        writer.write(request(f"/streams/dataset1?live=long-poll&offset={quote(offset)}"))
        assert (await answer(reader)).startswith(b"HTTP/1.1 204 ")
        writer.write(request("/health/live"))
        assert (await answer(reader)).startswith(b"HTTP/1.1 200 ")
    writer.close()


def request(path: str, *lines: str) -> bytes:
    return "\r\n".join((f"GET {path} HTTP/1.1", "Host: a", *lines, "", "")).encode()


async def answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(PATIENT_SECONDS):
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        return head + (await reader.readexactly(int(length)) if length else b"")


@pytest.mark.parametrize("number", [1, 3])
async def test_requests_that_come_before_the_answer_are_served_after_it(hub, number):
    """Also if they come in one piece with the one that waits."""
    reader, writer = await asyncio.open_connection("127.0.0.1", hub.port)
    path = "/streams/dataset1?live=long-poll&offset=now"
    writer.write(request(path) * number)
    await writer.drain()
    writer.write(request("/health/live"))
    for _ in range(number):
        assert (await answer(reader)).startswith(b"HTTP/1.1 204 ")
    assert (await answer(reader)).startswith(b"HTTP/1.1 200 ")
    writer.close()


@pytest.mark.parametrize("how", ["Connection: close", "half"])
async def test_who_sends_no_more_is_answered_too(hub, how):
    connected = socket.create_connection(("127.0.0.1", hub.port))
    asked = request("/streams/dataset1?live=long-poll&offset=now", *([how] if ":" in how else []))
    if (
        how == "half"
    ):  # in one packet: an end that comes while the hub waits means that nobody is left
        connected.send(asked, getattr(socket, "MSG_MORE", 0))
        connected.shutdown(socket.SHUT_WR)
    else:
        connected.send(asked)
    reader, writer = await asyncio.open_connection(sock=connected)
    async with asyncio.timeout(PATIENT_SECONDS):
        found = await reader.read()
    assert found.startswith(b"HTTP/1.1 204 ")
    writer.close()


async def test_who_has_closed_its_direction_does_not_wait(patient_hub):
    """It may have gone: nobody would ever know."""
    connected = socket.create_connection(("127.0.0.1", patient_hub.port))
    asked = request("/streams/dataset1?live=long-poll&offset=now")
    connected.send(asked, getattr(socket, "MSG_MORE", 0))  # in one packet with the end
    connected.shutdown(socket.SHUT_WR)
    reader, writer = await asyncio.open_connection(sock=connected)
    async with asyncio.timeout(PATIENT_SECONDS):
        assert (await reader.read()).startswith(b"HTTP/1.1 204 ")
    writer.close()
    assert await waiting(patient_hub) == 0


async def test_who_leaves_a_connection_that_was_not_lent_is_not_counted_any_more(patient_hub):
    _, writer = await asyncio.open_connection("127.0.0.1", patient_hub.port)
    writer.write(request("/streams/dataset1?live=long-poll&offset=now", "Connection: close"))

    async def is_waiting() -> bool:
        return await waiting(patient_hub) == 1

    async def is_gone() -> bool:
        return await waiting(patient_hub) == 0

    await until(is_waiting)
    writer.close()
    await until(is_gone)


# --- cursors --------------------------------------------------------------------------------------


async def test_all_who_wait_go_on_with_the_same_cursor(hub):
    """Whenever they came, and whatever they had before: a cache has one question of them all."""
    offset = (await publish(hub, "a"))["until"]
    first = await poll(hub, offset)
    cursors = ["", first.headers["Stream-Cursor"], str(int(first.headers["Stream-Cursor"]) - 1)]
    found = await asyncio.gather(
        *(poll(hub, offset, **({"cursor": cursor} if cursor else {})) for cursor in cursors)
    )
    assert {each.status for each in found} == {204}
    assert len({each.headers["Stream-Cursor"] for each in found}) == 1


async def test_a_change_brings_all_to_its_position(patient_hub):
    offset = (await ask(patient_hub, method="HEAD")).next
    async with (
        polling(patient_hub, offset) as one,
        polling(patient_hub, offset, cursor="5") as other,
    ):
        await publish(patient_hub, "a")
        found = [await one, await other]
    assert len({json.dumps(told(each)) for each in found}) == 1


async def test_a_cursor_grows_with_each_answer(hub):
    await publish(hub, "a")
    cursor = (await poll(hub, "-1")).headers["Stream-Cursor"]
    for _ in range(3):
        found = await poll(hub, "-1", cursor=cursor)
        assert int(found.headers["Stream-Cursor"]) > int(cursor)
        cursor = found.headers["Stream-Cursor"]
    ahead = "9" * 17
    assert (await poll(hub, "-1", cursor=ahead)).headers["Stream-Cursor"] == "1" + "0" * 17


# --- how a wait ends otherwise --------------------------------------------------------------------


async def test_a_removed_set_ends_the_wait(patient_hub):
    offset = (await ask(patient_hub, method="HEAD")).next
    async with polling(patient_hub, offset) as waits:
        await patient_hub.ask("DELETE", "/api/sets/dataset1")
        found = await waits
    assert (found.status, found.headers["Cache-Control"]) == (404, "no-store")
    assert "there is no set" in json.loads(found.body)["detail"]
    await patient_hub.ask("PUT", "/api/sets/dataset1")
    assert (await poll(patient_hub, offset)).status == 410


async def test_a_set_that_becomes_private_ends_the_wait(patient_hub):
    offset = (await ask(patient_hub, method="HEAD")).next
    async with polling(patient_hub, offset) as waits:
        await patient_hub.ask("PATCH", "/api/sets/dataset1", json={"private": True})
        await publish(patient_hub, "secret")
        found = await waits
    assert (found.status, found.headers["Cache-Control"]) == (503, "no-store")
    assert b"secret" not in found.body
    assert (await poll(patient_hub, offset)).status == 404


async def test_a_revoked_token_ends_the_wait(patient_hub):
    await patient_hub.ask("PATCH", "/api/sets/dataset1", json={"private": True})
    asked = {"sets": ["dataset1"], "rights": ["read"]}
    _, made = await patient_hub.ask("POST", "/api/tokens", json=asked)
    async with polling(patient_hub, "now", token=made["token"]) as waits:
        await patient_hub.ask("DELETE", f"/api/tokens/{made['id']}")
        found = await waits
    assert found.status == 401
    assert await waiting(patient_hub) == 0


async def test_what_a_private_stream_answers_is_private(patient_hub):
    await patient_hub.ask("PATCH", "/api/sets/dataset1", json={"private": True})
    asked = {"sets": ["dataset1"], "rights": ["read"]}
    _, made = await patient_hub.ask("POST", "/api/tokens", json=asked)
    offset = (await ask(patient_hub, method="HEAD", token=made["token"])).next
    async with polling(patient_hub, offset, token=made["token"]) as waits:
        await publish(patient_hub, "a")
        found = await waits
    assert found.headers["Cache-Control"] == "private, no-cache"
    assert found.headers["Vary"] == "authorization"


async def test_a_hub_that_ends_answers_all_who_wait(patient_hub):
    offset = (await publish(patient_hub, "a"))["until"]
    async with polling(patient_hub, offset) as one, polling(patient_hub, offset) as other:
        assert await patient_hub.stop() == 0
        found = [await one, await other]
    assert {(each.status, each.next) for each in found} == {(204, offset)}
    assert {each.headers["Connection"] for each in found} == {"close"}


async def test_who_leaves_is_not_counted_any_more(patient_hub):
    offset = (await ask(patient_hub, method="HEAD")).next
    async with polling(patient_hub, offset) as waits:
        waits.cancel()

        async def is_gone() -> bool:
            return await waiting(patient_hub) == 0

        await until(is_gone)
    await publish(patient_hub, "a")
    assert (await poll(patient_hub, offset)).locs == ["a"]


async def test_offsets_of_two_sets_do_not_mix(patient_hub):
    await patient_hub.ask("PUT", "/api/sets/other")
    offset = (await ask(patient_hub, method="HEAD")).next
    async with polling(patient_hub, offset) as waits:
        told_ = await publish(patient_hub, "b", set_name="other")
        assert not waits.done()
        await publish(patient_hub, "a")
        assert (await waits).locs == ["a"]
    assert (await ask(patient_hub, offset=told_["until"])).locs == ["a"]
    assert (await ask(patient_hub, "other", offset=offset)).locs == ["b"]


# --- several processes ----------------------------------------------------------------------------


async def test_who_waits_at_one_hub_gets_what_another_has_published(tmp_path, own_redis: OwnRedis):
    options = ("--redis", own_redis.url)
    async with (
        RunningHub(tmp_path / "one", *options, long_poll_seconds="300", drain_seconds="0") as one,
        RunningHub(tmp_path / "other", *options, long_poll_seconds="300", drain_seconds="0") as two,
    ):
        offset = "now"
        async with polling(one, offset) as waits:
            until_ = (await publish(two, "a"))["until"]
            found = await waits
        assert (found.locs, found.next) == (["a"], until_)
        for number in range(20):
            newest = await publish(two, f"b{number}")
            assert (await ask(one, offset=newest["from"])).next == newest["until"]
            async with polling(one, newest["until"]) as waits:
                assert not waits.done()
