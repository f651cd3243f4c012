"""Indexes and their parts, documents and their pages: which of a list are read, and which not."""

from itertools import pairwise

import pytest

from rsnotify.resourcesync.change import Link
from rsnotify.resourcesync.stream import Head
from rsnotify.resourcesync.xml_writer import Md
from rsnotify_client.documents import DEPTH, IndexWalk, Malformed, PageWalk

ROOT = "http://a.example/root"
Site = dict[str, list[str] | None]
"""What each index names; None for a list."""


def walked(site: Site, *urls: str, **limits: int) -> tuple[list[str], list[str]]:
    """The documents that are read, and what is wrong with them."""
    read, wrong, walk = list[str](), list[str](), IndexWalk(*(urls or (ROOT,)), **limits)
    for url in walk:
        name = url.rpartition("/")[2]
        read.append(name)
        named = site[name]
        if named is not None:
            wrong += walk.under(named)
    return read, wrong


def chain(indexes: int) -> Site:
    """So many indexes under each other, the last with a list."""
    names = ["root", *(f"i{each}" for each in range(1, indexes)), "list"]
    site: Site = {name: [following] for name, following in pairwise(names)}
    return site | {"list": None}


READ: dict[str, tuple[Site, list[str]]] = {
    "a list": ({"root": None}, ["root"]),
    "an index": ({"root": ["a", "b"], "a": None, "b": None}, ["root", "a", "b"]),
    "each with its parts before the next": (
        {"root": ["a", "b"], "a": ["c", "d"], "b": None, "c": None, "d": None},
        ["root", "a", "c", "d", "b"],
    ),
    "a part that is named twice": ({"root": ["a", "a"], "a": None}, ["root", "a"]),
    "a part that two indexes name": (
        {"root": ["a", "b"], "a": ["c"], "b": ["c"], "c": None},
        ["root", "a", "c", "b"],
    ),
    "as deep as may be": (chain(DEPTH), ["root", "i1", "i2", "list"]),
}
WRONG: dict[str, tuple[Site, list[str], str]] = {
    "one deeper": (
        chain(DEPTH + 1),
        ["root", "i1", "i2", "i3"],
        "i3 is an index under an index, 4",
    ),
    "itself": ({"root": ["root"]}, ["root"], "names http://a.example/root: it is an index under"),
    "what is above it": (
        {"root": ["a", "b"], "a": ["root"], "b": None},
        ["root", "a", "b"],
        "a names http://a.example/root: it is an index under an index of itself",
    ),
    "nothing": ({"root": []}, ["root"], "root is an index of nothing"),
    "a part without a name": ({"root": ["", "a"], "a": None}, ["root", "a"], "without <loc>: 1"),
}


@pytest.mark.parametrize("name", READ)
def test_a_list_is_read_with_all_its_parts_each_once(name):
    site, read = READ[name]
    assert walked(site) == (read, [])


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_read_is_said_and_the_rest_is_read(name):
    site, read, said = WRONG[name]
    found, (wrong,) = walked(site)
    assert (found, said in wrong) == (read, True), wrong


def test_several_lists_are_read_in_their_order_each_once():
    site: Site = {"root": ["a"], "a": None, "b": None}
    urls = (ROOT, "http://a.example/b", ROOT, "http://a.example/a")
    assert walked(site, *urls) == (["root", "b", "a"], [])


@pytest.mark.parametrize(("parts", "count"), [(5, 0), (6, 1)])
def test_parts_are_bounded_over_all_indexes(parts, count):
    names = [f"p{each}" for each in range(parts)]
    site: Site = {"root": ["a", "b"], "a": names, "b": None} | dict.fromkeys(names)
    read, wrong = walked(site, max_parts=8)
    assert (len(read), len(wrong)) == (8, count)
    assert all("has more than 8 parts" in each for each in wrong)


def page(named: str = "", root: str = "urlset", capability: str | None = None) -> Head:
    links = (Link("Next", named),) if named else ()
    return Head(root, Md(capability=capability), links)


PAGES = {
    "alone": ([(page(), "")], ["root"]),
    "named by a link": ([(page("two"), ""), (page(), "")], ["root", "two"]),
    "named by a header": ([(page(), '<two>; rel="next"'), (page(), "")], ["root", "two"]),
    "the link counts": ([(page("two"), '<other>; rel="next"')], ["root", "two"]),
    "not yet read": ([(page("two"), ""), (page("three"), "")], ["root", "two", "three"]),
}
ODD_PAGES = {
    "the one before": ([(page("two"), ""), (page("root"), "")], "which was read before it"),
    "another host": ([(page("http://b.example/"), "")], "at another host"),
    "another kind": (
        [(page("two"), ""), (page(capability="changelist"), "")],
        "two is a changelist, not a page of a urlset",
    ),
    "another root": ([(page("two"), ""), (page(root="sitemapindex"), "")], "is a sitemapindex"),
}


def turned(pages: list[tuple[Head, str]]) -> list[str]:
    walk = PageWalk(ROOT)
    for head, link_header in pages:
        walk.turn(head, link_header=link_header)
    return [url.rpartition("/")[2] for url in walk.asked]


@pytest.mark.parametrize("name", PAGES)
def test_a_document_is_read_with_all_its_pages(name):
    pages, asked = PAGES[name]
    assert turned(pages) == asked


@pytest.mark.parametrize("name", ODD_PAGES)
def test_what_cannot_be_a_page_is_refused(name):
    pages, said = ODD_PAGES[name]
    with pytest.raises(Malformed, match=said):
        turned(pages)
