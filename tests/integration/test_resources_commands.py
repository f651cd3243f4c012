"""`rsnotify resources` against a real hub."""

import gzip
import json

from rsnotify.cli.resources import OUTCOME
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, render_document
from tests.client.hubs import granting
from tests.integration.test_cli import rsnotify
from tests.support.loading import ndjson

LIST = Md(capability="resourcelist", at="2026-11-21T00:00:00Z")


async def test_a_file_is_loaded_compared_and_asked_about(hub, tmp_path):
    file = tmp_path / "all.ndjson"
    file.write_bytes(ndjson(["a", "b", "c"]))
    loaded = await rsnotify("resources", "load", "dataset1", str(file), hub=hub)
    assert (loaded.status, "created            3" in loaded.out) == (0, True), loaded
    file.write_bytes(ndjson(["a", "b", "d"]))
    compared = await rsnotify("resources", "compare", "dataset1", str(file), hub=hub)
    assert "created: http://example.com/d" in compared.out
    assert "say so with max_delete=34" in compared.err
    refused = await rsnotify("resources", "load", "dataset1", str(file), hub=hub)
    assert (refused.status, "would delete 1 of 3" in refused.err) == (1, True)
    wanted = ("--max-delete", "34", "--no-tell", "--json")
    loaded = await rsnotify("resources", "load", "dataset1", str(file), *wanted, hub=hub)
    assert json.loads(loaded.out)["told"] is False
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
        (["-", "--format", "csv"], "--format csv: must be one of"),
    ):
        ended = await rsnotify(*words, *files, hub=hub)
        assert (ended.status, said in ended.err) == (2, True), ended


async def test_a_load_whose_set_is_removed_meanwhile_is_not_done(tmp_path):
    taken = dict.fromkeys(OUTCOME, 0) | {"stage": "storing", "load": None, "last_load": None}
    (tmp_path / "a.json").write_text("[]")
    with granting(json.dumps(taken).encode()) as url:
        path = str(tmp_path / "a.json")
        ended = await rsnotify("resources", "load", "a", path, RSNOTIFY_URL=url)
    assert ended.status == 1
    assert ended.err == "error: the load is gone: was a removed meanwhile?\n"
