"""The page on errors names what the code says: its messages, its exceptions, its commands."""

import ast
import re
from collections.abc import Iterator
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
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
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


STARTS = [*(ROOT / "rsnotify/process").rglob("*.py"), ROOT / "rsnotify/cli/serve.py"]
ALREADY_SAID = {"--redis …: …"}  # the sentence behind it is said elsewhere
AS_GIVEN = re.compile(r"[… :]*")  # nothing of the hub's own


def wrong_settings() -> Iterator[str]:
    """What the hub says when it cannot start, or its backup cannot be used."""
    for path in STARTS:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "InvalidSettings":
                yield from (_text(each) for each in node.args)


def test_what_stops_the_start_of_a_hub_is_on_the_page():
    prose = re.sub(r"(?ms)^```.*?^```", "", PAGE)
    quoted = "\n".join(re.findall(r"`([^`]+)`", prose))
    said = [each for each in wrong_settings() if not AS_GIVEN.fullmatch(each)]
    assert len(said) > 20
    for message in set(said) - ALREADY_SAID:
        parts = [part.partition("`")[0].strip(" :;,.") for part in message.split("…")]
        assert any(len(part) > 9 and part[:20].strip() in quoted for part in parts), message


LOGGED = ("warning", "error", "exception", "critical")
HANDED_ON = {"…", "…: …", "…; …", "…; starting another"}  # the sentence is said elsewhere


def logged(folder: str) -> Iterator[str]:
    """What a program writes into its log that somebody is to read."""
    for path in (ROOT / folder).rglob("*.py"):
        tree = ast.parse(path.read_text())
        named = {
            target.id: _text(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                is_log = getattr(node.func.value, "id", "") == "log"
                if is_log and node.func.attr in LOGGED:
                    said = named.get(getattr(node.args[0], "id", "")) or _text(node.args[0])
                    yield re.sub(r"%(\.\d+)?[sdrfg]", "…", said)


CLIENTS = ("What a publisher sees", "What a reader sees", "What a mirror or a bridge says")


@pytest.mark.parametrize(
    ("folder", "headings", "least"),
    [
        ("rsnotify", ["What you see when you run a hub"], 70),
        ("clients/python/rsnotify_client", CLIENTS, 15),
        ("clients/python/rsnotify_mirror", CLIENTS, 5),
        ("clients/python/rsnotify_bridge", CLIENTS, 4),
    ],
)
def test_all_that_is_logged_for_somebody_to_read_is_on_the_page(folder, headings, least):
    prose = re.sub(r"(?ms)^```.*?^```", "", "".join(map(section, headings)))
    rows = [
        [part.strip(" :;,.") for part in quoted.split("…") if len(part.strip(" :;,.")) > 4]
        for quoted in re.findall(r"`([^`]+)`", prose)
    ]
    found = set(logged(folder)) - HANDED_ON
    assert len(found) >= least
    missing = [
        each
        for each in found
        if not any(parts and all(part in each for part in parts) for parts in rows)
    ]
    assert missing == []


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
