"""Checks a whole document against the tables of the specifications, and lists every violation.

Each function below is one rule about a whole document that `tables` cannot express; `entry_rules`
has those about a single entry. Recommendations are not checked.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.validation.entry_rules import (
    ENTRY_RULES,
    Violation,
    Violations,
    attribute,
    attributes,
    interval,
    may_and_must,
    missing,
    out_of_place,
    position,
    values,
)
from rsnotify.resourcesync.validation.tables import (
    CHANGE_0_8,
    FRAMEWORK_0_8,
    FROM,
    MAX_BYTES,
    MAX_ENTRIES,
    ROOT_ATTRIBUTES,
    SCHEMAS,
    URLSETS,
    Schema,
)
from rsnotify.resourcesync.xml_reader import parse_document
from rsnotify.resourcesync.xml_writer import ENTRY, Document, Entry


def check(data: bytes) -> list[Violation]:
    """Every violation in a document; one that cannot be read has that as its violation."""
    if len(data) > MAX_BYTES:
        message = f"the document has {len(data)} bytes, more than {MAX_BYTES}"
        return [Violation("Sitemap protocol", "/", message, "Split it.")]
    try:
        return check_document(parse_document(data))
    except Rejected as rejected:
        return list(_unreadable(rejected))


def _unreadable(rejected: Rejected) -> Violations:
    for message in [fault["message"] for fault in rejected.faults] or [rejected.detail]:
        yield Violation("Core 7", "/", message, "Send a well-formed document.")


def check_document(document: Document) -> list[Violation]:
    """Every violation in a document that has been parsed."""
    schema = _schema_of(document)
    if isinstance(schema, Violation):
        return [schema]
    whole = [found for rule in DOCUMENT_RULES for found in rule(document, schema)]
    return whole + [
        found
        for path, entry in _entries(document)
        for rule in ENTRY_RULES
        for found in rule(entry, path, schema)
    ]


def _schema_of(document: Document) -> Schema | Violation:
    """The schema of this document, or why it has none."""
    root, capability = document.root, attribute(document.md, "capability")
    path = f"/{root}/rs:md/@capability"
    if capability is None:
        return _schema_0_8(document) or missing("Core 7", path, "capability")
    if capability in SCHEMAS[root]:
        return SCHEMAS[root][capability]
    if capability in URLSETS:
        message = f"a {capability} is never a <{root}>"
        return Violation(URLSETS[capability].clause, path, message, "Make it a <urlset>.")
    message = f"{capability!r} is no document that the specifications define"
    return Violation("Core 7", path, message, f"Use one of {', '.join(URLSETS)}.")


def _schema_0_8(document: Document) -> Schema | None:
    found = [entry.md for entry in document.entries if entry.md is not None]
    if document.root != "urlset" or document.md is not None or not any(md.change for md in found):
        return None
    return FRAMEWORK_0_8 if any(md.capability for md in found) else CHANGE_0_8


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
            mend = "Tell of a document under the index instead."
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
