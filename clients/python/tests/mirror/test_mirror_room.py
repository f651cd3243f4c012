"""What a copy may take of its disk, and how fast it may come: at each bound, and one past it."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from clients.python.tests.client.test_watched import running, until
from clients.python.tests.mirror.test_mirror import files, once
from rsnotify.cli.options import parse_size
from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import Position
from rsnotify_client.errors import InvalidArgument
from rsnotify_client.web import SMALL_BYTES
from rsnotify_mirror.across import BESIDE
from rsnotify_mirror.fetch import REPORTED_BYTES
from rsnotify_mirror.paths import place_of
from rsnotify_mirror.plan import LEAST_BANDWIDTH, Options
from rsnotify_mirror.room import CopyRoom, FetchPace, NoRoom
from rsnotify_mirror.state import State
from tests.integration.test_cli import rsnotify
from tests.support.disks import Disk
from tests.support.sources import CAPABILITIES, Source

LONG = SMALL_BYTES + 1


@pytest.fixture
def site(source: Source) -> Source:
    """A Source that has nothing yet."""
    source.resources.clear()
    return source


def list_without_lengths(source: Source) -> None:
    locs = "".join(f"<url><loc>{source.url}{path}</loc></url>" for path in source.resources)
    source.documents["/resourcelist.xml"] = (
        '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
        ' xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="resourcelist"'
        f' at="{source.at}"/>{locs}</urlset>'
    ).encode()


@pytest.mark.parametrize("length", [100, LONG])
@pytest.mark.parametrize("is_known", [True, False])
async def test_no_resource_longer_than_max_file_is_fetched(site, tmp_path, length, is_known):
    site.add("fits", b"a" * length)
    site.add("not", b"b" * (length + 1))
    site.list_resources()
    if not is_known:
        list_without_lengths(site)
    done = await once(site, tmp_path, max_file=length)
    assert [*files(tmp_path)] == ["fits"]
    assert not done.is_whole
    (failed,) = [each for each in done.events if each.event == "failed"]
    assert f"--max-file allows {length:,}" in (failed.problem or "")
    assert site.asked["/not"] == (0 if is_known else 1)
    (fetched,) = {each.to_fetch_bytes for each in done.events if each.event == "baseline"}
    assert fetched == (2 * length + 1 if is_known else 0)


@pytest.mark.parametrize("length", [REPORTED_BYTES, REPORTED_BYTES + 1])
async def test_what_turns_out_to_be_longer_is_given_up(site, tmp_path, length):
    """Neither the list nor the answer says how long it is."""
    site.add("a", b"")

    async def chunked(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"a" * length)
        return answer

    site.handlers["/a"] = chunked
    list_without_lengths(site)
    done = await once(site, tmp_path, max_file=REPORTED_BYTES)
    assert done.is_whole is (length == REPORTED_BYTES)
    assert [len(each) for each in files(tmp_path).values()] == [length] * done.is_whole
    assert [*tmp_path.glob(".rsnotify*-parts/*")] == []  # nothing of it is kept


@pytest.mark.parametrize("length", [50, LONG])
async def test_a_copy_grows_to_max_size_and_no_further(site, tmp_path, length):
    site.add("a", b"a" * length)
    site.add("b", b"b" * length)
    site.list_resources()
    bound = {"max_size": 2 * length}
    assert (await once(site, tmp_path, **bound)).is_whole
    site.change("a", b"c" * length)  # takes the place of as much
    assert (await once(site, tmp_path, **bound)).is_whole
    site.change("b", b"d" * (length + 1))
    done = await once(site, tmp_path, **bound)
    assert not done.is_whole
    (failed,) = [each for each in done.events if each.event == "failed"]
    assert f"there is room for {length:,}: the copy may have" in (failed.problem or "")
    assert set(files(tmp_path).values()) == {b"b" * length, b"c" * length}
    site.change("a", b"c" * (length - 1))  # now there is room
    await once(site, tmp_path, **bound)
    assert (await once(site, tmp_path, **bound)).is_whole
    assert files(tmp_path)["b"] == b"d" * (length + 1)


async def test_a_copy_that_is_full_ends_its_mirror_and_goes_on_when_it_may(site, tmp_path):
    for name in "abc":
        site.add(name, b"12345")
    site.list_resources()
    advice = "give a larger --max-size, then start again"
    with pytest.raises(
        InvalidSettings, match=rf"the copy may have 10 bytes .--max-size.: {advice}"
    ):
        await once(site, tmp_path, max_size=10)
    assert len(files(tmp_path)) == 2
    with State(tmp_path, is_writer=False) as state:
        assert (state.held_bytes(), state.planned_bytes()) == (10, (5, 5))
        ((loc, problem),) = state.problems(1)
        assert problem == f"{loc} cannot be stored: the copy may have 10 bytes (--max-size)"
    assert (await once(site, tmp_path, max_size=15)).is_whole


async def test_a_removed_resource_makes_room_in_the_same_run(site, tmp_path):
    site.add("a", b"12345")
    site.list_resources()
    assert (await once(site, tmp_path, max_size=5)).is_whole
    site.change("a", None)
    site.change("b", b"54321")
    assert (await once(site, tmp_path, max_size=5)).is_whole
    assert files(tmp_path) == {"b": b"54321"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with Disk(tmp_path / "disk") as found:
        if not found.is_mounted:
            pytest.skip("this user cannot mount a disk")
        yield tmp_path / "disk"


async def test_so_much_of_the_disk_stays_free(site, disk):
    """What does not fit is named before anything is fetched, and all that fits is."""
    site.add("small", b"a")
    site.add("large", b"b" * 8_000_000)
    site.list_resources()
    with State(disk) as state:
        state.commit()
    free = CopyRoom(disk, Options()).left().length
    done = await once(site, disk, keep_free=free - 4_000_000)
    assert [*files(disk)] == ["small"]
    assert site.asked["/large"] == 0
    (baseline,) = [each for each in done.events if each.event == "baseline"]
    assert baseline.to_fetch_bytes == 8_000_001
    assert "not all will fit" in (baseline.problem or "")
    assert (baseline.room_bytes or 0) <= 4_000_000
    assert (await once(site, disk, keep_free=0)).is_whole


async def test_so_much_stays_free_where_several_small_resources_come_at_once(site, disk):
    for name in ("a", "b", "c", "d"):
        site.add(name, name.encode() * 900_000)
    list_without_lengths(site)
    with State(disk) as state:
        state.commit()
    free = CopyRoom(disk, Options()).left().length
    kept = free - 2_200_000  # two fit, and what the mirror writes down
    done = await once(site, disk, keep_free=kept, bandwidth=4_000_000)
    assert (len(files(disk)), done.is_whole) == (2, False)
    assert CopyRoom(disk, Options()).left().length >= kept
    assert (await once(site, disk)).is_whole


async def test_a_disk_without_room_ends_a_mirror_before_it_is_full(site, disk):
    site.add("a", b"a" * 1_000_000)
    list_without_lengths(site)
    with State(disk) as state:
        state.commit()
    free = CopyRoom(disk, Options()).left().length
    advice = "make room or give a smaller --keep-free, then start again"
    with pytest.raises(InvalidSettings, match=rf"kept free .--keep-free.: {advice}"):
        await once(site, disk, keep_free=free)
    assert CopyRoom(disk, Options()).left().length > free / 2


async def test_a_folder_of_a_copy_that_may_only_be_read_is_named_and_nobody_asked_for_room(
    site, tmp_path
):
    site.add("a", b"a")
    site.list_resources()
    assert (await once(site, tmp_path / "copy")).is_whole
    site.change("sub/deep/a", b"a")
    with Disk(tmp_path / "copy" / place_of(site.loc("sub"))) as disk:
        if not disk.is_mounted:
            pytest.skip("this user cannot mount a disk")
        disk.write_protect()
        with pytest.raises(InvalidSettings, match="Read-only file system") as ended:
            await once(site, tmp_path / "copy")
    advice = "mount its file system so that it may be written, then start again; nothing is lost"
    assert str(ended.value).endswith(
        f"/sub/deep/a cannot be stored: Read-only file system: {advice}"
    )


async def test_a_copy_that_may_only_be_read_is_named_and_nobody_asked_for_room(site, tmp_path):
    with Disk(tmp_path / "copy") as disk:
        if not disk.is_mounted:
            pytest.skip("this user cannot mount a disk")
        site.add("a", b"a")
        site.list_resources()
        assert (await once(site, tmp_path / "copy")).is_whole
        disk.write_protect()
        with pytest.raises(InvalidSettings) as ended:
            await once(site, tmp_path / "copy")
        assert "its file system may only be read" in str(ended.value)


@pytest.mark.parametrize("keeps", ["keep_deleted", "keep_versions"])
async def test_a_folder_of_a_copy_may_be_another_mount(site, tmp_path, keeps):
    options, long = {keeps: tmp_path / "kept"}, b"a" * LONG
    site.add("a", b"a")
    site.list_resources()
    assert (await once(site, tmp_path / "copy", **options)).is_whole
    folder = tmp_path / "copy" / place_of(site.loc("sub"))
    with Disk(folder) as disk:
        if not disk.is_mounted:
            pytest.skip("this user cannot mount a disk")
        (folder / BESIDE).write_bytes(b"what a killed mirror had copied" * LONG)
        site.change("sub/small", b"small")
        change = site.change("sub/long", long)
        assert (await once(site, tmp_path / "copy", **options)).is_whole
        assert {each.name: each.read_bytes() for each in folder.iterdir()} == {
            "small": b"small",
            "long": long,
        }
        stated = Position.parse(change.datetime or "")
        assert (folder / "long").stat().st_mtime == pytest.approx(stated / 1_000_000)
        site.change("sub/small", b"second")
        site.change("sub/long", None)
        assert (await once(site, tmp_path / "copy", **options)).is_whole
        assert {each.name: each.read_bytes() for each in folder.iterdir()} == {"small": b"second"}
    assert long in [each.read_bytes() for each in (tmp_path / "kept").rglob("*") if each.is_file()]


def test_what_several_need_at_the_same_time_is_added_up(tmp_path):
    room = CopyRoom(tmp_path, Options(max_size=100))
    with room.kept_for(60, 60) as share:
        room.admit("a", 40, is_one=True)
        with pytest.raises(NoRoom):
            room.admit("a", 41, is_one=True)
        with room.kept_for(40, 40), pytest.raises(OSError, match="--max-size"):
            room.admit("a", 1, is_one=True)
        share.came(60)
        with pytest.raises(NoRoom):  # it is there, and is not counted yet
            room.admit("a", 41, is_one=True)
    room.stored(0, 60)
    room.admit("a", 100, replaced=60, is_one=True)
    with pytest.raises(NoRoom):
        room.admit("a", 101, replaced=60, is_one=True)
    room.admit("empty", 0, is_one=True)
    room.check_stored("a", 60, 100)  # what came meanwhile is looked at as it gets its place
    room.check_stored("a", 200, 150)  # a copy that is too large already may become smaller
    with pytest.raises(NoRoom):
        room.check_stored("a", 60, 101)


# Bandwidth --------------------------------------------------------------------------------------


def test_all_that_is_fetched_shares_the_bandwidth():
    now = 100.0
    pace = FetchPace(10_000, lambda: now)
    assert pace.seconds_after(5_000) == 0.5
    assert pace.seconds_after(5_000) == 1.0  # of another resource, in the same moment
    now = 101.5
    assert pace.seconds_after(10_000) == 1.0  # what was not used is not saved up
    assert FetchPace(None).seconds_after(10**12) == 0
    assert pace.piece_bytes(512 * 1024) == 4_096
    assert FetchPace(1_000_000).piece_bytes(512 * 1024) == 100_000


async def test_every_byte_that_is_fetched_counts(site, tmp_path, monkeypatch):
    counted: list[int] = []

    class Counted(FetchPace):
        def seconds_after(self, count: int) -> float:
            counted.append(count)
            return 0.0 * super().seconds_after(count)

    monkeypatch.setattr("rsnotify_mirror.mirror.FetchPace", Counted)
    site.add("small", b"a" * 1_000)
    site.add("large", b"b" * LONG)
    site.list_resources()
    assert (await once(site, tmp_path, bandwidth=1_000_000)).is_whole
    assert sum(counted) == 1_000 + LONG
    assert max(counted) <= 100_000


async def test_a_mirror_that_rests_for_its_bandwidth_ends_when_it_is_told_to(site, tmp_path):
    """Ten bytes a millisecond: the file would take five minutes."""
    site.add("large", bytes(3_000_000))
    site.list_resources()
    copy = tmp_path / "copy"
    words = ("mirror", site.url + CAPABILITIES, str(copy), "--bandwidth", "10k")
    async with running(*words) as mirror:
        await until(lambda: any(each.stat().st_size for each in copy.glob(".*-parts/*")))
        mirror.send_signal(signal.SIGTERM)
        assert await mirror.wait() == 130
    await until(lambda: not site.connections)


# The command ------------------------------------------------------------------------------------


async def test_the_command_says_whether_it_will_fit(site, tmp_path):
    site.add("a", b"12345")
    site.list_resources()
    copy = tmp_path / "to/be/made/copy"
    words = ("mirror", site.url + CAPABILITIES, str(copy))
    said = await rsnotify(*words, "--dry-run")
    assert "\n5 B to fetch, as far as that is known; room for " in f"\n{said.err}"
    assert not (tmp_path / "to").exists()
    said = await rsnotify(*words, "--dry-run", "--max-size", "4")
    assert "not all will fit: the copy would grow by 5 bytes, and there is room for 4" in said.err
    said = await rsnotify(*words, "--once", "--max-size", "4", "--metrics", f"{tmp_path}/m.prom")
    assert (said.status, "not all will fit" in said.out) == (1, True)
    assert "a has 5 bytes, and there is room for 4" in said.err
    assert (
        f'rsnotify_mirror_room_bytes{{directory="{copy}"}} 4\n' in (tmp_path / "m.prom").read_text()
    )
    said = await rsnotify("mirror", "--status", str(copy))
    assert "\n5 B to fetch, as far as that is known; room for 4 B more\n" in said.out
    assert "and there is room for 4" in said.out.partition("last error")[2]
    said = await rsnotify("mirror", "--status", str(copy), "--json")
    assert [json.loads(said.out)[name] for name in ("to_fetch_bytes", "room_bytes")] == [5, 4]
    assert (await rsnotify(*words, "--once")).status == 0
    assert files(copy) == {"a": b"12345"}
    said = await rsnotify(*words[:2], f"{tmp_path}/other", "--once")
    assert (said.status, "5 B known; room for " in said.out) == (0, True)


@pytest.mark.parametrize("text", ["", "0", "10X", "1.5G", "-1", "10  G", "10i", "9" * 16])
def test_what_is_no_size_is_said(text):
    with pytest.raises(InvalidSettings, match=r"--max-file .*: give a size such as 500M"):
        parse_size(text, "--max-file")


@pytest.mark.parametrize("name", ["keep_free", "max_size", "max_file", "bandwidth"])
def test_a_bound_below_the_least_is_refused(name):
    least = LEAST_BANDWIDTH if name == "bandwidth" else 0
    assert getattr(Options(**{name: least}), name) == least
    with pytest.raises(InvalidArgument, match=name):
        Options(**{name: least - 1})
    with pytest.raises(InvalidSettings, match="10,000 bytes at least"):
        parse_size("9999", "--bandwidth", LEAST_BANDWIDTH)
