"""Checks a whole document against the tables of the specifications, and lists every violation.

Each function below is one rule about a whole document that `tables` cannot express; `entry_rules`
has those about a single entry. Recommendations are not checked.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.validation.editions import (
    DRAFT_ATTRIBUTES,
    EDITIONS,
    Edition,
    as_of_today,
    edition_of,
    schema_0_8,
)
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
    FROM,
    MAX_BYTES,
    MAX_ENTRIES,
    ROOT_ATTRIBUTES,
    Schema,
)
from rsnotify.resourcesync.xml_reader import parse_all_of_document
from rsnotify.resourcesync.xml_structure import Oddity
from rsnotify.resourcesync.xml_writer import ENTRY, Document, Entry


class Verdict(NamedTuple):
    """What a document is, and every violation in it."""

    kind: str  # its capability, or `unreadable`
    edition: Edition
    violations: list[Violation]


def check(data: bytes) -> list[Violation]:
    """Every violation in a document; one that cannot be read has that as its violation."""
    return judge(data).violations


def judge(data: bytes) -> Verdict:
    """A document judged by the edition that it was written for."""
    if len(data) > MAX_BYTES:
        message = f"the document has {len(data)} bytes, more than {MAX_BYTES}"
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
    named = attribute(document.md, "capability") or "notification"
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
        yield Violation("Core 7", "/", message, "Send a well-formed document.")


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
