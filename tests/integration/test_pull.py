"""What can be pulled, on a real Redis: every document, its conditions, its end."""

import asyncio
import gzip
from collections.abc import Callable, Iterable, Iterator, Sequence
from email.utils import formatdate, parsedate_to_datetime
from functools import partial
from itertools import pairwise
from threading import get_ident
from time import time_ns
from typing import Any

import pytest

from rsnotify.coordination import keys
from rsnotify.coordination.claims import Claim
from rsnotify.coordination.clock import ClockHistory, redis_now
from rsnotify.documents import announcements, changelists, discovery, documents, resourcelists
from rsnotify.documents.documents import Snapshot, change_list
from rsnotify.documents.snapshots import Snapshots
from rsnotify.documents.stretches import ReadSizes, Stretches
from rsnotify.errors import NoSuchSet, StoreFull, TryAgain
from rsnotify.journal.gzip_parts import PackedEntries
from rsnotify.journal.journal_store import JournalStore
from rsnotify.journal.submission import fragment_of
from rsnotify.journal.window import STRETCH_CHANGES, JournalRecord, Window, last_edge
from rsnotify.journal.witness import Witness
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import (
    DAY,
    HOUR,
    MICROSECONDS,
    MINUTE,
    Change,
    Position,
    render_datetime,
)
from rsnotify.resourcesync.change_rules import URI_CHARACTERS
from rsnotify.resourcesync.notification import Interval
from rsnotify.resourcesync.tables import MAX_BYTES
from rsnotify.sets.options import SetOptions, SetRecord
from tests.support.faults import Losing, out_of_memory
from tests.support.hubs import submission
from tests.support.packing import pack
from tests.support.pulling import BASE, CHANGES, FRAMEWORK, SET, Answer, Pulling, loc, names
from tests.support.running import TOKEN, until

DESCRIPTION = "/.well-known/resourcesync"
OPEN = f"/{SET}/changelist.xml"
INDEX = f"/{SET}/changelist-index.xml"
RESOURCES = f"/{SET}/resourcelist.xml"
ADMIN = {"authorization": f"Bearer {TOKEN}"}
MILLISECOND = 1 / 3_600_000


in_small_parts = pytest.mark.parametrize(
    "pulling", [{"part_resources": 2, "slice_resources": 1}], indirect=True, ids=[""]
)


def _said(fragment: bytes) -> tuple[str, str, str]:
    def between(before: bytes, after: bytes) -> str:
        return fragment.partition(before)[2].partition(after)[0].decode()

    path = between(b"<loc>", b"<").removeprefix(BASE)
    return between(b'capability="', b'"'), between(b'change="', b'"'), path


# Discovery -------------------------------------------------------------------------------------


async def test_the_source_description_names_public_sets_only(pulling):
    await pulling.hub.add_set("secret", SetOptions(private=True))
    await pulling.hub.add_set("other", SetOptions(describedby="http://example.com/about"))
    document = await pulling.document("/.well-known/resourcesync")
    assert [entry.loc for entry in document.entries] == [
        f"{BASE}/dataset1/capabilitylist.xml",
        f"{BASE}/other/capabilitylist.xml",
    ]
    assert [link.href for link in document.entries[1].links] == ["http://example.com/about"]


class Rendered:
    """Counts how often entries of the Source Description are rendered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entries = 0
        for name in ("render_entries", "render_entries_json"):
            monkeypatch.setattr(discovery, name, partial(self._count, getattr(discovery, name)))

    def _count(self, render: Callable[..., bytes], *arguments: Any) -> bytes:
        self.entries += len(arguments[-1])
        return render(*arguments)


@pytest.mark.parametrize("accept", ["application/xml", "application/json"])
async def test_the_source_description_is_rendered_once_for_each_change_of_the_sets(
    client, monkeypatch, accept
):
    rendered = Rendered(monkeypatch)
    async with Pulling(client, public_url=None) as pulling:
        answers = [
            await pulling.get(DESCRIPTION, host=f"h{number}", accept=accept) for number in range(9)
        ]
        assert rendered.entries == 1
        for number, each in enumerate(answers):
            assert f"http://h{number}/{SET}/capabilitylist".encode() in each.body
        tags = {each.headers["etag"] for each in answers}
        assert len(tags) == 9
        first = answers[0].headers["etag"]
        again = await pulling.get(DESCRIPTION, host="h0", accept=accept, if_none_match=first)
        assert (again.status, rendered.entries) == (304, 1)
        await pulling.hub.add_set("other")
        again = await pulling.get(DESCRIPTION, host="h0", accept=accept, if_none_match=first)
        assert (again.status, rendered.entries) == (200, 3)
        assert b"http://h0/other/capabilitylist.xml" in again.body
        await pulling.hub.edit_set("other", {"private": True})
        again = await pulling.get(DESCRIPTION, host="h0", accept=accept)
        assert again.headers["etag"] == first
        assert again.body == answers[0].body


def part(number: int) -> str:
    return f"{DESCRIPTION}/{number}.xml"


@pytest.fixture
async def divided(client):
    """Five sets, two in each Source Description, and a private one among them."""
    async with Pulling(client, most_described=2) as pulling:
        for name in ("a", "b", "x", "y"):
            await pulling.hub.add_set(name)
        await pulling.hub.add_set("c", SetOptions(private=True))
        yield pulling


async def test_more_sets_than_one_source_description_may_name_have_several_and_an_index(divided):
    index = await divided.document(DESCRIPTION)
    assert (index.root, index.md.capability) == ("sitemapindex", "description")
    assert [entry.loc for entry in index.entries] == [f"{BASE}{part(each)}" for each in (1, 2, 3)]
    named = []
    for entry in index.entries:
        description = await divided.document(entry.loc)
        assert (description.root, description.md.capability) == ("urlset", "description")
        links = {link.rel: link.href for link in description.links}
        assert links["index"] == f"{BASE}{DESCRIPTION}"
        named.append([each.loc.split("/")[3] for each in description.entries])
        for each in description.entries:
            ups = [link.href for link in (await divided.document(each.loc)).links]
            assert ups[0] == entry.loc
    assert named == [["a", "b"], ["dataset1", "x"], ["y"]]


async def test_only_as_many_source_descriptions_as_are_needed_are_there(divided):
    for wrong in ("0", "4", "01", "+1", "1" * 5_000, "x", "\u0661"):
        assert (await divided.get(part(wrong))).status == 404
    await divided.hub.edit_set("y", {"private": True})
    assert (await divided.get(part(3))).status == 404
    for name in ("a", "b"):
        await divided.hub.edit_set(name, {"private": True})
    only = await divided.document(DESCRIPTION)
    assert [entry.loc.split("/")[3] for entry in only.entries] == ["dataset1", "x"]
    assert {link.rel for link in only.links} == {"describedby"}
    assert (await divided.get(part(1))).status == 404
    up = (await divided.document(f"/{SET}/capabilitylist.xml")).links[0]
    assert up.href == f"{BASE}{DESCRIPTION}"


@pytest.mark.parametrize("path", [DESCRIPTION, part(2)])
async def test_each_of_several_source_descriptions_has_its_forms_and_conditions(divided, path):
    plain = await divided.get(path)
    zipped = await divided.get(path, accept_encoding="gzip")
    assert gzip.decompress(zipped.body) == plain.body
    head = await divided.get(path, method="HEAD")
    assert (head.status, head.body, head.headers["etag"]) == (200, b"", plain.headers["etag"])
    in_json = await divided.get(path, accept="application/json")
    assert (in_json.status, in_json.headers["content-type"]) == (200, "application/json")
    tags = {"if_none_match": plain.headers["etag"]}
    assert (await divided.get(path, **tags)).status == 304
    await divided.hub.add_set("aa")
    is_moved = (await divided.get(path, **tags)).status
    assert is_moved == (200 if path != DESCRIPTION else 304)  # the index names no set


async def test_of_several_source_descriptions_one_is_said_and_never_the_index(divided):
    await divided.upkeep.announcements.announce_description()
    assert await said(divided) == [("description", "updated", part(1))]
    first = (await divided.journal.standings([FRAMEWORK]))[0].first
    ((_, row),) = await divided.journal.read(FRAMEWORK, first, count=10)
    assert f'rel="index" href="{BASE}{DESCRIPTION}"'.encode() in row


async def test_the_public_sets_are_put_in_order_once_for_all_that_names_them(divided, monkeypatch):
    """Source Descriptions, what is announced of them, Capability Lists, robots.txt."""
    orders = []

    def count(records: Iterable[SetRecord], **by: Any) -> list[SetRecord]:
        orders.append(sorted(records, **by))
        return orders[-1]

    for module in (discovery, documents, announcements):
        monkeypatch.setattr(module, "sorted", count, raising=False)
    for change in range(1, 3):
        await divided.hub.edit_set("y", {"describedby": f"http://example.com/{change}"})
        for path in (DESCRIPTION, part(1), part(3), f"/{SET}/capabilitylist.xml", "/robots.txt"):
            assert (await divided.get(path)).status == 200
        await divided.upkeep.announcements.announce_description()
        assert len(orders) == change


@pytest.mark.parametrize(("sets", "parts"), [(50_000, 0), (50_001, 2)])
async def test_a_source_description_names_as_many_sets_as_a_document_may_have(client, sets, parts):
    async with Pulling(client) as pulling:
        known = pulling.hub.known
        for number in range(sets - 1):
            name = f"s{number}"
            known.records[name] = SetRecord(name=name, created="", edited="")
        known.revision += 1
        named = [part(number + 1) for number in range(parts)] or [DESCRIPTION]
        counts = [(await pulling.get(path)).body.count(b"<url>") for path in named]
        assert counts == ([50_000, 1] if parts else [50_000])
        assert (await pulling.get(DESCRIPTION)).body.count(b"<sitemap>") == parts


@pytest.mark.evidence
async def test_fewer_sets_with_long_addresses_have_several_source_descriptions(client):
    described_by = "http://example.com/".ljust(URI_CHARACTERS, "&")
    async with Pulling(client) as pulling:
        known = pulling.hub.known
        for number in range(5_100):
            name = f"a{number}"  # before the set that is there
            known.records[name] = SetRecord(
                name=name, created="", edited="", describedby=described_by
            )
        known.revision += 1
        parts = [(await pulling.get(part(number))).body for number in (1, 2)]
        assert sum(each.count(b"<url>") for each in parts) == 5_101
        assert max(map(len, parts)) <= MAX_BYTES
        up = (await pulling.document(f"/{SET}/capabilitylist.xml")).links[0]
        assert up.href == f"{BASE}{part(2)}"


async def capabilities(pulling: Pulling, path: str = "capabilitylist.xml") -> dict[str, str]:
    document = await pulling.document(f"/{SET}/{path}")
    return {entry.md.capability: entry.loc for entry in document.entries}


async def test_no_resource_list_is_unpacked_by_the_event_loop(pulling, monkeypatch):
    """Others would wait, 200 times as long if 200 ask for one."""
    threads, pieces = set[int](), PackedEntries.pieces

    def recorded(packed: PackedEntries) -> Iterator[bytes]:
        threads.add(get_ident())
        yield from pieces(packed)

    monkeypatch.setattr(PackedEntries, "pieces", recorded)
    await pulling.update("a", "b")
    await pulling.upkeep.snapshots.take(SET)
    for query in ("", "?format=json", "?limit=1"):
        assert (await pulling.get(f"/{SET}/resourcelist.xml{query}")).status == 200
    assert threads
    assert get_ident() not in threads


async def test_a_capability_list_names_what_is_there(pulling):
    before = await capabilities(pulling)
    assert before.keys() == {"changelist", "change-notification", "framework-notification"}
    await pulling.update("a")
    await pulling.upkeep.snapshots.take(SET)
    assert (await capabilities(pulling))["resourcelist"] == BASE + RESOURCES


async def test_its_twin_names_websocket_addresses(pulling):
    twin = await capabilities(pulling, "capabilitylist-ws.xml")
    assert twin["change-notification"] == f"ws://hub.example.org{CHANGES.path}"
    assert twin["changelist"] == BASE + INDEX


async def test_robots_find_the_resource_lists_of_public_sets(pulling):
    await pulling.hub.add_set("secret", SetOptions(private=True))
    await pulling.hub.add_set("b", SetOptions(resourcelist="http://example.com/list.xml"))
    await pulling.update("a")
    await pulling.upkeep.snapshots.take(SET)
    answer = await pulling.get("/robots.txt")
    assert [line for line in answer.body.decode().splitlines() if line.startswith("Sitemap")] == [
        "Sitemap: http://example.com/list.xml",
        f"Sitemap: {BASE}{RESOURCES}",
    ]


@pytest.mark.parametrize(("seconds", "readings"), [(0.0, 2), (60.0, 1)])
async def test_robots_of_many_sets_share_one_reading_of_them(
    client, monkeypatch, seconds, readings
):
    """Those who ask at once always do; with many sets those who come later do, too."""
    read, begun = Snapshots.newest_of, 0

    async def counted(*asked: Any) -> Any:
        nonlocal begun
        begun += 1
        return await read(*asked)

    monkeypatch.setattr(Snapshots, "newest_of", counted)
    async with Pulling(client, seconds_kept=lambda _: seconds) as pulling:
        await pulling.hub.add_set("b")
        asked = await asyncio.gather(*(pulling.get("/robots.txt") for _ in range(20)))
        later = await pulling.get("/robots.txt")
    assert {(each.status, each.body) for each in (*asked, later)} == {(200, later.body)}
    assert begun == readings


async def test_robots_find_the_others_if_a_record_of_one_set_cannot_be_read(pulling):
    await pulling.hub.add_set("b", SetOptions(resourcelist="http://example.com/list.xml"))
    await pulling.hub.add_set("damaged")
    await pulling.upkeep.snapshots.take(SET)
    for name in ("b", "damaged"):
        await pulling.client.hset(keys.snapshot(name), "name", "1")
    answer = await pulling.get("/robots.txt")
    assert [line for line in answer.body.decode().splitlines() if line.startswith("Sitemap")] == [
        "Sitemap: http://example.com/list.xml",
        f"Sitemap: {BASE}{RESOURCES}",
    ]


DOCUMENTS = (
    "capabilitylist.xml",
    "capabilitylist-ws.xml",
    "changelist.xml",
    "changelist-index.xml",
)
PRIVATE = (*DOCUMENTS, "changelist.xml?from=2026-01-01T00:00:00Z", "resourcelist.xml")


async def test_what_came_after_a_set_became_private_is_not_pulled_without_a_token(
    pulling, monkeypatch
):
    record = pulling.windows.record

    async def meanwhile(name: str) -> JournalRecord:
        await pulling.hub.edit_set(SET, {"private": True})
        await pulling.update("secret")
        return await record(name)

    monkeypatch.setattr(pulling.windows, "record", meanwhile)
    answer = await pulling.get(f"/{SET}/changelist.xml")
    assert answer.status == 503
    assert b"has become private" in answer.body
    assert (await pulling.get(f"/{SET}/changelist.xml")).status == 404


@pytest.mark.parametrize("path", DOCUMENTS)
async def test_what_is_served_for_a_set_links_its_capability_list(pulling, path):
    answer = await pulling.get(f"/{SET}/{path}")
    link = f'<{BASE}/{SET}/capabilitylist.xml>; rel="resourcesync"'
    assert answer.headers["link"].startswith(link)
    assert answer.headers["content-type"] == "application/xml"


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere/changelist.xml",
        f"/{SET}/nothing.xml",
        f"/{SET}/changelist/2026-11-20T00:00:00Z.xml",
        f"/{SET}/changelist/x.xml",
        f"/{SET}/resourcelist.xml",
        f"/{SET}/resourcelist/1-1.xml",
        f"/{SET}/changelist-archive.xml",
    ],
)
async def test_what_is_not_there_is_a_problem_document(pulling, path):
    answer = await pulling.get(path)
    assert answer.status == 404
    assert answer.headers["content-type"] == "application/problem+json"


# Change Lists ----------------------------------------------------------------------------------


async def test_the_open_list_has_a_beginning_and_no_end(pulling):
    await pulling.update("a", "b", "c", "d")
    document = await pulling.document(OPEN)
    record = await pulling.windows.record(SET)
    assert document.md.from_ == str(record.window_from)
    assert document.md.until is None
    assert names(document) == ["d"]


async def test_a_list_keeps_its_address_when_it_closes(pulling):
    begin = (await pulling.windows.record(SET)).window_from
    address = f"/{SET}/changelist/{begin}.xml"
    await pulling.update("a")
    opened = await pulling.document(address)
    last = await pulling.update("b", "a")
    closed = await pulling.document(address)
    assert (names(opened), opened.md.until) == (["a"], None)
    assert (names(closed), closed.md.until) == (["a", "b", "a"], str(last.until))


async def test_the_index_names_all_lists_in_order(pulling):
    for name in "abcdefg":
        await pulling.update(name)
    index = await pulling.document(INDEX)
    lists = [await pulling.document(entry.loc) for entry in index.entries]
    assert [names(each) for each in lists] == [list("abc"), list("def"), ["g"]]
    assert all(a.md.until == b.md.from_ for a, b in pairwise(lists))


async def test_a_closed_list_never_changes_a_byte(pulling):
    begin = (await pulling.windows.record(SET)).window_from
    await pulling.update("a", "b", "c")
    address = f"/{SET}/changelist/{begin}.xml"
    from_stream = await pulling.get(address)
    await pulling.keep_windows()
    await pulling.let_go_of_all()
    await pulling.update("d", "e", "f")
    packed = await pulling.get(address)
    assert (packed.body, packed.headers["etag"]) == (from_stream.body, from_stream.headers["etag"])


async def test_a_closed_list_is_kept_for_a_minute_and_longer_once_redis_cannot_lose_it(pulling):
    await pulling.update("a", "b", "c")
    await pulling.keep_windows()
    (window,) = (await pulling.windows.span(SET)).windows
    found = await pulling.get(change_list(SET, window.from_))
    assert found.headers["cache-control"] == "public, max-age=60"
    await grow_old(pulling, 1)
    (window,) = (await pulling.windows.span(SET)).windows
    found = await pulling.get(change_list(SET, window.from_))
    assert found.headers["cache-control"] == "public, max-age=3600, immutable"


async def test_a_list_that_is_closed_again_after_a_loss_has_other_tags(client):
    """It begins and ends at the same positions: only what is in it differs. No hub is left that
    knows of the loss."""
    half_an_hour_ago = await redis_now(client) - HOUR // 2
    # The grid's first edge, and no other one for decades: both lists close there.
    async with Pulling(client, hours=half_an_hour_ago / HOUR) as pulling:
        begin = Position(half_an_hour_ago - HOUR)
        async with Losing(client, f"rsnotify:{{{SET}}}*"):
            before = await closed_by_time(pulling, begin, "lost")
        after = await closed_by_time(pulling, begin, "anew")
    for one, other in zip(before, after, strict=True):
        assert (names(one.document), names(other.document)) == (["lost"], ["anew"])
        assert one.document.md == other.document.md
        assert one.headers["etag"] != other.headers["etag"]


async def closed_by_time(pulling: Pulling, begin: Position, name: str) -> list[Answer]:
    """The list that begins there, long ago, and has this change; the same in other ways. This
    hub has given nobody anything since."""
    feed = pulling.hub.feed(CHANGES)
    feed.witness = Witness(begin)
    at, xml = Position(begin + 1), fragment_of(Change(loc(name), "updated")).xml
    await pulling.client.xadd(keys.stream(CHANGES), {"": xml}, at.stream_id)
    begins = dict.fromkeys(("created", "first", "window_from"), int(begin))
    where = begins | dict.fromkeys(("last", "head"), int(at))
    held = {"window_count": 1, "window_bytes": len(xml)}
    await pulling.client.hset(keys.record(CHANGES), mapping=where | held)
    assert await pulling.windows.close(SET, pulling.schedule.period)
    too_many = {"window_count": STRETCH_CHANGES}  # so that what follows is an answer of its own
    await pulling.client.hset(keys.record(CHANGES), mapping=too_many)
    path = change_list(SET, begin)
    return [await pulling.get(each) for each in (path, f"{path}?limit=5", f"{OPEN}?from={begin}")]


async def past_an_edge(pulling: Pulling, interval: Interval) -> None:
    async def passed() -> bool:
        edge = last_edge(await pulling.windows.now(), pulling.schedule.period)
        return edge >= interval.until

    await until(passed)


async def test_time_closes_a_window_at_an_edge_of_the_grid(client):
    async with Pulling(client, hours=MILLISECOND) as pulling:
        await past_an_edge(pulling, await pulling.update("a"))
        await pulling.keep_windows()
        (window,) = (await pulling.windows.span(SET)).windows
        record = await pulling.windows.record(SET)
        assert window.until % pulling.schedule.period == 0
        assert record.last == record.window_from == window.until >= record.head
        assert (await pulling.update("b")).until > window.until


async def test_a_change_after_an_edge_closes_the_window_before_it(client):
    async with Pulling(client, hours=MILLISECOND) as pulling:
        await past_an_edge(pulling, await pulling.update("a"))
        second = await pulling.update("b")
        (window,) = (await pulling.windows.span(SET)).windows
        assert window.until % pulling.schedule.period == 0
        assert window.changes == 1
        assert window.until < second.until


async def test_a_sources_own_datetime_comes_after_an_edge_though_redis_has_lost_that_a_list_closed(
    client,
):
    """Who has the closed list reads on from the edge; no other process knows of the loss yet."""
    async with Pulling(client, hours=MILLISECOND) as pulling:
        first = await pulling.update("a")
        await past_an_edge(pulling, first)
        async with Losing(client):
            await pulling.keep_windows()
            (window,) = (await pulling.windows.span(SET)).windows
        unaware = JournalStore(client, window_changes=10_000, window_hours=MILLISECOND)
        before_it = str(Position(first.until + 1))
        assert first.until < window.until
        late = await unaware.append(CHANGES, submission("b", datetime=before_it))
        assert late.until > window.until
        assert names((await pulling.get(f"{OPEN}?from={window.until}")).document) == ["b"]
        closed, *_ = (await pulling.windows.span(SET)).windows
        assert (closed.from_, closed.changes) == (window.from_, window.changes)


async def test_an_edge_that_passed_before_the_first_change_closes_nothing(client):
    async with Pulling(client, hours=1) as pulling:
        begin = (await pulling.windows.now()) - 7 * DAY
        long_ago = dict.fromkeys(("created", "first", "last", "head", "window_from"), begin)
        await client.hset(keys.record(CHANGES), mapping=long_ago)
        pulling.hub.feeds.remove_set(SET)  # as by a hub that has not seen the set before
        pulling.hub.feeds.add_set(SET, str(Position(begin)))
        now = await pulling.windows.now()
        await pulling.update("a", "b")
        await pulling.update("c")
        windows = (await pulling.windows.span(SET)).windows
        assert all(window.until > now for window in windows)  # an hour may have just ended


async def test_an_empty_window_stays_open(client):
    async with Pulling(client, hours=MILLISECOND) as pulling:
        begin = (await pulling.windows.record(SET)).window_from
        await pulling.keep_windows()
        assert (await pulling.windows.record(SET)).window_from == begin


async def test_a_window_keeps_to_the_size_of_a_document(client):
    async with Pulling(client, window_bytes=1_000) as pulling:
        await pulling.update(*"abcdefghijklmnopqrst")
        windows = (await pulling.windows.span(SET)).windows
        assert len(windows) > 1
        for window in windows:
            answer = await pulling.get(f"/{SET}/changelist/{window.from_}.xml")
            entries = answer.body.partition(b"<url>")[2]
            assert len(entries) <= window.size <= 1_000


async def test_a_stretch_goes_across_windows_and_names_the_next(pulling, monkeypatch):
    monkeypatch.setattr("rsnotify.journal.window.STRETCH_CHANGES", 7)
    first = await pulling.update("a")
    for name in "bcdefghi":
        await pulling.update(name)
    document = await pulling.document(f"{OPEN}?from={first.until}")
    (following,) = (link.href for link in document.links if link.rel == "next")
    rest = await pulling.document(following)
    assert names(document) + names(rest) == list("bcdefghi")
    assert document.md.until == rest.md.from_
    assert rest.md.until is None


async def test_a_position_after_the_last_change_gives_an_empty_list(pulling):
    await pulling.update("a")
    document = await pulling.document(f"{OPEN}?from={render_datetime(time_ns() // 1000)}")
    assert document.entries == ()
    assert document.md.from_ == str((await pulling.windows.record(SET)).last)


@pytest.mark.parametrize("words", ["from=1999-12-31", "since=1999-12-31T23:00+01:00"])
async def test_a_position_before_the_first_moment_means_that_moment(pulling, words):
    await pulling.update("a")
    document = await pulling.document(f"{OPEN}?{words}")
    assert names(document) == ["a"]
    assert document.md.from_ == str((await pulling.windows.record(SET)).created)


@pytest.mark.parametrize("at", ["yesterday", "2999-01-01T00:00:00Z", "2999-01-01"])
async def test_a_position_that_is_none_or_in_the_future_is_refused(pulling, at):
    assert (await pulling.get(f"{OPEN}?from={at}")).status == 400


LISTED = "access_token, format, from, since, until, limit, prefix, type, change, collection"


@pytest.mark.parametrize(
    ("path", "known"),
    [
        (OPEN, LISTED),
        (f"/{SET}/changelist-index.xml", "access_token, format"),
        (f"/{SET}/changelist-archive.xml", "access_token, format"),
        (
            f"/{SET}/changelist/2026-01-01T00:00:00.000000Z.xml",
            LISTED,
        ),
        (f"/{SET}/resourcelist.xml", "access_token, format, limit, offset"),
        (f"/{SET}/resourcelist/1-1.xml", "access_token, format, limit, offset"),
        (f"/{SET}/resourcelist-archive.xml", "access_token, format"),
    ],
)
async def test_an_unknown_parameter_of_a_list_is_refused_with_the_known_ones(pulling, path, known):
    answer = await pulling.get(f"{path}?form=2026-01-01")
    assert answer.status == 400
    said = f"unknown parameter 'form'; did you mean format? Known here: {known}\""
    assert said.encode() in answer.body


async def test_a_poll_shows_what_another_process_acknowledged(client, pulling):
    async with Pulling(client, changes=1_000) as other:
        for number in range(20):
            await other.update(str(number))
            assert names(await pulling.document(OPEN))[-1:] == [str(number)]


async def test_a_cold_list_is_sent_as_it_is_read_and_warm_afterwards(client):
    async with Pulling(client) as before:
        await before.update(*map(str, range(30)))
    async with Pulling(client, cold_changes=5, reads=ReadSizes(4, 4)) as pulling:
        cold, warm = await pulling.get(OPEN), await pulling.get(OPEN)
        assert "content-length" not in cold.headers
        assert warm.headers["content-length"] == str(len(warm.body))
        assert cold.body == warm.body
        assert names(warm.document) == [str(number) for number in range(30)]


def failing_after(pulling: Pulling, reads: int, error: Exception) -> None:
    """Let the journal be read so many times, and no more."""
    read = pulling.journal.read
    left = iter(range(reads))

    async def failing(*arguments: Any, **named: Any) -> Any:
        if next(left, None) is None:
            raise error
        return await read(*arguments, **named)

    pulling.journal.read = failing


async def test_a_document_that_cannot_be_begun_is_a_status(pulling):
    begin = (await pulling.update("a")).from_
    failing_after(pulling, 0, TryAgain("no Redis"))
    answer = await pulling.get(f"{OPEN}?from={begin}")
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")


@pytest.mark.parametrize("error", [TryAgain("no Redis"), NoSuchSet(SET)])
async def test_a_document_that_cannot_be_finished_is_broken_off(client, caplog, error):
    async with Pulling(client, reads=ReadSizes(2, 2)) as pulling:
        begin = (await pulling.update(*"abcde")).from_
        failing_after(pulling, 1, error)
        answer = await pulling.get(f"{OPEN}?from={begin}")
    assert answer.status == 200
    assert not answer.is_whole
    assert [record.levelname for record in caplog.records] == ["WARNING"]


# Conditions ------------------------------------------------------------------------------------


async def every_document(pulling: Pulling) -> list[str]:
    begin = (await pulling.windows.record(SET)).window_from
    await pulling.update("a", "b", "c", "d")
    await pulling.upkeep.snapshots.take(SET)
    await pulling.keep_windows()
    found = ["/.well-known/resourcesync", *(f"/{SET}/{name}" for name in PRIVATE)]
    return [*found, f"/{SET}/changelist/{begin}.xml"]


async def test_every_document_says_304_to_who_has_it(pulling):
    for path in await every_document(pulling):
        for coding in ("identity", "gzip"):
            answer = await pulling.get(path, accept_encoding=coding)
            again = await pulling.get(
                path, if_none_match=answer.headers["etag"], accept_encoding=coding
            )
            assert (again.status, again.body) == (304, b""), path
            since = {"if_modified_since": "Fri, 01 Jan 2100 00:00:00 GMT"}
            assert (await pulling.get(path, **since)).status == 304, path
            assert answer.headers["last-modified"]


@in_small_parts
async def test_a_list_of_lists_is_made_for_those_only_who_do_not_have_it(pulling, monkeypatch):
    await pulling.update(*"abcdef")
    await pulling.upkeep.snapshots.take(SET)
    await pulling.keep_windows()
    await grow_old(pulling, 40)
    paths = (INDEX, RESOURCES, f"/{SET}/changelist-archive.xml")
    tags = [(await pulling.get(path)).headers["etag"] for path in paths]
    monkeypatch.setattr(changelists, "change_list_index_document", pytest.fail)
    monkeypatch.setattr(changelists, "change_list_archive_document", pytest.fail)
    monkeypatch.setattr(resourcelists, "resource_list_index_document", pytest.fail)
    for path, tag in zip(paths, tags, strict=True):
        assert (await pulling.get(path, if_none_match=tag)).status == 304
        assert (await pulling.get(path, method="HEAD")).status == 200


async def test_every_document_is_the_same_in_gzip(pulling):
    for path in await every_document(pulling):
        plain = await pulling.get(path)
        packed = await pulling.get(path, accept_encoding="gzip")
        assert "content-encoding" not in plain.headers
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed.body) == plain.body, path


async def test_a_list_that_was_never_packed_comes_in_gzip_from_a_full_redis(pulling):
    await pulling.update(*"abcd")
    (window,) = (await pulling.windows.span(SET)).windows
    path = change_list(SET, window.from_)
    plain = await pulling.get(path)
    async with out_of_memory(pulling.client):
        assert gzip.decompress((await pulling.get(path, accept_encoding="gzip")).body) == plain.body
        assert await pulling.windows.packed(SET, window) is None
        with pytest.raises(StoreFull):  # whoever must store it hears that it is not stored
            await Stretches(pulling.journal, pulling.windows).store_packed(SET, window)
    assert (await pulling.get(path, accept_encoding="gzip")).status == 200
    assert await pulling.windows.packed(SET, window) is not None


async def connections_made(client: Client) -> int:
    return int((await client.info("stats"))["total_connections_received"])


async def test_a_list_that_is_broken_off_leaves_its_connection_to_the_next_reader(client):
    async with Pulling(client) as pulling:
        head = (await pulling.update(*map(str, range(200)))).until
        begin = (await pulling.windows.record(SET)).window_from
        whole, _ = await pulling.stretches.read(SET, begin, head)
        before, tasks = await connections_made(client), asyncio.all_tasks()
        for _ in range(10):
            reading = asyncio.create_task(pulling.stretches.read(SET, begin, head))
            await asyncio.sleep(0)  # it begins…
            await asyncio.sleep(0)  # …and has asked Redis
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert await pulling.stretches.read(SET, begin, head) == (whole, head)
            await asyncio.gather(*asyncio.all_tasks() - tasks)  # it still gets its answer
        assert await connections_made(client) - before <= 1  # two read at once at most


async def test_a_list_that_grows_is_the_same_in_gzip_each_time(client):
    async with Pulling(client) as pulling:
        for name in "abcd":
            await pulling.update(name)
            packed = await pulling.get(OPEN, accept_encoding="gzip")
            assert gzip.decompress(packed.body) == (await pulling.get(OPEN)).body


async def test_only_what_never_changes_may_be_kept_without_asking(pulling):
    paths = await every_document(pulling)
    await grow_old(pulling, 1)
    begin = (await pulling.windows.span(SET)).windows[0].from_
    fixed = {
        path
        for path in [*paths[:-1], change_list(SET, begin)]
        if "immutable" in (await pulling.get(path)).headers["cache-control"]
    }
    assert fixed == {path for path in fixed if "/changelist/" in path} != set()


async def test_head_has_the_headers_without_the_document(pulling):
    for path in await every_document(pulling):
        head, got = await pulling.get(path, method="HEAD"), await pulling.get(path)
        assert (head.status, head.body) == (200, b"")
        assert head.headers["etag"] == got.headers["etag"]


async def test_a_tag_changes_with_the_document(pulling):
    tags = set()
    for name in "abcd":
        await pulling.update(name)
        tags.add((await pulling.get(OPEN)).headers["etag"])
    assert len(tags) == 4


async def test_a_set_made_anew_has_other_tags(pulling):
    before = (await pulling.get(OPEN)).headers["etag"]
    await pulling.hub.remove_set(SET)
    await pulling.hub.add_set(SET)
    assert (await pulling.get(OPEN, if_none_match=before)).status == 200


# Resource Lists --------------------------------------------------------------------------------


@in_small_parts
async def test_a_large_set_has_an_index_and_parts(pulling):
    await pulling.update(*"abcde")
    taken = await pulling.upkeep.snapshots.take(SET)
    index = await pulling.document(RESOURCES)
    assert index.root == "sitemapindex"
    assert index.md.at == str(taken.at)
    parts = [await pulling.document(entry.loc) for entry in index.entries]
    assert sorted(name for part in parts for name in names(part)) == list("abcde")
    assert [len(part.entries) for part in parts] == [2, 2, 1]


@in_small_parts
async def test_a_replaced_snapshot_stays_while_somebody_walks_it(pulling):
    await pulling.update(*"abcde")
    await pulling.upkeep.snapshots.take(SET)
    old = await pulling.document(RESOURCES)
    await pulling.update("f")
    await pulling.upkeep.snapshots.take(SET)
    walked = [name for entry in old.entries for name in names(await pulling.document(entry.loc))]
    assert sorted(walked) == list("abcde")


@in_small_parts
async def test_a_snapshot_that_nobody_walks_any_more_is_gone(pulling):
    await pulling.update(*"abc")
    old = await pulling.upkeep.snapshots.take(SET)
    address = (await pulling.document(RESOURCES)).entries[0].loc
    await pulling.update("d")
    await pulling.upkeep.snapshots.take(SET)
    key = keys.snapshot(SET, old.name)
    assert 0 < await pulling.client.ttl(key) <= 3600
    await pulling.client.delete(key)  # as it expires
    answer = await pulling.get(address)
    assert answer.status == 410
    assert f"<{BASE}{RESOURCES}>" in answer.headers["link"]


async def test_a_snapshot_is_taken_when_one_is_due_and_something_changed(pulling):
    await pulling.keep_snapshots()
    assert await pulling.snapshots.newest(SET) is None
    await pulling.update("a")
    await pulling.keep_snapshots()
    first = await pulling.snapshots.newest(SET)
    await pulling.update("b")
    await pulling.keep_snapshots()  # not yet an hour old
    assert await pulling.snapshots.newest(SET) == first


async def test_a_list_is_written_anew_when_a_tenth_of_the_set_has_changed(client):
    async with Pulling(client, early_seconds=0) as pulling:
        await pulling.update(*(f"res{number}" for number in range(20)))
        await pulling.keep_snapshots()
        first = await pulling.snapshots.newest(SET)
        assert first is not None
        await looked(pulling, "res0")
        assert await pulling.snapshots.newest(SET) == first
        await looked(pulling, "res0")
        second = await pulling.snapshots.newest(SET)
        assert second not in (None, first)
        await looked(pulling)
        assert await pulling.snapshots.newest(SET) == second


async def looked(pulling: Pulling, *updated: str) -> None:
    """Its list is looked at, once it is old enough to be followed by another one."""
    await pulling.update(*updated)
    newest, until_early_snapshot = (
        await pulling.snapshots.newest(SET),
        pulling.schedule.until_early_snapshot,
    )
    assert newest is not None
    while (
        until_early_snapshot(newest.begun, newest.completed, await pulling.windows.now())
        is not None
    ):
        await asyncio.sleep(0.005)
    await pulling.keep_snapshots()


async def test_what_changed_is_counted_across_change_lists(client):
    """The window in which the list before was begun has changes from before it, too."""
    async with Pulling(client, changes=15, early_seconds=0) as pulling:
        await pulling.update(*(f"res{number}" for number in range(40)))  # 15, 15, 10
        await pulling.keep_snapshots()
        first = await pulling.snapshots.newest(SET)
        assert first is not None
        assert first.counted == 10
        await looked(pulling, "res0", "res1", "res2")
        assert await pulling.snapshots.newest(SET) == first
        await pulling.update("res3", "res4", "res5")  # the window closes between them
        assert (await pulling.windows.record(SET)).window_count == 1
        await looked(pulling)
        assert await pulling.snapshots.newest(SET) != first


async def test_a_flood_of_changes_makes_no_second_list_within_a_minute(pulling):
    made = set()
    for _ in range(5):
        await pulling.update(*(f"res{number}" for number in range(20)))
        await pulling.keep_snapshots()
        newest = await pulling.snapshots.newest(SET)
        assert newest is not None
        made.add(newest.name)
    assert len(made) == 1


async def test_a_source_that_lists_its_resources_itself_needs_no_snapshot(pulling):
    await pulling.hub.edit_set(SET, {"resourcelist": "http://example.com/list.xml"})
    await pulling.update("a")
    await pulling.keep_snapshots()
    assert await pulling.snapshots.newest(SET) is None


async def test_the_snapshots_of_all_sets_are_looked_up_in_one_journey(pulling, monkeypatch):
    await pulling.update("a")
    await pulling.hub.add_set("b", SetOptions())
    await pulling.upkeep.snapshots.take(SET)
    asked = []

    async def newest(set_name: str) -> None:
        asked.append(set_name)

    monkeypatch.setattr(pulling.snapshots, "newest", newest)
    await pulling.keep_snapshots()
    assert RESOURCES in (await pulling.get("/robots.txt")).body.decode()
    assert asked == []


async def test_a_snapshot_that_another_takes_in_the_same_round_is_enough(pulling, monkeypatch):
    await pulling.update("a")
    newest_of = pulling.snapshots.newest_of

    async def then_another(set_names: Sequence[str]) -> dict[str, Snapshot | None]:
        found = await newest_of(set_names)
        await pulling.upkeep.snapshots.take(SET)
        return found

    monkeypatch.setattr(pulling.snapshots, "newest_of", then_another)
    await pulling.keep_snapshots()
    assert [found async for found in pulling.client.scan_iter("*:snapshot:*:1")] == [
        keys.snapshot_part(SET, (await pulling.snapshots.newest(SET)).name, 1).encode()
    ]


async def test_two_processes_take_one_snapshot(client, pulling):
    await pulling.update("a")
    async with pulling.snapshots.claim(SET) as claim:
        assert claim is not None
        assert await pulling.upkeep.snapshots.take(SET) is None
    assert await pulling.upkeep.snapshots.take(SET) is not None


@pytest.mark.parametrize("is_done", [False, True], ids=["not executed", "without an answer"])
async def test_a_snapshot_whose_beginning_fails_leaves_no_claim(pulling, monkeypatch, is_done):
    await pulling.update("a")
    begin = Snapshots.begin

    async def failing(self: Snapshots, name: str, claim: Claim) -> None:
        await begin(self, name if is_done else "missing", claim)
        raise TryAgain("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(Snapshots, "begin", failing)
        with pytest.raises((TryAgain, NoSuchSet)):
            await pulling.upkeep.snapshots.take(SET)
    assert await pulling.upkeep.snapshots.take(SET) is not None


@pytest.mark.parametrize("loses", ["the state as well", "nothing"])
async def test_a_claim_from_before_the_beginning_finishes_no_snapshot(client, pulling, loses):
    """Redis falls back to before it: it lacks what the snapshot would claim to have."""
    await pulling.update("a")
    async with pulling.snapshots.claim(SET) as claim:
        assert claim is not None
        before = await client.get(claim.key)
        at, created, begun, _ = await pulling.snapshots.begin(SET, claim)
        if loses == "the state as well":
            await client.set(claim.key, before)
        taken = Snapshot(str(int(begun)), at, at, 1, 1)
        await pulling.snapshots.write_part(SET, taken.name, 1, pack([b""]))
        is_taken = await pulling.snapshots.publish(SET, created, claim, taken)
    assert is_taken == (loses == "nothing")


async def test_snapshots_on_request_are_one_while_it_is_being_taken(pulling):
    await pulling.update("a")
    async with pulling.snapshots.claim(SET):
        first, second = (pulling.upkeep.snapshots.take_requested(SET) for _ in range(2))
        assert first is second
    assert (await first).resources == 1


async def test_a_snapshot_of_a_set_made_anew_meanwhile_is_thrown_away(pulling):
    await pulling.update("a")
    record = await pulling.windows.record(SET)
    taken = await pulling.upkeep.snapshots.take(SET)
    async with pulling.snapshots.claim(SET) as claim:
        other = Position(record.created - 1)
        assert not await pulling.snapshots.publish(SET, other, claim, taken)


async def test_a_resource_list_is_as_old_as_its_completion(pulling):
    await pulling.update("a")
    now, record = await pulling.windows.now(), await pulling.windows.record(SET)
    begun, completed = now - 60 * MINUTE, Position(now - 10 * MINUTE)
    taken = Snapshot(str(begun), Position(begun), completed, 1, 1)
    async with pulling.snapshots.claim(SET) as claim:
        assert claim is not None
        await pulling.snapshots.write_part(SET, taken.name, 1, pack([b""]))
        assert await pulling.snapshots.publish(SET, record.created, claim, taken)
    for path in (RESOURCES, f"/{SET}/resourcelist/{taken.name}-1.xml"):
        modified = parsedate_to_datetime((await pulling.get(path)).headers["last-modified"])
        assert 0 <= modified.timestamp() - completed / MICROSECONDS < 1
    meanwhile = formatdate((now - 30 * MINUTE) / MICROSECONDS, usegmt=True)
    assert (await pulling.get(RESOURCES, if_modified_since=meanwhile)).status == 200


# What is old -----------------------------------------------------------------------------------


async def grow_old(pulling: Pulling, days: int) -> None:
    """As if all windows of the set had closed so many days ago."""
    windows = keys.windows(CHANGES)
    for member in await pulling.client.zrange(windows, 0, -1):
        from_, until, changes, size, closed = map(int, member.split())
        past = days * DAY
        aged = f"{from_ - past} {until - past} {changes} {size} {closed - past}"
        await pulling.client.zrem(windows, member)
        await pulling.client.zadd(windows, {aged: until - past})
        data = await pulling.client.get(keys.packed(CHANGES, from_))
        await pulling.client.set(keys.packed(CHANGES, from_ - past), data)


async def test_a_list_leaves_the_index_for_the_archive(pulling):
    await pulling.update(*"abcdef")
    await pulling.keep_windows()
    await grow_old(pulling, 40)
    archive = await pulling.document(f"/{SET}/changelist-archive.xml")
    index = await pulling.document(INDEX)
    assert len(archive.entries) == 2
    assert len(index.entries) == 1
    assert [link.href for link in index.links if link.rel == "archives"] == [
        f"{BASE}/{SET}/changelist-archive.xml"
    ]
    assert "changelist-archive" in await capabilities(pulling)


async def test_retention_removes_lists_and_says_so(pulling):
    begin = (await pulling.windows.record(SET)).created
    await pulling.update(*"abcdef")
    await pulling.keep_windows()
    (first, _) = (await pulling.windows.span(SET)).windows
    await pulling.windows.forget(SET, [first])
    for path in (f"/{SET}/changelist/{begin}.xml", f"{OPEN}?from={begin}"):
        answer = await pulling.get(path)
        assert answer.status == 410
        assert f'<{BASE}{INDEX}>; rel="index"' in answer.headers["link"]
    assert names(await pulling.document(f"{OPEN}?from={first.until}")) == list("def")
    assert await pulling.windows.packed(SET, first) is None


async def test_old_windows_are_let_go_by_the_upkeep(pulling):
    await pulling.update(*"abcdef")
    await pulling.keep_windows()
    await grow_old(pulling, 400)
    await pulling.upkeep.old.delete()
    assert (await pulling.windows.span(SET)).windows == []


async def test_two_processes_may_let_go_of_the_same_windows(client, pulling, caplog):
    await pulling.update(*"abcdef")
    await pulling.keep_windows()
    await grow_old(pulling, 400)
    async with Pulling(client, changes=3) as other:
        oldest = pulling.windows.oldest

        async def meanwhile(name: str) -> Window | None:
            found = await oldest(name)
            await other.upkeep.old.delete()
            return found

        pulling.windows.oldest = meanwhile
        await pulling.upkeep.old.delete()
    assert (await pulling.windows.span(SET)).windows == []
    assert [each for each in caplog.records if each.name == "rsnotify.documents.each_set"] == []


async def test_the_stream_is_trimmed_only_behind_what_is_packed(pulling):
    await pulling.update(*"abcd")
    (window,) = (await pulling.windows.span(SET)).windows
    assert not await pulling.windows.trim(SET, window)
    await pulling.keep_windows()
    assert await pulling.windows.trim(SET, window)
    assert (await pulling.windows.record(SET)).first == window.until
    assert await pulling.client.xlen(keys.stream(CHANGES)) == 1
    assert not await pulling.windows.trim(SET, window)


async def test_a_removed_set_leaves_nothing_behind(pulling):
    await pulling.update(*"abcdef")
    await pulling.upkeep.snapshots.take(SET)
    await pulling.keep_windows()
    await pulling.hub.remove_set(SET)
    left = [key async for key in pulling.client.scan_iter(match=f"rsnotify:{{{SET}}}:*")]
    lasting = [key for key in left if await pulling.client.ttl(key) < 0]
    assert lasting == []


async def test_a_set_that_cannot_be_served_holds_up_no_other(pulling, caplog):
    await pulling.hub.add_set("a", SetOptions())
    asked = []

    async def failing(name: str, begin: Position) -> None:
        asked.append(name)
        raise TryAgain("no Redis")

    pulling.windows.trim_framework = failing
    caplog.set_level("DEBUG", logger="rsnotify.documents.each_set")
    await pulling.upkeep.old.delete()
    assert sorted(asked) == ["a", SET]
    told = [record for record in caplog.records if record.name == "rsnotify.documents.each_set"]
    assert sorted(record.args for record in told) == [
        ("a", "no Redis"),
        (SET, "no Redis"),
    ]


async def test_a_window_is_not_forgotten_before_the_stream_is_trimmed_behind_it(client):
    async with Pulling(client, changes=3, retention_days=1) as pulling:
        await pulling.update(*"abcdef")  # two windows that no hub packs for two days
        now = pulling.windows.clock_history

        async def later() -> ClockHistory:
            return ClockHistory((await now()).seen + 2 * DAY)

        pulling.windows.clock_history = later
        await pulling.upkeep.old.delete()
        await pulling.keep_windows()
        await pulling.upkeep.old.delete()
        record = await pulling.windows.record(SET)
        assert record.first == record.window_from
        await pulling.upkeep.old.delete()
        assert (await pulling.windows.span(SET)).windows == []


# What the hub says itself ----------------------------------------------------------------------


async def said(pulling: Pulling) -> list[tuple[str, str, str]]:
    first = (await pulling.journal.standings([FRAMEWORK]))[0].first
    return [_said(row) for _, row in await pulling.journal.read(FRAMEWORK, first, count=1_000)]


async def test_two_processes_say_once_that_a_window_closed(client, pulling):
    begin = (await pulling.windows.record(SET)).window_from
    last = await pulling.update("a", "b", "c")
    async with Pulling(client, changes=3) as other:
        await other.upkeep.windows.announce_and_pack(SET, begin)
        await pulling.upkeep.windows.announce_and_pack(SET, begin)
    assert await said(pulling) == [
        ("changelist", "updated", f"/{SET}/changelist/{begin}.xml"),
        ("changelist", "created", f"/{SET}/changelist/{last.until}.xml"),
    ]


async def test_one_process_packs_a_window_and_another_when_that_one_is_gone(client, pulling):
    await pulling.update("a", "b", "c")
    async with Pulling(client, changes=3) as other:
        claim = await pulling.windows.claimed(SET, "pack", 5)
        assert claim is not None
        await other.keep_windows()
        before = await other.windows.record(SET)
        assert before.packed_until < before.window_from
        await claim.release()
        await other.keep_windows()
        after = await other.windows.record(SET)
        assert after.packed_until == after.window_from
        assert await pulling.windows.claimed(SET, "pack", 5) is not None  # it has let go


async def test_growth_is_said_at_most_once_a_minute(pulling):
    begin = (await pulling.windows.record(SET)).window_from
    for name in "ab":
        await pulling.update(name)
        await pulling.keep_windows()
    assert await said(pulling) == [("changelist", "updated", f"/{SET}/changelist/{begin}.xml")]


async def test_a_new_resource_list_is_said(pulling):
    await pulling.update("a")
    await pulling.upkeep.snapshots.take(SET)
    assert await said(pulling) == [("resourcelist", "created", RESOURCES)]


@in_small_parts
async def test_of_many_resource_lists_one_is_said_and_never_the_index(pulling):
    await pulling.update(*"abcde")
    taken = await pulling.upkeep.snapshots.take(SET)
    path = f"/{SET}/resourcelist/{taken.name}-1.xml"
    assert await said(pulling) == [("resourcelist", "created", path)]


@pytest.mark.parametrize("change", ["created", "deleted"])
async def test_a_set_that_comes_or_goes_is_said_on_its_channel_and_of_the_source_on_all(
    pulling, change
):
    await pulling.hub.add_set("other")
    announcements = pulling.upkeep.announcements
    say = announcements.set_made if change == "created" else announcements.set_goes
    for _ in range(2):
        await say(pulling.hub.sets[SET])
    await announcements.announce_description()
    await announcements.announce_description()
    described = ("description", "updated", "/.well-known/resourcesync")
    assert await said(pulling) == [
        ("capabilitylist", change, f"/{SET}/capabilitylist.xml"),
        described,
    ]


# A set's documents change -----------------------------------------------------------------------

CAPABILITIES = ("capabilitylist", "updated", f"/{SET}/capabilitylist.xml")
ARCHIVE = f"/{SET}/changelist-archive.xml"


async def newly_said(pulling: Pulling, after: int) -> list[tuple[str, str, str]]:
    return (await said(pulling))[after:]


@pytest.fixture
async def told(pulling: Pulling) -> Pulling:
    """Its set was announced as it is."""
    await pulling.upkeep.announcements.set_made(pulling.hub.sets[SET])
    return pulling


async def test_the_capability_list_is_said_when_the_first_resource_list_is_in_it(told):
    for name in "ab":
        await told.update(name)
        await told.upkeep.snapshots.take(SET)
    created = ("resourcelist", "created", RESOURCES)
    assert await newly_said(told, 1) == [created, CAPABILITIES, created]


async def test_an_edit_that_changes_no_byte_is_not_said(told):
    await told.hub.edit_set(SET, {"private": True})
    await told.upkeep.announcements.documents_changed(SET)
    assert await newly_said(told, 1) == []


async def test_what_changes_and_changes_back_is_said_both_times_once(client, told):
    async with Pulling(client, changes=3) as other:
        await other.hub.start()
        for describedby in ("http://example.com/about", None, "http://example.com/about"):
            await told.hub.edit_set(SET, {"describedby": describedby})
            await other.hub.start()
            await told.upkeep.announcements.documents_changed(SET)
            await other.upkeep.announcements.documents_changed(SET)
    assert await newly_said(told, 1) == [CAPABILITIES] * 3


async def test_an_archive_that_appears_grows_and_ends_is_said(told):
    look = told.upkeep.old.announce_archives
    await told.update(*"abc")
    await told.keep_windows()
    before = len(await said(told))
    await look()
    assert await newly_said(told, before) == []
    await grow_old(told, 40)
    for _ in range(2):
        await look()
    created = ("changelist-archive", "created", ARCHIVE)
    assert await newly_said(told, before) == [CAPABILITIES, created]
    await told.update(*"abc")
    await told.keep_windows()
    before = len(await said(told))
    newest = (await told.windows.span(SET)).windows[-1]
    await told.client.zrem(keys.windows(CHANGES), newest.render())
    past = newest.until - 39 * DAY
    aged = newest._replace(from_=past - 1, until=past)
    await told.client.zadd(keys.windows(CHANGES), {aged.render(): past})
    await look()
    assert await newly_said(told, before) == [("changelist-archive", "updated", ARCHIVE)]
    await told.windows.forget(SET, (await told.windows.span(SET)).windows)
    await look()
    deleted = ("changelist-archive", "deleted", ARCHIVE)
    assert await newly_said(told, before + 1) == [CAPABILITIES, deleted]


OWN = {
    "resourcelist": "http://example.com/resourcelist.xml",
    "resourcedump": "http://example.com/resourcedump.xml",
    "changelist": "http://example.com/changelist.xml",
    "changedump": "http://example.com/changedump.xml",
    "resourcelist_archive": "http://example.com/resourcelist-archive.xml",
    "resourcedump_archive": "http://example.com/resourcedump-archive.xml",
    "changelist_archive": "http://example.com/changelist-archive.xml",
    "changedump_archive": "http://example.com/changedump-archive.xml",
}


@pytest.mark.parametrize("option", OWN)
async def test_a_document_of_the_sources_own_is_offered_and_said(told, option):
    capability, path = option.replace("_", "-"), OWN[option].removeprefix("http://example.com")
    await told.hub.edit_set(SET, {option: OWN[option]})
    await told.upkeep.announcements.documents_changed(SET)
    assert (await capabilities(told))[capability] == OWN[option]
    assert [each[:2] for each in await newly_said(told, 1)] == [
        CAPABILITIES[:2],
        (capability, "created"),
    ]
    assert (await said(told))[-1][2].endswith(path)
    await told.hub.edit_set(SET, {option: None})
    await told.upkeep.announcements.documents_changed(SET)
    assert (await newly_said(told, 3)) == [CAPABILITIES]


async def test_channels_of_the_sources_own_are_offered_instead_of_the_hubs(told):
    topic, socket, hub = "http://a.org/topic", "wss://a.org/channel", "http://a.org/hub"
    await told.hub.edit_set(
        SET, {"change_notification": topic, "framework_notification": socket, "channel_hub": hub}
    )
    document = await told.document(f"/{SET}/capabilitylist.xml")
    found = {entry.md.capability: entry for entry in document.entries if entry.md}
    assert found["change-notification"].loc == topic
    assert [link.href for link in found["change-notification"].links] == [hub]
    assert found["framework-notification"].loc == socket
    twin = await capabilities(told, "capabilitylist-ws.xml")
    assert twin["framework-notification"] == socket
    assert twin["change-notification"].startswith("ws")


# What becomes of a set that goes meanwhile ------------------------------------------------------


async def lasting_keys(pulling: Pulling) -> list[bytes]:
    found = [key async for key in pulling.client.scan_iter(match=f"rsnotify:{{{SET}}}:*")]
    return [key for key in found if await pulling.client.ttl(key) < 0]


async def test_a_window_packed_while_its_set_is_removed_leaves_no_key(pulling):
    await pulling.update(*"abcd")
    (window,) = (await pulling.windows.span(SET)).windows
    packed = pack([])
    await pulling.hub.remove_set(SET)
    await pulling.windows.keep(SET, window, packed)
    assert await lasting_keys(pulling) == []
    await pulling.hub.add_set(SET)  # one made anew has no such window either
    await pulling.windows.keep(SET, window, packed)
    assert await pulling.windows.packed(SET, window) is None


async def test_whatever_is_made_while_a_set_is_removed_leaves_no_key(pulling):
    """The chores and the removal at once, again and again."""
    for _ in range(10):
        await pulling.hub.add_set(SET)
        await pulling.update(*"abcdef")
        await asyncio.gather(
            pulling.keep_windows(),
            pulling.upkeep.snapshots.take(SET),
            pulling.hub.remove_set(SET),
            return_exceptions=True,
        )
        assert await lasting_keys(pulling) == []


# Where a snapshot stands ------------------------------------------------------------------------


async def test_no_change_has_the_datetime_at_which_a_resource_list_stands(pulling):
    last = await pulling.update("a")
    at = (await pulling.upkeep.snapshots.take(SET)).at
    assert at == last.until + 1
    moment = str(Position(at))
    next_ = await pulling.publish(Change(loc("b"), "updated", datetime=moment))
    assert next_.until == at + 1
    assert next_.from_ == last.until  # consecutive intervals join all the same


async def test_snapshots_without_a_change_between_them_stand_at_the_same_place(pulling):
    await pulling.update("a")
    one, other = [await pulling.upkeep.snapshots.take(SET) for _ in range(2)]
    assert one.at == other.at


async def test_whoever_asks_from_a_resource_lists_at_misses_nothing(pulling):
    await pulling.update("a")
    at = (await pulling.upkeep.snapshots.take(SET)).at
    assert names(await pulling.document(f"{OPEN}?from={at}")) == []
    await pulling.update("b")
    assert names(await pulling.document(f"{OPEN}?from={at}")) == ["b"]
    await pulling.is_level()
    told = await pulling.hub.reading.after(pulling.hub.feed(CHANGES), at)
    assert told is not None
    assert told.from_ == at
