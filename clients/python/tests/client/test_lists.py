"""What a list is read to, by what its visitor forgives: the rest, or nothing."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from rsnotify.errors import Rejected, TryAgain
from rsnotify_client.lists import ListVisitor, read_list
from rsnotify_client.web import Tag, Web
from tests.support.odd import NAMES, OddSource
from tests.support.sources import Source


class Forgiving(ListVisitor):
    """Reads on whatever is wrong, and asks again twice."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.asked_again = 0

    def skipped(self, url: str, what: str) -> None:
        self.said.append(f"{url}: {what}")

    def misnamed(self, what: str) -> None:
        self.said.append(what)

    def unread(self, error: Rejected | TryAgain) -> None:
        self.said.append(error.detail)

    async def again(self, error: TryAgain, failures: int) -> bool:  # noqa: ARG002
        self.asked_again += 1
        return failures < 3


@pytest.fixture
async def odd() -> AsyncIterator[OddSource[Any]]:
    async with Source() as source:
        yield OddSource(source, "odd")


async def read(odd: OddSource[Any], visitor: ListVisitor) -> tuple[list[str], dict[str, bool]]:
    """The entries, and which documents were read to their ends."""
    names, ends = list[str](), dict[str, bool]()
    async with Web(None, odd.address) as client:
        async for piece in read_list(client, visitor, odd.address):
            names += [entry.loc.rpartition("/")[2] for entry in piece.entries]
            if piece.is_end:
                ends[piece.document.url.rpartition("/")[2]] = piece.is_whole
    return names, ends


def failing(odd: OddSource[Any], name: str, body: str, times: int) -> None:
    """It answers only after so many times."""
    left = [times]

    async def answer(_: web.Request) -> web.Response:
        left[0] -= 1
        if left[0] >= 0:
            return web.Response(status=503)
        return web.Response(text=body, content_type="application/xml")

    odd.serve(name, answer)


async def test_a_part_that_cannot_be_read_keeps_no_other_from_being_read(odd):
    odd.write(odd.index("one", "none", "two"))
    odd.write(odd.sitemap(*NAMES[:3])[:-5], "one")
    odd.write(odd.sitemap(*NAMES[3:6]), "two")
    visitor = Forgiving()
    assert await read(odd, visitor) == ([*NAMES[:6]], {"list": True, "one": False, "two": True})
    assert len(visitor.said) == 2
    with pytest.raises(Rejected):
        await read(odd, ListVisitor())


async def test_the_parts_that_half_an_index_names_are_read(odd):
    odd.write(odd.index("one")[: -len("</sitemapindex>")])
    odd.write(odd.sitemap(*NAMES[:3]), "one")
    visitor = Forgiving()
    assert await read(odd, visitor) == ([*NAMES[:3]], {"list": False, "one": True})
    assert len(visitor.said) == 1


@pytest.mark.parametrize(("times", "is_whole"), [(2, True), (3, False)])
async def test_a_page_without_an_answer_is_asked_for_again_and_no_other(odd, times, is_whole):
    odd.write(odd.sitemap(*NAMES[:3], head=f'<rs:ln rel="next" href="{odd.loc("more")}"/>'))
    failing(odd, "more", odd.sitemap(*NAMES[3:6]), times)
    visitor = Forgiving()
    names, ends = await read(odd, visitor)
    assert (names, ends) == ([*NAMES[: 6 if is_whole else 3]], {"list": is_whole})
    assert visitor.asked_again == times
    assert len(visitor.said) == (not is_whole)


async def test_a_part_that_is_as_it_was_is_not_read_again(odd):
    async def unchanged(request: web.Request) -> web.Response:
        return web.Response(status=304 if request.headers.get("If-None-Match") == '"a"' else 200)

    class Knowing(ListVisitor):
        was_unchanged: tuple[str, ...] = ()

        def known(self, url: str) -> Tag | None:
            return Tag('"a"') if url.endswith("one") else None

        def unchanged(self, url: str) -> None:
            self.was_unchanged += (url,)

    odd.write(odd.index("one", "two"))
    odd.serve("one", unchanged)
    odd.write(odd.sitemap(*NAMES[:3]), "two")
    visitor = Knowing()
    assert await read(odd, visitor) == ([*NAMES[:3]], {"list": True, "two": True})
    assert visitor.was_unchanged == (odd.loc("one"),)
