"""Wrong use of the commands of Sources and Destinations: one sentence, the mend, status 2."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rsnotify_client import (
    AsyncPublisher,
    FileCursor,
    InvalidArgument,
    InvalidSettings,
    Outbox,
    Position,
    Publisher,
    Relay,
    channel_url,
    follow,
    follow_async,
    notifications,
    notifications_async,
)
from rsnotify_client.following import read_position
from rsnotify_mirror import Mirror
from tests.support import forks
from tests.support.amount import enough
from tests.support.hub_processes import eventually, granting, no_hub, python
from tests.support.running import TOKEN, clean_environment

UTF8 = {"LC_ALL": "C.UTF-8"}


def run(*words: str | bytes, **environ: str) -> str:
    """What a command that is refused says."""
    texts = [
        word if isinstance(word, str) else word.decode(errors="surrogateescape") for word in words
    ]
    ended = asyncio.run(forks.run(texts, clean_environment() | UTF8 | environ))
    assert ended.status == 2, ended.err
    (line,) = ended.err.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


@pytest.mark.parametrize(
    "words",
    [
        ("publish", b"a\xff", "http://example.com/a"),
        ("publish", "a", b"http://example.com/\xff"),
    ],
)
def test_an_argument_that_is_not_utf_8_is_shown(real_hub, words):
    assert "is not UTF-8" in run(*words, "--url", real_hub.url, RSNOTIFY_TOKEN="a")


@pytest.mark.parametrize("key", enough(["a\nb", "€", os.fsdecode(b"\xff")], 1), ids=ascii)
def test_a_key_that_no_header_can_carry_is_refused_at_once(real_hub, set_name, key):
    words = ("-m", "rsnotify", "publish", set_name, "--key", key, "http://example.com/a")
    _, errors = python(*words, "--url", real_hub.url, RSNOTIFY_TOKEN=TOKEN).communicate(timeout=200)
    assert errors == f"error: the key is {key!r}: give printable ASCII\n"


def test_a_closed_stdin_is_told():
    code = "import os, sys; os.close(0); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    words = ("-c", code, "-m", "rsnotify", "publish", "a", "--file", "-")
    _, errors = python(*words).communicate(timeout=200)
    assert errors == "error: --file -: stdin is closed: redirect something into it\n"


def test_a_hub_that_is_started_without_stderr_serves(tmp_path):
    code = "import os, sys; os.close(2); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    words = ("-m", "rsnotify", "serve", "--port", "0", "--data", str(tmp_path / "data"))
    hub = python("-c", code, *words)
    assert hub.stdout is not None
    assert hub.stdout.readline().startswith("rsnotify ready ")
    hub.terminate()
    hub.communicate(timeout=60)
    assert hub.returncode == 0


def test_a_table_for_nobody_is_no_error(real_hub):
    code = "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    listing = python("-c", code, "-m", "rsnotify", "sets", "list", "--url", real_hub.url)
    assert (listing.communicate(timeout=60)[1], listing.returncode) == ("", 0)


def test_an_interrupt_while_modules_are_imported_is_no_traceback():
    code = (
        "import sys, rsnotify.__main__ as command\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'rsnotify.cli.root': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "command.main()"
    )
    interrupted = python("-c", code, "status")
    assert (interrupted.communicate(timeout=60)[1], interrupted.returncode) == ("", 130)


def test_an_output_that_takes_no_more_is_told_in_one_line():
    command = [sys.executable, "-m", "rsnotify", "relay", "--print-sql"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [*command, "--database", "sqlite://a"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            text=True,
        )
    assert (ended.returncode, ended.stderr) == (1, "error: No space left on device\n")


def test_a_cursor_file_of_another_set_is_refused(real_hub, tmp_path):
    cursor = tmp_path / "cursor"
    store = FileCursor(cursor)
    store.keep_for(channel_url(real_hub.url, "dataset1"))
    store.save(Position(1))
    said = run("subscribe", "dataset2", "--cursor", str(cursor), "--url", real_hub.url)
    known, given = (channel_url(real_hub.url, name) for name in ("dataset1", "dataset2"))
    assert said.startswith(f"cursor {cursor}: it keeps the place in {known}, not in {given}: take")


def relay(path: Path, *words: str, **environ: str) -> str:
    with sqlite3.connect(path) as connection:
        connection.executescript(Outbox.sql("sqlite"))
    connection.close()
    return run("relay", "--database", f"sqlite:///{path}", *words, **environ)


def test_a_relay_whose_token_is_refused_says_so_at_its_start(real_hub, tmp_path):
    said = relay(tmp_path / "a.db", RSNOTIFY_URL=real_hub.url, RSNOTIFY_TOKEN="wrong")
    assert said == "the token is unknown or has been revoked (it is the one in RSNOTIFY_TOKEN)"


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("made", ["a file", "inside a file", "a loop"])
def test_a_mirror_in_what_is_no_directory_is_refused(tmp_path, made, is_kept):
    path = tmp_path / "a"
    if made == "a loop":
        path.symlink_to(path)
    else:
        path.touch()
    path = path / "b" if made == "inside a file" else path
    words = [str(tmp_path / "copy"), "--keep-deleted", str(path)] if is_kept else [str(path)]
    said = run("mirror", "http://127.0.0.1:9/", *words)
    start = f"--keep-deleted {path}:" if is_kept else f"{path} cannot be used:"
    assert said == f"{start} it is no directory"


def test_an_address_with_a_path_too_many_is_told_without_it(real_hub, tmp_path):
    at = {"RSNOTIFY_URL": f"{real_hub.url}/api", "RSNOTIFY_TOKEN": TOKEN}
    mend = "; give the hub's address without /api"
    assert relay(tmp_path / "a.db", **at).endswith(f"/api has nothing at /api/api/sets{mend}")
    assert run("publish", "dataset1", "http://example.com/a", **at).endswith(mend)


def test_a_relay_to_what_is_no_hub_says_so_at_its_start(tmp_path):
    with no_hub() as url:
        said = relay(tmp_path / "a.db", "--url", url, RSNOTIFY_TOKEN="a")
    assert said == f"{url} answered 404 Not Found; is this the hub's address?"


def test_a_relay_begins_while_the_hub_is_away(tmp_path):
    path = tmp_path / "a.db"
    words = ("--database", f"sqlite:///{path}", "--create-table", "--url", "http://127.0.0.1:9")
    process = python("-m", "rsnotify", "relay", *words, RSNOTIFY_TOKEN="a")
    assert process.stdout is not None
    assert process.stdout.readline() == "rsnotify relay ready, 0 waiting\n"
    process.terminate()
    _, errors = process.communicate(timeout=200)
    assert errors.startswith("the hub http://127.0.0.1:9 does not answer (connection refused)")


def test_a_demo_leaves_a_set_with_other_resources_as_it_is(real_hub, set_name):
    with Publisher(real_hub.url, TOKEN) as publisher:
        publisher.created(set_name, "http://example.com/thesis/res000001.pdf")
    at = {"RSNOTIFY_URL": real_hub.url, "RSNOTIFY_TOKEN": TOKEN}
    said = run("demo", "--set", set_name, "--port", "0", **at)
    assert said == (
        f"the set {set_name} holds 1 resources that are no demo's, such as "
        "http://example.com/thesis/res000001.pdf: give the demo a set of its own with --set"
    )
    assert real_hub.told(set_name) == [("created", "res000001.pdf")]


def test_a_demo_takes_the_place_of_an_earlier_one(real_hub, set_name):
    at = {"RSNOTIFY_URL": real_hub.url, "RSNOTIFY_TOKEN": TOKEN}
    words = ("--set", set_name, "--port", "0", "--rate", "0", "--resources", "2")
    for run_number in (1, 2):
        demo = python("-m", "rsnotify", "demo", *words, **at)
        assert demo.stdout is not None
        assert demo.stdout.readline().startswith("rsnotify demo ready http://127.0.0.1:")
        demo.terminate()
        demo.communicate(timeout=200)
        told = eventually(lambda: real_hub.told(set_name))
        assert len([what for what, _ in told if what == "created"]) == 2 * run_number
    assert len([what for what, _ in told if what == "deleted"]) == 2


ASKED = (
    "status",
    "sets list",
    "sets add a",
    "sets edit a --private",
    "sets remove a --yes",
    "sets snapshot a",
    "tokens list",
    "tokens create --set a",
    "tokens revoke a",
    "subscriptions list",
    "subscriptions show a",
    "subscriptions remove a",
    "subscriptions retry a",
    "resources show a",
    "resources show a http://example.com/a",
)


@pytest.mark.parametrize("content", enough(["{}", '["a"]', "[{}]", "5", '{"name": null}'], 1))
def test_what_another_api_grants_is_taken_for_no_hubs_answer(content):
    with granting(content.encode()) as url:
        at = {"RSNOTIFY_URL": url, "RSNOTIFY_TOKEN": TOKEN}
        commands = [each.split() for each in ASKED]
        for words in (*commands, ["resources", "load", "a", __file__, "--format", "json"]):
            said = run(*words, **at)
            mend = "answered 200 with JSON that no hub answers; is this the hub's address?"
            assert said == f"{url} {mend}", words


@pytest.mark.parametrize("given", [None, b"http://127.0.0.1:9", 5])
@pytest.mark.parametrize(
    "use",
    [
        Publisher,
        AsyncPublisher,
        follow,
        follow_async,
        notifications,
        notifications_async,
        lambda url: follow(url, sets=["dataset1"]),
        lambda url: Mirror(url, "copy"),
        lambda url: Relay("sqlite:///a.db", url),
    ],
)
def test_an_address_that_is_no_text_is_an_error_of_ours(given, use):
    """As where a variable of the environment is not set."""
    with pytest.raises(InvalidArgument, match=r"the (hub's )?url is .*: give an address such as"):
        next(iter(use(given)))


@pytest.mark.parametrize("given", [None, b"dataset1", 5])
def test_a_set_that_is_no_text_is_an_error_of_ours(given):
    publisher = Publisher("http://127.0.0.1:9", "token")
    for use in (
        lambda: publisher.updated(given, "http://example.com/a"),
        lambda: publisher.publish(given, []),
        lambda: publisher.load(given, []),
        lambda: publisher.position(given),
        lambda: follow("http://127.0.0.1:9", sets=[given]),
    ):
        with pytest.raises(InvalidArgument, match=r"the set is .*: give its name"):
            use()


@pytest.mark.parametrize("given", ["dataset1", "a-token", b"dataset1", 5, []])
@pytest.mark.parametrize("use", [follow, follow_async])
def test_a_set_that_follows_the_address_is_answered_with_what_to_write(use, given):
    with pytest.raises(InvalidArgument) as raised:
        use("http://127.0.0.1:9", given)
    assert 'write sets=["dataset1"]' in str(raised.value)
    assert "token=" in str(raised.value)
    assert "a-token" not in str(raised.value)


@pytest.mark.parametrize("given", [None, 5])
def test_a_directory_that_is_none_is_an_error_of_ours(given):
    with pytest.raises(InvalidSettings, match="cannot be a path: give text, or a Path"):
        Mirror("http://127.0.0.1:9", given)


def test_a_time_of_python_is_a_position_if_it_has_its_zone():
    when = datetime(2026, 11, 20, 21, 34, 0, 123456, UTC)
    assert str(read_position(when)) == "2026-11-20T21:34:00.123456Z"
    for wrong in (when.replace(tzinfo=None), 5, b"2026"):
        with pytest.raises(InvalidArgument, match="with its zone"):
            read_position(wrong)
