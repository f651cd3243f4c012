"""Publishing over HTTP: who may, what is answered, and that a refused request leaves no trace."""

import asyncio
import gzip
import io
import json
from typing import Any

import aiohttp
import pytest

from rsnotify.publishing.bodies import BODY_BYTES
from tests.support.running import TOKEN, RunningHub

CHANGES = "/api/sets/dataset1/changes"
RES1 = {"loc": "http://example.com/res1", "change": "updated"}


@pytest.fixture
async def hub(shared_hub: RunningHub) -> RunningHub:
    """As new, though it is not: no test of this file with it ends it or looks at its files."""
    return shared_hub


async def post(hub: RunningHub, body: bytes, token: str | None = TOKEN, **headers: str) -> Any:
    """Status, headers and decoded body of a publish."""
    sent = {"Content-Type": "application/json"} | headers
    if token:
        sent["Authorization"] = f"Bearer {token}"
    async with (
        aiohttp.ClientSession() as session,
        session.post(hub.url + CHANGES, data=io.BytesIO(body), headers=sent) as answer,
    ):
        return answer.status, answer.headers, json.loads(await answer.read())


async def test_a_body_may_be_packed_and_its_key_is_that_of_its_content(hub):
    plain, key = json.dumps(RES1).encode(), {"Idempotency-Key": "k"}
    packed = await post(hub, gzip.compress(plain), **key | {"Content-Encoding": "gzip"})
    assert packed[0] == 201
    assert (await post(hub, plain, **key))[2] == packed[2]


async def test_an_endless_body_is_refused_while_it_arrives(hub):
    reader, writer = await asyncio.open_connection("127.0.0.1", hub.port)
    writer.write(
        f"POST {CHANGES} HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    )
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    for _ in range(BODY_BYTES // 0x100000 + 1):
        writer.write(chunk)
    assert b"413" in await reader.readline()
    assert await reader.readuntil(b"post the changes in parts")
    writer.close()


@pytest.mark.parametrize("token", [None, "wrong", "tökén"])
async def test_whoever_sends_no_known_token_is_asked_for_one(hub, token):
    status, headers, _ = await post(hub, json.dumps(RES1).encode(), token)
    assert (status, headers["WWW-Authenticate"].partition(" ")[0]) == (401, "Bearer")


async def made_token(hub: RunningHub, **asked: Any) -> dict[str, Any]:
    status, token = await hub.ask("POST", "/api/tokens", json=asked)
    assert status == 201, token
    return token


async def test_a_token_is_kept_as_a_hash_only(own_hub):
    token = await made_token(own_hub, sets=["dataset1"], note="for the archive")
    _, listed = await own_hub.ask("GET", "/api/tokens")
    assert [each["note"] for each in listed] == ["for the archive"]
    kept = b"".join(path.read_bytes() for path in own_hub.data.rglob("*.aof*") if path.is_file())
    assert token["token"].encode() not in kept


async def test_a_new_set_can_be_published_to_at_once(hub):
    assert (await hub.ask("PUT", "/api/sets/dataset2"))[0] == 201
    assert (await hub.ask("PUT", "/api/sets/dataset2"))[0] == 200
    await hub.publish("http://example.com/a", set_name="dataset2")


async def test_a_removed_set_is_gone(hub):
    assert (await hub.ask("DELETE", "/api/sets/dataset1"))[0] == 204
    assert (await hub.ask("POST", CHANGES, json=RES1))[0] == 404
    assert (await hub.ask("DELETE", "/api/sets/dataset1"))[0] == 404


async def test_it_is_live_and_ready(hub):
    assert (await hub.ask("GET", "/health/live"))[0] == 200
    assert (await hub.ask("GET", "/health/ready"))[0] == 200
