"""Several sets in one process: each has its own directory, and one that fails stops no other."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from clients.python.tests.mirror.test_mirror import files
from rsnotify.errors import InvalidSettings, Rejected, TryAgain
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, render_document
from rsnotify_client.discovery import discover_sets
from rsnotify_client.web import Web
from rsnotify_mirror.commands import mirror_sets
from rsnotify_mirror.commands.mirror_sets import SetMirrors, folder_of, folders_of
from tests.support.running import rsnotify, until
from tests.support.sources import Source, digest, rendered

DESCRIPTION = "/.well-known/resourcesync"


def offer(source: Source, *names: str) -> None:
    """A Source Description that names a set of one resource for each name."""
    for name in names:
        content = name.encode()
        source.resources[f"/{name}/r"] = content
        listed = Entry(source.loc(f"{name}/r"), md=Md(hash=digest(content), length=len(content)))
        source.documents[f"/{name}/resourcelist.xml"] = rendered(
            "resourcelist", [listed], at=str(source.at)
        )
        entry = Entry(source.loc(f"{name}/resourcelist.xml"), md=Md(capability="resourcelist"))
        source.documents[f"/{name}/capabilitylist.xml"] = rendered("capabilitylist", [entry])
    describe(source, *names)


def describe(source: Source, *names: str) -> None:
    sets = [
        Entry(source.loc(f"{name}/capabilitylist.xml"), md=Md(capability="capabilitylist"))
        for name in names
    ]
    source.documents[DESCRIPTION] = rendered("description", sets)


FOLDERS = {
    "http://a.example/": "a.example",
    "http://a.example/set1/capabilitylist.xml": "set1",
    "http://a.example/set1/CapabilityList_1.xml": "set1",
    "http://a.example/sets/one.xml.gz": "one",
    "http://a.example/.rsnotify/": "rsnotify",
    "http://a.example/../..": "a.example",
    "http://a.example/a%2Fb c": "a-2Fb-c",
    f"http://a.example/{'x' * 300}": "x" * 100,
}


@pytest.mark.parametrize("url", FOLDERS)
def test_a_set_has_a_folder_that_leads_nowhere_else(url):
    assert folder_of(url) in (FOLDERS[url], "set")


def test_sets_of_one_name_have_folders_of_their_own():
    urls = ["http://a.example/S/", "http://b.example/s/", "http://b.example/t/"]
    found = folders_of(urls)
    assert len({each.lower() for each in found.values()}) == 3
    assert found[urls[2]] == "t"
    assert found == folders_of(urls[::-1])


async def test_all_sets_are_found_in_a_description_and_in_indexes(source):
    offer(source, "one", "two", "three")
    lists = [source.loc(f"{name}/capabilitylist.xml") for name in ("two", "three")]
    index = Document(
        "sitemapindex", Md(capability="capabilitylist"), (), tuple(Entry(loc) for loc in lists)
    )
    source.documents["/index.xml"] = render_document(index)
    first = source.loc("one/capabilitylist.xml")
    entries = [Entry(loc) for loc in (first, source.loc("index.xml"), source.loc("none.xml"))]
    source.documents[DESCRIPTION] = rendered("description", entries)
    async with Web() as session:
        found = await discover_sets(session, source.url + DESCRIPTION)
    assert found == [first, source.loc("none.xml"), *lists]


async def test_an_index_that_names_itself_ends(source):
    offer(source, "one")
    entries = [Entry(source.loc(each)) for each in ("index.xml", "one/capabilitylist.xml")]
    source.documents["/index.xml"] = render_document(
        Document("sitemapindex", Md(capability="capabilitylist"), (), tuple(entries))
    )
    async with Web() as session:
        found = await discover_sets(session, source.loc("index.xml"))
    assert found == [source.loc("one/capabilitylist.xml")]


async def test_all_sets_are_copied_and_one_that_fails_stops_no_other(source, tmp_path):
    offer(source, "one", "two", "three")
    del source.documents["/two/resourcelist.xml"]
    copy = tmp_path / "copy"
    words = ("mirror", source.url + DESCRIPTION, str(copy), "--all-sets", "--once")
    metrics = tmp_path / "copies.prom"
    said = await rsnotify(*words, "--metrics", str(metrics))
    assert said.status == 1, said.err
    for name in ("one", "three"):
        assert files(copy / name) == {f"{name}/r": name.encode()}
    assert "two: " in said.err
    assert f'rsnotify_mirror_in_step{{directory="{copy}/two"}} 0' in metrics.read_text()
    assert f'rsnotify_mirror_in_step{{directory="{copy}/one"}} 1' in metrics.read_text()
    status = await rsnotify("mirror", "--status", str(copy), "--json")
    found = [json.loads(line)["in_step"] for line in status.out.splitlines()]
    assert (status.status, found) == (1, [True, True, False])
    offer(source, "one", "two", "three")
    assert (await rsnotify(*words)).status == 0
    assert (await rsnotify("mirror", "--status", str(copy))).status == 0


@pytest.mark.parametrize("garbage", ["", "<html>we are busy</html>", "<urlset"])
async def test_a_known_source_without_a_description_is_at_fault_and_not_the_command(
    source, tmp_path, garbage
):
    offer(source, "one", "two")
    words = ("mirror", source.url + DESCRIPTION, str(tmp_path / "copy"), "--all-sets", "--once")
    assert (await rsnotify(*words)).status == 0
    source.answer(DESCRIPTION, garbage)
    said = await rsnotify(*words)
    assert (said.status, "but a Source was found there before: try again later" in said.err) == (
        1,
        True,
    ), said.err
    other = await rsnotify("mirror", source.loc("other"), *words[2:])
    assert (other.status, "found there before" in other.err) == (2, False)
    del source.handlers[DESCRIPTION]
    assert (await rsnotify(*words)).status == 0


async def test_several_addresses_are_copied_and_each_is_named(source, tmp_path):
    offer(source, "one", "two")
    urls = [source.loc(f"{name}/capabilitylist.xml") for name in ("one", "two")]
    said = await rsnotify("mirror", *urls, str(tmp_path / "copy"), "--once", "--json")
    assert said.status == 0, said.err
    assert {json.loads(line)["set"] for line in said.out.splitlines()} == {"one", "two"}
    assert files(tmp_path / "copy" / "two") == {"two/r": b"two"}


async def test_a_token_is_shown_to_the_first_address_only(source, tmp_path):
    async with Source() as other:
        offer(source, "one")
        offer(other, "two")
        urls = [source.loc("one/capabilitylist.xml"), other.loc("two/capabilitylist.xml")]
        said = await rsnotify(
            "mirror", *urls, str(tmp_path / "copy"), "--once", RSNOTIFY_TOKEN="secret"
        )
        assert said.status == 0, said.err
        shown = [
            {headers.get("Authorization") for _, headers in each.requests}
            for each in (source, other)
        ]
    assert shown == [{"Bearer secret"}, {None}]


@pytest.mark.parametrize("words", [("--stdout",), ()])
async def test_several_sets_need_a_directory(words, source):
    said = await rsnotify("mirror", source.url, "--all-sets", "--once", *words)
    assert said.status == 2
    said = await rsnotify("mirror", source.url, source.url, "--once", *words)
    assert said.status == 2


AGAIN, LOOK = 0.3, 0.5


class Mirrors:
    """Sets that are mirrored for ever, but for those that end: by what, and when each began."""

    def __init__(self, **ends: Exception | int) -> None:
        self.ends = ends
        self.begun: dict[str, list[float]] = defaultdict(list)
        self.sources: dict[str, str] = {}

    async def mirror(self, _url: str, directory: Path, _token: str | None, source: str) -> int:
        self.sources[directory.name] = source
        self.begun[directory.name].append(asyncio.get_running_loop().time())
        end = self.ends.get(directory.name)
        if isinstance(end, Exception):
            raise end
        if end is None:
            await asyncio.Event().wait()
        return end or 0

    async def has_begun(self, name: str, times: int) -> None:
        async def is_so() -> bool:
            return len(self.begun[name]) >= times

        await until(is_so)

    @asynccontextmanager
    async def kept(self, *urls: str) -> AsyncIterator[None]:
        running = asyncio.create_task(
            SetMirrors(
                urls, Path("copy"), self.mirror, token=None, network=None, all_sets=True, once=False
            ).run()
        )
        try:
            yield
        finally:
            assert not running.done()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_sets, "AGAIN_SECONDS", AGAIN)
    monkeypatch.setattr(mirror_sets, "LOOK_SECONDS", LOOK)


FAILURES = [
    Rejected("it is refused", status=403),
    TryAgain("it is too much", retry_after_seconds=0),
    InvalidSettings("the directory is that of another"),
    RuntimeError("a bug"),
    1,
]


@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize("failure", FAILURES, ids=[type(each).__name__ for each in FAILURES])
async def test_a_set_that_fails_is_tried_again_after_a_wait(source, failure):
    offer(source, "one", "two")
    mirrors = Mirrors(two=failure)
    async with mirrors.kept(source.url + DESCRIPTION):
        await mirrors.has_begun("two", 3)
    first, second, third = mirrors.begun["two"][:3]
    assert min(second - first, third - second) >= AGAIN
    assert len(mirrors.begun["one"]) == 1


@pytest.mark.usefixtures("_soon")
async def test_a_set_that_is_new_is_found_and_one_that_is_gone_stays(source, caplog):
    offer(source, "one", "two")
    mirrors = Mirrors()
    async with mirrors.kept(source.url + DESCRIPTION):
        await mirrors.has_begun("two", 1)
        offer(source, "two", "three")
        await mirrors.has_begun("three", 1)
        assert f"{source.loc('one/capabilitylist.xml')} is offered no longer" in caplog.text
        caplog.clear()
        described = source.documents.pop(DESCRIPTION)
        await asyncio.sleep(2 * LOOK)
        assert "offered no longer" not in caplog.text  # nobody knows
        source.documents[DESCRIPTION] = described
        offer(source, "two", "three", "four")
        await mirrors.has_begun("four", 1)
    assert {name: len(times) for name, times in mirrors.begun.items()} == {
        "one": 1,
        "two": 1,
        "three": 1,
        "four": 1,
    }


@pytest.mark.usefixtures("_soon")
async def test_an_address_that_offers_nothing_yet_is_asked_again(source):
    async with Source() as other:
        offer(source, "one")
        mirrors = Mirrors()
        async with mirrors.kept(source.url + DESCRIPTION, other.url + DESCRIPTION):
            await mirrors.has_begun("one", 1)
            offer(other, "two")
            await mirrors.has_begun("two", 1)
        assert len(mirrors.begun["one"]) == 1
        found = {"one": source.url + DESCRIPTION, "two": other.url + DESCRIPTION}
        assert mirrors.sources == found  # on whose word each is asked


async def test_the_only_address_that_offers_nothing_is_wrong(source):
    sets = SetMirrors(
        [source.url + DESCRIPTION],
        Path("copy"),
        Mirrors().mirror,
        token=None,
        network=None,
        all_sets=True,
        once=False,
    )
    with pytest.raises(InvalidSettings):
        await sets.run()
