"""What the lists and manifests of a Source say of its resources, compared with each other.

Rules that hold here: entries are kept in an unnamed SQLite file, never in memory; a snapshot is
compared with changes only where they were read without a gap, and what changed while the snapshot
was taken may be in it or not.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import NamedTuple, Self

from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.document_rules import Violation
from rsnotify.resourcesync.xml_writer import Document, Entry, Md
from rsnotify_client.address import joined
from rsnotify_client.notification import position_of
from rsnotify_client.resource import digests
from rsnotify_mirror.inspection.relations import capability_of, parts_of, span_of

CACHE_KIB = 16 * 1024
NAMED = 10  # of resources for which the same is wrong; the others are counted
EVER = 2**62
SNAPSHOTS = ("resourcelist", "resourcedump")

Found = tuple[str, Violation]
"""A violation, and the document that it is in."""

_TABLES = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
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
_UNCHANGED = """
NOT EXISTS (SELECT 1 FROM state AS later WHERE later.whole = :changes AND later.loc = last.loc
            AND later.time BETWEEN :at AND :end)
"""
_BOTH = f"""
SELECT last.loc, last.change, last.time, last.hash, listed.hash, listed.document
FROM ({_LAST}) AS last LEFT JOIN (SELECT * FROM state WHERE whole = :whole) AS listed
  ON listed.loc = last.loc
WHERE {_UNCHANGED} AND (listed.loc IS NULL) != (last.change = 'deleted')
   OR {_UNCHANGED} AND last.change != 'deleted' AND listed.hash != last.hash
"""  # noqa: S608 - constants
_TWICE = """
SELECT loc, min(document), max(document) FROM state WHERE whole = :whole
GROUP BY loc HAVING min(document) != max(document)
"""
_OTHER_SNAPSHOT = """
SELECT one.loc, one.document, one.hash, other.hash, other.loc IS NULL
FROM (SELECT * FROM state WHERE whole = :whole) AS one
LEFT JOIN (SELECT * FROM state WHERE whole = :other) AS other ON one.loc = other.loc
WHERE (other.loc IS NULL OR one.hash != other.hash)
  AND NOT EXISTS (SELECT 1 FROM state AS between_ WHERE between_.whole = :changes
                  AND between_.loc = one.loc AND between_.time BETWEEN :at AND :end)
"""
_NOT_LISTED = """
SELECT packed.loc, packed.document, packed.time, listed.change, packed.change FROM
  (SELECT * FROM state WHERE whole = :whole AND time BETWEEN :begin AND :end) AS packed
LEFT JOIN (SELECT * FROM state WHERE whole = :changes) AS listed
  ON listed.loc = packed.loc AND listed.time = packed.time
WHERE listed.loc IS NULL OR listed.change != packed.change
"""
_NOT_PACKED = """
SELECT loc, min(time) FROM state
WHERE whole = :changes AND time > :begin AND time < :end
  AND loc NOT IN (SELECT loc FROM state WHERE whole = :whole)
GROUP BY loc
"""
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
        self._stated = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._stated.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._stated.executescript(_TABLES)
        self._stated.execute("BEGIN")

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
                yield from self._listed_twice(whole)
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

    def _listed_twice(self, whole: Whole) -> Iterator[Found]:
        found = (
            (self._url(last), loc, f"{loc} stands in {self._url(first)} already")
            for loc, first, last in self._stated.execute(_TWICE, {"whole": whole.number})
        )
        yield from _named("Core 10.2", found, "Let each resource stand in one part.")

    def _against_changes(
        self, whole: Whole, changes: int, spans: list[tuple[int, int]]
    ) -> Iterator[Found]:
        at = int(whole.begin or 0)
        known = next((begin for begin, end in spans if begin < at <= end), None)
        if known is None:
            return
        end = EVER if whole.end is None else int(whole.end)
        words = {"whole": whole.number, "changes": changes, "at": at, "known": known, "end": end}
        rows = self._stated.execute(_BOTH, words)
        found = (each for row in rows if (each := self._unlike_change(whole, *row)) is not None)
        yield from _named("Core 10.1", found, "List what there was at that time.")

    def _unlike_change(
        self,
        whole: Whole,
        loc: str,
        change: str,
        time: int,
        stated: str | None,
        listed: str | None,
        document: int | None,
    ) -> tuple[str, str, str] | None:
        when = f"at {Position(time)}, before `at` {whole.begin}"
        if document is None:
            missing = f"{loc} was {change} {when}, but is not listed"
            return (whole.url, loc, missing) if whole.is_whole else None
        if change == "deleted":
            return self._url(document), loc, f"{loc} was deleted {when}, but is still listed"
        if _is_other(stated, listed):
            message = f"{loc} was {change} {when}, but is listed with another hash"
            return self._url(document), loc, message
        return None

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
            words = {"whole": here.number, "other": there.number, "changes": changes}
            rows = self._stated.execute(_OTHER_SNAPSHOT, words | {"at": begin, "end": over})
            found = (
                (self._url(document), loc, _unlike_snapshot(loc, there, is_missing=bool(missing)))
                for loc, document, own, stated, missing in rows
                if (there.is_whole if missing else here is one and _is_other(own, stated))
            )
            advice = "Let manifest and list say the same of the same moment."
            yield from _named("Core 11.2", found, advice)

    def _dumped(self, whole: Whole, changes: int, spans: list[tuple[int, int]]) -> Iterator[Found]:
        """A Change Dump's manifests against Change Lists, where both cover the same time."""
        own = (int(whole.begin or 0), EVER if whole.end is None else int(whole.end))
        for span in spans:
            begin, end = max(own[0], span[0]), min(own[1], span[1])
            if begin >= end:
                continue
            words = {"whole": whole.number, "changes": changes, "begin": begin, "end": end}
            found = (
                (self._url(document), loc, _unlike_change_list(loc, time, listed, packed))
                for loc, document, time, listed, packed in self._stated.execute(_NOT_LISTED, words)
            )
            yield from _named("Core 13.2", found, "Let both list the same changes.")
            if whole.is_whole and whole.end is not None:
                missing = (
                    (whole.url, loc, f"{loc} changed at {Position(time)}, but in no manifest")
                    for loc, time in self._stated.execute(_NOT_PACKED, words)
                )
                yield from _named("Core 13.2", missing, "Let both list the same changes.")

    def _url(self, number: int) -> str:
        found = self._stated.execute("SELECT url FROM document WHERE id = ?", (number,)).fetchone()
        return str(found[0])


def _row(url: str, entry: Entry, *, by_lastmod: bool) -> tuple[object, ...]:
    md = entry.md or Md()
    time = position_of(md.datetime) or (position_of(entry.lastmod) if by_lastmod else None)
    loc, stated = joined(url, entry.loc), None if time is None else int(time)
    return loc, md.change, stated, md.hash, md.length, md.path


def _is_other(one: str | None, other: str | None) -> bool:
    first, second = digests(one), digests(other)
    return any(first[name] != second[name] for name in first.keys() & second.keys())


def _unlike_snapshot(loc: str, other: Whole, *, is_missing: bool) -> str:
    if is_missing:
        return f"{loc} is here, but not in {other.url}, and no change says why"
    return f"{loc} has another hash than in {other.url}, and no change says why"


def _unlike_change_list(loc: str, time: int, listed: str | None, packed: str) -> str:
    stated = "has no such change" if listed is None else f"says {listed}"
    return f"{loc} was {packed} at {Position(time)}, but the Change List {stated}"


def _named(clause: str, found: Iterable[tuple[str, str, str]], advice: str) -> Iterator[Found]:
    """The first of these, by document, resource and message; the others are counted."""
    more, last = 0, ""
    for number, (document, loc, message) in enumerate(found):
        if number < NAMED:
            yield document, Violation(clause, f"/urlset/url[loc={loc!r}]", message, advice)
        else:
            more, last = more + 1, document
    if more:
        yield last, Violation(clause, "/urlset", f"the same of {more} more resources", advice)


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
        named = _members(url, parts)
        members = tuple(each for each in named if each in read and _belongs(read[each], document))
        begin, end = span_of(document.md)
        if kind in SNAPSHOTS:
            md = document.md or Md()
            begin, end = position_of(md.at) or begin, position_of(md.completed)
        is_whole = len(members) == len(named)
        yield Whole(next(numbers), url, kind, sets.get(url, ""), members, is_whole, begin, end)


def _belongs(part: Document, whole: Document) -> bool:
    return capability_of(part).removesuffix("-manifest") == capability_of(whole)


def _members(url: str, parts: Mapping[str, list[str]]) -> tuple[str, ...]:
    found, waiting = {url: None}, [url]
    while waiting:
        new = [each for each in parts.get(waiting.pop(), ()) if each not in found]
        found.update(dict.fromkeys(new))
        waiting += new
    return tuple(found)


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
