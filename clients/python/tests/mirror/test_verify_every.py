"""A mirror that follows audits its own copy, and repairs it, without being stopped."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import Position
from rsnotify_client.resource import SourceResource
from rsnotify_mirror.audit import Finding, due_at, is_settled
from rsnotify_mirror.commands.mirror import seconds_of
from rsnotify_mirror.state import State
from tests.support.forks import Forked, fork, run
from tests.support.running import clean_environment, rsnotify
from tests.support.sources import CAPABILITIES, Source


@asynccontextmanager
async def verifying(source: Source, copy: Path, *words: str) -> AsyncIterator[Forked]:
    line = ("mirror", source.url + CAPABILITIES, str(copy), "--verify-every", "1s", "--json")
    running = await fork([*line, *words], clean_environment(), sys.__stderr__.fileno())
    try:
        yield running
    finally:
        running.terminate()
        await running.stdout.read()
        assert await running.wait() == 130


async def said(running: Forked, **fields: object) -> dict[str, object]:
    """The next event with these values."""
    async with asyncio.timeout(60):
        while True:
            event = json.loads(await running.stdout.readline())
            if fields.items() <= event.items():
                return dict(event)


async def test_a_damaged_and_a_missing_file_are_right_again_while_the_mirror_runs(source, copy):
    async with verifying(source, copy) as running:
        await said(running, event="verified", checked=3, repaired=0, wrong=0)
        damaged, missing = sorted(copy.glob("*/?.txt"))[:2]
        before = damaged.read_bytes()
        damaged.write_bytes(bytes(len(before)))  # of the same length
        missing.unlink()
        found = 0
        while found < 2:
            found += (await said(running, event="verified"))["repaired"]
        assert damaged.read_bytes() == before
        assert missing.read_bytes() == b"first b"
        await said(running, event="verified", checked=3, repaired=0, wrong=0)
        shown = await rsnotify("mirror", "--status", str(copy), "--json")
        status = json.loads(shown.out)
        assert (status["verified_repaired"], status["verified_wrong"]) == (0, 0)
        assert status["verified_at"] is not None
        shown = await rsnotify("mirror", "--status", str(copy))
        assert "0 repaired, 0 still wrong" in shown.out


async def test_a_digest_corrected_in_an_old_list_is_found(source, copy):
    async with verifying(source, copy) as running:
        await said(running, event="verified", checked=3, wrong=0)
        source.resources["/a.txt"] = b"another"  # and no change says so
        source.list_resources()
        await said(running, event="verified", repaired=1, wrong=0)
        assert next(copy.glob("*/a.txt")).read_bytes() == b"another"


async def test_nothing_is_removed_only_named(source, copy):
    async with verifying(source, copy) as running:
        await said(running, event="verified", checked=3, wrong=0)
        own = next(copy.glob("*/a.txt")).with_name("mine.txt")
        own.write_text("no resource")
        del source.resources["/b.txt"]
        source.list_resources()
        await said(running, event="verified", checked=2, repaired=0, wrong=2)
        assert own.exists()
        assert next(copy.glob("*/b.txt")).exists()


async def test_what_the_mirror_has_yet_to_hear_is_not_judged(source, copy):
    async with verifying(source, copy) as running:  # it reads the Change List once a minute
        await said(running, event="verified", checked=3, wrong=0)
        source.change("a.txt", None)
        source.change("b.txt", b"second b")
        source.change("d.txt", b"first d")
        await said(running, event="verified", checked=3)  # it may have begun before
        event = await said(running, event="verified", checked=3)
        assert (event["repaired"], event["wrong"]) == (0, 0)
        assert next(copy.glob("*/a.txt")).exists()


async def test_a_source_that_does_not_answer_ends_nothing(source, copy):
    async def hang_up(request: web.Request) -> web.StreamResponse:
        request.transport.abort()
        return web.Response()

    async with verifying(source, copy) as running:
        await said(running, event="verified", checked=3, wrong=0)
        source.handlers |= dict.fromkeys((CAPABILITIES, "/resourcelist.xml"), hang_up)
        while "problem" not in (event := await said(running, event="verified")):
            pass
        assert source.url in event["problem"]
        damaged = next(copy.glob("*/c.txt"))
        damaged.write_bytes(b"wrong")
        source.handlers.clear()
        await said(running, event="verified", repaired=1, wrong=0)
        assert damaged.read_bytes() == b"first c"


async def test_a_list_that_is_away_is_said_and_loses_nothing(source, copy):
    async with verifying(source, copy) as running:
        await said(running, event="verified", checked=3, wrong=0)
        source.answer("/resourcelist.xml", "gone", status=404)
        while "problem" not in (event := await said(running, event="verified")):
            pass
        assert "/resourcelist.xml: there is nothing" in event["problem"]
        assert len(list(copy.glob("*/?.txt"))) == 3
        with State(copy, is_writer=False) as state:
            last = state.fact("verified_at")
        await said(running, event="verified", problem=event["problem"])
        with State(copy, is_writer=False) as state:
            assert state.fact("verified_at") == last  # that was no audit of the whole
        damaged = next(copy.glob("*/c.txt"))
        damaged.write_bytes(b"wrong")
        del source.handlers["/resourcelist.xml"]
        await said(running, event="verified", repaired=1, wrong=0)
        assert damaged.read_bytes() == b"first c"


async def test_what_cannot_be_fetched_is_still_wrong_and_the_mirror_goes_on(source, copy):
    async with verifying(source, copy) as running:
        await said(running, event="verified", checked=3, wrong=0)
        source.answer("/a.txt", "gone", status=404)
        next(copy.glob("*/a.txt")).unlink()
        await said(running, event="verified", repaired=0, wrong=1)


@pytest.mark.parametrize(("text", "seconds"), [("1s", 1), ("7d", 604_800), ("3650d", 315_360_000)])
def test_how_often(text, seconds):
    assert seconds_of(text, "--verify-every") == seconds


READ_TO = Position(1_700_000_000_000_000)


@pytest.mark.parametrize(("later", "is_judged"), [(-1, True), (0, True), (1, False)])
def test_what_was_deleted_after_the_lists_were_read_is_not_missing(tmp_path, later, is_judged):
    loc = "http://a.example/1"
    for folder in ("copy", "now"):
        (tmp_path / folder).mkdir()
    with State(tmp_path / "copy") as mirrored, State(tmp_path / "now") as now:
        now.plan([SourceResource(loc, "created")], 1, 0)
        now.set_fact("cursor", str(READ_TO))
        mirrored.plan([SourceResource(loc, "deleted", position=READ_TO + later)], 1, 0)
        mirrored.removed(mirrored.row(loc))
        assert mirrored.row(loc) is None
        assert is_settled(Finding("missing", loc), mirrored, now) == is_judged


@pytest.mark.parametrize(
    ("verified", "tried", "seconds", "due"),
    [
        (None, None, 604_800, 0),  # the first follows the baseline
        (1_000, None, 604_800, 605_800),  # also after a restart
        (1_000, 1_001, 604_800, 605_800),
        (None, 1_001, 604_800, 1_601),  # it was not whole
        (1_000, 605_900, 604_800, 606_500),
        (None, 1_001, 30, 1_031),
    ],
)
def test_when_the_next_audit_is_due(verified, tried, seconds, due):
    assert due_at(verified, tried, seconds) == due


@pytest.mark.parametrize("text", ["", "0s", "7", "d", "-7d", "0.5d", "3651d", "9" * 400 + "d"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(InvalidSettings, match=r"--verify-every .*such as 30m, 24h or 7d"):
        seconds_of(text, "--verify-every")


@pytest.mark.parametrize("word", ["--once", "--stdout", "--dry-run"])
async def test_only_a_mirror_that_follows_verifies(copy, word):
    command = ("mirror", "http://127.0.0.1:9/", str(copy), "--verify-every", "7d", word)
    ended = await run(command, clean_environment())
    assert ended.status == 2
    assert "--verify-every goes without" in ended.err
