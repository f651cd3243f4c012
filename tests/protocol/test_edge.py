"""The edge of the hub over real sockets: hostile requests, tokens in addresses, who waits."""

import asyncio
import json
import urllib.error
import urllib.request
from itertools import count
from urllib.parse import urlsplit

import aiohttp
import pytest
import pytest_asyncio

from rsnotify.access.throttle import FREE_TRIES
from rsnotify.access.tokens import id_of
from rsnotify.publishing.bodies import BODY_BYTES
from rsnotify_client.notification import read_notification
from tests.support.raw import KEY, raw_channel
from tests.support.running import PATIENT_SECONDS, TOKEN, RunningHub

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHANNEL = "/channels/dataset1/change_notification_channel"
UPGRADE = (
    "Upgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n"
).encode()
CHANGES = "/api/sets/dataset1/changes"
RES1 = {"loc": "http://example.com/res1", "change": "updated"}
PAYLOAD = (
    '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" '
    'xmlns:rs="http://www.openarchives.org/rs/terms/">'
    '<url><loc>http://example.com/res1</loc><rs:md change="updated"/></url></urlset>'
)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def hub(tmp_path_factory):
    """One for all: it is asked for nothing that others would see."""
    data = tmp_path_factory.mktemp("edge") / "data"
    proxies = "127.0.0.1"
    async with RunningHub(data, trusted_proxies=proxies, pending_per_address="1") as running:
        await running.ask("PUT", "/api/sets/secrets", json={"private": True})
        yield running


async def token(hub: RunningHub, *rights: str) -> str:
    asked = {"sets": ["dataset1", "secrets"], "rights": rights}
    _, made = await hub.ask("POST", "/api/tokens", json=asked)
    return made["token"]


async def status(hub: RunningHub, method: str, path: str, **options) -> int:
    """Without any token but those in the options."""
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, hub.url + path, allow_redirects=False, **options) as answer,
    ):
        await answer.read()
        return answer.status


async def exchanged(hub: RunningHub, *parts: bytes) -> bytes:
    """All that the hub answers until it closes, however much it is sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", hub.port)
    for part in parts:
        writer.write(part)
    async with asyncio.timeout(PATIENT_SECONDS):
        answer = await reader.read()
    writer.close()
    return answer


# --- requests ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "field", "expected"),
    [("", b"Cookie: name=caf\xe9", 101), ("?a=\xe9", b"A: b", None)],
    ids=["header", "address"],
)
async def test_handshakes_of_any_bytes_are_answered_or_closed(hub, path, field, expected):
    """Also those that wait behind others."""
    channel = f"{CHANNEL}{path}".encode("latin-1")
    asked = b"GET %s HTTP/1.1\r\nHost: h\r\n%s%s\r\n\r\n" % (channel, UPGRADE, field)
    opened = [await asyncio.open_connection("127.0.0.1", hub.port) for _ in range(30)]
    for _, writer in opened:
        writer.write(asked)
    async with asyncio.timeout(PATIENT_SECONDS):
        heads = [await reader.readline() for reader, _ in opened]
    for _, writer in opened:
        writer.close()
    if expected:
        assert {*heads} == {b"HTTP/1.1 %d Switching Protocols\r\n" % expected}
    else:
        assert not any(b" 101 " in head for head in heads)
    assert "rror in" not in hub.log.read_text()


@pytest.mark.parametrize(
    ("bearer", "expected"), [(TOKEN, 413), ("of-nobody-at-all", 401)], ids=["413", "401"]
)
async def test_a_large_body_is_refused_so_that_urllib_hears_it(hub, bearer, expected):
    """It says `Connection: close` and reads nothing before it has sent everything."""
    headers = {"Authorization": f"Bearer {bearer}", "Content-Type": "application/json"}
    body = b" " * (BODY_BYTES + 1)

    def post() -> int:
        asked = urllib.request.Request(hub.url + CHANGES, body, headers)
        try:
            with urllib.request.urlopen(asked, timeout=20) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    assert await asyncio.to_thread(post) == expected


# --- addresses and tokens ------------------------------------------------------------------------


async def test_a_token_in_the_address_reads(hub):
    query = {"access_token": await token(hub, "read")}
    for path in ("/secrets/capabilitylist.xml", "/channels/secrets/change_notification_channel"):
        assert await status(hub, "GET", path) == 404
        assert await status(hub, "GET", path, params=query) == 200


async def published(hub: RunningHub, **options) -> int:
    topic = f"{hub.url}{CHANNEL}"
    link = f'<{topic}>; rel="self", <{hub.url}/hub>; rel="hub"'
    headers = {"Content-Type": "application/xml", "Link": link}
    return await status(hub, "POST", "/hub", data=PAYLOAD, headers=headers, **options)


async def test_at_the_hub_s_address_a_publisher_s_token_publishes(hub):
    assert await published(hub) == 401
    assert await published(hub, params={"access_token": await token(hub, "publish")}) == 200
    assert await published(hub, params={"access_token": await token(hub, "read")}) == 403
    assert await published(hub, params={"access_token": TOKEN}) == 401


async def test_a_token_that_is_revoked_while_its_changes_come_publishes_to_no_set(hub):
    secret = await token(hub, "publish")
    body = json.dumps([RES1 | {"sets": ["dataset1"]}]).encode()
    head = (
        f"POST /api/changes HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {secret}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Expect: 100-continue\r\n\r\n"
    )
    at = urlsplit(hub.url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    async with asyncio.timeout(PATIENT_SECONDS):
        writer.write(head.encode())
        assert b" 100 " in await reader.readuntil(b"\r\n\r\n")  # the token was right so far
        assert (await hub.ask("DELETE", f"/api/tokens/{id_of(secret)}"))[0] == 204
        writer.write(body)
        assert b" 401 " in await reader.readline()
    writer.close()


async def test_elsewhere_a_token_in_the_address_neither_publishes_nor_administers(hub):
    for secret in (TOKEN, await token(hub, "publish", "read")):
        for method, path in [
            ("POST", CHANGES),
            ("POST", "/api/sets/dataset1/framework"),
            ("POST", "/api/sets/dataset1/snapshot"),
            ("PUT", "/api/sets/dataset2"),
            ("PATCH", "/api/sets/dataset1"),
            ("DELETE", "/api/sets/dataset1"),
            ("GET", "/api/tokens"),
            ("POST", "/api/tokens"),
            ("GET", "/api/subscriptions"),
        ]:
            query = {"access_token": secret}
            assert await status(hub, method, path, params=query, json=RES1) == 401, path


async def test_the_admin_token_in_an_address_opens_nothing_and_the_answer_says_why(hub):
    path = f"/secrets/capabilitylist.xml?access_token={TOKEN}"
    answer, problem = await hub.ask("GET", path, headers={"Authorization": ""})
    assert answer == 401
    assert "the admin token does not count in an address" in problem["detail"]


async def test_of_two_tokens_in_one_request_none_counts(hub):
    head = "GET /secrets/capabilitylist.xml HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
    tokens = "".join(f"Authorization: Bearer {each}\r\n" for each in (TOKEN, "another"))
    answer = await exchanged(hub, f"{head}{tokens}\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"the header Authorization is sent 2 times" in answer


async def test_no_token_in_an_address_is_ever_logged(hub):
    secret = "a-token-that-nobody-may-see"
    for path in (CHANNEL, "/nothing", "/api/sets/", "/hub", "/secrets/x", "/%ff", "//x"):
        await status(hub, "GET", f"{path}?access_token={secret}")
    line = f"GET {CHANNEL}?access_token={secret} HTTP/1.1\r\n"
    for rest in ("nonsense\r\n\r\n", "Upgrade: x\r\nConnection: Upgrade\r\n\r\n"):
        await exchanged(hub, (line + "Connection: close\r\n" + rest).encode())
    async with raw_channel(f"{hub.channel()}?access_token={secret}&from=x") as raw:
        await raw.closed_with_code()
    assert secret not in hub.log.read_text()


async def test_wrong_tokens_are_slowed_and_right_ones_are_not(hub):
    """Each address by itself, as the trusted proxy tells it."""
    right = await token(hub, "publish")

    async def asked(secret: str, address: str) -> int:
        headers = {"Authorization": f"Bearer {secret}", "X-Forwarded-For": address}
        return await status(hub, "POST", CHANGES, json=RES1, headers=headers)

    assert await asked(right, "192.0.2.1") == 201
    guesses = [await asked(f"guess {number}", "192.0.2.1") for number in range(2 * FREE_TRIES)]
    assert guesses[:FREE_TRIES] == [401] * FREE_TRIES
    assert 429 in guesses[FREE_TRIES:]
    assert await asked(right, "192.0.2.1") == 201


async def test_after_many_wrong_tokens_an_address_waits_with_a_right_one_too(hub):
    """For a second each: on a slow machine, another address may have to try it."""

    async def asked(secret: str, address: str) -> int:
        headers = {"Authorization": f"Bearer {secret}", "X-Forwarded-For": address}
        return await status(hub, "POST", CHANGES, json=RES1, headers=headers)

    async def guessed(address: str) -> int:
        guesses = count()
        while await asked(f"guess {next(guesses)}", address) != 429:
            pass
        return await asked(TOKEN, address)

    answers = {address: await guessed(address) for address in ("192.0.2.2", "192.0.2.3")}
    assert 429 in answers.values()
    assert await asked(TOKEN, "192.0.2.4") == 201


# --- who asks for subscriptions ------------------------------------------------------------------


async def test_behind_a_trusted_proxy_each_client_address_has_a_quota_of_its_own(hub):
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def asked(forwarded: str, number: int) -> int:
        form = {
            "hub.mode": "subscribe",
            "hub.topic": hub.url + CHANNEL,
            "hub.callback": f"http://callback{number}.invalid/",
        }
        return await status(hub, "POST", "/hub", data=form, headers={"X-Forwarded-For": forwarded})

    statuses = [await asked("2001:db8::1", number) for number in range(3)]
    assert (statuses[0], statuses[-1]) == (202, 429)
    assert await asked("2001:db8::2", 3) == 429
    assert await asked("2001:db8:0:1::1", 4) == 202


# --- where it listens ----------------------------------------------------------------------------


async def test_a_hub_on_every_address_says_which_one_its_notifications_name(tmp_path):
    async with RunningHub(tmp_path / "data", "--host", "0.0.0.0") as hub:
        assert urlsplit(hub.url).hostname not in ("0.0.0.0", None)
        assert f"use {hub.url}" in hub.log.read_text()
        async with raw_channel(hub.channel()) as channel:
            await hub.publish("http://example.com/res1")
            assert f'href="{hub.url}/'.encode() in read_notification(await channel.text()).payload
