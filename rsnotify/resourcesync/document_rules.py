"""Checks a whole document against the tables of the specifications, and lists every violation.

Each function below is one rule about a whole document or about a single entry that `tables` cannot
express; it yields every violation. Recommendations are not checked.

"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import msgspec

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import (
    CHANGE_TYPES,
    ELEMENTS,
    VALUES,
    Link,
    Position,
    is_datetime,
    problem,
)
from rsnotify.resourcesync.tables import (
    CHANNELS,
    DRAFT_ATTRIBUTES,
    EDITIONS,
    ENTRY_ATTRIBUTES,
    FROM,
    MANIFESTS,
    MAX_BYTES,
    MAX_ENTRIES,
    MAX_LOC_CHARACTERS,
    PATCH,
    ROOT_ATTRIBUTES,
    URLSETS,
    Edition,
    Schema,
    as_of_today,
    edition_of,
    schema_0_8,
)
from rsnotify.resourcesync.xml_reader import parse_all_of_document
from rsnotify.resourcesync.xml_structure import Oddity
from rsnotify.resourcesync.xml_writer import (
    ENTRY,
    LINK_FIELDS,
    MD_FIELDS,
    Document,
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


class Verdict(NamedTuple):
    """What a document is, and every violation in it."""

    kind: str  # its capability, or `unreadable`
    edition: Edition
    violations: list[Violation]


def check(data: bytes, most_bytes: int = MAX_BYTES) -> list[Violation]:
    """Every violation in a document; one that cannot be read has that as its violation."""
    return judge_document(data, most_bytes).violations


def judge_document(data: bytes, most_bytes: int = MAX_BYTES) -> Verdict:
    """A document judged by the edition that it was written for."""
    if len(data) > most_bytes:
        message = f"the document has {len(data)} bytes, more than {most_bytes}"
        too_large = Violation("Sitemap protocol", "/", message, "Split it.")
        return Verdict("unreadable", "1.1", [too_large])
    of_today, is_draft = as_of_today(data)
    try:
        document, oddities = parse_all_of_document(of_today)
    except Rejected as rejected:
        return Verdict("unreadable", "1.1", list(_unreadable(rejected)))
    edition = "draft of 2013" if is_draft else edition_of(document)
    found = [*_misplaced(oddities), *check_document(document, edition)]
    if is_draft:
        found = [each for each in found if each.path.rpartition("@")[2] not in DRAFT_ATTRIBUTES]
    return Verdict(_kind(document), edition, found)


def _kind(document: Document) -> str:
    without = "notification" if schema_0_8(document) else "sitemap"
    named = attribute(document.md, "capability") or without
    return f"{named} index" if document.root == "sitemapindex" else named


def _misplaced(oddities: Iterable[Oddity]) -> Violations:
    """Elements of other namespaces are allowed."""
    for oddity in oddities:
        if oddity.kind == "order":
            mend = "Write loc, lastmod, changefreq, priority, then the rest; entries come last."
            yield Violation("Sitemap protocol", oddity.path, oddity.message, mend)
        elif oddity.kind == "unknown":
            yield Violation("Core 7", oddity.path, oddity.message, "Remove it.")


def _unreadable(rejected: Rejected) -> Violations:
    for message in [fault["message"] for fault in rejected.faults] or [rejected.detail]:
        yield Violation("Core 7", "/", message, "Send a well-formed <urlset> or <sitemapindex>.")


def check_document(document: Document, edition: Edition | None = None) -> list[Violation]:
    """Every violation in a document that has been parsed."""
    schema = _schema_of(document, edition or edition_of(document))
    if isinstance(schema, Violation):
        return [schema]
    whole = [found for rule in DOCUMENT_RULES for found in rule(document, schema)]
    return whole + [
        found
        for path, entry in _entries(document)
        for rule in ENTRY_RULES
        for found in rule(entry, path, schema)
    ]


def _schema_of(document: Document, edition: Edition) -> Schema | Violation:
    """The schema of this document, or why it has none."""
    root, capability = document.root, attribute(document.md, "capability")
    schemas, path = EDITIONS[edition], f"/{root}/rs:md/@capability"
    if capability is None:
        return schema_0_8(document) or missing("Core 7", path, "capability")
    if capability in schemas[root]:
        return schemas[root][capability]
    if capability in schemas["urlset"]:
        message = f"a {capability} is never a <{root}>"
        return Violation(schemas["urlset"][capability].clause, path, message, "Make it a <urlset>.")
    message = f"{capability!r} is no document that the specifications define"
    return Violation("Core 7", path, message, f"Use one of {', '.join(schemas['urlset'])}.")


def _entries(document: Document) -> Iterator[tuple[str, Entry]]:
    tag = f"/{document.root}/{ENTRY[document.root]}"
    return ((f"{tag}[{number}]", entry) for number, entry in enumerate(document.entries, 1))


# The root --------------------------------------------------------------------------------------


def _root(document: Document, schema: Schema) -> Violations:
    path = f"/{document.root}"
    yield from attributes(document.md, path, schema.root, ROOT_ATTRIBUTES, schema.clause)
    yield from values(document.md, document.links, path)
    yield from interval(document.md, path)


def _navigation(document: Document, schema: Schema) -> Violations:
    may, must = may_and_must(schema.links)
    for rel in ("up", "index"):
        count = sum(link.rel == rel for link in document.links)
        path = f"/{document.root}/rs:ln[@rel='{rel}']"
        if count == 0 and rel in must:
            yield missing(schema.clause, path, rel)
        elif count > 0 and rel not in may:
            yield out_of_place(schema.clause, path, f"the relation {rel}")
        elif count > 1:
            yield Violation(schema.clause, path, f"the relation {rel} stands twice", "Keep one.")


# The entries together --------------------------------------------------------------------------


def _number_of_entries(document: Document, _: Schema) -> Violations:
    if (count := len(document.entries)) > MAX_ENTRIES:
        message = f"it has {count} entries, more than {MAX_ENTRIES}"
        yield Violation("Sitemap protocol", f"/{document.root}", message, "Split it.")


def _unique(document: Document, schema: Schema) -> Violations:
    first: dict[str, str] = {}
    for path, entry in _entries(document) if schema.unique else ():
        own = entry.loc if schema.unique == "loc" else attribute(entry.md, schema.unique)
        if own and first.setdefault(own, path) != path:
            message = f"{schema.unique} {own[:80]!r} stands in {first[own]} already"
            yield Violation(schema.clause, path, message, "Keep one of these entries.")


def _chronological(document: Document, schema: Schema) -> Violations:
    """Entries without a time are skipped."""
    timed = [(path, time) for path, entry in _entries(document) if (time := _time(entry, schema))]
    for (_, before), (path, time) in pairwise(timed):
        if time < before:
            message = f"{schema.order} {time} is before that of an entry above, {before}"
            yield Violation(schema.clause, path, message, "List the oldest entry first.")


def _within(document: Document, schema: Schema) -> Violations:
    begin, end = (position(attribute(document.md, name)) for name in ("from", "until"))
    for path, entry in _entries(document) if schema.order == "datetime" else ():
        time = _time(entry, schema)
        if time and ((begin and time < begin) or (end and time > end)):
            message = f"datetime {time} lies outside the document's from and until"
            mend = "Move the entry to the document of that time."
            yield Violation("Core 7", f"{path}/rs:md/@datetime", message, mend)


def _time(entry: Entry, schema: Schema) -> Position | None:
    if schema.order == "lastmod":
        return position(entry.lastmod)
    return position(attribute(entry.md, schema.order)) if schema.order else None


def _open_last(document: Document, schema: Schema) -> Violations:
    """Only the last list may be open (without `until`), and only in an index that is open."""
    if document.root != "sitemapindex" or schema.root != FROM:
        return
    is_closed = attribute(document.md, "until") is not None
    for number, (path, entry) in enumerate(_entries(document), 1):
        is_open = attribute(entry.md, "from") and not attribute(entry.md, "until")
        if is_open and (is_closed or number < len(document.entries)):
            yield missing(schema.clause, f"{path}/rs:md/@until", "until")


def _never_an_index(document: Document, schema: Schema) -> Violations:
    if schema.entry_links != "index":
        return
    links = [link for entry in document.entries for link in entry.links]
    indexes = {link.href for link in links if link.rel == "index"}
    for path, entry in _entries(document):
        if entry.loc in indexes:
            mend = "Announce a document under the index instead."
            yield Violation(schema.clause, f"{path}/loc", "no notification is about an index", mend)


def _texts_of_an_index(document: Document, _: Schema) -> Violations:
    for path, entry in _entries(document) if document.root == "sitemapindex" else ():
        for name in ("changefreq", "priority"):
            if getattr(entry, name) is not None:
                yield out_of_place("Sitemap protocol", f"{path}/{name}", name)


DOCUMENT_RULES: tuple[Callable[[Document, Schema], Violations], ...] = (
    _root,
    _navigation,
    _number_of_entries,
    _unique,
    _chronological,
    _within,
    _open_last,
    _never_an_index,
    _texts_of_an_index,
)
