"""JSON Patch (RFC 6902): the new version of a JSON resource from the old one. Pure.

Rules that hold here: what comes out counts only if it has the digest that the Source says; a patch
says what changes, not how JSON is spelt, so the usual spellings are tried.
"""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

OPERATIONS = 10_000
SPELLINGS: tuple[dict[str, Any], ...] = (
    {"ensure_ascii": False, "separators": (",", ":")},
    {"separators": (",", ":")},
    {"ensure_ascii": False},
    {},
    {"ensure_ascii": False, "indent": 2},
    {"indent": 2},
    {"indent": 4},
)


class NotApplicable(ValueError):
    """The patch does not fit the document."""


def candidates(old: bytes, patch: bytes) -> Iterator[bytes]:
    """The patched document in each spelling, with a line end and without."""
    try:
        document = apply(json.loads(old), json.loads(patch))
    except (ValueError, RecursionError) as error:
        raise NotApplicable(str(error)) from None
    for spelling in SPELLINGS:
        text = json.dumps(document, **spelling).encode(errors="surrogatepass")
        yield text
        yield text + b"\n"


def apply(document: Any, patch: Any) -> Any:
    """The document after all operations.

    >>> apply({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}])
    {'a': [1, 2]}
    """
    if not isinstance(patch, list) or len(patch) > OPERATIONS:
        raise NotApplicable("a patch is a list of at most 10,000 operations")
    holder = {"": deepcopy(document)}
    for operation in patch:
        try:
            _apply_one(holder, operation)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise NotApplicable(f"{operation!r:.100}: {error}") from None
    return holder[""]


def _apply_one(holder: dict[str, Any], operation: dict[str, Any]) -> None:
    op, path = operation["op"], operation["path"]
    if op == "add":
        _add(holder, path, operation["value"])
    elif op == "remove":
        _remove(holder, path)
    elif op == "replace":
        _replace(holder, path, operation["value"])
    elif op == "move":
        if path.startswith(operation["from"] + "/"):
            raise ValueError("nothing moves into itself")
        _add(holder, path, _remove(holder, operation["from"]))
    elif op == "copy":
        _add(holder, path, deepcopy(_at(holder, operation["from"])))
    elif op == "test":
        if not _same(_at(holder, path), operation["value"]):
            raise ValueError("the test fails")
    else:
        raise ValueError(f"there is no operation {op!r}")


def _tokens(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise ValueError(f"{path!r} is no JSON Pointer")
    return ["", *(part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:])]


def _at(holder: Any, path: str) -> Any:
    found = holder
    for token in _tokens(path):
        found = found[_index(token)] if isinstance(found, list) else found[token]
    return found


def _parent(holder: Any, path: str) -> tuple[Any, str]:
    *above, last = _tokens(path)
    found = holder
    for token in above:
        found = found[_index(token)] if isinstance(found, list) else found[token]
    return found, last


def _index(token: str) -> int:
    if not token.isdecimal() or str(int(token)) != token:
        raise ValueError(f"{token!r} is no index")
    return int(token)


def _add(holder: Any, path: str, value: Any) -> None:
    parent, last = _parent(holder, path)
    if isinstance(parent, list):
        index = len(parent) if last == "-" else _index(last)
        if index > len(parent):
            raise IndexError(f"there is no place {index}")
        parent.insert(index, value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise TypeError(f"{path!r} lies in no object or array")


def _replace(holder: Any, path: str, value: Any) -> None:
    """In its place: the order of an object's members is part of its digest."""
    parent, last = _parent(holder, path)
    key: Any = _index(last) if isinstance(parent, list) else last
    if not isinstance(parent, list | dict):
        raise TypeError(f"{path!r} lies in no object or array")
    _ = parent[key]  # it must be there
    parent[key] = value


def _remove(holder: Any, path: str) -> Any:
    parent, last = _parent(holder, path)
    if isinstance(parent, list):
        return parent.pop(_index(last))
    return parent.pop(last)


def _same(one: Any, other: Any) -> bool:
    """As JSON sees it: true is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
