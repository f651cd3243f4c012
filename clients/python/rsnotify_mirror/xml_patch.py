"""XML Patch (RFC 5261): the new version of an XML resource from the old one. Pure.

Rules that hold here: a selector is of the few forms that the RFC allows, and selects one node;
what comes out counts only if it has the digest that the Source says, so the usual spellings are
tried, as near to that of the old version as can be.
"""

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, cast

from lxml import etree

from rsnotify.errors import Rejected
from rsnotify.resourcesync.xml_guard import check_before_parsing
from rsnotify_mirror.patch import OPERATIONS, NotApplicable

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


def _add(operation: "etree._Element", node: Any) -> None:
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


def _replace(operation: "etree._Element", node: Any) -> "etree._Element | None":
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


def _remove(operation: "etree._Element", node: Any) -> None:
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
ACTS: dict[str, Act] = {"add": _add, "replace": _replace, "remove": _remove}
