"""A channel as a Durable Stream: catch-up reads, by the sections of PROTOCOL.md."""

import json
from typing import Any, NamedTuple
from urllib.parse import urlencode

import aiohttp
import msgspec
import pytest
from yarl import URL

from rsnotify.coordination import keys
from rsnotify.redis_client import connect
from tests.support.running import RunningHub

UNKNOWN_OFFSET = "9999-12-31T23:59:59.999999Z"


@pytest.fixture
async def hub(shared_hub: RunningHub) -> RunningHub:
    """As new, though it is not: no test of this file with it ends it or looks at its files."""
    return shared_hub


class Answer(NamedTuple):
    status: int
    headers: Any
    body: bytes

    @property
    def locs(self) -> list[str]:
        return [each["loc"].rpartition("/")[2] for each in json.loads(self.body)]

    @property
    def next(self) -> str:
        return self.headers["Stream-Next-Offset"]


async def ask(
    hub: RunningHub, path: str = "dataset1", method: str = "GET", token: str = "", **query: str
) -> Answer:
    headers = {name.title().replace("_", "-"): query.pop(name) for name in [*query] if "_" in name}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    url = URL(f"{hub.url}/streams/{path}?{urlencode(sorted(query.items()))}", encoded=True)
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, headers=headers) as answer,
    ):
        return Answer(answer.status, answer.headers, await answer.read())


async def publish(hub: RunningHub, *names: str, **options: Any) -> dict[str, Any]:
    return await hub.publish(*(f"http://example.com/{name}" for name in names), **options)


# --- 5.6 and 9.1: what is read -------------------------------------------------------------------


async def test_a_set_without_changes_has_an_offset_and_no_messages(hub):
    found = await ask(hub)
    assert (found.status, found.body) == (200, b"[]")
    assert found.headers["Content-Type"] == "application/json"
    assert found.headers["Stream-Up-To-Date"] == "true"
    await publish(hub, "a")
    assert (await ask(hub, offset=found.next)).locs == ["a"]


async def test_each_change_is_a_message_with_the_fields_of_our_json(hub):
    told = await hub.publish("http://example.com/a?b&c", hash="md5:" + "0" * 32, length=5)
    found = await ask(hub, offset="-1")
    assert json.loads(found.body) == [
        {
            "loc": "http://example.com/a?b&c",
            "lastmod": told["until"],
            "change": "updated",
            "datetime": told["until"],
            "hash": "md5:" + "0" * 32,
            "length": 5,
        }
    ]
    assert found.next == told["until"]


async def test_an_offset_goes_on_where_an_answer_ended(hub):
    offset = "-1"
    for names in (["a", "b"], ["c"], ["d"]):
        await publish(hub, *names)
        found = await ask(hub, offset=offset)
        assert found.locs == names
        assert found.next > offset
        offset = found.next
    assert (await ask(hub, offset=offset)).body == b"[]"
    assert (await ask(hub)).locs == ["a", "b", "c", "d"]


async def test_an_offset_between_changes_of_one_publish_is_an_offset(hub):
    await publish(hub, "a", "b", "c")
    whole = json.loads((await ask(hub)).body)
    assert (await ask(hub, offset=whole[0]["datetime"])).locs == ["b", "c"]


async def test_the_framework_channel_is_a_stream_of_its_own(hub):
    found = await ask(hub, "dataset1/framework")
    assert found.status == 200
    assert {each["capability"] for each in json.loads(found.body)} <= {
        "description",
        "capabilitylist",
    }
    change = {"loc": "http://example.com/l.xml", "change": "updated", "capability": "changelist"}
    await hub.ask("POST", "/api/sets/dataset1/framework", json=[change])
    found = await ask(hub, "dataset1/framework", offset=found.next)
    assert [each["capability"] for each in json.loads(found.body)] == ["changelist"]
    assert (await ask(hub)).body == b"[]"


async def test_many_changes_come_in_chunks_that_join(hub):
    for start in range(0, 2_500, 500):
        await publish(hub, *map(str, range(start, start + 500)))
    offset, found, sizes = "-1", [], []
    while not sizes or sizes[-1]:
        answer = await ask(hub, offset=offset)
        sizes.append(len(answer.locs))
        found += answer.locs
        offset = answer.next
        assert ("Stream-Up-To-Date" in answer.headers) == (len(found) == 2_500)
    assert found == [*map(str, range(2_500))]
    assert max(sizes) == 1_000


async def test_a_chunk_is_at_most_a_mebibyte(hub):
    long = "x" * 2_000
    for start in range(0, 600, 200):
        await publish(hub, *(f"{number:03}{long}" for number in range(start, start + 200)))
    found = await ask(hub)
    assert 1 < len(found.locs) < 600
    assert len(found.body) <= 1024 * 1024
    assert "Stream-Up-To-Date" not in found.headers


# --- 8: offsets ----------------------------------------------------------------------------------


async def test_now_is_the_end_and_is_kept_by_nobody(hub):
    told = await publish(hub, "a")
    found = await ask(hub, offset="now")
    assert (found.status, found.body, found.next) == (200, b"[]", told["until"])
    assert found.headers["Stream-Up-To-Date"] == "true"
    assert found.headers["Cache-Control"] == "no-store"
    assert "ETag" not in found.headers


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"offset": ""}, "Stream-Next-Offset"),
        ({"offset": "1,2"}, "Stream-Next-Offset"),
        ({"offset": UNKNOWN_OFFSET}, "is in the future"),
        ({"live": "long-poll"}, "needs an offset"),
        ({"offset": "-1", "limit": "3"}, "unknown parameter"),
    ],
)
async def test_what_is_no_offset_is_refused_with_how_to_mend_it(hub, query, told):
    found = await ask(hub, **query)
    assert (found.status, found.headers["Cache-Control"]) == (400, "no-store")
    assert told in json.loads(found.body)["detail"]


async def test_an_offset_before_the_set_was_made_is_its_beginning(hub):
    await publish(hub, "a")
    assert (await ask(hub, offset="2001-01-01T00:00:00.000000Z")).locs == ["a"]


async def test_an_offset_of_a_set_that_was_removed_is_gone(hub):
    told = await publish(hub, "a")
    await hub.ask("DELETE", "/api/sets/dataset1")
    assert (await ask(hub, offset=told["until"])).status == 404
    await hub.ask("PUT", "/api/sets/dataset1")
    found = await ask(hub, offset=told["until"])
    assert (found.status, found.headers["Content-Type"]) == (410, "application/problem+json")
    assert (await ask(hub)).body == b"[]"


# --- 5.5: HEAD -----------------------------------------------------------------------------------


@pytest.mark.parametrize("query", [{}, {"offset": "-1"}, {"offset": "now", "live": "sse"}])
async def test_head_says_where_the_stream_ends(hub, query):
    told = await publish(hub, "a")
    found = await ask(hub, method="HEAD", **query)
    assert (found.status, found.next, found.body) == (200, told["until"], b"")
    assert found.headers["Content-Type"] == "application/json"
    assert found.headers["Cache-Control"] == "no-store"


# --- 10: caches ----------------------------------------------------------------------------------


async def test_who_has_a_chunk_is_told_so(hub):
    await publish(hub, "a")
    first = await ask(hub, offset="-1")
    again = await ask(hub, offset="-1", if_none_match=first.headers["ETag"])
    assert (again.status, again.body, again.next) == (304, b"", first.next)
    await publish(hub, "b")
    found = await ask(hub, offset="-1", if_none_match=first.headers["ETag"])
    assert (found.status, found.locs) == (200, ["a", "b"])


async def test_a_set_made_again_has_other_tags(hub):
    first = (await ask(hub)).headers["ETag"]
    await hub.ask("DELETE", "/api/sets/dataset1")
    await hub.ask("PUT", "/api/sets/dataset1")
    assert (await ask(hub, if_none_match=first)).status == 200


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("offset=-1", "public, max-age=60"),
        ("offset=%2D1", "no-store"),
        ("offset=-1&cursor=1", "public, max-age=60"),
        ("cursor=1&offset=-1", "public, max-age=60"),
        ("offset=-1&prefix=http%3A%2F%2Fexample.com%2F", "public, max-age=60"),
        ("prefix=http%3A%2F%2Fexample.com%2F&offset=-1", "public, max-age=60"),
        ("prefix=http%3A%2F%2Fexample.com%2F&cursor=1&offset=-1", "no-store"),
        ("offset=now", "no-store"),
    ],
)
async def test_caches_may_keep_what_was_asked_for_in_the_canonical_way(hub, query, kept):
    for start in (0, 600):
        await publish(hub, *map(str, range(start, start + 600)))
    url = URL(f"{hub.url}/streams/dataset1?{query}", encoded=True)
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert (answer.status, answer.headers["Cache-Control"]) == (200, kept)


async def test_what_reaches_the_newest_change_is_kept_for_a_second(hub):
    await publish(hub, "a")
    found = await ask(hub, offset="-1")
    assert found.headers["Cache-Control"] == "public, max-age=1"
    assert (await ask(hub, offset=found.next)).headers["Cache-Control"] == "public, max-age=1"


async def test_a_chunk_is_in_gzip_for_those_who_accept_it(hub):
    await publish(hub, *map(str, range(100)))
    plain = await ask(hub, accept_encoding="identity")
    packed = await ask(hub, accept_encoding="gzip")
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert packed.body == plain.body
    assert packed.headers["ETag"] == f"W/{plain.headers['ETag']}"
    for found in (plain, packed):
        assert found.headers["Vary"] == "accept-encoding"


# --- what is not offered -------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH"])
@pytest.mark.parametrize(
    ("path", "where"), [("dataset1", "/changes"), ("dataset1/framework", "/framework")]
)
async def test_whoever_writes_is_told_where_one_publishes(hub, method, path, where):
    found = await ask(hub, path, method=method)
    assert (found.status, found.headers["Allow"]) == (405, "GET, HEAD, OPTIONS")
    assert f"POST /api/sets/SET{where}" in json.loads(found.body)["detail"]


async def test_no_set_can_be_called_like_the_streams(hub):
    status, told = await hub.ask("PUT", "/api/sets/streams")
    assert (status, "reserved" in told["detail"]) == (400, True)


# --- rights --------------------------------------------------------------------------------------


async def test_a_private_stream_is_read_with_a_token_until_that_is_revoked(hub):
    await hub.ask("PUT", "/api/sets/closed", json={"private": True})
    await publish(hub, "a", set_name="closed")
    _, made = await hub.ask("POST", "/api/tokens", json={"sets": ["closed"], "rights": ["read"]})
    found = await ask(hub, "closed", token=made["token"])
    assert (found.status, found.locs) == (200, ["a"])
    assert found.headers["Cache-Control"] == "private, no-cache"
    assert found.headers["Vary"] == "accept-encoding, authorization"
    await hub.ask("DELETE", f"/api/tokens/{made['id']}")
    assert (await ask(hub, "closed", token=made["token"])).status == 401


async def test_a_token_in_the_address_reads_and_the_answer_is_kept_by_nobody_else(hub):
    await hub.ask("PUT", "/api/sets/closed", json={"private": True})
    _, made = await hub.ask("POST", "/api/tokens", json={"sets": ["closed"], "rights": ["read"]})
    url = f"{hub.url}/streams/closed?access_token={made['token']}&offset=-1"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert (answer.status, answer.headers["Cache-Control"]) == (200, "private, no-cache")


async def test_pages_of_other_origins_read_public_streams(hub):
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{hub.url}/streams/dataset1", headers={"Origin": "http://page.example"}) as it,
    ):
        assert it.headers["Access-Control-Allow-Origin"] == "*"
        exposed = it.headers["Access-Control-Expose-Headers"].split(", ")
        assert {"Stream-Next-Offset", "Stream-Cursor", "Stream-Up-To-Date"} <= {*exposed}


async def test_a_hub_that_has_a_set_of_a_reserved_name_says_what_to_do(tmp_path, own_redis):
    async with RunningHub(tmp_path / "hub", "--redis", own_redis.url, drain_seconds="0") as hub:
        await publish(hub, "a")
        await hub.stop()
        await renamed(own_redis.url, "dataset1", "streams")
        await hub.start()
        assert "the set 'streams' has a name that is reserved by now" in hub.log.read_text()
        assert (await publish(hub, "b", set_name="streams"))["accepted"] == 1
        status, _ = await hub.ask("DELETE", "/api/sets/streams")
        assert status == 204


async def renamed(redis_url: str, old: str, new: str) -> None:
    """As if the set had been made before its name was reserved."""
    client = connect(redis_url)
    record = msgspec.json.decode(await client.hget(keys.SETS, old))
    await client.hset(keys.SETS, new, msgspec.json.encode(record | {"name": new}))
    for key in await client.execute_command("KEYS", f"*{{{old}}}*"):
        await client.execute_command("RENAME", key, key.decode().replace(old, new))
    await client.hdel(keys.SETS, old)
    await client.aclose()
