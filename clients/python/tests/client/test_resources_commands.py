"""`rsnotify resources` against a real hub."""

import asyncio
import gzip
import json
import os
import re
import sys
from pathlib import Path

from rsnotify.resourcesync.xml_writer import Document, Entry, Md, render_document
from rsnotify_client.loading import OUTCOME
from tests.support.hub_processes import granting
from tests.support.loading import ndjson
from tests.support.running import TOKEN, RunningHub, rsnotify

PUBLISHING = Path(__file__).parents[4] / "docs" / "publishing.md"
LIST = Md(capability="resourcelist", at="2026-11-21T00:00:00Z")


async def test_a_file_is_loaded_compared_and_asked_about(hub, tmp_path):
    file = tmp_path / "all.ndjson"
    file.write_bytes(ndjson(["a", "b", "c"]))
    loaded = await rsnotify("resources", "load", "dataset1", str(file), hub=hub)
    assert (loaded.status, "created            3" in loaded.out) == (0, True), loaded
    file.write_bytes(ndjson(["a", "b", "d"]))
    compared = await rsnotify("resources", "load", "-n", "dataset1", str(file), hub=hub)
    assert "created: http://example.com/d" in compared.out
    assert "say so with max_delete=34" in compared.err
    refused = await rsnotify("resources", "load", "dataset1", str(file), hub=hub)
    assert (refused.status, "would delete 1 of 3" in refused.err) == (1, True)
    wanted = ("--max-delete", "34", "--no-publish", "--json")
    loaded = await rsnotify("resources", "load", "dataset1", str(file), *wanted, hub=hub)
    assert json.loads(loaded.out)["published"] is False
    shown = await rsnotify("resources", "show", "dataset1", "http://example.com/d", hub=hub)
    assert shown.out.startswith("loc       http://example.com/d")
    file.write_bytes(ndjson(f"res{number}" for number in range(50_000)))
    no_set = await rsnotify("resources", "load", "none", str(file), hub=hub)
    assert (no_set.status, "there is no set 'none'" in no_set.err) == (2, True), no_set
    gone = await rsnotify("resources", "show", "dataset1", "http://example.com/c", hub=hub)
    assert (gone.status, "never known, or deleted" in gone.err) == (1, True)


async def test_an_index_and_its_parts_are_one_load(hub, tmp_path):
    parts = [Entry(f"http://example.com/{name}") for name in "ab"]
    documents = [
        Document("sitemapindex", LIST, (), tuple(parts)),
        *(Document("urlset", LIST, (), (part,)) for part in parts),
    ]
    files = [tmp_path / f"{number}.xml.gz" for number in range(3)]
    for file, document in zip(files, documents, strict=True):
        file.write_bytes(gzip.compress(render_document(document)))
    words = ("resources", "load", "dataset1", "--json")
    loaded = await rsnotify(*words, *map(str, files), hub=hub)
    assert (loaded.status, json.loads(loaded.out)["created"]) == (0, 2), loaded
    broken = await rsnotify(*words, *map(str, files[:2]), hub=hub)
    assert "names 2 lists, but 1 came" in broken.err


async def test_files_whose_last_line_has_no_end_are_one_load(hub, tmp_path):
    files = [tmp_path / f"{name}.ndjson" for name in "ab"]
    for file in files:
        file.write_bytes(ndjson([file.stem]).rstrip())
    loaded = await rsnotify("resources", "load", "dataset1", *map(str, files), "--json", hub=hub)
    assert (loaded.status, json.loads(loaded.out)["created"]) == (0, 2), loaded


async def test_stdin_is_loaded_and_what_cannot_be_read_is_said(hub, tmp_path):
    words = ("resources", "load", "dataset1")
    loaded = await rsnotify(*words, "-", hub=hub, stdin=ndjson(["a"]))
    assert loaded.status == 0, loaded
    (tmp_path / "a.gz").write_bytes(gzip.compress(b""))
    (tmp_path / "b").write_bytes(b"")
    for files, said in (
        (["none.xml"], "none.xml: No such file or directory"),
        ([str(tmp_path / "a.gz"), str(tmp_path / "b")], "some files are gzip and some are not"),
        (["-", "--format", "csv"], "--format csv: choose one of"),
    ):
        ended = await rsnotify(*words, *files, hub=hub)
        assert (ended.status, said in ended.err) == (2, True), ended


async def test_a_load_whose_set_is_removed_meanwhile_is_not_done(tmp_path):
    taken = dict.fromkeys(OUTCOME, 0) | {"stage": "publishing", "at": "2026-01-01T00:00:00Z"}
    taken |= {"load": None, "last_load": None}
    (tmp_path / "a.json").write_text("[]")
    with granting(json.dumps(taken).encode()) as url:
        path = str(tmp_path / "a.json")
        ended = await rsnotify("resources", "load", "a", path, RSNOTIFY_URL=url)
    assert ended.status == 1
    assert ended.err == "error: the load is gone: was the set removed meanwhile?\n"


async def test_the_script_of_the_page_takes_nothing_back_that_its_application_publishes(
    hub, tmp_path
):
    """While the state is read, a draft is withdrawn, a title is corrected, a record is new."""
    state = ndjson(["draft", "title"], lastmod="2025-01-01T00:00:00Z")
    await rsnotify("resources", "load", "dataset1", "-", hub=hub, stdin=state)
    (tmp_path / "state").write_bytes(state + ndjson(["added"]))
    export = tmp_path / "export"
    export.write_text(
        "#!/bin/sh\ncat state\n"
        "rsnotify publish dataset1 http://example.com/draft --change deleted >&2\n"
        "rsnotify publish dataset1 http://example.com/title --lastmod 2026-01-01T00:00:00Z >&2\n"
        "rsnotify publish dataset1 http://example.com/new --change created >&2\n"
    )
    export.chmod(0o755)
    (script,) = re.findall(
        r"^```sh\n(AS_OF=.*?)^```", PUBLISHING.read_text(), re.MULTILINE | re.DOTALL
    )
    said = await run_by_shell(script, tmp_path, hub)
    assert "newer              3" in said
    known = [("added", 0), ("title", 0), ("new", 0), ("draft", 1)]
    for name, status in known:
        loc = f"http://example.com/{name}"
        shown = await rsnotify("resources", "show", "dataset1", loc, "--json", hub=hub)
        assert shown.status == status, shown
        assert name != "title" or json.loads(shown.out)["lastmod"].startswith("2026-01-01")


async def run_by_shell(script: str, folder: Path, hub: RunningHub) -> str:
    command = folder / "rsnotify"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rsnotify "$@"\n')
    command.chmod(0o755)
    shown = {"RSNOTIFY_URL": hub.url, "RSNOTIFY_TOKEN": TOKEN}
    shell = await asyncio.create_subprocess_exec(
        *("sh", "-ec", script),
        cwd=folder,
        env=os.environ | shown | {"PATH": f"{folder}:{os.environ['PATH']}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await shell.communicate()
    assert shell.returncode == 0, out
    return out.decode()


async def test_an_older_state_is_refused_until_its_moment_is_named_or_it_is_meant(hub, tmp_path):
    file = tmp_path / "all.ndjson"
    file.write_bytes(ndjson(["a", "draft"]))
    words = ("resources", "load", "dataset1", str(file))
    await rsnotify(*words, hub=hub)
    position = (await rsnotify("resources", "position", "dataset1", hub=hub)).out.strip()
    await rsnotify(
        "publish", "dataset1", "http://example.com/draft", "--change", "deleted", hub=hub
    )
    refused = await rsnotify(*words, hub=hub)
    assert refused.status == 1
    assert "http://example.com/draft (created)" in refused.err
    assert "--as-of" in refused.err
    assert "max-delete" not in refused.err
    empty = await rsnotify(*words, "--as-of", "", hub=hub)  # a variable that was never set
    assert empty.status != 0
    assert "as_of is '': it must be a position that the hub gave" in empty.err
    assert "Traceback" not in empty.err
    loaded = await rsnotify(*words, "--as-of", position, "--json", hub=hub)
    assert (json.loads(loaded.out)["newer"], json.loads(loaded.out)["as_of"]) == (1, position)
    refused = await rsnotify(*words, hub=hub)
    assert refused.status == 1
    meant = await rsnotify(*words, "--overwrite", "--json", hub=hub)
    assert json.loads(meant.out)["created"] == 1
