"""Documents and notifications as JSON: the form in which one publishes, with what encloses it.

A change becomes the object that could be published as it is, with its `datetime`. It is made of the
XML that `xml_writer` wrote, and of no other XML: the journal keeps fragments, not changes.
A document is one object: what its `rs:md` says, its `links`, and its entries.
"""

import re
from collections.abc import Iterable, Iterator
from html import unescape
from typing import Any

import msgspec

from rsnotify.resourcesync.change import ELEMENTS, Link, Position
from rsnotify.resourcesync.notification import Notification
from rsnotify.resourcesync.xml_writer import Document, Entry, Md

FOOT = b"\n]}\n"
_PARTS = re.compile(
    rf"<(?:({'|'.join(ELEMENTS)})>([^<]*)</|rs:(md|ln)((?: [^>]*)?)/>|/(url)>)"
).finditer
_ATTRIBUTES = re.compile(r' ([^ =]+)="([^"]*)"').findall
_NUMBERS = ("length", "pri")
_END = b"</url>"

Json = dict[str, Any]

_encode = msgspec.json.Encoder().encode


# One entry ---------------------------------------------------------------------------------------


def entries_as_json(entries: bytes) -> list[bytes]:
    """Each `<url>` of these as a JSON object."""
    return list(map(_encode, _objects(entries.decode())))


def _objects(entries: str) -> Iterator[Json]:
    found: Json = {}
    for part in _PARTS(entries):
        text, content, element, attributes, end = part.groups()
        if text:
            found[text] = float(content) if text == "priority" else _plain(content)
        elif element == "md":
            found |= _described(attributes)
        elif element == "ln":
            _add_link(found, _described(attributes))
        elif end:
            yield found
            found = {}


def _plain(text: str) -> str:
    return unescape(text) if "&" in text else text


def _described(attributes: str) -> Json:
    values: Json = dict(_ATTRIBUTES(attributes))
    if "&" in attributes:
        values = {name: unescape(value) for name, value in values.items()}
    if ":" in attributes and any(":" in name for name in values):
        values = _with_namespaces(values)
    for name in _NUMBERS:
        if name in values:
            values[name] = int(values[name])
    return values


def _with_namespaces(values: Json) -> Json:
    """Attributes of other namespaces as `foreign`, under `{namespace}name`."""
    prefixes = {name[6:]: value for name, value in values.items() if name.startswith("xmlns:")}
    prefixes["xml"] = "http://www.w3.org/XML/1998/namespace"
    own, foreign = {}, {}
    for name, value in values.items():
        prefix, colon, local = name.partition(":")
        if not colon:
            own[name] = value
        elif prefix != "xmlns":
            foreign[f"{{{prefixes[prefix]}}}{local}"] = value
    return own | {"foreign": foreign}


def _add_link(found: Json, link: Json) -> None:
    """The first link of a framework change to an index is its `index`."""
    if "capability" in found and link["rel"] == "index" and "index" not in found:
        found["index"] = link["href"]
    else:
        found.setdefault("links", []).append(link)


class EntriesAsJson:
    """Entries that come in pieces, cut anywhere, as JSON: with commas between them, or in lines."""

    def __init__(self, *, in_lines: bool = False) -> None:
        self._in_lines = in_lines
        self._rest = b""
        self._comma = b""

    def feed(self, piece: bytes) -> bytes:
        entries, end, self._rest = (self._rest + piece).rpartition(_END)
        if not end:
            return b""
        found = entries_as_json(entries + end)
        if self._in_lines:
            return b"\n".join(found) + b"\n"
        before, self._comma = self._comma, b",\n"
        return before + b",\n".join(found)


# A document --------------------------------------------------------------------------------------


def json_frame(md: Md, links: Iterable[Link], entries: str) -> tuple[bytes, bytes]:
    """What stands before and after the entries, which are called so."""
    head = _encode(msgspec.to_builtins(md) | {"links": list(links)})
    return b'%s,"%s":[\n' % (head[:-1], entries.encode()), FOOT


def render_notification_json(notification: Notification) -> bytes:
    """The same notification in JSON."""
    opening = notification.payload[: notification.entries.start].decode()
    parts = [match.groups() for match in _PARTS(opening)]
    md = next(_described(attributes) for _, _, element, attributes, _ in parts if element == "md")
    links = [_described(attributes) for _, _, element, attributes, _ in parts if element == "ln"]
    changes = b",".join(entries_as_json(notification.payload[notification.entries]))
    head = _encode(md | {"links": links})
    return b'%s,"changes":[%s]}' % (head[:-1], changes)


def render_empty_json(capability: str, at: Position) -> bytes:
    """What stands for a channel's newest notification before there is one."""
    md = Md(capability=capability, from_=str(at), until=str(at))
    return b"".join(json_frame(md, (), "changes"))


def render_json(document: Document) -> bytes:
    """A document without changes or resources: an index, a Capability List."""
    head, foot = json_frame(document.md or Md(), document.links, "documents")
    return b"".join((head, render_entries_json(document.entries), foot))


def render_entries_json(entries: Iterable[Entry]) -> bytes:
    return b",\n".join(_encode(_entry(entry)) for entry in entries)


def _entry(entry: Entry) -> Json:
    found: Json = {"loc": entry.loc} | msgspec.to_builtins(entry.md or Md())
    return found | {"links": entry.links} if entry.links else found
