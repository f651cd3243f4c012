"""One option means one thing: the same words, type and name of its value in every command."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from rsnotify.cli import app
from rsnotify.cli.root import COMMANDS, ROLES
from tests.integration.test_json_commands import verbs

DIFFERENT = {
    "--change": "what is published has happened, and what a reader asks for",
    "--data": "where a command talks to a hub, it finds its token there",
    "--max-bytes": "of a set, and of a package",
    "--moved": "the Source of a copy, that of a bridge, or the hub of a cursor",
    "--once": "a copy, or a set, is brought up to date; the hub is looked at",
    "--port": "that of the hub is judged with all its settings, so that all mistakes are named",
    "--rate": "a demo makes changes, the others send requests",
    "--set": "the sets of a token, those that a hub makes, and that of a demo",
    "--state": "what a set is, as `state=True` of the client; the others keep theirs in a file",
}
"""Options that differ, and why. A command that is found here is looked at before it is listed."""


def options() -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """The long name, the command, and what a user is told; a default may be another one."""
    for path, command in verbs(get_command(app)):
        for each in command.params:
            if each.param_type_name == "option" and not getattr(each, "hidden", False):
                words = re.sub(r"\s*\[[^\]]*\]$", "", each.help or "")
                value = (each.type.name, each.metavar, each.multiple)
                yield max(each.opts, key=len), path, (words, *value, *each.secondary_opts)


def differing() -> dict[str, dict[tuple[Any, ...], list[str]]]:
    found: dict[str, dict[tuple[Any, ...], list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, path, told in options():
        found[name][told].append(path)
    return {name: each for name, each in found.items() if len(each) > 1}


def test_an_option_has_one_help_text_one_type_and_one_metavar_wherever_it_is():
    found = differing()
    assert len({name for name, _, _ in options()}) > 80
    assert {name: each for name, each in found.items() if name not in DIFFERENT} == {}


def test_no_reason_is_left_for_an_option_that_is_one_again():
    assert {*DIFFERENT} - {*differing()} == set()


def test_every_option_says_what_it_does():
    assert [(name, path) for name, path, told in options() if not told[0]] == []


def test_every_command_has_one_role():
    assert sorted(name for names in ROLES.values() for name in names) == sorted(COMMANDS)
