"""Where a Source may send a mirror: which addresses, which site, and where a redirect may end."""

import asyncio
import socket
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiohttp import web

from clients.python.tests.mirror.test_mirror import Once, files, once
from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_client.live import open_channel
from rsnotify_client.network import Network, Reach
from rsnotify_client.resource import SourceResource
from rsnotify_client.web import SMALL_BYTES, Refused, Unreachable, Web
from rsnotify_mirror.fetch import LoginPages, unlike
from tests.support.forward_proxy import forward_proxy
from tests.support.sources import CAPABILITIES, Source, digest, rendered

PUBLIC, PUBLIC_TOO = "93.184.216.34", "2606:2800:220:1::1"
CASES = {
    # where the Source is, what it names, and whether that is asked
    (PUBLIC, PUBLIC_TOO): True,
    (PUBLIC, "127.0.0.1"): False,
    (PUBLIC, "::ffff:127.0.0.1"): False,
    (PUBLIC, "10.0.0.1"): False,
    (PUBLIC, "172.16.0.1"): False,
    (PUBLIC, "172.32.0.1"): True,
    (PUBLIC, "192.168.1.1"): False,
    (PUBLIC, "169.254.169.254"): False,
    (PUBLIC, "64:ff9b::7f00:1"): False,
    (PUBLIC, "fe80::1"): False,
    ("127.0.0.1", "127.0.0.2"): True,
    ("127.0.0.1", "10.0.0.1"): True,
    ("127.0.0.1", PUBLIC): True,
    ("127.0.0.1", "169.254.169.254"): False,
    ("10.0.0.1", "127.0.0.1"): True,
    ("127.0.0.1", "64:ff9b::a9fe:a9fe"): False,
    ("127.0.0.1", "::ffff:169.254.169.254"): False,
    (PUBLIC, "0.0.0.0"): False,
    ("64:ff9b::5db8:d822", "10.0.0.1"): False,  # a network with IPv6 alone, a public Source
    ("64:ff9b::5db8:d822", "64:ff9b::a00:1"): False,
    ("64:ff9b::5db8:d822", "64:ff9b::808:808"): True,
    ("64:ff9b::a00:1", "64:ff9b::a00:2"): True,
}
NEVER = [
    "169.254.1.1",
    "169.254.169.254",
    "::ffff:169.254.169.254",
    "::169.254.169.254",
    "::ffff:0:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1:a9fe:a9:fe00::",
    "64:ff9b:1:a9:fe:a9fe::",
    "64:ff9b:1:0:a9:fea9:fe00:0",
    "64:ff9b:1::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "2001:0:5db8:d822::5601:5601",  # Teredo writes the client's address inverted
    "fe80::1",
    "fe80::1%lo",
    "fd00:ec2::254",
    "100.100.100.200",
    "192.0.0.192",
]


@pytest.mark.parametrize(("own", "other"), CASES)
def test_only_a_source_that_is_not_public_may_name_what_is_not(own, other):
    reach = Reach("http://source.example/")
    assert reach.connected("source.example", own) is None
    assert (reach.why_not_connected("other.example", other) is None) == CASES[own, other]


@pytest.mark.parametrize("address", NEVER)
def test_a_link_local_address_is_never_asked_whatever_its_name_and_its_form(address):
    for own in ("source.example", "127.0.0.1", address):
        reach = Reach(f"http://[{own}]/" if ":" in own else f"http://{own}/")
        for name in (own, "other.example"):
            assert "never asked" in (reach.why_not_connected(name, address) or "")


@pytest.mark.parametrize(
    ("first", "later", "is_asked"),
    [
        (PUBLIC, "127.0.0.1", False),
        (PUBLIC, "10.0.0.1", False),
        (PUBLIC, PUBLIC_TOO, True),
        ("10.0.0.1", "10.0.0.2", True),
        ("10.0.0.1", PUBLIC, True),
        ("127.0.0.1", "169.254.169.254", False),
    ],
)
def test_where_a_source_is_first_decides_what_it_may_name_later(first, later, is_asked):
    source_kinds: dict[str, str | None] = {}
    assert (
        Reach("http://a.example/", source_kinds=source_kinds).connected("a.example", first) is None
    )
    for reach in (
        Reach("http://a.example/", source_kinds=source_kinds),
        Reach("http://A.EXAMPLE./", source_kinds=source_kinds),
    ):
        assert (reach.why_not_connected("a.example", later) is None) == is_asked
        assert (reach.connected("a.example", later) is None) == is_asked
        assert (reach.why_not_connected("inside.example", "10.0.0.3") is None) == (first != PUBLIC)


def test_of_two_first_connections_the_slower_one_is_judged_by_the_quicker_one():
    reach = Reach("http://a.example/")
    assert (
        reach.why_not_connected("a.example", PUBLIC)
        is reach.why_not_connected("a.example", "127.0.0.1")
        is None
    )
    assert reach.connected("a.example", PUBLIC) is None
    assert "was elsewhere at first" in (reach.connected("a.example", "127.0.0.1") or "")


def test_a_source_whose_address_is_an_ip_is_known_before_it_is_asked():
    assert Reach("ws://127.0.0.1:80/x").why_not_connected("a.example", "10.0.0.1") is None
    assert Reach(f"http://{PUBLIC}/").why_not_connected("a.example", "10.0.0.1") is not None


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Names that lead to these addresses, in the tests' own resolver."""
    known: dict[str, str] = {}
    real = socket.getaddrinfo

    def resolve(host: str, *words: object, **named: object) -> object:
        return real(known.get(host, host), *words, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return known


async def test_a_public_source_gets_no_connection_to_a_private_address(source, names):
    """The Source seems to be public; what a name leads to is judged when it is connected to."""
    names["inside.example"] = "127.0.0.1"
    port = source.url.rpartition(":")[2]
    source.resources["/a"] = b"secret"
    for url in (f"http://127.0.0.1:{port}/a", f"http://inside.example:{port}/a"):
        async with Web(url=f"http://{PUBLIC}/") as session:
            with pytest.raises(Refused, match="which is loopback, and the Source is not"):
                await session.page(url)
    assert source.asked["/a"] == 0


async def test_a_set_that_a_public_source_names_is_not_asked_at_a_private_address(source):
    network = Network(source=f"http://{PUBLIC}/.well-known/resourcesync")
    async with Web(url=source.url, network=network) as session:
        with pytest.raises(Refused, match="which is loopback, and the Source is not"):
            await session.page(source.url)


async def test_a_redirect_leads_no_further_than_an_address_does(source, names):
    names["source.example"] = "127.0.0.1"
    port = source.url.rpartition(":")[2]

    async def away(_: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("http://169.254.169.254/latest/meta-data/")

    source.handlers["/a"] = away
    async with Web(url=f"http://source.example:{port}/") as session:
        with pytest.raises(Refused, match="link-local: never asked"):
            await session.page(f"http://source.example:{port}/a")


async def spoken_to(web: Web, url: str) -> str | bytes:
    async with asyncio.timeout(20), open_channel(web, url, None) as channel:
        return await anext(channel.payloads)


@pytest.fixture
def channel(source: Source) -> str:
    """The port of a Source with a channel at /channel."""

    async def speak(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str("a change")
        await socket.receive()
        return socket

    source.handlers["/channel"] = speak
    return source.url.rpartition(":")[2]


@pytest.mark.parametrize("host", ["127.0.0.1", "inside.example", "2130706433"])
async def test_a_public_source_has_no_channel_at_a_private_address(source, channel, names, host):
    names["inside.example"] = names["source.example"] = "127.0.0.1"
    url = f"ws://{host}:{channel}/channel"
    async with Web(url=f"http://{PUBLIC}/") as session:
        with pytest.raises(Refused, match="which is loopback, and the Source is not"):
            await spoken_to(session, url)
    assert source.asked["/channel"] == 0
    async with Web(url=f"http://source.example:{channel}/") as session:
        await session.page(f"http://source.example:{channel}/")
        assert await spoken_to(session, url) == "a change"


async def test_a_channel_at_several_addresses_is_asked_where_it_may_be(channel, monkeypatch):
    """They come from one resolution: a name that leads elsewhere the next time changes nothing."""
    found = [("169.254.169.254", 1), ("127.0.0.1", int(channel))]
    asked: list[object] = []

    def resolve(host: str, *_: object, **__: object) -> object:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    async with Web(url="http://127.0.0.1/") as session:
        assert await spoken_to(session, f"ws://many.example:{channel}/channel") == "a change"
    assert asked == ["many.example"]


async def test_the_redirect_of_a_channel_leads_no_further_either(source, channel):
    to = "/channel"

    async def away(_: web.Request) -> web.StreamResponse:
        raise web.HTTPFound(to)

    source.handlers["/away"] = away
    async with Web(url=source.url) as session:
        assert await spoken_to(session, f"ws://127.0.0.1:{channel}/away") == "a change"
        to = "ws://169.254.169.254/latest/meta-data/"
        with pytest.raises(Refused, match=r"169\.254\.169\.254 is link-local: never asked"):
            await spoken_to(session, f"ws://127.0.0.1:{channel}/away")


async def test_a_channel_is_at_the_site_if_it_shall_be(source, channel, names):
    names |= dict.fromkeys(["a.example", "b.a.example", "aa.example"], "127.0.0.1")
    async with Web(url=f"http://a.example:{channel}/", same_site=True) as session:
        for host in ("a.example", "b.a.example"):
            assert await spoken_to(session, f"ws://{host}:{channel}/channel") == "a change"
        before = source.asked["/channel"]
        with pytest.raises(Refused, match=r"it is not at a\.example, and --same-site is given"):
            await spoken_to(session, f"ws://aa.example:{channel}/channel")
    assert source.asked["/channel"] == before


async def test_behind_a_proxy_the_proxy_decides_where_a_channel_leads(channel):
    with forward_proxy({"10.0.0.1": "127.0.0.1"}) as proxy:
        network = Network.of(proxy.environment())
        async with Web(url=f"http://{PUBLIC}/", network=network) as session:
            assert await spoken_to(session, f"ws://10.0.0.1:{channel}/channel") == "a change"


METADATA = ("169.254.169.254", "2852039166", "0xa9fea9fe", "169.254.43518", "[64:ff9b::a9fe:a9fe]")


@pytest.mark.parametrize("scheme", ["http", "ws"])
@pytest.mark.parametrize("host", METADATA)
async def test_no_proxy_is_asked_for_an_address_that_says_that_it_is_link_local(scheme, host):
    with forward_proxy({}) as proxy:
        network = Network.of(proxy.environment())
        async with Web(url="http://source.example/", network=network) as session:
            ask = session.page if scheme == "http" else partial(spoken_to, session)
            with pytest.raises(Refused, match="link-local: never asked"):
                await ask(f"{scheme}://{host}/latest/meta-data/")
    assert not proxy.seen


async def test_a_name_that_leads_elsewhere_the_second_time_is_not_followed(source, names):
    """The client stands for a program: what it has seen once holds for its other clients, too."""
    port = source.url.rpartition(":")[2]
    source.resources["/a"] = b"secret"
    network = Network(source_kinds={"source.example": None})  # which was public
    names["source.example"] = "127.0.0.1"
    async with Web(url=f"http://source.example:{port}/", network=network) as session:
        with pytest.raises(Refused, match="which is loopback, and was elsewhere at first"):
            await session.page(f"http://source.example:{port}/a")
    assert source.asked["/a"] == 0


@pytest.mark.parametrize("to", ["127.0.0.2", "169.254.169.254"])
async def test_a_source_of_this_machine_that_moves_is_followed_here_only(source, names, to):
    port = source.url.rpartition(":")[2]
    source.resources["/a"] = b"1"
    names["source.example"] = "127.0.0.1"
    url, network = f"http://source.example:{port}/a", Network()
    async with Web(url=url, network=network) as session:
        assert (await session.page(url)).body == b"1"
    names["source.example"] = to
    async with Web(url=url, network=network) as session:
        with pytest.raises(Refused if to == METADATA[0] else Unreachable):
            await session.page(url)  # at 127.0.0.2 nobody listens


@pytest.mark.parametrize("same_site", [False, True])
async def test_a_mirror_asks_for_nothing_at_another_site_if_it_shall_not(
    source, tmp_path, same_site
):
    async with Source() as other:
        other.resources["/elsewhere"] = b"1"
        there = other.url.replace("127.0.0.1", "127.0.0.2") if same_site else other.url

        async def away(_: web.Request) -> web.StreamResponse:
            raise web.HTTPFound(there + "/elsewhere")

        source.add("a", b"1")
        source.list_resources()
        source.handlers["/a"] = away
        ran = await once(source, tmp_path, same_site=same_site)
        assert ran.is_whole != same_site
        assert ("--same-site" in ran.problems()) == same_site
        assert (other.asked["/elsewhere"] == 0) == same_site


# Where a redirect ends --------------------------------------------------------------------------

ENDS = {
    # asked for, what the Source says, where it ends, the type there, and whether it is refused
    "the same type": ("/a.pdf", "application/pdf", "/b", "application/pdf", False),
    "another type": ("/a", "application/pdf", "/b", "text/html; charset=utf-8", True),
    "no type": ("/a", "application/pdf", "/b", None, False),
    "a login page": ("/a", None, "/login?next=/a", "text/html", True),
    "a login page of HTML": ("/a", "text/html", "/login", "text/html", False),
    "a host that logs in": ("/a", None, "//sso.example/x", "text/html", True),
    "a name with login in it": ("/a", None, "/blogins", "text/html", False),
    "HTML for a PDF": ("/a.pdf", None, "/b", "text/html", True),
    "HTML for HTML": ("/a.html", None, "/b", "text/html", False),
    "HTML for nobody knows": ("/a", None, "/b", "text/html", False),
}


def ended(url, content_type):
    headers = {} if content_type is None else {"content-type": content_type}
    return SimpleNamespace(url=url, headers=headers)


@pytest.mark.parametrize("name", ENDS)
def test_a_redirect_that_ends_at_something_else_is_refused(name):
    path, told, end, came, is_refused = ENDS[name]
    url = f"http://a.example{path}"
    to = f"http:{end}" if end.startswith("//") else f"http://a.example{end}"
    wanted = SourceResource(url, type=told)
    assert (unlike(url, wanted, ended(to, came)) is not None) == is_refused
    is_other = told == "application/pdf" and came is not None and "html" in came
    assert (unlike(url, wanted, ended(url, came)) is not None) == is_other
    measured = SourceResource(url, type=told, length=1)
    assert unlike(url, measured, ended(url, came)) is None
    verified = SourceResource(url, type=told, hash=digest(b""))
    assert unlike(url, verified, ended(to, came)) is None


async def test_a_login_page_is_not_stored_in_the_place_of_a_resource(source, tmp_path):
    source.add("a", b"1")
    source.list_resources()
    listed = source.documents["/resourcelist.xml"]
    source.documents["/resourcelist.xml"] = listed.replace(digest(b"1").encode(), b"").replace(
        b' length="1"', b""
    )
    source.answer("/a", status=302, headers={"Location": "/login?next=/a"})
    source.answer("/login", "<form>", content_type="text/html")
    ran = await once(source, tmp_path)
    assert (ran.is_whole, "looks like a login page" in ran.problems()) == (False, True)
    assert "a" not in files(tmp_path)


PAGE = '<!DOCTYPE html><html><form><input name="x" type="{}"><input value="{}"></form></html>'
ASKS = PAGE.format("password", "{}")


async def pages(
    source: Source, names: list[str], page: str, copy: Path, *, has_length: bool
) -> Once:
    """Each resource is this page, with something in it that differs from visit to visit."""
    visits = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal visits
        visits += 1
        body = page.replace("{}", f"{visits:04}")
        if has_length:
            return web.Response(text=body, content_type="text/html")
        response = web.StreamResponse(headers={"Content-Type": "text/html"})
        await response.prepare(request)
        await response.write(body.encode())
        return response

    source.documents["/resourcelist.xml"] = rendered(
        "resourcelist", [Entry(source.loc(name)) for name in names], at=str(source.at)
    )
    source.documents[CAPABILITIES] = source.capability_list("resourcelist")
    source.handlers |= {f"/{name}": answer for name in names}
    return await once(source, copy)


@pytest.mark.parametrize("has_length", [False, True])
async def test_a_page_that_asks_for_a_password_is_not_stored_as_a_pdf(source, tmp_path, has_length):
    ran = await pages(source, ["a.pdf"], ASKS, tmp_path, has_length=has_length)
    assert (ran.is_whole, files(tmp_path)) == (False, {})
    assert "a.pdf is a page in HTML that asks for a password" in ran.problems()


@pytest.mark.parametrize("has_length", [False, True])
async def test_resources_that_are_all_the_same_login_page_are_said(source, tmp_path, has_length):
    ran = await pages(source, ["a", "b", "c", "d"], ASKS, tmp_path, has_length=has_length)
    assert not ran.is_whole
    assert ran.problems().count("is the same page as") >= 2
    assert len(files(tmp_path)) == 2


@pytest.mark.parametrize("page", [PAGE.format("text", "{}"), ASKS + "{}", "{}" * 1_000])
async def test_pages_that_are_resources_are_stored(source, tmp_path, page):
    ran = await pages(source, ["a", "b", "c", "d"], page, tmp_path, has_length=True)
    assert ran.is_whole, ran.problems()
    assert len(files(tmp_path)) == 4


def test_a_hostile_page_is_judged_at_once():
    began = time.process_time()
    for piece in (b"<input ", b"<input type=", b"value='", b'value="', b"value=", b"<html>"):
        LoginPages().problem("http://a.example/", b"<html>" + piece * (SMALL_BYTES // len(piece)))
        spaced = b"<html><input type=password" + piece + b" " * SMALL_BYTES
        LoginPages().problem("http://a.example/", spaced)
    assert time.process_time() - began < 2
