"""A Source that is set back to a backup is noticed, said, and copied as it is now."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from aiohttp import web

from clients.python.tests.mirror.test_mirror import Once, files, once
from rsnotify.resourcesync.change import MICROSECONDS, Position, render_datetime
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, render_document
from rsnotify_mirror.audit import audit
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.plan import Options
from rsnotify_mirror.report import Event, status_of
from rsnotify_mirror.state import State
from tests.support.running import until
from tests.support.sources import CAPABILITIES, Source, entry_of, rendered

HOUR = 3_600 * MICROSECONDS
SAYS = "was set back"


def backup(source: Source) -> Callable[[], None]:
    """Remember all that it has; what is returned brings it back."""
    kept = dict(source.resources), list(source.changes), source.at, dict(source.documents)

    def restore() -> None:
        source.resources, source.changes = dict(kept[0]), list(kept[1])
        source.at, source.documents = kept[2], dict(kept[3])

    return restore


def later(source: Source, microseconds: int = HOUR) -> None:
    """A newer Resource List."""
    source.at = Position(source.at + microseconds)
    source.now = max(source.now, int(source.at))
    source.changes.clear()
    source.list_resources()


def said(ran: Once) -> list[str]:
    return [each.problem for each in ran.events if SAYS in (each.problem or "")]


def trouble(copy: Path) -> tuple[bool, str | None]:
    with State(copy, is_writer=False) as state:
        status = status_of(state)
    return status.in_step, status.last_error


async def in_sync(source: Source, copy: Path) -> bool:
    return (await audit(source.url + CAPABILITIES, copy)).is_in_sync


@pytest.fixture
def listed(source: Source) -> Source:
    """Twenty more resources, so that the delete guard has something to guard."""
    for number in range(20):
        source.add(f"{number}.txt", b"first")
    source.list_resources()
    return source


# A Resource List --------------------------------------------------------------------------------


async def test_an_older_resource_list_is_said_and_what_it_has_is_copied(listed, copy):
    listed.documents[CAPABILITIES] = listed.capability_list("resourcelist")
    await once(listed, copy)
    restore = backup(listed)
    listed.resources |= {"/a.txt": b"second a", "/new.txt": b"new"}
    later(listed)
    assert (await once(listed, copy)).is_whole
    before = str(listed.at)
    restore()
    ran = await once(listed, copy)
    assert (ran.is_whole, len(said(ran))) == (False, 1)
    assert before in said(ran)[0]
    assert str(listed.at) in said(ran)[0]
    assert files(copy)["a.txt"] == b"first a"
    assert "new.txt" in files(copy)  # it may be a cache that has sent the list
    is_in_step, error = trouble(copy)
    assert not is_in_step
    assert SAYS in str(error)
    ran = await once(listed, copy)
    assert (ran.is_whole, said(ran)) == (True, [])
    assert "new.txt" not in files(copy)
    assert await in_sync(listed, copy)


async def test_the_delete_guard_stands_before_what_an_older_list_leaves_out(listed, copy):
    listed.documents[CAPABILITIES] = listed.capability_list("resourcelist")
    await once(listed, copy)
    restore = backup(listed)
    listed.resources |= {f"/new{number}.txt": b"new" for number in range(9)}
    later(listed)
    await once(listed, copy)
    restore()
    for _ in range(3):
        assert not (await once(listed, copy)).is_whole
        assert len([path for path in files(copy) if path.startswith("new")]) == 9
    assert (await once(listed, copy, max_delete=100)).is_whole
    assert await in_sync(listed, copy)


async def test_a_list_of_a_cache_is_said_and_loses_nothing(listed, copy):
    """The Source itself is as it was: what the list leaves out is there."""
    listed.documents[CAPABILITIES] = listed.capability_list("resourcelist")
    await once(listed, copy)
    old = listed.documents["/resourcelist.xml"]
    listed.resources["/new.txt"] = b"new"
    later(listed)
    await once(listed, copy)
    new, listed.documents["/resourcelist.xml"] = listed.documents["/resourcelist.xml"], old
    for _ in range(2):
        await once(listed, copy)
        assert files(copy)["new.txt"] == b"new"
    listed.documents["/resourcelist.xml"] = new
    assert (await once(listed, copy)).is_whole
    assert await in_sync(listed, copy)


async def test_a_file_that_is_older_than_the_copys_is_fetched_where_only_its_server_can_tell(
    listed, copy
):
    """A server answers 304 to whoever has a newer one, as RFC 9110 has it (13.1.3)."""
    listed.documents[CAPABILITIES] = listed.capability_list("resourcelist")
    there = {"first": datetime(2026, 11, 20, 10, tzinfo=UTC)}
    there["second"] = there["first"] + timedelta(hours=1)
    now = "second"

    async def answer(request: web.Request) -> web.Response:
        modified, since = there[now], request.if_modified_since
        status = 304 if since is not None and modified <= since else 200
        found = web.Response(status=status, text=None if status == 304 else now)
        found.last_modified = modified
        return found

    def list_at(at: str) -> None:
        entries = [Entry(listed.loc("a.txt"))]
        listed.documents["/resourcelist.xml"] = rendered("resourcelist", entries, at=at)

    listed.handlers["/a.txt"] = answer
    list_at("2026-11-20T12:00:00Z")
    for _ in range(2):
        assert (await once(listed, copy)).is_whole
        assert files(copy) == {"a.txt": b"second"}
    now = "first"
    list_at("2026-11-20T11:00:00Z")
    assert not (await once(listed, copy)).is_whole
    assert files(copy) == {"a.txt": b"first"}


SAME, BACK = True, False
MOMENTS = {  # the `at` of two lists, one after the other: whether the second is no older one
    "the same": ("2026-11-20T00:00:09.5Z", "2026-11-20T00:00:09.5Z", SAME),
    "a microsecond before": ("2026-11-20T00:00:09.500001Z", "2026-11-20T00:00:09.500000Z", BACK),
    "its second": ("2026-11-20T00:00:09.999999Z", "2026-11-20T00:00:09Z", SAME),
    "the second before": ("2026-11-20T00:00:10.000000Z", "2026-11-20T00:00:09Z", BACK),
    "its tenth of a second": ("2026-11-20T00:00:09.599Z", "2026-11-20T00:00:09.5Z", SAME),
    "the tenth before": ("2026-11-20T00:00:09.600Z", "2026-11-20T00:00:09.5Z", BACK),
    "its minute": ("2026-11-20T00:09:59Z", "2026-11-20T00:09Z", SAME),
    "the minute before": ("2026-11-20T00:10:00Z", "2026-11-20T00:09Z", BACK),
    "its day": ("2026-11-20T23:59:59Z", "2026-11-20", SAME),
    "the day before": ("2026-11-20T00:00:00Z", "2026-11-19", BACK),
    "the same moment in another zone": ("2026-11-20T01:00:00Z", "2026-11-20T02:00:00+01:00", SAME),
    "no moment": ("2026-11-20T00:00:09Z", None, SAME),
}


@pytest.mark.parametrize("what", MOMENTS)
async def test_a_list_is_older_only_if_all_of_its_moment_is(listed, copy, what):
    *moments, is_same = MOMENTS[what]
    listed.documents[CAPABILITIES] = listed.capability_list("resourcelist")
    text = listed.documents["/resourcelist.xml"].decode()
    mark = f' at="{listed.at}"'
    assert mark in text
    runs = []
    for moment in moments:
        stated = "" if moment is None else f' at="{moment}"'
        listed.documents["/resourcelist.xml"] = text.replace(mark, stated).encode()
        runs.append(await once(listed, copy))
    assert [each.is_whole for each in runs] == [True, is_same]
    assert [len(said(each)) for each in runs] == [0, not is_same]


# Change Lists -----------------------------------------------------------------------------------


def none_left(source: Source) -> None:
    """The backup was made before the first change."""


def one_left(source: Source) -> None:
    source.change("0.txt", b"before")


@pytest.mark.parametrize("backed_up", [none_left, one_left])
async def test_changes_that_were_read_and_are_gone_are_said(listed, copy, backed_up):
    await once(listed, copy)
    backed_up(listed)
    await once(listed, copy)
    restore = backup(listed)
    listed.change("1.txt", b"second")
    listed.change("2.txt", None)
    listed.change("new.txt", b"new")
    assert (await once(listed, copy)).is_whole
    restore()
    # No resource of the older Resource List is tried twice before the Change List is read.
    ran = await once(listed, copy, first_retry_seconds=10.0)
    assert (ran.is_whole, len(said(ran))) == (False, 1)
    assert (files(copy)["1.txt"], files(copy)["2.txt"]) == (b"first", b"first")
    assert SAYS in str(trouble(copy)[1])
    ran = await once(listed, copy)
    assert (ran.is_whole, said(ran)) == (True, [])
    assert await in_sync(listed, copy)
    listed.change("3.txt", b"after")
    assert (await once(listed, copy)).is_whole
    assert files(copy)["3.txt"] == b"after"


@pytest.mark.parametrize("is_incomplete", [False, True])
async def test_a_source_that_has_change_lists_alone_is_said_once(listed, copy, is_incomplete):
    """They are read again from their beginning where something could not be read before."""
    listed.documents[CAPABILITIES] = listed.capability_list("changelist")
    for number in range(15):
        listed.change(f"{number}.txt", b"first")
    await once(listed, copy)
    restore = backup(listed)
    listed.change("1.txt", b"second")
    assert (await once(listed, copy)).is_whole
    restore()
    if is_incomplete:
        with State(copy) as state:
            state.set_fact("incomplete", "1")
    ran = await once(listed, copy)
    assert (ran.is_whole, len(said(ran))) == (False, 1)
    assert files(copy)["1.txt"] == b"first"
    ran = await once(listed, copy)
    assert (ran.is_whole, said(ran)) == (True, [])
    assert await in_sync(listed, copy)


@pytest.mark.parametrize("hours", [-24, 24])
async def test_it_is_said_whatever_the_clock_of_the_source_says(listed, copy, hours):
    listed.documents[CAPABILITIES] = listed.capability_list("resourcelist")
    now = datetime.now(UTC) + timedelta(hours=hours)

    async def answer(_: web.Request) -> web.Response:
        body = listed.documents["/resourcelist.xml"]
        date = format_datetime(now, usegmt=True)
        return web.Response(body=body, content_type="application/xml", headers={"Date": date})

    listed.handlers["/resourcelist.xml"] = answer
    runs = []
    for minutes in (5, 10):
        listed.at = Position(int((now - timedelta(minutes=minutes)).timestamp() * MICROSECONDS))
        listed.list_resources()
        runs.append(await once(listed, copy))
    assert [(each.is_whole, len(said(each))) for each in runs] == [(True, 0), (False, 1)]


async def test_a_list_that_is_written_anew_after_it_was_set_back_hides_nothing(listed, copy):
    """Its `until` is the moment of the request."""
    await once(listed, copy)
    restore = backup(listed)
    listed.change("1.txt", b"second")
    await once(listed, copy)
    restore()
    end = render_datetime(listed.now + HOUR)
    listed.documents["/changelist.xml"] = rendered(
        "changelist", [], **{"from": str(listed.at), "until": end}
    )
    ran = await once(listed, copy)
    assert (ran.is_whole, len(said(ran))) == (False, 1)
    assert files(copy)["1.txt"] == b"first"


async def test_an_older_end_is_said(listed, copy):
    """No change was ever in the list."""
    for hours, is_whole in ((2, True), (3, True), (1, False), (1, True)):
        end = str(Position(listed.at + hours * HOUR))
        listed.documents["/changelist.xml"] = rendered(
            "changelist", [], **{"from": str(listed.at), "until": end}
        )
        ran = await once(listed, copy)
        assert (ran.is_whole, len(said(ran))) == (is_whole, not is_whole)


def index_of(source: Source, *lists: tuple[str, str, str | None]) -> None:
    entries = tuple(
        Entry(source.loc(name), md=Md(from_=begin, until=end)) for name, begin, end in lists
    )
    document = Document("sitemapindex", Md(capability="changelist"), (), entries)
    source.documents["/changelist.xml"] = render_document(document)


async def test_lists_of_an_index_that_end_before_are_said(listed, copy):
    """A closed list that was read is gone, and the list before it is the open one again."""
    await once(listed, copy)
    first, second = (listed.change("1.txt", text) for text in (b"second", b"third"))
    ends = [str(listed.at), str(first.datetime), str(second.datetime)]
    for name, change, begin, end in (
        ("one.xml", first, ends[0], ends[1]),
        ("two.xml", second, ends[1], ends[2]),
    ):
        md = {"from": begin, "until": end}
        listed.documents[f"/{name}"] = rendered("changelist", [entry_of(change)], **md)
    index_of(listed, ("one.xml", *ends[:2]), ("two.xml", *ends[1:]))
    assert (await once(listed, copy)).is_whole
    md = {"from": ends[0]}
    listed.documents["/one.xml"] = rendered("changelist", [entry_of(first)], **md)
    listed.resources["/1.txt"] = b"second"
    index_of(listed, ("one.xml", ends[0], None))
    ran = await once(listed, copy)
    assert (ran.is_whole, len(said(ran))) == (False, 1)
    assert files(copy)["1.txt"] == b"second"
    assert (await once(listed, copy)).is_whole


async def test_a_new_open_list_is_no_older_one(listed, copy):
    """The changes before stand in a closed list, or in none any more."""
    await once(listed, copy)
    change = listed.change("1.txt", b"second")
    await once(listed, copy)
    begin = render_datetime(listed.now + 1)
    closed = {"from": str(listed.at), "until": begin}
    listed.documents["/closed.xml"] = rendered("changelist", [entry_of(change)], **closed)
    listed.documents["/open.xml"] = rendered("changelist", [], **{"from": begin})
    index_of(listed, ("closed.xml", str(listed.at), begin), ("open.xml", begin, None))
    for _ in range(2):
        ran = await once(listed, copy)
        assert (ran.is_whole, said(ran)) == (True, [])


async def test_a_list_that_forgets_what_is_old_is_no_older_one(listed, copy):
    await once(listed, copy)
    for number in range(3):
        listed.change(f"{number}.txt", b"second")
    await once(listed, copy)
    del listed.changes[:2]
    listed.list_changes()
    ran = await once(listed, copy)
    assert (ran.is_whole, said(ran)) == (True, [])


@pytest.mark.parametrize("places", [20, 23, 26])
async def test_a_time_that_is_written_shorter_is_no_older_one(listed, copy, places):
    """The same change, first in microseconds, then in seconds, tenths or milliseconds."""
    await once(listed, copy)
    listed.now += 123_456
    change = listed.change("1.txt", b"second")
    await once(listed, copy)
    text = listed.documents["/changelist.xml"].decode()
    at = str(change.datetime)
    shorter = at[: places - 1].rstrip(".") + "Z"
    listed.documents["/changelist.xml"] = text.replace(f'"{at}"', f'"{shorter}"').encode()
    ran = await once(listed, copy)
    assert (ran.is_whole, said(ran)) == (True, [])


async def test_what_cannot_be_read_is_not_called_older(listed, copy):
    await once(listed, copy)
    listed.change("1.txt", b"second")
    await once(listed, copy)
    whole, listed.documents["/changelist.xml"] = listed.documents["/changelist.xml"], b"<html>"
    ran = await once(listed, copy)
    assert (ran.is_whole, said(ran)) == (False, [])
    listed.documents["/changelist.xml"] = whole
    assert (await once(listed, copy)).is_whole


async def test_a_mirror_that_follows_says_it_and_copies_what_is_there_now(listed, copy):
    await once(listed, copy)
    restore = backup(listed)
    listed.change("1.txt", b"second")
    events: list[Event] = []
    options = Options(poll_seconds=0.05, relist_seconds=0.3, first_retry_seconds=0.01)
    url = listed.url + CAPABILITIES

    def has(name: str, content: bytes) -> Callable[[], Awaitable[bool]]:
        async def found() -> bool:
            return files(copy)[name] == content

        return found

    async with AsyncMirror(url, copy, options, report=events.append) as mirror:
        task = asyncio.create_task(mirror.run())

        async def has_read_again() -> bool:
            """First, then after it was set back, and then because that was not whole."""
            return [each.event for each in events].count("live") >= 3

        try:
            await until(has("1.txt", b"second"))
            restore()
            await until(has("1.txt", b"first"))
            assert len(said(Once(False, events))) == 1
            listed.change("2.txt", b"after")
            await until(has("2.txt", b"after"))
            await until(has_read_again)
            assert len(said(Once(False, events))) == 1
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    assert await in_sync(listed, copy)
