"""Lists in pages, joined by `rel="next"`, are read to the last page, or are not whole."""

import asyncio

import pytest
from aiohttp import web

from clients.python.tests.client.test_follow import read
from clients.python.tests.mirror.test_mirror import files, once
from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Change, Link, Position
from rsnotify.resourcesync.xml_writer import Entry, Md
from rsnotify_client import changes_between, documents
from rsnotify_client.documents import next_after
from rsnotify_client.web import Refused
from rsnotify_mirror.audit import audit
from tests.support.sources import CAPABILITIES, Source, digest, entry_of, rendered

PAGE = 2


@pytest.fixture
def paged(source: Source) -> Source:
    """Seven resources, two on each page; nothing has changed yet."""
    for name in "defg":
        source.add(f"{name}.txt", f"first {name}".encode())
    source.list_resources()
    list_in_pages(source)
    return source


def list_in_pages(source: Source) -> None:
    entries = [
        Entry(source.url + path, str(source.at), md=Md(hash=digest(body), length=len(body)))
        for path, body in source.resources.items()
    ]
    page_by_page(source, "resourcelist", entries, at=str(source.at))


def page_by_page(source: Source, capability: str, entries: list[Entry], **md: str) -> None:
    """As Heratio has it: each page says the same of the whole."""
    pages = [entries[at : at + PAGE] for at in range(0, len(entries), PAGE)] or [[]]

    async def page(request: web.Request) -> web.Response:
        number = int(request.query.get("page", "1"))
        links = [Link("up", source.url + CAPABILITIES)]
        if number < len(pages):
            links.append(Link("next", source.loc(f"{capability}.xml?page={number + 1}")))
        body = rendered(capability, pages[number - 1], links=tuple(links), **md)
        return web.Response(body=body, content_type="application/xml")

    source.handlers[f"/{capability}.xml"] = page


def change_pages(source: Source) -> None:
    """The Change List in pages, each from the first change until now."""
    entries = [entry_of(each) for each in source.changes]
    until = str(Position(source.now + 1))
    page_by_page(source, "changelist", entries, **{"from": str(source.at), "until": until})


def second_page(source: Source, **answer: object) -> None:
    """The second page of the Resource List is answered so, the others as before."""
    whole = source.handlers["/resourcelist.xml"]

    async def page(request: web.Request) -> web.StreamResponse:
        is_second = request.query.get("page") == "2"
        return web.Response(**answer) if is_second else await whole(request)

    source.handlers["/resourcelist.xml"] = page


async def test_a_mirror_and_a_follower_read_changes_on_all_pages(paged, copy):
    await once(paged, copy)
    for name in "abcde":
        paged.change(f"{name}.txt", f"second {name}".encode())
    change_pages(paged)
    assert (await once(paged, copy)).is_whole
    assert [files(copy)[f"{name}.txt"].split()[0] for name in "abcdefg"] == [b"second"] * 5 + [
        b"first"
    ] * 2
    followed = await read(paged.url + CAPABILITIES, 5, after=str(paged.at))
    assert [name for _, name in followed] == [f"{name}.txt" for name in "abcde"]
    paged.change("a.txt", None)
    change_pages(paged)
    assert (await once(paged, copy)).is_whole
    assert "a.txt" not in files(copy)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"status": 404}, "page=2: there is nothing at this address"),
        ({"body": b"<html>log in</html>", "content_type": "text/html"}, "page=2: "),
        ({"body": rendered("changelist", []), "content_type": "text/xml"}, "not a page of a"),
        ({"body": rendered("resourcelist", [])[:-4], "content_type": "text/xml"}, "well-formed"),
    ],
)
async def test_a_list_with_a_page_that_cannot_be_read_deletes_nothing_and_is_not_whole(
    paged, copy, answer, said
):
    await once(paged, copy)
    paged.add("new.txt", b"first")
    del paged.resources["/g.txt"]
    list_in_pages(paged)
    second_page(paged, **answer)
    forget_cursor(paged)
    ran = await once(paged, copy)
    assert (ran.is_whole, len(files(copy))) == (False, 7)
    assert said in ran.problems()
    found = await audit(paged.url + CAPABILITIES, copy)
    assert not found.is_in_sync
    assert said in "\n".join(found.skipped)
    assert "extra" not in [each.kind for each in found.findings]  # that page may have named it


def forget_cursor(source: Source) -> None:
    """Its Change List no longer reaches back: the mirror begins again with the Resource List."""
    source.at = Position(source.now + 1_000_000_000)
    source.list_changes()


async def test_a_page_that_is_not_served_now_is_asked_for_again_and_no_other(paged, copy):
    whole, answers = paged.handlers["/resourcelist.xml"], iter([503])

    async def page(request: web.Request) -> web.StreamResponse:
        if request.query.get("page") == "3" and (status := next(answers, None)):
            return web.Response(status=status)
        return await whole(request)

    paged.handlers["/resourcelist.xml"] = page
    assert (await once(paged, copy)).is_whole
    assert len(files(copy)) == 7
    assert paged.asked["/resourcelist.xml"] == 4 + 1


async def test_pages_that_go_in_a_circle_end(paged, copy):
    links = (Link("next", paged.loc("resourcelist.xml")),)
    second_page(paged, body=rendered("resourcelist", [], links=links), content_type="text/xml")
    ran = await once(paged, copy)
    assert not ran.is_whole
    assert "which was read before it" in ran.problems()
    assert sorted(files(copy)) == ["a.txt", "b.txt"]


async def test_pages_without_end_end(paged, copy, monkeypatch):
    monkeypatch.setattr(documents, "MAX_PAGES", 4)
    assert (await once(paged, copy)).is_whole  # it has four
    paged.add("h.txt", b"first")
    paged.add("i.txt", b"first")
    list_in_pages(paged)
    found = await audit(paged.url + CAPABILITIES, copy)
    assert "has more than 4 pages" in found.skipped[0]


@pytest.mark.parametrize(
    ("url", "named", "follows"),
    [
        ("https://a.org/list", "?page=2", True),
        ("https://a.org/list", "http://a.org/list?page=2", True),  # behind a proxy
        ("https://cdn.org/list", "https://a.org/list2", True),  # it was redirected
        ("https://cdn.org/list", "https://cdn.org/list2", True),
        ("https://a.org/list", "https://a.org:8443/list2", False),
        ("https://a.org/list", "http://169.254.169.254/", False),
        ("https://a.org/list", "file:///etc/passwd", False),
        ("https://a.org/list", "https://[x", False),
    ],
)
def test_the_next_page_is_at_the_same_host(url, named, follows):
    if follows:
        assert next_after(["https://a.org/list"], url, named).startswith("http")
    else:
        with pytest.raises(Refused):
            next_after(["https://a.org/list"], url, named)


@pytest.mark.parametrize("place", ["{.url}/new.xml", "file"])
async def test_what_changed_between_lists_in_pages_is_told(source, tmp_path, place):
    def both(names: str) -> list[Entry]:
        return [Entry(source.loc(each)) for each in names]

    pages = {
        "new.xml": rendered("resourcelist", both("ab"), links=(Link("next", "new2.xml"),)),
        "new2.xml": rendered("resourcelist", both("cd")),
        "old.xml": rendered("resourcelist", both("abc")),
    }
    for name, body in pages.items():
        (tmp_path / name).write_bytes(body)
        source.documents[f"/{name}"] = body
    new = str(tmp_path / "new.xml") if place == "file" else place.format(source)

    def between() -> list[Change]:
        return list(changes_between(tmp_path / "old.xml", new))

    assert [each.loc for each in await asyncio.to_thread(between)] == [source.loc("d")]
    for back in ("new.xml", "missing.xml"):
        body = rendered("resourcelist", both("cd"), links=(Link("next", back),))
        (tmp_path / "new2.xml").write_bytes(body)
        source.documents["/new2.xml"] = body
        with pytest.raises(Rejected, match=f"{back}"):
            await asyncio.to_thread(between)
