"""Changes to a function of the code, made in its syntax tree: what a planted fault consists of.

A function is named by its place, `rsnotify.live.feed.Feed.skip_to`, and what is changed in it by
what it is: an expression, or the statement that assigns to a name or calls something. How it is
written, and what stands beside it, does not matter. Whatever is not there exactly once is refused:
the fault no longer fits the code, and is thought about again.
"""

import ast
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[3]
PLACES = (ROOT, ROOT / "clients/python")

T = TypeVar("T")
Change = Callable[[ast.AST], None]
"""What is done to the tree of a function."""


class NotThere(Exception):
    """What is to be changed is not in the code, or more than once."""


def place_of(function: str) -> tuple[Path, Sequence[str]]:
    """The module that has it, and its names there, the class first."""
    parts = function.split(".")
    found = [
        (path, parts[end:])
        for place in PLACES
        for end in range(1, len(parts))
        if (path := (place / "/".join(parts[:end])).with_suffix(".py")).is_file()
    ]
    return _only(found, f"a module of {function}")


def changed(function: str, change: Change) -> tuple[Path, ast.Module]:
    """The module, and its tree with this change in the function."""
    path, names = place_of(function)
    module = ast.parse(path.read_text())
    found: ast.AST = module
    for name in names:
        named = [each for each in ast.iter_child_nodes(found) if getattr(each, "name", "") == name]
        found = _only(named, f"{name} of {function}")
    change(found)
    return path, ast.fix_missing_locations(module)


def swap(old: str, new: str) -> Change:
    """One expression instead of another."""

    def change(function: ast.AST) -> None:
        wanted = ast.unparse(ast.parse(old, mode="eval"))
        replacement = ast.parse(new, mode="eval").body
        places = [
            (node, name, value)
            for node in ast.walk(function)
            for name, value in ast.iter_fields(node)
            if _is(value, wanted) or _holds(value, wanted)
        ]
        node, name, value = _only(places, old)
        if isinstance(value, list):
            at = _only([at for at, each in enumerate(value) if _is(each, wanted)], old)
            value[at] = replacement
        else:
            setattr(node, name, replacement)

    return change


def drop(what: str) -> Change:
    """Without the statement that assigns to this, or calls it."""
    return becomes(what, "pass")


def becomes(what: str, new: str) -> Change:
    """Other statements instead of that one."""

    def change(function: ast.AST) -> None:
        block, at = _statement(function, what)
        block[at : at + 1] = ast.parse(new).body

    return change


def before(what: str, new: str) -> Change:
    """More statements before that one."""

    def change(function: ast.AST) -> None:
        block, at = _statement(function, what)
        block[at:at] = ast.parse(new).body

    return change


def behind(what: str, other: str) -> Change:
    """One statement moved behind another one that follows it in its block."""

    def change(function: ast.AST) -> None:
        block, at = _statement(function, what)
        places = [place for place in range(at, len(block)) if other in _names(block[place])]
        block.insert(_only(places, f"{other} behind {what}"), block.pop(at))

    return change


def unsaid(called: str, keyword: str) -> Change:
    """A call without one of its arguments."""

    def change(function: ast.AST) -> None:
        calls = [
            node
            for node in ast.walk(function)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == called
        ]
        arguments = _only(calls, called).keywords
        arguments.remove(_only([each for each in arguments if each.arg == keyword], keyword))

    return change


def _statement(function: ast.AST, what: str) -> tuple[list[ast.stmt], int]:
    """The block that has it, and its place there."""
    found = [
        (block, at)
        for node in ast.walk(function)
        for _, block in ast.iter_fields(node)
        if isinstance(block, list)
        for at, each in enumerate(block)
        if isinstance(each, ast.stmt) and what in _names(each)
    ]
    return _only(found, what)


def _names(statement: ast.stmt) -> list[str]:
    """What it assigns to, or calls, or the word that it is."""
    if isinstance(statement, ast.Assign):
        return [ast.unparse(each) for each in statement.targets]
    if isinstance(statement, ast.AugAssign | ast.AnnAssign):
        return [ast.unparse(statement.target)]
    if isinstance(statement, ast.Expr):
        value = statement.value
        called = value.value if isinstance(value, ast.Await) else value
        return [ast.unparse(called.func)] if isinstance(called, ast.Call) else []
    return [ast.unparse(statement)] if isinstance(statement, ast.Return | ast.Raise) else []


def _is(value: object, wanted: str) -> bool:
    return isinstance(value, ast.expr) and ast.unparse(value) == wanted


def _holds(value: object, wanted: str) -> bool:
    return isinstance(value, list) and any(_is(each, wanted) for each in value)


def _only(found: list[T], what: str) -> T:
    if len(found) != 1:
        raise NotThere(f"{len(found)} times, and not once, there is {what}")
    return found[0]
