"""Following: Sources of every age in this process, and a real hub that is killed."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from itertools import pairwise

import pytest
from aiohttp import WSMsgType, web
from msgspec import structs

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Change, Link, Position
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, render_document
from rsnotify_client import FollowedChange, HistoryGone, NoChannel, follow, follow_async, live
from rsnotify_client.changelists import ChangeLists
from rsnotify_client.cursor import FileCursor
from rsnotify_client.discovery import (
    MAX_SETS,
    discover,
    discover_sets,
    linked,
    linked_in_html,
    sitemaps_of,
)
from rsnotify_client.follower import Follower, SetsFollower
from rsnotify_client.web import Refused, Web
from tests.evidence.soak.network_frozen import Proxy
from tests.support.running import TOKEN, RunningHub
from tests.support.sources import CAPABILITIES, Handler, Source, rendered

QUICK = 0.05


@pytest.fixture
async def source() -> AsyncIterator[Source]:
    async with Source() as running:
        running.add("a.txt", b"first a")
        running.list_resources()
        yield running


async def read(
    url: str, count: int, cursor: object = None, *, after: object = None
) -> list[tuple[str, str]]:
    """So many changes, dealt with: what happened to which resource."""
    found: list[tuple[str, str]] = []
    async with (
        asyncio.timeout(60),
        aclosing(follow_async(url, cursor=cursor, position=after, poll_seconds=QUICK)) as changes,
    ):
        async for change in changes:
            async with change:
                found.append((change.change, change.loc.rpartition("/")[2]))
            if len(found) == count:
                break
    return found


# Discovery --------------------------------------------------------------------------------------


async def test_a_source_is_found_from_any_of_its_addresses(source):
    description = rendered(
        "description",
        [Entry(source.url + CAPABILITIES, md=Md(capability="capabilitylist"))],
    )

    html = f'<html><link rel="resourcesync" href="{CAPABILITIES}">'
    source.answer("/page", html, content_type="text/html")
    source.answer("/headed", headers={"Link": f'<{CAPABILITIES}>; rel="resourcesync"'})
    async with Web() as session:
        for name in ("resourcelist.xml", "changelist.xml", CAPABILITIES[1:], "page", "headed"):
            assert (await discover(session, source.loc(name))).url == source.url + CAPABILITIES
        source.documents["/.well-known/resourcesync"] = description
        assert (await discover(session, source.url)).url == source.url + CAPABILITIES
        del source.documents["/.well-known/resourcesync"]
        source.documents["/robots.txt"] = f"Sitemap: {source.loc('resourcelist.xml')}".encode()
        assert (await discover(session, source.url + "/no/page")).url == source.url + CAPABILITIES


async def test_a_document_that_is_not_there_leads_to_no_other_set(source):
    source.answer("/page", headers={"Link": '</gone.xml.gz>; rel="resourcesync"'})
    source.documents["/robots.txt"] = f"Sitemap: {source.loc('resourcelist.xml')}".encode()
    async with Web() as session:
        for name in ("other/capabilitylist.xml", "page"):
            with pytest.raises(Rejected, match=r"\.xml(\.gz)?: there is nothing at this address"):
                await discover(session, source.loc(name))


@pytest.mark.parametrize("path", ["/mine/list.xml", "/mine/LIST.XML", "/mine/list.xml.gz/?a=b"])
@pytest.mark.parametrize("status", [200, 302, 404])
async def test_what_comes_instead_of_a_document_leads_to_no_other_set(source, path, status):
    source.answer(path.partition("?")[0], status=status, headers={"Location": "/login"})
    source.answer("/login", "<html>log in</html>", content_type="text/html")
    source.documents["/robots.txt"] = f"Sitemap: {source.loc('resourcelist.xml')}".encode()
    said = "there is nothing at this address" if status == 404 else "is no ResourceSync document"
    async with Web() as session:
        with pytest.raises(Rejected, match=f"{re.escape(path)}:? {said}.* look whether"):
            await discover(session, source.url + path)


async def test_what_comes_instead_of_a_document_may_link_to_its_set(source):
    source.answer("/a.xml", "<a/>", headers={"Link": f'<{CAPABILITIES}>; rel="resourcesync"'})
    async with Web() as session:
        found = await discover(session, source.loc("a.xml"))
    assert found.url == source.url + CAPABILITIES


async def test_a_page_that_is_gone_leads_to_its_sites_set_and_that_is_said(source, caplog):
    source.documents["/robots.txt"] = f"Sitemap: {source.loc('resourcelist.xml')}".encode()
    taken = source.url + CAPABILITIES
    async with Web() as session:
        for url in (source.url, source.loc("a.txt"), source.loc("resourcelist.xml")):
            assert (await discover(session, url)).url == taken
        assert caplog.messages == []
        assert (await discover(session, source.loc("page"))).url == taken
    said = f"{source.loc('page')} answers 404; taking {taken}, to which its site leads"
    assert caplog.messages == [said]


async def test_a_page_that_another_program_calls_gone_in_json_leads_to_its_sites_set(source):
    async def gone(_: web.Request) -> web.Response:
        return web.json_response({"detail": "Not Found"}, status=404)

    source.handlers["/page"] = gone
    source.documents["/robots.txt"] = f"Sitemap: {source.loc('resourcelist.xml')}".encode()
    async with Web() as session:
        found = await discover(session, source.loc("page"))
    assert found.url == source.url + CAPABILITIES


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("other/capabilitylist.xml", "there is no set 'other' that can be read without a token"),
        (
            "channels/other/change_notification_channel",
            "there is no set 'other' that can be read without a token",
        ),
        ("other", "there is no set 'other' that can be read without a token"),
        ("dataset", "there is no set 'dataset' that can be read without a token"),
    ],
)
async def test_a_set_that_a_hub_has_not_leads_to_no_other(hub, path, said):
    async with Web() as session:
        with pytest.raises(Rejected, match=f"/{path}: {said}$"):
            await discover(session, f"{hub.url}/{path}")


async def test_a_set_is_found_where_its_documents_are(hub):
    await hub.ask("PUT", "/api/sets/dataset2", json={})
    async with Web() as session:
        for path in ("dataset2", "dataset2/"):
            found = await discover(session, f"{hub.url}/{path}")
            assert found.url == f"{hub.url}/dataset2/capabilitylist.xml"


async def test_a_set_is_found_by_another_name_of_its_hub(tmp_path, source):
    """One that the documents do not say, and one that redirects."""

    async def moved(request: web.Request) -> web.Response:
        raise web.HTTPMovedPermanently(f"{hub.url}{request.path}")

    source.handlers["/dataset1"] = moved
    public_url = "https://hub.example.org"
    async with RunningHub(tmp_path / "data", public_url=public_url) as hub, Web() as session:
        hub.url = f"http://127.0.0.1:{hub.port}"
        for url in (hub.url, source.url):
            found = await discover(session, f"{url}/dataset1")
            assert found.url == f"{hub.url}/dataset1/capabilitylist.xml"
            assert (found.changelist or "").startswith(public_url)


async def test_a_set_that_its_hub_does_not_tell_of_is_found(source):
    """As in a description of so many sets that it is not read to its end."""

    async def problem(_: web.Request) -> web.Response:
        return web.json_response({}, status=404, content_type="application/problem+json")

    source.handlers["/a"] = problem
    source.documents["/a/capabilitylist.xml"] = source.documents[CAPABILITIES]
    async with Web() as session:
        assert (await discover(session, source.loc("a"))).url == source.loc("a/capabilitylist.xml")


async def test_a_private_set_is_found_with_a_token_and_refused_without(hub):
    await hub.ask("PUT", "/api/sets/secret", json={"private": True})
    for url in (f"{hub.url}/secret", hub.channel("secret")):
        async with Web(TOKEN, hub.url) as session:
            found = await discover(session, url)
            assert found.url == f"{hub.url}/secret/capabilitylist.xml"
        async with Web() as session:
            with pytest.raises(
                Rejected, match=f"{url}: there is no set 'secret' that can be read without"
            ):
                await discover(session, url)


async def test_a_channel_of_a_set_that_a_hub_has_not_says_so(hub):
    url = hub.channel("other")
    async with Web() as session:
        with pytest.raises(Rejected, match=f"{url}: there is no set 'other'"):
            await discover(session, url)


async def test_what_is_wrong_with_a_token_that_was_sent_is_said(hub):
    await hub.ask("PATCH", "/api/sets/dataset1", json={"private": True})
    for path in ("dataset1", "dataset1/capabilitylist.xml"):
        async with Web("wrong", hub.url) as session:
            with pytest.raises(Rejected, match=f"/{path}: the token is unknown or has been"):
                await discover(session, f"{hub.url}/{path}")


@pytest.mark.parametrize("path", ["/gone", "/gone.xml", "/page.xml", "/away", "/damaged.xml", "/x"])
async def test_no_token_of_an_address_is_said(source, caplog, attempts, path):
    source.answer("/away", status=503)
    source.documents |= {"/page.xml": b"<a/>", "/x": rendered("resourcelist", [])}
    source.documents["/damaged.xml"] = rendered("changelist", []) + b"<"
    source.documents["/robots.txt"] = f"Sitemap: {source.loc('resourcelist.xml')}".encode()
    url = f"{source.url}{path}?access_token=secret"
    reading = asyncio.create_task(read(url, 1, after=str(source.at)))
    async with asyncio.timeout(60):
        while not (caplog.messages or reading.done()):
            await asyncio.sleep(0.01)
    reading.cancel()
    (failed,) = await asyncio.gather(reading, return_exceptions=True)
    said = [*caplog.messages, str(failed)]
    assert any(source.url in each for each in said)
    assert "secret" not in " ".join(said)


async def test_a_source_of_several_sets_names_them(source):
    entries = [Entry(source.loc(f"{name}.xml")) for name in ("one", "two")]
    source.documents["/.well-known/resourcesync"] = rendered("description", entries)
    async with Web() as session:
        with pytest.raises(Rejected, match=r"give the address of one: .*/one\.xml, .*/two\.xml"):
            await discover(session, source.url)


def descriptions(source, *names: str) -> None:
    """An index of Source Descriptions at the well-known address."""
    entries = tuple(Entry(source.loc(name)) for name in names)
    index = Document("sitemapindex", Md(capability="description"), (), entries)
    source.documents["/.well-known/resourcesync"] = render_document(index)


async def test_an_index_of_source_descriptions_is_taken_for_no_sets(source):
    descriptions(source, "d1.xml", "d2.xml")
    async with Web() as session:
        with pytest.raises(Rejected, match=r"in 2 Source Descriptions: give .* a set: .*/d1\.xml"):
            await discover(session, source.url)


async def test_the_sets_of_all_source_descriptions_of_an_index_are_found(source):
    descriptions(source, "d1.xml", "d2.xml")
    lists = [source.loc(f"{name}.xml") for name in ("one", "two", "three")]
    source.documents["/d1.xml"] = rendered("description", [Entry(loc) for loc in lists[:2]])
    source.documents["/d2.xml"] = rendered("description", [Entry(loc) for loc in lists[2:]])
    source.documents["/three.xml"] = rendered("capabilitylist", [])
    async with Web() as session:
        assert sorted(await discover_sets(session, source.url)) == sorted(lists)


@pytest.mark.parametrize(
    ("characters", "sets", "words"),
    [
        (20, MAX_SETS, "offers 1,000 sets of resources"),
        (20, MAX_SETS + 1, "offers more than 1,000 sets of resources"),
        (150, 12_000, "offers more than 1,000 sets of resources"),  # above what is read
        (3_000, MAX_SETS, "which is no ResourceSync document"),  # it names more, perhaps few
    ],
)
async def test_of_very_many_sets_it_is_said_that_they_are_many(source, characters, sets, words):
    entries = [Entry(source.loc(f"{number:0>{characters}}")) for number in range(sets)]
    source.documents["/.well-known/resourcesync"] = rendered("description", entries)
    async with Web() as session:
        with pytest.raises(Rejected, match=words):
            await discover(session, source.url)


@pytest.mark.parametrize(
    ("url", "words"),
    [("ftp://a/", "give one that begins with"), ("example.com", "give one that begins with")],
)
async def test_what_is_no_address_says_so(url, words):
    async with Web() as session:
        with pytest.raises(Rejected, match=words):
            await discover(session, url)


async def test_an_address_that_leads_nowhere_says_so(source):
    async with Web() as session:
        with pytest.raises(Rejected, match="there is nothing at this address: tried were"):
            await discover(session, source.url + "/nothing")


async def test_links_that_go_in_a_circle_end(source):
    async def round_and_round(request: web.Request) -> web.Response:
        other = "/two" if request.path == "/one" else "/one"
        return web.Response(headers={"Link": f'<{other}>; rel="resourcesync"'})

    source.handlers |= {"/one": round_and_round, "/two": round_and_round}
    async with Web() as session:
        with pytest.raises(Rejected, match="in a circle"):
            await discover(session, source.url + "/one")


def test_links_are_read_from_headers_pages_and_robots():
    assert linked('<a>; rel=self, <b>; rel="x resourcesync"', "resourcesync") == "b"
    assert linked('<a>; rel="self"', "resourcesync") is None
    assert linked_in_html("<link href=a rel='ResourceSync'>") == "a"
    assert linked_in_html("<a href=a rel='resourcesync'>") is None
    assert sitemaps_of("User-agent: *\nsitemap: http://a/\nSitemap:http://b/") == [
        "http://a/",
        "http://b/",
    ]
    odd = (
        "\ufeffSitemap : http://a/\rSITEMAP:http://b/\r\n# Sitemap: http://c/\n\tSitemap: http://a/"
    )
    assert sitemaps_of(odd) == ["http://a/", "http://b/"]


def test_a_large_robots_txt_is_read_in_linear_time_whatever_stands_there():
    """In quadratic time this would take an hour."""
    assert sitemaps_of("\n" * 500_000 + "x\nSitemap: http://a/") == ["http://a/"]


SOCKET, TOPIC = "ws://example.com/channel", "http://example.com/channel"
CHANNELS = {
    "1.0.1": (Entry(TOPIC, links=(Link("hub", "http://hub/"),)), (None, TOPIC)),
    "1.0.1 with an alternate": (Entry(TOPIC, links=(Link("alternate", SOCKET),)), (SOCKET, TOPIC)),
    "0.8": (Entry(SOCKET), (SOCKET, None)),
}


@pytest.mark.parametrize("version", CHANNELS)
async def test_channels_of_every_version_are_understood(source, version):
    entry, expected = CHANNELS[version]
    entry = structs.replace(entry, md=Md(capability="change-notification"))
    source.documents["/list.xml"] = rendered("capabilitylist", [entry])
    async with Web() as session:
        found = await discover(session, source.loc("list.xml"))
    assert (found.socket, found.topic) == expected


async def test_documents_of_0_9_are_understood(source):
    """`from` on a Resource List, the relation `resourcesync` where `up` is today, no datetimes."""
    links = (Link("resourcesync", source.url + CAPABILITIES),)
    entry = Entry(source.loc("a.txt"), "2013-01-02T11:00:00Z", md=Md(change="updated"))
    source.documents["/changelist.xml"] = rendered(
        "changelist", [entry], links=links, **{"from": "2013-01-01T11:00:00Z"}
    )
    found = await read(source.loc("changelist.xml"), 1, after="2013-01-01T12:00:00Z")
    assert found == [("updated", "a.txt")]


# Change Lists -----------------------------------------------------------------------------------


async def test_a_source_with_change_lists_only_is_polled_politely(source):
    cursor = str(source.at)
    source.change("a.txt", b"second")
    reading = asyncio.create_task(read(source.url + CAPABILITIES, 2, after=cursor))
    while source.asked["/changelist.xml"] < 3:
        await asyncio.sleep(0.01)
    source.change("a.txt", None)
    assert await reading == [("updated", "a.txt"), ("deleted", "a.txt")]


async def test_what_of_a_change_list_cannot_be_read_is_skipped_and_named_once(source, caplog):
    good = Md(change="updated", datetime=str(source.at))
    wrong = [
        Entry(source.loc("b"), md=Md(change="changed", datetime=str(source.at))),
        Entry(source.loc("c"), md=Md(change="updated", datetime="tomorrow")),
        Entry("", md=good),
        Entry(source.loc("d")),
    ]
    entries = [Entry(source.loc("a"), md=good), *wrong]
    source.documents["/list.xml"] = rendered("changelist", entries)
    following = follow_async(source.loc("list.xml"), position=str(source.at), poll_seconds=QUICK)
    async with asyncio.timeout(60), aclosing(following) as changes:
        assert (await anext(changes)).loc == source.loc("a")
        without = await anext(changes)
        assert (without.loc, without.datetime) == (source.loc("c"), None)
        for number in (1, 2):  # it is read again twice
            at = Position(source.at + number)
            entries.append(Entry(source.loc("e"), md=Md(change="updated", datetime=str(at))))
            source.documents["/list.xml"] = rendered("changelist", entries)
            assert (await anext(changes)).datetime == str(at)
    where = f"skipped: {source.loc('list.xml')}: "
    assert caplog.messages == [
        f"{where}'{source.loc('b')}': change is 'changed'",
        f"{where}the datetime 'tomorrow' of '{source.loc('c')}'",
        f"{where}an entry without loc, with change 'updated'",
        f"{where}'{source.loc('d')}': change is ''",
    ]


@pytest.mark.parametrize("kept", [0, 1])
async def test_a_polled_source_that_was_set_back_is_followed_from_its_end(source, caplog, kept):
    """To a change that it has had, or to none; what comes then is not passed over."""
    source.change("before", b"content")
    after = Position(source.at)
    async with asyncio.timeout(60), aclosing(followed_lists(source, after)) as changes:
        assert (await anext(changes)).loc == source.loc("before")
        moment = source.now
        source.change("lost", b"content")
        assert (await anext(changes)).loc == source.loc("lost")
        del source.changes[kept:]
        source.list_changes()
        found = [asyncio.ensure_future(anext(changes))]
        while not caplog.messages:
            await asyncio.sleep(0.01)
        source.now = moment
        source.change("new", b"content")
        await found[0]
        if kept:  # what is at the cursor may come again
            found.append(asyncio.ensure_future(anext(changes)))
        assert (await found[-1]).loc == source.loc("new")
    (said,) = caplog.messages
    assert "which was read before: the Source was set back" in said
    assert said.endswith("compare it with the Resource List")


def followed_lists(source: Source, after: Position) -> AsyncGenerator[FollowedChange]:
    return follow_async(source.loc("changelist.xml"), position=after, poll_seconds=QUICK)


async def test_whoever_begins_now_gets_nothing_of_before(source):
    source.change("a.txt", b"second")
    reading = asyncio.create_task(read(source.url + CAPABILITIES, 1))
    while source.asked["/changelist.xml"] < 4:
        await asyncio.sleep(0.01)
    source.change("b.txt", b"first")
    assert await reading == [("updated", "b.txt")]


async def test_whoever_begins_now_gets_nothing_of_a_day_that_has_many_changes(source):
    today = Md(change="created", datetime=str(source.at)[:10])
    entries = [Entry(source.loc(str(number)), md=today) for number in range(1_500)]
    source.documents["/list.xml"] = rendered("changelist", entries)
    reading = asyncio.create_task(read(source.loc("list.xml"), 1))
    while source.asked["/list.xml"] < 3:
        await asyncio.sleep(0.01)
    source.documents["/list.xml"] = rendered(
        "changelist", [*entries, Entry(source.loc("new"), md=today)]
    )
    assert await reading == [("created", "new")]


async def test_a_cursor_is_stored_after_a_change_was_dealt_with_and_never_before(source, tmp_path):
    cursor = tmp_path / "cursor"
    cursor.write_text(str(source.at))
    changes = [source.change(f"{number}", b"content") for number in range(3)]
    url = source.url + CAPABILITIES

    async def fail_at_the_second() -> None:
        async with aclosing(follow_async(url, cursor=cursor, poll_seconds=QUICK)) as found:
            async for change in found:
                async with change:
                    assert cursor.read_text().strip() < (change.datetime or "")
                    if change.loc.endswith("/1"):
                        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_at_the_second()
    assert cursor.read_text().split() == [changes[0].datetime, url]
    again = await read(url, 3, cursor)
    assert [name for _, name in again][-2:] == ["1", "2"]


async def test_a_cursor_that_is_later_than_all_changes_stays_there(source, tmp_path):
    source.change("a.txt", b"second")
    cursor, later = tmp_path / "cursor", str(Position(source.now + 1_000_000))
    reading = asyncio.create_task(read(source.url + CAPABILITIES, 1, cursor, after=later))
    while source.asked["/changelist.xml"] < 4:
        await asyncio.sleep(0.01)
    assert not cursor.exists() or cursor.read_text().split()[0] == later
    source.now += 1_000_000
    source.change("b.txt", b"first")
    assert await reading == [("updated", "b.txt")]


async def test_a_poll_that_succeeds_ends_the_trouble_of_the_one_before(source, attempts):
    reading = asyncio.create_task(read(source.url + CAPABILITIES, 1, after=str(source.at)))
    for _ in range(3):
        polls = source.asked["/changelist.xml"]
        while source.asked["/changelist.xml"] < polls + 2:
            await asyncio.sleep(0.01)
        source.handlers["/changelist.xml"] = once_unavailable(source)
    while len(attempts) < 3:
        await asyncio.sleep(0.01)
    source.change("a.txt", b"second")
    assert await reading == [("updated", "a.txt")]
    assert attempts == [0, 0, 0]


def once_unavailable(source: Source) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        del source.handlers[request.path]
        return web.Response(status=503)

    return answer


async def test_closed_lists_are_read_by_their_index_before_the_open_one(source):
    changes = [source.change(f"{number}", b"content") for number in range(3)]
    times = [change.datetime or "" for change in changes]
    parts = {
        "one": (str(source.at), times[0], changes[:1]),
        "two": (times[0], times[1], changes[1:2]),
        "open": (times[1], None, changes[2:]),
    }
    offer_lists(source, parts)
    found = await read(source.url + CAPABILITIES, 3, after=str(source.at))
    assert [name for _, name in found] == ["0", "1", "2"]
    source.asked.clear()
    await read(source.url + CAPABILITIES, 1, after=times[2])
    assert source.asked["/one.xml"] == 0


def offer_lists(
    source: Source, parts: Mapping[str, tuple[str | None, str | None, Sequence[Change]]]
) -> None:
    """Change Lists by their names, each with its `from`, `until` and changes, and their index."""
    entries = []
    for name, (from_, until, part) in parts.items():
        md = Md(capability="changelist", from_=from_, until=until)
        source.documents[f"/{name}.xml"] = render_document(
            Document("urlset", md, (), tuple(map(_entry, part)))
        )
        entries.append(Entry(source.loc(f"{name}.xml"), md=Md(from_=from_, until=until)))
    md = Md(capability="changelist", from_=str(source.at))
    source.documents["/changelist.xml"] = render_document(
        Document("sitemapindex", md, (), tuple(entries))
    )


async def test_whoever_begins_before_the_first_list_gets_all_that_it_lists(source):
    offer_lists(source, {})
    reading = asyncio.create_task(read(source.url + CAPABILITIES, 2))
    while source.asked["/changelist.xml"] < 2:
        await asyncio.sleep(0.01)
    changes = [source.change(f"{number}", b"content") for number in range(2)]
    offer_lists(source, {"open": (str(source.at), None, changes)})
    assert await reading == [("updated", "0"), ("updated", "1")]


async def test_whoever_begins_at_an_open_list_without_changes_begins_behind_the_closed_one(source):
    old = source.change("old", b"content")
    closed = (str(source.at), old.datetime, [old])
    offer_lists(source, {"closed": closed, "open": (None, None, [])})
    reading = asyncio.create_task(read(source.url + CAPABILITIES, 1))
    while source.asked["/changelist.xml"] < 4:
        await asyncio.sleep(0.01)
    new = source.change("new", b"content")
    offer_lists(source, {"closed": closed, "open": (None, None, [new])})
    assert await reading == [("updated", "new")]


async def test_a_list_that_is_closed_after_its_index_was_read_is_found(source):
    """The open list has the same address as before."""
    changes = [source.change(f"{number}", b"content") for number in range(3)]
    begin, *times = [str(source.at), *(change.datetime or "" for change in changes)]
    before = {"open": (begin, None, changes[:2])}
    after = {"old": (begin, times[1], changes[:2]), "open": (times[1], None, changes[2:])}
    offer_lists(source, before)

    async def index(request: web.Request) -> web.Response:
        answer = web.Response(body=source.documents[request.path])
        offer_lists(source, after)
        return answer

    source.handlers["/changelist.xml"] = index
    found = await read(source.url + CAPABILITIES, 3, after=begin)
    assert [name for _, name in found] == ["0", "1", "2"]


async def test_of_lists_that_are_no_longer_named_nothing_is_kept(source):
    times = [str(Position(source.at + each)) for each in range(10)]
    async with Web() as session:
        lists = ChangeLists(session, source.loc("changelist.xml"))
        for from_, until in pairwise(times):
            change = Change(source.loc("a.txt"), "updated", datetime=until)
            offer_lists(source, {until: (from_, until, [change])})
            async with aclosing(lists.after(Position.parse(from_))) as pieces:
                assert [each async for piece in pieces for each in piece.changes] == [change]
        assert len(lists.read) == 1


async def test_a_cursor_that_is_too_old_for_all_lists_is_told(source):
    with pytest.raises(HistoryGone, match="copy the Resource List again"):
        await read(source.url + CAPABILITIES, 1, after="2020-01-01T00:00:00Z")


def _entry(change: Change) -> Entry:
    return Entry(change.loc, md=Md(change=change.change, datetime=change.datetime))


# Channels ---------------------------------------------------------------------------------------


def channel_at(source: Source) -> str:
    return source.url.replace("http", "ws") + "/channel"


def offer(source: Source, channel: Entry) -> str:
    """A Capability List with the Change List and a channel; its address."""
    entries = [
        Entry(source.loc("changelist.xml"), md=Md(capability="changelist")),
        structs.replace(channel, md=Md(capability="change-notification")),
    ]
    source.documents["/list.xml"] = rendered("capabilitylist", entries)
    return source.loc("list.xml")


def notification(from_: str, change: Change) -> str:
    md = {"from": from_, "until": str(change.datetime)}
    return rendered("change-notification", [_entry(change)], **md).decode()


async def test_a_channel_of_0_8_is_bridged_by_the_change_list(source):
    """It has no intervals, no `from` and does not say where it begins."""
    sockets: list[web.WebSocketResponse] = []

    async def channel(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        sockets.append(socket)
        async for _ in socket:
            pass
        return socket

    source.handlers["/channel"] = channel
    address = offer(source, Entry(channel_at(source)))
    source.change("before", b"1")
    reading = asyncio.create_task(read(address, 3, after=str(source.at)))
    while not sockets or source.asked["/changelist.xml"] < 2:
        await asyncio.sleep(0.01)
    change = source.change("live", b"2")
    text = rendered("changelist", [Entry(change.loc, change.lastmod, md=Md(change="updated"))])
    await sockets[0].send_str(text.decode().replace('<rs:md capability="changelist"/>', ""))
    source.change("while away", b"3")
    await sockets[0].close()
    found = await reading
    assert [name for _, name in found] == ["before", "live", "while away"]


async def test_a_cursor_from_before_the_set_was_made_is_its_beginning(source):
    """The hub says where it begins, later than it was asked."""
    asked: list[str] = []

    async def channel(request: web.Request) -> web.WebSocketResponse:
        asked.append(request.query["from"])
        socket = web.WebSocketResponse()
        socket.headers["Rsnotify-From"] = str(source.at)
        await socket.prepare(request)
        await socket.send_str(notification(str(source.at), source.change("first", b"1")))
        return socket

    source.handlers["/channel"] = channel
    assert await read(channel_at(source), 1, after="1970-01-01T00:00:00Z") == [("updated", "first")]
    assert asked == ["1970-01-01T00:00:00.000000Z"]


async def test_a_channel_that_says_that_it_begins_in_the_future_is_not_believed(
    source, tmp_path, caplog
):
    """Whoever stood there would pass over all that comes until then, and keep that place."""
    kept, first = FileCursor(tmp_path / "cursor"), source.change("first", b"1")

    async def channel(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        socket.headers["Rsnotify-From"] = "2999-01-01T00:00:00.000000Z"
        await socket.prepare(request)
        await socket.send_str(notification(str(source.at), first))
        return socket

    source.handlers["/channel"] = channel
    assert await read(channel_at(source), 1, kept) == [("updated", "first")]
    assert kept.load() == Position.parse(str(first.datetime))
    assert "where a channel begins: 2999-01-01T00:00:00.000000Z has not come yet" in caplog.text


async def test_what_a_channel_no_longer_has_is_read_from_the_change_list(source):
    asked: list[str] = []
    missed = source.change("missed", b"1")

    async def channel(request: web.Request) -> web.WebSocketResponse:
        asked.append(request.query["from"])
        socket = web.WebSocketResponse()
        socket.headers["Rsnotify-From"] = request.query["from"]
        await socket.prepare(request)
        if len(asked) == 1:
            await socket.close(code=4410, message=b"what is kept begins later")
            return socket
        await socket.send_str(notification(str(missed.datetime), source.change("live", b"2")))
        return socket

    source.handlers["/channel"] = channel
    link = Link("alternate", channel_at(source))
    address = offer(source, Entry(source.loc("channel"), links=(link,)))
    found = await read(address, 2, after=str(source.at))
    assert found == [("updated", "missed"), ("updated", "live")]
    assert asked == [str(source.at), str(missed.datetime)]


def offer_channel(source: Source, *, too_old: int) -> str:
    """A channel that is `too_old` so many times, and then tells of a change. Its address."""
    connections = 0

    async def channel(request: web.Request) -> web.WebSocketResponse:
        nonlocal connections
        connections += 1
        socket = web.WebSocketResponse()
        socket.headers["Rsnotify-From"] = request.query["from"]
        await socket.prepare(request)
        if connections <= too_old:
            await socket.close(code=4410, message=b"what is kept begins later")
            return socket
        change = structs.replace(source.change("live", b"2"), loc=source.loc("live"))
        await socket.send_str(notification(request.query["from"], change))
        return socket

    source.handlers["/channel"] = channel
    return channel_at(source)


async def test_a_channel_that_stays_too_old_is_asked_again_after_longer_and_longer_pauses(
    source, attempts
):
    """The Change List tells nothing new, as a cache does that is not up to date."""
    link = Link("alternate", offer_channel(source, too_old=4))
    address = offer(source, Entry(source.loc("channel"), links=(link,)))
    found = await read(address, 1, after=str(source.at))
    assert found == [("updated", "live")]
    assert attempts == [1, 2, 3]


async def test_a_source_that_cannot_be_asked_for_its_lists_is_asked_again(source, attempts):
    """Its channel is known by its ws address alone, and is too old at that moment."""
    address = offer_channel(source, too_old=1)
    followed, asked = source.handlers["/channel"], 0

    async def channel(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        if request.headers.get("Upgrade"):
            return await followed(request)
        asked += 1
        return web.Response(
            status=503 if asked < 4 else 200,
            headers={"Link": f'<{CAPABILITIES}>; rel="resourcesync"'},
        )

    source.handlers["/channel"] = channel
    found = await read(address, 1, after=str(source.at))
    assert found == [("updated", "live")]
    assert attempts == [0]


async def page(_: web.Request) -> web.Response:
    """What a server says while it is mended."""
    return web.Response(text="<html>Back soon", content_type="text/html")


async def nothing(_: web.Request) -> web.Response:
    return web.Response(status=404)


INSTEAD = pytest.mark.parametrize(
    ("instead", "said"),
    [
        (page, "is no channel: it sent a page in HTML, neither a WebSocket nor an event stream"),
        (nothing, "the answer was 404"),
    ],
)


@INSTEAD
async def test_a_channel_that_was_read_and_is_not_there_for_a_while_is_waited_for(
    source, attempts, caplog, instead, said
):
    address = offer(source, Entry(offer_channel(source, too_old=0)))
    serve = source.handlers["/channel"]

    async def channel(request: web.Request) -> web.StreamResponse:
        is_away = 1 < source.asked["/channel"] <= 5
        return await (instead if is_away else serve)(request)

    source.handlers["/channel"] = channel
    assert await read(address, 2, after=str(source.at)) == [("updated", "live")] * 2
    assert attempts == [0, 1, 2]  # the connection was lost, then two requests each
    assert f"{said}, but the Source was read before; trying again in" in caplog.text


@INSTEAD
async def test_so_is_one_of_several_sets(source, attempts, caplog, instead, said):
    path = "/channels/change_notification_channel"

    async def channel(request: web.Request) -> web.StreamResponse:
        if 1 < source.asked[path] <= 5:
            return await instead(request)
        socket = web.WebSocketResponse()
        socket.headers["Rsnotify-From"] = f"x@{source.at}"
        await socket.prepare(request)
        return socket

    source.handlers[path] = channel
    follower = SetsFollower(source.url, {"x": source.at})
    async with asyncio.timeout(60), aclosing(aiter(follower)) as pieces:
        assert [(await anext(pieces))[0] for _ in range(2)] == ["x", "x"]
    assert f"{said}, but the Source was read before; trying again in" in caplog.text


@pytest.mark.parametrize(
    ("status", "mend"),
    [
        (403, "give a token that may read it"),
        (404, "give the address of its Capability List"),
        (200, "give the address of its Capability List"),
    ],
)
async def test_the_http_address_of_a_channel_that_is_none_ends_at_once_and_says_what_to_give(
    source, status, mend
):
    path = "channels/set/change_notification_channel"
    source.answer(f"/{path}", "<html>no", status=status, content_type="text/html")
    with pytest.raises(Refused, match=f"{path}.*{mend}"):
        await read(source.loc(path), 1, after=str(source.at))
    assert source.asked[f"/{path}"] == 1


@INSTEAD
async def test_one_that_never_was_there_ends_at_once(source, instead, said):
    source.handlers["/channel"] = instead
    with pytest.raises(NoChannel, match=said):
        await read(channel_at(source), 1, after=str(source.at))


async def test_the_line_that_a_channel_does_not_answer_names_its_server(source, attempts, caplog):
    """It is not the address that was given."""
    entry = Entry("ws://u:secret@127.0.0.1:9/channel", md=Md(capability="change-notification"))
    source.documents["/list.xml"] = rendered("capabilitylist", [entry])
    reading = asyncio.create_task(read(source.loc("list.xml"), 1))
    while not attempts:
        await asyncio.sleep(0.01)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    said = "the server at 127.0.0.1:9 cannot be reached (connection refused); trying again in 0.1 s"
    assert caplog.messages[0] == said


async def test_the_line_that_a_channel_is_followed_names_its_address(source, caplog):
    caplog.set_level("INFO")
    address = offer_channel(source, too_old=0)
    entry = Entry(f"{address}?access_token=x", md=Md(capability="change-notification"))
    source.documents["/list.xml"] = rendered("capabilitylist", [entry])
    await read(source.loc("list.xml"), 1, after=str(source.at))
    assert caplog.messages[0] == f"following {address}"


async def test_a_framework_channel_is_followed_by_its_http_address(source):
    async def channel(request: web.Request) -> web.Response:
        change = Change(source.loc("changelist.xml"), "updated", datetime=str(source.at))
        text = rendered("framework-notification", [_entry(change)], **md)
        data = "".join(f"data: {line}\n" for line in text.decode().splitlines())
        return web.Response(text=data + "\n", content_type="text/event-stream")

    md = {"from": str(source.at), "until": str(source.at)}
    path = "/channels/set/framework_notification_channel"
    source.handlers[path] = channel
    assert await read(source.url + path, 1) == [("updated", "changelist.xml")]


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection on which nothing comes is silent soon."""
    monkeypatch.setattr(live, "QUIET_SECONDS", 0.1)


@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize("answers_pings", [True, False])
async def test_a_silent_connection_is_asked_and_given_up_if_it_does_not_answer(
    source, answers_pings, monkeypatch
):
    if not answers_pings:
        monkeypatch.setattr(live, "PONG_SECONDS", 0.5)
    pings: list[int] = []
    connections = 0

    async def channel(request: web.Request) -> web.WebSocketResponse:
        nonlocal connections
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        connections += 1
        async for message in socket:
            if message.type is WSMsgType.PING:
                pings.append(connections)
                if answers_pings:
                    await socket.pong(message.data)
        return socket

    source.handlers["/channel"] = channel
    follower = Follower(channel_at(source))
    async with asyncio.timeout(20), aclosing(aiter(follower)) as pieces:
        reading = asyncio.create_task(anext(pieces))
        while len(pings) < 3:
            await asyncio.sleep(0.01)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    assert pings == ([1, 1, 1] if answers_pings else [1, 2, 3])


@pytest.mark.usefixtures("_soon")
async def test_a_frozen_network_is_noticed_though_a_source_does_not_say_where_it_begins(
    source, monkeypatch
):
    """What changed meanwhile stands in its Change List."""
    monkeypatch.setattr(live, "PONG_SECONDS", 0.5)

    async def channel(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for _ in socket:
            pass
        return socket

    source.handlers["/channel"] = channel
    async with asyncio.timeout(20), Proxy(int(source.url.rpartition(":")[2])) as proxy:
        follower = Follower(offer(source, Entry(f"ws://127.0.0.1:{proxy.port}/channel")))
        async with aclosing(aiter(follower)) as pieces:
            await anext(pieces)
            proxy.freeze()
            reading = asyncio.create_task(anext(pieces))
            accepted = proxy.accepted
            source.change("meanwhile", b"1")
            while proxy.accepted == accepted:
                await asyncio.sleep(0.01)
            proxy.thaw()
            assert [change.loc for change in (await reading).changes] == [source.loc("meanwhile")]


async def test_a_hub_is_followed_from_any_address_while_it_is_killed(hub, tmp_path):
    """WebSocket, event stream, site and set; each from its own cursor, to the very end."""
    first = await hub.publish("http://example.com/first")
    topic = hub.channel().replace("ws", "http", 1)
    addresses = (hub.url, hub.channel(), topic, f"{hub.url}/dataset1/capabilitylist.xml")
    reading = [
        asyncio.create_task(read(url, 4, tmp_path / str(number), after=first["until"]))
        for number, url in enumerate(addresses)
    ]
    await hub.publish("http://example.com/one")
    await hub.kill()
    await hub.start()
    await hub.publish("http://example.com/two", "http://example.com/three")
    await hub.publish("http://example.com/four")
    for found in await asyncio.gather(*reading):
        names = [name for _, name in found if name != "first"]
        assert names == ["one", "two", "three", "four"][: len(names)]

    def in_a_thread() -> list[str]:
        names = []
        for change in follow(hub.url, position=first["until"]):
            with change:
                names.append(change.loc.rpartition("/")[2])
            if names[-1] == "four":
                return names
        return names

    assert (await asyncio.to_thread(in_a_thread))[-4:] == ["one", "two", "three", "four"]


async def test_where_it_began_is_kept_before_anything_came(hub, tmp_path):
    first = await hub.publish("http://example.com/first")
    cursor = tmp_path / "cursor"
    reading = asyncio.create_task(read(hub.url, 1, cursor))
    while not cursor.exists():
        await asyncio.sleep(0.01)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert cursor.read_text().split() == [first["until"], hub.url]
    await hub.publish("http://example.com/second")
    assert await read(hub.url, 1, cursor) == [("updated", "second")]


async def test_a_set_that_is_none_is_refused_at_once(hub):
    with pytest.raises(Rejected, match="there is no set 'none'"):
        await read(hub.channel("none"), 1)
