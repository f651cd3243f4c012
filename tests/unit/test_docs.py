"""What the documents promise is what the code holds, no more and no less."""

import doctest
import importlib
import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import rsnotify_client
import rsnotify_mirror
from rsnotify import redis_client
from rsnotify.cli import administer, app
from rsnotify.cli.root import RENAMED
from rsnotify.errors import CloseCode
from rsnotify.http import protocol as http_protocol
from rsnotify.openapi import schemas
from rsnotify.process.settings import PREFIX, Settings
from rsnotify.sets import options as set_options
from rsnotify_client.integrations import flask
from tests.evidence.bench.__main__ import NAMES
from tests.tools import python_api

ROOT = Path(__file__).parents[2]
DOCS = {
    str(path.relative_to(ROOT / "docs")): path.read_text() for path in (ROOT / "docs").rglob("*.md")
}
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *(ROOT / "docs" / name for name in DOCS),
    *(ROOT.glob("clients/*/README.md")),
    ROOT / "tests/evidence/README.md",
]


CODE = [
    (root, path)
    for root in (ROOT, ROOT / "clients/python")
    for package in root.glob("rsnotify*")
    for path in package.rglob("*.py")
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize(("root", "path"), CODE, ids=[path.stem for _, path in CODE])
def test_the_examples_of_functions_are_true(root, path):
    """Those of a whole module show how it is used, and would ask a Source."""
    module = importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))
    found = doctest.DocTestFinder().find(module)
    examples = [each for each in found if each.examples and each.name != module.__name__]
    for each in examples:
        assert doctest.DocTestRunner(verbose=False).run(each).failed == 0
    assert examples or doctest.DocTestFinder(recurse=False).find(module)


def test_every_setting_stands_in_the_docs_with_its_default_and_nothing_else_does():
    rows = re.findall(
        r"^\| `(RSNOTIFY_\w+)`[^|]*\| ([^|,]*)[^|]* \| [^|]+ \|$",
        DOCS["reference/settings.md"],
        re.MULTILINE,
    )
    documented = dict(rows)
    assert documented.keys() == {PREFIX + each.name.upper() for each in fields(Settings)}
    for each in fields(Settings):
        if isinstance(each.default, (int, Path)):
            assert documented[PREFIX + each.name.upper()] == f"`{each.default}`"


def test_every_close_code_stands_in_the_docs_and_nothing_else_does():
    page = DOCS["errors.md"]
    rows = re.findall(r"^\| (\d{4}) \| .* \| (yes|no) \| [^|]* \|$", page, re.MULTILINE)
    documented = {int(code): final == "yes" for code, final in rows}
    assert documented == {code: code.is_final for code in CloseCode}


def test_a_close_code_is_written_in_one_place():
    """Who closes a channel says why by the name in `CloseCode`."""
    literal = re.compile(r"\b(1001|1008|1009|1011|1013|44\d\d)\b")
    for folder in (ROOT / "rsnotify", *(ROOT / "clients/python").glob("rsnotify_*")):
        for path in folder.rglob("*.py"):
            codes = literal.findall(path.read_text())
            assert not codes or path == ROOT / "rsnotify/errors.py", path


def test_javascript_comes_back_after_the_close_codes_that_are_not_final():
    module = (ROOT / "clients/javascript/lib/channel.js").read_text()
    lists = re.findall(r"const (?:REFUSED|TOO_OLD) = (.*?);", module)
    codes = sorted(int(code) for each in lists for code in re.findall(r"\d+", each))
    assert codes == [code for code in CloseCode if code.is_final]


def test_every_document_is_linked_from_the_readme():
    """Those of decisions from the page on design, which the README names; the index aside."""
    readme = (ROOT / "README.md").read_text()
    decisions = {name for name in DOCS if name.startswith("decisions/")}
    pages = DOCS.keys() - decisions - {"index.md"}
    assert [name for name in pages if f"docs/{name}" not in readme] == []
    assert all(name in DOCS["design.md"] for name in decisions)


def test_every_document_is_once_in_the_book():
    index = re.findall(r"^([\w/-]+)$", DOCS["index.md"], re.MULTILINE)
    assert sorted(f"{name}.md" for name in index) == sorted(DOCS.keys() - {"index.md"})


OF_THE_INDEX = re.compile(r"pip install(?: -\w+)* ['\"]?rsnotify\b")


def test_every_column_of_a_table_says_what_is_in_it():
    """But the first, where it names the rows."""
    without = []
    for name, text in DOCS.items():
        for head in re.findall(r"^(\|.*\|)\n\|[-|: ]+\|$", text, re.MULTILINE):
            first, *others = [cell.strip() for cell in re.split(r"(?<!\\)\|", head)[1:-1]]
            if not all(others) or not (first or len(others) > 1):
                without.append((name, head))
    assert without == []


def test_nobody_is_sent_to_a_name_that_is_not_ours_yet():
    """Until the first release, whoever took the name on PyPI would be installed by our readers."""
    places = ["README.md", "docs", "rsnotify", "clients"]
    paths = [each for place in places for each in [ROOT / place, *(ROOT / place).rglob("*")]]
    kinds = (".md", ".py", ".html", ".js", ".toml", ".service", ".yml")
    assert not [
        path
        for path in paths
        if path.suffix in kinds and path.is_file() and OF_THE_INDEX.search(path.read_text())
    ]


def test_every_link_between_documents_leads_somewhere():
    for page in PAGES:
        for path, anchor in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", page.read_text()):
            target = page.parent / path if path else page
            assert target.exists(), f"{page.name} links to {path}"
            assert not anchor or anchor in anchors(target), f"{page.name} links to {path}#{anchor}"


def folders_named(page: Path) -> set[str]:
    """Those that the rows of its tables begin with."""
    rows = re.findall(r"^\| (`[^|]*/`[^|]*) \|", page.read_text(), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([\w/]+)/`", row)}


def folders_of(*parents: Path) -> set[str]:
    """Those with files of the project in them."""
    return {
        str(each.relative_to(parent.parent))
        for parent in parents
        for each in parent.iterdir()
        if each.is_dir() and any(path.suffix != ".pyc" for path in each.rglob("*.*"))
    }


def test_every_folder_of_tests_is_named_by_the_page_of_those_who_look_there():
    clients, evidence = ROOT / "clients", ROOT / "tests/evidence"
    beside = {str(each.relative_to(ROOT)) for each in clients.glob("*/tests")}
    assert folders_named(ROOT / "CONTRIBUTING.md") == folders_of(ROOT / "tests") | beside
    assert folders_named(clients / "python/README.md") == folders_of(clients / "python/tests")
    named = {f"evidence/{name}" for name in folders_named(evidence / "README.md")}
    assert named == folders_of(evidence)


def test_every_document_that_the_code_names_is_there():
    for folder in ("rsnotify", "clients"):
        for path in (ROOT / folder).rglob("*.py"):
            for name in re.findall(r"\bdocs/([\w/-]+\.md)", path.read_text()):
                assert name in DOCS, f"{path.name} names docs/{name}"


def anchors(page: Path) -> set[str]:
    """What a heading is called in an address, as forges do it."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_command_that_the_documents_show_exists():
    command = get_command(app)
    known = set(command.commands)
    for text in (page.read_text() for page in PAGES):
        blocks = "".join(re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
        used = re.findall(r"^(?:│ )?(?:\$ )?rsnotify ([a-z]+)", blocks, re.MULTILINE)
        assert set(used) <= known


def test_every_address_of_the_hub_stands_in_the_docs():
    sources = "".join(path.read_text() for path in (ROOT / "rsnotify").rglob("*.py"))
    served = {re.sub(r"{\w+}", "X", path) for path in re.findall(r'\bRoute\(f?"(/.*?)"', sources)}
    named = re.findall(r"`(?:[A-Z]+ )?(/[^`?\s]*)", DOCS["reference/http.md"])
    assert len(served) > 20
    assert served - {re.sub(r"[A-Z]+(-[A-Z]+)?", "X", path) for path in named} == set()


def test_how_long_the_hub_reads_on_after_a_refusal_stands_in_the_docs():
    section = DOCS["reference/http.md"].partition("## What the hub expects of HTTP peers")[2]
    for limit in (
        f"{http_protocol.LINGER_SECONDS:.0f} s or {http_protocol.LINGER_BYTES >> 20} MiB",
        f"{http_protocol.LINGER_REQUESTS_BYTES >> 10} KiB of what is no body",
    ):
        assert limit in section


OF_MANY_COMMANDS = {"--url", "--data", "--json", "--help"}
COMMANDS = get_command(app).commands


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_stands_in_the_docs_and_nothing_else_does(name):
    section = DOCS["reference/command-line.md"].partition(f"\n## `{name}`")[2]
    documented = set(re.findall(r"--[a-z][a-z-]+", section.partition("\n## ")[0]))
    command = COMMANDS[name]
    each = getattr(command, "commands", {name: command}).values()
    assert documented - OF_MANY_COMMANDS == set().union(*map(options, each)) - OF_MANY_COMMANDS
    assert section


def test_the_service_and_the_cron_line_of_a_mirror_are_commands_that_exist():
    unit = (ROOT / "docs/operations/rsnotify-mirror.service").read_text()
    section = DOCS["operations/clients.md"].partition("## As services")[2].partition("\n## ")[0]
    section = unit + section
    found = re.findall(r"/opt/rsnotify/bin/rsnotify mirror (.*)", section)
    read = [COMMANDS["mirror"].make_context("mirror", line.split()).params for line in found]
    assert [each["once"] for each in read] == [False, True]
    assert "SuccessExitStatus=130" in section
    assert "\n| 130 | interrupted, by Ctrl-C or" in DOCS["errors.md"]


def test_every_address_of_a_set_can_be_edited():
    assert administer.ADDRESSES == set_options.ADDRESSES
    section = DOCS["reference/command-line.md"].partition("\n## `sets`")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [*administer.ADDRESSES]


def options(command: Any) -> set[str]:
    offered = [each for each in command.params if not getattr(each, "hidden", False)]
    written = {name for each in offered for name in (*each.opts, *each.secondary_opts)}
    return {name for name in written if name.startswith("--")}


def test_make_bench_measures_what_the_docs_say_it_does():
    (named,) = re.findall(r"measures one part\s+\(([^)]*)\)", DOCS["performance.md"])
    assert tuple(re.findall(r"`(\w+)`", named)) == NAMES
    for name in NAMES:
        assert callable(importlib.import_module(f"tests.evidence.bench.{name}").main)


# The map ---------------------------------------------------------------------------------------


def test_the_map_shows_every_room_and_nothing_else():
    drawn = re.findall(
        r"^(\S+) ", DOCS["design.md"].partition("```map\n")[2].partition("```")[0], re.MULTILINE
    )
    assert [path for path in drawn if not (ROOT / path).exists()] == []
    rooms = {
        f"{path.parent.relative_to(ROOT)}/" for path in (ROOT / "rsnotify").glob("*/__init__.py")
    }
    assert rooms - set(drawn) == set()


def test_every_file_that_the_documents_name_exists():
    for page in PAGES:
        for path in re.findall(r"`((?:rsnotify|tests|docs|clients)/[\w./-]+)`", page.read_text()):
            there = (ROOT / path).exists() or (page.parent / path).exists()
            assert there, f"{page.name} names {path}"


def test_the_page_on_the_python_api_is_made_from_the_docstrings():
    """`python -m tests.tools.python_api > docs/reference/python.md` makes it."""
    assert DOCS["reference/python.md"] == python_api.page()


def test_every_public_name_of_the_python_client_stands_in_the_changelog():
    said = (ROOT / "CHANGELOG.md").read_text().partition("**The Python client's names**")[2]
    names = set(re.findall(r"`(\w+)`", said.partition("\n**")[0]))
    assert names == python_api.offered().keys() | {"rsnotify_client", "rsnotify_mirror"}


def test_every_command_and_option_that_is_called_otherwise_stands_in_the_changelog():
    said = (ROOT / "CHANGELOG.md").read_text().partition("**What was called otherwise**")[2]
    names = set(re.findall(r"`([^`]+)`", said.partition("\n**")[0]))
    for was in RENAMED:
        command, _, option = was.partition(" --")
        wanted = f"--{option}" if option else command
        assert {was, wanted} & names, was


# The words -------------------------------------------------------------------------------------


WORDS_OF_OTHERS = {
    *(
        "argument",
        "async",
        "counter",
        "error",
        "event",
        "file",
        "option",
        "setting",
        "sqlite",
        "store",
    ),
    *("address", "client", "problem"),  # HTTP's; a problem is one of RFC 9457
    *("replica", "script"),  # Redis's
    *("notify", "rs"),  # our own name
}
NO_NOUNS = {
    *("accepted", "closed", "followed", "loaded", "malformed", "received", "refused", "rejected"),
    *(
        "again",
        "back",
        "for",
        "full",
        "gone",
        "invalid",
        "listed",
        "new",
        "no",
        "not",
        "one",
        "out",
    ),
    *("shown", "timed", "try", "unavailable", "unreachable", "unreadable", "wrong"),
}
PUBLIC = (rsnotify_client, redis_client, schemas, flask, rsnotify_mirror)
"""What is imported by name: the client, the face of our Redis client, the bodies of the API."""


def public_classes() -> set[str]:
    """The types of `__all__` where a module has one, else those that are made in it."""
    return {
        name
        for module in PUBLIC
        for name in getattr(module, "__all__", vars(module))
        if not name.startswith("_") and inspect.isclass(found := getattr(module, name))
        if hasattr(module, "__all__") or found.__module__ == module.__name__
    }


def test_every_noun_of_a_public_class_stands_in_the_glossary():
    rows = re.findall(r"\*\*(.+?)\*\*", DOCS["glossary.md"])
    explained = {word.lower() for row in rows for word in row.split()}
    used = {
        re.sub(r"(?<=[a-z])(?<!s)s$", "", word).lower()  # of the plural
        for name in public_classes()
        for word in re.findall(r"RS|[A-Z][a-z]+", name)
    }
    assert used - explained - WORDS_OF_OTHERS - NO_NOUNS == set()
    assert (WORDS_OF_OTHERS | NO_NOUNS) - used == set()
