"""Who is told what about the token that was sent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import time

import pytest

from rsnotify.resourcesync.change import DAY, Position
from tests.support.running import TOKEN, RunningHub, rsnotify
from tests.support.stream_server import StreamServer

NOBODY = {"Authorization": "Bearer of-nobody"}
ADMIN_ONLY = [
    ("PUT", "/api/sets/dataset2"),
    ("PATCH", "/api/sets/dataset1"),
    ("DELETE", "/api/sets/dataset1"),
    ("GET", "/api/tokens"),
    ("GET", "/api/subscriptions"),
]


@pytest.fixture
async def hub(shared_hub: RunningHub) -> RunningHub:
    """As new, though it is not: no test of this file with it ends it or looks at its files."""
    return shared_hub


@pytest.mark.parametrize(("method", "path"), [("GET", "/api/sets"), *ADMIN_ONLY])
async def test_a_token_that_nobody_knows_is_refused_as_unknown(hub, method, path):
    status, problem = await hub.ask(method, path, headers=NOBODY)
    assert (status, problem["detail"]) == (401, "the token is unknown or has been revoked")


async def test_a_known_token_is_told_that_it_is_not_the_admins(hub):
    _, token = await hub.ask("POST", "/api/tokens", json={"sets": ["dataset1"]})
    known = {"Authorization": f"Bearer {token['token']}"}
    for method, path in ADMIN_ONLY:
        status, problem = await hub.ask(method, path, headers=known)
        assert (status, problem["detail"]) == (403, "only the admin token may do this")
    assert (await hub.ask("GET", "/api/sets", headers=known))[0] == 200


async def test_a_private_set_is_told_of_only_to_a_token_that_names_it(hub):
    for name in ("mine", "theirs"):
        await hub.ask("PUT", f"/api/sets/{name}", json={"private": True})
    wanted = {"sets": ["mine"], "rights": ["read"]}
    _, token = await hub.ask("POST", "/api/tokens", json=wanted)
    told = {
        token["token"]: ["dataset1", "mine"],
        TOKEN: ["dataset1", "mine", "theirs"],
        "": ["dataset1"],
    }
    for secret, names in told.items():
        headers = {"Authorization": f"Bearer {secret}"}
        _, sets = await hub.ask("GET", "/api/sets", headers=headers)
        _, status = await hub.ask("GET", "/api/status", headers=headers)
        assert [each["name"] for each in sets] == names
        assert [each["name"] for each in status["sets"]] == names
        assert status["sets_total"] == len(names)
        assert ("websub" in status) == (secret == TOKEN)


async def test_sets_are_told_of_up_to_a_limit_and_counted_beyond_it(hub):
    for name in ("cats", "dogs"):
        await hub.ask("PUT", f"/api/sets/{name}")
    for limit, names in (
        (1, ["cats"]),
        (2, ["cats", "dataset1"]),
        (3, ["cats", "dataset1", "dogs"]),
    ):
        _, sets = await hub.ask("GET", f"/api/sets?limit={limit}")
        _, status = await hub.ask("GET", f"/api/status?limit={limit}")
        assert [each["name"] for each in sets] == names
        assert [each["name"] for each in status["sets"]] == names
        assert status["sets_total"] == 3
    assert (await hub.ask("GET", "/api/status?limit=10001"))[0] == 400
    assert (await hub.ask("GET", "/api/sets?serch=dogs"))[0] == 400
    mine = {"RSNOTIFY_URL": hub.url, "COLUMNS": "100"}
    _, out, _ = await rsnotify("status", "--search", "dogs", **mine)
    assert "dogs" in out
    assert "cats" not in out


CHOSEN = "rsn_" + "a" * 43


async def made(hub: RunningHub, **asked: object) -> tuple[int, dict[str, object]]:
    return await hub.ask("POST", "/api/tokens", json={"sets": ["dataset1"], **asked})


async def test_the_sets_that_changed_last_are_listed_first_if_that_is_asked_for(hub):
    for name in ("cats", "dogs"):
        await hub.ask("PUT", f"/api/sets/{name}")
    for changed in ("dataset1", "dogs", "dataset1"):
        await hub.publish("http://example.com/a", set_name=changed)
        _, status = await hub.ask("GET", "/api/status?order=newest&limit=2")
        assert status["sets"][0]["name"] == changed
        assert status["sets_total"] == 3
    _, status = await hub.ask("GET", "/api/status?order=newest")
    assert [each["name"] for each in status["sets"]] == ["dataset1", "dogs", "cats"]


async def test_a_token_that_was_chosen_may_be_asked_for_again(hub):
    status, token = await made(hub, token=CHOSEN, note="mine")
    assert (status, token["token"]) == (201, CHOSEN)
    assert await made(hub, token=CHOSEN, note="mine") == (200, token)
    for other in ({"note": "yours"}, {"note": "mine", "rights": ["read"]}):
        assert (await made(hub, token=CHOSEN, **other))[0] == 409
    _, listed = await hub.ask("GET", "/api/tokens")
    assert [each["id"] for each in listed] == [token["id"]]
    assert CHOSEN not in str(listed)


async def test_a_token_is_replaced_by_another_one_and_by_one_with_the_same_rights(hub):
    _, old = await made(hub, token=CHOSEN)
    taken, new = "rsn_" + "b" * 43, "rsn_" + "c" * 43
    await made(hub, token=taken, rights=["read"])
    path = f"/api/tokens/{old['id']}/rotate"
    for wrong, status in [(CHOSEN, 400), (taken, 409)]:
        assert (await hub.ask("POST", path, json={"token": wrong}))[0] == status
    _, listed = await hub.ask("GET", "/api/tokens")
    assert [each["expires"] for each in listed] == [None, None]  # neither has ended
    first = await hub.ask("POST", path, json={"token": new})
    assert first[0] == 201
    assert await hub.ask("POST", path, json={"token": new}) == (200, first[1])  # asked again


async def test_a_new_token_expires_when_the_replaced_one_would_have(hub):
    _, old = await made(hub, expires_days=30)
    path = "/api/tokens/{}/rotate".format
    status, new = await hub.ask("POST", path(old["id"]))
    assert (status, new["expires"]) == (201, old["expires"])
    asked = {"expires_days": 60, "grace_seconds": 0}
    status, other = await hub.ask("POST", path(new["id"]), json=asked)
    assert (status, other["expires"] > new["expires"]) == (201, True)
    status, problem = await hub.ask("POST", path(new["id"]))  # it has ended
    assert (status, "send expires_days" in problem["detail"]) == (409, True)
    assert (await hub.ask("POST", path(new["id"]), json={"expires_days": 0}))[0] == 400
    assert (await hub.ask("POST", path(new["id"]), json={"expires_days": 1}))[0] == 201


async def test_a_replaced_token_is_accepted_for_a_day_if_nothing_is_chosen(hub):
    _, old = await made(hub)
    begun = int(time() * 1e6)
    assert (await hub.ask("POST", f"/api/tokens/{old['id']}/rotate"))[0] == 201
    _, listed = await hub.ask("GET", "/api/tokens")
    (ends,) = [Position.parse(each["expires"]) for each in listed if each["id"] == old["id"]]
    assert begun + DAY <= ends <= int(time() * 1e6) + DAY


async def test_a_replaced_token_is_accepted_for_a_month_at_most(hub):
    _, old = await made(hub)
    for seconds, status in [(2_678_401, 400), (2_678_400, 201), (-1, 400), (0, 201)]:
        path, asked = f"/api/tokens/{old['id']}/rotate", {"grace_seconds": seconds}
        assert (await hub.ask("POST", path, json=asked))[0] == status


async def test_a_token_has_43_to_128_random_characters_1000_sets_and_a_note(hub):
    for length, status in [(42, 400), (43, 201), (128, 201), (129, 400)]:
        assert (await made(hub, token="rsn_" + "b" * length))[0] == status, length
    assert (await made(hub, token="rsn_" + "ü" * 43))[0] == 400
    for sets, status in [(0, 400), (1, 201), (1_000, 201), (1_001, 400)]:
        assert (await made(hub, sets=["dataset1"] * sets))[0] == status, sets
    for characters in (255, 256):
        _, token = await made(hub, note="n" * characters)
        assert token["note"] == "n" * 255


async def test_an_empty_body_is_told_to_be_empty(hub):
    for method, path in (("POST", "/api/tokens"), ("PATCH", "/api/sets/dataset1")):
        status, problem = await hub.ask(method, path, data=b" ")
        assert (status, problem["detail"]) == (400, "the body is empty: send a JSON object")


async def test_a_body_that_administers_has_64_kib_and_one_that_subscribes_16(hub):
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for length, status in [(65_536, 201), (65_537, 413)]:
        body = b'{"sets": ["dataset1"]}'.ljust(length)
        assert (await hub.ask("POST", "/api/tokens", data=body))[0] == status
    for length, status in [(16_384, 400), (16_385, 413)]:
        body = b"hub.mode=nonsense&a=".ljust(length, b"a")
        assert (await hub.ask("POST", "/hub", data=body, headers=form))[0] == status


@asynccontextmanager
async def losing_the_first_answer(hub: RunningHub) -> AsyncIterator[str]:
    """The address of a door to the hub that breaks the first connection once it was answered."""
    lost: list[bytes] = []

    async def door(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"}")
        to_hub = await asyncio.open_connection("127.0.0.1", hub.port)
        to_hub[1].write(request)
        answer = await to_hub[0].readuntil(b"}")
        if lost:
            writer.write(answer)
            await writer.drain()
        lost.append(answer)
        writer.close()
        to_hub[1].close()

    async with StreamServer(door) as server:
        yield f"http://127.0.0.1:{server.port}"
    assert b"201" in lost[0]


async def test_a_token_whose_answer_was_lost_is_the_one_that_is_shown(hub):
    async with losing_the_first_answer(hub) as url:
        ended = await rsnotify(
            *("tokens", "create", "--set", "dataset1", "--url", url), RSNOTIFY_TOKEN=TOKEN
        )
    assert ended.status == 0, ended.err
    (listed,) = (await hub.ask("GET", "/api/tokens"))[1]
    known = {"Authorization": f"Bearer {ended.out.strip()}"}
    change = {"loc": "http://example.com/a", "change": "updated"}
    assert listed["sets"] == ["dataset1"]
    path = "/api/sets/dataset1/changes"
    assert (await hub.ask("POST", path, json=change, headers=known))[0] == 201
