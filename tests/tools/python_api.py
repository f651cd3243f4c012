"""The page on the Python API, made from the docstrings of what the packages offer.

    python -m tests.tools.python_api > docs/reference/python.md

Rules that hold here: each public name is in one section; one that is in none is an error.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any, get_args

import rsnotify_client
import rsnotify_mirror

INTRODUCTION = """# The Python API

This page is made from the docstrings of `rsnotify_client` and `rsnotify_mirror`. It has every name
that they offer, and no other. To learn how they are used, begin with [publishing from
Python](../client.md), [following a channel](../following.md#from-python) or [mirroring a
Source](../mirror.md#from-python).

A call blocks until it is done, unless its name has `Async` or `async` in it: those are for an event
loop, and their methods are awaited. Where a signature ends with `*, …`, the rest are the fields of
a [`Change`](#change), by their names.

`help(rsnotify_client.Publisher)` says the same, with the types. mypy and editors see these, too.
"""
SECTIONS = {
    "Publish": "Publisher AsyncPublisher Accepted Loaded Counters RefusedChange changes_between",
    "An outbox in your own database": "Outbox Relay",
    "Follow": "follow follow_async notifications notifications_async FollowedChange Received "
    "FileCursor SqliteCursor CursorStore channel_url",
    "The network": "NetworkOptions Token TokenFile",
    "What is published and followed": "Change ChangeKind Link Position",
    "Mirror": "Mirror AsyncMirror Options Selection Republication Event",
}
ERRORS = "Errors"
OF_TYPES = {
    "ChangeKind": "What can happen to a resource: {}.",
    "Token": "What `token=` takes: {}. A function may block; it is called in a thread.",
}
"""What a type means that has no docstring; its kinds stand where the braces are."""
SAME_IN_ANOTHER = {"AsyncPublisher": "Publisher", "AsyncMirror": "Mirror"}
"""Whose methods mean what those of the other one mean, where they say nothing themselves."""


def offered() -> dict[str, Any]:
    """Everything that one can import from both, by name."""
    modules = (rsnotify_client, rsnotify_mirror)
    names = {name: getattr(module, name) for module in modules for name in module.__all__}
    return {name: each for name, each in names.items() if name != "__version__"}


def page() -> str:
    names = offered()
    errors = [name for name, each in names.items() if _is_error(each)]
    listed = {title: known.split() for title, known in SECTIONS.items()}
    if wrong := {*names} ^ {*errors, *(name for known in listed.values() for name in known)}:
        raise ValueError(f"{', '.join(sorted(wrong))}: say in which section it is, once")
    parts = [INTRODUCTION]
    for title, known in listed.items():
        parts += [f"## {title}\n", *(_entry(name, names[name]) for name in known)]
    parts += [f"## {ERRORS}\n", *(_error(names[name]) for name in _by_root(names, errors))]
    return "\n".join(parts) + "\n"


def _is_error(each: Any) -> bool:
    return inspect.isclass(each) and issubclass(each, Exception)


def _by_root(names: dict[str, Any], errors: list[str]) -> list[str]:
    """Each after what it is a kind of."""

    def line(name: str) -> list[str]:
        return [each.__name__ for each in reversed(names[name].__mro__) if each.__name__ in errors]

    return sorted(errors, key=line)


def _error(each: type[Exception]) -> str:
    roots = [base.__name__ for base in each.__bases__]
    said = _doc(each, each).replace("\n\n", " ")
    return f"- `{each.__name__}` ({', '.join(f'`{root}`' for root in roots)}): {said}"


def _entry(name: str, each: Any) -> str:
    lines = [f"### `{name}`\n"]
    if not callable(each) or not (inspect.isclass(each) or inspect.isfunction(each)):
        return "\n".join([*lines, f"{OF_TYPES[name].format(_kinds(each))}\n"])
    if getattr(each, "_is_protocol", False) or each is rsnotify_client.Position:
        lines += [_doc(each, each) + "\n"]
    else:
        lines += [f"```python\n{_call(name, each)}\n```\n", _doc(each, each) + "\n"]
    if inspect.isclass(each):
        lines += [*_members(name, each), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _kinds(each: Any) -> str:
    kinds = [kind.__name__ if inspect.isclass(kind) else str(kind) for kind in get_args(each)]
    return ", ".join(f"`{kind.removeprefix('collections.abc.')}`" for kind in kinds)


def _call(name: str, each: Any) -> str:
    """As it is called, with its defaults; the types are for editors."""
    signature = inspect.signature(each)
    given = [
        parameter.replace(annotation=parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    plain = str(signature.replace(parameters=given, return_annotation=signature.empty))
    plain = plain.replace("'", '"')  # as Python is written here
    if len(name + plain) <= 96:
        return name + plain
    inner = [str(parameter).replace("'", '"') for parameter in given]
    kinds = [parameter.kind for parameter in given]
    if inspect.Parameter.KEYWORD_ONLY in kinds:
        inner.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    return "\n".join([f"{name}(", *(f"    {part}," for part in inner), ")"])


def _members(name: str, each: type[Any]) -> Iterator[str]:
    """Each with what it does; those that do the same as another class's, together at the end."""
    same = list[str]()
    for member in dir(each):
        found = inspect.getattr_static(each, member)
        where = getattr(getattr(each, member), "__module__", None)
        is_ours = isinstance(found, property) or str(where).startswith("rsnotify")
        if member.startswith("_") or not is_ours:
            continue
        if not isinstance(found, property) and not inspect.isroutine(getattr(each, member)):
            continue
        if isinstance(found, property):
            call, doc = f"`{member}`", _doc(found, each)
        else:
            await_ = "await " if _is_awaited(each, member) else ""
            call = f"`{await_}{member}({_arguments(getattr(each, member))})`"
            doc = _doc(getattr(each, member), each, member)
        if (other := SAME_IN_ANOTHER.get(name)) and doc == _said_by(other, member):
            same.append(re.sub(r"\(.*\)", "()", call))
        else:
            yield f"- {call}: {doc}"
    if same:
        yield f"- as those of [`{other}`](#{other.lower()}): {', '.join(same)}"


def _said_by(other: str, member: str) -> str:
    owner = offered()[other]
    found = inspect.getattr_static(owner, member, None)
    return "" if found is None else _doc(getattr(owner, member), owner, member)


def _is_awaited(owner: type[Any], member: str) -> bool:
    """Those of `ChangeMethods` return what `send` returns."""
    by = "send" if member in ("created", "updated", "deleted") else member
    return inspect.iscoroutinefunction(getattr(owner, by))


def _arguments(method: Any) -> str:
    signature = inspect.signature(method)
    given = [
        each.replace(annotation=each.empty)
        for each in signature.parameters.values()
        if each.name != "self"
    ]
    named = {each.name for each in given if each.kind == each.KEYWORD_ONLY}
    is_of_change = named > {"lastmod", "datetime", "hash"}
    if is_of_change:
        given = [each for each in given if each.name not in named]
    plain = signature.replace(parameters=given, return_annotation=signature.empty)
    return str(plain)[1:-1].replace("'", '"') + (", *, …" if is_of_change else "")


def _doc(found: Any, owner: type[Any], member: str = "") -> str:
    """Its docstring without the example; that of a member in one paragraph."""
    text = inspect.getdoc(found)
    other = SAME_IN_ANOTHER.get(owner.__name__)
    if text is None and other is not None and member:
        text = inspect.getdoc(getattr(offered()[other], member))
    if text is None:
        raise ValueError(f"{owner.__name__} {member} says nothing of itself")
    paragraphs = [each for each in text.split("\n\n") if not each.lstrip().startswith(">>>")]
    between = " " if member or isinstance(found, property) else "\n\n"
    return between.join(re.sub(r"\s+", " ", each).strip() for each in paragraphs)


if __name__ == "__main__":
    sys.stdout.write(page())
