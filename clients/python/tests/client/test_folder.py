"""A folder becomes a Source: what is published of its files, and what is held back."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from rsnotify import cli
from rsnotify.errors import InvalidSettings
from rsnotify_client import folder
from rsnotify_client.folder import Folder
from tests.support.applications import resources_of
from tests.support.hub_processes import HubProcess, eventually, python
from tests.support.running import TOKEN

BASE = "http://a/files"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder of twenty files."""
    made = tmp_path / "files"
    made.mkdir()
    for number in range(20):
        (made / f"{number}.txt").write_text(str(number))
    return made


@pytest.fixture(autouse=True)
def _files_settle_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "SETTLE_SECONDS", 0.0)


@pytest.fixture
def watched(files: Path, tmp_path: Path) -> Iterator[Folder]:
    with closing(Folder(files, BASE, "a", tmp_path / "state.db")) as found:
        found.look(is_loaded=False)
        yield found


def told(tmp_path: Path) -> list[tuple[str, str]]:
    """What was noted since the last time."""
    with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
        query = "SELECT body ->> 'change', body ->> 'loc' FROM rsnotify_outbox ORDER BY id"
        found = [(change, loc.removeprefix(BASE)) for change, loc in database.execute(query)]
        database.execute("DELETE FROM rsnotify_outbox")
    return found


def test_what_is_there_at_first_is_the_whole_state_and_no_change(watched, tmp_path):
    assert told(tmp_path) == []
    resources = dict(watched.resources())
    assert len(resources) == 20
    assert resources[f"{BASE}/7.txt"]["length"] == 1
    assert str(resources[f"{BASE}/7.txt"]["hash"]).startswith("sha-256:7902699be42c8a8e")


def test_files_that_are_created_updated_and_deleted_are_published(watched, files, tmp_path):
    (files / "0.txt").unlink()
    (files / "1.txt").write_text("other")
    (files / "new").mkdir()
    (files / "new" / "file").write_text("new")
    watched.look()
    assert told(tmp_path) == [
        ("updated", "/1.txt"),
        ("created", "/new/file"),
        ("deleted", "/0.txt"),
    ]
    watched.look()
    assert told(tmp_path) == []


def test_a_file_that_is_written_with_the_same_content_is_not_published(watched, files, tmp_path):
    (files / "1.txt").write_text("1")
    os.utime(files / "2.txt", (0, 0))
    assert watched.look().found.total() == 0


@pytest.mark.parametrize("time", [-(2**64), 2**63, 2**70])
def test_a_time_that_no_clock_shows_is_left_out(watched, files, tmp_path, monkeypatch, time):
    (files / "1.txt").write_text("other")
    found_at(monkeypatch, files / "1.txt", st_mtime_ns=time)
    watched.look()
    assert told(tmp_path) == [("updated", "/1.txt")]
    assert dict(watched.resources())[f"{BASE}/1.txt"]["lastmod"] is None


def test_inodes_may_have_numbers_of_64_bits(watched, files, tmp_path, monkeypatch):
    (files / "1.txt").write_text("other")
    found_at(monkeypatch, files / "1.txt", st_ino=2**64 - 1)
    watched.look()
    assert told(tmp_path) == [("updated", "/1.txt")]
    assert watched.look().found.total() == 0


def found_at(monkeypatch: pytest.MonkeyPatch, path: Path, **fields: int) -> None:
    """Let the system say this of a file, as no file system of a test can."""
    true = path.stat()
    said = SimpleNamespace(**{name: getattr(true, name) for name in dir(true)} | fields)

    def signature(found: os.stat_result) -> folder.Signature:
        return of_system(said if found.st_ino == true.st_ino else found)

    of_system = folder.signature_of
    monkeypatch.setattr(folder, "signature_of", signature)


def test_a_file_of_the_same_length_and_time_but_other_content_is_published(
    watched, files, tmp_path
):
    before = (files / "1.txt").stat()
    (files / "1.txt").write_text("x")
    os.utime(files / "1.txt", ns=(before.st_atime_ns, before.st_mtime_ns))
    watched.look()
    assert told(tmp_path) == [("updated", "/1.txt")]


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("a b%.txt", "/a%20b%25.txt"),
        ("ü?#.txt", "/%C3%BC%3F%23.txt"),
        (os.fsdecode(b"\xff\n"), "/%FF%0A"),
        ("&<'\"", "/%26%3C%27%22"),
    ],
)
def test_a_name_becomes_an_address_that_servers_read_as_that_name(
    watched, files, tmp_path, name, address
):
    (files / name).write_text("new")
    watched.look()
    assert told(tmp_path) == [("created", address)]


def test_links_devices_and_hidden_files_are_left_out(watched, files, tmp_path):
    (files / "link").symlink_to("1.txt")
    (files / "links").symlink_to(files)
    os.mkfifo(files / "pipe")
    (files / ".hidden").write_text("x")
    (files / ".git").mkdir()
    (files / ".git" / "config").write_text("x")
    look = watched.look()
    assert told(tmp_path) == []
    assert sorted(look.left_out) == ["link is a link", "links is a link", "pipe is no file"]


def test_an_address_that_no_list_may_have_is_left_out(watched, files):
    deep = files / ("%" * 200) / ("%" * 200) / ("%" * 200)
    deep.mkdir(parents=True)
    room = folder.LOC_CHARACTERS - len(f"{BASE}/") - 3 * 601
    (deep / ("x" * room)).write_text("fits")
    (deep / ("y" * (room + 1))).write_text("does not")
    look = watched.look()
    assert look.found["created"] == 1
    assert len(look.left_out) == 1


def test_folders_may_be_nested_deeper_than_any_address(watched, files, monkeypatch):
    monkeypatch.chdir(files)
    for _ in range(3_000):
        os.mkdir("a")
        os.chdir("a")
    try:
        look = watched.look()
    finally:  # or whoever tidies up fails
        os.chdir(files)
        subprocess.run(["rm", "-r", "a"], check=True)
    assert look.unread == []
    assert len(look.left_out) == 1


def test_a_file_that_is_being_written_is_published_when_it_is_whole(
    watched, files, tmp_path, monkeypatch
):
    monkeypatch.setattr(folder, "SETTLE_SECONDS", 3600.0)
    (files / "1.txt").write_text("half")
    assert watched.look().unsettled == ["1.txt"]
    monkeypatch.setattr(folder, "SETTLE_SECONDS", 0.0)
    assert told(tmp_path) == []
    assert watched.look().unsettled == []
    assert told(tmp_path) == [("updated", "/1.txt")]


def test_a_file_that_changes_while_it_is_read_waits_for_the_next_look(
    watched, files, tmp_path, monkeypatch
):
    digest = folder.hashlib.file_digest

    def written_meanwhile(*words: object) -> object:
        with (files / "1.txt").open("a") as file:
            file.write("more")
        return digest(*words)

    (files / "1.txt").write_text("half")
    with monkeypatch.context() as patched:
        patched.setattr(folder.hashlib, "file_digest", written_meanwhile)
        assert watched.look().unsettled == ["1.txt"]
    assert told(tmp_path) == []
    watched.look()
    assert told(tmp_path) == [("updated", "/1.txt")]


def test_the_outbox_is_free_while_a_folder_is_listed(watched, files, tmp_path, monkeypatch):
    def publish(found: list[Any]) -> list[Any]:
        with closing(sqlite3.connect(tmp_path / "state.db", timeout=0)) as relay:
            relay.execute("BEGIN IMMEDIATE")
        return found

    (files / "1.txt").write_text("other")
    listed(monkeypatch, publish)
    watched.look()
    assert told(tmp_path) == [("updated", "/1.txt")]


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(
    watched, files, tmp_path, monkeypatch
):
    digest = folder._Scan.digest

    def replaced(scan: folder._Scan, path: bytes, signature: folder.Signature) -> str | None:
        (files / "1.txt").unlink()
        os.mkfifo(files / "1.txt")
        return digest(scan, path, signature)

    (files / "1.txt").write_text("other")
    with monkeypatch.context() as patched:
        patched.setattr(folder._Scan, "digest", replaced)
        assert watched.look().unsettled == ["1.txt"]  # nobody ever writes to the pipe
    assert watched.look().left_out == ["1.txt is no file"]
    assert told(tmp_path) == [("deleted", "/1.txt")]


# What is held back --------------------------------------------------------------------------------


@pytest.mark.parametrize(("gone", "deleted"), [(10, 10), (11, 0), (19, 0)])
def test_more_than_a_few_files_that_are_gone_at_once_are_held_back(
    watched, files, tmp_path, gone, deleted
):
    for number in range(gone):
        (files / f"{number}.txt").unlink()
    (files / "19.txt").write_text("others are published")
    assert (watched.look().held_back is not None) == (deleted == 0)
    assert [change for change, _ in told(tmp_path)] == ["updated"] + ["deleted"] * deleted


def test_none_may_go_if_that_is_said(watched, files):
    (files / "1.txt").unlink()
    assert watched.look(max_delete=0).held_back is not None


def test_a_folder_that_is_suddenly_empty_deletes_nothing_until_that_is_said(
    watched, files, tmp_path
):
    shutil.rmtree(files)
    files.mkdir()
    look = watched.look()
    assert look.held_back is not None
    assert "20 of 20 files" in look.held_back
    assert told(tmp_path) == []
    assert watched.look(max_delete=100).found["deleted"] == 20


def test_the_last_file_is_held_back_too(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "file").write_text("x")
    with closing(Folder(tmp_path / "one", BASE, "a", tmp_path / "state.db")) as only:
        only.look(is_loaded=False)
        (tmp_path / "one" / "file").unlink()
        assert only.look().held_back is not None


def test_a_folder_that_cannot_be_read_deletes_nothing(watched, files, tmp_path, monkeypatch):
    (files / "sub").mkdir()
    (files / "sub" / "file").write_text("x")
    watched.look()
    told(tmp_path)
    scandir = os.scandir

    def refused(path: bytes) -> object:
        if path.endswith(b"sub"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(folder.os, "scandir", refused)
    look = watched.look()
    assert told(tmp_path) == []
    assert look.unread == [f"{files}/sub: Permission denied"]


def listed(monkeypatch: pytest.MonkeyPatch, change: Callable[[list[Any]], list[Any]]) -> None:
    """Let the lists of folders differ from what is there."""
    scandir = os.scandir

    @contextmanager
    def changed(path: bytes) -> Iterator[list[Any]]:
        with scandir(path) as entries:
            yield change(list(entries))

    monkeypatch.setattr(folder.os, "scandir", changed)


def test_a_file_that_is_there_is_not_deleted_though_its_folder_s_list_lacks_it(
    watched, files, tmp_path, monkeypatch
):
    (files / "2.txt").unlink()
    (files / "sub").mkdir()
    (files / "sub" / "file").write_text("x")
    watched.look()
    told(tmp_path)
    (files / "3.txt").unlink()
    with monkeypatch.context() as patched:
        listed(
            patched, lambda found: [each for each in found if each.name not in (b"1.txt", b"sub")]
        )
        assert watched.look().files == 19
    assert told(tmp_path) == [("deleted", "/3.txt")]
    assert watched.look().found.total() == 0


def test_a_list_that_has_a_file_twice_stops_nothing(watched, files, tmp_path, monkeypatch):
    (files / "1.txt").write_text("other")
    listed(monkeypatch, lambda found: found * 2)
    watched.look()
    assert told(tmp_path) == [("updated", "/1.txt")]


def test_a_file_that_is_found_by_its_old_name_too_is_renamed(watched, files, tmp_path, monkeypatch):
    (files / "new.txt").hardlink_to(files / "1.txt")
    listed(monkeypatch, lambda found: [each for each in found if each.name != b"1.txt"])
    watched.look()
    assert told(tmp_path) == [("created", "/new.txt"), ("deleted", "/1.txt")]


def test_what_is_behind_a_link_is_deleted(watched, files, tmp_path):
    (files / "sub").mkdir()
    (files / "sub" / "file").write_text("x")
    watched.look()
    told(tmp_path)
    (files / "sub").rename(tmp_path / "elsewhere")
    (files / "sub").symlink_to(tmp_path / "elsewhere")
    watched.look()
    assert told(tmp_path) == [("deleted", "/sub/file")]


def test_a_folder_that_is_gone_deletes_nothing(watched, files, tmp_path):
    files.rename(tmp_path / "away")
    assert watched.look().unread == [f"{files}: No such file or directory"]
    assert told(tmp_path) == []


def test_a_folder_that_is_renamed_is_not_held_back(watched, files, tmp_path):
    (files / "sub").mkdir()
    for each in list(files.glob("*.txt")):
        each.rename(files / "sub" / each.name)
    look = watched.look()
    assert look.held_back is None
    assert look.found == {"created": 20, "deleted": 20}


# The state ----------------------------------------------------------------------------------------


def test_two_processes_do_not_share_a_state(watched, files, tmp_path):
    with pytest.raises(InvalidSettings, match="in use by another publisher"):
        Folder(files, BASE, "a", tmp_path / "state.db")


@pytest.mark.parametrize("base", ["example.com", "http://a/?x=1", "http://a/#x", "http://a/ü"])
def test_a_base_that_can_be_none_is_refused(files, tmp_path, base):
    with pytest.raises(InvalidSettings, match="--base"):
        Folder(files, base, "a", tmp_path / "state.db")


def test_a_state_that_cannot_be_written_is_kept_elsewhere_by_an_option(files, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidSettings, match=r"file/b\.db: .*; --state FILE keeps"):
        Folder(files, BASE, "a", tmp_path / "file/b.db")


def test_a_state_is_not_published_itself(files, tmp_path):
    (tmp_path / "link").symlink_to(files)
    with pytest.raises(InvalidSettings, match=r"would be published itself; --state FILE keeps"):
        Folder(tmp_path / "link", BASE, "a", files / "b.db")
    assert not (files / "b.db").exists()
    with closing(Folder(files, BASE, "a", files / ".b.db")) as found:
        assert found.look(is_loaded=False).files == 20


@pytest.mark.parametrize("other", [False, True])
def test_a_state_that_is_removed_or_replaced_ends_the_watch(watched, files, tmp_path, other):
    (tmp_path / "state.db").rename(tmp_path / "away")
    if other:
        (tmp_path / "state.db").touch()
    (files / "1.txt").write_text("other")
    with pytest.raises(InvalidSettings, match="was removed or replaced: start again"):
        watched.look()


def test_another_hub_set_or_base_has_not_been_loaded(files, tmp_path):
    with closing(Folder(files, BASE, "a", tmp_path / "state.db")) as found:
        assert not found.is_loaded("http://hub")
        found.has_loaded("http://hub/")
        assert found.is_loaded("http://hub")
        assert not found.is_loaded("http://other")
    for base, set_name in ((BASE + "x", "a"), (BASE, "b")):
        with closing(Folder(files, base, set_name, tmp_path / "state.db")) as other:
            assert not other.is_loaded("http://hub")


# The command --------------------------------------------------------------------------------------


def publish(hub: HubProcess, set_name: str, files: Path, *words: str) -> Result:
    environ = {"RSNOTIFY_URL": hub.url, "RSNOTIFY_TOKEN": TOKEN}
    options = ("publish", set_name, "--dir", str(files), "--base", BASE)
    return CliRunner(env=environ).invoke(cli.app, [*options, *words])


def served(files: Path) -> dict[str, int | None]:
    return {
        f"{BASE}/{each.relative_to(files)}": each.stat().st_size
        for each in files.rglob("*")
        if each.is_file() and not each.name.startswith(".")
    }


def test_a_folder_of_one_file_is_counted_as_one(real_hub, set_name, tmp_path):
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    assert publish(real_hub, set_name, folder).stdout.splitlines() == [
        "loaded 1 resource: 1 created, 0 updated, 0 deleted",
        "1 file: 0 created, 0 updated, 0 deleted",
    ]


def test_a_folder_is_loaded_once_and_then_its_changes_are_published(real_hub, set_name, files):
    first = publish(real_hub, set_name, files)
    assert (first.exit_code, first.stdout.splitlines()[0]) == (
        0,
        "loaded 20 resources: 20 created, 0 updated, 0 deleted",
    )
    assert real_hub.told(set_name) == []
    (files / "1.txt").rename(files / "one.txt")
    second = publish(real_hub, set_name, files)
    assert second.stdout == "20 files: 1 created, 0 updated, 1 deleted\n"
    assert real_hub.told(set_name) == [("created", "one.txt"), ("deleted", "1.txt")]
    assert resources_of(real_hub, set_name) == served(files)


def test_the_folder_that_is_served_has_no_state(real_hub, set_name, files):
    publish(real_hub, set_name, files)
    assert [each for each in files.iterdir() if each.name.startswith(".")] == []
    assert (files.parent / f".files.rsnotify-{set_name}.db").stat().st_mode & 0o777 == 0o600


def test_what_is_held_back_ends_with_status_1_and_goes_with_the_option(real_hub, set_name, files):
    publish(real_hub, set_name, files)
    for number in range(15):
        (files / f"{number}.txt").unlink()
    held = publish(real_hub, set_name, files)
    assert held.exit_code == 1
    assert "15 of 20 files" in str(held.exception)
    assert publish(real_hub, set_name, files, "--max-delete", "75").exit_code == 0
    assert resources_of(real_hub, set_name) == served(files)


def test_an_empty_folder_is_not_loaded(real_hub, set_name, tmp_path):
    (tmp_path / "empty").mkdir()
    refused = publish(real_hub, set_name, tmp_path / "empty")
    assert refused.exit_code == 1
    assert "is it mounted?" in str(refused.exception)


def test_a_lost_state_is_made_again_from_the_whole_folder(real_hub, set_name, files):
    publish(real_hub, set_name, files)
    (files / "1.txt").unlink()
    (files.parent / f".files.rsnotify-{set_name}.db").unlink()
    again = publish(real_hub, set_name, files)
    assert again.stdout.startswith("loaded 19 resources: 0 created, 0 updated, 1 deleted\n")
    assert resources_of(real_hub, set_name) == served(files)


@pytest.mark.evidence
def test_a_watched_folder_is_published_though_the_watch_is_killed(real_hub, set_name, files):
    """A random story of files, in which the command is killed and started again."""
    chance = random.Random(24)
    for _ in range(2):
        watch = watching(real_hub, set_name, files)
        for _ in range(20):
            act(files, chance)
        watch.kill()
        watch.communicate()
        for _ in range(5):
            act(files, chance)
    watch = watching(real_hub, set_name, files)
    eventually(lambda: resources_of(real_hub, set_name) == served(files), 30)
    watch.send_signal(signal.SIGTERM)
    _, errors = watch.communicate(timeout=200)
    assert watch.returncode == 0, errors


def watching(hub: HubProcess, set_name: str, files: Path) -> "subprocess.Popen[str]":
    options = ("--dir", str(files), "--base", BASE, "--watch", "--url", hub.url)
    options += ("--max-delete", "100")  # most of so few files go between two looks
    words = ("-m", "rsnotify", "publish", set_name, *options)
    process = python(*words, RSNOTIFY_TOKEN=TOKEN)
    assert process.stdout is not None
    while "ready" not in process.stdout.readline():
        assert process.poll() is None
    return process


def act(files: Path, chance: random.Random) -> None:
    """Write, rename or delete a file."""
    one = chance.choice([each for each in files.iterdir() if not each.name.startswith(".")])
    other = files / f"{chance.randrange(40)}.txt"
    match chance.randrange(4):
        case 0:
            one.rename(other)
        case 1 if len(list(files.iterdir())) > 15:
            one.unlink()
        case _:
            other.write_text("x" * chance.randrange(100))


def test_what_the_command_needs_is_said(real_hub, files):
    assert publish(real_hub, "a", files / "none").exit_code != 0
    for words in (["--dir", "x"], ["--watch"], ["http://a/1", "--base", BASE]):
        assert CliRunner().invoke(cli.app, ["publish", "a", *words]).exit_code == 2
