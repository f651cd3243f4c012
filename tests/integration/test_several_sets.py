"""One submission for several sets: whole or refused, and safe to repeat."""

import json
from typing import Any

import pytest

from rsnotify.errors import Rejected, SetFull, StoreFull, TooFewReplicas, TryAgain
from rsnotify.live.journals import Journals
from rsnotify.publishing.bodies import read_submissions
from rsnotify.publishing.intake import answer_of
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, Interval
from tests.support.hubs import hub_on
from tests.support.running import RunningHub

A, B = "a", "b"


@pytest.fixture
async def hub(shared_hub: RunningHub) -> RunningHub:
    """As new, though it is not: no test of this file with it ends it or looks at its files."""
    return shared_hub


def change(loc: str, *sets: str) -> dict[str, object]:
    return {"loc": f"http://example.com/{loc}", "change": "updated", "sets": sets}


BOTH = [change("1", A, B), change("2", B)]


async def post(hub: RunningHub, body: object, **headers: str) -> tuple[int, Any]:
    sent = {"Content-Type": "application/json"} | headers
    return await hub.ask("POST", "/api/changes", data=json.dumps(body), headers=sent)


async def listed(hub: RunningHub, name: str) -> list[str]:
    """The locs in the set's open Change List."""
    _, document = await hub.ask("GET", f"/{name}/changelist.xml")
    return [part.split(b"</loc>")[0].decode()[-1:] for part in document.split(b"<loc>")[1:]]


@pytest.fixture
async def two(hub: RunningHub) -> RunningHub:
    for name in (A, B):
        await hub.ask("PUT", f"/api/sets/{name}")
    return hub


async def test_each_set_gets_its_changes_and_an_interval_of_its_own(two):
    status, answer = await post(two, BOTH)
    assert status == 201
    assert {name: each["accepted"] for name, each in answer["sets"].items()} == {A: 1, B: 2}
    assert (await listed(two, A), await listed(two, B)) == (["1"], ["1", "2"])
    later = await two.publish("http://example.com/3", set_name=A)
    assert later["from"] == answer["sets"][A]["until"]


async def test_a_change_that_names_a_set_twice_is_stored_once(two):
    _, answer = await post(two, [change("1", A, A)])
    assert answer["sets"][A]["accepted"] == 1
    assert await listed(two, A) == ["1"]


async def test_a_line_of_ndjson_is_a_change(two):
    lines = b"\n".join(json.dumps(each).encode() for each in BOTH)
    status, answer = await two.ask(
        "POST", "/api/changes", data=lines, headers={"Content-Type": "application/x-ndjson"}
    )
    assert (status, sorted(answer["sets"])) == (201, [A, B])


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ([change("1", A), change("2", A, "none")], 404, "there is no set 'none'"),
        ([change("1", A), change("2")], 400, "change 1, sets: names no set"),
        ([change("1", A), {"loc": "http://e.org/", "change": "updated"}], 400, "field `sets`"),
        ([change("1", A), change("2", A) | {"length": -1}], 400, "change 1: length is -1"),
        ([change("1", A), change("2", A) | {"change": "moved"}], 400, "1: change is 'moved'"),
        ([], 400, "no change"),
        ("text", 400, "Expected"),
        ([change("1", A, B)] * 5_001, 413, "these are 10002 changes, more than 10000"),
    ],
    ids=["set", "none", "field", "length", "change", "empty", "text", "many"],
)
async def test_what_is_wrong_is_named_and_nothing_is_stored(two, body, status, told):
    answered, problem = await post(two, body)
    assert (answered, told in problem["detail"]) == (status, True), problem
    assert (await listed(two, A), await listed(two, B)) == ([], [])


async def test_so_many_changes_are_not_too_many(two):
    status, answer = await post(two, [change("1", A, B)] * 5_000)
    assert (status, answer["sets"][A]["accepted"]) == (201, 5_000)


async def test_xml_has_no_place_for_the_names_of_sets(two):
    status, problem = await post(two, "", **{"Content-Type": "application/xml"})
    assert (status, "send JSON or NDJSON" in problem["detail"]) == (415, True)


async def test_the_token_must_be_for_every_set(two):
    _, token = await two.ask("POST", "/api/tokens", json={"sets": [A]})
    mine = {"Authorization": f"Bearer {token['token']}"}
    status, problem = await post(two, BOTH, **mine)
    assert (status, "no right to publish 'b'" in problem["detail"]) == (403, True)
    assert await listed(two, A) == []
    assert (await post(two, [change("1", A)], **mine))[0] == 201


async def test_without_a_known_token_the_body_is_not_read(two):
    status, _ = await post(two, "no change", Authorization="Bearer rsn_unknown")
    assert status == 401


async def test_a_repetition_gets_the_same_answer_and_doubles_nothing(two):
    key = {"Idempotency-Key": "k"}
    first = await post(two, BOTH, **key)
    assert await post(two, BOTH, **key) == first
    assert (await listed(two, A), await listed(two, B)) == (["1"], ["1", "2"])


async def test_a_key_that_one_set_knows_for_other_changes_stores_in_none(two):
    key = {"Idempotency-Key": "k"}
    await post(two, [change("1", B)], **key)
    status, problem = await post(two, BOTH, **key)
    assert (status, "was used for other changes" in problem["detail"]) == (409, True)
    assert (await listed(two, A), await listed(two, B)) == ([], ["1"])


# What a hub that ended in the middle has left ------------------------------------------------


def submissions(key: str | None) -> Any:
    body = json.dumps(BOTH).encode()
    found = read_submissions(body, "application/json", key)
    return {ChannelName(name, "change"): each for name, each in found.items()}


async def with_both(client: Client) -> Journals:
    hub = hub_on(client)
    for name in (A, B):
        await hub.add_set(name)
    return hub


async def test_a_repetition_completes_what_a_crash_left_and_doubles_nothing(client):
    hub, all_of_it = await with_both(client), submissions("k")
    channel = ChannelName(A, "change")
    stored = await hub.publish(channel, all_of_it[channel])  # and then the process was killed
    completed = await hub.publish_each(all_of_it)
    assert completed[channel] == stored
    again = await (await with_both(client)).publish_each(all_of_it)
    assert again == completed
    assert (await hub.head(channel)) == stored.until


def test_a_failure_says_for_which_sets_the_changes_are_stored():
    a, b = (ChannelName(name, "change") for name in (A, B))
    results = {a: TryAgain("Redis is silent"), b: Interval(Position(1), Position(2))}
    for key, mend in (("k", "repeat all with the same key"), (None, "repeat only what is not")):
        with pytest.raises(TryAgain) as failed:
            answer_of(submissions(key), results)
        assert f"a: Redis is silent; stored for b: {mend}" in failed.value.detail


def test_a_key_that_is_taken_is_not_to_be_used_again():
    a, b = (ChannelName(name, "change") for name in (A, B))
    taken = Rejected("the key was used for other changes", status=409)
    with pytest.raises(Rejected) as failed:
        answer_of(submissions("k"), {a: Interval(Position(1), Position(2)), b: taken})
    assert failed.value.detail == "b: the key was used for other changes; stored for a"


@pytest.mark.parametrize(
    "error",
    [
        TryAgain("no", retry_after_seconds=7),
        StoreFull("no"),
        SetFull("a", 1),
        TooFewReplicas(TryAgain("no")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_set_that_fails_is_named_with_its_own_status_and_wait(error):
    a, b = (ChannelName(name, "change") for name in (A, B))
    results = {a: error, b: Interval(Position(1), Position(2))}
    with pytest.raises(type(error)) as raised:
        answer_of(submissions("k"), results)
    said = raised.value
    assert (said.status, said.retry_after_seconds) == (error.status, error.retry_after_seconds)
    expected = f"a: {error.detail}; stored for b: repeat all with the same key"
    assert said.detail == str(said) == expected
