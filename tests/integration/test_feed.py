"""A set's feed and its activities over a real Redis: read by their protocols, while they age."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
from lxml import etree

from rsnotify.access.access import Access
from rsnotify.access.base_url import BaseUrl
from rsnotify.access.tokens import Tokens
from rsnotify.documents.responses import SetAdmission
from rsnotify.journal.window import Span
from rsnotify.journal.windows import Windows
from rsnotify.process.app import build_app, paged_view_routes
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import Change, Position
from rsnotify.sets.options import SetOptions
from rsnotify.views.journal_pages import AT_ONCE, PAGE_CHANGES, JournalPages
from rsnotify.views.paged_views import archive_path, feed_path
from rsnotify.views.view_answers import ViewAnswers
from tests.integration.test_oai import in_a_later_second
from tests.support.amount import enough
from tests.support.faults import Losing
from tests.support.pulling import BASE, CHANGES, SET, Answer, Pulling, loc
from tests.support.running import TOKEN, until

ATOM = "{http://www.w3.org/2005/Atom}"
DELETED = "{http://purl.org/atompub/tombstones/1.0}deleted-entry"


class Document(NamedTuple):
    """One document of a feed."""

    answer: Answer
    root: etree._Element

    @property
    def changes(self) -> list[tuple[str, str, bool]]:
        """When, what, and whether it was deleted, oldest first."""
        found = [
            (each.get("when"), each.get("ref"), True)
            if each.tag == DELETED
            else (each.findtext(f"{ATOM}updated"), each.findtext(f"{ATOM}id"), False)
            for each in self.root.iterchildren(f"{ATOM}entry", DELETED)
        ]
        return found[::-1]

    def link(self, rel: str) -> str | None:
        found = self.root.find(f"{ATOM}link[@rel='{rel}']")
        return None if found is None else found.get("href")


class Feed:
    """The endpoint of one hub."""

    def __init__(self, pulling: Pulling) -> None:
        self.pulling = pulling
        access = Access(Tokens(pulling.client), TOKEN)
        admission = SetAdmission(pulling.hub, access, BaseUrl(BASE))
        self.answers = ViewAnswers()
        pages = JournalPages(pulling.hub, pulling.windows)
        self.app = build_app(paged_view_routes(admission, pages, self.answers))

    async def ask(self, path: str = feed_path(SET), **headers: str) -> Answer:
        return await self.pulling.get(path.removeprefix(BASE), app=self.app, **headers)

    async def document(self, path: str = feed_path(SET)) -> Document:
        answer = await self.ask(path)
        assert answer.status == 200, answer.body
        return Document(answer, etree.fromstring(answer.body))

    async def documents(self) -> dict[str, Document]:
        """All of them, from the newest on, each by its address."""
        found = {}
        place: str | None = feed_path(SET)
        while place is not None:
            assert place not in found
            found[place] = await self.document(place)
            place = found[place].link("prev-archive")
        return found


async def published(pulling: Pulling) -> list[tuple[str, str, bool]]:
    created = (await pulling.windows.record(SET)).created
    rows = await pulling.hub.history.read(CHANGES, created, until=await end(pulling), count=10**6)
    found = []
    for at, fragment in rows:
        text = fragment.decode()
        name = text.partition("<loc>")[2].partition("<")[0]
        found.append((str(at), name, 'change="deleted"' in text))
    return found


async def end(pulling: Pulling):
    return (await pulling.windows.record(SET)).head


async def change(pulling: Pulling, count: int, chosen: random.Random) -> None:
    changes = [
        Change(loc(str(chosen.randrange(50))), chosen.choice(("created", "updated", "deleted")))
        for _ in range(count)
    ]
    if changes:
        await pulling.publish(*changes)


@pytest.mark.parametrize("seed", enough(range(6), 2))
@pytest.mark.parametrize("window", [10_000, 100, 130, 250])
async def test_all_that_was_published_is_in_the_feed_and_its_archives_and_these_stay(
    client: Client, seed: int, window: int
):
    """An archive that a reader has had stays the same, however the journal is kept by then."""
    chosen, had = random.Random(seed), dict[str, list[tuple[str, str, bool]]]()
    async with Pulling(client, changes=window) as pulling:
        feed = Feed(pulling)
        for _ in range(6):
            await change(pulling, chosen.choice((0, 1, 40, 99, 100, 101, 230)), chosen)
            if chosen.random() < 0.4:
                await pulling.keep_windows()
                await pulling.let_go_of_all()
            documents = await feed.documents()
            newest, *archives = documents
            told = {each for found in documents.values() for each in found.changes}
            assert sorted(told) == await published(pulling)
            pages = [documents[name].changes for name in archives]
            each_once = [each for page in pages for each in page]
            assert len(each_once) == len({*each_once})
            for name in archives:
                assert had.setdefault(name, documents[name].changes) == documents[name].changes
            assert {*had} == {*archives}
            assert len(documents[newest].changes) <= 2 * PAGE_CHANGES


@pytest.fixture
async def feed(client: Client) -> AsyncIterator[Feed]:
    """Of a set whose Change List does not close."""
    async with Pulling(client) as pulling:
        yield Feed(pulling)


async def test_an_archive_says_what_it_is_and_may_be_kept_once_it_is_full(feed):
    await feed.pulling.update(*(str(number) for number in range(150)))
    newest = await feed.document()
    assert newest.answer.headers["content-type"] == "application/atom+xml"
    assert newest.answer.headers["cache-control"] == "public, no-cache"
    address = newest.link("prev-archive")
    assert address is not None
    archive = await feed.document(address)
    assert archive.link("self") == address
    assert archive.link("current") == BASE + feed_path(SET)
    assert archive.root.find("{http://purl.org/syndication/history/1.0}archive") is not None
    assert archive.answer.headers["cache-control"] == "public, max-age=60"
    unfinished = await feed.document(archive_path(SET, archive.changes[-1][0]))
    assert len(unfinished.changes) == 150 - PAGE_CHANGES
    assert unfinished.answer.headers["cache-control"] == "public, no-cache"


async def test_a_feed_that_its_reader_has_is_not_sent_again(feed):
    await feed.pulling.update("a")
    tag = (await feed.ask()).headers["etag"]
    again = await feed.ask(if_none_match=tag)
    assert (again.status, again.body) == (304, b"")
    await feed.pulling.update("b")
    assert (await feed.ask(if_none_match=tag)).status == 200


async def test_a_page_begins_where_a_list_begins_that_time_has_closed(client):
    async with Pulling(client, hours=1 / 3_600) as pulling:
        feed = Feed(pulling)
        for name in "abc":
            at = await pulling.update(name)
            await in_a_later_second(pulling, at.until)
            await pulling.keep_windows()
        windows = (await pulling.windows.span(SET)).windows
        assert [each.changes for each in windows] == [1, 1, 1]
        assert [*(await feed.documents())][1:] == [
            BASE + archive_path(SET, each.from_) for each in reversed(windows)
        ]


async def test_an_archive_of_a_set_that_was_made_again_is_gone(pulling):
    at = await pulling.update("a")
    await pulling.hub.remove_set(SET)
    await pulling.hub.add_set(SET, SetOptions())
    assert (await Feed(pulling).ask(archive_path(SET, at.until))).status == 410


async def test_a_set_without_changes_has_an_empty_feed(pulling):
    found = await Feed(pulling).document()
    assert (found.changes, found.link("prev-archive")) == ([], None)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/{SET}/feed/9999-12-31T23:59:59.999999Z.atom", 404),
        (f"/{SET}/feed/1970-01-01T00:00:00.000000Z.atom", 404),
        (f"/{SET}/feed/2026-11-20.atom", 404),
        (f"/{SET}/feed/2026-11-20T00:00:00Z.atom", 404),
        (f"/{SET}/feed/x.atom", 404),
        ("/none/feed.atom", 404),
        (f"/{SET}/feed.atom?limit=5", 400),
    ],
)
async def test_where_no_page_is_there_is_none(pulling, path, status):
    answer = await Feed(pulling).ask(path)
    assert answer.status == status


async def test_what_is_no_longer_kept_is_gone_and_nothing_leads_there(client):
    async with Pulling(client, changes=100) as pulling:
        feed = Feed(pulling)
        for number in range(3):
            await pulling.update(*(f"{number}-{each}" for each in range(100)))
        before = await feed.documents()
        await pulling.keep_windows()
        await pulling.let_go_of_all()
        (oldest, *_) = (await pulling.windows.span(SET)).windows
        await pulling.windows.forget(SET, [oldest])
        after = await feed.documents()
        assert len(after) == len(before) - 1
        (gone,) = before.keys() - after.keys()
        assert (await feed.ask(gone)).status == 410


async def test_no_feed_leads_across_a_loss(pulling):
    await pulling.update("a", "b")
    feed = Feed(pulling)
    (_, archive) = await archived(feed, pulling)
    async with Losing(pulling.client, f"rsnotify:{{{SET}}}*"):
        await pulling.update("lost")
        await feed.ask()
    await pulling.hub.losses.look(pulling.hub.feed(CHANGES))
    await pulling.update("after")
    documents = await feed.documents()
    told = [each[1] for found in documents.values() for each in found.changes]
    assert loc("after") in told
    assert loc("lost") not in told
    assert archive not in documents


async def archived(feed: Feed, pulling: Pulling) -> list[str]:
    await pulling.update("c")
    return [*(await feed.documents())]


async def test_four_documents_are_read_at_once(pulling):
    """Whoever comes then waits: each may unpack a whole Change List."""
    await pulling.update("a")
    inside, most, may_go_on = 0, 0, asyncio.Event()

    class HeldWindows(Windows):
        async def span(self, set_name: str, *, after: Position | None = None) -> Span:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await may_go_on.wait()
            inside -= 1
            return await super().span(set_name, after=after)

    pulling.windows = HeldWindows(pulling.client)
    feed, begin = Feed(pulling), (await pulling.windows.record(SET)).window_from
    paths = [feed_path(SET), archive_path(SET, begin)] * AT_ONCE
    reading = [asyncio.create_task(feed.ask(path)) for path in paths]

    async def is_full() -> bool:
        return inside >= AT_ONCE

    await until(is_full)
    may_go_on.set()
    assert {answer.status for answer in await asyncio.gather(*reading)} == {200}
    assert most == AT_ONCE == 4


async def test_a_feed_can_be_left_out(pulling):
    feed = Feed(pulling)
    await pulling.hub.edit_set(SET, {"atom": False})
    refused = await feed.ask()
    assert (refused.status, b"--atom" in refused.body) == (404, True)


# --- activities -----------------------------------------------------------------------------------


async def activities(feed: Feed) -> dict[str, dict[str, Any]]:
    """Every page by its address, from the last one back."""
    collection = json.loads((await feed.ask(f"/{SET}/activities")).body)
    found: dict[str, dict[str, Any]] = {}
    place = collection["last"]["id"]
    while place:
        answer = await feed.ask(place)
        assert answer.status == 200, answer.body
        found[place] = page = json.loads(answer.body)
        assert (page["id"], page["partOf"]["id"]) == (place, collection["id"])
        place = page.get("prev", {}).get("id")
    return found


@pytest.mark.parametrize("seed", enough(range(4), 2))
@pytest.mark.parametrize("window", [10_000, 100, 130])
async def test_the_pages_of_activities_are_all_changes_once_and_keep_their_content(
    client: Client, seed: int, window: int
):
    """Walked from the last page back; and each page leads on to the one that came from it."""
    chosen, had = random.Random(seed), dict[str, list[dict[str, Any]]]()
    async with Pulling(client, changes=window) as pulling:
        await pulling.hub.edit_set(SET, {"iiif": "Manifest"})
        feed = Feed(pulling)
        for _ in range(6):
            await change(pulling, chosen.choice((1, 40, 99, 100, 101, 230)), chosen)
            if chosen.random() < 0.4:
                await pulling.keep_windows()
                await pulling.let_go_of_all()
            pages = await activities(feed)
            items = [item for page in reversed(pages.values()) for item in page["orderedItems"]]
            told = [
                (item["endTime"], item["object"]["id"], item["type"] == "Delete") for item in items
            ]
            assert told == await published(pulling)
            newest, *older = pages
            assert "next" not in pages[newest]
            following = [pages[name]["next"]["id"] for name in older]
            assert following == [*pages][: len(older)]
            for name, page in pages.items():
                before = had.setdefault(name, page["orderedItems"])
                assert page["orderedItems"][: len(before)] == before
                had[name] = page["orderedItems"]


async def test_activities_are_only_of_what_is_something_to_iiif(feed):
    await feed.pulling.update("a")
    refused = await feed.ask(f"/{SET}/activities")
    assert (refused.status, b"--iiif Manifest" in refused.body) == (404, True)
    assert not any(feed.answers.values())
    await feed.pulling.hub.edit_set(SET, {"iiif": "Collection"})
    answer = await feed.ask(f"/{SET}/activities")
    assert answer.headers["content-type"].startswith("application/ld+json;profile=")
    ((_, page),) = (await activities(feed)).items()
    (item,) = page["orderedItems"]
    assert item["object"] == {"id": loc("a"), "type": "Collection"}
    assert feed.answers == {"oai": 0, "atom": 0, "iiif": 3}


async def test_a_set_without_changes_has_one_page_without_activities(feed):
    await feed.pulling.hub.edit_set(SET, {"iiif": "Manifest"})
    ((_, page),) = (await activities(feed)).items()
    assert (page["orderedItems"], "prev" in page, "next" in page) == ([], False, False)
