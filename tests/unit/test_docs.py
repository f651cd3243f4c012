"""What the documents promise is what the code holds, no more and no less."""

import re
from dataclasses import fields
from pathlib import Path

from typer.main import get_command

from rsnotify import errors
from rsnotify.cli import app
from rsnotify.serving import deadlines, http_protocol, http_requests
from rsnotify.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]
DOCS = {path.name: path.read_text() for path in (ROOT / "docs").glob("*.md")}


def test_every_setting_stands_in_the_docs_with_its_default_and_nothing_else_does() -> None:
    rows = re.findall(
        r"^\| `(RSNOTIFY_\w+)` \|[^|]*\| ([^|]*) \|", DOCS["operations.md"], re.MULTILINE
    )
    documented = dict(rows)
    assert documented.keys() == {PREFIX + each.name.upper() for each in fields(Settings)}
    for each in fields(Settings):
        if isinstance(each.default, (int, Path)):
            assert documented[PREFIX + each.name.upper()] == f"`{each.default}`"


def test_every_close_code_stands_in_the_docs_and_nothing_else_does() -> None:
    documented = {
        int(code) for code in re.findall(r"^\| (\d{4}) \|", DOCS["following.md"], re.MULTILINE)
    }
    sources = "".join(path.read_text() for path in (ROOT / "rsnotify").rglob("*.py"))
    used = {int(code) for code in re.findall(r"\b(44\d\d)\b", sources)}
    assert {code for code in documented if code >= 4000} == used
    assert {errors.TryAgain.close_code, 1008, 1001, 1009} <= documented


def test_every_document_is_linked_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    assert all(f"docs/{name}" in readme for name in DOCS)


def test_every_link_between_documents_leads_somewhere() -> None:
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_every_command_of_the_readme_exists() -> None:
    command = get_command(app)
    known = set(command.commands)  # type: ignore[attr-defined]
    for text in [(ROOT / "README.md").read_text(), *DOCS.values()]:
        used = re.findall(r"^(?:\.venv/bin/)?rsnotify ([a-z]+)", text, re.MULTILINE)
        assert set(used) <= known


def test_the_limits_of_http_stand_in_the_docs_as_the_code_has_them() -> None:
    table = DOCS["operations.md"].partition("## What the hub expects of HTTP peers")[2]
    table = table.partition("\n## ")[0]
    for limit in (
        f"{http_requests.HEAD_BYTES // 1024} KiB, {http_requests.HEAD_FIELDS} fields",
        f"| {http_protocol.HEAD_SECONDS:.0f} s |",
        f"| {http_protocol.BODY_SECONDS:.0f} s |",
        f"| {http_requests.FRAMING_BYTES // 1024} KiB and {http_protocol.BODY_SECONDS:.0f} s ",
        f"| {http_protocol.PIPELINED} |",
        f"| {deadlines.IDLE_SECONDS:.0f} s,",
        f"| {deadlines.IDLE_CONNECTIONS:,}, or a quarter ",
        f"{http_protocol.LINGER_SECONDS:.0f} s or {http_protocol.LINGER_BYTES >> 20} MiB",
    ):
        assert limit in table
