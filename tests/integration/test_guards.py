"""What a hub lets one peer have, so that others get theirs."""

import asyncio
from typing import Any

import aiohttp
import pytest

from tests.support.running import RunningHub, until

AT_ONCE = 20  # one after the other, a slow machine's hub may take them all
CHANGE = {"loc": "http://example.com/1", "change": "updated"}


async def ask(
    hub: RunningHub, method: str, path: str, token: str, **options: Any
) -> tuple[int, Any, Any]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, hub.url + path, **options) as answer,
    ):
        return answer.status, await answer.json(content_type=None), answer.headers


async def new_token(hub: RunningHub, **options: Any) -> dict[str, Any]:
    content = {"sets": ["dataset1"], "rights": ["publish", "read"]} | options
    status, token = await hub.ask("POST", "/api/tokens", json=content)
    assert status == 201
    return token


async def test_a_token_that_publishes_too_often_waits_and_no_other_does(tmp_path):
    async with RunningHub(tmp_path / "data", publishes_per_second="3") as hub:
        wild, calm = [(await new_token(hub))["token"] for _ in range(2)]
        path = "/api/sets/dataset1/changes"
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {wild}"}) as session:

            async def posted() -> str | None:
                async with session.post(hub.url + path, json=CHANGE) as answer:
                    return answer.headers.get("Retry-After") if answer.status == 429 else None

            assert "1" in await asyncio.gather(*(posted() for _ in range(AT_ONCE)))
        assert (await ask(hub, "POST", path, calm, json=CHANGE))[0] == 201


NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.mark.parametrize(
    ("method", "path", "sent"),
    [
        ("PUT", "/api/sets/dataset1/resources", {"data": b"", "headers": NDJSON}),
        ("POST", "/api/sets/dataset1/snapshot", {}),
        ("POST", "/api/sets/dataset1/framework", {"json": CHANGE | {"capability": "changelist"}}),
        ("POST", "/api/changes", {"json": CHANGE | {"sets": ["dataset1"]}}),
    ],
)
async def test_whatever_publishes_counts_as_a_publish(tmp_path, method, path, sent):
    async with RunningHub(tmp_path / "data", publishes_per_second="1") as hub:
        token = (await new_token(hub))["token"]

        async def asked() -> str | None:
            status, _, headers = await ask(hub, method, path, token, **sent)
            return headers.get("Retry-After") if status == 429 else None

        assert "1" in await asyncio.gather(*(asked() for _ in range(AT_ONCE)))


async def test_a_token_can_be_replaced_and_ends_what_was_opened_with_it(hub):
    await hub.ask("PATCH", "/api/sets/dataset1", json={"private": True})
    old = await new_token(hub, note="mirror", expires_days=1)
    assert "expires" in old
    headers = {"Authorization": f"Bearer {old['token']}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.ws_connect(hub.channel()) as reader,
    ):
        (listed,) = (await hub.ask("GET", "/api/tokens"))[1]
        assert listed["used"] is not None
        leaked = {"grace_seconds": 0}
        status, new = await hub.ask("POST", f"/api/tokens/{old['id']}/rotate", json=leaked)
        assert status == 201
        assert (new["sets"], new["rights"], new["note"]) == (
            ["dataset1"],
            ["publish", "read"],
            "mirror",
        )
        assert new["expires"] == old["expires"]
        assert (await reader.receive()).type is aiohttp.WSMsgType.CLOSE
        assert reader.close_code == 1008
    path = "/api/sets/dataset1/changes"

    async def is_refused() -> bool:
        return (await ask(hub, "POST", path, old["token"], json=CHANGE))[0] == 401

    await until(is_refused)
    assert (await ask(hub, "POST", path, new["token"], json=CHANGE))[0] == 201
    status, _ = await hub.ask("POST", f"/api/tokens/{new['id']}/rotate", json={"grace_seconds": -1})
    assert status == 400
    await hub.ask("POST", f"/api/tokens/{new['id']}/rotate", json={"grace_seconds": 3600})
    assert (await ask(hub, "POST", path, new["token"], json=CHANGE))[0] == 201


async def test_a_token_expires_in_a_day_at_least_and_ten_years_at_most(hub):
    for days, status in ((0, 400), (1, 201), (3_650, 201), (3_651, 400)):
        content = {"sets": ["dataset1"], "expires_days": days}
        assert (await hub.ask("POST", "/api/tokens", json=content))[0] == status


async def test_an_address_that_opens_too_many_connections_is_told_why(tmp_path):
    async with RunningHub(tmp_path / "data", connections_per_address="2") as hub:
        host, port = hub.url.removeprefix("http://").split(":")
        peers = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
        said = await peers[2][0].read()
        assert said.startswith(b"HTTP/1.1 429 ")
        assert b"Your address has 2 connections open" in said
        for _, writer in peers:
            writer.close()

        async def is_served() -> bool:
            async with aiohttp.ClientSession() as session:
                return (await session.get(f"{hub.url}/health/live")).status == 200

        await until(is_served)


async def test_a_channel_has_so_many_readers_and_an_address_behind_a_proxy_too(tmp_path):
    limits = {"readers_per_channel": "3", "connections_per_address": "2"}
    proxies = {"trusted_proxies": "127.0.0.1"}
    async with (
        RunningHub(tmp_path / "data", **limits, **proxies) as hub,
        aiohttp.ClientSession() as session,
    ):
        first = [await session.ws_connect(hub.channel(), headers=FIRST) for _ in range(2)]
        assert await refusal(session, hub, FIRST) == 429
        second = await session.ws_connect(hub.channel(), headers=SECOND)
        assert await refusal(session, hub, SECOND) == 503
        stream = {"Accept": "text/event-stream"} | SECOND
        url = hub.channel().replace("ws://", "http://")
        async with session.get(url, headers=stream) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "10")
        await second.close()
        await first[0].close()

        async def has_room() -> bool:
            return await refusal(session, hub, SECOND) is None

        await until(has_room)


FIRST, SECOND = {"X-Forwarded-For": "192.0.2.1"}, {"X-Forwarded-For": "192.0.2.2"}


async def refusal(
    session: aiohttp.ClientSession, hub: RunningHub, headers: dict[str, str]
) -> int | None:
    try:
        await session.ws_connect(hub.channel(), headers=headers)
    except aiohttp.WSServerHandshakeError as error:
        return error.status
    return None
