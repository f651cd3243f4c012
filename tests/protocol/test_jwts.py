"""JWTs that a page's own back end makes: where they may stand, what they open, and when it ends."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from time import time
from typing import Any

import aiohttp
import aiohttp.web
import jwt
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import ed25519
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.support.running import RunningHub, until
from tests.support.stream_server import WebServer, one_answer

SECRET = "a secret of exactly thirty-two b"
PAGE = "https://page.example"
HOUR = 3_600


def token(
    read: tuple[str, ...] = ("secret",),
    publish: tuple[str, ...] = (),
    *,
    seconds: float = HOUR,
    key: Any = SECRET,
    **headers: str,
) -> str:
    claims = {"exp": time() + seconds, "rsnotify": {"read": read, "publish": publish}}
    algorithm = "HS256" if key is SECRET else "EdDSA"
    return jwt.encode(claims, key, algorithm, headers=headers)


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def cookie(text: str, **headers: str) -> dict[str, str]:
    return {"Cookie": f"rsnotify_token={text}", "Authorization": ""} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningHub]:
    """A public set, dataset1, and a private one, secret."""
    data = tmp_path_factory.mktemp("jwts") / "data"
    async with RunningHub(data, jwt_key=SECRET, allowed_origins=PAGE) as running:
        await running.ask("PUT", "/api/sets/secret", json={"private": True})
        yield running


pytestmark = pytest.mark.asyncio(loop_scope="session")


async def status(
    hub: RunningHub, headers: dict[str, str], path: str = "/secret/changelist.xml"
) -> int:
    found, _ = await hub.ask("GET", path, headers=headers)
    return found


async def test_a_header_opens_what_the_token_names(hub):
    assert await status(hub, bearer(token())) == 200
    assert await status(hub, bearer(token(("s*t",)))) == 200
    assert await status(hub, bearer(token((), ("secret",)))) == 403


async def test_a_private_set_stays_unknown_to_a_token_without_rights(hub):
    answers = [
        await hub.ask("GET", f"/{name}/changelist.xml", headers=bearer(token(("other*",))))
        for name in ("secret", "nosuch")
    ]
    assert [found for found, _ in answers] == [404, 404]
    details = [answer["detail"].replace("nosuch", "secret") for _, answer in answers]
    assert details[0] == details[1]
    _, sets = await hub.ask("GET", "/api/sets", headers=bearer(token(("other*",))))
    assert "secret" not in json.dumps(sets)
    _, sets = await hub.ask("GET", "/api/sets", headers=bearer(token()))
    assert "secret" in json.dumps(sets)


async def test_a_token_publishes_where_it_may_and_is_no_admin(hub):
    change = {"loc": "http://example.com/a", "change": "updated"}
    for rights, answered in [(((), ("sec*",)), 201), ((("secret",), ()), 403), (((), ("x",)), 403)]:
        found, _ = await hub.ask(
            "POST", "/api/sets/secret/changes", json=change, headers=bearer(token(*rights))
        )
        assert found == answered
    everything = bearer(token(("*",), ("*",)))
    assert (await hub.ask("GET", "/api/tokens", headers=everything))[0] == 403


RIGHTS = [
    ("no token", {"Authorization": ""}, (False, False, True), (False, False, False)),
    ("to read", bearer(token()), (False, False, True), (False, False, True)),
    ("to publish", bearer(token((), ("s*",))), (False, False, True), (False, True, False)),
    ("of others", bearer(token(("other",))), (False, False, True), (False, False, False)),
    ("the admin's", {}, (True, True, True), (True, True, True)),
]


@pytest.mark.parametrize(("headers", "public", "private"), [row[1:] for row in RIGHTS])
async def test_a_token_is_answered_what_it_may_do(hub, headers, public, private):
    """A private set is as one that does not exist."""
    for name, expected in (("dataset1", public), ("secret", private)):
        answered, found = await hub.ask("GET", f"/api/rights?name={name}", headers=headers)
        assert answered == 200
        assert (found["admin"], found["publish"], found["read"]) == expected
    answered, none = await hub.ask("GET", "/api/rights?name=secrets-none", headers=headers)
    assert none["read"] == headers.get("Authorization", "admin").startswith("admin")


async def test_a_token_that_is_unknown_has_no_rights_to_be_answered(hub):
    assert (await hub.ask("GET", "/api/rights", headers=bearer("rsn_unknown")))[0] == 401
    assert (await hub.ask("GET", "/api/rights?access_token=x", headers=bearer("")))[0] == 400


async def test_a_bad_token_is_refused_and_does_not_slow_down_good_ones(hub):
    for number in range(40):
        assert await status(hub, bearer(token(key=SECRET) + f"{number:02}")) == 401
    assert await status(hub, bearer(token())) == 200
    found, answer = await hub.ask(
        "GET", "/secret/changelist.xml", headers=bearer(token(seconds=-1))
    )
    assert (found, answer["detail"]) == (401, "the JWT has expired")


async def test_websub_wants_a_token_that_lasts(hub):
    form = {
        "hub.mode": "subscribe",
        "hub.callback": "http://callback.invalid/",
        "hub.topic": f"{hub.url}/channels/secret/change_notification_channel",
    }
    found, told = await hub.ask("POST", "/hub", data=form, headers=bearer(token()))
    assert found == 403
    assert b"outlives a JWT" in told


# --- cookies -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "answered"),
    [
        ({"Origin": PAGE}, 200),
        ({"Origin": "own"}, 200),
        ({"Sec_Fetch_Site": "same-origin"}, 200),
        ({"Sec_Fetch_Site": "none"}, 200),
        ({"Sec_Fetch_Site": "same-site"}, 404),
        ({"Sec_Fetch_Site": "cross-site"}, 404),
        ({"Origin": "https://evil.example"}, 404),
        ({"Origin": "https://evil.example", "Sec_Fetch_Site": "same-origin"}, 404),
        ({"Origin": "null"}, 404),
        ({"Origin": f"{PAGE}.evil.example"}, 404),
        ({}, 404),
    ],
)
async def test_a_cookie_counts_for_pages_that_may_act_for_their_visitor(hub, headers, answered):
    sent = {name: hub.url if value == "own" else value for name, value in headers.items()}
    assert await status(hub, cookie(token(), **sent)) == answered


@pytest.mark.parametrize(
    ("headers", "answered"),
    [
        ({"Origin": PAGE}, 201),
        ({"Origin": "https://evil.example"}, 401),
        ({"Sec_Fetch_Site": "same-origin"}, 401),
        ({}, 401),
    ],
)
async def test_another_sites_page_publishes_nothing_with_its_visitors_cookie(
    hub, headers, answered
):
    sent = cookie(token((), ("secret",)), Content_Type="text/plain", **headers)
    body = json.dumps({"loc": "http://example.com/a", "change": "updated"})
    found, _ = await hub.ask("POST", "/api/sets/secret/changes", data=body, headers=sent)
    assert found in (answered, 415 if answered == 201 else answered)


@pytest.mark.parametrize(
    ("characters", "said"),
    [(4_096, "cannot be read"), (4_097, "4096"), (8_192, "4096"), (8_193, "more than 8192")],
)
async def test_a_token_in_a_cookie_is_no_longer_than_another(hub, characters, said):
    long = ("eyJhbGciOiJIUzI1NiJ9.e30.").ljust(characters, "a")
    sent = cookie(long, Origin=PAGE)
    found, answer = await hub.ask("GET", "/secret/changelist.xml", headers=sent)
    assert (found, said in answer["detail"]) == (401, True), answer


async def test_a_cookie_is_no_place_for_other_tokens(hub):
    _, made = await hub.ask("POST", "/api/tokens", json={"sets": ["secret"], "rights": ["read"]})
    assert await status(hub, bearer(made["token"])) == 200
    assert await status(hub, cookie(made["token"], Origin=PAGE)) == 404


async def test_a_named_origin_may_send_cookies_and_no_other(hub):
    credentials = "Access-Control-Allow-Credentials"
    for path in ("/secret/changelist.xml", "/channels/secret/change_notification_channel"):
        for accept in ("*/*", "text/event-stream"):
            headers = cookie(token(), Origin=PAGE, Accept=accept)
            async with aiohttp.ClientSession() as session:
                async with session.get(hub.url + path, headers=headers) as answer:
                    assert answer.status == 200
                    assert answer.headers[credentials] == "true"
                    assert answer.headers["Access-Control-Allow-Origin"] == PAGE
                own = cookie(token(), Origin=hub.url, Accept=accept)
                async with session.get(hub.url + path, headers=own) as answer:
                    assert credentials not in answer.headers


# --- WebSockets ----------------------------------------------------------------------------------


def offered(*names: str) -> dict[str, Any]:
    return {"subprotocols": names or None, "proxy": None}


@pytest.mark.parametrize("form", ["rsnotify.json", "rsnotify.xml"])
@pytest.mark.parametrize("origin", [None, PAGE])
async def test_a_subprotocol_brings_a_token_and_is_not_sent_back(hub, form, origin):
    names = (form, f"rsnotify.token.{token()}")
    async with connect(hub.channel("secret"), origin=origin, **offered(*names)) as socket:
        assert socket.subprotocol == form
        assert token()[:20] not in str(socket.response.headers)
        await hub.publish("http://example.com/seen", set_name="secret")
        text = str(await socket.recv())
        assert "http://example.com/seen" in text
        assert text.startswith("{") == (form == "rsnotify.json")


@pytest.mark.parametrize(("characters", "said"), [(4_096, "cannot be read"), (4_097, "4096")])
async def test_a_token_in_a_subprotocol_is_no_longer_than_another(hub, characters, said):
    long = ("eyJhbGciOiJIUzI1NiJ9.e30.").ljust(characters, "a")
    names = ("rsnotify.xml", f"rsnotify.token.{long}")
    with pytest.raises(InvalidStatus) as refused:
        async with connect(hub.channel("secret"), **offered(*names)):
            pass
    assert refused.value.response.status_code == 401
    assert said in refused.value.response.body.decode()
    assert long[:60] not in hub.log.read_text()


@pytest.mark.parametrize(
    ("names", "answered"),
    [
        ((), 404),
        (("rsnotify.json",), 404),
        (("rsnotify.json", f"rsnotify.token.{token(seconds=-1)}"), 401),
        (("rsnotify.json", "rsnotify.token.rsn_wrong"), 401),
        ((f"rsnotify.token.{token()}",), 400),
    ],
)
async def test_a_socket_is_refused_without_a_good_token(hub, names, answered):
    with pytest.raises(InvalidStatus) as refused:
        await connect(hub.channel("secret"), **offered(*names))
    assert refused.value.response.status_code == answered


@pytest.mark.parametrize(
    ("origin", "is_opened"), [(PAGE, True), ("own", True), ("https://evil", False)]
)
async def test_a_sockets_cookie_counts_for_trusted_pages(hub, origin, is_opened):
    origin = hub.url if origin == "own" else origin
    opening = connect(
        hub.channel("secret"),
        origin=origin,
        additional_headers={"Cookie": f"rsnotify_token={token()}"},
        proxy=None,
    )
    if is_opened:
        async with opening:
            return
    with pytest.raises(InvalidStatus) as refused:
        await opening
    assert refused.value.response.status_code == 404


# --- the end -------------------------------------------------------------------------------------


# How long a token lives that is to end soon: a slow machine opens nothing in the first.
LIFE_SECONDS = (1.5, 6.0, 24.0)


async def opened(url: str) -> tuple[ClientConnection, float]:
    """With a token that ends soon; and when."""
    for seconds in LIFE_SECONDS:
        ends = time() + seconds
        headers = bearer(token(seconds=ends - time()))
        try:
            return await connect(url, additional_headers=headers, proxy=None), ends
        except InvalidStatus as refused:
            if refused.response.status_code != 401:
                raise
    raise AssertionError("each token had ended before")


async def test_a_socket_ends_when_its_token_does(hub):
    connected, ends = await opened(hub.channel("secret"))
    async with connected as socket:
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert time() >= ends - 0.01
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008
    assert "expired" in closed.value.rcvd.reason


async def test_a_stream_ends_when_its_token_does(hub):
    path = "/channels/secret/change_notification_channel"
    for seconds in LIFE_SECONDS:
        text = token(seconds=seconds)
        headers = bearer(text) | {"Accept": "text/event-stream"}
        async with (
            aiohttp.ClientSession() as session,
            session.get(hub.url + path, headers=headers) as answer,
        ):
            await answer.read()  # to its end
        if answer.status != 401:
            break
    assert answer.status == 200
    assert await status(hub, bearer(text)) == 401


async def test_several_channels_end_with_the_token_of_one(hub):
    url = hub.url.replace("http", "ws") + "/channels/change_notification_channel"
    connected, _ = await opened(f"{url}?set=dataset1&set=secret")
    async with connected as socket:
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008


# --- key sets ------------------------------------------------------------------------------------


class Signer:
    """A key, and the key set that lists it."""

    def __init__(self, kid: str) -> None:
        self.kid = kid
        self.key = ed25519.Ed25519PrivateKey.generate()

    @property
    def listed(self) -> dict[str, Any]:
        algorithm = jwt.algorithms.get_default_algorithms()["EdDSA"]
        return {**algorithm.to_jwk(self.key.public_key(), as_dict=True), "kid": self.kid}

    def token(self, **options: Any) -> str:
        return token(key=self.key, kid=self.kid, **options)


def key_set(*signers: Signer) -> str:
    return json.dumps({"keys": [signer.listed for signer in signers]})


async def test_a_key_that_is_taken_out_of_the_file_ends_what_it_opened(tmp_path):
    old, new = Signer("old"), Signer("new")
    file = tmp_path / "keys.json"
    file.write_text(key_set(old))
    async with RunningHub(tmp_path / "data", jwks=str(file), jwks_seconds="1") as hub:
        await hub.ask("PUT", "/api/sets/secret", json={"private": True})
        headers = bearer(old.token())
        async with connect(hub.channel("secret"), additional_headers=headers, proxy=None) as socket:
            assert await status(hub, bearer(new.token())) == 401
            file.write_text("spoilt")  # what cannot be read takes no right away, and gives none
            await until(lambda: told(hub, "cannot be read"))
            assert await status(hub, headers) == 200
            assert await status(hub, bearer(new.token())) == 503
            (tmp_path / "next").write_text(key_set(new))
            (tmp_path / "next").replace(file)
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008
        assert await status(hub, headers) == 401
        assert await status(hub, bearer(new.token())) == 200


async def told(hub: RunningHub, words: str) -> bool:
    return words in hub.log.read_text()


async def test_keys_are_fetched_from_the_operators_address_alone(tmp_path):
    """A redirect, an error, what is too long: no token is good by them; the reason is logged."""
    signer, stranger = Signer("k"), Signer("s")
    answers: list[tuple[int, bytes, dict[str, str]]] = []
    asked: list[str] = []

    async def answer(request: aiohttp.web.Request) -> aiohttp.web.Response:
        asked.append(request.path)
        code, body, headers = answers[-1]
        return aiohttp.web.Response(status=code, body=body, headers=headers)

    answers.append((302, b"", {"Location": "/elsewhere"}))
    async with AsyncExitStack() as hosting:
        url = (await hosting.enter_async_context(WebServer(one_answer(answer)))).url + "/keys"
        async with RunningHub(tmp_path / "data", jwks=url, jwks_seconds="1") as hub:
            await hub.ask("PUT", "/api/sets/secret", json={"private": True})
            await until(lambda: told(hub, "it answers 302"))
            assert await status(hub, bearer(signer.token())) == 503
            answers.append((200, key_set(signer).encode().ljust(70_000), {}))
            await until(lambda: told(hub, "more than 65536 bytes"))
            assert await status(hub, bearer(signer.token())) == 503
            answers.append((200, key_set(signer).encode(), {}))
            await until(lambda: told(hub, "keys of JWTs at"))
            await until(lambda: is_status(hub, signer, 200))
            assert await status(hub, bearer(stranger.token(jku=url + "2"))) == 401
            await hosting.aclose()
            await until(lambda: told(hub, "those read before still count"))
            assert await status(hub, bearer(signer.token())) == 200
            assert await status(hub, bearer(stranger.token())) == 503
    assert {*asked} == {"/keys"}


async def is_status(hub: RunningHub, signer: Signer, wanted: int) -> bool:
    return await status(hub, bearer(signer.token())) == wanted
