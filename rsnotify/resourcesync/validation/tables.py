"""The specifications' tables: which documents there are, and what each must and may contain.

`SCHEMAS` has one row for every kind of document. It says what is required and what is forbidden;
what is only recommended is left out. `document_rules` and `entry_rules` apply these tables.
"""

from collections.abc import Mapping

import msgspec

from rsnotify.resourcesync.values import CHANGE_TYPES
from rsnotify.resourcesync.xml_writer import Root

MAX_ENTRIES = 50_000
MAX_BYTES = 50 * 1024 * 1024
MAX_LOC_CHARACTERS = 2048
PATCH = "http://www.openarchives.org/rs/terms/patch"

Changes = tuple[str, ...]

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
"""What a framework notification may tell of: which changes of which documents."""

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
