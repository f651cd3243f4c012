"""Pages: every entry once and in order, forwards and backwards, whatever comes in meanwhile."""

import asyncio
import gzip
from itertools import pairwise
from typing import Any

import pytest

from rsnotify.documents.pages import PAGES_AT_ONCE
from rsnotify.live.reading import History
from rsnotify.resourcesync.notification import Row
from rsnotify.resourcesync.xml_writer import Document
from tests.support.pulling import BASE, SET, Pulling, names, times
from tests.support.running import PATIENT_SECONDS

OPEN = f"/{SET}/changelist.xml"
RESOURCES = f"/{SET}/resourcelist.xml"
LATER = "9999-01-01T00:00:00Z"


@pytest.mark.parametrize("over", [0, 1])
async def test_4_pages_are_made_at_once_and_one_more_waits_its_turn(client, monkeypatch, over):
    read, going_on, reading = History.read_back, asyncio.Event(), 0

    async def slow(*asked: Any) -> list[Row]:
        nonlocal reading
        reading += 1
        await going_on.wait()
        return await read(*asked)

    monkeypatch.setattr(History, "read_back", slow)
    path = f"{OPEN}?until={LATER}&limit=2"
    async with Pulling(client, paging={"wait_seconds": 0.5}) as pulling:
        await pulling.update("a")
        asking = [asyncio.create_task(pulling.get(path)) for _ in range(PAGES_AT_ONCE + over)]
        async with asyncio.timeout(PATIENT_SECONDS):
            while reading < PAGES_AT_ONCE:
                await asyncio.sleep(0.01)
        if over:  # any of them may have come last
            await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        assert [each.result().status for each in asking if each.done()] == [503] * over
        assert reading == PAGES_AT_ONCE
        going_on.set()
        answers = await asyncio.gather(*asking)
    assert sorted(each.status for each in answers) == [200] * PAGES_AT_ONCE + [503] * over


def link(document: Document, rel: str) -> str | None:
    return next((link.href for link in document.links if link.rel == rel), None)


async def walk(pulling: Pulling, path: str | None, rel: str = "next") -> list[Document]:
    found = []
    while path is not None:
        found.append(await pulling.document(path))
        path = link(found[-1], rel)
    return found


def all_names(documents: list[Document]) -> str:
    return "".join("".join(names(document)) for document in documents)


async def beginning(pulling: Pulling) -> str:
    return str((await pulling.windows.record(SET)).created)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 9, 10, 11, 50_000])
async def test_a_walk_visits_every_change_once_in_order(pulling, limit):
    for name in "abcdefghij":
        await pulling.update(name)
    forwards = await walk(pulling, f"{OPEN}?from={await beginning(pulling)}&limit={limit}")
    assert all_names(forwards) == "abcdefghij"
    assert all(len(document.entries) <= limit for document in forwards)
    assert len(forwards) == -(-10 // limit)
    backwards = await walk(pulling, f"{OPEN}?until={LATER}&limit={limit}", "prev")
    assert all_names(backwards[::-1]) == "abcdefghij"
    assert len(backwards) == -(-10 // limit)


async def test_pages_join_and_only_the_last_is_open(pulling):
    for name in "abcdefg":
        await pulling.update(name)
    *closed, last = await walk(pulling, f"{OPEN}?from={await beginning(pulling)}&limit=2")
    for before, after in zip(closed, [*closed[1:], last], strict=True):
        assert before.md.until == after.md.from_ == str(times(before)[-1])
    assert last.md.until is None


async def test_the_page_before_is_the_one_that_one_came_from(pulling):
    for name in "abcdefg":
        await pulling.update(name)
    found = await walk(pulling, f"{OPEN}?from={await beginning(pulling)}&limit=2")
    for before, after in pairwise(found):
        assert names(await pulling.document(link(after, "prev") or "")) == names(before)
    assert link(found[0], "prev") is None


async def test_a_page_is_fixed_while_changes_come_in(pulling):
    for name in "abcde":
        await pulling.update(name)
    path = f"{OPEN}?from={await beginning(pulling)}&limit=2"
    seen, bodies = "", []
    for name in "vwxyz":
        bodies.append((path, (await pulling.get(path)).body))
        document = await pulling.document(path)
        seen += "".join(names(document))
        path = link(document, "next") or f"{OPEN}?from={times(document)[-1]}&limit=2"
        await pulling.update(name)
    assert seen == "abcdevwxyz"[: len(seen)]
    assert len(seen) > 7
    for fixed, body in bodies[:2]:
        assert (await pulling.get(fixed)).body == body


@pytest.mark.parametrize("is_let_go", [False, True])
async def test_a_walk_goes_through_what_the_stream_no_longer_has(pulling, is_let_go):
    for name in "abcdefghij":
        await pulling.update(name)
    await pulling.keep_windows()
    if is_let_go:
        await pulling.let_go_of_all()
    for limit in (1, 2, 4, 7):
        found = await walk(pulling, f"{OPEN}?from={await beginning(pulling)}&limit={limit}")
        assert all_names(found) == "abcdefghij"
        back = await walk(pulling, f"{OPEN}?until={LATER}&limit={limit}", "prev")
        assert all_names(back[::-1]) == "abcdefghij"


async def test_the_pages_of_a_closed_list_stay_in_it(pulling):
    for name in "abcdef":
        await pulling.update(name)
    index = await pulling.document(f"/{SET}/changelist-index.xml")
    first, second = index.entries[0], index.entries[1]
    found = await walk(pulling, f"{second.loc}?limit=2")
    assert [names(document) for document in found] == [["d", "e"], ["f"]]
    assert found[-1].md.until == second.md.until
    assert link(found[0], "prev") is None
    assert all_names(await walk(pulling, f"{first.loc}?limit=2")) == "abc"


async def test_without_a_position_pages_begin_with_the_open_list(pulling):
    for name in "abcde":
        await pulling.update(name)
    document = await pulling.document(f"{OPEN}?limit=1")
    assert names(document) == ["d"]
    assert names(await pulling.document(link(document, "prev") or "")) == ["c"]


async def test_an_empty_set_has_one_empty_page(pulling):
    (page,) = await walk(pulling, f"{OPEN}?limit=5")
    assert (page.entries, page.md and page.md.until, link(page, "prev")) == ((), None, None)
    assert (await walk(pulling, f"{OPEN}?until={LATER}", "prev"))[0].entries == ()


async def test_a_page_ends_where_it_would_take_too_many_bytes(client):
    async with Pulling(client, paging={"page_bytes": 1, "read_changes": 2}) as pulling:
        for name in "abcde":
            await pulling.update(name)
        found = await walk(pulling, f"{OPEN}?from={await beginning(pulling)}&limit=4")
    assert all_names(found) == "abcde"
    assert max(len(document.entries) for document in found) == 1


NUMBERS = ["0", "-1", "50001", "1.5", "", "x", "1" * 400, "٣", "+5", " 5"]


@pytest.mark.parametrize("limit", NUMBERS)
@pytest.mark.parametrize("path", [OPEN, RESOURCES])
async def test_a_limit_out_of_range_is_refused(pulling, path, limit):
    await pulling.update("a")
    await pulling.upkeep.snapshots.take(SET)
    answer = await pulling.get(f"{path}?limit={limit.replace('+', '%2B')}")
    assert answer.status == 400
    assert b"it must be a whole number from 1 to 50000" in answer.body


async def test_a_limit_is_given_once(pulling):
    answer = await pulling.get(f"{OPEN}?limit=1&limit=2")
    assert (answer.status, b"more than once" in answer.body) == (400, True)


async def test_a_page_may_begin_in_the_future_no_more_than_a_list(pulling):
    assert (await pulling.get(f"{OPEN}?limit=1&from={LATER}")).status == 400
    assert (await pulling.get(f"{OPEN}?limit=1&until={LATER}")).status == 200


async def test_a_page_begins_or_ends_somewhere(pulling):
    now = await beginning(pulling)
    answer = await pulling.get(f"{OPEN}?from={now}&until={now}")
    assert (answer.status, b"leave one of them out" in answer.body) == (400, True)
    assert (await pulling.get(f"{OPEN}?until=yesterday")).status == 400


async def test_the_operators_page_size_holds_for_all(client):
    async with Pulling(client, changes=10, page_size=2) as pulling:
        await pulling.update(*"abcde")
        found = await walk(pulling, f"{OPEN}?from={await beginning(pulling)}")
        assert [names(document) for document in found] == [["a", "b"], ["c", "d"], ["e"]]
        assert (await pulling.get(f"{OPEN}?limit=2")).status == 200
        assert (await pulling.get(f"{OPEN}?limit=3")).status == 400


async def test_a_position_that_is_no_longer_kept_is_gone(client):
    async with Pulling(client, changes=3, retention_days=1) as pulling:
        begin = await beginning(pulling)
        for name in "abcdef":
            await pulling.update(name)
        span = await pulling.windows.span(SET)
        await pulling.keep_windows()
        await pulling.let_go_of_all()
        await pulling.windows.forget(SET, span.windows[:1])
        assert (await pulling.get(f"{OPEN}?from={begin}&limit=2")).status == 410
        answer = await pulling.get(f"{OPEN}?until={begin}&limit=2")
        assert answer.headers["link"] == f'<{BASE}/{SET}/changelist-index.xml>; rel="index"'
        (document,) = await walk(pulling, f"{OPEN}?until={LATER}&limit=9", "prev")
        assert names(document) == list("def")


async def test_a_page_is_304_to_who_has_it_and_the_same_in_gzip(pulling):
    await pulling.update(*"abc")
    path = f"{OPEN}?from={await beginning(pulling)}&limit=2"
    answer = await pulling.get(path)
    assert (await pulling.get(path, if_none_match=answer.headers["etag"])).status == 304
    assert gzip.decompress((await pulling.get(path, accept_encoding="gzip")).body) == answer.body


# Resource Lists --------------------------------------------------------------------------------


in_parts_of_four = pytest.mark.parametrize(
    "pulling", [{"part_resources": 4, "slice_resources": 1}], indirect=True, ids=[""]
)


@in_parts_of_four
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
async def test_a_walk_visits_every_resource_once(pulling, limit):
    await pulling.update(*"abcdefghij")
    await pulling.upkeep.snapshots.take(SET)
    found = await walk(pulling, f"{RESOURCES}?limit={limit}")
    assert sorted(all_names(found)) == list("abcdefghij")
    assert all(document.md == found[0].md for document in found)
    back = await walk(pulling, link(found[-2], "next") if len(found) > 1 else None, "prev")
    assert all_names(back[::-1]) == all_names(found)


@in_parts_of_four
async def test_a_walk_stays_in_its_snapshot(pulling):
    await pulling.update(*"abcdef")
    await pulling.upkeep.snapshots.take(SET)
    first = await pulling.document(f"{RESOURCES}?limit=2")
    await pulling.update(*"uvwxyz")
    await pulling.upkeep.snapshots.take(SET)
    rest = await walk(pulling, link(first, "next"))
    assert sorted(all_names([first, *rest])) == list("abcdef")


async def test_a_small_list_has_pages_without_an_index(pulling):
    await pulling.update(*"abc")
    await pulling.upkeep.snapshots.take(SET)
    found = await walk(pulling, f"{RESOURCES}?limit=2")
    assert [len(document.entries) for document in found] == [2, 1]
    assert link(found[0], "index") is None


async def test_an_empty_resource_list_has_one_page(pulling):
    await pulling.upkeep.snapshots.take(SET)
    (document,) = await walk(pulling, f"{RESOURCES}?limit=2")
    assert document.entries == ()


async def test_an_offset_behind_the_last_resource_is_not_found(pulling):
    await pulling.update(*"abc")
    await pulling.upkeep.snapshots.take(SET)
    assert (await pulling.get(f"{RESOURCES}?limit=2&offset=2")).status == 200
    assert (await pulling.get(f"{RESOURCES}?limit=2&offset=3")).status == 404
    assert (await pulling.get(f"{RESOURCES}?limit=2&offset=50001")).status == 400
