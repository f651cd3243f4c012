"""Dumps of a copy: what is in them, what stays as it is, and what a Destination makes of them."""

import fcntl
import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from random import Random
from urllib.parse import quote

import msgspec
import pytest
from lxml import etree

from rsnotify.errors import InvalidSettings, TryAgain
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.document_rules import check
from rsnotify.resourcesync.xml_reader import parse_document
from rsnotify.resourcesync.xml_writer import Document
from rsnotify_client.dumps import Package
from rsnotify_mirror.dumping.changes import WHOLE, make_window
from rsnotify_mirror.dumping.copy_reader import Content, CopyReader, NotAsFetched, NotWhole
from rsnotify_mirror.dumping.dump import KEEP, STATED_BYTES, Dumped, DumpOptions, make
from rsnotify_mirror.dumping.generations import DumpFolder
from rsnotify_mirror.dumping.package_writer import members
from rsnotify_mirror.dumping.parts import DumpPart as Part
from rsnotify_mirror.dumping.parts import Limits, Pieces, Range, planned
from rsnotify_mirror.dumping.zip_records import (
    LIMIT_32,
    ZipMember,
    central_record,
    end_records,
    local_header,
)
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.plan import Options
from rsnotify_mirror.selection import Selection
from rsnotify_mirror.state import State
from tests.support.children import in_child
from tests.support.needs import need
from tests.support.sources import CAPABILITIES, Source
from tests.unit.test_examples import schema

BASE = "http://dumps.example/d/"
OPTIONS = DumpOptions(BASE, makes_change_dumps=True)
AT_ONCE = Pieces(reading_seconds=0.001)  # nobody waits for what does not come right


def dump(copy: Path, out: Path, options: DumpOptions = OPTIONS) -> Dumped:
    with DumpFolder(out) as folder:
        return make(copy, folder, options)


async def mirrored(source: Source, copy: Path) -> None:
    async with AsyncMirror(source.url + CAPABILITIES, copy) as mirror:
        assert await mirror.once()


def valid(content: bytes) -> Document:
    """What both the rules and the schemas accept."""
    assert check(content) == []
    found = parse_document(content)
    schema(found.root).assertValid(etree.fromstring(content))
    return found


def document(out: Path, name: str = "resourcedump.xml") -> Document:
    content = (out / name).read_bytes()
    return valid(content)


def zips(out: Path, name: str = "resourcedump.xml") -> list[Path]:
    """The packages that a document names, as it describes them."""
    found = []
    for entry in document(out, name).entries:
        path = out / entry.loc.removeprefix(BASE)
        content = path.read_bytes()
        assert entry.md
        assert entry.md.length == len(content)
        assert entry.md.hash == f"sha-256:{hashlib.sha256(content).hexdigest()}"
        assert path.with_suffix(".xml").read_bytes() == unpacked(path)["manifest.xml"]
        found.append(path)
    return found


def unpacked(package: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(package) as file:
        assert file.testzip() is None
        return {name: file.read(name) for name in file.namelist()}


def state_of(packages: list[Path], state: dict[str, bytes] | None = None) -> dict[str, bytes]:
    """What a Destination has that takes the packages of a dump, or of a Change Dump on top."""
    found = dict(state or {})
    for package in packages:
        files = unpacked(package)
        for entry in valid(files["manifest.xml"]).entries:
            assert entry.md
            if entry.md.change == "deleted":
                assert entry.md.path is None
                found.pop(entry.loc, None)
            else:
                content = files[(entry.md.path or "").lstrip("/")]
                assert entry.md.length == len(content)
                found[entry.loc] = content
    return found


def of_source(source: Source) -> dict[str, bytes]:
    return {source.url + path: content for path, content in source.resources.items()}


@pytest.fixture
async def copied(source: Source, tmp_path: Path) -> Path:
    for number in range(30):
        source.add(f"f{number % 3}/r{number}.txt", Random(number).randbytes(1_000 + number))
    source.list_resources()
    await mirrored(source, tmp_path / "copy")
    return tmp_path / "copy"


# What is decided --------------------------------------------------------------------------------

LIMITS = Limits(bytes=1_000, entries=10)


@pytest.mark.parametrize(
    ("ranges", "parts"),
    [
        ([], []),
        ([Range("", 0, 0)], [Part("", None, None, 0, 0)]),
        ([Range("", 3, 100)], [Part("", None, None, 3, 100)]),
        ([Range("", 21, 100)], [Part("", None, None, 7, 34)]),  # three of the same size
        ([Range("", 10, 1_000, "a")], [Part("", None, "a", 10, 1_000)]),
        (
            [Range("", 10, 1_001, "a")],
            [Part("", None, None, 5, 501)],
        ),  # the limits are lower now
        (
            [Range("", 1, 9_000, "a")],
            [Part("", None, "a", 1, 9_000)],
        ),  # it is not to be divided
        (
            [Range("", 6, 100, "a"), Range("m", 6, 100), Range("x", 6, 100, "c")],
            [
                Part("", "m", "a", 6, 100),
                Part("m", "x", None, 6, 100),
                Part("x", None, "c", 6, 100),
            ],
        ),
        (  # what is small is joined with what is written anyway, and never without that
            [Range("", 1, 9, "a"), Range("d", 1, 9, "b"), Range("m", 1, 9), Range("x", 6, 9, "c")],
            [
                Part("", "d", "a", 1, 9),
                Part("d", "x", None, 2, 18),
                Part("x", None, "c", 6, 9),
            ],
        ),
        (
            [Range("", 7, 700), Range("m", 0, 0), Range("x", 1, 100, "c")],
            [Part("", "x", None, 7, 700), Part("x", None, "c", 1, 100)],
        ),
    ],
)
def test_what_is_kept_and_what_is_written(ranges, parts):
    assert planned(ranges, LIMITS) == parts


@pytest.mark.parametrize("offset", [LIMIT_32 - 1, LIMIT_32, 5 * 1024**3])
def test_a_package_of_more_than_4_gib_is_read_by_others(tmp_path, offset):
    """What is before the member is a hole: nothing of it is on the disk."""
    file = tmp_path / "long.zip"
    content, crc = b"hello", 907060870
    member = ZipMember("", b"", b"resources/a", 5, crc, 0x210000, offset=offset)
    head = local_header(member)
    record = central_record(member)
    begin = offset + len(head) + 5
    with file.open("wb") as long:
        long.seek(offset)
        long.write(head + content + record + end_records(1, len(record), begin))
    assert unpacked(file) == {"resources/a": content}
    with file.open("rb") as opened:
        Package(opened, "here")
    if shutil.which("unzip"):
        subprocess.run(["unzip", "-tq", file], check=True)


@pytest.mark.parametrize("length", [LIMIT_32 - 1, LIMIT_32, 2**40])
def test_a_member_of_more_than_4_gib_says_so(length):
    member = ZipMember("", b"", b"a", length, 1, 0x210000, offset=7)
    record = central_record(member)
    end = end_records(1, len(record), 0)
    (info,) = zipfile.ZipFile(io.BytesIO(record + end)).infolist()
    assert (info.file_size, info.compress_size, info.header_offset) == (length, length, 7)
    assert len(local_header(member)) == member.size - length
    assert (len(local_header(member)) > 31) is (length >= LIMIT_32)


@pytest.mark.parametrize("count", [65_534, 65_535, 65_536])
def test_a_package_of_more_than_65_535_members_says_so(count):
    record = central_record(ZipMember("", b"", b"a", 1, 1, 0x210000))
    file = io.BytesIO(record * count + end_records(count, len(record) * count, 0))
    assert len(zipfile.ZipFile(file).infolist()) == count


# A dump -----------------------------------------------------------------------------------------


async def test_a_dump_is_what_the_source_has(source, copied, tmp_path):
    made = dump(copied, tmp_path / "out").generation
    assert made
    assert made.at == str(source.at)
    assert state_of(zips(tmp_path / "out")) == of_source(source)


async def test_packages_are_within_their_limits(copied, tmp_path):
    options = OPTIONS._replace(limits=Limits(9_000, 20))
    dump(copied, tmp_path / "out", options)
    found = zips(tmp_path / "out")
    assert all(package.stat().st_size <= 9_000 for package in found)
    assert len(found) > 4
    shutil.rmtree(tmp_path / "out")
    dump(copied, tmp_path / "out", OPTIONS._replace(limits=Limits(10**9, 10)))
    assert [len(unpacked(each)) for each in zips(tmp_path / "out")] == [10, 10, 10, 7]
    shutil.rmtree(tmp_path / "out")
    dump(copied, tmp_path / "out", OPTIONS._replace(limits=Limits(10**9, 32)))
    assert [len(unpacked(each)) for each in zips(tmp_path / "out")] == [18, 17]
    shutil.rmtree(tmp_path / "out")
    dump(copied, tmp_path / "out", OPTIONS._replace(limits=Limits(10**9, 33)))
    assert [len(unpacked(each)) for each in zips(tmp_path / "out")] == [34]


async def test_however_short_they_are_few_are_in_memory_at_a_time(source, tmp_path):
    """Neither now nor by the next dump, which reads a piece of the index at a time."""
    options = OPTIONS._replace(pieces=Pieces(small_bytes=10 * STATED_BYTES, indexed=1))
    source.resources.clear()
    for number in range(40):
        source.add(f"r{number}.txt", b"")
    source.list_resources()
    await mirrored(source, tmp_path / "copy")
    made = dump(tmp_path / "copy", tmp_path / "out", options).generation
    assert made
    found = members(tmp_path / "out/packages", made.packages[0].name)
    assert [len(each) for each in found] == [11, 11, 11, 7]


async def test_a_directory_is_never_longer_than_what_a_destination_reads(copied, tmp_path):
    """That of a package names its manifest, too."""
    for most in range(500, 600, 9):
        out = tmp_path / f"{most}"
        dump(copied, out, OPTIONS._replace(limits=Limits(directory_bytes=most)))
        for package in out.glob("packages/*.zip"):
            with zipfile.ZipFile(package) as file:
                directory = package.stat().st_size - file.start_dir - len(end_records(1, 1, 1))
                assert directory <= most


async def test_baseline_and_change_dump_are_the_source(source, copied, tmp_path):
    out, options = tmp_path / "out", OPTIONS._replace(limits=Limits(9_000, 20), keep=10)
    dump(copied, out, options)
    state, old = state_of(zips(out)), {each.name for each in zips(out)}
    source.change("f0/r0.txt", b"new")
    source.change("f0/r0.txt", b"newer")
    source.change("f0/r3.txt", None)
    source.change(quote("f9/ü ü.txt"), b"")
    source.change("f9/made-and-gone", b"1")
    source.change("f9/made-and-gone", None)
    source.change("f1/r1.txt", source.resources["/f1/r1.txt"])  # told, and the same
    await mirrored(source, copied)
    dump(copied, out, options)
    assert state_of(zips(out)) == of_source(source)
    assert state_of(zips(out, "changedump.xml"), state) == of_source(source)
    assert old & {each.name for each in zips(out)}, "nothing was kept"
    (package,) = zips(out, "changedump.xml")
    manifest = parse_document(unpacked(package)["manifest.xml"])
    assert [
        (
            each.loc.removeprefix(source.url),
            each.md and each.md.change,
            each.md and each.md.datetime,
        )
        for each in manifest.entries
    ] == [
        (each.loc.removeprefix(source.url), each.change, each.datetime)
        for each in source.changes
        if each not in (source.changes[0], source.changes[4])
    ]


async def test_of_a_package_of_which_nothing_is_left_all_are_told_as_deleted(
    source, copied, tmp_path
):
    """Only a new Resource List says so: it is not known when they were deleted."""
    out, options = tmp_path / "out", OPTIONS._replace(limits=Limits(10**9, 10))
    dump(copied, out, options)
    before, gone = state_of(zips(out)), state_of([zips(out)[1]])
    for locs in (gone, [loc for loc in before if loc not in gone][1:]):
        for loc in locs:
            source.resources.pop(loc.removeprefix(source.url))
        source.at = Position(source.at + 1_000_000)
        source.list_resources()
        with State(copied) as state:
            state.set_fact("incomplete", "1")
        async with AsyncMirror(
            source.url + CAPABILITIES, copied, Options(max_delete=100)
        ) as mirror:
            assert await mirror.once()
        dump(copied, out, options)
        assert state_of(zips(out)) == of_source(source)
        assert state_of(zips(out, "changedump.xml"), before) == of_source(source)


@pytest.mark.parametrize("at_once", [1, 7])
async def test_what_stays_is_found_wherever_the_pieces_of_an_index_end(
    source, copied, tmp_path, at_once
):
    """Each ends before an address that is new, gone or changed; the last one may be empty."""
    out, options, chance = (
        tmp_path / "out",
        OPTIONS._replace(limits=Limits(30_000), pieces=Pieces(indexed=at_once)),
        Random(at_once),
    )
    dump(copied, out, options)
    for name in ("f0/r0.txt", "f1/r13.txt", "f2/z"):
        before = state_of(zips(out))
        for each in (name, f"f1/r{chance.randrange(40)}.txt"):
            source.change(each, chance.choice([None, chance.randbytes(1_100)]))
        source.change("a", chance.randbytes(3))
        await mirrored(source, copied)
        made = dump(copied, out, options).generation
        assert made
        assert state_of(zips(out)) == of_source(source)
        changed = zips(out, f"generations/{made.name}/changes.xml")
        assert state_of(changed, before) == of_source(source)


async def test_of_one_run_after_another_the_change_dumps_join(source, copied, tmp_path):
    out, options, chance = tmp_path / "out", OPTIONS._replace(keep=4), Random(7)
    states = []
    for round_ in range(6):
        dump(copied, out, options)
        states.append(of_source(source))
        assert state_of(zips(out)) == states[-1]
        for _ in range(5):
            name = f"f{chance.randrange(3)}/r{chance.randrange(40)}.txt"
            source.change(name, chance.choice([None, chance.randbytes(round_ + 1)]))
        await mirrored(source, copied)
    changes = zips(out, "changedump.xml")
    assert state_of(changes, states[1]) == states[-1]
    spans = [each.md for each in document(out, "changedump.xml").entries]
    assert [each and each.until for each in spans[:-1]] == [
        each and each.from_ for each in spans[1:]
    ]
    past = document(out, "resourcedump-archive.xml").entries
    assert [state_of(zips(out, each.loc.removeprefix(BASE))) for each in past] == states[2:5]
    archived = document(out, "changedump-archive.xml").entries
    found = states[1]
    for each in archived:
        found = state_of(zips(out, each.loc.removeprefix(BASE)), found)
    assert found == states[-1]


async def test_where_nothing_has_changed_the_dump_stays(copied, tmp_path):
    assert dump(copied, tmp_path / "out").generation
    before = sorted(tmp_path.glob("out/**/*"))
    assert dump(copied, tmp_path / "out").generation is None
    assert sorted(tmp_path.glob("out/**/*")) == before


async def test_a_copy_of_a_source_that_was_set_back_is_not_called_unchanged(source, tmp_path):
    copy, out, first = tmp_path / "copy", tmp_path / "out", source.at
    source.documents[CAPABILITIES] = source.capability_list("resourcelist")

    async def dumped(content: bytes, at: Position) -> Dumped:
        source.add("a", content)
        source.at = at
        source.list_resources()
        async with AsyncMirror(source.url + CAPABILITIES, copy) as mirror:
            assert await mirror.once() or await mirror.once()  # that it was set back is said first
        return dump(copy, out)

    assert (await dumped(b"1", first)).generation
    assert (await dumped(b"2", Position(first + 1))).generation
    with pytest.raises(NotWhole, match=f"is of {first}, and its last dump of .* another folder"):
        await dumped(b"1", first)


async def test_where_the_clock_is_behind_that_of_the_source_a_dump_is_valid(
    copied, tmp_path, monkeypatch
):
    monkeypatch.setattr("rsnotify_mirror.dumping.dump.time", lambda: 3_600.0)
    assert dump(copied, tmp_path / "out").generation
    assert zips(tmp_path / "out")


async def test_where_the_clock_is_set_back_dumps_go_on(source, copied, tmp_path, monkeypatch):
    """Their names stay in order, and do not grow: a file system takes none of 256 bytes."""
    out, names = tmp_path / "out", list[str]()
    for hours in (9, 8, 8, 7):
        monkeypatch.setattr("rsnotify_mirror.dumping.dump.time", lambda: hours * 3_600.0)  # noqa: B023
        source.change("a", b"%d" % len(names))
        await mirrored(source, copied)
        made = dump(copied, out).generation
        assert made
        names.append(made.name)
        assert state_of(zips(out)) == of_source(source)
    assert names == sorted(names)
    assert len({*names}) == 4
    assert len(names[1]) == len(names[3])


async def test_a_copy_without_a_resource_has_no_resource_dump(source, tmp_path):
    """The schema refuses a list of nothing; what was there before is not today's state."""
    copy, out = tmp_path / "copy", tmp_path / "out"
    for path in [*source.resources]:
        source.change(path[1:], None)
    await mirrored(source, copy)
    assert dump(copy, out).generation is None
    for content in (b"1", None, b"2", None):
        source.change("a.txt", content)
        await mirrored(source, copy)
        before = state_of(zips(out)) if (out / "resourcedump.xml").exists() else {}
        made = dump(copy, out, OPTIONS._replace(keep=9)).generation
        assert made
        assert dump(copy, out, OPTIONS._replace(keep=9)).generation is None
        assert os.path.lexists(out / "resourcedump.xml") is (content is not None)
        if content is not None:
            assert state_of(zips(out)) == of_source(source)
        for path in out.glob("generations/*/*.xml"):
            valid(path.read_bytes())
        if made.changes:
            changes = f"generations/{made.name}/changes.xml"
            assert state_of(zips(out, changes), before) == of_source(source)
    assert len(zips(out, "changedump.xml")) == 3
    past = document(out, "resourcedump-archive.xml").entries
    assert len([zips(out, each.loc.removeprefix(BASE)) for each in past]) == 2


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)


DAMAGES = {
    "a byte of it is another": flip,
    "its last byte is missing": lambda index: os.truncate(index, index.stat().st_size - 1),
    "it is missing": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_package_whose_index_is_damaged_is_written_anew(source, copied, tmp_path, damage):
    """What was deleted from it is not known, so no Change Dump claims to have it."""
    out = tmp_path / "out"
    dump(copied, out)
    (index,) = out.glob("packages/*.index")
    DAMAGES[damage](index)
    source.change("a", b"anew")
    await mirrored(source, copied)
    made, (problem,) = dump(copied, out)
    assert state_of(zips(out)) == of_source(source)
    assert made
    assert made.changes is None
    assert problem.startswith("the Change Dump since ")
    source.change("a", b"once more")
    await mirrored(source, copied)
    made, problems = dump(copied, out)
    assert made
    assert (made.changes is None, problems) == (False, ())


async def test_of_a_package_that_is_damaged_nothing_is_copied(source, copied, tmp_path):
    """With a digest of its own the new one would look right; the next run reads all anew."""
    out = tmp_path / "out"
    dump(copied, out)
    before = (out / "resourcedump.xml").read_bytes()
    (package,) = zips(out)
    flip(package)
    source.change("a", b"new")
    await mirrored(source, copied)
    with pytest.raises(TryAgain, match=f"{package.name} is damaged: the next run writes it anew"):
        dump(copied, out)
    assert (out / "resourcedump.xml").read_bytes() == before
    made, (problem,) = dump(copied, out)
    assert made
    assert problem.startswith("the Change Dump since ")
    assert state_of(zips(out)) == of_source(source)


async def test_where_it_cannot_be_read_what_is_published_nothing_is_removed(
    source, copied, tmp_path
):
    out = tmp_path / "out"
    dump(copied, out)
    before = {*out.glob("packages/*"), *out.glob("generations/*")}
    (out / "current").unlink()
    (out / "current").write_text("no symlink")
    source.change("a", b"anew")
    await mirrored(source, copied)
    with pytest.raises(OSError, match="current"):
        dump(copied, out)
    assert before == {*out.glob("packages/*"), *out.glob("generations/*")}


@pytest.mark.parametrize("keep", [1, 2, 3])
async def test_so_many_dumps_are_kept_and_no_package_of_others(source, copied, tmp_path, keep):
    out = tmp_path / "out"
    for number in range(4):
        source.change("a", b"%d" % number)
        await mirrored(source, copied)
        dump(copied, out, OPTIONS._replace(keep=keep))
    assert len(os.listdir(out / "generations")) == keep
    kept = [
        each
        for path in out.glob("generations/*/*dump.xml")
        for each in zips(out, f"{path.relative_to(out)}")
    ]
    stretches = [
        each
        for path in out.glob("generations/*/changes.xml")
        for each in zips(out, f"{path.relative_to(out)}")
    ]
    assert {*out.glob("packages/*.zip")} == {*kept, *stretches}


async def test_a_dump_without_change_dumps_ends_their_row(source, copied, tmp_path):
    """They would not join; the next ones begin anew."""
    out = tmp_path / "out"
    for makes_change_dumps in (True, True, False, True):
        source.change("a", os.urandom(9))
        await mirrored(source, copied)
        made = dump(
            copied, out, OPTIONS._replace(makes_change_dumps=makes_change_dumps, keep=9)
        ).generation
    assert made
    (span,) = document(out, "changedump.xml").entries
    assert span.md
    assert span.md.until == made.at


async def test_other_limits_alone_do_not_end_the_row_of_change_dumps(source, copied, tmp_path):
    """Twice nothing has changed in the copy, which is of a later time; the next one joins."""
    out, states = tmp_path / "out", []
    options = Options(selection=Selection(exclude=("*/elsewhere",)))
    for entries, name in [(20, "a"), (20, "a"), (9, "elsewhere"), (8, "elsewhere"), (8, "a")]:
        source.change(name, os.urandom(9))
        async with AsyncMirror(source.url + CAPABILITIES, copied, options) as mirror:
            assert await mirror.once()
        made = dump(copied, out, OPTIONS._replace(limits=Limits(10**9, entries), keep=9)).generation
        assert made
        states.append(state_of(zips(out)))
    changes = zips(out, "changedump.xml")
    assert len(changes) == 2
    assert state_of(changes, states[0]) == states[-1]
    spans = [each.md for each in document(out, "changedump.xml").entries]
    assert [each and each.until for each in spans[:-1]] == [
        each and each.from_ for each in spans[1:]
    ]
    for path in out.glob("generations/*/*.xml"):
        valid(path.read_bytes())


# What is not as it should be --------------------------------------------------------------------


async def test_what_is_not_fetched_yet_is_not_claimed(source, copied, tmp_path):
    """The dump is of the time before: whoever reads on from there gets it."""
    first = source.change("f0/r0.txt", b"new")
    second = source.change("f0/r3.txt", b"other")
    source.resources["/f0/r3.txt"] = b"broken"
    async with AsyncMirror(source.url + CAPABILITIES, copied) as mirror:
        assert not await mirror.once()
    with pytest.raises(NotWhole, match=r"does not have .*f0/r3\.txt: "):
        dump(copied, tmp_path / "out")
    with State(copied) as state:
        state.database.execute("UPDATE resource SET problem = NULL WHERE problem IS NOT NULL")
    made = dump(copied, tmp_path / "out").generation
    assert made
    assert first.datetime
    assert second.datetime
    assert made.at == str(Position(Position.parse(second.datetime) - 1))
    assert state_of(zips(tmp_path / "out"))[source.loc("f0/r0.txt")] == b"new"


async def test_what_failed_is_left_out_by_name_only_where_one_says_so(source, copied, tmp_path):
    source.change("f0/new", b"other")
    source.resources.pop("/f0/new")
    async with AsyncMirror(source.url + CAPABILITIES, copied) as mirror:
        assert not await mirror.once()
    with pytest.raises(NotWhole, match="f0/new"):
        dump(copied, tmp_path / "out")
    made = dump(copied, tmp_path / "out", OPTIONS._replace(leaves_out=True))
    assert len(made.problems) == 1
    assert "f0/new" in made.problems[0]
    assert state_of(zips(tmp_path / "out")) == of_source(source)


async def test_a_file_that_is_not_what_was_fetched_is_never_packed(source, copied, tmp_path):
    out, options = tmp_path / "out", OPTIONS._replace(pieces=AT_ONCE)
    dump(copied, out, options)
    before = state_of(zips(out))
    wrong = next(copied.glob("*/f0/r0.txt"))
    wrong.write_bytes(wrong.read_bytes()[::-1])
    shutil.rmtree(out)
    with pytest.raises(NotAsFetched, match=r"f0/r0\.txt: its sha-256 is"):
        dump(copied, out, options)
    assert not list(out.glob("packages/*"))
    made = dump(copied, out, options._replace(leaves_out=True))
    assert "f0/r0.txt" in made.problems[0]
    assert state_of(zips(out)) == {k: v for k, v in before.items() if not k.endswith("f0/r0.txt")}


@pytest.mark.parametrize("make_it", [os.mkfifo, os.mkdir])
async def test_a_pipe_or_a_folder_in_the_place_of_a_file_is_no_dump(
    source, copied, tmp_path, make_it
):
    out, options = tmp_path / "out", OPTIONS._replace(pieces=AT_ONCE)
    (file,) = copied.glob("*/f0/r0.txt")
    file.unlink()
    make_it(file)
    with pytest.raises(NotAsFetched, match=r"f0/r0\.txt: what stands .* is no file: remove it"):
        dump(copied, out, options)
    (problem,) = dump(copied, out, options._replace(leaves_out=True)).problems
    assert "f0/r0.txt" in problem
    del source.resources["/f0/r0.txt"]
    assert state_of(zips(out)) == of_source(source)


async def test_where_the_last_dump_has_what_is_left_out_its_version_stays_and_that_is_said(
    source, copied, tmp_path
):
    """Nothing that is at the Source is called deleted; the next dump has its change."""
    out, options = tmp_path / "out", OPTIONS._replace(leaves_out=True, pieces=AT_ONCE)
    dump(copied, out)
    before = state_of(zips(out))
    source.change("f0/r0.txt", b"new")
    source.change("f0/r3.txt", b"newer")
    source.resources["/f0/r3.txt"] = b"broken"
    async with AsyncMirror(source.url + CAPABILITIES, copied) as mirror:
        assert not await mirror.once()
    (wrong,) = copied.glob("*/f0/r0.txt")
    wrong.write_bytes(b"NEW")
    failed, differs = dump(copied, out, options).problems
    assert failed.startswith(source.loc("f0/r3.txt"))
    assert failed.endswith("; what the copy has of it is in the dump")
    assert differs.endswith("when it was fetched; what the last dump has of it is in this one")
    assert state_of(zips(out)) == before
    wrong.write_bytes(b"new")
    source.change("f0/r3.txt", b"mended")
    await mirrored(source, copied)
    assert dump(copied, out, options).problems == ()
    assert state_of(zips(out, "changedump.xml"), before) == of_source(source)


async def test_a_file_that_the_mirror_replaces_meanwhile_is_read_anew(source, copied, tmp_path):
    """The rows of the dump are those of its beginning."""
    options = OPTIONS._replace(pieces=Pieces(reported=1, small_bytes=0))  # one after another
    out, source_now = tmp_path / "out", source
    with DumpFolder(out) as folder:
        replaced = False

        def progress(done: int, total: int) -> None:
            nonlocal replaced
            if replaced:
                return
            replaced = True
            with State(copied) as state:
                row = state.row(source.loc("f2/r8.txt"))
                assert row
                assert row.path
                assert row.have
                (copied / row.path).write_bytes(b"new")
                digest = f"sha-256:{hashlib.sha256(b'new').hexdigest()}"
                state.stored(row, msgspec.structs.replace(row.have, length=3, hash=digest))

        assert make(copied, folder, options, progress).problems == ()
    source_now.resources["/f2/r8.txt"] = b"new"
    assert state_of(zips(out)) == of_source(source)


async def test_a_folder_that_is_made_anew_meanwhile_is_read(source, copied, tmp_path):
    """As a mirror does where the last file of a folder is deleted, and another comes."""
    (folder,) = copied.glob("*/f0")
    with CopyReader(copied, AT_ONCE) as reader:
        first, second, *_ = [row for row in reader.rows("", None) if "/f0/" in row[0]]
        assert reader.read(*first)
        shutil.copytree(folder, tmp_path / "anew")
        shutil.rmtree(folder)
        (tmp_path / "anew").rename(folder)
        assert reader.read(*second)


@pytest.mark.parametrize("written", [b"1", b"0" * 900, b"0" * 999 + b"1", b"0" * 1_100])
async def test_a_long_file_that_somebody_writes_into_while_it_is_read_is_no_dump(
    source, tmp_path, monkeypatch, written
):
    copy, out, read = tmp_path / "copy", tmp_path / "out", CopyReader.read
    source.add("long", b"0" * 1_000)
    source.list_resources()
    await mirrored(source, copy)
    (path,) = copy.glob("*/long")

    def write_after(reader: CopyReader, loc: str, seen: str) -> Content | None:
        content = read(reader, loc, seen)
        if loc.endswith("/long"):
            path.write_bytes(written)
        return content

    monkeypatch.setattr(CopyReader, "read", write_after)
    with pytest.raises(NotAsFetched, match="/long: its file was written into"):
        dump(copy, out, OPTIONS._replace(pieces=Pieces(small_bytes=500)))
    assert not list(out.glob("packages/*"))


async def test_a_copy_that_is_not_whole_is_no_dump(source, tmp_path):
    source.add("a", b"1")
    source.list_resources()
    source.documents["/resourcelist.xml"] += b"<"
    async with AsyncMirror(source.url + CAPABILITIES, tmp_path / "copy") as mirror:
        assert not await mirror.once()
    with pytest.raises(NotWhole, match="does not have all of its Source"):
        dump(tmp_path / "copy", tmp_path / "out")


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("")
    with pytest.raises(InvalidSettings, match="holds files, but no dumps"):
        DumpFolder(tmp_path)


def test_two_runs_do_not_share_a_folder(tmp_path):
    lock = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(InvalidSettings, match="in use by another"):
        DumpFolder(tmp_path)
    os.close(lock)


async def test_a_full_disk_leaves_the_old_dump_and_nothing_else(
    source, copied, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    dump(copied, out)
    before = sorted(out.glob("**/*"))
    source.change("large", b"0" * 3_000_000)
    await mirrored(source, copied)
    command = [sys.executable, "-c", LIMITED, str(copied), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "File too large" in done.stderr
    assert sorted(out.glob("**/*")) == before
    dump(copied, out)
    assert state_of(zips(out)) == of_source(source)


async def test_what_the_disk_did_not_take_is_no_dump(copied, tmp_path, monkeypatch):
    """The system says so once, to whoever asks first."""
    sync, refused = os.fsync, [OSError("the disk is broken")]

    def fsync(file: int) -> None:
        if refused:
            raise refused.pop()
        sync(file)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="broken"):
        dump(copied, tmp_path / "out", OPTIONS._replace(pieces=Pieces(hashed_bytes=10_000)))
    assert not list(tmp_path.glob("out/packages/*"))


LIMITED = """
import resource, signal, sys
from pathlib import Path
from rsnotify_mirror.dumping.dump import DumpOptions, make
from rsnotify_mirror.dumping.generations import DumpFolder
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with DumpFolder(Path(sys.argv[2])) as folder:
    make(Path(sys.argv[1]), folder, DumpOptions("http://dumps.example/d/", makes_change_dumps=True))
"""


@pytest.mark.evidence
async def test_killed_at_any_call_of_the_system_a_dump_is_whole_and_the_next_run_goes_on(
    source, copied, tmp_path
):
    out, options = tmp_path / "out", OPTIONS._replace(limits=Limits(9_000, 20))
    dump(copied, out, options)
    before, chance, killed = of_source(source), Random(3), 0

    def act() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, chance.random() * 0.03 + 0.0001)
        dump(copied, out, options)

    for _ in range(12):
        source.change(f"f{chance.randrange(3)}/r{chance.randrange(30)}.txt", chance.randbytes(99))
        await mirrored(source, copied)
        status = in_child(act)
        assert status in (0, -signal.SIGALRM)
        killed += status < 0
        assert state_of(zips(out)) in (before, of_source(source))
        dump(copied, out, options)
        before = of_source(source)
        assert state_of(zips(out)) == before
    assert killed, "nothing was tried"


def die_when_published(copy: Path, out: Path, options: DumpOptions) -> None:
    rename = os.rename

    def die(here: Path, there: Path) -> None:
        rename(here, there)
        if Path(there).name == "current":
            os._exit(9)

    def act() -> None:
        os.rename = die
        dump(copy, out, options)

    assert in_child(act) == 9


async def test_killed_as_soon_as_it_is_published_a_dump_is_there(source, copied, tmp_path):
    """The next run has nothing to make, and nothing to mend."""
    out = tmp_path / "out"
    die_when_published(copied, out, OPTIONS)
    assert dump(copied, out).generation is None
    assert state_of(zips(out)) == of_source(source)


async def test_interrupted_as_soon_as_it_is_published_a_dump_stays(
    source, copied, tmp_path, monkeypatch
):
    """What was made for nothing goes, what is published does not."""
    out, rename = tmp_path / "out", os.rename
    dump(copied, out)
    source.change("f0/r0.txt", b"new")
    await mirrored(source, copied)

    def interrupt(here: Path, there: Path) -> None:
        rename(here, there)
        if Path(there).name == "current":
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", interrupt)
    with pytest.raises(KeyboardInterrupt):
        dump(copied, out)
    monkeypatch.undo()
    assert state_of(zips(out)) == of_source(source)
    assert dump(copied, out).generation is None


async def test_a_fault_at_the_rename_leaves_no_name_that_leads_nowhere(
    source, copied, tmp_path, monkeypatch
):
    out, rename = tmp_path / "out", os.rename
    dump(copied, out)
    before = sorted(out.rglob("*"))
    source.change("a", b"1")
    await mirrored(source, copied)

    def fail(here: Path, there: Path) -> None:
        if Path(there).name == "current":
            raise OSError("the disk is broken")
        rename(here, there)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="broken"):
        dump(copied, out)
    assert [each for each in sorted(out.rglob("*")) if each.name != ".next"] == before


async def test_killed_at_the_rename_the_next_run_takes_away_the_names_of_what_is_no_more(
    source, copied, tmp_path
):
    """It has nothing to make."""
    out, options = tmp_path / "out", OPTIONS._replace(keep=1)
    without = options._replace(makes_change_dumps=False)
    for content in (b"1", b"2"):
        dump(copied, out, options)
        source.change("a", content)
        await mirrored(source, copied)
    die_when_published(copied, out, without)
    assert not (out / "changedump.xml").exists()
    assert dump(copied, out, without).generation is None
    assert not os.path.lexists(out / "changedump.xml")


async def test_killed_while_an_old_dump_is_removed_the_next_run_goes_on(source, copied, tmp_path):
    out = tmp_path / "out"

    def die(folder: Path) -> None:
        (folder / ".generation.json").unlink()
        os._exit(9)

    def act() -> None:
        shutil.rmtree = die
        dump(copied, out)

    for number in range(KEEP + 1):
        source.change("f0/r0.txt", b"%d" % number)
        await mirrored(source, copied)
        assert in_child(act) == (9 if number == KEEP else 0)  # only the last removes one
    source.change("f0/r1.txt", b"newer")
    await mirrored(source, copied)
    dump(copied, out)
    assert state_of(zips(out)) == of_source(source)
    assert not [name for name in os.listdir(out / "generations") if name[0] == "."]


# A window ---------------------------------------------------------------------------------------


async def test_a_window_has_what_changed_since(source, copied, tmp_path):
    source.change("f0/r0.txt", b"before")
    after = Position(source.now)
    state = of_source(source)
    source.change("f0/r3.txt", None)
    source.change("new", b"2")
    source.change("f0/r6.txt", b"3")
    source.change("new", b"4")
    await mirrored(source, copied)
    done: list[tuple[int, int]] = []
    zipped = tmp_path / "since.zip"
    assert make_window(copied, zipped, after, lambda *far: done.append(far)) == 3
    assert done == [(0, 3), (1, 3), (2, 3)]
    assert state_of([tmp_path / "since.zip"], state) == of_source(source)
    assert {*unpacked(tmp_path / "since.zip")} == {
        "manifest.xml",
        *(f"resources/{source.url[7:]}/{name}" for name in ("new", "f0/r6.txt")),
    }
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy", "since.zip"]


async def test_a_window_touches_nothing_but_its_zip(source, copied, tmp_path):
    """Neither what has a name like its own, nor does it need a longer one."""
    folder = tmp_path / "windows"
    folder.mkdir()
    mine = [folder / f"since{end}" for end in (".xml", ".index")]
    for each in mine:
        each.write_text("mine")
    make_window(copied, folder / "since.zip", source.at)
    assert [each.read_text() for each in mine] == ["mine", "mine"]
    assert len(list(folder.iterdir())) == 3
    make_window(copied, folder / f"{'x' * 251}.zip", source.at)


async def test_of_two_windows_at_once_with_one_name_the_second_is_refused(source, copied, tmp_path):
    """And what one that was killed has left is in nobody's way."""
    after, zipped = Position(source.now), tmp_path / "since.zip"
    source.change("new", b"2")
    await mirrored(source, copied)

    def again(*_: object) -> None:
        make_window(copied, zipped, after)

    with pytest.raises(InvalidSettings, match="in use by another rsnotify dump"):
        make_window(copied, zipped, after, again)
    assert not zipped.exists()
    assert in_child(lambda: make_window(copied, zipped, after, lambda *_: os._exit(9))) == 9
    assert make_window(copied, zipped, after) == 1
    assert unpacked(zipped)[f"resources/{source.url[7:]}/new"] == b"2"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy", "since.zip"]


async def test_a_window_that_no_destination_would_read_is_refused(source, copied, tmp_path):
    after = Position(source.now)
    for number in range(3):
        source.change(f"{'long' * 50}{number}", b"1")
    await mirrored(source, copied)
    for limits in (WHOLE._replace(entries=2), WHOLE._replace(directory_bytes=1_000)):
        with pytest.raises(NotWhole, match=r"3 changes since .* are too many for one package"):
            make_window(copied, tmp_path / "a.zip", after, limits=limits)
    assert [each.name for each in tmp_path.iterdir()] == ["copy"]
    assert make_window(copied, tmp_path / "a.zip", after) == 3


async def test_a_window_before_the_baseline_is_refused(source, copied, tmp_path):
    """What changed before cannot be told."""
    assert make_window(copied, tmp_path / "a.zip", source.at) == 0
    with pytest.raises(NotWhole, match=f"knows single changes from {source.at} on"):
        make_window(copied, tmp_path / "a.zip", Position(source.at - 1))


async def test_a_window_after_what_the_copy_has_is_refused(source, copied, tmp_path):
    source.change("new", b"2")
    await mirrored(source, copied)
    assert make_window(copied, tmp_path / "a.zip", Position(source.now)) == 0
    with pytest.raises(NotWhole, match="give that or an earlier time"):
        make_window(copied, tmp_path / "a.zip", Position(source.now + 1))


# Others -----------------------------------------------------------------------------------------


async def test_info_zip_unpacks_it(source, copied, tmp_path):
    need("unzip")
    source.change(quote("ü/日本語 файл"), b"any script")
    await mirrored(source, copied)
    dump(copied, tmp_path / "out")
    (package,) = zips(tmp_path / "out")
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    command = ["unzip", "-q", package, "-d", tmp_path / "files"]
    subprocess.run(command, check=True, env=environment)
    for path in copied.glob("*/**/*"):
        if path.is_file():
            unzipped = tmp_path / "files/resources" / path.relative_to(copied)
            assert unzipped.read_bytes() == path.read_bytes()
