"""Sources that are broken or hostile, bridged: each is a clear line, and nothing is deleted."""

import asyncio
import gzip
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress

import pytest
from aiohttp import web

from rsnotify.errors import InvalidSettings, TryAgain
from rsnotify_bridge.memory import BridgeStore
from rsnotify_bridge.polite import ROBOTS_BYTES, Hosts, PoliteWeb
from rsnotify_client.network import Network
from rsnotify_client.web import Refused
from tests.support.repositories import Repository
from tests.support.running import until
from tests.support.sources import Handler, Source

NS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
GOOD = f"<urlset {NS}><url><loc>http://a.example/a</loc></url></urlset>"
CHANGED = GOOD.replace("</url>", "<lastmod>2026-11-20</lastmod></url>")

BAD = {
    "a login page": ("<html><form>password</form></html>", "login"),
    "cut short": (GOOD[:-12], "not well-formed"),
    "a DOCTYPE": ('<!DOCTYPE a [<!ENTITY b "c">]>' + GOOD, "DOCTYPE"),
    "an index of itself": (
        f"<sitemapindex {NS}><sitemap><loc>map.xml</loc></sitemap></sitemapindex>",
        "index under an index",
    ),
    "another encoding": ('<?xml version="1.0" encoding="utf-16"?>' + GOOD, "encoding"),
    "nothing": ("", ""),
}


async def test_what_is_no_list_deletes_nothing_and_is_said(source, bridging):
    source.documents["/map.xml"] = GOOD.encode()
    async with bridging.running(source.loc("map.xml"), **{"max-delete": 100}) as bridges:
        assert await bridges.once()
        for text, problem in BAD.values():
            source.documents["/map.xml"] = text.encode()
            assert not await bridges.once()
            error = bridges.bridges[0].state.facts.error or ""
            assert error
            assert problem in error or problem == "login"
        source.documents["/map.xml"] = GOOD.encode()
        assert await bridges.once()
    assert (bridging.told(), bridging.count()) == ([], 1)


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        ("self", '{"type":"OrderedCollection","last":{"id":"self"}}', "was read before"),
        ("away", '{"type":"OrderedCollection","last":"http://169.254.169.254/"}', "another host"),
        ("feed", "<feed><link rel='next' href='feed'/></feed>", "was read before"),
        ("deep", f"<feed>{'<a>' * 1_000}{'</a>' * 1_000}</feed>", "not well-formed"),
        ("bomb", '<!DOCTYPE a [<!ENTITY b "c">]><feed>&b;</feed>', "DOCTYPE"),
    ],
)
async def test_a_feed_that_leads_nowhere_is_said(source, bridging, path, body, problem):
    source.documents[f"/{path}"] = body.encode()
    facts = await bridging.once(source.loc(path))
    assert problem in (facts.error or "")


async def test_a_sitemap_in_gzip_is_followed_and_half_of_it_is_not(source, bridging):
    whole = gzip.compress(GOOD.encode())
    source.documents["/map.xml.gz"] = whole
    facts = await bridging.once(source.loc("map.xml.gz"), **{"max-delete": 100})
    assert (facts.error, bridging.count()) == (None, 1)
    spaces = gzip.compress(f"<urlset {NS}>{' ' * 60 * 1024 * 1024}</urlset>".encode())
    for body in (whole[:-10], gzip.compress(GOOD[:-12].encode()), spaces, gzip.compress(spaces)):
        source.documents["/map.xml.gz"] = body
        facts = await bridging.once(source.loc("map.xml.gz"), **{"max-delete": 100})
        assert facts.error is not None
    assert (bridging.told(), bridging.count()) == ([], 1)


@pytest.mark.parametrize("path", ["map.xml", "part.xml", "older"])
async def test_what_is_called_unchanged_though_nobody_knows_it_was_not_read(source, bridging, path):
    part = f"<sitemap><loc>{source.loc('part.xml')}</loc></sitemap>"
    source.documents |= {
        "/map.xml": f"<sitemapindex {NS}>{part}</sitemapindex>".encode(),
        "/part.xml": GOOD.encode(),
        "/feed": b"<feed><link rel='next' href='older'/></feed>",
    }
    asked = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        is_found = path == "map.xml" and asked == 1  # what it is, and then to read it
        body = source.documents["/map.xml"]
        return web.Response(body=body) if is_found else web.Response(status=304)

    source.handlers[f"/{path}"] = handler
    facts = await bridging.once(source.loc("feed" if path == "older" else "map.xml"))
    assert "304, unchanged" in (facts.error or "")
    assert not facts.is_read


@pytest.mark.parametrize("what", ["feed", "oai", "map", "page"])
@pytest.mark.parametrize("status", [200, 404])
async def test_what_a_site_offers_besides_is_not_taken_for_a_source_that_is_known(
    bridging, what, status
):
    bridging.set_name = f"{what}{status}"
    bridging.hub.add_set(bridging.set_name)
    async with Source() as source:
        repository = Repository(source.loc("oai"))
        repository.put(1)
        source.handlers["/oai"] = repository.handler
        link = '<html><link rel="resourcesync" href="capabilitylist.xml"></html>'
        source.answer("/page", link, content_type="text/html")
        source.list_resources()
        entry = f"<entry><id>{source.loc('a')}</id></entry>"
        source.documents["/feed"] = f"<feed>{entry}</feed>".encode()
        source.documents["/map"] = GOOD.encode()
        source.documents["/robots.txt"] = f"Sitemap: {source.loc('others.xml')}".encode()
        source.documents["/others.xml"] = GOOD.replace("/a<", "/b<").encode()
        before = await bridging.once(source.loc(what))
        assert before.is_well
        handler = source.handlers.pop(f"/{what}", None)
        source.answer(f"/{what}", "<html>down</html>", status=status, content_type="text/html")
        facts = await bridging.once(source.loc(what))
        assert "what is found there now is another Source" in (facts.error or "")
        assert (facts.held, bridging.told()) == (None, [])
        del source.handlers[f"/{what}"]
        if handler is not None:
            source.handlers[f"/{what}"] = handler
        assert (await bridging.once(source.loc(what))).is_well


DAMAGE = {
    "other bytes": (None, "file is not a database"),
    "another version": ("PRAGMA user_version = 99", "was written by another version"),
    "another program": ("PRAGMA user_version = 0", "no bridge has written it"),
    "its facts": ("UPDATE bridge SET facts = x'00'", "a field of it is damaged"),
    "its parts": ("UPDATE bridge SET parts = x'00'", "a field of it is damaged"),
    "an entry": ("UPDATE entry SET body = x'00'", "a field of it is damaged"),
    "a batch": ("INSERT INTO waiting VALUES (1, 1, x'00')", "a field of it is damaged"),
    "a table": ("DROP TABLE waiting", "no such table"),
}


async def test_a_state_file_that_is_damaged_is_said_and_nothing_is_published(source, bridging):
    """By the bridge that begins with it, or at its look."""
    for name, (statement, problem) in DAMAGE.items():
        bridging.state = bridging.state.with_name(f"{name}.db")
        source.documents["/map.xml"] = GOOD.encode()
        assert (await bridging.once(source.loc("map.xml"))).error is None
        if statement is None:
            bridging.state.write_bytes(b"x" * 8_192)
        else:
            with closing(sqlite3.connect(bridging.state)) as database, database:
                database.execute(statement)
        source.documents["/map.xml"] = CHANGED.encode()
        try:
            said = (await bridging.once(source.loc("map.xml"))).error or ""
        except InvalidSettings as error:
            said = str(error)
        assert problem in said, (name, said)
        assert str(bridging.state) in said, (name, said)
    assert (bridging.told(), bridging.count()) == ([], 1)


async def test_a_disk_that_is_full_is_said_and_when_it_has_room_the_bridge_goes_on(
    source, bridging
):
    source.documents["/map.xml"] = GOOD.encode()
    with closing(BridgeStore(bridging.state)) as store:
        async with bridging.running(source.loc("map.xml"), store=store) as bridges:
            assert await bridges.once()
            many = "".join(
                f"<url><loc>http://a.example/{each}</loc></url>" for each in range(2_000)
            )
            source.documents["/map.xml"] = GOOD.replace("</urlset>", f"{many}</urlset>").encode()
            store.database.execute("PRAGMA max_page_count = 1")  # no more than there are
            assert not await bridges.once()
            error = bridges.bridges[0].state.facts.error or ""
            assert "bridge.db cannot be used: database or disk is full" in error
            assert bridging.count() == 1
            store.database.execute("PRAGMA max_page_count = 1000000")
            assert await bridges.once()
    assert bridging.count() == 2_001


async def test_a_list_that_is_not_well_formed_is_called_so_when_it_is_found(source, bridging):
    source.documents["/map.xml"] = b"<urlset>\n<url></urlset>"
    facts = await bridging.once(source.loc("map.xml"))
    assert "not well-formed XML" in (facts.error or "")
    assert "line 2" in (facts.error or "")


async def test_an_entry_that_names_no_resource_is_said_and_is_not_its_list(source, bridging):
    source.documents["/map.xml"] = GOOD.replace("<url>", "<url/><url><loc/></url><url>").encode()
    facts = await bridging.once(source.loc("map.xml"))
    assert (facts.error, bridging.count()) == (None, 1)
    assert "2 entries" in (facts.skipped or "")


@asynccontextmanager
async def polite(
    source: Source, hosts: Hosts | None = None, timeout_seconds: float | None = None
) -> AsyncIterator[PoliteWeb]:
    source.documents["/a"] = b"content"
    network = Network(timeout_seconds=timeout_seconds)
    web = PoliteWeb(None, source.url, network, hosts or Hosts())
    try:
        yield web
    finally:
        await web.close()


@pytest.mark.parametrize("status", [401, 403, 404, 410, 302])
async def test_where_there_is_no_robots_txt_all_is_allowed(source, status):
    source.handlers["/robots.txt"] = answering(status)
    async with polite(source) as web:
        assert (await web.page(source.loc("a"))).body == b"content"


@pytest.mark.parametrize("status", [500, 503, 599, 429, None, 0])
async def test_a_host_whose_robots_txt_cannot_be_had_is_asked_for_nothing_else_until_it_can(
    source, status
):
    """RFC 9309, 2.3.1.4. None: the connection is cut; 0: it hangs."""
    source.handlers["/robots.txt"] = answering(status)
    hosts, waits = Hosts(), 0.5 if status == 0 else None
    async with polite(source, hosts, waits) as web:
        with pytest.raises(TryAgain) as refused:
            await web.page(source.loc("a"))
        assert f"{source.loc('robots.txt')} cannot be" in refused.value.detail
        assert "nothing else there is asked for" in refused.value.detail
        assert source.asked["/a"] == 0
    source.handlers["/robots.txt"] = answering(404)
    async with polite(source, hosts) as web:
        assert (await web.page(source.loc("a"))).body == b"content"


@pytest.mark.parametrize("is_same", [True, False])
async def test_a_redirect_obeys_the_host_that_it_leads_to_and_waits_for_its_turn(source, is_same):
    async with Source() as away:
        other = source if is_same else away
        other.documents["/robots.txt"] = b"User-agent: *\nDisallow: /closed\n"
        for path in ("/closed", "/open"):
            other.documents[path] = b"found"
            source.answer(f"/to{path}", status=302, headers={"Location": other.url + path})
        hosts = Hosts()
        async with polite(source, hosts) as web:
            assert (await web.page(f"{source.url}/to/open")).body == b"found"
            with pytest.raises(Refused, match="asks robots to leave /closed alone"):
                await web.page(f"{source.url}/to/closed")
            async with hosts.turn(web, f"{other.url}/open"):
                waiting = asyncio.create_task(web.page(f"{source.url}/to/open"))
                if not is_same:
                    await has_asked(source, "/to/open", 2)
                assert other.asked["/open"] == 1
            assert (await waiting).body == b"found"
        assert other.asked["/closed"] == 0


async def test_redirects_in_a_circle_end(source):
    source.answer("/a", status=302, headers={"Location": "/a"})
    async with polite(source) as web:
        with pytest.raises(Refused, match="is redirected more than 5 times"):
            await web.page(f"{source.url}/a")
    assert source.asked["/a"] == 6


@pytest.mark.parametrize("path", ["/drips", "/robots.txt"])
async def test_a_page_that_drips_does_not_hold_the_turn_of_its_host(source, path):
    async def drip(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        with suppress(ConnectionError):
            while True:
                await answer.write(b"x")
                await asyncio.sleep(0.02)
        return answer

    source.handlers[path] = drip
    source.documents["/b"] = b"found"
    hosts = Hosts(obeys_robots=path == "/robots.txt", page_seconds=0.3)
    async with polite(source, hosts) as first, polite(source, hosts) as other:
        dripping = asyncio.create_task(first.page(f"{source.url}/drips"))
        await has_asked(source, path, 1)
        if path == "/drips":
            assert (await other.page(f"{source.url}/b")).body == b"found"
        with pytest.raises(TryAgain, match="the whole answer did not come in time"):
            await dripping


async def has_asked(source: Source, path: str, times: int) -> None:
    async def is_so() -> bool:
        return source.asked[path] >= times

    await until(is_so)


async def test_a_robots_txt_that_cannot_be_had_any_more_is_kept_as_it_was(source):
    source.documents["/robots.txt"] = b"User-agent: *\nDisallow: /b\n"
    async with polite(source, Hosts(robots_seconds=0.0)) as web:
        await web.page(source.loc("a"))
        source.handlers["/robots.txt"] = answering(500)
        assert (await web.page(source.loc("a"))).body == b"content"
        with pytest.raises(Refused, match="asks robots to leave /b alone"):
            await web.page(source.loc("b"))


@pytest.mark.parametrize(("delay", "is_said"), [(30, False), (31, True), (999_999_999, True)])
async def test_a_delay_that_is_longer_than_anybody_waits_is_said(source, caplog, delay, is_said):
    source.documents["/robots.txt"] = f"User-agent: *\nCrawl-delay: {delay}\n".encode()
    async with polite(source) as web:
        await web.page(source.loc("a"))
    assert (f"asks for {delay} s between two requests: 30 s are kept" in caplog.text) == is_said


async def test_a_delay_is_kept_up_to_a_limit(source):
    source.documents["/robots.txt"] = b"User-agent: *\nCrawl-delay: 999999999\n"
    async with polite(source, Hosts(longest_delay_seconds=0.01)) as web:
        await web.page(source.loc("a"))
        await web.page(source.loc("a"))
    assert source.asked["/a"] == 2


def answering(status: int | None) -> Handler:
    """With this status; None: by cutting the connection; 0: never."""

    async def handler(request: web.Request) -> web.Response:
        if status == 0:
            await asyncio.Event().wait()
        if status is None:
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=status or 200)

    return handler


async def test_what_robots_txt_closes_is_not_asked_for(source, bridging):
    source.documents["/robots.txt"] = b"User-agent: *\nDisallow: /map.xml\n"
    source.documents["/map.xml"] = GOOD.encode()
    facts = await bridging.once(source.loc("map.xml"))
    assert "asks robots to leave /map.xml alone" in (facts.error or "")
    assert source.asked["/map.xml"] == 0


@pytest.mark.parametrize(
    "text",
    [
        b"User-agent: *\nCrawl-delay: \xc2\xb2\nRequest-rate: \xc2\xb2/1\n",
        b"User-agent: *\nCrawl-delay: " + b"9" * 5_000,
        b"\xff\0" * ROBOTS_BYTES,
        b"User-agent: rsnotify\n" + b"Disallow: /other\n" * 40_000 + b"Disallow: /\n",
    ],
    ids=["superscripts", "digits", "no text", "too long"],
)
async def test_a_robots_txt_that_is_odd_closes_nothing(source, bridging, text):
    source.documents["/robots.txt"] = text
    source.documents["/map.xml"] = GOOD.encode()
    facts = await bridging.once(source.loc("map.xml"), shared=True)
    assert (facts.error, facts.skipped) == (None, None)
