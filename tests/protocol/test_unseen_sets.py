"""Whether a private set exists cannot be told by those who have no right to it: each way in answers
as for a set that there is not. Who has the right reads it, and no cache keeps that for others."""

import re
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rsnotify.openapi.operations import OPERATIONS
from tests.support.running import TOKEN, RunningHub

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECRET, NOWHERE = "secret-set", "no-set-set"  # as long as each other
PAGE = "https://page.example"
CALLBACK = "http://callback.invalid/"
CHANNEL = "/channels/SET/change_notification_channel"
FRAMEWORK = "/channels/SET/framework_notification_channel"
SEVERAL = "/channels/change_notification_channel"
FORM = "application/x-www-form-urlencoded"
LINKS = f'<URL{CHANNEL}>; rel="self", <URL/hub>; rel="hub"'
OWN_LINKS = '<http://source.example/SET>; rel="self", <URL/hub>; rel="hub"'
CHANGE = b'{"loc": "http://example.com/a", "change": "updated"}'
PAGES = ("capabilitylist", "capabilitylist-ws", "changelist", "changelist-index", "resourcelist")
JSON = {"content-type": "application/json"}
STREAM = {"accept": "text/event-stream"}
BROWSER = {"accept": "text/html", "upgrade-insecure-requests": "1"}

DOCUMENTS = [
    "/SET/capabilitylist.xml",
    "/SET/capabilitylist-ws.xml",
    "/SET/changelist.xml",
    "/SET/changelist.xml?from=yesterday",
    "/SET/changelist.xml?bogus=1",
    "/SET/changelist-index.xml",
    "/SET/changelist-archive.xml",
    "/SET/changelist/2026-11-23T00:00:00.000000Z.xml",
    "/SET/resourcelist.xml",
    "/SET/resourcelist-archive.xml",
    "/SET/resourcelist/1.xml",
    "/SET/dcat.ttl",
    "/SET/dcat.jsonld",
    "/SET/feed.atom",
    "/SET/feed/2026-11-23T00:00:00.000000Z.atom",
    "/SET/activities",
    "/SET/activities/2026-11-23T00:00:00.000000Z",
    "/SET/oai?verb=Identify",
    "/streams/SET",
    "/streams/SET?offset=now",
    "/streams/SET?offset=now&live=sse",
    "/streams/SET/framework",
    "/SET/anything",
    "/SET",
    CHANNEL,
    f"{CHANNEL}?from=yesterday",
    f"{CHANNEL}?bogus=1",
    FRAMEWORK,
    "/api/sets/SET/resources",
    "/api/sets/SET/resources?loc=http://example.com/a",
    "/api/sets/SET/resources?bogus=1",
    "/api/sets?search=SET",
    "/api/status?search=SET",
]

REQUESTS: list[tuple[str, str, dict[str, str], bytes]] = [
    *((method, path, {}, b"") for path in DOCUMENTS for method in ("GET", "HEAD", "OPTIONS")),
    *(("GET", path, STREAM, b"") for path in (CHANNEL, FRAMEWORK, f"{CHANNEL}?from=yesterday")),
    *(("GET", f"/SET/{name}.xml", BROWSER, b"") for name in PAGES),
    ("GET", "/SET", BROWSER, b""),
    ("POST", "/SET/oai", {"content-type": FORM}, b"verb=Identify"),
    ("GET", f"{SEVERAL}?set=SET", STREAM, b""),
    ("GET", f"{SEVERAL}?set=dataset1&set=SET", STREAM, b""),
    ("HEAD", f"{SEVERAL}?set=SET", {}, b""),
    ("POST", "/api/sets/SET/changes", JSON, CHANGE),
    ("POST", "/api/sets/SET/changes", JSON, b"{"),
    ("POST", "/api/sets/SET/framework", JSON, CHANGE),
    ("POST", "/api/sets/SET/snapshot", {}, b""),
    ("POST", "/api/changes", JSON, CHANGE[:-1] + b', "sets": ["SET"]}'),
    ("PUT", "/api/sets/SET/resources", JSON, b"[]"),
    ("PUT", "/api/sets/SET", JSON, b"{}"),
    ("PATCH", "/api/sets/SET", JSON, b"{}"),
    ("DELETE", "/api/sets/SET", {}, b""),
    ("POST", "/hub", JSON | {"link": LINKS}, CHANGE),
    ("POST", "/hub", JSON | {"link": OWN_LINKS}, CHANGE),
    *(
        ("POST", "/hub", {"content-type": FORM}, f"{fields}&hub.topic={topic}".encode())
        for fields in (
            f"hub.mode=subscribe&hub.callback={CALLBACK}",
            f"hub.mode=unsubscribe&hub.callback={CALLBACK}",
            "hub.mode=publish",
        )
        for topic in (f"URL{CHANNEL}", f"URL{FRAMEWORK}", "http://source.example/SET")
    ),
]


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def keeping(tmp_path_factory) -> AsyncIterator[tuple[RunningHub, dict[str, str]]]:
    """A hub with a private set, and who asks: nobody, and tokens without a right to the set."""
    data = tmp_path_factory.mktemp("unseen") / "data"
    async with RunningHub(data, admin_email="a@hub.example") as hub:
        await hub.ask("PUT", "/api/sets/other")
        options = {
            "private": True,
            "iiif": "Manifest",
            "topic": f"http://source.example/{SECRET}",
        }
        assert (await hub.ask("PUT", f"/api/sets/{SECRET}", json=options))[0] == 201
        await hub.publish("http://example.com/a", set_name=SECRET)
        assert (await hub.ask("POST", f"/api/sets/{SECRET}/snapshot"))[0] == 201
        wanted = {"sets": ["other"], "rights": ["read", "publish"]}
        _, token = await hub.ask("POST", "/api/tokens", json=wanted)
        yield hub, {"nobody": "", "of another set": token["token"]}


@pytest.fixture(params=["nobody", "of another set"])
def asker(request) -> str:
    return request.param


READ = [
    *(each for each in DOCUMENTS if each.endswith(("list.xml", "-ws.xml"))),
    *("/SET/changelist-index.xml", "/SET/changelist.xml?from=2026-01-01"),
    *("/SET/feed.atom", "/SET/activities", "/SET/oai?verb=Identify", "/streams/SET", CHANNEL),
    "/api/sets/SET/resources?loc=http://example.com/a",
]
"""What a private set answers to those who may read it."""

UNKNOWN_TOKEN = [  # few: after twenty wrong tokens an address has to wait
    ("GET", "/SET/changelist.xml", {}, b""),
    ("GET", CHANNEL, {}, b""),
    ("GET", CHANNEL, STREAM, b""),
    ("GET", "/api/sets/SET/resources", {}, b""),
    ("GET", "/streams/SET", {}, b""),
    (
        "POST",
        "/hub",
        {"content-type": FORM},
        f"hub.mode=subscribe&hub.callback={CALLBACK}&hub.topic=http://source.example/SET".encode(),
    ),
]


async def test_every_way_in_to_a_set_is_asked():
    """None can be added without being asked here."""
    asked = {(method, path.partition("?")[0]) for method, path, _, _ in REQUESTS}
    missing = [
        (method, path)
        for method, path in OPERATIONS
        if "{set}" in path and not any(_is_of(path, *each) for each in asked if each[0] == method)
    ]
    assert missing == []


def _is_of(pattern: str, _: str, path: str) -> bool:
    return re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(pattern)), path) is not None


@pytest.mark.parametrize(("method", "path", "headers", "body"), UNKNOWN_TOKEN)
async def test_an_unknown_token_is_refused_whether_the_set_exists_or_not(
    keeping, method, path, headers, body
):
    hub, _ = keeping
    sent = headers | {"authorization": "Bearer rsn_unknown"}
    answers = [await answer(hub, name, method, path, sent, body) for name in (SECRET, NOWHERE)]
    assert answers[0] == answers[1]
    assert answers[0][0] == 401


async def answer(
    hub: RunningHub, name: str, method: str, path: str, headers: dict[str, str], body: bytes
) -> tuple[int, dict[str, str], str]:
    """Status, headers and body; where the name stands in them, SET."""

    def named(text: str) -> str:
        return text.replace("SET", name).replace("URL", hub.url)

    async with (
        aiohttp.ClientSession() as session,
        session.request(
            method,
            named(hub.url + path),
            headers={key: named(value) for key, value in headers.items()},
            data=named(body.decode()),
        ) as got,
    ):
        text = (await got.text()).replace(name, "SET")
        told = {key.lower(): value.replace(name, "SET") for key, value in got.headers.items()}
    told.pop("date", None)
    if path.startswith("/api/status"):  # numbers of the process that change meanwhile
        told.pop("content-length")
        text = text.partition('"sets"')[2]
    return got.status, told, text


@pytest.mark.parametrize("origin", [None, PAGE])
@pytest.mark.parametrize(("method", "path", "headers", "body"), REQUESTS)
async def test_a_private_set_is_answered_for_as_one_that_does_not_exist(
    keeping, asker, method, path, headers, body, origin
):
    hub, tokens = keeping
    sent = dict(headers)
    if tokens[asker]:
        sent["authorization"] = f"Bearer {tokens[asker]}"
    if origin is not None:
        sent |= {"origin": origin, "access-control-request-method": "GET"}
    answers = [await answer(hub, name, method, path, sent, body) for name in (SECRET, NOWHERE)]
    assert answers[0] == answers[1]
    assert answers[0][0] not in (201, 202, 429, 500)


@pytest.mark.parametrize("origin", [None, PAGE])
@pytest.mark.parametrize("query", ["", "?from=yesterday", "?bogus=1"])
@pytest.mark.parametrize("path", [CHANNEL, FRAMEWORK, f"{SEVERAL}?set=SET"])
async def test_a_private_channel_opens_to_a_stranger_as_one_that_does_not_exist(
    keeping, asker, path, query, origin
):
    hub, tokens = keeping
    headers = {"authorization": f"Bearer {tokens[asker]}"} if tokens[asker] else {}
    if "?" in path:
        query = query.replace("?", "&")

    async def opened(name: str) -> tuple[object, ...]:
        url = (hub.url + path + query).replace("http", "ws", 1).replace("SET", name)
        try:
            async with connect(url, additional_headers=headers, origin=origin) as websocket:
                await websocket.recv()
        except InvalidStatus as refused:
            body = refused.response.body.decode().replace(name, "SET")
            told = [
                each for each in refused.response.headers.raw_items() if each[0].lower() != "date"
            ]
            return refused.response.status_code, told, body
        except ConnectionClosed as closed:
            return str(closed).replace(name, "SET"), None
        raise AssertionError(url)

    assert await opened(SECRET) == await opened(NOWHERE)


async def test_an_unknown_token_opens_no_channel(keeping):
    hub, _ = keeping
    wrong = {"Authorization": "Bearer rsn_wrong"}
    with pytest.raises(InvalidStatus) as refused:
        async with connect(hub.channel(SECRET), additional_headers=wrong):
            pass
    assert refused.value.response.status_code == 401


@pytest.mark.parametrize("path", READ)
async def test_who_has_a_token_for_it_reads_and_is_told_what_it_lacks(keeping, path):
    hub, _ = keeping
    url = f"{hub.url}{path.replace('SET', SECRET)}"
    made = {}
    for right in ("read", "publish"):
        wanted = {"sets": [SECRET], "rights": [right]}
        made[right] = (await hub.ask("POST", "/api/tokens", json=wanted))[1]["token"]
    expected = {TOKEN: 200, made["read"]: 200, made["publish"]: 403}
    async with aiohttp.ClientSession() as session:
        for token, status in expected.items():
            sent = {"authorization": f"Bearer {token}"}
            async with session.get(url, headers=sent) as got:
                assert got.status == status
                if status == 200 and got.headers["cache-control"] != "no-store":
                    assert got.headers["cache-control"].startswith("private")
                    assert "authorization" in got.headers["vary"].lower()
