"""Checks a single entry and the values in it, as far as the tables cannot express it.

A rule takes an entry, its path and the schema of its document, and yields every violation.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache

import msgspec

from rsnotify.resourcesync.change import ELEMENTS, Link, Position
from rsnotify.resourcesync.validation.editions import MANIFESTS
from rsnotify.resourcesync.validation.tables import (
    CHANNELS,
    ENTRY_ATTRIBUTES,
    MAX_LOC_CHARACTERS,
    PATCH,
    URLSETS,
    Schema,
)
from rsnotify.resourcesync.values import CHANGE_TYPES, VALUES, is_datetime, problem
from rsnotify.resourcesync.xml_writer import (
    LINK_FIELDS,
    MD_FIELDS,
    Entry,
    Md,
    strays,
)


class Violation(msgspec.Struct, frozen=True):
    """One place where a document breaks one rule."""

    clause: str
    path: str
    message: str
    mend: str


Violations = Iterator[Violation]

MENDS = {
    "at": "Give the time when taking the snapshot began.",
    "from": "Give the time from which on every change is listed.",
    "until": "Give the time up to which every change is listed.",
    "change": f"Say one of {', '.join(CHANGE_TYPES)}.",
    "capability": "Say what kind of document it is.",
    "path": "Give the path inside the package.",
    "type": "Give the media type of the patch.",
    "lastmod": "Give the time of the change.",
    "hub": 'Add <rs:ln rel="hub" href="…"/> to the hub of this topic.',
    "up": 'Add <rs:ln rel="up" href="…"/> to the Capability List; from there, to the Source '
    "Description.",
}


def missing(clause: str, path: str, name: str) -> Violation:
    return Violation(clause, path, f"{name} is missing", MENDS[name])


def out_of_place(clause: str, path: str, name: str) -> Violation:
    return Violation(clause, path, f"{name} is not used here", "Remove it.")


def attribute(md: Md | None, name: str) -> str | None:
    value: str | None = getattr(md, MD_FIELDS[name]) if md is not None else None
    return value


def position(text: str | None) -> Position | None:
    return Position.parse(text) if text and is_datetime(text) else None


@cache
def may_and_must(words: str) -> tuple[frozenset[str], frozenset[str]]:
    must = frozenset(word[:-1] for word in words.split() if word.endswith("!"))
    return must | frozenset(words.split()), must


def attributes(
    md: Md | None, path: str, words: str, restricted: tuple[str, ...], clause: str
) -> Violations:
    may, must = may_and_must(words)
    for name in restricted:
        if attribute(md, name) is None:
            if name in must:
                yield missing(clause, f"{path}/rs:md/@{name}", name)
        elif name not in may:
            yield out_of_place(clause, f"{path}/rs:md/@{name}", name)


def interval(md: Md | None, path: str) -> Violations:
    for start, end in (("from", "until"), ("at", "completed")):
        begun, ended = position(attribute(md, start)), position(attribute(md, end))
        if begun is not None and ended is not None and ended < begun:
            message = f"{end} {ended} is before {start} {begun}"
            yield Violation("Core 7", f"{path}/rs:md/@{end}", message, f"Let {end} follow {start}.")


# Single values ---------------------------------------------------------------------------------


def values(md: Md | None, links: tuple[Link, ...], path: str) -> Violations:
    if md is not None:
        yield from _described(md, MD_FIELDS, f"{path}/rs:md")
    for number, link in enumerate(links, 1):
        yield from _described(link, LINK_FIELDS, f"{path}/rs:ln[{number}]")


def _described(described: Md | Link, fields: Mapping[str, str], path: str) -> Violations:
    for name, field in fields.items():
        if (value := getattr(described, field)) is not None:
            yield from _value(name, str(value), f"{path}/@{name}")
    for name, text in strays(described).items():
        yield from _value(name, text, f"{path}/@{name}") if name in fields else _unknown(name, path)


def _value(name: str, value: str, path: str) -> Violations:
    if wrong := problem(name, value):
        yield Violation(VALUES[name].clause, path, wrong, "Correct the value.")


def _unknown(name: str, path: str) -> Violations:
    mend = "Remove it; our own have no prefix, extensions that of another namespace."
    yield Violation("Core 7", f"{path}/@{name}", f"there is no attribute {name}", mend)


def _entry_values(entry: Entry, path: str, _: Schema) -> Violations:
    for name in ELEMENTS:
        if (value := getattr(entry, name)) is not None:
            yield from _value(name, value, f"{path}/{name}")
    yield from values(entry.md, entry.links, path)
    yield from interval(entry.md, path)


def _loc_length(entry: Entry, path: str, _: Schema) -> Violations:
    if (length := len(entry.loc)) > MAX_LOC_CHARACTERS:
        message = f"loc has {length} characters, more than {MAX_LOC_CHARACTERS}"
        yield Violation("Sitemap protocol", f"{path}/loc", message, "Find it a shorter URI.")


# What depends on the document ------------------------------------------------------------------


def _entry_attributes(entry: Entry, path: str, schema: Schema) -> Violations:
    return attributes(entry.md, path, schema.entry, ENTRY_ATTRIBUTES, schema.clause)


def _last_modified(entry: Entry, path: str, schema: Schema) -> Violations:
    if schema.order == "lastmod" and entry.lastmod is None:
        yield missing(schema.clause, f"{path}/lastmod", "lastmod")


def _capability(entry: Entry, path: str, schema: Schema) -> Violations:
    md = entry.md
    if md is None or md.capability is None or not schema.capabilities:
        return
    changes = schema.capabilities.get(md.capability)
    if changes is None:
        message = f"the capability {md.capability!r} has no place here"
        mend = f"Use one of {', '.join(schema.capabilities)}."
        yield Violation(schema.clause, f"{path}/rs:md/@capability", message, mend)
    elif md.change in CHANGE_TYPES and md.change not in changes:
        message = f"a {md.capability} is never {md.change}"
        mend = f"Say {' or '.join(changes)}."
        yield Violation(schema.clause, f"{path}/rs:md/@change", message, mend)


def _channel(entry: Entry, path: str, schema: Schema) -> Violations:
    """A channel is a WebSub topic that names its hub, or as in 0.8 a WebSocket."""
    clause = CHANNELS.get(attribute(entry.md, "capability") or "")
    if clause is None or schema is not URLSETS["capabilitylist"]:
        return
    is_socket = entry.loc.startswith(("ws://", "wss://"))
    if not is_socket and not any(link.rel == "hub" for link in entry.links):
        yield missing(clause, f"{path}/rs:ln[@rel='hub']", "hub")


def _bitstream(entry: Entry, path: str, schema: Schema) -> Violations:
    """In a Change Dump every change has its bitstream, except a deletion."""
    if entry.md is None or schema is not URLSETS["changedump-manifest"]:
        return
    is_deleted, has_path = entry.md.change == "deleted", entry.md.path is not None
    if not is_deleted and not has_path:
        yield missing(schema.clause, f"{path}/rs:md/@path", "path")
    elif is_deleted and has_path:
        yield out_of_place(schema.clause, f"{path}/rs:md/@path", "path")


def _links(entry: Entry, path: str, schema: Schema) -> Violations:
    for number, link in enumerate(entry.links, 1):
        if link.path is not None and schema not in MANIFESTS:
            yield out_of_place("Core 7", f"{path}/rs:ln[{number}]/@path", "path")
        if link.rel == PATCH:
            yield from _patch(link, f"{path}/rs:ln[{number}]", schema)


def _patch(link: Link, path: str, schema: Schema) -> Violations:
    if schema.entry_links != "patch":
        yield out_of_place("Core 14.4", f"{path}/@rel", "a patch")
    elif link.type is None:
        yield missing("Core 14.4", f"{path}/@type", "type")
    elif link.path is None and schema in MANIFESTS:
        yield missing("Core 14.4", f"{path}/@path", "path")


def _once(entry: Entry, path: str, schema: Schema) -> Violations:
    rel = schema.entry_links
    if rel in ("contents", "index") and sum(link.rel == rel for link in entry.links) > 1:
        message = f"the relation {rel} stands twice"
        yield Violation(schema.clause, f"{path}/rs:ln[@rel='{rel}']", message, "Keep one.")


ENTRY_RULES: tuple[Callable[[Entry, str, Schema], Violations], ...] = (
    _entry_values,
    _loc_length,
    _entry_attributes,
    _last_modified,
    _capability,
    _channel,
    _bitstream,
    _links,
    _once,
)
