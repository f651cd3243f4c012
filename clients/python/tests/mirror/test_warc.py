"""What a mirror has stored, in a WARC: each record once, whatever becomes of the mirror."""

import errno
import fcntl
import gzip
import hashlib
import os
import zlib
from base64 import b32encode
from pathlib import Path
from typing import NamedTuple

import pytest

from clients.python.tests.mirror.test_moved import mirrored
from rsnotify.errors import InvalidSettings
from rsnotify_client.web import SMALL_BYTES, Refused
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.plan import Options
from rsnotify_mirror.report import Event
from rsnotify_mirror.state import State
from rsnotify_mirror.storing import Hook
from tests.support.children import in_child
from tests.support.sources import CAPABILITIES, Source


class Record(NamedTuple):
    """One record of a WARC."""

    fields: dict[str, str]
    block: bytes


def records(path: Path) -> list[Record]:
    """Each is a gzip member of its own."""
    left, found = path.read_bytes(), list[Record]()
    while left:
        member = zlib.decompressobj(31)
        whole = member.decompress(left)
        assert member.eof
        left = member.unused_data
        version, _, rest = whole.partition(b"\r\n")
        assert version == b"WARC/1.1"
        head, _, body = rest.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        block, end = body[:-4], body[-4:]
        assert (int(fields["Content-Length"]), end) == (len(block), b"\r\n\r\n")
        digest = b32encode(hashlib.sha256(block).digest()).decode()
        assert fields["WARC-Block-Digest"] == f"sha256:{digest}"
        found.append(Record(fields, block))
    return found


def stored(path: Path) -> list[tuple[str, bytes]]:
    return [
        (each.fields["WARC-Target-URI"], each.block)
        for each in records(path)
        if each.fields["WARC-Type"] == "resource"
    ]


@pytest.fixture
def warc(tmp_path: Path) -> Path:
    return tmp_path / "copy.warc.gz"


async def once(source: Source, copy: Path, warc: Path) -> None:
    assert await mirrored(source.url + CAPABILITIES, copy, warc=warc)


async def test_each_resource_that_is_stored_is_a_record(source, copy, warc):
    long = bytes(SMALL_BYTES + 1)
    source.add("long.bin", long)
    source.list_resources()
    await once(source, copy, warc)
    source.change("a.txt", b"second", type="text/plain")
    source.change("b.txt", None)
    await once(source, copy, warc)
    first = [(source.loc(f"{name}.txt"), f"first {name}".encode()) for name in "abc"]
    found = stored(warc)
    assert sorted(found[:4]) == sorted([*first, (source.loc("long.bin"), long)])
    assert found[4:] == [(source.loc("a.txt"), b"second")]
    info, *others = records(warc)
    assert info.fields["WARC-Type"] == "warcinfo"
    assert len({each.fields["WARC-Record-ID"] for each in [info, *others]}) == 6


async def test_what_a_killed_mirror_has_left_is_cut_off(source, copy, warc):
    await once(source, copy, warc)
    whole = warc.read_bytes()
    warc.write_bytes(whole + whole[: len(whole) // 2])
    await once(source, copy, warc)
    source.change("a.txt", b"second")
    await once(source, copy, warc)
    assert len(stored(warc)) == 4


async def test_what_a_hook_fails_for_is_a_record_once(source, copy, warc):
    """Whatever is run without the hook, and however often that is called."""

    async def run(hook: Hook | None) -> None:
        options = Options(warc=warc, first_retry_seconds=0.001)
        async with AsyncMirror(source.url + CAPABILITIES, copy, options, hook=hook) as mirror:
            await mirror.once()

    async def fail(event: Event, _: bytes | None) -> None:
        raise Refused(f"no {event.loc}")

    async def work(*_: object) -> None:
        pass

    await run(fail)
    await run(None)
    expected = [(source.loc(f"{name}.txt"), f"first {name}".encode()) for name in "abc"]
    assert sorted(stored(warc)) == expected
    source.change("a.txt", b"second")
    for hook in (None, fail, work):
        await run(hook)
        assert stored(warc)[3:] == [(source.loc("a.txt"), b"second")]


@pytest.mark.parametrize("commits", [0, 1])
async def test_a_mirror_that_was_killed_as_it_began_its_file_goes_on(source, copy, warc, commits):
    """Before it had noted that the file is its own, and before it had committed a record."""
    begun = []

    def die(state: State) -> None:
        if len(begun) == commits:
            os._exit(9)
        begun.append(commit(state))

    def act() -> None:
        State.commit = die
        AsyncMirror(source.url + CAPABILITIES, copy, Options(warc=warc)).state.commit()

    commit = State.commit
    assert in_child(act) == 9
    assert bool(warc.stat().st_size) is bool(commits)
    await once(source, copy, warc)
    assert [each.fields["WARC-Type"] for each in records(warc)] == ["warcinfo", *["resource"] * 3]


async def test_a_file_that_is_empty_is_begun_by_one_mirror(source, copy, warc):
    with warc.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(InvalidSettings, match="another mirror writes it"):
            await once(source, copy, warc)
    await once(source, copy, warc)
    assert len(stored(warc)) == 3


async def test_where_the_disk_is_full_the_file_is_begun_once_there_is_room(
    source, copy, warc, monkeypatch
):
    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(gzip, "GzipFile", fill)
    with pytest.raises(InvalidSettings, match="No space left"):
        await once(source, copy, warc)
    monkeypatch.undo()
    await once(source, copy, warc)
    assert len(stored(warc)) == 3


async def test_a_file_that_the_copy_has_not_begun_is_not_touched(source, copy, warc):
    warc.write_bytes(b"of somebody else")
    with pytest.raises(InvalidSettings, match="is there already"):
        await once(source, copy, warc)
    assert warc.read_bytes() == b"of somebody else"


async def test_a_file_that_was_cut_is_refused(source, copy, warc):
    await once(source, copy, warc)
    warc.write_bytes(warc.read_bytes()[:-1])
    with pytest.raises(InvalidSettings, match="it was cut"):
        await once(source, copy, warc)


async def test_another_file_may_be_begun_at_any_time(source, copy, warc, tmp_path):
    await once(source, copy, warc)
    source.change("a.txt", b"second")
    another = tmp_path / "another.warc.gz"
    await once(source, copy, another)
    assert stored(another) == [(source.loc("a.txt"), b"second")]


async def test_a_copy_without_files_has_no_warc(source, copy, warc):
    with pytest.raises(InvalidSettings, match="without files"):
        await mirrored(source.url + CAPABILITIES, copy, warc=warc, has_files=False)


async def test_where_no_file_can_be_made_it_is_said(source, copy, tmp_path):
    with pytest.raises(InvalidSettings, match="No such file or directory"):
        await once(source, copy, tmp_path / "nowhere/copy.warc.gz")
    async with AsyncMirror(source.url + CAPABILITIES, copy) as mirror:  # it is let go of
        assert await mirror.once()
