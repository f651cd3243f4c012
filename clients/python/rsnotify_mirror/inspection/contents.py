"""What the lists and manifests of a Source say of its resources, compared with each other.

Rules that hold here: entries are kept in an unnamed SQLite file, never in memory; a snapshot is
compared with changes only where they were read without a gap, and what changed while the snapshot
was taken may be in it or not.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import NamedTuple, Self

from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.document_rules import Violation
from rsnotify.resourcesync.xml_writer import Document, Entry, Md
from rsnotify_client.address import joined
from rsnotify_client.database import open_scratch
from rsnotify_client.notification import position_of
from rsnotify_client.resource import digests
from rsnotify_mirror.inspection.relations import capability_of, parts_of, reached, span_of

NAMED = 10  # of resources for which the same is wrong; the others are counted
EVER = 2**62
SNAPSHOTS = ("resourcelist", "resourcedump")

Found = tuple[str, Violation]
"""A violation, and the document that it is in."""

_TABLES = """
CREATE TABLE document (id INTEGER PRIMARY KEY, url TEXT UNIQUE);
CREATE TABLE stated (document INTEGER, loc TEXT, change TEXT, time INTEGER, hash TEXT,
                     length INTEGER, path TEXT);
CREATE TABLE member (document INTEGER, whole INTEGER, PRIMARY KEY (whole, document));
CREATE TEMP VIEW state AS SELECT whole, stated.* FROM member JOIN stated USING (document);
"""
_LAST = """
SELECT loc, change, time, hash FROM (
  SELECT loc, change, time, hash, whole,
         row_number() OVER (PARTITION BY loc ORDER BY time DESC, rowid DESC) AS place
  FROM (SELECT member.whole, stated.rowid AS rowid, stated.*
        FROM member JOIN stated USING (document))
  WHERE whole = :changes AND time < :at
) WHERE place = 1 AND time >= :known
"""
_SECOND_ENDS = "iif({0} % 1000000, {0}, {0} + 999999)"
"""A time in whole seconds may be any moment of its second: its latest one."""

_UNCHANGED = f"""
NOT EXISTS (SELECT 1 FROM state AS later WHERE later.whole = :changes AND later.loc = last.loc
            AND {_SECOND_ENDS.format("later.time")} >= :at AND later.time <= :end)
"""  # noqa: S608 - constants
Check = tuple[str, str, str]
"""A clause, an advice, and a query for what is against the clause: document, resource, message."""

_UNLIKE_CHANGES: Check = (
    "Core 10.1",
    "List what there was at that time.",
    f"""
SELECT coalesce(url, :url), last.loc, printf('%s was %s at %s, before `at` %s, but is %s', last.loc,
  last.change, moment(last.time), moment(:at), CASE WHEN listed.loc IS NULL THEN 'not listed'
  WHEN last.change = 'deleted' THEN 'still listed' ELSE 'listed with another hash' END)
FROM ({_LAST}) AS last
LEFT JOIN (SELECT * FROM state WHERE whole = :whole) AS listed ON listed.loc = last.loc
LEFT JOIN document ON id = listed.document
WHERE {_UNCHANGED} AND CASE WHEN listed.loc IS NULL THEN last.change != 'deleted' AND :is_whole
  ELSE last.change = 'deleted' OR listed.hash != last.hash AND differ(listed.hash, last.hash) END
""",  # noqa: S608 - constants
)
_TWICE: Check = (
    "Core 10.2",
    "Let each resource stand in one part.",
    """
SELECT last.url, loc, printf('%s stands in %s already', loc, first.url)
FROM (SELECT loc, min(document) AS one, max(document) AS other FROM state WHERE whole = :whole
      GROUP BY loc HAVING one != other)
JOIN document AS first ON first.id = one JOIN document AS last ON last.id = other
""",
)
_UNLIKE_SNAPSHOT: Check = (
    "Core 11.2",
    "Let manifest and list say the same of the same moment.",
    f"""
SELECT url, one.loc, printf('%s %s %s, and no change says why', one.loc,
  iif(other.loc IS NULL, 'is here, but not in', 'has another hash than in'), :there)
FROM (SELECT * FROM state WHERE whole = :whole) AS one JOIN document ON id = one.document
LEFT JOIN (SELECT * FROM state WHERE whole = :other) AS other ON one.loc = other.loc
WHERE CASE WHEN other.loc IS NULL THEN :all_there
           ELSE :compares AND one.hash != other.hash AND differ(one.hash, other.hash) END
  AND NOT EXISTS (SELECT 1 FROM state AS between_ WHERE between_.whole = :changes
                  AND between_.loc = one.loc AND between_.time <= :end
                  AND {_SECOND_ENDS.format("between_.time")} >= :at)
""",  # noqa: S608 - constants
)
_NOT_LISTED: Check = (
    "Core 13.2",
    "Let both list the same changes.",
    """
SELECT url, packed.loc, printf('%s was %s at %s, but the Change List %s', packed.loc,
  packed.change, moment(packed.time), coalesce('says ' || listed.change, 'has no such change'))
FROM (SELECT * FROM state WHERE whole = :whole AND time BETWEEN :at AND :end) AS packed
JOIN document ON id = packed.document
LEFT JOIN (SELECT * FROM state WHERE whole = :changes) AS listed
  ON listed.loc = packed.loc AND listed.time = packed.time
GROUP BY packed.document, packed.loc, packed.time, packed.change
HAVING coalesce(max(listed.change = packed.change), 0) = 0
""",
)
_NOT_PACKED: Check = (
    *_NOT_LISTED[:2],
    f"""
SELECT :url, loc, printf('%s changed at %s, but in no manifest', loc, moment(min(time))) FROM state
WHERE whole = :changes AND time > :at AND {_SECOND_ENDS.format("time")} < :end
  AND loc NOT IN (SELECT loc FROM state WHERE whole = :whole)
GROUP BY loc
""",  # noqa: S608 - constants
)
_UNLIKE = """
SELECT loc, change, time, hash, length, path FROM stated WHERE document = :one
EXCEPT SELECT loc, change, time, hash, length, path FROM stated WHERE document = :other
"""


class Whole(NamedTuple):
    """A list, or an index with all its lists, or a dump with all its manifests."""

    number: int
    url: str
    kind: str
    set: str  # its Capability List, if it is known
    members: tuple[str, ...]
    is_whole: bool  # whether all of it was read
    begin: Position | None  # `at`, or `from`
    end: Position | None  # `completed`, or `until`


class Contents:
    """All entries of all lists."""

    def __init__(self) -> None:
        self._stated = open_scratch(_TABLES, any_thread=True)
        self._stated.create_function("differ", 2, _differ)
        self._stated.create_function("moment", 1, lambda time: str(Position(time)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stated.close()

    def add(self, url: str, entries: Iterable[Entry], *, by_lastmod: bool = False) -> None:
        """Add what a document says; before 1.0, changes have their time in `lastmod`."""
        insert = "INSERT INTO document (url) VALUES (?) ON CONFLICT DO NOTHING"
        if self._stated.execute(insert, (url,)).rowcount < 1:
            return
        number = self._id(url)
        rows = ((number, *_row(url, entry, by_lastmod=by_lastmod)) for entry in entries)
        self._stated.executemany("INSERT INTO stated VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def differ(self, one: str, other: str) -> str | None:
        """A resource that two copies of a manifest describe differently."""
        for pair in ((one, other), (other, one)):
            ids = dict(zip(("one", "other"), map(self._id, pair), strict=True))
            if (found := self._stated.execute(_UNLIKE + "LIMIT 1", ids).fetchone()) is not None:
                return str(found[0])
        return None

    def _id(self, url: str) -> int:
        found = self._stated.execute("SELECT id FROM document WHERE url = ?", (url,)).fetchone()
        return int(found[0]) if found else 0

    # All of them together -----------------------------------------------------------------------

    def compared(self, read: Mapping[str, Document], sets: Mapping[str, str]) -> Iterator[Found]:
        """What does not fit; `sets` is the Capability List of each document."""
        self._stated.execute("CREATE INDEX IF NOT EXISTS by_document ON stated (document, loc)")
        self._stated.execute("CREATE INDEX IF NOT EXISTS by_loc ON stated (loc, time)")
        wholes = list(_wholes(read, sets))
        for whole in wholes:
            self._group(whole.number, whole.members)
        for whole in wholes:
            if whole.kind in SNAPSHOTS:
                yield from self._look(_TWICE, whole)
        for number, each in enumerate(sorted({whole.set for whole in wholes}), len(wholes) + 1):
            found = [whole for whole in wholes if whole.set == each]
            lists = [url for whole in found if whole.kind == "changelist" for url in whole.members]
            self._group(number, lists)
            yield from self._of_set(found, number, _covered(lists, read))

    def _group(self, number: int, urls: Iterable[str]) -> None:
        rows = ((self._id(url), number) for url in urls)
        self._stated.executemany("INSERT OR IGNORE INTO member VALUES (?, ?)", rows)

    def _of_set(
        self, wholes: list[Whole], changes: int, spans: list[tuple[int, int]]
    ) -> Iterator[Found]:
        snapshots = [each for each in wholes if each.kind in SNAPSHOTS and each.begin is not None]
        for whole in snapshots:
            yield from self._against_changes(whole, changes, spans)
        for one in (each for each in snapshots if each.kind == "resourcedump"):
            for other in (each for each in snapshots if each.kind == "resourcelist"):
                yield from self._against_snapshot(one, other, changes, spans)
        for whole in wholes:
            if whole.kind == "changedump":
                yield from self._dumped(whole, changes, spans)

    def _against_changes(
        self, whole: Whole, changes: int, spans: list[tuple[int, int]]
    ) -> Iterator[Found]:
        at = int(whole.begin or 0)
        known = next((begin for begin, end in spans if begin < at <= end), None)
        if known is not None:
            end = EVER if whole.end is None else int(whole.end)
            words = {"changes": changes, "at": at, "known": known, "end": end}
            yield from self._look(_UNLIKE_CHANGES, whole, **words)

    def _against_snapshot(
        self, one: Whole, other: Whole, changes: int, spans: list[tuple[int, int]]
    ) -> Iterator[Found]:
        """A Resource Dump's manifests against a Resource List, where changes between are known."""
        begin, end = sorted((int(one.begin or 0), int(other.begin or 0)))
        if begin != end and not any(first <= begin and end <= last for first, last in spans):
            return
        taken = [each.end for each in (one, other)]
        over = EVER if None in taken else max(end, *(int(each or 0) for each in taken))
        for here, there in ((one, other), (other, one)):
            words = {"other": there.number, "there": there.url, "all_there": there.is_whole}
            words |= {"changes": changes, "at": begin, "end": over, "compares": here is one}
            yield from self._look(_UNLIKE_SNAPSHOT, here, **words)

    def _dumped(self, whole: Whole, changes: int, spans: list[tuple[int, int]]) -> Iterator[Found]:
        """A Change Dump's manifests against Change Lists, where both cover the same time."""
        own = (int(whole.begin or 0), EVER if whole.end is None else int(whole.end))
        for span in spans:
            begin, end = max(own[0], span[0]), min(own[1], span[1])
            if begin < end:
                words = {"changes": changes, "at": begin, "end": end}
                yield from self._look(_NOT_LISTED, whole, **words)
                if whole.is_whole and whole.end is not None:
                    yield from self._look(_NOT_PACKED, whole, **words)

    def _look(self, check: Check, whole: Whole, **words: object) -> Iterator[Found]:
        """The first that it finds, by document, resource and message; the others are counted."""
        clause, advice, query = check
        own = {"whole": whole.number, "url": whole.url, "is_whole": whole.is_whole}
        more, last = 0, ""
        for number, (url, loc, message) in enumerate(self._stated.execute(query, own | words)):
            if number < NAMED:
                yield url, Violation(clause, f"/urlset/url[loc={loc!r}]", message, advice)
            else:
                more, last = more + 1, url
        if more:
            yield last, Violation(clause, "/urlset", f"the same of {more} more resources", advice)


def _row(url: str, entry: Entry, *, by_lastmod: bool) -> tuple[object, ...]:
    md = entry.md or Md()
    time = position_of(md.datetime) or (position_of(entry.lastmod) if by_lastmod else None)
    loc, stated = joined(url, entry.loc), None if time is None else int(time)
    return loc, md.change, stated, md.hash, md.length, md.path


def _differ(one: str | None, other: str | None) -> bool:
    first, second = digests(one), digests(other)
    return any(first[name] != second[name] for name in first.keys() & second.keys())


def _wholes(read: Mapping[str, Document], sets: Mapping[str, str]) -> Iterator[Whole]:
    parts = {url: parts_of(url, document) for url, document in read.items()}
    below = {
        part
        for url, named in parts.items()
        for part in named
        if part != url and part in read and _belongs(read[part], read[url])
    }
    numbers = count(1)
    for url, document in read.items():
        kind = capability_of(document)
        if url in below or kind not in (*SNAPSHOTS, "changelist", "changedump"):
            continue
        named = reached(url, parts)
        members = tuple(each for each in named if each in read and _belongs(read[each], document))
        begin, end = span_of(document.md)
        if kind in SNAPSHOTS:
            md = document.md or Md()
            begin, end = position_of(md.at) or begin, position_of(md.completed)
        is_whole = len(members) == len(named)
        yield Whole(next(numbers), url, kind, sets.get(url, ""), members, is_whole, begin, end)


def _belongs(part: Document, whole: Document) -> bool:
    return capability_of(part).removesuffix("-manifest") == capability_of(whole)


def _covered(lists: Iterable[str], read: Mapping[str, Document]) -> list[tuple[int, int]]:
    """From when to when Change Lists have every change; an open one to the end."""
    spans = sorted(
        (int(begin), EVER if until is None else int(until))
        for url in lists
        if url in read and read[url].root == "urlset"
        for begin, until in (span_of(read[url].md),)
        if begin is not None
    )
    found: list[tuple[int, int]] = []
    for begin, end in spans:
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found
