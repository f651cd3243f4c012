"""Every rule of the specifications: a document that keeps it, and one that breaks it alone."""

import pytest

from rsnotify.resourcesync.change import Link
from rsnotify.resourcesync.document_rules import check, check_document
from rsnotify.resourcesync.tables import FRAMEWORK_CHANGES, SCHEMAS
from rsnotify.resourcesync.xml_writer import (
    ENTRY,
    RS_NS,
    SITEMAP_NS,
    Document,
    Entry,
    Md,
    Root,
)

HASH = "md5:1584abdf8ebdc9802ac0c6a7402c03b6"
PATCH = "http://www.openarchives.org/rs/terms/patch"
UP = '<rs:ln rel="up" href="http://example.com/up.xml"/>'
AT = 'at="2026-01-02T00:00:00Z" completed="2026-01-02T00:01:00Z"'
SPAN = 'from="2026-01-01T00:00:00Z" until="2026-01-02T00:00:00Z"'
NEXT = 'from="2026-01-02T00:00:00Z" until="2026-01-03T00:00:00Z"'
WHEN = 'datetime="2026-01-01T10:00:00Z"'
LATER = 'datetime="2026-01-01T11:00:00Z"'


def written(root: Root, head: str, *entries: str) -> str:
    tag = ENTRY[root]
    body = "".join(f"<{tag}>{entry}</{tag}>" for entry in entries)
    return f'<{root} xmlns="{SITEMAP_NS}" xmlns:rs="{RS_NS}">{head}{body}</{root}>'


def entry(name: str, md: str = "", more: str = "") -> str:
    return f"<loc>http://example.com/{name}</loc>{f'<rs:md {md}/>' if md else ''}{more}"


def head(capability: str, attributes: str = "", links: str = UP) -> str:
    return f'{links}<rs:md capability="{capability}" {attributes}/>'


DESCRIPTION = written(
    "urlset", head("description", links=""), entry("c1", 'capability="capabilitylist"'), entry("c2")
)
CAPABILITY_LIST = written(
    "urlset",
    head("capabilitylist"),
    entry("r", 'capability="resourcelist"'),
    entry("t", 'capability="change-notification"', '<rs:ln rel="hub" href="http://h.org/"/>'),
)
RESOURCE_LIST = written(
    "urlset",
    head("resourcelist", AT),
    entry("a", f'hash="{HASH}" length="8876" type="text/html" encoding="gzip"')
    + '<rs:ln rel="duplicate" href="http://m.org/a" pri="1" modified="2026-01-01T00:00:00Z"/>',
    "<loc>http://example.com/b</loc><lastmod>2026-01-01</lastmod><changefreq>daily</changefreq>"
    "<priority>0.5</priority>",
)
RESOURCE_LIST_INDEX = written("sitemapindex", head("resourcelist", AT), entry("1", AT), entry("2"))
CONTENTS = '<rs:ln rel="contents" href="http://example.com/m.xml"/>'
RESOURCE_DUMP = written("urlset", head("resourcedump", AT), entry("1.zip", AT, CONTENTS))
RESOURCE_DUMP_INDEX = written("sitemapindex", head("resourcedump", AT), entry("1.xml", AT))
RESOURCE_DUMP_MANIFEST = written(
    "urlset", head("resourcedump-manifest", AT), entry("a", 'path="/a"'), entry("b", 'path="/b"')
)
CHANGE_LIST = written(
    "urlset",
    head("changelist", SPAN),
    entry("a", f'change="created" {WHEN}'),
    entry("b", 'change="updated"'),
    entry("a", f'change="deleted" {LATER}'),
)
CHANGE_LIST_INDEX = written(
    "sitemapindex",
    head("changelist", 'from="2026-01-01T00:00:00Z"'),
    entry("1", SPAN),
    entry("2", 'from="2026-01-02T00:00:00Z"'),
)
CHANGE_DUMP = written("urlset", head("changedump", SPAN), entry("1.zip", SPAN, CONTENTS))
CHANGE_DUMP_INDEX = written("sitemapindex", head("changedump", SPAN), entry("1.xml", SPAN))
CHANGE_DUMP_MANIFEST = written(
    "urlset",
    head("changedump-manifest", SPAN),
    entry("a", f'change="created" path="/a" {WHEN}'),
    entry(
        "a",
        f'change="updated" path="/a2" {LATER}',
        f'<rs:ln rel="{PATCH}" href="http://e.org/p" type="text/x-diff" path="/p"/>',
    ),
    entry("b", 'change="deleted"'),
)
RESOURCE_LIST_ARCHIVE = written("urlset", head("resourcelist-archive"), entry("1", AT))
RESOURCE_DUMP_ARCHIVE = written("urlset", head("resourcedump-archive"), entry("1", AT))
CHANGE_LIST_ARCHIVE = written(
    "urlset", head("changelist-archive"), entry("1", SPAN), entry("2", NEXT)
)
CHANGE_DUMP_ARCHIVE = written("urlset", head("changedump-archive"), entry("1", SPAN))
ARCHIVE_INDEXES = [
    written("sitemapindex", head(capability), entry("1"), entry("2"))
    for capability in SCHEMAS["sitemapindex"]
    if capability.endswith("-archive")
]
CHANGE_NOTIFICATION = written(
    "urlset",
    head("change-notification", SPAN, links=""),
    entry("a", f'change="created" {WHEN}'),
    entry("b", f'change="updated" {LATER}'),
)
INDEX = '<rs:ln rel="index" href="http://example.com/index"/>'
FRAMEWORK_NOTIFICATION = written(
    "urlset",
    head("framework-notification", links=""),
    entry("r", f'change="created" capability="resourcelist" {WHEN}', INDEX),
    entry("c", f'change="updated" capability="changelist" {LATER}'),
)
LASTMOD_0_8 = "<lastmod>2026-01-01T10:00:00Z</lastmod>"
CHANGE_0_8 = written(
    "urlset",
    UP,
    f'<loc>http://example.com/a</loc>{LASTMOD_0_8}<rs:md change="updated"/>',
    "<loc>http://example.com/b</loc><lastmod>2026-01-01T11:00:00Z</lastmod>"
    '<rs:md change="deleted"/>',
)
FRAMEWORK_0_8 = written("urlset", UP, entry("r", 'change="created" capability="resourcelist"'))
SOURCE_DESCRIPTION_INDEX = written("sitemapindex", head("description", links=""), entry("d1"))
EMPTY = written("urlset", head("changelist", 'from="2026-01-01T00:00:00Z"'))

VALID = [
    DESCRIPTION,
    SOURCE_DESCRIPTION_INDEX,
    CAPABILITY_LIST,
    RESOURCE_LIST,
    RESOURCE_LIST_INDEX,
    RESOURCE_DUMP,
    RESOURCE_DUMP_INDEX,
    RESOURCE_DUMP_MANIFEST,
    CHANGE_LIST,
    CHANGE_LIST_INDEX,
    CHANGE_DUMP,
    CHANGE_DUMP_INDEX,
    CHANGE_DUMP_MANIFEST,
    RESOURCE_LIST_ARCHIVE,
    RESOURCE_DUMP_ARCHIVE,
    CHANGE_LIST_ARCHIVE,
    CHANGE_DUMP_ARCHIVE,
    *ARCHIVE_INDEXES,
    CHANGE_NOTIFICATION,
    FRAMEWORK_NOTIFICATION,
    CHANGE_0_8,
    FRAMEWORK_0_8,
    EMPTY,
]


@pytest.mark.parametrize("document", VALID)
def test_a_document_that_keeps_every_rule_has_no_violation(document):
    assert check(document.encode()) == []


def test_there_is_a_valid_document_for_every_row_of_the_tables():
    rows = [(root, capability) for root, tables in SCHEMAS.items() for capability in tables]
    assert all(
        any(f"<{root} " in text and f'<rs:md capability="{capability}"' in text for text in VALID)
        for root, capability in rows
    )


URL1, MD1 = "/urlset/url[1]", "/urlset/url[1]/rs:md"
LONGEST = "http://example.com/" + "x" * 2029

BROKEN = [
    # the kind of document
    (CHANGE_LIST, ' capability="changelist"', "", "Core 7", "/urlset/rs:md/@capability"),
    (CHANGE_LIST, "changelist", "diary", "Core 7", "/urlset/rs:md/@capability"),
    (SOURCE_DESCRIPTION_INDEX, '"description"', '"capabilitylist"', "Core 9", "rs:md/@capability"),
    (RESOURCE_LIST_INDEX, "resourcelist", "resourcedump-manifest", "Core 11.2", "@capability"),
    (
        CHANGE_LIST_INDEX,
        "changelist",
        "change-notification",
        "Change Notification 3",
        "@capability",
    ),
    (
        CHANGE_LIST_INDEX,
        "changelist",
        "framework-notification",
        "Framework Notification 3",
        "@capability",
    ),
    # what the root must have
    (RESOURCE_LIST, f" {AT}", "", "Core 10.1", "/urlset/rs:md/@at"),
    (RESOURCE_LIST_INDEX, f'resourcelist" {AT}', 'resourcelist"', "Core 10.2", "index/rs:md/@at"),
    (RESOURCE_DUMP, f'resourcedump" {AT}', 'resourcedump"', "Core 11.1", "/urlset/rs:md/@at"),
    (RESOURCE_DUMP_INDEX, f'resourcedump" {AT}', 'resourcedump"', "Core 11.1", "rs:md/@at"),
    (RESOURCE_DUMP_MANIFEST, f" {AT}", "", "Core 11.2", "/urlset/rs:md/@at"),
    (CHANGE_LIST, f" {SPAN}", "", "Core 12.1", "/urlset/rs:md/@from"),
    (CHANGE_LIST_INDEX, 'list" from="2026-01-01T00:00:00Z"', 'list"', "Core 12.2", "rs:md/@from"),
    (CHANGE_DUMP, f'changedump" {SPAN}', 'changedump"', "Core 13.1", "/urlset/rs:md/@from"),
    (CHANGE_DUMP_INDEX, f'changedump" {SPAN}', 'changedump"', "Core 13.1", "rs:md/@from"),
    (CHANGE_DUMP_MANIFEST, f" {SPAN}", "", "Core 13.2", "/urlset/rs:md/@from"),
    (CHANGE_NOTIFICATION, SPAN, SPAN[:27], "Change Notification 3", "/urlset/rs:md/@until"),
    (CHANGE_NOTIFICATION, SPAN, SPAN[28:], "Change Notification 3", "/urlset/rs:md/@from"),
    # what it must not have
    (DESCRIPTION, 'n" ', 'n" at="2026-01-01T00:00:00Z" ', "Core 8", "/urlset/rs:md/@at"),
    (CAPABILITY_LIST, 't" ', f't" {SPAN[:27]} ', "Core 9", "/urlset/rs:md/@from"),
    (RESOURCE_LIST, AT, f"{AT} {SPAN[:27]}", "Core 10.1", "/urlset/rs:md/@from"),
    (RESOURCE_DUMP, f'p" {AT}', f'p" {AT} {SPAN[28:]}', "Core 11.1", "/urlset/rs:md/@until"),
    (CHANGE_LIST, SPAN, f"{SPAN} {AT[:25]}", "Core 12.1", "/urlset/rs:md/@at"),
    (
        EMPTY,
        "/></urlset>",
        ' completed="2026-01-01T00:00:00Z"/></urlset>',
        "Core 12.1",
        "@completed",
    ),
    (EMPTY, "/></urlset>", ' change="updated"/></urlset>', "Core 12.1", "/urlset/rs:md/@change"),
    (EMPTY, "/></urlset>", ' length="5"/></urlset>', "Core 12.1", "/urlset/rs:md/@length"),
    (FRAMEWORK_NOTIFICATION, 'n" ', f'n" {AT[:25]} ', "Framework Notification 3", "rs:md/@at"),
    # the links of the root
    (CAPABILITY_LIST, UP, "", "Core 9", "/urlset/rs:ln[@rel='up']"),
    (RESOURCE_LIST, UP, "", "Core 10.1", "/urlset/rs:ln[@rel='up']"),
    (RESOURCE_LIST_INDEX, UP, "", "Core 10.2", "/sitemapindex/rs:ln[@rel='up']"),
    (RESOURCE_DUMP, UP, "", "Core 11.1", "/urlset/rs:ln[@rel='up']"),
    (RESOURCE_DUMP_INDEX, UP, "", "Core 11.1", "/sitemapindex/rs:ln[@rel='up']"),
    (RESOURCE_DUMP_MANIFEST, UP, "", "Core 11.2", "/urlset/rs:ln[@rel='up']"),
    (CHANGE_LIST, UP, "", "Core 12.1", "/urlset/rs:ln[@rel='up']"),
    (CHANGE_LIST_INDEX, UP, "", "Core 12.2", "/sitemapindex/rs:ln[@rel='up']"),
    (CHANGE_DUMP, UP, "", "Core 13.1", "/urlset/rs:ln[@rel='up']"),
    (CHANGE_DUMP_INDEX, UP, "", "Core 13.1", "/sitemapindex/rs:ln[@rel='up']"),
    (CHANGE_DUMP_MANIFEST, UP, "", "Core 13.2", "/urlset/rs:ln[@rel='up']"),
    (RESOURCE_LIST_ARCHIVE, UP, "", "Archives 3", "/urlset/rs:ln[@rel='up']"),
    (RESOURCE_DUMP_ARCHIVE, UP, "", "Archives 4", "/urlset/rs:ln[@rel='up']"),
    (CHANGE_LIST_ARCHIVE, UP, "", "Archives 5", "/urlset/rs:ln[@rel='up']"),
    (CHANGE_DUMP_ARCHIVE, UP, "", "Archives 6", "/urlset/rs:ln[@rel='up']"),
    (ARCHIVE_INDEXES[0], UP, "", "Archives 3", "/sitemapindex/rs:ln[@rel='up']"),
    (CHANGE_0_8, UP, "", "Notification 0.8, 4", "/urlset/rs:ln[@rel='up']"),
    (FRAMEWORK_0_8, UP, "", "Notification 0.8, 5", "/urlset/rs:ln[@rel='up']"),
    (CHANGE_LIST, UP, UP + UP, "Core 12.1", "/urlset/rs:ln[@rel='up']"),
    (CAPABILITY_LIST, UP, UP + INDEX, "Core 9", "/urlset/rs:ln[@rel='index']"),
    (CHANGE_LIST_INDEX, UP, UP + INDEX, "Core 12.2", "/sitemapindex/rs:ln[@rel='index']"),
    (CHANGE_DUMP_MANIFEST, UP, UP + INDEX, "Core 13.2", "/urlset/rs:ln[@rel='index']"),
    # what an entry must have and must not have
    (DESCRIPTION, 'y="capabilitylist"', 'y="resourcelist"', "Core 8", f"{MD1}/@capability"),
    (CAPABILITY_LIST, '<rs:md capability="resourcelist"/>', "", "Core 9", f"{MD1}/@capability"),
    (CAPABILITY_LIST, 'y="resourcelist"', 'y="description"', "Core 9", f"{MD1}/@capability"),
    (RESOURCE_LIST, 'length="', 'change="updated" length="', "Core 10.1", f"{MD1}/@change"),
    (RESOURCE_LIST, 'length="', f'{WHEN} length="', "Core 10.1", f"{MD1}/@datetime"),
    (RESOURCE_LIST, 'length="', 'path="/a" length="', "Core 10.1", f"{MD1}/@path"),
    (RESOURCE_LIST, 'length="', f'{AT[:25]} length="', "Core 10.1", f"{MD1}/@at"),
    (
        RESOURCE_LIST_INDEX,
        f"1</loc><rs:md {AT}",
        f"1</loc><rs:md {SPAN[28:]}",
        "Core 10.2",
        "@until",
    ),
    (RESOURCE_DUMP_MANIFEST, '<rs:md path="/a"/>', "", "Core 11.2", f"{MD1}/@path"),
    (CHANGE_LIST, 'change="created" ', "", "Core 12.1", f"{MD1}/@change"),
    (CHANGE_LIST, '<rs:md change="updated"/>', "", "Core 12.1", "/urlset/url[2]/rs:md/@change"),
    (CHANGE_LIST, WHEN, f'{WHEN} capability="resourcelist"', "Core 12.1", f"{MD1}/@capability"),
    (CHANGE_NOTIFICATION, WHEN, f'{WHEN} path="/a"', "Change Notification 3", f"{MD1}/@path"),
    (
        CHANGE_DUMP,
        f"zip</loc><rs:md {SPAN}",
        f"zip</loc><rs:md {AT[:25]}",
        "Core 13.1",
        f"{MD1}/@at",
    ),
    (CHANGE_DUMP_MANIFEST, ' path="/a"', "", "Core 13.2", f"{MD1}/@path"),
    (CHANGE_DUMP_MANIFEST, '"deleted"', '"deleted" path="/b"', "Core 13.2", "url[3]/rs:md/@path"),
    (CHANGE_NOTIFICATION, 'change="created" ', "", "Change Notification 3", f"{MD1}/@change"),
    (FRAMEWORK_NOTIFICATION, 'change="created" ', "", "Framework Notification 3", f"{MD1}/@change"),
    (
        FRAMEWORK_NOTIFICATION,
        'capability="resourcelist"',
        "",
        "Framework Notification 3",
        f"{MD1}/@capability",
    ),
    (CHANGE_0_8, LASTMOD_0_8, "", "Notification 0.8, 4", f"{URL1}/lastmod"),
    (CHANGE_0_8, ' change="updated"', "", "Notification 0.8, 4", f"{MD1}/@change"),
    # which changes of which documents
    (FRAMEWORK_0_8, "created", "updated", "Notification 0.8, 5", f"{MD1}/@change"),
    (FRAMEWORK_NOTIFICATION, "created", "deleted", "Framework Notification 3", f"{MD1}/@change"),
    (
        FRAMEWORK_NOTIFICATION,
        '"resourcelist"',
        '"change-notification"',
        "Framework Notification 3",
        f"{MD1}/@capability",
    ),
    (
        FRAMEWORK_NOTIFICATION,
        "com/c<",
        "com/index<",
        "Framework Notification 3",
        "/urlset/url[2]/loc",
    ),
    (
        FRAMEWORK_NOTIFICATION,
        INDEX,
        INDEX * 2,
        "Framework Notification 3",
        f"{URL1}/rs:ln[@rel='index']",
    ),
    # how channels are announced
    (
        CAPABILITY_LIST,
        'rel="hub"',
        'rel="via"',
        "Change Notification 5",
        "url[2]/rs:ln[@rel='hub']",
    ),
    (
        CAPABILITY_LIST,
        'change-notification"/><rs:ln rel="hub"',
        'framework-notification"/><rs:ln rel="via"',
        "Framework Notification 5",
        "url[2]/rs:ln[@rel='hub']",
    ),
    # order, intervals, and what is open
    (CHANGE_LIST, LATER, LATER.replace("11", "09"), "Core 12.1", "/urlset/url[3]"),
    (CHANGE_DUMP_MANIFEST, LATER, LATER.replace("11", "09"), "Core 13.2", "/urlset/url[2]"),
    (CHANGE_NOTIFICATION, LATER, LATER.replace("11", "09"), "Change Notification 3", "url[2]"),
    (
        FRAMEWORK_NOTIFICATION,
        LATER,
        LATER.replace("11", "09"),
        "Framework Notification 3",
        "url[2]",
    ),
    (CHANGE_0_8, "T11:", "T09:", "Notification 0.8, 4", "/urlset/url[2]"),
    (CHANGE_LIST_ARCHIVE, NEXT, NEXT.replace("2026", "2025"), "Archives 5", "/urlset/url[2]"),
    (CHANGE_LIST, WHEN, WHEN.replace("2026", "2025"), "Core 7", f"{MD1}/@datetime"),
    (CHANGE_NOTIFICATION, LATER, LATER.replace("2026", "2027"), "Core 7", "url[2]/rs:md/@datetime"),
    (EMPTY, "/></urlset>", ' until="2025-01-01T00:00:00Z"/></urlset>', "Core 7", "rs:md/@until"),
    (RESOURCE_LIST, "2026-01-02T00:01", "2026-01-01T00:01", "Core 7", "/urlset/rs:md/@completed"),
    (
        CHANGE_LIST_INDEX,
        ' until="2026-01-02T00:00:00Z"',
        "",
        "Core 12.2",
        "sitemap[1]/rs:md/@until",
    ),
    (
        CHANGE_LIST_INDEX,
        'changelist" from',
        'changelist" until="2026-01-09T00:00:00Z" from',
        "Core 12.2",
        "sitemap[2]/rs:md/@until",
    ),
    # once only
    (DESCRIPTION, "com/c2", "com/c1", "Core 8", "/urlset/url[2]"),
    (CAPABILITY_LIST, "change-notification", "resourcelist", "Core 9", "/urlset/url[2]"),
    (RESOURCE_LIST, "com/b", "com/a", "Core 10.1", "/urlset/url[2]"),
    (RESOURCE_LIST_INDEX, "com/2", "com/1", "Core 10.2", "/sitemapindex/sitemap[2]"),
    (
        SOURCE_DESCRIPTION_INDEX,
        "</sitemap>",
        f"</sitemap><sitemap>{entry('d1')}</sitemap>",
        "Core 8",
        "/sitemapindex/sitemap[2]",
    ),
    (RESOURCE_DUMP_MANIFEST, '"/b"', '"/a"', "Core 11.2", "/urlset/url[2]"),
    (CHANGE_DUMP_MANIFEST, "/a2", "/a", "Core 13.2", "/urlset/url[2]"),
    (FRAMEWORK_0_8, "</url>", f"{INDEX * 2}</url>", "Notification 0.8, 5", "rs:ln[@rel='index']"),
    (RESOURCE_DUMP, CONTENTS, CONTENTS * 2, "Core 11.1", f"{URL1}/rs:ln[@rel='contents']"),
    (CHANGE_DUMP, CONTENTS, CONTENTS * 2, "Core 13.1", f"{URL1}/rs:ln[@rel='contents']"),
    # patches
    (RESOURCE_LIST, '"duplicate"', f'"{PATCH}"', "Core 14.4", f"{URL1}/rs:ln[1]/@rel"),
    (CHANGE_DUMP_MANIFEST, ' type="text/x-diff"', "", "Core 14.4", "url[2]/rs:ln[1]/@type"),
    (CHANGE_DUMP_MANIFEST, ' path="/p"', "", "Core 14.4", "url[2]/rs:ln[1]/@path"),
    (RESOURCE_LIST, 'pri="1"', 'path="/a"', "Core 7", f"{URL1}/rs:ln[1]/@path"),
    # single values
    (RESOURCE_LIST, "<loc>http://example.com/b</loc>", "", "Core 7", "/urlset/url[2]/loc"),
    (RESOURCE_LIST, "http://example.com/b", "/b", "Core 7", "/urlset/url[2]/loc"),
    (RESOURCE_LIST, "http://example.com/b", "http:///b", "Core 7", "/urlset/url[2]/loc"),
    (RESOURCE_LIST, "http://example.com/b", "http://e.org/a b", "Core 7", "/urlset/url[2]/loc"),
    (
        RESOURCE_LIST,
        "http://example.com/b",
        LONGEST + "x",
        "Sitemap protocol",
        "/urlset/url[2]/loc",
    ),
    (RESOURCE_LIST, ">2026-01-01<", ">yesterday<", "Core 7", "/urlset/url[2]/lastmod"),
    (RESOURCE_LIST, ">daily<", ">often<", "Core 7", "/urlset/url[2]/changefreq"),
    (RESOURCE_LIST, ">0.5<", ">1.5<", "Sitemap protocol", "/urlset/url[2]/priority"),
    (RESOURCE_LIST, 'at="2026-01-02T00:00:00Z"', 'at="2026-01-02"', "Core 7", "/urlset/rs:md/@at"),
    (CHANGE_LIST, WHEN, 'datetime="2026-02-30T00:00:00Z"', "Core 7", f"{MD1}/@datetime"),
    (CHANGE_LIST, WHEN, 'datetime="2026-01-01T10:00:00"', "Core 7", f"{MD1}/@datetime"),
    (CHANGE_LIST, WHEN, 'datetime="0001-01-01T00:00:00+14:00"', "Core 7", f"{MD1}/@datetime"),
    (CHANGE_LIST, 'change="created"', 'change="made"', "Core 7", f"{MD1}/@change"),
    (RESOURCE_LIST, HASH, HASH[:-1], "Core 7", f"{MD1}/@hash"),
    (RESOURCE_LIST, HASH, HASH[:-1] + "g", "Core 7", f"{MD1}/@hash"),
    (RESOURCE_LIST, HASH, HASH.replace("md5", "crc32"), "Core 7", f"{MD1}/@hash"),
    (RESOURCE_LIST, HASH, HASH[4:], "Core 7", f"{MD1}/@hash"),
    (RESOURCE_LIST, '"8876"', '"-1"', "Core 7", f"{MD1}/@length"),
    (RESOURCE_LIST, '"8876"', '"9 MB"', "Core 7", f"{MD1}/@length"),
    (RESOURCE_LIST, '"text/html"', '"html"', "Core 7", f"{MD1}/@type"),
    (RESOURCE_LIST, '"1"', '"0"', "Core 7", f"{URL1}/rs:ln[1]/@pri"),
    (RESOURCE_LIST, '"1"', '"1000000"', "Core 7", f"{URL1}/rs:ln[1]/@pri"),
    (RESOURCE_LIST, '"1"', '"first"', "Core 7", f"{URL1}/rs:ln[1]/@pri"),
    (RESOURCE_LIST, '"duplicate"', '"Duplicate copy"', "Core 7", f"{URL1}/rs:ln[1]/@rel"),
    (RESOURCE_LIST, ' rel="duplicate"', "", "Core 7", f"{URL1}/rs:ln[1]/@rel"),
    (RESOURCE_LIST, ' href="http://m.org/a"', "", "Core 7", f"{URL1}/rs:ln[1]/@href"),
    (RESOURCE_LIST, "http://m.org/a", "../a", "Core 7", f"{URL1}/rs:ln[1]/@href"),
    (RESOURCE_LIST, 'modified="2026-01-01T', 'modified="', "Core 7", f"{URL1}/rs:ln[1]/@modified"),
    (RESOURCE_DUMP_MANIFEST, '"/a"', '"a"', "Core 7", f"{MD1}/@path"),
    (RESOURCE_DUMP_MANIFEST, '"/a"', '"/a/"', "Core 7", f"{MD1}/@path"),
    (CHANGE_LIST, WHEN, f'{WHEN} seq="1"', "Core 7", f"{MD1}/@seq"),
    (CHANGE_LIST, WHEN, f"rs:{WHEN}", "Core 7", f"{MD1}/@rs:datetime"),
    # elements
    (
        CHANGE_LIST,
        "<rs:md change",
        "<changefreq/><rs:md change",
        "Core 7",
        "/urlset/url[1]/changefreq",
    ),
    (
        RESOURCE_LIST_INDEX,
        "</loc>",
        "</loc><priority>1</priority>",
        "Sitemap protocol",
        "priority",
    ),
    (CHANGE_LIST, "</url>", "<rs:md/></url>", "Core 7", "/"),
    (CHANGE_LIST, "</urlset>", "", "Core 7", "/"),
]


@pytest.mark.parametrize(
    ("valid", "old", "new", "clause", "path"), BROKEN, ids=[f"{row[3]} {row[4]}" for row in BROKEN]
)
def test_breaking_one_rule_is_the_one_violation(valid, old, new, clause, path):
    assert old in valid
    found = check(valid.replace(old, new, 1).encode())
    assert [(one.clause, one.path.endswith(path)) for one in found] == [(clause, True)], found


DIGEST_43 = "f4OxZX_x_FO5LcGBSKHWXfwtSx-j1ncoSt3SABJtkGk"
PATCH_LINK = f'<rs:ln rel="{PATCH}" href="http://e.org/p" type="text/x-diff"/>'
ALSO_VALID = [
    (RESOURCE_LIST, "http://example.com/b", LONGEST),
    (RESOURCE_LIST, "http://example.com/b", "http://example.com/\u00e9?a=1&amp;b=%20"),
    (RESOURCE_LIST, "http://example.com/b", "urn:nbn:de:101:1-201102033592"),
    (RESOURCE_LIST, ">2026-01-01<", ">2026<"),
    (RESOURCE_LIST, ">2026-01-01<", ">2026-01-01T10:00:00.123+01:00<"),
    (RESOURCE_LIST, HASH, f"{HASH}\n   sha-256:{'0aF' * 21}0"),
    (RESOURCE_LIST, HASH, f"sha-256:{DIGEST_43}"),
    (RESOURCE_LIST, "text/html", "application/vnd.ms-excel"),
    (RESOURCE_LIST, "text/html", "text/html; charset=utf-8"),
    (RESOURCE_LIST, '"duplicate"', '"http://www.example.com/relation"'),
    (RESOURCE_LIST, 'length="8876"', 'length=" 0 "'),
    (RESOURCE_LIST, 'length="8876"', 'xmlns:x="urn:x" x:seq="1"'),
    (RESOURCE_LIST, '<rs:ln rel="dup', '<x:any xmlns:x="urn:x"/><rs:ln rel="dup'),
    (RESOURCE_LIST, "T00:01:00", "T00:00:00"),
    (DESCRIPTION, "<rs:md", f"{UP}{INDEX}<rs:md"),
    (SOURCE_DESCRIPTION_INDEX, "<rs:md", f"{UP}<rs:md"),
    (SOURCE_DESCRIPTION_INDEX, "</loc>", '</loc><rs:md capability="description"/>'),
    (RESOURCE_LIST, UP, UP + INDEX),
    (RESOURCE_LIST_ARCHIVE, 'archive" ', f'archive" {AT} '),
    (RESOURCE_DUMP_ARCHIVE, 'archive" ', f'archive" {AT} '),
    (CHANGE_LIST_ARCHIVE, 'archive" ', f'archive" {SPAN} '),
    (CHANGE_DUMP_ARCHIVE, 'archive" ', f'archive" {SPAN} '),
    (FRAMEWORK_NOTIFICATION, 'notification" ', f'notification" {SPAN} '),
    (CHANGE_LIST, LATER, WHEN),
    (CHANGE_LIST, LATER, 'datetime="2026-01-02T00:00:00Z"'),
    (CHANGE_LIST, WHEN, 'datetime="2026-01-01T00:00:00Z"'),
    (CHANGE_LIST, "</url>", f"{PATCH_LINK}</url>"),
    (CHANGE_NOTIFICATION, "</url>", f"{PATCH_LINK}</url>"),
    (CHANGE_0_8, "</url>", f"{PATCH_LINK}</url>"),
]


@pytest.mark.parametrize(("valid", "old", "new"), ALSO_VALID)
def test_what_the_text_allows_is_no_violation(valid, old, new):
    assert old in valid
    assert check(valid.replace(old, new, 1).encode()) == []


INTERVALS: list[tuple[Root, str, str]] = [
    ("sitemapindex", "changelist", SPAN[:27]),
    ("urlset", "changedump", SPAN[:27]),
    ("sitemapindex", "changedump", SPAN[:27]),
    ("urlset", "changelist-archive", SPAN[:27]),
    ("sitemapindex", "changelist-archive", SPAN[:27]),
    ("urlset", "changedump-archive", SPAN[:27]),
    ("sitemapindex", "changedump-archive", SPAN[:27]),
]
SNAPSHOTS: list[tuple[Root, str, str]] = [
    ("urlset", "resourcedump", AT),
    ("sitemapindex", "resourcedump", AT),
    ("urlset", "resourcelist-archive", AT),
    ("sitemapindex", "resourcelist-archive", AT),
    ("urlset", "resourcedump-archive", AT),
    ("sitemapindex", "resourcedump-archive", AT),
]


@pytest.mark.parametrize(("root", "capability", "attributes"), INTERVALS)
def test_lists_with_intervals_stand_oldest_first(root, capability, attributes):
    entries = [entry("1", SPAN), entry("2", NEXT)]
    assert check(written(root, head(capability, attributes), *entries).encode()) == []
    (found,) = check(written(root, head(capability, attributes), *reversed(entries)).encode())
    assert (found.path, found.mend) == (f"/{root}/{ENTRY[root]}[2]", "List the oldest entry first.")


@pytest.mark.parametrize(("root", "capability", "attributes"), INTERVALS + SNAPSHOTS)
def test_a_document_is_listed_once(root, capability, attributes):
    own = AT if attributes == AT else SPAN
    entries = [entry("1", own), entry("2", own)]
    assert check(written(root, head(capability, attributes), *entries).encode()) == []
    (found,) = check(written(root, head(capability, attributes), *entries, entries[0]).encode())
    assert (found.path, found.mend[:8]) == (f"/{root}/{ENTRY[root]}[3]", "Keep one")


def test_a_channel_of_version_0_8_needs_no_hub():
    md = Md(capability="change-notification")
    socket = Entry(loc="ws://example.com/channels/d/change_notification_channel", md=md)
    up = Link(rel="up", href="http://example.com/up.xml")
    document = Document("urlset", Md(capability="capabilitylist"), (up,), (socket,))
    assert check_document(document) == []


@pytest.mark.parametrize("capability", [name for name in FRAMEWORK_CHANGES if "archive" in name])
def test_a_framework_notification_may_be_about_an_archive(capability):
    text = FRAMEWORK_NOTIFICATION.replace('"resourcelist"', f'"{capability}"')
    assert check(text.encode()) == []


def test_a_document_has_at_most_50_000_entries():
    md = Md(capability="changelist", from_="2026-01-01T00:00:00Z")
    up = Link(rel="up", href="http://example.com/up.xml")
    one = Entry(loc="http://example.com/a", md=Md(change="updated"))
    full = Document("urlset", md, (up,), (one,) * 50_000)
    assert check_document(full) == []
    above = Document("urlset", md, (up,), (one,) * 50_001)
    assert [(v.clause, v.path) for v in check_document(above)] == [("Sitemap protocol", "/urlset")]


def test_a_document_has_at_most_50_megabytes():
    assert check(EMPTY.encode(), len(EMPTY)) == []
    longer = check(EMPTY.encode() + b" ", len(EMPTY))
    assert [v.clause for v in longer] == ["Sitemap protocol"]


def test_every_violation_says_how_to_mend_it():
    found = [v for valid, old, new, *_ in BROKEN for v in check(valid.replace(old, new).encode())]
    assert all(one.message and one.mend.endswith(".") for one in found)


def test_two_broken_rules_are_two_violations():
    broken = CHANGE_LIST.replace(UP, "").replace(HASH, "x").replace('"updated"', '"new"')
    paths = [one.path for one in check(broken.encode())]
    assert paths == ["/urlset/rs:ln[@rel='up']", "/urlset/url[2]/rs:md/@change"]
