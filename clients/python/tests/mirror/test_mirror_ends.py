"""How a run of a mirror ends: in sync, by an error, or cancelled; nothing goes on after it."""

import asyncio
import os
import sys
from io import TextIOWrapper

import pytest
import typer
from aiohttp import web

from rsnotify.cli.watched import Numbers
from rsnotify.resourcesync.xml_writer import Entry, Md
from rsnotify_client.resource import Check, SourceResource
from rsnotify_client.web import Unreachable
from rsnotify_mirror import fetch
from rsnotify_mirror.commands import mirror_output
from rsnotify_mirror.commands.mirror import MirrorRun, StatusReporter
from rsnotify_mirror.commands.mirror_output import Shown
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.plan import Options
from rsnotify_mirror.report import Event
from rsnotify_mirror.state import State, StateRow
from rsnotify_mirror.workers import Workers
from tests.integration.test_cli import without_reader
from tests.support.amount import enough
from tests.support.running import rsnotify
from tests.support.sources import CAPABILITIES, digest, rendered

OPTIONS = Options(first_retry_seconds=0.01)
ONE_BY_ONE = Options(first_retry_seconds=0.01, jobs=1, per_host=1)  # by a connection that is there

SITEMAP = b"""<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
<url><loc>%s/a.txt</loc><lastmod>2026-01-01</lastmod></url></urlset>"""


async def test_a_hook_that_fails_while_the_lists_are_read_again_ends_the_mirror(source, copy):
    reads_again = asyncio.Event()

    async def change_list(_: web.Request) -> web.Response:
        if mirror.state.fact("lists") is not None:  # they were read before
            reads_again.set()
            await asyncio.Event().wait()
        return web.Response(body=source.documents["/changelist.xml"])

    async def found_later(_: web.Request) -> web.Response:
        content = source.resources["/a.txt"]
        return web.Response(body=content) if reads_again.is_set() else web.Response(status=404)

    async def hook(event: Event, _: bytes | None) -> None:
        if event.loc == source.loc("a.txt"):
            raise KeyError(event.loc)

    source.handlers |= {"/changelist.xml": change_list, "/a.txt": found_later}
    async with AsyncMirror(source.url + CAPABILITIES, copy, OPTIONS, hook=hook) as mirror:
        with pytest.raises(KeyError):
            async with asyncio.timeout(20):
                await mirror.once()


async def test_a_copy_is_brought_up_to_date_as_often_as_it_is_wanted(source, copy):
    async with AsyncMirror(source.url + CAPABILITIES, copy, OPTIONS) as mirror, asyncio.timeout(20):
        assert await mirror.once()
        source.change("d.txt", b"first d")
        assert await mirror.once()
        assert mirror.state.counts() == (4, 0, 0)


async def test_a_mirror_that_was_ended_by_an_error_goes_on_once_it_is_mended(source, copy):
    broken = True

    async def hook(_: Event, __: bytes | None) -> None:
        if broken:
            raise KeyError

    async with AsyncMirror(source.url + CAPABILITIES, copy, OPTIONS, hook=hook) as mirror:
        async with asyncio.timeout(20):
            with pytest.raises(KeyError):
                await mirror.once()
            broken = False
            assert await mirror.once()


@pytest.mark.parametrize("error", [RuntimeError, ValueError])
async def test_what_nobody_foresaw_of_an_answer_ends_the_mirror(source, copy, monkeypatch, error):
    def unforeseen(length: int | None, told: str | None) -> Check:
        if told == digest(b"first c"):
            raise error("unforeseen")
        return Check(length, told)

    monkeypatch.setattr(fetch, "Check", unforeseen)
    async with (
        AsyncMirror(source.url + CAPABILITIES, copy, ONE_BY_ONE) as mirror,
        asyncio.timeout(20),
    ):
        with pytest.raises(error, match="unforeseen"):
            await mirror.once()


class AwayAtFirst:
    """Instead of a `Store`: no host answers at first, then each resource is gone."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.asked: set[str] = set()

    def settle(self, _: list[StateRow]) -> None:
        pass

    async def bring_up_to_date(self, row: StateRow) -> None:
        if row.loc not in self.asked:
            self.asked.add(row.loc)
            raise Unreachable(row.loc, "it is away")
        self._state.removed(row)


@pytest.mark.parametrize("words", ["--stdout", "copy --json", "copy --all-sets --json"])
async def test_a_mirror_whose_output_nobody_reads_ends_quietly(
    source, tmp_path, monkeypatch, words
):
    monkeypatch.chdir(tmp_path)
    url = source.url + CAPABILITIES
    status, said = await without_reader("mirror", url, *words.split())
    said = said.replace("there is no channel: reading the Change List every 60 s\n", "")
    assert (status, said) == (1, "")  # it may come so far before it prints


async def test_a_verdict_that_nobody_reads_is_still_the_exit_status(source, copy):
    async with AsyncMirror(source.url + CAPABILITIES, copy, OPTIONS) as mirror:
        assert await mirror.once()
    for words in (("audit", source.url + CAPABILITIES), ("mirror", "--status")):
        assert await without_reader(*words, str(copy)) == (0, "")


async def test_a_mirror_ends_if_nobody_reads_how_far_it_is(source, copy, monkeypatch):
    of_reader, stdout = os.pipe()
    os.close(of_reader)
    monkeypatch.setattr(mirror_output, "LINE_SECONDS", 0)
    with TextIOWrapper(os.fdopen(stdout, "wb", 0), write_through=True) as unread:
        monkeypatch.setattr(sys, "stdout", unread)
        reporter = StatusReporter(Numbers(None))
        run = MirrorRun(OPTIONS, None, False, None, Shown(lag=True), reporter)
        async with asyncio.timeout(20):
            with pytest.raises(typer.Exit):
                await run.one_of_several(source.url + CAPABILITIES, copy, None, source.url)


async def test_nothing_is_kept_of_hosts_at_which_all_is_done(copy):
    options = Options(jobs=2, per_host=2, first_retry_seconds=0.01)
    with State(copy) as state:
        state.plan([SourceResource(f"http://{n}.example/") for n in range(9)], 1, now=1.0)
        away = AwayAtFirst(state)
        workers = Workers(state, away, print, options)
        running = asyncio.create_task(workers.run())
        async with asyncio.timeout(20):
            while state.counts()[0]:
                await workers.rest()
            workers.finish()
            await running
        assert len(away.asked) == 9
        assert not [each for each in vars(workers).values() if isinstance(each, dict) and each]


@pytest.mark.parametrize(
    "garbage", enough(["", "<html>we are busy</html>", "garbage", "<urlset"], 2)
)
@pytest.mark.parametrize("path", [CAPABILITIES, "/resourcelist.xml", "/list"])
async def test_a_known_source_without_a_document_is_at_fault_and_not_the_command(
    source, copy, path, garbage
):
    source.documents["/resourcelist.xml"] = source.documents["/list"] = (
        SITEMAP % source.url.encode()
    )
    words = ("mirror", source.url + path, str(copy), "--once")
    assert (await rsnotify(*words)).status == 0
    source.answer(path, garbage)
    said = await rsnotify(*words)
    assert (said.status, "no ResourceSync document" in said.err) == (1, True)
    assert "but a Source was found there before: try again later" in said.err
    del source.handlers[path]
    assert (await rsnotify(*words)).status == 0


@pytest.mark.parametrize("garbage", enough(["<html>we are busy</html>", "", "<urlset"], 1))
@pytest.mark.parametrize("path", [CAPABILITIES, "/.well-known/resourcesync"])
async def test_so_is_one_that_is_audited_or_was_found_from_its_site(source, copy, path, garbage):
    source.answer("/", "<html>welcome</html>", content_type="text/html")
    entry = Entry(source.url + CAPABILITIES, md=Md(capability="capabilitylist"))
    source.documents["/.well-known/resourcesync"] = rendered("description", [entry])
    site = ("mirror", source.url + "/", str(copy), "--once")
    assert (await rsnotify(*site)).status == 0
    source.answer(path, garbage)
    for words in (site, ("audit", source.url + "/", str(copy)), (*site, "--dry-run")):
        said = await rsnotify(*words)
        assert (
            said.status,
            "but a Source was found there before: try again later" in said.err,
        ) == (1, True), said.err
    del source.handlers[path]
    assert (await rsnotify("audit", source.url + "/", str(copy))).status == 0


@pytest.mark.parametrize("path", [CAPABILITIES, "/list"])
async def test_a_known_source_that_is_not_there_is_at_fault_and_not_the_command(source, copy, path):
    source.documents["/list"] = SITEMAP % source.url.encode()
    for words in (
        ("mirror", source.url + path, str(copy)),
        ("audit", source.url + path, str(copy)),
    ):
        once = (*words, "--once") if words[0] == "mirror" else words
        assert (await rsnotify(*once)).status == 0
        found = source.documents.pop(path)
        said = await rsnotify(*once)
        assert said.status == 1, said.err
        assert "there is nothing at this address" in said.err
        assert "but a Source was found there before: try again later" in said.err
        source.documents[path] = found


@pytest.mark.parametrize("path", ["/none.xml", "/none"])
async def test_a_first_run_ends_at_once_where_nothing_is(source, copy, path):
    said = await rsnotify("mirror", source.url + path, str(copy))
    assert (said.status, "there is nothing at this address" in said.err) == (2, True)
    assert "before" not in said.err


@pytest.mark.parametrize("path", ["/other.xml", "/other"])
async def test_an_address_that_never_had_a_document_is_a_mistake(source, copy, path):
    source.answer(path, "garbage")
    words = ("mirror", source.url + CAPABILITIES, str(copy), "--once")
    assert (await rsnotify(*words)).status == 0
    mirror = ("mirror", source.url + path)
    for words in (
        (*mirror, str(copy), "--once"),
        (*mirror, str(copy.with_name("new")), "--once"),
        (*mirror, str(copy.with_name("sets")), "--once", "--all-sets"),
        ("audit", source.url + path, str(copy)),
    ):
        said = await rsnotify(*words)
        assert (said.status, "found there before" in said.err) == (2, False)


@pytest.mark.parametrize("option", ["--dry-run", "--once"])
async def test_a_name_of_a_strangers_steers_no_terminal(source, copy, option):
    """It may have what ends a line, turns the rest round, or is a command to a terminal."""
    source.list_resources()
    listed = source.documents["/resourcelist.xml"]
    entry = f"<url><loc>{source.loc('x')}&#x9b;2J\u202ey&#10;IN SYNC</loc></url></urlset>".encode()
    source.documents["/resourcelist.xml"] = listed.replace(b"</urlset>", entry)
    ended = await rsnotify("mirror", source.url + CAPABILITIES, str(copy), option)
    shown = ended.out + ended.err
    assert "/x?2J?y?IN SYNC" in shown
    assert all(line.isprintable() for line in shown.split("\n")), shown
