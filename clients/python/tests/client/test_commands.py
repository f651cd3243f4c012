"""`mirror`, `audit` and `demo` on the command line, and what the client brings with it."""

import asyncio
import codecs
import json
import os
import pty
import re
import select
import ssl
import subprocess
import sys
import time
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest
from aiohttp import web
from typer.main import get_command

from rsnotify.cli import app
from rsnotify.cli.root import COMMANDS
from rsnotify.resourcesync.notification import CHANNEL_PATH
from rsnotify_client.discovery import discover
from rsnotify_client.web import Web
from rsnotify_mirror.commands.mirror_output import Reporter, Shown
from rsnotify_mirror.report import Event
from tests.support.running import TOKEN, RunningHub, clean_environment, rsnotify
from tests.support.sources import CAPABILITIES, Source

SERVERS = ("starlette", "uvicorn", "redis", "typer", "rich", "websockets", "uvloop")


async def test_hub_demo_mirror_and_audit_go_together(hub, tmp_path):
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rsnotify", "demo", "--port", "0", "--rate", "0"),
        *("--resources", "20"),
        stdout=PIPE,
        env=clean_environment() | {"RSNOTIFY_URL": hub.url, "RSNOTIFY_TOKEN": TOKEN},
    )
    address = (await demo.stdout.readline()).decode().split()[-1]
    copy = str(tmp_path / "copy")
    made = await rsnotify("mirror", address, copy, "--once")
    assert made.status == 0, made.err
    assert "the Resource List has 20 resources; 20 to fetch or remove" in made.out
    assert "20 resources, 0 to do, 0 failed; stored 20" in made.err
    (host,) = [each for each in (tmp_path / "copy").iterdir() if each.is_dir()]
    next(path for path in host.rglob("*") if path.is_file()).unlink()
    numbers = tmp_path / "audit.prom"
    audited = await rsnotify("audit", address, copy, "--metrics", str(numbers))
    assert (audited.status, audited.out.splitlines()[-1]) == (1, "OUT OF SYNC"), audited.err
    assert _numbers(numbers) == {"in_sync": 0, "checked": 20, "findings": 1, "skipped": 0}
    repaired = await rsnotify("audit", address, copy, "--repair")
    assert (repaired.status, repaired.out.splitlines()[-1]) == (0, "IN SYNC"), repaired.err
    await _check_well_known_addresses(address, f"{hub.url}/demo")
    assert repaired.err.splitlines()[0] == "before the repair"
    assert repaired.out.splitlines()[0] == "after the repair"
    demo.terminate()
    assert await demo.wait() == 130


async def _check_well_known_addresses(address: str, set_at_hub: str) -> None:
    """Who knows the demo's host only finds its set, by either way of the specification."""
    async with Web(None, address) as web_:
        robots = await web_.page(f"{address}/robots.txt")
        assert f"Sitemap: {set_at_hub}/resourcelist.xml" in robots.body.decode().splitlines()
        described = await web_.page(f"{address}/.well-known/resourcesync")
        assert f"<loc>{set_at_hub}/capabilitylist.xml</loc>" in described.body.decode()
        found = await discover(web_, f"{address}/.well-known/resourcesync")
        assert found.url == f"{set_at_hub}/capabilitylist.xml"


def _numbers(file: Path) -> dict[str, float]:
    """Of an audit without a repair, just now."""
    found = re.findall(
        r"^rsnotify_audit_(\w+)\{directory=.+\} (.+)$", file.read_text(), re.MULTILINE
    )
    numbers = {name: float(value) for name, value in found}
    assert abs(numbers.pop("timestamp_seconds") - time.time()) < 3600
    assert numbers.pop("repaired") == 0
    return numbers


async def test_a_repair_names_what_was_wrong(hub, tmp_path):
    copy, log, numbers = tmp_path / "copy", tmp_path / "audit.log", tmp_path / "audit.prom"
    async with Source() as source:
        _, address, _ = words = await words_to_mirror_one(source, hub, copy)
        assert (await rsnotify(*words, "--once")).status == 0
        next(copy.rglob("a.txt")).write_bytes(b"short")
        options = ("--repair", "--json", "--log-file", str(log), "--metrics", str(numbers))
        repaired = await rsnotify("audit", address, str(copy), *options)
    assert repaired.status == 0, repaired.err
    (was,) = json.loads(repaired.out)["repaired"]
    assert (was["kind"], was["loc"], was["detail"]) == (
        "length",
        source.loc("a.txt"),
        "5 bytes, not 7",
    )
    assert f"to repair: length: {was['loc']} 5 bytes, not 7" in log.read_text()
    assert re.search(r"^rsnotify_audit_repaired\{.*\} 1$", numbers.read_text(), re.MULTILINE)


async def words_to_mirror_one(source: Source, hub: RunningHub, copy: Path) -> tuple[str, ...]:
    """A Source of one resource that publishes to this hub, and the command for its mirror."""
    source.add("a.txt", b"first a")
    await hub.publish(source.loc("a.txt"), length=7)
    await hub.ask("POST", "/api/sets/dataset1/snapshot")
    return ("mirror", f"{hub.url}/dataset1/capabilitylist.xml", str(copy))


async def test_what_a_mirror_does_is_told_in_json_with_the_time_from_change_to_file(hub, tmp_path):
    async with Source() as source:
        words = await words_to_mirror_one(source, hub, tmp_path / "copy")
        mirror = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rsnotify", *words, "--json", "--lag"),
            stdout=PIPE,
            env=clean_environment(),
        )
        events = [await event_of(mirror) for _ in range(3)]
        assert {each["event"] for each in events} == {"baseline", "stored", "live"}
        (baseline,) = (each for each in events if each["event"] == "baseline")
        assert (baseline["resources"], baseline["to_do"], baseline["to_fetch_bytes"]) == (1, 1, 7)
        assert baseline["room_bytes"] > 7
        source.add("b.txt", b"first b")
        await hub.publish(source.loc("b.txt"), length=7)
        stored = await event_of(mirror)
        mirror.terminate()
        told = await event_of(mirror)
        assert await mirror.wait() == 130
        lag = stored.pop("lag_seconds")
        assert stored | {"path": None} == {
            "event": "stored",
            "loc": source.loc("b.txt"),
            "path": None,
            "change": "updated",
            "length": 7,
        }
        assert told == {"event": "lag", "changes": 1, "p50_seconds": lag, "p99_seconds": lag}
        plain = await rsnotify(*words, "--once", "--lag")
        assert plain.out.splitlines()[-1] == "lag from change to file: no change yet", plain.err


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ({"resources": 3}, "the Resource List has 3 resources; 2 to fetch or remove"),
        ({}, "the Source has no Resource List; 2 to fetch or remove"),
        (
            {"resources": 0, "listed": 3, "selection": "--select '*.a'"},
            "the Resource List has 3 resources, 0 selected by --select '*.a'; 2 to fetch or remove",
        ),
    ],
)
def test_a_baseline_is_told_by_what_the_resource_list_has_and_how_much_of_it_is_selected(
    capsys, told, line
):
    Reporter(Shown())(Event("baseline", to_do=2, **told))
    assert capsys.readouterr().out == f"{line}\n"


async def test_json_of_another_server_is_not_taken_for_the_words_of_a_hub():
    async def not_found(_: web.Request) -> web.Response:
        return web.json_response({"detail": "Not Found"}, status=404)

    async with Source() as source:
        source.handlers[CHANNEL_PATH.format(set="a", kind="change")] = not_found
        ended = await rsnotify("subscribe", "a", "--url", source.url)
    words = f"{source.url} has no channel of 'a': the answer was 404; is this the hub's address?"
    assert (ended.status, ended.err) == (2, f"error: {words}\n")


def test_one_resource_is_told_as_one(capsys):
    Reporter(Shown())(Event("baseline", to_do=1, resources=1))
    assert capsys.readouterr().out == "the Resource List has 1 resource; 1 to fetch or remove\n"


@pytest.mark.parametrize("shown", [Shown(), Shown(json=True), Shown(quiet=True)])
def test_a_selection_that_chooses_nothing_is_warned_of(capsys, shown):
    Reporter(shown)(Event("baseline", to_do=0, resources=0, listed=3, selection="--select page"))
    assert capsys.readouterr().err == (
        "--select page selects none of 3 resources: "
        "a glob is matched against the whole URI, such as '*/pdf/*'\n"
    )


async def test_json_of_another_server_is_not_taken_for_why_a_hub_is_not_ready():
    async def not_found(_: web.Request) -> web.Response:
        return web.json_response({"detail": "Not Found"}, status=404)

    async with Source() as source:
        source.handlers["/health/ready"] = not_found
        ended = await rsnotify("health", "--url", source.url)
    assert (ended.status, ended.err) == (1, f"{source.url} answers 404, and is no hub\n")


def test_a_single_run_names_the_first_failure_of_each_host_at_once(capsys):
    report = Reporter(Shown(once=True))
    for loc in ("http://a/1", "http://a/2", "http://b/1", "http://b/2"):
        problem = f"{loc} cannot be reached: connection refused"
        if loc == "http://a/1":
            report(Event("trouble", loc, problem=problem))
        report(Event("failed", loc, problem=problem))
    assert capsys.readouterr().err == (
        "trying again: http://a/1 cannot be reached: connection refused\n"
        "failed: http://b/1 cannot be reached: connection refused\n"
    )


async def test_an_audit_tells_of_the_copys_selection_and_of_its_sample(tmp_path):
    async with Source() as source:
        for name in ("a.txt", "b.txt", "c.pdf"):
            source.add(name, b"content")
        source.list_resources()
        address, copy = source.url + CAPABILITIES, str(tmp_path / "copy")
        made = await rsnotify("mirror", address, copy, "--once", "--select", "*.txt")
        assert made.status == 0, made.err
        whole = (await rsnotify("audit", address, copy)).out.splitlines()
        (tmp_path / "copy/stray").touch()
        sampled = (await rsnotify("audit", address, copy, "--sample", "1")).out.splitlines()
    compared = "compared: the selection --select '*.txt'; the Resource List has 3 resources"
    assert whole[0] == compared
    assert whole[1].split() == ["selected", "at", "the", "Source", "2"]
    assert (whole[-2].split(), whole[-1]) == (["not", "at", "the", "Source", "0"], "IN SYNC")
    assert sampled[-2].split() == ["not", "at", "the", "Source", "-"]
    assert sampled[-1] == "IN SYNC as far as the sample of 1 shows"


async def test_a_copy_that_is_named_without_its_source_says_which_that_is(tmp_path):
    copy = str(tmp_path / "copy")
    async with Source() as source:
        source.list_resources()
        address = source.url + CAPABILITIES
        await rsnotify("mirror", address, copy, "--once")
        ended = await rsnotify("mirror", copy)
    assert ended.status == 2
    assert f"name its Source, too: rsnotify mirror {address} {copy}" in ended.err


async def test_a_mirror_says_once_that_it_follows(hub, tmp_path):
    async with Source() as source:
        words = await words_to_mirror_one(source, hub, tmp_path / "copy")
        mirror = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rsnotify", *words),
            stdout=PIPE,
            stderr=STDOUT,
            env=clean_environment(),
        )
        told = await line_with(mirror, "following")
        source.add("b.txt", b"first b")
        await hub.publish(source.loc("b.txt"), length=7)
        told += await line_with(mirror, f"stored  {source.loc('b.txt')}")
        mirror.terminate()
        await mirror.wait()
    said = f"following dataset1/change at {hub.url}"
    assert [line for line in told if "following" in line] == [said]


async def line_with(process: asyncio.subprocess.Process, words: str) -> list[str]:
    """The lines up to the first one with these words."""
    lines: list[str] = []
    async with asyncio.timeout(60):
        while not lines or words not in lines[-1]:
            lines.append((await process.stdout.readline()).decode().rstrip())
    return lines


async def event_of(process: asyncio.subprocess.Process) -> dict[str, object]:
    async with asyncio.timeout(60):
        found: dict[str, object] = json.loads(await process.stdout.readline())
        return found


CERTIFICATE = (
    Path(__file__).parents[4] / "tests/support/certificate.pem"
)  # for localhost, signed by itself


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_a_source_with_tls_is_copied_if_its_certificate_verifies(tmp_path, is_trusted):
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(CERTIFICATE)
    trusted = {"SSL_CERT_FILE": str(CERTIFICATE)} if is_trusted else {}
    async with Source(tls) as source:
        for number in range(20):
            source.add(f"{number}.txt", b"content")
        source.list_resources()
        address = f"{source.url}{CAPABILITIES}"
        ended = await rsnotify("mirror", address, str(tmp_path / "copy"), "--once", **trusted)
    stored = len(list((tmp_path / "copy").rglob("*.txt")))
    assert (ended.status, stored) == ((0, 20) if is_trusted else (2, 0)), ended.err
    if not is_trusted:
        (line,) = ended.err.splitlines()
        assert line.startswith(f"error: {source.url.removeprefix('https://')} is not spoken to: ")


async def test_on_a_terminal_a_bar_shows_how_far_it_is(tmp_path):
    goes_on = asyncio.Event()
    async with Source() as source:
        for name in "abc":
            source.add(f"{name}.txt", b"content")
        source.list_resources()

        async def waits(_: web.Request) -> web.Response:
            await goes_on.wait()
            return web.Response(body=b"content")

        source.handlers["/c.txt"] = waits
        ours, theirs = pty.openpty()
        words = ("mirror", f"{source.url}{CAPABILITIES}", str(tmp_path / "copy"), "--once")
        mirror = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rsnotify", *words),
            stdout=PIPE,
            stderr=theirs,
            env=clean_environment() | {"TERM": "xterm", "COLUMNS": "120"},
        )
        os.close(theirs)
        await asyncio.to_thread(read_until, ours, "14 B at ")
        await asyncio.to_thread(read_until, ours, "2/3")
        goes_on.set()
        await asyncio.to_thread(read_until, ours, "3 resources, 0 to do")
        assert await mirror.wait() == 0
        os.close(ours)


async def test_a_mirror_that_follows_says_on_a_terminal_when_something_changed_last(hub, tmp_path):
    async with Source() as source:
        words = await words_to_mirror_one(source, hub, tmp_path / "copy")
        ours, theirs = pty.openpty()
        mirror = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rsnotify", *words),
            stdout=PIPE,
            stderr=theirs,
            env=clean_environment() | {"TERM": "xterm", "COLUMNS": "120"},
        )
        os.close(theirs)
        await asyncio.to_thread(read_until, ours, "live; last change ")
        source.add("b.txt", b"first b")
        await hub.publish(source.loc("b.txt"), length=7)
        await asyncio.to_thread(read_until, ours, "2/2")
        shown = await asyncio.to_thread(read_until, ours, "live; last change 2 s ago")
        assert "0 B at 0 B/s" not in shown
        mirror.terminate()
        await asyncio.to_thread(read_until, ours, "2 resources, 0 to do")
        assert await mirror.wait() == 130
        os.close(ours)


def read_until(terminal: int, words: str) -> str:
    """What a terminal shows, up to these words."""
    shown, decoder = "", codecs.getincrementaldecoder("utf-8")()
    while words not in shown:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, shown
        shown += decoder.decode(os.read(terminal, 65_536))  # it may end within a character
    return shown


def test_the_line_of_each_command_in_the_help_is_how_its_own_help_begins():
    for name, (_, line) in COMMANDS.items():
        help_ = " ".join((get_command(app).commands[name].help or "").split())
        assert line.split()[0] == help_.split()[0], name


def imported(what: str) -> set[str]:
    code = f"import sys; {what}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_client_is_imported_without_what_is_not_asked_for():
    assert not {"aiohttp", "lxml", "msgspec", "asyncio", *SERVERS} & imported(
        "import rsnotify_client"
    )


def test_a_mirror_is_imported_without_what_only_channels_need():
    assert "aiohttp" not in imported("import rsnotify_mirror.mirror")


def test_the_client_needs_no_server_and_no_command_line():
    whole = (
        "import rsnotify_client; from rsnotify_client import *; import rsnotify_mirror.audit; "
        "import rsnotify_mirror.mirror"
    )
    assert not set(SERVERS) & imported(whole)
