"""Which edition of ResourceSync a document was written for, and the rows of the older ones.

Known are the 1.1 family (core 1.1, Archives, both notifications), Notification 0.8, the
specification 0.9 and the draft of January 2013 (as printed in D-Lib Magazine). A document is
judged by the text of its own edition.
"""

from collections.abc import Mapping
from typing import Literal

from rsnotify.resourcesync.validation.tables import (
    CHANGE_0_8,
    DESCRIBED,
    FRAMEWORK_0_8,
    SCHEMAS,
    SPAN,
    Schema,
)
from rsnotify.resourcesync.xml_writer import DRAFT_NS, RS_NS, Document, Root

Edition = Literal["1.1", "0.9", "0.8", "draft of 2013"]

DRAFT_ATTRIBUTES = frozenset({"etag"})  # that no later edition has

_LISTED = dict.fromkeys(("resourcelist", "resourcedump", "changelist", "changedump"), ())

# Of 0.9, snapshots have `from`, changes the time in `lastmod`; `up` leads to the index, and
# `resourcesync` to the Capability List.
# fmt: off
URLSETS_0_9: Mapping[str, Schema] = {
    "resourcesync":          Schema("0.9, 9.1",   "",   "up", "capability!", "", "loc",
                                    capabilities=DESCRIBED),
    "capabilitylist":        Schema("0.9, 9.2",   "",   "up", "capability!", "", "capability",
                                    capabilities=_LISTED),
    "resourcelist":          Schema("0.9, 4.1",   SPAN, "up", "",        "", "loc"),
    "resourcedump":          Schema("0.9, 5.1",   SPAN, "up", "",        "", "loc"),
    "resourcedump-manifest": Schema("0.9, 5.1.1", SPAN, "up", "path!",   "", "path"),
    "changelist":            Schema("0.9, 6.1",   SPAN, "up", "change!", "lastmod", "", "patch"),
    "changedump":            Schema("0.9, 7.1",   SPAN, "up", "",        "", "loc"),
    "changedump-manifest":   Schema("0.9, 7.1.1", SPAN, "up", "change! path", "lastmod", "path",
                                    "patch"),
}
SITEMAPINDEXES_0_9: Mapping[str, Schema] = {
    name: Schema(clause, SPAN, "up", "capability", "", "loc")
    for name, clause in {
        "resourcesync": "0.9, 9.1", "capabilitylist": "0.9, 9.2", "resourcelist": "0.9, 4.2",
        "resourcedump": "0.9, 5.1", "changelist": "0.9, 6.1", "changedump": "0.9, 7.1",
    }.items()
}
# The draft gives the time of a document in `modified`, and has no navigation.
URLSETS_DRAFT: Mapping[str, Schema] = {
    "capabilitylist":        Schema("Draft of 2013, Figure 8", entry="capability!",
                                    unique="capability", capabilities=_LISTED),
    "resourcelist":          Schema("Draft of 2013, Figure 4", unique="loc"),
    "resourcedump":          Schema("Draft of 2013, 5", unique="loc"),
    "resourcedump-manifest": Schema("Draft of 2013, Figure 5", entry="path!", unique="path"),
    "changelist":            Schema("Draft of 2013, Figure 6", entry="change!",
                                    entry_links="patch"),
    "changedump":            Schema("Draft of 2013, 5", unique="loc"),
    "changedump-manifest":   Schema("Draft of 2013, Figure 7", entry="change! path",
                                    entry_links="patch"),
}
# fmt: on
ARCHIVES_DRAFT = {name: Schema("Draft of 2013, 5", unique="loc") for name in URLSETS_DRAFT}

EDITIONS: Mapping[Edition, Mapping[Root, Mapping[str, Schema]]] = {
    "1.1": SCHEMAS,
    "0.9": {"urlset": URLSETS_0_9, "sitemapindex": SITEMAPINDEXES_0_9},
    "draft of 2013": {"urlset": URLSETS_DRAFT, "sitemapindex": ARCHIVES_DRAFT},
    "0.8": {"urlset": {}, "sitemapindex": {}},
}
MANIFESTS = tuple(
    rows[name]
    for rows in (SCHEMAS["urlset"], URLSETS_0_9, URLSETS_DRAFT)
    for name in ("resourcedump-manifest", "changedump-manifest")
)
"""The rows of documents inside packages."""

_SNAPSHOTS = ("resourcelist", "resourcedump", "resourcedump-manifest")


def as_of_today(data: bytes) -> tuple[bytes, bool]:
    """The document with the namespace of today, and whether it had that of the draft."""
    quoted = ((f"{mark}{DRAFT_NS}{mark}", f"{mark}{RS_NS}{mark}") for mark in "\"'")
    mended = data
    for old, new in quoted:
        mended = mended.replace(old.encode(), new.encode())
    return mended, mended != data


def edition_of(document: Document) -> Edition:
    """The edition of a document in the namespace of today."""
    md, relations = document.md, {link.rel for link in document.links}
    if md is None or md.capability is None:
        return "0.8" if schema_0_8(document) else "1.1"
    is_dated_by_from = md.capability in _SNAPSHOTS and md.from_ is not None and md.at is None
    if md.capability == "resourcesync" or "resourcesync" in relations:
        return "0.9"
    return "0.9" if is_dated_by_from and "up" not in relations else "1.1"


def schema_0_8(document: Document) -> Schema | None:
    """Version 0.8 has no rs:md at the root: its documents are known by their entries."""
    found = [entry.md for entry in document.entries if entry.md is not None]
    if document.root != "urlset" or document.md is not None or not any(md.change for md in found):
        return None
    return FRAMEWORK_0_8 if any(md.capability for md in found) else CHANGE_0_8
