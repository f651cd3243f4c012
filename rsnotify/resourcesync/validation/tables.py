"""The specifications' tables: which documents there are, and what must and may stand in each.

Rules that hold here: one row of `FORMS` for every kind of document; what is mandatory or forbidden
has its place in it, what is only recommended has none.
Nothing here judges: `rules` holds documents against these tables.
"""

from collections.abc import Mapping

import msgspec

from rsnotify.resourcesync.values import CHANGES
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
    **dict.fromkeys(ARCHIVES, CHANGES),  # named in the text, but the table does not restrict them
}
"""What a framework notification may tell of: which changes of which documents."""

FRAMEWORK_CHANGES_0_8 = {**FRAMEWORK_CHANGES, "resourcelist": ("created",)}


class Form(msgspec.Struct, frozen=True):
    """A row: what stands in one kind of document. Of words, `may` stand there and `must!`."""

    clause: str
    root: str = ""  # attributes of the root's rs:md besides capability
    links: str = ""  # the root's navigation: up, index
    entry: str = ""  # attributes of the entries' rs:md, of those in ENTRY_ATTRIBUTES
    order: str = ""  # what must not run backwards from entry to entry
    unique: str = ""  # what no two entries may share
    entry_links: str = ""  # contents and index: once in an entry; patch: only where it is named
    capabilities: Mapping[str, Changes] = {}  # of the entries, each with the changes it may have


ROOT_ATTRIBUTES = (
    *("at", "completed", "from", "until", "change", "datetime"),
    *("hash", "length", "type", "encoding", "path"),
)
ENTRY_ATTRIBUTES = ("at", "completed", "from", "until", "change", "datetime", "capability", "path")
"""The attributes of `rs:md` that may stand only where a row names them."""

# The words that many rows share.
AT, FROM, MOMENT, SPAN = "at! completed", "from! until", "at completed", "from until"
UP, UP_INDEX = "up!", "up! index"
CHANGE, PACKED = "change! datetime", "change! datetime path"
FRAMEWORK = "change! datetime capability!"
DESCRIBED: Mapping[str, Changes] = {"capabilitylist": CHANGES}
LISTED: Mapping[str, Changes] = dict.fromkeys((*LISTS, *ARCHIVES, *CHANNELS), CHANGES)

# fmt: off
URLSETS: Mapping[str, Form] = {
    # capability                  clause        root: rs:md     entry:  order, unique, entry_links
    #                                                 and links rs:md
    "description":           Form("Core 8",     "",   "up index", "capability", "", "loc",
                                  capabilities=DESCRIBED),
    "capabilitylist":        Form("Core 9",     "",   UP,       "capability!", "", "capability",
                                  capabilities=LISTED),
    "resourcelist":          Form("Core 10.1",  AT,   UP_INDEX, "",      "", "loc"),
    "resourcedump":          Form("Core 11.1",  AT,   UP_INDEX, MOMENT,  "", "loc", "contents"),
    "resourcedump-manifest": Form("Core 11.2",  AT,   UP,       "path!", "", "path"),
    "changelist":            Form("Core 12.1",  FROM, UP_INDEX, CHANGE,  "datetime", "", "patch"),
    "changedump":            Form("Core 13.1",  FROM, UP_INDEX, SPAN,    "from", "loc", "contents"),
    "changedump-manifest":   Form("Core 13.2",  FROM, UP,       PACKED,  "datetime", "path",
                                  "patch"),
    "resourcelist-archive":  Form("Archives 3", MOMENT, UP_INDEX, MOMENT,  "", "loc"),
    "resourcedump-archive":  Form("Archives 4", MOMENT, UP_INDEX, MOMENT,  "", "loc"),
    "changelist-archive":    Form("Archives 5", SPAN, UP_INDEX, SPAN,    "from", "loc"),
    "changedump-archive":    Form("Archives 6", SPAN, UP_INDEX, SPAN,    "from", "loc"),
    "change-notification":   Form("Change Notification 3",
                                  "from! until!",     "up",     CHANGE,  "datetime", "", "patch"),
    "framework-notification": Form("Framework Notification 3",
                                  SPAN,               "up",     FRAMEWORK, "datetime", "", "index",
                                  FRAMEWORK_CHANGES),
}
SITEMAPINDEXES: Mapping[str, Form] = {
    "description":           Form("Core 8",     "",   "up",     "capability", "", "loc"),
    "resourcelist":          Form("Core 10.2",  AT,   UP,       MOMENT,  "", "loc"),
    "resourcedump":          Form("Core 11.1",  AT,   UP,       MOMENT,  "", "loc"),
    "changelist":            Form("Core 12.2",  FROM, UP,       SPAN,    "from", "loc"),
    "changedump":            Form("Core 13.1",  FROM, UP,       SPAN,    "from", "loc"),
    "resourcelist-archive":  Form("Archives 3", MOMENT, UP,     MOMENT,  "", "loc"),
    "resourcedump-archive":  Form("Archives 4", MOMENT, UP,     MOMENT,  "", "loc"),
    "changelist-archive":    Form("Archives 5", SPAN, UP,       SPAN,    "from", "loc"),
    "changedump-archive":    Form("Archives 6", SPAN, UP,       SPAN,    "from", "loc"),
}
# Version 0.8 has no rs:md at the root: its documents are known by the shape of their entries.
CHANGE_0_8 = Form("Notification 0.8, 4",        "",   UP,       CHANGE,  "lastmod", "", "patch")
FRAMEWORK_0_8 = Form("Notification 0.8, 5",     "",   UP,       FRAMEWORK, "", "", "index",
                     FRAMEWORK_CHANGES_0_8)
# fmt: on

FORMS: Mapping[Root, Mapping[str, Form]] = {"urlset": URLSETS, "sitemapindex": SITEMAPINDEXES}
