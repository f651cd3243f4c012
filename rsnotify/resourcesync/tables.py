"""The specifications' tables: which documents there are, and what each must and may contain.

`SCHEMAS` has one row for every kind of document. It says what is required and what is forbidden;
what is only recommended is left out. `document_rules` applies these tables.

The editions that are known are the 1.1 family (core 1.1, Archives, both notifications),
Notification 0.8, the specification 0.9 and the draft of January 2013 (as printed in D-Lib
Magazine). A document is judged by the text of its own edition.

"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from rsnotify.resourcesync.change import CHANGE_TYPES, ChangeKind
from rsnotify.resourcesync.xml_writer import DRAFT_NS, RS_NS, Document, Root

MAX_ENTRIES = 50_000
MAX_BYTES = 50 * 1024 * 1024
MAX_LOC_CHARACTERS = 2048
PATCH = "http://www.openarchives.org/rs/terms/patch"

Changes = tuple[ChangeKind, ...]

LISTS = ("resourcelist", "resourcedump", "changelist", "changedump")
ARCHIVES = tuple(f"{capability}-archive" for capability in LISTS)
CHANNELS = {
    "change-notification": "Change Notification 5",
    "framework-notification": "Framework Notification 5",
}
"""The capabilities that are channels, and the clauses on how a Capability List announces them."""

FRAMEWORK_CHANGES: Mapping[str, Changes] = {
    "resourcelist": ("created", "updated"),
    "resourcedump": ("created",),
    "changelist": ("created", "updated"),
    "changedump": ("created", "updated"),
    "capabilitylist": ("created", "updated", "deleted"),
    "description": ("created", "updated", "deleted"),
    # Archives are named in the text, but the table does not restrict them.
    **dict.fromkeys(ARCHIVES, CHANGE_TYPES),
}
"""What a framework notification may announce: which changes of which documents."""

FRAMEWORK_CHANGES_0_8 = {**FRAMEWORK_CHANGES, "resourcelist": ("created",)}


class Schema(msgspec.Struct, frozen=True):
    """What one kind of document contains: a word is allowed there; `word!` is required."""

    clause: str
    root: str = ""  # attributes of the root's rs:md besides capability
    links: str = ""  # the root's navigation: up, index
    entry: str = ""  # attributes of the entries' rs:md, of those in ENTRY_ATTRIBUTES
    order: str = ""  # what must not run backwards from entry to entry
    unique: str = ""  # what no two entries may share
    entry_links: str = ""  # contents and index: once in an entry; patch: only where it is named
    capabilities: Mapping[str, Changes] = {}  # of the entries, each with the changes it may have


ROOT_ATTRIBUTES = (
    "at",
    "completed",
    "from",
    "until",
    "change",
    "datetime",
    "hash",
    "length",
    "type",
    "encoding",
    "path",
)
ENTRY_ATTRIBUTES = ("at", "completed", "from", "until", "change", "datetime", "capability", "path")
"""The attributes of `rs:md` that may stand only where a row names them."""

# The words that many rows share.
AT, FROM, MOMENT, SPAN = "at! completed", "from! until", "at completed", "from until"
UP, UP_INDEX = "up!", "up! index"
CHANGE, PACKED = "change! datetime", "change! datetime path"
FRAMEWORK = "change! datetime capability!"
DESCRIBED: Mapping[str, Changes] = {"capabilitylist": CHANGE_TYPES}
LISTED: Mapping[str, Changes] = dict.fromkeys((*LISTS, *ARCHIVES, *CHANNELS), CHANGE_TYPES)

# fmt: off
URLSETS: Mapping[str, Schema] = {
    # capability                  clause        root: rs:md     entry:  order, unique, entry_links
    #                                                 and links rs:md
    "description":           Schema("Core 8",     "",   "up index", "capability", "", "loc",
                                  capabilities=DESCRIBED),
    "capabilitylist":        Schema("Core 9",     "",   UP,       "capability!", "", "capability",
                                  capabilities=LISTED),
    "resourcelist":          Schema("Core 10.1",  AT,   UP_INDEX, "",      "", "loc"),
    "resourcedump":          Schema("Core 11.1",  AT,   UP_INDEX, MOMENT,  "", "loc", "contents"),
    "resourcedump-manifest": Schema("Core 11.2",  AT,   UP,       "path!", "", "path"),
    "changelist":            Schema("Core 12.1",  FROM, UP_INDEX, CHANGE,  "datetime", "", "patch"),
    "changedump":            Schema("Core 13.1",  FROM, UP_INDEX, SPAN,    "from", "loc",
                                    "contents"),
    "changedump-manifest":   Schema("Core 13.2",  FROM, UP,       PACKED,  "datetime", "path",
                                  "patch"),
    "resourcelist-archive":  Schema("Archives 3", MOMENT, UP_INDEX, MOMENT,  "", "loc"),
    "resourcedump-archive":  Schema("Archives 4", MOMENT, UP_INDEX, MOMENT,  "", "loc"),
    "changelist-archive":    Schema("Archives 5", SPAN, UP_INDEX, SPAN,    "from", "loc"),
    "changedump-archive":    Schema("Archives 6", SPAN, UP_INDEX, SPAN,    "from", "loc"),
    "change-notification":   Schema("Change Notification 3",
                                  "from! until!",     "up",     CHANGE,  "datetime", "", "patch"),
    "framework-notification": Schema("Framework Notification 3",
                                  SPAN,               "up",     FRAMEWORK, "datetime", "", "index",
                                  FRAMEWORK_CHANGES),
}
SITEMAPINDEXES: Mapping[str, Schema] = {
    "description":           Schema("Core 8",     "",   "up",     "capability", "", "loc"),
    "resourcelist":          Schema("Core 10.2",  AT,   UP,       MOMENT,  "", "loc"),
    "resourcedump":          Schema("Core 11.1",  AT,   UP,       MOMENT,  "", "loc"),
    "changelist":            Schema("Core 12.2",  FROM, UP,       SPAN,    "from", "loc"),
    "changedump":            Schema("Core 13.1",  FROM, UP,       SPAN,    "from", "loc"),
    "resourcelist-archive":  Schema("Archives 3", MOMENT, UP,     MOMENT,  "", "loc"),
    "resourcedump-archive":  Schema("Archives 4", MOMENT, UP,     MOMENT,  "", "loc"),
    "changelist-archive":    Schema("Archives 5", SPAN, UP,       SPAN,    "from", "loc"),
    "changedump-archive":    Schema("Archives 6", SPAN, UP,       SPAN,    "from", "loc"),
}
# Version 0.8 has no rs:md at the root: its documents are known by the shape of their entries.
CHANGE_0_8 = Schema("Notification 0.8, 4",        "",   UP,       CHANGE,  "lastmod", "", "patch")
FRAMEWORK_0_8 = Schema("Notification 0.8, 5",     "",   UP,       FRAMEWORK, "", "", "index",
                     FRAMEWORK_CHANGES_0_8)
# fmt: on

SCHEMAS: Mapping[Root, Mapping[str, Schema]] = {
    "urlset": URLSETS,
    "sitemapindex": SITEMAPINDEXES,
}


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
