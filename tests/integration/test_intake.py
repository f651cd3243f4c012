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


async def number_of_changes(hub: RunningHub) -> int:
    """Counted by what a further change follows."""
    answer = await hub.publish("http://example.com/last")
    _, sets = await hub.ask("GET", "/api/sets")
    created = next(each["created"] for each in sets if each["name"] == "dataset1")
    return 0 if answer["from"] == created else 1


@pytest.mark.parametrize(
    ("body", "headers", "status", "detail"),
    [
        (b"{", {}, 400, "not JSON"),
        (json.dumps([RES1, {**RES1, "length": -1}]).encode(), {}, 400, "change 1: length is -1"),
        (b"<!DOCTYPE a>" + b"<a/>", {"Content-Type": "application/xml"}, 400, "DOCTYPE"),
        (b"hello", {"Content-Type": "text/plain"}, 415, "text/plain"),
        (json.dumps(RES1).encode(), {"Idempotency-Key": "a b"}, 400, "Idempotency-Key"),
        (b" " * (BODY_BYTES + 1), {}, 413, "post the changes in parts"),
        (json.dumps(RES1).encode(), {"Content-Encoding": "gzip"}, 400, "the body is not gzip"),
    ],
    ids=["json", "fault", "doctype", "type", "key", "bytes", "gzip"],
)
async def test_a_refused_body_is_a_problem_document_and_stores_nothing(
    hub: RunningHub, body: bytes, headers: dict[str, str], status: int, detail: str
) -> None:
    answered, answer_headers, problem = await post(hub, body, **headers)
    assert answered == problem["status"] == status
    assert answer_headers["Content-Type"] == "application/problem+json"
    assert detail in problem["detail"]
    assert await number_of_changes(hub) == 0


async def test_a_body_may_be_packed_and_its_key_is_that_of_its_content(hub: RunningHub) -> None:
    plain, key = json.dumps(RES1).encode(), {"Idempotency-Key": "k"}
    packed = await post(hub, gzip.compress(plain), **key | {"Content-Encoding": "gzip"})
    assert packed[0] == 201
    assert (await post(hub, plain, **key))[2] == packed[2]


async def test_an_endless_body_is_refused_while_it_arrives(hub: RunningHub) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", hub.port)
    writer.write(
        f"POST {CHANGES} HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    )
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    for _ in range(BODY_BYTES // 0x100000 + 1):
        writer.write(chunk)
    assert b"413" in await reader.readline()
    writer.close()


@pytest.mark.parametrize(
    ("token", "status", "detail"),
    [(None, 401, "a token is needed"), ("wrong", 401, "is unknown"), ("tökén", 401, "is unknown")],
)
async def test_without_a_known_token_nothing_is_stored(
    hub: RunningHub, token: str | None, status: int, detail: str
) -> None:
    answered, headers, problem = await post(hub, json.dumps(RES1).encode(), token)
    assert answered == status
    assert headers["WWW-Authenticate"].startswith("Bearer")
    assert detail in problem["detail"]
    assert await number_of_changes(hub) == 0


async def made_token(hub: RunningHub, **asked: Any) -> dict[str, Any]:
    status, token = await hub.ask("POST", "/api/tokens", json=asked)
    assert status == 201, token
    return token


async def test_a_token_is_kept_as_a_hash_only(own_hub: RunningHub) -> None:
    token = await made_token(own_hub, sets=["dataset1"], note="for the archive")
    _, listed = await own_hub.ask("GET", "/api/tokens")
    assert [each["note"] for each in listed] == ["for the archive"]
    kept = b"".join(path.read_bytes() for path in own_hub.data.rglob("*.aof*") if path.is_file())
    assert token["token"].encode() not in kept


@pytest.mark.parametrize("name", ["api", "hub", "Dataset", "-a", "a" * 65, "a%2Fb", "ä", "a b"])
async def test_a_name_that_a_set_cannot_have_is_refused(hub: RunningHub, name: str) -> None:
    assert (await hub.ask("PUT", f"/api/sets/{name}"))[0] in (400, 404)


async def test_a_new_set_can_be_published_to_at_once(hub: RunningHub) -> None:
    assert (await hub.ask("PUT", "/api/sets/dataset2"))[0] == 201
    assert (await hub.ask("PUT", "/api/sets/dataset2"))[0] == 200
    await hub.publish("http://example.com/a", set_name="dataset2")


async def test_a_removed_set_is_gone(hub: RunningHub) -> None:
    assert (await hub.ask("DELETE", "/api/sets/dataset1"))[0] == 204
    assert (await hub.ask("POST", CHANGES, json=RES1))[0] == 404
    assert (await hub.ask("DELETE", "/api/sets/dataset1"))[0] == 404


async def test_it_is_live_and_ready(hub: RunningHub) -> None:
    assert (await hub.ask("GET", "/health/live"))[0] == 200
    assert (await hub.ask("GET", "/health/ready"))[0] == 200
