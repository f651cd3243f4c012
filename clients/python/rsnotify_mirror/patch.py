"""JSON Patch (RFC 6902) and XML Patch (RFC 5261): the new version of a resource from the old. Pure.

Rules that hold here: what comes out counts only if it has the digest that the Source says; a patch
says what changes, not how a document is spelt, so the usual spellings are tried, in XML as near to
that of the old version as can be. A selector in XML is of the few forms that the RFC allows, and
selects one node.
"""

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import reduce
from typing import Any, cast

from lxml import etree

from rsnotify.errors import Rejected
from rsnotify.resourcesync.xml_structure import check_before_parsing

OPERATIONS = 10_000
COPIED_BYTES = 16 * 1024 * 1024  # by all operations of a patch; a few could double it each time
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
    holder, copied = {"": deepcopy(document)}, 0
    for operation in patch:
        try:
            if operation["op"] == "copy":
                copied += len(json.dumps(_at(holder, operation["from"])))
                if copied > COPIED_BYTES:
                    raise ValueError("the patch copies more than 16 MiB")
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
    return reduce(_child, _tokens(path), holder)


def _parent(holder: Any, path: str) -> tuple[Any, str]:
    *above, last = _tokens(path)
    return reduce(_child, above, holder), last


def _child(found: Any, token: str) -> Any:
    return found[_index(token)] if isinstance(found, list) else found[token]


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
    return parent.pop(_index(last) if isinstance(parent, list) else last)


def _same(one: Any, other: Any) -> bool:
    """As JSON sees it: true is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


SELECTOR_LENGTH = 1_000
_PROLOG = re.compile(rb"\A\s*<\?xml[^>]{0,200}\?>\s*")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_PLAIN = re.compile(r"(?:[\w.*:@-]|\(\)|\[[\w.*:@=\s'\"()-]*\]|/)*")
_FUNCTION = re.compile(r"([\w-]+)\s*\(")
_NAME = re.compile(r"(?<![\w@:.'\"-])([A-Za-z_][\w.-]*)(?![\w:.-]|\s*\()")
_FUNCTIONS = {"text", "comment", "processing-instruction"}
_DEFAULT = "default-"  # the prefix for names without one, which XPath takes for no namespace


def xml_candidates(old: bytes, patch: bytes) -> Iterator[bytes]:
    """The patched document in several spellings."""
    try:
        tree = patched(old, patch)
    except (etree.LxmlError, Rejected, ValueError, KeyError, IndexError, TypeError) as error:
        raise NotApplicable(str(error)) from None
    text = etree.tostring(tree, encoding="UTF-8", xml_declaration=False)
    if b" />" in old:
        text = re.sub(rb"(?<=[^\s/])/>", b" />", text)
    found = _PROLOG.match(old)
    prologs = [found[0] if found else b"", b"", b'<?xml version="1.0" encoding="UTF-8"?>\n']
    prologs += [b"<?xml version='1.0' encoding='UTF-8'?>\n", b'<?xml version="1.0"?>\n']
    for prolog in dict.fromkeys(prologs):
        yield prolog + text
        yield prolog + text + b"\n"


def patched(old: bytes, patch: bytes) -> "etree._ElementTree":
    """The document after all operations."""
    document, changes = _parsed(old), _parsed(patch).getroot()
    operations = [each for each in changes if isinstance(each.tag, str)]
    if etree.QName(changes).localname != "diff" or len(operations) > OPERATIONS:
        raise NotApplicable("a patch is a <diff> of at most 10,000 operations")
    for operation in operations:
        name = etree.QName(operation).localname
        if (act := ACTS.get(name)) is None:
            raise NotApplicable(f"there is no operation {name!r}")
        if (root := act(operation, _selected(document, operation))) is not None:
            document = root.getroottree()
    return document


def _parsed(data: bytes) -> "etree._ElementTree":
    check_before_parsing(data)
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, strip_cdata=False
    )
    return etree.fromstring(data, parser).getroottree()


# Selecting --------------------------------------------------------------------------------------


def _selected(document: "etree._ElementTree", operation: "etree._Element") -> Any:
    """The one node that `sel` names: an element, a comment, a text, an attribute."""
    selector = operation.get("sel", "").strip()
    bare = _QUOTED.sub("''", selector)
    if len(selector) > SELECTOR_LENGTH or not selector or not _PLAIN.fullmatch(bare):
        raise NotApplicable(f"the selector {selector[:100]!r} is not one of RFC 5261")
    if set(_FUNCTION.findall(bare)) - _FUNCTIONS or "::" in bare or "//" in bare:
        raise NotApplicable(f"the selector {selector[:100]!r} is not one of RFC 5261")
    names = {prefix or _DEFAULT: uri for prefix, uri in operation.nsmap.items()}
    if _DEFAULT in names:
        selector = _with_default(selector)
    path = selector if selector.startswith("/") else f"/{selector}"
    found = document.xpath(path, namespaces=names)
    if not isinstance(found, list) or len(found) != 1:
        count = len(found) if isinstance(found, list) else 0
        raise NotApplicable(f"the selector {selector[:100]!r} selects {count} nodes, not one")
    return found[0]


def _with_default(selector: str) -> str:
    """Names of elements without a prefix are in the default namespace of the patch."""
    parts = re.split(r"('[^']*'|\"[^\"]*\")", selector)
    return "".join(
        part if number % 2 else _NAME.sub(rf"{_DEFAULT}:\1", part)
        for number, part in enumerate(parts)
    )


# Texts stand before the first child of an element, or behind one of its children ----------------


def _text_before(parent: "etree._Element", index: int) -> str:
    return (parent[index - 1].tail if index else parent.text) or ""


def _set_text_before(parent: "etree._Element", index: int, text: str) -> None:
    if index:
        parent[index - 1].tail = text or None
    else:
        parent.text = text or None


def _insert(parent: "etree._Element", index: int, operation: "etree._Element") -> None:
    """What the operation holds, texts between its elements included, in front of this child."""
    _set_text_before(parent, index, _text_before(parent, index) + (operation.text or ""))
    for number, child in enumerate(operation):
        tail = child.tail
        new = deepcopy(child)
        new.tail = None
        parent.insert(index + number, new)
        new.tail = tail


def _take_out(node: "etree._Element") -> None:
    """Without the text behind it, which stays."""
    parent = cast("etree._Element", node.getparent())
    index, tail = parent.index(node), node.tail or ""
    node.tail = None
    parent.remove(node)
    _set_text_before(parent, index, _text_before(parent, index) + tail)


# Operations -------------------------------------------------------------------------------------


def _xml_add(operation: "etree._Element", node: Any) -> None:
    if isinstance(node, str):
        raise NotApplicable("nothing can be added to an attribute or a text")
    if (kind := operation.get("type")) is not None:
        if not kind.startswith("@"):
            raise NotApplicable("namespace declarations cannot be added here")
        prefix, _, name = kind[1:].rpartition(":")
        uri = operation.nsmap[prefix] if prefix else None
        node.set(f"{{{uri}}}{name}" if uri else name, operation.text or "")
        return
    parent, where = node.getparent(), operation.get("pos")
    if where is None:
        _insert(node, len(node), operation)
    elif where == "prepend":
        rest = node.text or ""
        node.text = None
        _insert(node, 0, operation)
        count = len(operation)
        _set_text_before(node, count, _text_before(node, count) + rest)
    elif where == "before" and parent is not None:
        _insert(parent, parent.index(node), operation)
    elif where == "after" and parent is not None:
        rest, at = node.tail or "", parent.index(node) + 1
        node.tail = None
        _insert(parent, at, operation)
        count = at + len(operation)
        _set_text_before(parent, count, _text_before(parent, count) + rest)
    else:
        raise NotApplicable(f"nothing can be added at pos={where!r} here")


def _xml_replace(operation: "etree._Element", node: Any) -> "etree._Element | None":
    """The new root, if that was replaced."""
    if isinstance(node, str):
        _set_value(node, operation.text or "")
        return None
    if len(operation) != 1:
        raise NotApplicable("one node is replaced by one")
    new = deepcopy(operation[0])
    new.tail = node.tail
    if (parent := node.getparent()) is None:
        new.tail = None
        return new
    parent.replace(node, new)
    return None


def _set_value(node: Any, value: str | None) -> None:
    """Of an attribute or a text, which know where they stand."""
    parent = node.getparent()
    if node.is_attribute:
        if value is None:
            del parent.attrib[node.attrname]
        else:
            parent.set(node.attrname, value)
    elif node.is_tail:
        parent.tail = value
    else:
        parent.text = value


def _xml_remove(operation: "etree._Element", node: Any) -> None:
    if isinstance(node, str):
        _set_value(node, None)
        return
    if (parent := node.getparent()) is None:
        raise NotApplicable("the root cannot be removed")
    index, spaces = parent.index(node), operation.get("ws", "")
    if spaces in ("after", "both"):
        _check_space(node.tail or "")
        node.tail = None
    if spaces in ("before", "both"):
        _check_space(_text_before(parent, index))
        _set_text_before(parent, index, "")
    _take_out(node)


def _check_space(text: str) -> None:
    if not text or text.strip():
        raise NotApplicable("there is no white space to be removed with it")


Act = Callable[["etree._Element", Any], "etree._Element | None"]
ACTS: dict[str, Act] = {"add": _xml_add, "replace": _xml_replace, "remove": _xml_remove}
