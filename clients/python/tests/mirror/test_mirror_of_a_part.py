"""Copies of the resources of one type or collection: what belongs to them, and what leaves them."""

import pytest

from clients.python.tests.mirror.test_mirror import files, once
from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import Link
from rsnotify.resourcesync.change_filter import FORMER
from rsnotify.resourcesync.xml_writer import Entry, Md
from rsnotify_client.resource import SourceResource
from rsnotify_mirror.audit import audit
from rsnotify_mirror.report import status_of
from rsnotify_mirror.selection import Selection
from rsnotify_mirror.state import State
from tests.support.running import rsnotify
from tests.support.sources import CAPABILITIES, Source, digest, rendered

PDF, HTML, PNG = "application/pdf", "text/html", "image/png"
PAPERS, POSTERS = "http://example.com/papers", "http://example.com/posters"
OF_PDFS = Selection(type=(PDF,))
LOC = "http://example.com/1"
FORMERLY_PDF = (Link(FORMER, LOC, type=PDF),)


def is_in(*collections: str) -> tuple[Link, ...]:
    return tuple(Link("collection", each) for each in collections)


def change(kind: str = "updated", type_: str | None = None, *links: Link) -> SourceResource:
    return SourceResource(LOC, kind, type=type_, links=links, position=1)


IN_PAPERS = Selection(collection=(PAPERS,))
A_PDF, A_PAGE, UNTYPED = change(type_=PDF), change(type_=HTML), change()
PAPER, POSTER = change("updated", None, *is_in(PAPERS)), change("updated", None, *is_in(POSTERS))
TYPES = {
    "what fits is taken": ([A_PDF], None, ["updated"]),
    "whatever parameters its type has": ([change(type_="Application/PDF; a=b")], None, ["updated"]),
    "another type is left out": ([A_PAGE], None, []),
    "no type is left out": ([UNTYPED], None, []),
    "what gets another type leaves": ([A_PAGE], A_PDF, ["deleted"]),
    "what names no type stays": ([UNTYPED], A_PDF, ["updated"]),
    "what lost its type leaves": ([change("updated", None, *FORMERLY_PDF)], A_PDF, ["deleted"]),
    "what is deleted goes": ([change("deleted")], A_PDF, ["deleted"]),
    "what nobody has need not go": ([change("deleted")], None, []),
    "each change is held against the one before": (
        [A_PDF, UNTYPED, A_PAGE, UNTYPED, A_PDF],
        None,
        ["updated", "updated", "deleted", "updated"],
    ),
}
OTHERS = {
    "any type of a kind": (Selection(type=("image/*",)), change(type_=PNG), None, ["updated"]),
    "one of the collections": (
        IN_PAPERS,
        change("updated", None, *is_in(POSTERS, PAPERS)),
        None,
        ["updated"],
    ),
    "another collection": (IN_PAPERS, POSTER, None, []),
    "what goes to another collection leaves": (IN_PAPERS, POSTER, PAPER, ["deleted"]),
    "what names no collection stays": (IN_PAPERS, A_PDF, PAPER, ["updated"]),
    "both have to fit": (Selection(type=(PDF,), collection=(PAPERS,)), A_PDF, None, []),
    "what is not below the prefix": (Selection(prefix=("http://a/",)), A_PDF, A_PDF, []),
}


@pytest.mark.parametrize(("changes", "known", "kinds"), TYPES.values(), ids=TYPES.keys())
def test_what_changes_mean_for_a_copy_of_one_type(changes, known, kinds):
    meant = OF_PDFS.part_of(changes, {} if known is None else {LOC: known})
    assert [each.change for each in meant] == kinds


@pytest.mark.parametrize(("selection", "new", "known", "kinds"), OTHERS.values(), ids=OTHERS.keys())
def test_what_a_change_means_for_other_parts(selection, new, known, kinds):
    meant = selection.part_of([new], {} if known is None else {LOC: known})
    assert [each.change for each in meant] == kinds


def test_what_stays_is_known_by_all_that_was_said_of_it():
    known = change("created", PDF, *is_in(PAPERS), Link("alternate", LOC + ".txt"))
    (meant,) = OF_PDFS.part_of([change()], {LOC: known})
    assert (meant.type, meant.links, meant.position) == (PDF, is_in(PAPERS), 1)


@pytest.mark.parametrize(
    ("known", "belongs"), [(A_PDF, True), (A_PAGE, False), (change("deleted"), True)]
)
def test_what_is_to_be_deleted_counts_as_of_the_part(known, belongs):
    assert OF_PDFS.has(LOC, known) == belongs


def test_a_part_is_spelled_as_on_the_command_line():
    selection = Selection(prefix=("http://a/",), type=(PDF, "image/*"), collection=(PAPERS,))
    words = f"--prefix http://a/ --type {PDF} --type 'image/*' --collection {PAPERS}"
    assert str(selection) == words


def list_typed(source: Source, **types: str | None) -> None:
    """A Resource List with these resources, each of this type."""
    entries = [
        Entry(
            source.loc(name),
            lastmod=str(source.at),
            md=Md(hash=digest(source.resources[f"/{name}"]), type=type_),
        )
        for name, type_ in types.items()
    ]
    source.documents["/resourcelist.xml"] = rendered("resourcelist", entries, at=str(source.at))


@pytest.fixture
def typed(source: Source) -> Source:
    """Ten papers, and two pages."""
    source.resources.clear()
    for name in [f"p{number}" for number in range(10)] + ["w1", "w2"]:
        source.add(name, b"first")
    list_typed(source, **papers(10), w1=HTML, w2=HTML)
    return source


def papers(number: int) -> dict[str, str | None]:
    return {f"p{each}": PDF for each in range(number)}


async def test_a_type_holds_for_lists_and_changes(typed, copy):
    baseline, *_ = (await once(typed, copy, selection=OF_PDFS)).events
    has_read = (baseline.resources, baseline.to_do, baseline.listed, baseline.selection)
    assert has_read == (10, 10, 12, f"--type {PDF}")
    typed.change("p0", b"second", type=PDF)
    typed.change("p1", b"second")  # whose type is not said again
    typed.change("p2", b"second", type=HTML)
    typed.change("p3", None)
    typed.change("w1", b"second", type=PDF)
    typed.change("w2", b"second")
    ran = await once(typed, copy, selection=OF_PDFS)
    assert ran.is_whole
    assert (typed.asked["/p2"], typed.asked["/w2"]) == (1, 0)
    assert sorted(files(copy)) == ["p0", "p1", *(f"p{number}" for number in range(4, 10)), "w1"]
    assert {files(copy)[name] for name in ("p0", "p1", "w1")} == {b"second"}
    found = await audit(typed.url + CAPABILITIES, copy)
    assert (found.is_in_sync, found.selection, found.resources) == (True, f"--type {PDF}", 9)


async def test_what_a_list_gives_another_type_leaves_and_what_it_only_lacks_is_asked_for(
    typed, copy
):
    assert (await once(typed, copy, selection=OF_PDFS)).is_whole
    list_typed(typed, **papers(9) | {"p1": HTML})
    typed.documents[CAPABILITIES] = typed.capability_list("resourcelist")
    ran = await once(typed, copy, selection=OF_PDFS, max_delete=20)
    assert ran.named("deleted") == ["p1"]
    assert "p9" in files(copy)


@pytest.mark.parametrize("other", [HTML, None])
async def test_a_list_that_gives_too_many_another_type_or_none_removes_nothing(typed, copy, other):
    assert (await once(typed, copy, selection=OF_PDFS)).is_whole
    list_typed(typed, **papers(10) | {"p1": other, "p2": other})
    typed.documents[CAPABILITIES] = typed.capability_list("resourcelist")
    ran = await once(typed, copy, selection=OF_PDFS)
    assert not ran.is_whole
    assert "leaves out, and so would delete, 2 of 10 resources of the copy" in ran.problems()
    assert len(files(copy)) == 10


async def test_a_type_that_would_remove_much_of_a_copy_is_refused(typed, copy):
    await once(typed, copy)
    with pytest.raises(InvalidSettings, match="--type text/html would remove 10 of 12 resources"):
        await once(typed, copy, selection=Selection(type=(HTML,)))
    assert len(files(copy)) == 12
    assert (await once(typed, copy, selection=Selection(type=(HTML,)), max_delete=90)).is_whole
    assert sorted(files(copy)) == ["w1", "w2"]


async def test_a_copy_that_was_made_before_there_were_types_goes_on_where_it_was(typed, copy):
    await once(typed, copy)
    with State(copy) as state:
        state.set_fact("selection", '{"select":[],"exclude":[],"prefix":[]}')
        before = state.generation
    await once(typed, copy)
    with State(copy, is_writer=False) as state:
        assert state.generation == before


async def test_a_copy_of_a_part_says_so(typed, copy):
    selection = Selection(prefix=(typed.loc("p"),), type=(PDF,))
    await once(typed, copy, selection=selection)
    with State(copy, is_writer=False) as state:
        assert status_of(state).selection == str(selection)
    ended = await rsnotify("mirror", "--status", str(copy))
    assert f"a part of it: {selection}" in ended.out.splitlines()
    ended = await rsnotify("audit", typed.url + CAPABILITIES, str(copy))
    assert (ended.status, f"compared: the selection {selection}" in ended.out) == (0, True)


async def test_a_copy_of_all_says_nothing_of_a_part(typed, copy):
    await once(typed, copy)
    assert "a part of it" not in (await rsnotify("mirror", "--status", str(copy))).out


@pytest.mark.parametrize("given", [("--type", "*"), ("--collection", "papers"), ("--prefix", "/a")])
async def test_what_is_no_filter_is_refused_before_anything_is_done(copy, given):
    ended = await rsnotify("mirror", *given, "http://127.0.0.1:1/", str(copy))
    assert (ended.status, copy.exists()) == (2, False)
    assert f"{given[0][2:]} is {given[1]!r}" in ended.err
