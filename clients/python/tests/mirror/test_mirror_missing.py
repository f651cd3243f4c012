"""What a list leaves out is deleted from a copy only if it is gone: pages may have moved."""

import pytest
from aiohttp import web

from clients.python.tests.bridge.moving import LISTS, Moving
from clients.python.tests.mirror.test_mirror import Once, files, once
from rsnotify_mirror.audit import audit, repair
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.plan import Options
from tests.support.sources import CAPABILITIES, Source

MANY = 40


@pytest.fixture
async def many(source: Source) -> Source:
    """Forty resources in a Resource List, and nothing else."""
    source.resources.clear()
    for number in range(MANY):
        source.add(f"{number}.txt", f"first {number}".encode())
    source.list_resources()
    source.documents[CAPABILITIES] = source.capability_list("resourcelist")
    return source


def unlist(source: Source, *paths: str) -> dict[str, bytes]:
    """Leave these out of the list, though they are there; what they are."""
    left = {path: source.resources.pop(path) for path in paths}
    source.list_resources()
    source.resources |= left
    return left


def problem(ran: Once) -> str:
    return "; ".join(each.problem or "" for each in ran.events if each.event in ("kept", "skipped"))


async def moved_to_the_front(_: web.Request) -> web.Response:
    raise web.HTTPFound("/login")


ANSWERS = {  # of what is left out: whether the run is whole, and how many files are left
    "there": (200, True, MANY),
    "404": (404, True, MANY - 1),
    "410": (410, True, MANY - 1),
    "403": (403, False, MANY),
    "500": (500, False, MANY),
    "503": (503, False, MANY),
}


@pytest.mark.parametrize("what", ANSWERS)
async def test_what_a_list_leaves_out_is_deleted_if_it_is_gone_and_else_kept_and_named(
    many, copy, what
):
    status, is_whole, left = ANSWERS[what]
    await once(many, copy)
    unlist(many, "/0.txt")
    if status != 200:
        many.answer("/0.txt", status=status)
    ran = await once(many, copy)
    assert (ran.is_whole, len(files(copy))) == (is_whole, left)
    assert ("1 resource is missing" in problem(ran)) == (left == MANY)
    again = await once(many, copy)
    assert (again.is_whole, len(files(copy))) == (is_whole, left)


async def test_what_leads_to_a_login_page_is_kept(many, copy):
    await once(many, copy)
    unlist(many, "/0.txt")
    many.resources["/login"] = b"log in"
    many.handlers["/0.txt"] = moved_to_the_front
    ran = await once(many, copy)
    assert (ran.is_whole, len(files(copy))) == (False, MANY)


async def test_an_audit_names_what_is_gone_in_the_order_of_the_addresses(many, copy):
    """Whatever it has asked for first: two audits of the same copy are compared by their texts."""
    await once(many, copy)
    paths = [f"/{number}.txt" for number in range(10, 22)]
    for path in paths:
        many.resources.pop(path)
    many.list_resources()
    found = await audit(many.url + CAPABILITIES, copy)
    assert [each.loc for each in found.findings] == [many.loc(path[1:]) for path in paths]


@pytest.mark.parametrize("broken", ["/0.txt", "/2.txt"])
async def test_a_resource_that_is_never_answered_does_not_keep_the_others_of_its_host_for_ever(
    many, copy, broken
):
    """A run asks its host for nothing else; chance decides what a run asks for first."""
    missing = ["/0.txt", "/1.txt", "/2.txt"]
    await once(many, copy)
    unlist(many, *missing)
    for path in missing:
        many.answer(path, status=503 if path == broken else 404)
    for _ in range(60):
        await once(many, copy)
        if len(files(copy)) == MANY - 2:
            break
    assert [path for path in missing if path[1:] in files(copy)] == [broken]


async def test_where_too_many_are_missing_nobody_is_asked(many, copy):
    await once(many, copy)
    asked = many.asked.copy()
    unlist(many, *(f"/{number}.txt" for number in range(5)))
    ran = await once(many, copy)
    assert not ran.is_whole
    assert [path for path in many.resources if many.asked[path] > asked[path]] == []


async def test_what_the_selection_leaves_out_goes_unasked(many, copy):
    await once(many, copy)
    ran = await once(many, copy, selection=Options().selection.__class__(exclude=("*/0.txt",)))
    assert (ran.is_whole, len(files(copy))) == (True, MANY - 1)


async def test_an_audit_takes_for_extra_only_what_is_gone(many, copy):
    await once(many, copy)
    unlist(many, "/0.txt", "/1.txt", "/2.txt")
    many.answer("/1.txt", status=404)
    many.answer("/2.txt", status=500)
    url = many.url + CAPABILITIES
    found = await audit(url, copy)
    assert [each.loc for each in found.findings] == [many.loc("1.txt")]
    assert "1 resource is missing" in found.skipped[0]
    await repair(url, copy, found, max_delete=100)
    assert {"0.txt", "2.txt"} < {*files(copy)}
    assert "1.txt" not in files(copy)


# Pages that move --------------------------------------------------------------------------------


async def run(found: Moving, copy, **options: object) -> bool:
    chosen = Options(first_retry_seconds=0.01, max_delete=100, **options)
    async with AsyncMirror(found.address, copy, chosen) as mirror:
        return await mirror.once()


@pytest.mark.parametrize("kind", LISTS, ids=lambda kind: kind.__name__)
async def test_what_slips_to_a_page_that_was_read_is_copied(source, copy, kind):
    found = kind(source)
    found.acts = [*[lambda: None] * found.before, found.delete_one]
    await run(found, copy)
    assert {*found.state} - {*files(copy)} == set()


@pytest.mark.parametrize("kind", LISTS, ids=lambda kind: kind.__name__)
async def test_what_slips_stays_in_the_copy_and_what_is_deleted_goes(source, copy, kind):
    """With each page that is sent, one after the other, as the last before the deletion."""
    found = kind(source)
    await run(found, copy)
    for pages in range(4):
        found.acts = [*[lambda: None] * pages, found.delete_one]
        await run(found, copy)
        assert {*found.state} - {*files(copy)} == set()
    found.acts.clear()
    assert await run(found, copy)
    assert {*files(copy)} == {*found.state}


@pytest.mark.parametrize("kind", LISTS[:1], ids=lambda kind: kind.__name__)
async def test_pages_that_never_come_to_rest_are_copied_and_named(source, copy, kind):
    found = kind(source, count=100)
    numbers = iter(range(10_000))

    def insert() -> None:
        name = f"late{next(numbers)}"
        found.state = {name: found.state["r0"], **found.state}
        source.resources[f"/{name}"] = b"there"

    found.always = insert
    assert not await run(found, copy)
    assert {f"r{number}" for number in range(100)} <= {*files(copy)}
