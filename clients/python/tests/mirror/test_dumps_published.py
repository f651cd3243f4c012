"""The hub names the dumps of a set, and announces each new one, once."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from clients.python.tests.mirror.test_dumps import mirrored
from rsnotify.cli.target import asked, hub_at
from rsnotify.resourcesync.xml_reader import change_of, parse_document
from tests.support.hub_processes import HubProcess
from tests.support.running import TOKEN, clean_environment

BASE = "http://dumps.example/d/"


def dump(copy: Path, out: Path, url: str, set_name: str, token: str = TOKEN) -> dict[str, Any]:
    command = [sys.executable, "-m", "rsnotify", "dump", str(copy), str(out), "--base", BASE]
    done = subprocess.run(
        [*command, "--changes", "--announce", set_name, "--json"],
        env=clean_environment() | {"RSNOTIFY_TOKEN": token, "RSNOTIFY_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, Any] = json.loads(done.stdout or done.stderr)
    return found


def announced(hub: HubProcess, set_name: str, count: int) -> list[tuple[str, str, str]]:
    """What the framework channel has told of dumps, until it has told so much, and a moment on."""
    path = f"/channels/{set_name}/framework_notification_channel?from=1970-01-01T00:00:00Z"
    found: list[tuple[str, str, str]] = []
    with connect(hub.url.replace("http", "ws") + path) as channel:
        while True:
            try:
                payload = channel.recv(30 if len(found) < count else 0.5, decode=False)
            except TimeoutError:
                return found
            for entry in parse_document(payload).entries:
                change = change_of(entry)
                if "dump" in (change.capability or ""):
                    name = change.loc.removeprefix(BASE)
                    found.append((change.change, change.capability or "", name))


@pytest.mark.evidence
async def test_each_dump_is_named_and_announced_once(source, tmp_path, real_hub, set_name):
    copy, out = tmp_path / "copy", tmp_path / "out"
    await mirrored(source, copy)
    assert dump(copy, out, real_hub.url, set_name)["made"]
    told = [("created", "resourcedump", "resourcedump.xml")]
    assert announced(real_hub, set_name, 1) == told
    assert not dump(copy, out, real_hub.url, set_name)["made"]
    source.change("a", b"new")
    await mirrored(source, copy)
    assert dump(copy, out, real_hub.url, set_name)["made"]
    told += [
        ("created", "changedump", "changedump.xml"),
        ("created", "resourcedump-archive", "resourcedump-archive.xml"),
        ("created", "changedump-archive", "changedump-archive.xml"),
        ("created", "resourcedump", "resourcedump.xml"),
    ]
    assert sorted(announced(real_hub, set_name, 5)) == sorted(told)
    source.change("a", b"newer")
    await mirrored(source, copy)
    assert dump(copy, out, real_hub.url, set_name)["made"]
    told += [
        ("created", "resourcedump", "resourcedump.xml"),
        *(("updated", each[1], each[2]) for each in told[1:4]),
    ]
    assert sorted(announced(real_hub, set_name, 9)) == sorted(told)
    for left in (b"", b'{"set":'):  # as if it had been killed while it noted that
        (out / ".announced.json").write_bytes(left)
        assert not dump(copy, out, real_hub.url, set_name)["made"]
    (out / ".announced.json").unlink()  # or before
    assert not dump(copy, out, real_hub.url, set_name)["made"]
    assert sorted(announced(real_hub, set_name, 9)) == sorted(told)


@pytest.mark.evidence
async def test_a_set_does_not_name_a_dump_that_is_no_more(source, tmp_path, real_hub, set_name):
    copy, out = tmp_path / "copy", tmp_path / "out"

    for path in [*source.resources]:
        source.change(path[1:], None)

    async def named(content: bytes | None) -> list[str]:
        source.change("a.txt", content)
        await mirrored(source, copy)
        assert dump(copy, out, real_hub.url, set_name)["made"]
        with hub_at(real_hub.url, TOKEN) as hub:
            record = asked(hub, "GET", f"/api/sets?name={set_name}").content[0]
        return [name for name in ("changedump", "resourcedump") if record.get(name)]

    assert await named(b"1") == ["resourcedump"]
    assert await named(None) == ["changedump"]
    assert await named(b"2") == ["changedump", "resourcedump"]
    told = announced(real_hub, set_name, 6)
    assert told.count(("created", "resourcedump", "resourcedump.xml")) == 2


async def test_a_token_that_may_not_name_them_is_told_who_may(source, tmp_path, real_hub, set_name):
    await mirrored(source, tmp_path / "copy")
    with hub_at(real_hub.url, TOKEN) as hub:
        body = json.dumps({"sets": [set_name]}).encode()
        token = asked(hub, "POST", "/api/tokens", body=body).content["token"]
    problem = dump(tmp_path / "copy", tmp_path / "out", real_hub.url, set_name, token)["errors"][0]
    assert f"rsnotify sets edit {set_name} --address resourcedump={BASE}resourcedump.xml" in problem
