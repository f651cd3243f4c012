"""The Python client in the network of an institution: proxies, certificates, credentials."""

import asyncio
import json
import os
import re
import sqlite3
import ssl
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web as web_server

from rsnotify import __version__
from rsnotify.errors import InvalidSettings, Rejected
from rsnotify.resourcesync.change import Change
from rsnotify_client import (
    AsyncPublisher,
    InvalidArgument,
    NetworkOptions,
    Relay,
    follow,
    follow_async,
    notifications,
    notifications_async,
)
from rsnotify_client.address import SHOWN_CHARS, without_tokens
from rsnotify_client.answer import problem_in, words_of
from rsnotify_client.between import entries_of
from rsnotify_client.live import open_channel
from rsnotify_client.network import Credentials, Network, check_names, network_of, parse_header
from rsnotify_client.publisher import Publisher
from rsnotify_client.transport import Pace
from rsnotify_client.web import Refused, Unreachable, Web, refused
from rsnotify_mirror.audit import audit
from rsnotify_mirror.mirror import AsyncMirror
from tests.support.forward_proxy import ForwardProxy, forward_proxy
from tests.support.hub_processes import accept, scripted_hub
from tests.support.redis_tls import AUTHORITY
from tests.support.reference import installed
from tests.support.running import rsnotify
from tests.support.sources import CAPABILITIES, Source

NAME = "source.example"


def only_the_proxy_knows(url: str) -> str:
    """The same address by a name that leads nowhere without the proxy."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{NAME}:{parts.port}"


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForwardProxy]:
    with forward_proxy({NAME: "127.0.0.1"}, "p:w") as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://user:p%3Aw@127.0.0.1:{proxy.port}")
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:p%3Aw@127.0.0.1:{proxy.port}")
        yield proxy


async def test_a_source_behind_a_proxy_is_mirrored_and_audited(proxy, tmp_path):
    async with Source() as source:
        source.url = only_the_proxy_knows(source.url)
        source.documents[CAPABILITIES] = source.capability_list("resourcelist", "changelist")
        source.add("a.txt", b"a")
        source.list_resources()
        async with AsyncMirror(source.url + CAPABILITIES, tmp_path / "copy") as mirror:
            assert await mirror.once()
        assert (await audit(source.url + CAPABILITIES, tmp_path / "copy")).is_in_sync
    assert [path.name for path in (tmp_path / "copy").rglob("*.txt")] == ["a.txt"]
    assert f"GET {source.url}/a.txt HTTP/1.1" in proxy.seen


def test_changes_are_published_through_a_proxy(proxy):
    with scripted_hub(accept) as (url, posted), Publisher(only_the_proxy_knows(url)) as publisher:
        publisher.updated("a", "1")
        publisher.flush(10)
    assert [request.locs for request in posted] == [["1"]]
    assert proxy.seen[0].startswith(f"POST http://{NAME}:")


OF_NAME = Path(__file__).parents[4] / "tests/support/source-example.pem"


OF_LOCALHOST = AUTHORITY.with_name("server.pem")


def tls_of_server(certificate: Path = OF_LOCALHOST) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


async def test_tls_goes_through_the_proxy_without_being_read_there(proxy, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(OF_NAME))
    async with Source(tls_of_server(OF_NAME)) as source, Web() as web:
        source.documents["/x"] = b"found"
        port = urlsplit(source.url).port
        for _ in range(2):
            page = await web.page(f"https://{NAME}:{port}/x")
            assert page.body == b"found"
        proxy.names["other.example"] = "127.0.0.1"
        with pytest.raises(Refused, match=r"not trusted .*the name that it was made"):
            await web.page(f"https://other.example:{port}/x")
    tunnels = [line.split()[:2] for line in proxy.seen]  # the first one served twice
    assert tunnels == [["CONNECT", f"{NAME}:{port}"], ["CONNECT", f"other.example:{port}"]]


async def test_an_authority_may_be_named_as_requests_does(monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(AUTHORITY))
    async with Source(tls_of_server()) as source, Web() as web:
        source.documents["/x"] = b"found"
        assert (await web.page(f"{source.url}/x")).body == b"found"


async def test_a_proxy_that_refuses_the_password_is_named_without_it(monkeypatch):
    with forward_proxy(password="right") as proxy:
        network = Network.of({"ALL_PROXY": f"http://user:wr0ng@127.0.0.1:{proxy.port}"})
        async with Web(network=network) as web:
            with pytest.raises(Unreachable) as tunnel:
                await web.page(f"https://{NAME}/")
            page = await web.page(f"http://{NAME}/")
    assert "wants a user and a password" in str(tunnel.value)
    assert f"the proxy 127.0.0.1:{proxy.port}" in str(tunnel.value)
    assert "wr0ng" not in str(tunnel.value)
    assert page.status == 407


async def test_a_proxy_that_is_not_there_is_named(unused_tcp_port):
    network = Network.of({"ALL_PROXY": f"http://user:secret@127.0.0.1:{unused_tcp_port}"})
    async with Web(network=network) as web:
        for scheme in ("http", "https"):
            with pytest.raises(Unreachable) as failed:
                await web.page(f"{scheme}://{NAME}/")
            why = f"the proxy 127.0.0.1:{unused_tcp_port}: connection refused"
            assert str(failed.value) == f"{scheme}://{NAME}/ cannot be reached: {why}"


async def test_a_socks_proxy_looks_up_the_name():
    with forward_proxy({NAME: "127.0.0.1"}) as proxy:
        async with Source() as source:
            source.documents["/x"] = b"found"
            async with Web(network=Network.of({"ALL_PROXY": proxy.socks_url})) as web:
                page = await web.page(only_the_proxy_knows(source.url) + "/x")
    assert page.body == b"found"
    assert proxy.seen[0].startswith(f"SOCKS {NAME}:")


# Who is shown what -------------------------------------------------------------------------------

OWN, OTHER = "https://own.example/a", "https://other.example/a"


def basic(pair: str) -> str:
    return f"Basic {b64encode(pair.encode()).decode()}"


def shown(
    url: str, network: Network | None = None, token: str | None = None, first: str = OWN
) -> dict[str, str]:
    return Credentials(network or Network(), token, first).headers(url)


def test_a_token_is_shown_to_its_own_origin_only():
    assert shown(OWN, token="t") == {"Authorization": "Bearer t"}
    assert shown("https://own.example:443/b", token="t") == {"Authorization": "Bearer t"}
    for other in (
        OTHER,
        "http://own.example/a",
        "https://own.example:81/",
        "https://a.own.example",
    ):
        assert shown(other, token="t") == {}


def test_user_and_password_of_an_address_are_for_its_whole_origin():
    first = "https://me:p%40ss@own.example/a"
    assert shown("https://own.example/b", first=first) == {"Authorization": basic("me:p@ss")}
    assert shown(OTHER, first=first) == {}
    assert shown("http://own.example/b", first=first) == {}
    assert shown(OWN, token="t", first=first) == {"Authorization": "Bearer t"}


@pytest.fixture
def netrc(tmp_path: Path) -> str:
    path = tmp_path / "netrc"
    path.write_text(
        "machine own.example login me password of-own\n"
        "machine other.example login me password of-other\n"
        "machine ports.example:8443 login me password of-port\n"
        "default login me password of-all\n"
    )
    path.chmod(0o600)
    return str(path)


def test_a_netrc_counts_for_the_hosts_that_it_names_and_never_before_a_token(netrc):
    network = Network(netrc=netrc)
    assert shown(OWN, network) == {"Authorization": basic("me:of-own")}
    assert shown(OTHER, network) == {"Authorization": basic("me:of-other")}
    assert shown("https://third.example/", network) == {}
    assert shown(OWN, network, token="t") == {"Authorization": "Bearer t"}
    assert shown(OTHER, network, token="t") == {"Authorization": basic("me:of-other")}
    given = shown(OWN, network, first="https://you:here@own.example/")
    assert given == {"Authorization": basic("you:here")}


@pytest.mark.parametrize(
    ("url", "of"),
    [
        ("https://other.example/b", "other"),
        ("https://OTHER.example:443/b", "other"),
        ("wss://other.example/b", "other"),
        ("http://other.example/b", None),  # in plain
        ("ws://other.example/b", None),
        ("http://other.example:443/b", None),
        ("https://other.example:8443/b", None),  # whoever listens there
        ("https://ports.example:8443/b", "port"),
        ("https://ports.example/b", None),
        ("http://ports.example:8443/b", None),
        ("https://a.other.example/b", None),
        ("https://default/b", None),
    ],
)
def test_a_netrc_is_shown_on_the_word_of_a_source_by_tls_at_its_own_port_only(netrc, url, of):
    network = Network(netrc=netrc)
    known = {} if of is None else {"Authorization": basic(f"me:of-{of}")}
    assert shown(url, network) == known
    assert Credentials(network, None, OWN).headers(url, is_asked_for=False) == {}  # redirected


@pytest.mark.parametrize("own", ["http://other.example/", "http://other.example:81/"])
def test_a_netrc_is_shown_at_the_address_that_the_user_gave(netrc, own):
    network = Network(netrc=netrc)
    expected = {"Authorization": basic("me:of-other")}
    assert shown(own + "x", network, first=own) == expected
    assert shown("http://own.example/", network, first=own) == {}
    assert shown("http://other.example:82/", network, first=own) == {}


async def test_a_redirect_to_another_origin_shows_no_login_of_a_netrc(tmp_path):
    path = tmp_path / "netrc"
    path.write_text(
        "machine 127.0.0.1 login me password a\nmachine localhost login me password b\n"
    )
    path.chmod(0o600)
    async with Source() as source, Source() as other:
        there = other.url.replace("127.0.0.1", "localhost")
        for to in (there, other.url):
            source.answer("/moved", status=302, headers={"Location": f"{to}/there"})
            other.documents["/there"] = b"found"
            async with Web(None, source.url, network=Network(netrc=str(path))) as web:
                assert (await web.page(f"{source.url}/moved")).body == b"found"
    assert all("Authorization" in headers for _, headers in source.requests)
    assert not any("Authorization" in headers for _, headers in other.requests)


@pytest.mark.parametrize("url", ["https://u:p@other.example/", "https://u:p@own.example/b"])
def test_a_login_in_an_address_that_a_source_names_is_never_sent(url):
    assert shown(url) == {}
    mine = shown(url, first="https://me:mine@own.example/")
    assert mine == ({"Authorization": basic("me:mine")} if "own" in url else {})


def test_a_header_that_was_given_beside_an_address_of_https_is_not_sent_in_plain():
    network = Network(headers=(parse_header("other.example X-Key: c"),))
    assert shown("http://other.example/", network) == {}
    assert shown("http://other.example/", network, first="http://own.example/") == {"X-Key": "c"}


def test_a_netrc_that_cannot_be_read_is_named_and_left_out(tmp_path, caplog):
    path = tmp_path / "netrc"
    path.write_text("machine own.example secret")
    assert shown(OWN, Network(netrc=str(path))) == {}
    assert f"{path} is left out" in caplog.text


def test_a_header_is_for_the_first_origin_or_for_the_host_that_it_names():
    headers = (parse_header("X-Key: a b"), parse_header("other.example X-Key: c"))
    network = Network(headers=headers)
    assert shown(OWN, network) == {"X-Key": "a b"}
    assert shown(OTHER, network) == {"X-Key": "c"}
    assert shown("https://third.example/", network) == {}
    given = Network(headers=(parse_header("Authorization: Negotiate abc"),))
    assert shown(OWN, given, token="t") == {"Authorization": "Negotiate abc"}


@pytest.mark.parametrize(
    "wrong", ["X-Key", "X-Key:", "X Y Key: b", "X-Key: s3cret\r\nA: b", "Host: a", "range: a"]
)
def test_a_header_that_cannot_be_sent_is_refused_without_its_value(wrong):
    with pytest.raises(InvalidSettings) as refused:
        parse_header(wrong)
    assert "s3cret" not in refused.value.problems[0]


def test_cookies_go_to_the_hosts_of_their_file(tmp_path):
    jar = tmp_path / "cookies.txt"
    jar.write_text(
        "# Netscape HTTP Cookie File\n"
        "own.example\tFALSE\t/\tTRUE\t0\tsession\tabc\n"
        ".other.example\tTRUE\t/b\tFALSE\t0\tlogin\tdef\n"
    )
    network = Network(cookies=str(jar))
    assert shown(OWN, network) == {"Cookie": "session=abc"}
    assert shown("http://own.example/a", network) == {}
    assert shown(OTHER, network) == {}
    assert shown("https://www.other.example/b/c", network) == {"Cookie": "login=def"}
    jar.write_text("no cookies")
    with pytest.raises(InvalidSettings) as refused:
        shown(OWN, Network(cookies=str(jar)))
    assert "no file of cookies" in refused.value.problems[0]


async def test_a_redirect_to_another_host_shows_nothing_of_the_first():
    async with Source() as source, Source() as other:
        there = other.url.replace("127.0.0.1", "localhost") + "/there"
        source.answer("/moved", status=302, headers={"Location": there})
        other.documents["/there"] = b"found"
        first = source.url.replace("//", "//me:secret@")
        network = Network(headers=(parse_header("X-Key: a"),))
        for token in ("t", None):
            async with Web(token, first, network=network) as web:
                assert (await web.page(f"{source.url}/moved")).body == b"found"
    for _, headers in source.requests:
        assert {"Authorization", "X-Key"} <= headers.keys()
    for _, headers in other.requests:
        assert not {"Authorization", "X-Key"} & headers.keys()


async def test_everyone_is_told_who_asks():
    network = Network.of({"RSNOTIFY_CONTACT": "mailto:it@example.org"})
    async with Source() as source, Web(network=network) as web:
        await web.page(f"{source.url}/x")
    agent = source.requests[0][1]["User-Agent"]
    assert agent == f"rsnotify/{__version__} (mailto:it@example.org)"


def test_no_error_shows_the_password_of_an_address_but_that_of_an_example():
    advice = "give them as in https://user:password@example.org/"
    said = f"https://me:p@a.example/x?access_token=b fails; http://you@b/ too; {advice}"
    shown = f"https://a.example/x?access_token=… fails; http://b/ too; {advice}"
    assert without_tokens(said) == shown


ODD = "a\x1b[2Jb\r\nerror: c\u202e\x00"


def test_what_a_stranger_wrote_is_shown_cut_and_without_control_characters():
    assert without_tokens(ODD) == "a [2Jb  error: c  "
    assert without_tokens("x" * SHOWN_CHARS) == "x" * SHOWN_CHARS
    assert without_tokens("x" * (SHOWN_CHARS + 1)) == "x" * (SHOWN_CHARS - 1) + "…"
    assert Refused(ODD).detail == without_tokens(ODD)
    fault = {"message": ODD, "index": 0, "field": ODD + "y" * 9_000}
    problem = problem_in(json.dumps({"detail": ODD + "x" * 9_000, "errors": [fault]}).encode())
    assert problem is not None
    assert problem.detail.isprintable()
    assert len(problem.detail) == SHOWN_CHARS
    (found,) = problem.errors
    assert (found["message"], found["index"]) == (without_tokens(ODD), 0)
    said = words_of(found)
    assert said.startswith(without_tokens(ODD))
    assert (len(said), said.isprintable()) == (SHOWN_CHARS, True)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"REQUESTS_CA_BUNDLE": "/nowhere"}, "REQUESTS_CA_BUNDLE=/nowhere: No such file"),
        ({"REQUESTS_CA_BUNDLE": __file__}, "it is no certificate"),
        ({"RSNOTIFY_CLIENT_CERTIFICATE": "/nowhere"}, "RSNOTIFY_CLIENT_CERTIFICATE=/nowhere: No"),
        (
            {"RSNOTIFY_CLIENT_CERTIFICATE": __file__},
            "in another file: name that in RSNOTIFY_CLIENT_KEY",
        ),
        ({"RSNOTIFY_CLIENT_KEY": "a.pem"}, "KEY is set without RSNOTIFY_CLIENT_CERTIFICATE"),
    ],
)
def test_a_certificate_that_cannot_be_read_or_is_misspelt_is_named(environment, words):
    with pytest.raises(InvalidSettings) as refused:
        Network.of(environment).tls()
    assert words in refused.value.problems[0]


def test_an_application_may_have_variables_of_its_own_that_begin_as_ours_do(monkeypatch):
    monkeypatch.setenv("RSNOTIFY_CLIENT_ID", "of the application")
    with scripted_hub(accept) as (url, posted), Publisher(url) as publisher:
        publisher.updated("a", "1")
        publisher.flush(10)
    assert [request.locs for request in posted] == [["1"]]
    with pytest.raises(InvalidSettings) as refused:
        check_names(os.environ)  # as a command does
    assert "RSNOTIFY_CLIENT_ID is no setting: set RSNOTIFY_" in refused.value.problems[0]


async def test_a_client_certificate_is_shown_to_who_asks_for_one():
    demanding = tls_of_server()
    demanding.verify_mode = ssl.CERT_REQUIRED
    demanding.load_verify_locations(AUTHORITY)
    pem = str(AUTHORITY.with_name("hub.pem"))
    base = {"REQUESTS_CA_BUNDLE": str(AUTHORITY)}
    async with Source(demanding) as source:
        source.documents["/x"] = b"found"
        async with Web(network=Network.of(base)) as web:
            with pytest.raises(Unreachable):
                await web.page(f"{source.url}/x")
        async with Web(network=Network.of(base | {"RSNOTIFY_CLIENT_CERTIFICATE": pem})) as web:
            assert (await web.page(f"{source.url}/x")).body == b"found"


# Channels ----------------------------------------------------------------------------------------


async def payloads_of(web: Web, url: str, count: int = 1) -> list[bytes | str]:
    async with asyncio.timeout(20), open_channel(web, url, None) as channel:
        return [await anext(channel.payloads) for _ in range(count)]


@pytest.mark.parametrize("scheme", ["ws", "http"])
@pytest.mark.parametrize("way", ["http", "socks"])
async def test_a_channel_is_followed_through_a_proxy(hub, scheme, way):
    with forward_proxy({NAME: "127.0.0.1"}, None if way == "socks" else "p:w") as proxy:
        by = proxy.socks_url if way == "socks" else f"http://user:p%3Aw@127.0.0.1:{proxy.port}"
        url = f"{scheme}://{NAME}:{hub.port}/channels/dataset1/change_notification_channel"
        async with Web(network=Network.of({"ALL_PROXY": by})) as web:
            reading = asyncio.create_task(payloads_of(web, url))
            while not proxy.seen:
                await asyncio.sleep(0.01)
            while not reading.done():
                await hub.publish("http://a.example/1")
                await asyncio.wait([reading], timeout=0.2)
    assert "http://a.example/1" in str(reading.result()[0])
    asked = {"ws": "CONNECT", "http": "GET"}[scheme] if way == "http" else "SOCKS"
    assert proxy.seen[0].startswith(asked)


@pytest.mark.parametrize("scheme", ["ws", "wss", "http"])
async def test_a_channel_says_what_is_wrong_with_the_proxy(scheme):
    with forward_proxy(password="right") as proxy:
        network = Network.of({"ALL_PROXY": f"http://user:wr0ng@127.0.0.1:{proxy.port}"})
        async with Web(network=network) as web:
            with pytest.raises((Unreachable, Rejected)) as failed:
                await payloads_of(web, f"{scheme}://{NAME}/channel")
    assert "wr0ng" not in str(failed.value)
    assert "407" in str(failed.value) or "wants a user and a password" in str(failed.value)


async def test_a_channel_that_moves_to_another_host_takes_nothing_secret_along():
    """As `process_redirect` of websockets, which this overrides, would not do for all headers."""
    async with Source() as source, Source() as other:

        async def moved(_: web_server.Request) -> web_server.Response:
            there = other.url.replace("http://127.0.0.1", "ws://localhost") + "/there"
            return web_server.Response(status=302, headers={"Location": there})

        async def channel(request: web_server.Request) -> web_server.WebSocketResponse:
            socket = web_server.WebSocketResponse()
            await socket.prepare(request)
            await socket.send_str("found")
            return socket

        source.handlers["/channel"], other.handlers["/there"] = moved, channel
        network = Network(headers=(parse_header("X-Key: a"),))
        async with Web("t", source.url, network=network) as web:
            url = f"ws{source.url.removeprefix('http')}/channel"
            assert await payloads_of(web, url) == ["found"]
    assert {"Authorization", "X-Key"} <= source.requests[0][1].keys()
    assert not {"Authorization", "X-Key"} & other.requests[0][1].keys()


# What is asked for --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("challenge", "words"),
    [
        (None, "a token is needed"),
        ('Bearer realm="x"', "a token is needed"),
        ('Basic realm="a, Bearer"', "a user and a password are needed"),
        ('BASIC realm="x", Digest nonce="y"', "a user and a password are needed"),
        ('Negotiate, Basic realm="x"', "a user and a password are needed"),
        ("Negotiate", "it asks for Negotiate, which rsnotify does not speak"),
        ("Negotiate, NTLM", "it asks for Negotiate or NTLM, which"),
        ('Digest realm="x", nonce="y"', "it asks for Digest, which"),
    ],
)
def test_the_advice_after_a_401_follows_what_was_asked_for(challenge, words):
    assert words in refused(OWN, 401, challenge=challenge).detail


async def test_lists_to_compare_are_fetched_through_a_proxy(proxy):
    async with Source() as source:
        source.add("a.txt", b"a")
        source.list_resources()
        url = only_the_proxy_knows(source.url)
        entries = await asyncio.to_thread(lambda: list(entries_of(f"{url}/resourcelist.xml")))
        with pytest.raises(Rejected, match="it answered 404"):
            await asyncio.to_thread(lambda: list(entries_of(f"{url}/nothing.xml")))
    assert [entry.loc for entry in entries] == [source.loc("a.txt")]


# Options of mirror and audit ----------------------------------------------------------------------


def test_every_option_of_resync_sync_has_a_counterpart():
    said = subprocess.run([installed(), "--help"], capture_output=True, text=True, check=True)
    options = set(re.findall(r"(?<=\s)--[a-z-]+", said.stdout.partition("options:")[2]))
    page = (Path(__file__).parents[4] / "docs" / "resync.md").read_text()
    table = page.partition("## From `resync-sync`")[2]
    aliases = {"--help", "--inc", "--capability-list", "--change-list-uri", "--write-changelist"}
    missing = options - aliases - set(re.findall(r"--[a-z-]+", table)) - {"--changelist"}
    assert not missing


def test_so_many_requests_a_second_and_no_more():
    now = 100.0
    pace = Pace(4, lambda: now)
    assert [pace.turn() for _ in range(3)] == [0.0, 0.25, 0.5]
    now = 100.5
    assert pace.turn() == 0.25
    now = 200.0
    assert [pace.turn(), pace.turn()] == [0.0, 0.25]


async def test_a_dry_run_says_what_would_be_done_and_does_nothing(tmp_path):
    copy = tmp_path / "copy"
    async with Source() as source:
        source.add("a.txt", b"a")
        source.add("b.txt", b"b")
        source.list_resources()
        address = source.url + CAPABILITIES
        status, said, _ = await rsnotify("mirror", address, str(copy), "--dry-run")
        assert (status, copy.exists()) == (0, False)
        assert said.splitlines() == [
            f"would fetch {source.loc(name)}" for name in ("a.txt", "b.txt")
        ]
        assert (await rsnotify("mirror", address, str(copy), "--once"))[0] == 0
        before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
        source.change("a.txt", None)
        source.change("c.txt", b"c")
        status, said, _ = await rsnotify("mirror", address, str(copy), "-n", "--json")
        assert sorted(json.loads(line)["would"] for line in said.splitlines()) == [
            "delete",
            "fetch",
        ]
        assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
        del source.documents["/resourcelist.xml"]
        status, _, _ = await rsnotify("mirror", address, str(tmp_path / "other"), "-n")
        assert status == 1


async def test_a_dry_run_deletes_nothing_that_the_copy_never_had(tmp_path):
    async with Source() as source:
        source.add("a.txt", b"a")
        source.add("b.txt", b"b")
        source.list_resources()
        source.change("a.txt", None)  # which the Resource List still has
        words = ("mirror", source.url + CAPABILITIES, str(tmp_path / "copy"), "--dry-run")
        said = await rsnotify(*words)
        assert (said.status, said.out) == (0, f"would fetch {source.loc('b.txt')}\n")


async def test_headers_and_cookies_are_sent_and_each_request_is_logged(tmp_path):
    log, jar, copy = (tmp_path / name for name in ("log", "cookies.txt", "copy"))
    jar.write_text("# Netscape HTTP Cookie File\n127.0.0.1\tFALSE\t/\tFALSE\t0\ta\tb\n")
    async with Source() as source:
        source.add("a.txt", b"a")
        source.list_resources()
        words = ["--header", "X-Key: s3cret", "--cookies", str(jar), "--log-file", str(log)]
        more = ["--rate", "1000", "--timeout", "20"]
        address = source.url + CAPABILITIES
        status, _, shown = await rsnotify("mirror", address, str(copy), "--once", *words, *more)
        assert status == 0
        assert "answered 200" not in shown
        assert (await rsnotify("audit", address, str(copy), *words, *more))[0] == 0
        shown = (await rsnotify("audit", address, str(copy), "-v"))[2]
    with_headers = [each for _, each in source.requests if each.get("X-Key") == "s3cret"]
    assert {each["Cookie"] for each in with_headers} == {"a=b"}
    assert f"GET {source.loc('a.txt')} answered 200" in log.read_text()
    assert "s3cret" not in log.read_text()
    assert "answered 200" in shown


async def test_a_wrong_header_ends_a_command_with_what_is_right(tmp_path):
    words = ["mirror", "http://a.example/", str(tmp_path / "copy"), "--header", "X"]
    status, _, said = await rsnotify(*words)
    assert status == 2
    assert "write 'Name: value'" in said


# As an argument ----------------------------------------------------------------------------------


def through(proxy: ForwardProxy, **more: Any) -> NetworkOptions:
    return NetworkOptions(proxy=f"http://user:p%3Aw@127.0.0.1:{proxy.port}", **more)


@pytest.fixture
def other_proxy() -> Iterator[ForwardProxy]:
    """One that the environment does not name."""
    with forward_proxy({NAME: "127.0.0.1"}, "p:w") as proxy:
        yield proxy


def test_changes_are_published_through_a_proxy_that_is_given(other_proxy):
    network = through(other_proxy, headers={"X-Tenant": "museum"})
    with (
        scripted_hub(accept) as (url, posted),
        Publisher(only_the_proxy_knows(url), network=network) as publisher,
    ):
        publisher.updated("a", "1")
        publisher.flush(10)
        publisher.publish("a", [Change("2", "updated")])
    assert [request.locs for request in posted] == [["1"], ["2"]]
    assert other_proxy.seen[0].startswith(f"POST http://{NAME}:")


async def test_a_source_is_followed_and_mirrored_by_a_network_that_is_given(
    other_proxy, tmp_path, monkeypatch
):
    """And not by the one of the environment."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    network = through(other_proxy, ca=OF_NAME, headers={"X-Tenant": "museum"})
    tenants = set[str | None]()

    async def listed(request: web_server.Request) -> web_server.Response:
        tenants.add(request.headers.get("X-Tenant"))
        return web_server.Response(body=source.documents["/changelist.xml"])

    async with Source(tls_of_server(OF_NAME)) as source, asyncio.timeout(60):
        source.url = f"https://{NAME}:{urlsplit(source.url).port}"
        source.documents[CAPABILITIES] = source.capability_list("resourcelist", "changelist")
        source.add("a.txt", b"a")
        source.list_resources()
        begin = str(source.at)
        source.change("a.txt", b"b")
        source.handlers["/changelist.xml"] = listed
        changes = follow_async(source.url + CAPABILITIES, position=begin, network=network)
        async for change in changes:
            assert change.loc == source.loc("a.txt")
            break
        url = source.url + CAPABILITIES
        async with AsyncMirror(url, tmp_path / "copy", network=network) as mirror:
            assert await mirror.once()
    assert tenants == {"museum"}


def test_what_the_environment_says_holds_where_nothing_else_is_given(proxy):
    known = Network.of(os.environ)
    assert network_of(NetworkOptions(), known) == network_of(None) == known
    assert network_of(NetworkOptions(proxy="")).proxies.lead_to("http", NAME) is None
    assert network_of(NetworkOptions(timeout_seconds=5)).proxies == known.proxies


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"proxy": "ftp://a"}, "^proxy is no address of a proxy"),
        ({"ca": "/nowhere"}, "^ca=/nowhere: No such file"),
        ({"certificate": __file__}, "^certificate=.* is no certificate, or its key .* in key$"),
        ({"key": "a.pem"}, "^key is given without certificate$"),
        ({"headers": {"X": "a\nb"}}, "^headers: X…: "),
        ({"headers": {"Host": "a"}}, "^headers: Host: this one is ours to say$"),
    ],
)
@pytest.mark.parametrize(
    "use",
    [
        lambda network: Publisher("http://a.example", network=network),
        lambda network: AsyncPublisher("http://a.example", network=network),
        lambda network: follow("http://a.example", network=network),
        lambda network: follow("http://a.example", sets=["a"], network=network),
        lambda network: follow_async("http://a.example", network=network),
        lambda network: notifications("http://a.example", network=network),
        lambda network: notifications_async("http://a.example", network=network),
        lambda network: Relay(lambda: sqlite3.connect(":memory:"), "http://a", network=network),
    ],
)
def test_a_network_that_cannot_be_used_is_refused_at_once(use, given, words):
    with pytest.raises(InvalidArgument, match=words):
        use(NetworkOptions(**given))
