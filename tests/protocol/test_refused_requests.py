"""What the hub refuses over HTTP, and in which words: whoever is told no can mend it."""

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from tests.support.running import RunningHub

pytestmark = pytest.mark.asyncio(loop_scope="module")

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json"}
CHANGE = b'[{"loc": "http://example.com/1", "change": "updated"}]'
LINKS = '<{}/channels/dataset1/change_notification_channel>; rel="self", <{}/hub>; rel="hub"'
SUBSCRIBE = (
    b"hub.mode=subscribe&hub.callback=http%3A%2F%2F127.0.0.1%3A9%2F&hub.topic=http%3A%2F%2Fa"
)


class Asking(NamedTuple):
    """A hub, and the tokens to ask with."""

    hub: RunningHub
    tokens: dict[str, str]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def asking(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Asking]:
    async with RunningHub(tmp_path_factory.mktemp("refused") / "data") as hub:
        tokens = {"nobody": "", "unknown": "Bearer rsn_of-nobody", "basic": "Basic YTpi"}
        for name in ("private", "mine"):
            assert (await hub.ask("PUT", f"/api/sets/{name}", json={"private": True}))[0] == 201
        for right in ("read", "publish"):
            wanted = {"sets": ["dataset1", "mine"], "rights": [right]}
            _, made = await hub.ask("POST", "/api/tokens", json=wanted)
            tokens[f"may {right}"] = f"Bearer {made['token']}"
        yield Asking(hub, tokens)


async def refused(
    asking: Asking, who: str, method: str, path: str, body: bytes, headers: dict[str, str]
) -> tuple[int, str]:
    """The status, and the one sentence: of a problem document, or at `/hub` of a plain text."""
    sent = {name: text.format(*[asking.hub.url] * 2) for name, text in headers.items()}
    if who != "admin":
        sent["Authorization"] = asking.tokens[who]
    status, answer = await asking.hub.ask(method, path, data=body, headers=sent)
    if isinstance(answer, bytes):
        return status, answer.decode()
    assert (answer["status"], answer["type"]) == (status, "about:blank")
    return status, answer["detail"]


CHANGES = "/api/sets/dataset1/changes"
CHANNEL = "/channels/{}/{}_notification_channel"


@pytest.mark.parametrize(
    ("who", "method", "path", "status", "words"),
    [
        ("nobody", "POST", CHANGES, 401, "a token is needed"),
        ("basic", "POST", CHANGES, 401, "a token is needed"),
        ("unknown", "POST", CHANGES, 401, "revoked"),
        ("may read", "POST", CHANGES, 403, "no right to publish 'dataset1'"),
        ("may publish", "POST", "/api/sets/private/changes", 403, "no right to publish 'private'"),
        ("may read", "POST", "/api/sets/dataset1/framework", 403, "no right to publish"),
        ("may read", "POST", "/api/sets/dataset1/snapshot", 403, "no right to publish"),
        ("may publish", "GET", CHANNEL.format("mine", "change"), 403, "no right to read 'mine'"),
        ("may read", "GET", CHANNEL.format("private", "change"), 404, "that this token is for"),
        ("nobody", "GET", CHANNEL.format("private", "change"), 404, "read without a token"),
        ("nobody", "GET", "/private/changelist.xml", 404, "read without a token"),
        ("nobody", "GET", "/private/capabilitylist.xml?access_token=x", 401, "revoked"),
        ("nobody", "POST", f"{CHANGES}?access_token=x", 401, "in the address is not accepted"),
        ("nobody", "GET", "/api/tokens?access_token=x", 401, "in the address is not accepted"),
        ("may publish", "GET", "/api/tokens", 403, "only the admin token"),
        ("may publish", "POST", "/api/tokens", 403, "only the admin token"),
        ("may publish", "DELETE", "/api/tokens/x", 403, "only the admin token"),
        ("may publish", "PUT", "/api/sets/dataset2", 403, "only the admin token"),
        ("may publish", "PATCH", "/api/sets/dataset1", 403, "only the admin token"),
        ("may publish", "DELETE", "/api/sets/dataset1", 403, "only the admin token"),
        ("may publish", "GET", "/api/subscriptions", 403, "only the admin token"),
        ("may publish", "GET", "/api/subscriptions/x", 403, "only the admin token"),
        ("may publish", "POST", "/api/subscriptions/x/retry", 403, "only the admin token"),
    ],
)
async def test_who_may_not_is_told_what_is_missing(asking, who, method, path, status, words):
    answered, told = await refused(asking, who, method, path, CHANGE, JSON)
    assert (answered, words in told) == (status, True), told


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("POST", "/api/sets/none/changes", 404, "there is no set 'none'"),
        ("POST", "/api/sets/none/framework", 404, "there is no set 'none'"),
        ("POST", "/api/sets/none/snapshot", 404, "there is no set 'none'"),
        ("PATCH", "/api/sets/none", 404, "there is no set 'none'"),
        ("DELETE", "/api/sets/none", 404, "there is no set 'none'"),
        ("DELETE", "/api/tokens/none", 404, "there is no token 'none'"),
        ("GET", "/api/subscriptions/none", 404, "there is no subscription 'none'"),
        ("DELETE", "/api/subscriptions/none", 404, "there is no subscription 'none'"),
        ("POST", "/api/subscriptions/none/retry", 404, "there is no subscription 'none'"),
        ("GET", CHANNEL.format("none", "change"), 404, "there is no set 'none'"),
        ("GET", CHANNEL.format("dataset1", "other"), 404, "there is no other channel"),
        ("GET", "/none/capabilitylist.xml", 404, "none"),
        ("GET", "/api/sets/", 404, "there is nothing at /api/sets/"),
        ("GET", "/nothing", 404, "there is no set 'nothing'"),
        ("GET", "/Nothing", 404, "there is nothing at /Nothing"),
        ("GET", "/favicon.ico", 404, "there is nothing at /favicon.ico"),
        ("GET", "/hub", 405, "GET is not allowed at /hub: use POST"),
        ("GET", CHANGES, 405, "use POST"),
        ("PUT", "/api/sets", 405, "use GET, HEAD"),
        ("GET", "/api/sets/dataset1", 405, "use DELETE, PATCH, PUT"),
        ("PUT", "/api/tokens", 405, "use GET, HEAD, POST"),
        ("POST", CHANNEL.format("dataset1", "change"), 405, "use GET, HEAD"),
        ("PUT", "/api/sets/hub", 400, "'hub' is reserved"),
        ("PUT", "/api/sets/Upper", 400, "1 to 64 of"),
    ],
)
async def test_what_is_not_there_is_named(asking, method, path, status, words):
    answered, told = await refused(asking, "admin", method, path, b"{}", JSON)
    assert (answered, words in told) == (status, True), told


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        *((method, "/api/sets/dataset1", body, words)
        for method in ("PUT", "PATCH")
        for body, words in (
            (b"[]", "Expected `object`, got `array`"),
            (b"null", "Expected `object`, got `null`"),
            (b"\xff", "JSON is malformed"),
            (b'{"private": 1}', "at `$.private`"),
            (b'{"public": true}', "unknown field `public`"),
            (b'{"describedby": "x"}', "describedby: loc is 'x'"),
            (json.dumps({"resourcelist": "http://e/" + "x" * 3_000}).encode(), "resourcelist: "),
        )),
        ("PATCH", "/api/sets/dataset1", b"", "the body is empty"),
        ("POST", "/api/tokens", b"", "the body is empty"),
        ("POST", "/api/tokens", b'["dataset1"]', 'send such as {"sets": ["dataset1"], "rights":'),
        ("PUT", "/api/sets/dataset1", b'["x"]', 'send such as {"private": false}'),
        ("POST", "/api/changes", b"loc,change", "not JSON, as its Content-Type says"),
        ("POST", "/api/changes", b"loc,change", 'such as {"loc": '),
        ("POST", "/api/changes", b"{}", 'such as {"sets": ["dataset1"], "loc": '),
        ("POST", "/api/tokens", b'{"sets": []}', "name 1 to 1000 sets"),
        ("POST", "/api/tokens", b'{"sets": "dataset1"}', "at `$.sets`"),
        ("POST", "/api/tokens", b'{"sets": ["dataset1"], "rights": ["x"]}', "at `$.rights[0]`"),
        ("POST", "/api/tokens", b'{"sets": ["dataset1"], "rights": []}', "name one right at least"),
        ("POST", "/api/tokens", b'{"sets": ["dataset1"], "token": "x"}', "43 to 128"),
        ("POST", "/api/tokens", b'{"sets": ["dataset1"], "set": "x"}', "unknown field `set`"),
        ("POST", CHANGES, b"", "not JSON"),
        ("POST", CHANGES, b"loc,change", "the hub takes application/json, application/ndjson"),
        ("POST", CHANGES, b'[{"loc": "http://e/"}]', "change 0"),
        ("POST", CHANGES, b'[{"loc": "x", "change": "updated"}]', "absolute URI"),
        ("POST", "/api/sets/dataset1/framework", CHANGE, "capability"),
    ],
)  # fmt: skip
async def test_a_body_that_does_not_fit_is_told_where(asking, method, path, body, words):
    status, told = await refused(asking, "admin", method, path, body, JSON)
    assert (status, words in told) == (400, True), told


@pytest.mark.parametrize(
    ("who", "headers", "body", "status", "words"),
    [
        ("nobody", FORM, b"", 400, "hub.mode"),
        ("nobody", FORM, b"hub.mode=other", 400, "hub.mode"),
        ("nobody", FORM, b"hub.mode=subscribe", 400, "hub.topic is missing"),
        ("nobody", FORM, b"hub.mode=publish", 400, "hub.url"),
        ("nobody", FORM, b"hub.mode=publish&hub.url=http%3A%2F%2Fe%2F", 404, "does not serve"),
        ("nobody", FORM, SUBSCRIBE, 403, "hub.callback may not be called"),
        ("admin", JSON, CHANGE, 400, 'no rel="self"'),
        ("admin", JSON | {"Link": '<http://e/>; rel="self"'}, CHANGE, 400, 'no rel="hub"'),
        (
            *("admin", JSON | {"Link": '<http://e/>; rel="self", <http://e/>; rel="hub"'}),
            *(CHANGE, 404, "does not serve"),
        ),
        ("nobody", JSON | {"Link": LINKS}, CHANGE, 401, "a token is needed"),
        ("may read", JSON | {"Link": LINKS}, CHANGE, 403, "no right to publish"),
        ("may publish", JSON | {"Link": LINKS}, b"{", 400, "not JSON"),
        ("may publish", {"Link": LINKS, "Content-Type": "image/png"}, b"x", 415, "image/png"),
    ],
)
async def test_the_hub_s_address_refuses_in_one_plain_sentence(
    asking, who, headers, body, status, words
):
    answered, told = await refused(asking, who, "POST", "/hub", body, headers)
    assert (answered, words in told) == (status, True), told
    assert told.count("\n") == 1


async def test_of_all_that_was_refused_nothing_was_done(asking):
    async def there(path: str) -> Any:
        return (await asking.hub.ask("GET", path))[1]

    assert [each["name"] for each in await there("/api/sets")] == ["dataset1", "mine", "private"]
    assert len(await there("/api/tokens")) == 2
    assert await there("/api/subscriptions") == []
    latest = CHANNEL.format("dataset1", "change")
    assert (await asking.hub.ask("GET", latest))[1].count(b"<loc>") == 0
