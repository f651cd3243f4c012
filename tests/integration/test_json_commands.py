"""Each command's `--json`, and what is under way on a terminal."""

import asyncio
import io
import json
import os
import pty
import re
import sys

import pytest
from rich.console import Console
from typer.main import get_command

from rsnotify.cli import app
from rsnotify.cli.output import progress
from tests.support.forks import Ended
from tests.support.loading import ndjson
from tests.support.running import TOKEN, RunningHub, clean_environment, rsnotify, until

PRINTS_NO_RESULT = {"serve", "demo", "top"}  # they run until they are ended


def verbs(command, path: tuple[str, ...] = ()):
    for name in getattr(command, "commands", ()):
        yield from verbs(command.commands[name], (*path, name))
    if not hasattr(command, "commands"):
        yield " ".join(path), command


def test_every_verb_that_says_something_says_it_in_json():
    without = {
        path
        for path, command in verbs(get_command(app))
        if not any("--json" in each.opts for each in command.params)
    }
    assert without <= PRINTS_NO_RESULT, without


def test_help_names_no_type_of_python():
    for path, command in verbs(get_command(app)):
        with command.make_context(path, [], resilient_parsing=True) as context:
            text = command.get_help(context)
        assert not re.search(r"--[\w-]+ <", text), path
        assert "]..." not in text.replace("[LOC]...", ""), path


async def said(hub: RunningHub, *words: str) -> object:
    ended = await rsnotify(*words, "--json", hub=hub)
    assert (ended.status, ended.err) == (0, ""), ended
    return json.loads(ended.out)


async def test_what_was_done_is_an_object(hub, tmp_path):
    made = await said(hub, "sets", "add", "news", "dataset1")
    assert [(each["name"], each["made"]) for each in made] == [("news", True), ("dataset1", False)]
    assert (await said(hub, "sets", "edit", "news", "--private"))["private"] is True
    token = await said(hub, "tokens", "create", "--set", "news")
    assert await said(hub, "tokens", "revoke", token["id"]) == {"revoked": token["id"]}
    assert await said(hub, "sets", "remove", "news", "--yes") == {"removed": "news"}
    assert await said(hub, "health") == {"ready": True, "reason": None}
    file = tmp_path / "backup"
    backup = await said(hub, "backup", str(file), "--data", str(hub.data))
    assert backup == {"file": str(file), "bytes": file.stat().st_size}
    other = tmp_path / "restored"
    restored = await said(hub, "restore", str(file), "--data", str(other))
    assert (restored["restored"], type(restored["checked"])) == (str(other), bool)


async def test_an_error_is_an_object_too(hub):
    for words in (
        ("sets", "edit", "none", "--private"),
        ("tokens", "revoke", "none"),
        ("subscriptions", "retry", "none"),
        ("subscriptions", "remove", "none"),
        ("serve", "--check", "--port", "none"),
        ("restore", "none"),
        ("backup",),
    ):
        ended = await rsnotify(*words, "--json", hub=hub)
        assert ended.status in (1, 2), ended
        assert [type(each) for each in json.loads(ended.err)["errors"]] == [str], ended
    ended = await rsnotify("health", "--url", "http://127.0.0.1:1", "--json")
    assert (ended.status, json.loads(ended.out)["ready"]) == (1, False)


async def checked(*words: str, **environ: str) -> Ended:
    return await rsnotify("serve", "--check", "--connect", *words, **environ)


async def test_what_the_hub_needs_is_tried(hub, redis_url, tmp_path):
    """The port is in use, the disk read-only, no Redis there: each is named, and all at once."""
    data = ("--data", str(tmp_path / "new"))
    good = await checked(*data, "--port", "0", "--redis", redis_url)
    assert (good.status, "Redis answers" in good.out + good.err) == (0, True), good
    assert not (tmp_path / "new").exists()
    own = await checked(*data, "--port", "0", "--json")
    tried = str(json.loads(own.out)["tried"])
    assert "can be started" in tried
    assert "a free port will be chosen" in tried
    file = tmp_path / "keys"
    file.write_text("spoilt")
    nowhere = ("--redis", f"unix://{tmp_path}/none.sock")
    bad = await checked(*data, "--port", str(hub.port), *nowhere, RSNOTIFY_JWKS=str(file))
    assert bad.status == 2
    for words in ("none.sock", f"cannot listen on 127.0.0.1:{hub.port}", "it is no JWKS"):
        assert words in bad.err, words
    assert bad.err.count("error:") == 3


async def test_a_private_document_is_validated_with_a_token_or_a_header(hub):
    await rsnotify("sets", "add", "secret", "--private", hub=hub)
    document = f"{hub.url}/secret/changelist.xml"
    by_token = await rsnotify("validate", document, hub=hub)
    by_header = await rsnotify(
        "validate", document, "--header", f"Authorization: Bearer {TOKEN}", "--rate", "100"
    )
    assert (by_token.status, by_header.status) == (0, 0), (by_token, by_header)
    refused = await rsnotify("validate", document)
    assert (refused.status, "there is nothing at this address" in refused.err) == (2, True)


# --- progress ------------------------------------------------------------------------------------


@pytest.mark.evidence
@pytest.mark.parametrize(
    ("words", "line", "said"),
    [
        ("resources load dataset1 -", ndjson(["a"]), b"sent "),
        (
            "publish dataset1 --format ndjson --file /dev/stdin",
            b'{"loc": "http://example.com/a", "change": "updated"}\n',
            b"reading /dev/stdin",
        ),
    ],
)
async def test_a_file_says_on_a_terminal_how_far_it_is(hub, words, line, said):
    """Its file has no end until something was said."""
    ours, terminal = pty.openpty()
    environment = clean_environment() | {
        "RSNOTIFY_URL": hub.url,
        "RSNOTIFY_TOKEN": TOKEN,
        "TERM": "xterm",
    }
    load = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rsnotify", *words.split()),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=terminal,
        env=environment,
    )
    os.close(terminal)
    os.set_blocking(ours, False)
    seen = b""

    async def is_said() -> bool:
        nonlocal seen
        load.stdin.write(line)
        try:
            seen += os.read(ours, 65_536)
        except BlockingIOError:
            return False
        return said in seen

    await until(is_said)
    load.stdin.close()
    assert await load.wait() == 0
    os.close(ours)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_is_under_way_is_said_on_a_terminal_alone(is_terminal):
    written = io.StringIO()
    console = Console(file=written, force_terminal=is_terminal, width=80)
    with progress("first [of] all", console, after_seconds=0) as say:
        for number in range(1_000_000):
            say(f"step {number}")
            if not is_terminal or "step" in written.getvalue():
                break
    assert ("step" in written.getvalue()) == is_terminal


def test_what_is_quick_says_nothing():
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=80)
    with progress("first", console, after_seconds=3_600) as say:
        say("step")
    assert written.getvalue() == ""
