"""What strangers may try: it neither harms the hub nor stops others."""

import asyncio
import sys

import aiohttp
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.support.raw import raw_channel
from tests.support.running import TOKEN, RunningHub, clean_environment

CHANNEL = "/channels/dataset1/change_notification_channel"


async def test_an_empty_admin_token_makes_nobody_the_admin(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "admin-token").touch()
    hub = RunningHub(data, admin_token="")
    with pytest.raises(AssertionError, match="admin-token is empty: delete it"):
        await hub.start()


async def test_an_empty_bearer_is_nobody(hub):
    for headers in ({"Authorization": ""}, {"Authorization": "Bearer "}):
        assert (await hub.ask("PUT", "/api/sets/evil", headers=headers))[0] == 401


@pytest.mark.evidence
async def test_a_herd_of_pollers_does_not_stop_a_source(hub):
    """Whoever waits for Redis longer than two seconds is asked to come again, so the herd ends."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def poll() -> tuple[int, bool]:
            async with session.get(f"{hub.url}/dataset1/capabilitylist.xml") as answer:
                return answer.status, "Retry-After" in answer.headers

        polls = [asyncio.create_task(poll()) for _ in range(400)]
        for number in range(20):
            await hub.publish(f"http://example.com/{number}")
        assert set(await asyncio.gather(*polls)) <= {(200, False), (503, True)}


POSITIONS = {
    "1969-12-31T00:00:00Z": 200,
    "0001-01-01T00:00:00Z": 200,
    "9999-12-31T23:59:59-23:59": 400,
}


@pytest.mark.parametrize("position", POSITIONS)
async def test_a_position_outside_all_journals_is_no_bug(hub, position):
    """It is the beginning, or a mistake, wherever it is asked for."""
    await hub.publish("http://example.com/a")
    status, _ = await hub.ask("GET", f"/dataset1/changelist.xml?from={position}")
    assert status == POSITIONS[position]
    async with connect(f"{hub.channel()}?from={position}") as channel:
        if status == 200:
            assert "http://example.com/a" in await channel.recv()
        else:
            with pytest.raises(ConnectionClosed) as closed:
                await channel.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4400
    assert "Traceback" not in hub.log.read_text()


async def test_a_sender_that_goes_away_is_no_bug(hub):
    _, writer = await asyncio.open_connection("127.0.0.1", hub.port)
    writer.write(
        f"POST /api/sets/dataset1/changes HTTP/1.1\r\nHost: hub\r\nContent-Length: 100\r\n"
        f"Authorization: Bearer {TOKEN}\r\n\r\nhalf".encode()
    )
    await writer.drain()
    await hub.ask("GET", "/health/live")
    writer.close()
    await hub.publish("http://example.com/a")
    assert await hub.stop() == 0
    assert "Traceback" not in hub.log.read_text()


async def test_whoever_reads_is_sent_away_when_a_set_becomes_private(hub):
    async with connect(hub.channel()) as channel:
        await hub.ask("PATCH", "/api/sets/dataset1", json={"private": True})
        await hub.publish("http://example.com/secret")
        with pytest.raises(ConnectionClosed) as closed:
            await channel.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1013


ANSWERS = {
    "/": 200,
    "/.well-known/resourcesync": 200,
    "/dataset1/capabilitylist.xml": 200,
    "/dataset1/changelist.xml": 200,
    "/health/live": 200,
    "/metrics": 200,
    "/api/status": 200,
    "/robots.txt": 200,
    "/nothing": 404,
    "/dataset1/changelist.xml?from=x": 400,
}


async def test_no_browser_guesses_what_an_answer_is(hub):
    async with aiohttp.ClientSession() as session:
        for path, status in ANSWERS.items():
            async with session.get(hub.url + path) as answer:
                assert answer.status == status
                assert answer.headers.getall("X-Content-Type-Options") == ["nosniff"]
    async with raw_channel(hub.channel("unknown")) as refused:
        assert (refused.status, refused.headers["x-content-type-options"]) == (404, "nosniff")


async def test_a_hub_that_may_hardly_open_files_ends_with_2(tmp_path):
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", 'ulimit -n 256; exec "$@"', "sh"),
        *(sys.executable, "-m", "rsnotify", "serve", "--port", "0", "--data", str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=clean_environment(),
    )
    out, err = await process.communicate()
    assert (process.returncode, out) == (2, b"")
    assert b"may open 256 files, and a hub needs 612 at least: raise the limit" in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


async def test_head_asks_for_no_stream(hub):
    async with (
        aiohttp.ClientSession() as session,
        session.head(hub.url + CHANNEL, headers={"Accept": "text/event-stream"}) as answer,
    ):
        assert answer.headers["Content-Type"] == "application/xml"


async def test_what_discovery_says_behind_a_proxy_the_topic_says_too(tmp_path):
    forwarded = {"X-Forwarded-Host": "hub.example.org", "X-Forwarded-Proto": "https"}
    async with RunningHub(tmp_path / "data", trusted_proxies="127.0.0.1") as hub:
        _, capabilities = await hub.ask("GET", "/dataset1/capabilitylist.xml", headers=forwarded)
        assert f"https://hub.example.org{CHANNEL}".encode() in capabilities
        async with (
            aiohttp.ClientSession() as session,
            session.get(hub.url + CHANNEL, headers=forwarded) as answer,
        ):
            assert f'<https://hub.example.org{CHANNEL}>; rel="self"' in answer.headers["Link"]


UNCHECKED = """
from rsnotify.cli import main, serve
serve.checked_name = str
main()
"""
"""A hub that leaves it to its workers to find out that a set cannot have its name."""


@pytest.mark.evidence
async def test_workers_that_cannot_start_end_the_hub_with_2(tmp_path):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", UNCHECKED, "serve", "--port", "0", "--workers", "2"),
        *("--data", str(tmp_path), "--set", "Not A Name"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=clean_environment(),
    )
    out, err = await process.communicate()
    assert (process.returncode, out) == (2, b""), err
    assert b"before it was ready" in err
