"""A mirror that begins with a Resource Dump: the same copy, however packages come."""

import asyncio
import hashlib
import io
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED

import pytest
from aiohttp import web

from clients.python.tests.mirror.test_mirror import files
from rsnotify.resourcesync.change import Link, Position
from rsnotify.resourcesync.xml_writer import Entry, Md
from rsnotify_mirror.audit import audit
from rsnotify_mirror.dumping.dump import DumpOptions, make
from rsnotify_mirror.dumping.generations import DumpFolder
from rsnotify_mirror.dumping.parts import Limits
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.plan import Options
from rsnotify_mirror.report import Event
from tests.support.reference import installed
from tests.support.running import clean_environment, rsnotify
from tests.support.sources import CAPABILITIES, Handler, Source, rendered

RESOURCES = 40
LIMITS = Limits(1_900_000, 1_000)  # longer than what is fetched whole


class Dumps:
    """Made beside a Source, and served by it."""

    def __init__(self, source: Source, folder: Path) -> None:
        self.source = source
        self.folder = folder
        self.sent: dict[str, int] = {}

    async def make(self) -> None:
        copy, out = self.folder / "beside", self.folder / "out"
        self.source.documents[CAPABILITIES] = self.source.capability_list(
            "resourcelist", "changelist"
        )
        async with AsyncMirror(self.source.url + CAPABILITIES, copy) as mirror:
            assert await mirror.once()
        with DumpFolder(out) as folder:
            options = DumpOptions(
                f"{self.source.url}/dumps/", LIMITS, makes_change_dumps=True, keep=9
            )
            await asyncio.to_thread(make, copy, folder, options)
        for path in out.rglob("*"):
            if path.is_file():
                self.source.handlers[f"/dumps/{path.relative_to(out)}"] = self._sends(path)
        self.source.asked.clear()

    def offer(self, *capabilities: str) -> None:
        """The Capability List names these; dumps are those made here."""
        entries = [
            Entry(
                f"{self.source.url}/{'dumps/' if 'dump' in each else ''}{each}.xml",
                md=Md(capability=each),
            )
            for each in capabilities
        ]
        up = Link("up", f"{self.source.url}/.well-known/resourcesync")
        self.source.documents[CAPABILITIES] = rendered("capabilitylist", entries, links=(up,))

    def _sends(self, path: Path) -> Handler:
        async def send(request: web.Request) -> web.StreamResponse:
            return web.FileResponse(path)

        return send

    def cut(self, count: int, lie: str = "") -> None:
        """Each answer to a request for a package breaks off after so many bytes.

        What it goes on with is of something else, or it never has the same tag again.
        """
        for path in list(self.source.handlers):
            if path.endswith(".zip"):
                self.source.handlers[path] = self._cut(path, count, lie)

    def _cut(self, path: str, count: int, lie: str) -> Handler:
        content = (self.folder / "out" / path.removeprefix("/dumps/")).read_bytes()
        tag = f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'

        async def send(request: web.Request) -> web.StreamResponse:
            nonlocal tag
            start = 0
            if lie == "tag":
                tag = f'"{self.sent.get(path, 0)}"'
            if request.headers.get("If-Range") == tag:
                start = int(request.headers["Range"].removeprefix("bytes=").rstrip("-"))
            headers = {"ETag": tag, "Content-Length": str(len(content) - start)}
            headers |= (
                {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
                if start
                else {}
            )
            answer = web.StreamResponse(status=206 if start else 200, headers=headers)
            await answer.prepare(request)
            piece = content[start : start + count]
            if start and lie == "bytes":
                piece = bytes(len(piece))
            await answer.write(piece)
            self.sent[path] = self.sent.get(path, 0) + len(piece)
            if start + count < len(content):
                assert request.transport
                request.transport.close()
            return answer

        return send


@pytest.fixture
async def dumps(source: Source, tmp_path: Path) -> Dumps:
    for number in range(RESOURCES):
        source.add(f"f{number % 3}/r{number}.bin", os.urandom(100_000 + number))
    source.list_resources()
    made = Dumps(source, tmp_path)
    await made.make()
    return made


async def begun(source: Source, copy: Path, **options: object) -> list[Event]:
    events: list[Event] = []
    chosen = Options(first_retry_seconds=0.01, **options)
    async with AsyncMirror(source.url + CAPABILITIES, copy, chosen, report=events.append) as mirror:
        is_whole = await mirror.once()
    return events if is_whole else [*events, Event("failed", problem="not whole")]


def problems(events: list[Event]) -> list[str | None]:
    return [each.problem for each in events if each.problem]


def fetched_alone(source: Source) -> int:
    return sum(count for path, count in source.asked.items() if path in source.resources)


async def test_it_equals_one_that_fetched_each(source, dumps, tmp_path):
    await begun(source, tmp_path / "each")
    assert fetched_alone(source) == len(source.resources)
    dumps.offer("resourcelist", "changelist", "resourcedump")
    source.asked.clear()
    assert not problems(await begun(source, tmp_path / "begun"))
    assert fetched_alone(source) == 0
    assert files(tmp_path / "begun") == files(tmp_path / "each")
    found = await audit(source.url + CAPABILITIES, tmp_path / "begun")
    assert found.is_in_sync


async def test_what_changed_since_the_dump_is_fetched_alone(source, dumps, tmp_path):
    source.change("f0/r0.bin", b"new")
    source.change("f0/r3.bin", None)
    dumps.offer("resourcelist", "changelist", "resourcedump")
    await begun(source, tmp_path / "begun")
    await begun(source, tmp_path / "begun")
    assert fetched_alone(source) == 1
    assert {each.removeprefix("/"): body for each, body in source.resources.items()} == files(
        tmp_path / "begun"
    )


@pytest.mark.parametrize("offered", [("resourcedump",), ("resourcedump", "resourcelist")])
async def test_change_dumps_lead_to_the_source_without_one_single_request(
    source, dumps, tmp_path, offered
):
    dumps.offer(*offered, "changedump")
    source.documents["/dumps/changedump.xml"] = rendered(
        "changedump", [], **{"from": str(source.at)}
    )
    await begun(source, tmp_path / "begun")
    for number in range(3):
        source.change("f0/r0.bin", b"new %d" % number)
        source.change(f"f0/r{3 + 3 * number}.bin", None)
        source.change(f"new/{number}", b"x" * number)
        source.resources, kept = dict(source.resources), source.resources
        await dumps.make()
        source.resources = kept
        dumps.offer(*offered, "changedump")
        source.documents.pop("/dumps/changedump.xml", None)
        assert not problems(await begun(source, tmp_path / "begun"))
        assert fetched_alone(source) == 0
        found = {each.removeprefix("/"): body for each, body in source.resources.items()}
        assert files(tmp_path / "begun") == found


async def test_a_package_that_breaks_off_goes_on_where_it_stopped(source, dumps, tmp_path):
    dumps.offer("resourcelist", "changelist", "resourcedump")
    dumps.cut(500_000)
    assert not problems(await begun(source, tmp_path / "begun"))
    assert fetched_alone(source) == 0
    for path, sent in dumps.sent.items():
        assert sent == (tmp_path / "out" / path.removeprefix("/dumps/")).stat().st_size


@pytest.mark.parametrize("lie", ["bytes", pytest.param("tag", marks=pytest.mark.evidence)])
async def test_a_range_that_lies_is_never_taken_for_the_package(source, dumps, tmp_path, lie):
    """What it should have is fetched one by one."""
    dumps.offer("resourcelist", "changelist", "resourcedump")
    dumps.cut(900_000, lie)
    assert problems(await begun(source, tmp_path / "begun"))
    await begun(source, tmp_path / "begun")
    found = {each.removeprefix("/"): body for each, body in source.resources.items()}
    assert files(tmp_path / "begun") == found


@pytest.mark.evidence
async def test_killed_it_goes_on_with_the_package_that_it_was_at(source, dumps, tmp_path):
    dumps.offer("resourcelist", "changelist", "resourcedump")
    dumps.cut(300_000)
    kills = 0
    while kills < 20:
        command = [sys.executable, "-m", "rsnotify", "mirror", source.url + CAPABILITIES]
        running = await asyncio.create_subprocess_exec(
            *(*command, str(tmp_path / "begun"), "--once"), env=clean_environment()
        )
        sent = sum(dumps.sent.values())
        while running.returncode is None and sum(dumps.sent.values()) < sent + 900_000:
            await asyncio.sleep(0.005)
        if running.returncode is None:
            running.send_signal(signal.SIGKILL)
        if await running.wait() == 0:
            break
        kills += 1
    assert kills >= 2
    assert fetched_alone(source) <= kills  # what was unpacked, and not recorded yet
    total = sum(each.stat().st_size for each in tmp_path.glob("out/packages/*.zip"))
    assert sum(dumps.sent.values()) <= total + kills * 1_300_000
    found = {each.removeprefix("/"): body for each, body in source.resources.items()}
    assert files(tmp_path / "begun") == found


async def test_validate_finds_nothing_wrong_with_our_dumps(source, dumps, tmp_path):
    source.change("f0/r0.bin", b"new")
    source.change("f0/r3.bin", None)
    source.change("made-and-gone", b"1")
    source.change("made-and-gone", None)
    await dumps.make()
    source.change("f0/r6.bin", b"newer")
    await dumps.make()
    documents = ("dump", "dump-archive")
    kinds = [f"{what}{each}" for what in ("resource", "change") for each in documents]
    dumps.offer("resourcelist", "changelist", *kinds)
    source.documents["/.well-known/resourcesync"] = rendered(
        "description", [Entry(source.url + CAPABILITIES, md=Md(capability="capabilitylist"))]
    )
    ended = await rsnotify("validate", "--site", source.url)
    assert ended.status == 0, ended.out


async def test_the_reference_client_reads_them(source, dumps, tmp_path):
    """It knows dumps as documents: what it finds in ours is what there is."""
    python = installed().with_name("python")
    code = (
        "import sys; from resync.resource_dump import ResourceDump as D;"
        "from resync.resource_dump_manifest import ResourceDumpManifest as M;"
        "d = D(); d.read(sys.argv[1]); print(len(d.resources), d.md_at);"
        "found = [];\n"
        "for each in d.resources:\n"
        "  m = M(); m.read(each.uri.replace('.zip', '.xml'));"
        " found += [(r.uri, r.path, r.length) for r in m.resources]\n"
        "print(len(found))"
    )
    running = await asyncio.create_subprocess_exec(
        *(str(python), "-W", "ignore", "-c", code, f"{source.url}/dumps/resourcedump.xml"),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await running.communicate()
    packages = len(list(tmp_path.glob("out/packages/*.zip")))
    assert said.decode().split() == [str(packages), str(source.at), str(len(source.resources))]


# Hostile packages -------------------------------------------------------------------------------


def packed(
    *members: tuple[str | zipfile.ZipInfo, bytes], manifest: bytes, method: int = ZIP_DEFLATED
) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as package:
        package.writestr("manifest.xml", manifest)
        for name, content in members:
            package.writestr(name, content)
    return file.getvalue()


Hostile = Callable[[Source], tuple[bytes, dict[str, bytes]]]


def linked(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, 0o120777 << 16
    return info


def overlapping(manifest: bytes) -> bytes:
    """Each name of many leads to the one member that there is."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr("manifest.xml", manifest)
        package.writestr("a", os.urandom(1_000))
        (_, info) = package.infolist()
        package.filelist += [info] * 100
    return file.getvalue()


def long_form(manifest: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as package:
        for name, content in (("manifest.xml", manifest), ("a", b"1")):
            with package.open(name, "w", force_zip64=True) as member:
                member.write(content)
    return file.getvalue()


def manifest(
    source: Source, *entries: tuple[str, str, int | None], md5_of: bytes | None = None
) -> bytes:
    digest = None if md5_of is None else f"md5:{hashlib.md5(md5_of).hexdigest()}"
    found = [
        Entry(source.loc(name), str(source.at), md=Md(path=path, length=length, hash=digest))
        for name, path, length in entries
    ]
    return rendered("resourcedump-manifest", found, at=str(source.at))


HOSTILE: dict[str, Hostile] = {
    "a path that leaves the package": lambda s: (
        packed(("../../evil", b"1"), manifest=manifest(s, ("a", "/../../evil", 1))),
        {},
    ),
    "two that differ only by case": lambda s: (
        packed(("A", b"1"), ("a", b"2"), manifest=manifest(s, ("x/A", "/A", 1), ("x/a", "/a", 1))),
        {"x/A": b"1", "x/a": b"2"},
    ),
    "a bomb": lambda s: (
        packed(("a", b"\0" * 50_000_000), manifest=manifest(s, ("a", "/a", None))),
        {},
    ),
    "a length that lies": lambda s: (
        packed(("a", b"12345"), manifest=manifest(s, ("a", "/a", 4))),
        {},
    ),
    "names in any script": lambda s: (
        packed(("ü/日本", b"1"), manifest=manifest(s, ("b", "/ü/日本", 1))),
        {"b": b"1"},
    ),
    "a member that is not there": lambda s: (packed(manifest=manifest(s, ("a", "/a", 1))), {}),
    "one file for two": lambda s: (
        packed(("a", b"1"), manifest=manifest(s, ("c", "/a", 1), ("d", "/a", 1))),
        {"c": b"1", "d": b"1"},
    ),
    "an absolute path": lambda s: (
        packed(("/etc/a", b"1"), manifest=manifest(s, ("a", "//etc/a", 1))),
        {"a": b"1"},
    ),
    "backslashes that lead out": lambda s: (
        packed(("..\\..\\evil", b"1"), manifest=manifest(s, ("a", "/..\\..\\evil", 1))),
        {},
    ),
    "a backslash in a name": lambda s: (
        packed(("a\\b", b"1"), manifest=manifest(s, ("a", "/a\\b", 1))),
        {"a": b"1"},
    ),
    "a name that goes on after its end": lambda s: (
        packed(("aXevil", b"1"), manifest=manifest(s, ("a", "/a", 1))).replace(b"aX", b"a\0"),
        {"a": b"1"},
    ),
    "a symlink": lambda s: (
        packed((linked("a"), b"/etc/passwd"), manifest=manifest(s, ("a", "/a", None))),
        {"a": b"/etc/passwd"},
    ),
    "a checksum that lies": lambda s: (
        packed(("a", b"12345"), manifest=manifest(s, ("a", "/a", 5)), method=ZIP_STORED).replace(
            b"12345", b"12346"
        ),
        {},
    ),
    "the same name twice": lambda s: (
        packed(
            *(("a_1", b"1"), ("a_2", b"2")), manifest=manifest(s, ("a", "/a_1", 1), md5_of=b"1")
        ).replace(b"a_2", b"a_1"),
        {},
    ),
    "members that lie in each other": lambda s: (overlapping(manifest(s, ("a", "/a", None))), {}),
    "a package in a package": lambda s: (
        packed(("a", b"PK\x05\x06" + bytes(18)), manifest=manifest(s, ("a", "/a", 22))),
        {"a": b"PK\x05\x06" + bytes(18)},
    ),
    "ZIP64 where nothing needs it": lambda s: (long_form(manifest(s, ("a", "/a", 1))), {"a": b"1"}),
    "no ZIP": lambda _: (b"PK\x03\x04" + b"\0" * 1_000, {}),
    "half a ZIP": lambda s: (packed(("a", b"1"), manifest=manifest(s, ("a", "/a", 1)))[:-30], {}),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_hostile_package_harms_nothing_and_is_said(source, tmp_path, kind):
    content, expected = HOSTILE[kind](source)
    source.documents[CAPABILITIES] = source.capability_list("resourcedump")
    source.documents["/1.zip"] = content
    source.documents["/resourcedump.xml"] = rendered(
        "resourcedump", [Entry(source.loc("1.zip"))], at=str(Position(source.at))
    )
    source.resources.clear()
    found = await begun(source, tmp_path / "x/y/copy")
    copied = {
        path.rpartition("~")[0] or path: body for path, body in files(tmp_path / "x/y/copy").items()
    }
    assert copied == expected
    assert bool(problems(found)) == (not expected)
    assert not [path for path in tmp_path.rglob("*evil*") if "copy" not in str(path)]
    assert not [path for path in tmp_path.rglob("*") if path.is_symlink()]


@pytest.mark.evidence
def test_killed_with_the_mirror_and_its_destination_dumps_are_the_source():
    """In a process without threads, so that it may fork; `make soak SOAK_ARGS=dumps` is longer."""
    code = "from tests.evidence.soak.dumps import proven; print(proven(3, 'short', 30))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert said.stdout.startswith("killed "), said.stderr
