"""The page on errors names what the code says: its messages, its exceptions, its commands."""

import ast
import re
from pathlib import Path

import pytest
from typer.main import get_command

import rsnotify_client
from rsnotify.cli import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/errors.md").read_text()
CODE = [
    path
    for folder in ("rsnotify", "clients/python")
    for path in (ROOT / folder).rglob("*.py")
    if "examples" not in path.parts
]


def section(heading: str) -> str:
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def texts(path: Path) -> set[str]:
    """The texts of a program; what is filled into one is a `…`, as on the page."""
    tree = ast.parse(path.read_text())
    found = {
        _text(node) for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr)
    }
    return {re.sub(r"%(\.\d+)?[sdrfg]", "…", text) for text in found}


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "…"


SAID = "\n".join(text for path in CODE for text in texts(path))
FIRST = re.compile(r"^\| (.*?) \|", re.MULTILINE)
MESSAGES = [
    message
    for heading in re.findall(r"^## (What .*)$", PAGE, re.MULTILINE)
    if heading != "What a browser sees"
    for cell in FIRST.findall(section(heading))
    for message in re.findall(r"`([^`]+)`", cell)
    if " " in message
]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_of_the_page_is_one_of_the_code(message):
    said = re.sub(r"\b16 characters", "… characters", message)
    for part in re.split(r" ?… ?|RSNOTIFY_…", said):
        assert part.strip(" :;,.") in SAID, part


def test_messages_of_every_kind_of_reader_are_on_the_page():
    assert len(MESSAGES) > 50


def test_every_exception_of_the_python_client_is_on_the_page_and_nothing_else():
    raised = {
        name
        for name in rsnotify_client.__all__
        if isinstance(each := getattr(rsnotify_client, name), type)
        and issubclass(each, rsnotify_client.Error)
    }
    rows = re.findall(r"^\| `(\w+)` \|", section("Python"), re.MULTILINE)
    assert sorted(rows) == sorted(raised)


def test_every_exception_of_the_javascript_client_is_on_the_page_and_nothing_else():
    module = (ROOT / "clients/javascript/rsnotify.js").read_text()
    (names,) = re.findall(r"^export {(.*?)} from \"./lib/errors.js\";", module, re.MULTILINE)
    rows = re.findall(r"^\| `(\w+)` \|", section("JavaScript"), re.MULTILINE)
    assert sorted(rows) == sorted(each.strip() for each in names.split(","))


def test_exit_statuses_are_those_of_commands_and_options_that_exist():
    commands = get_command(app).commands
    for cell in FIRST.findall(section("Exit statuses")):
        for name, option in re.findall(r"`([a-z]+)(?: (--[a-z-]+))?`", cell):
            options = {text for each in commands[name].params for text in each.opts}
            assert not option or option in options
