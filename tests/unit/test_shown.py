"""What the commands make of what they are given, and how they show what comes of it."""

import json
import os
import sys
from pathlib import Path

import msgspec
import pytest
import typer

from rsnotify.cli import administer, output
from rsnotify.errors import InvalidSettings, Rejected
from rsnotify_client.commands.publish import of_file, of_locs
from rsnotify_mirror.audit import Audit, Finding
from rsnotify_mirror.commands import validate
from rsnotify_mirror.commands.audit import SHOWN, print_audit
from rsnotify_mirror.commands.mirror import map_of

LINE = b'{"loc": "u:a"}'
URLSET = (
    b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
    b' xmlns:rs="http://www.openarchives.org/rs/terms/">%b</urlset>'
)
ENTRY = b'<url><loc>u:a</loc><rs:md change="created"/></url>'

# publish ------------------------------------------------------------------------------------------


def file(tmp_path: Path, name: str, content: bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "content", "content_type"),
    [
        ("a.json", LINE, "application/json"),
        ("a.ndjson", LINE, "application/x-ndjson"),
        ("a.jsonl", LINE, "application/x-ndjson"),
        ("a.xml", URLSET % ENTRY, "application/xml"),
        ("a", LINE, "application/json"),
        ("a.txt", b" \n[" + LINE + b"]", "application/json"),
        ("a.txt", LINE + b"\n" + LINE, "application/x-ndjson"),
        ("a.txt", b"\n" + URLSET % ENTRY, "application/xml"),
    ],
)
def test_the_format_is_that_of_the_name_else_of_the_first_byte(
    tmp_path, name, content, content_type
):
    found = of_file(file(tmp_path, name, content), None).bodies
    assert {body.content_type for body in found} == {content_type}


def test_a_format_that_is_named_counts_whatever_the_name_says(tmp_path):
    (body,) = of_file(file(tmp_path, "a.xml", LINE), "ndjson").bodies
    assert body.content_type == "application/x-ndjson"


def test_a_format_that_is_none_is_told_which_there_are(tmp_path):
    with pytest.raises(typer.BadParameter) as wrong:
        of_file(file(tmp_path, "a", LINE), "csv")
    assert wrong.value.message == "--format csv: choose one of json, ndjson, jsonl, xml"


def many(name: str, number: int) -> bytes:
    if name == "a.xml":
        return URLSET % (ENTRY * number)
    return b"[%b]" % b",".join([LINE] * number) if name == "a.json" else b"\n".join([LINE] * number)


@pytest.mark.parametrize("name", ["a.json", "a.ndjson", "a.xml"])
@pytest.mark.parametrize(("number", "sizes"), [(0, []), (1_000, [1_000]), (1_001, [1_000, 1])])
def test_a_request_has_1000_changes_at_most(tmp_path, name, number, sizes):
    given = of_file(file(tmp_path, name, many(name, number)), None)
    assert [body.changes for body in given.bodies] == sizes
    assert given.total == number


def test_resources_on_the_command_line_are_changed_alike():
    (body,) = of_locs(["u:a", "u:b"], change="deleted").bodies
    assert msgspec.json.decode(body.content) == [
        {"loc": "u:a", "change": "deleted"},
        {"loc": "u:b", "change": "deleted"},
    ]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", b"[1,", "this is not JSON"),
        ("a.json", b"[" * 1_000_000, "this is not JSON"),
        ("a.json", b'{"\xff": 1}', "this is not JSON"),
        ("a.xml", b"<urlset", "not well-formed XML"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_the_reason(tmp_path, name, content, words):
    with pytest.raises(Rejected, match=words):
        of_file(file(tmp_path, name, content), None)


def test_more_lines_are_waited_for_also_where_another_program_does_not_wait(monkeypatch):
    """Whoever has the same pipe or terminal open may have set it so for all."""
    end, begin = os.pipe()
    os.set_blocking(end, False)
    os.write(begin, b"{}\n")
    os.close(begin)
    with os.fdopen(end) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert [each.content for each in of_file(Path("-"), "ndjson").bodies] == [b"{}"]
        assert os.get_blocking(end)


# mirror -------------------------------------------------------------------------------------------


def test_the_last_equals_sign_divides_a_prefix_from_its_folder():
    assert map_of("http://a/?x=y=data/pdf") == ("http://a/?x=y", "data/pdf")


@pytest.mark.parametrize("folder", ["", ".", "..", "a/../b", "/a", "a/", "a//b", "a~b", "a\\b:c"])
def test_a_folder_that_is_no_plain_name_is_refused(folder):
    with pytest.raises(InvalidSettings):
        map_of(f"http://a/={folder}")


# audit --------------------------------------------------------------------------------------------


def audit(findings: int, skipped: int = 0, sample: int | None = None) -> Audit:
    found = [Finding("missing", f"u:{number}") for number in range(findings)]
    passed_over = [f"u:s{number}" for number in range(skipped)]
    checked = 100 if sample is None else sample
    return Audit(resources=100, checked=checked, findings=found, skipped=passed_over, sample=sample)


@pytest.mark.parametrize(("findings", "more"), [(SHOWN, []), (SHOWN + 1, ["and 1 more"])])
def test_of_many_findings_the_first_are_named_and_the_rest_counted(capsys, findings, more):
    print_audit(audit(findings), json=False)
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("missing: ") for line in lines) == SHOWN
    assert [line.partition(";")[0] for line in lines if line.startswith("and ")] == more
    assert lines[-1] == "OUT OF SYNC"


@pytest.mark.parametrize(
    ("found", "last"),
    [
        (audit(0), "IN SYNC"),
        (audit(1), "OUT OF SYNC"),
        (audit(0, skipped=1), "OUT OF SYNC"),
        (audit(0, sample=7), "IN SYNC as far as the sample of 7 shows"),
        (audit(1, sample=7), "OUT OF SYNC"),
    ],
)
def test_what_could_not_be_looked_at_is_not_in_sync(capsys, found, last):
    print_audit(found, json=False)
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_as_json_all_findings_are_named(capsys):
    print_audit(audit(SHOWN + 1), json=True)
    assert len(json.loads(capsys.readouterr().out)["findings"]) == SHOWN + 1


# administration -----------------------------------------------------------------------------------

ID = "0123456789abcdef" * 4
ROW = {"id": ID, "sets": ["a", "b"], "behind_seconds": 1.6, "last_answer": None}


def test_what_the_next_command_is_given_is_never_cut(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    output.print_table([ROW], list(ROW), json=False)
    assert ID in capsys.readouterr().out


def test_a_table_shows_values_as_a_reader_would_write_them(capsys):
    output.print_fields(ROW, json=False)
    fields = [line.split("  ")[-1].strip() for line in capsys.readouterr().out.splitlines()]
    assert fields == [ID, "a b", "2", "-"]
    output.print_fields({"load": {"stage": "done", "published": False}}, json=False)
    assert capsys.readouterr().out == "load  stage done, published no\n"


def test_documents_that_were_validated_are_named_whole(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    documents = [f"http://example.com/{'a' * 60}/{number}" for number in range(2)]
    validate.print_all(
        [validate.Judged(each, "resourcelist", "1.1", []) for each in documents], json=False
    )
    table = "".join(
        line.partition("   ")[0].strip() for line in capsys.readouterr().err.splitlines()
    )
    assert all(each in table for each in documents)


@pytest.mark.parametrize("show", [output.print_fields, administer.print_snapshot])
def test_json_is_what_the_hub_said(capsys, show):
    show(ROW, json=True)
    assert json.loads(capsys.readouterr().out) == ROW


def test_a_snapshot_that_takes_long_is_told_on_stderr(capsys):
    administer.print_snapshot({"set": "a"}, json=False)
    for number in (3, 1):
        administer.print_snapshot({"resources": number, "at": "now"}, json=False)
    out, err = capsys.readouterr()
    assert out == "3 resources at now\n1 resource at now\n"
    assert err.startswith("The snapshot is being taken")


def test_a_secret_is_alone_on_stdout(capsys):
    administer.print_secret({"token": "rsn_x", "id": "1"}, json=False)
    out, err = capsys.readouterr()
    assert (out, err) == ("rsn_x\n", "Keep it: it is not shown again.\n")
