"""What changed between two lists of a Source's resources: yesterday's sitemap and today's.

Rules that hold here: neither list is ever in memory, however long it is; nothing is told before
both have been read to their ends, so a list that is broken, suddenly empty or cut short deletes
nothing. What is sent, and where, is not known here.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from os import PathLike, fspath

import msgspec

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Change, Link
from rsnotify.resourcesync.xml_writer import Entry, Md
from rsnotify_client.change import normal_time
from rsnotify_client.deletions import MAX_DELETE, too_many
from rsnotify_client.listing import entries_of

CACHE_KIB = 16 * 1024
"""What SQLite may keep in memory; the rest of a long list is in a file without a name."""

TABLES = ("old", "new")
CREATE = "CREATE TABLE %s (loc TEXT, change BLOB)"
INSERT = "INSERT INTO %s VALUES (?, ?)"
COUNT_GONE = """
SELECT COUNT(*), SUM(1 - stays)
FROM (
    SELECT MAX(is_old) AS was, MAX(1 - is_old) AS stays
    FROM (SELECT loc, 1 AS is_old FROM old UNION ALL SELECT loc, 0 FROM new)
    GROUP BY loc
)
WHERE was
"""
"""How many the old list has, and how many of these the new one has not; both sorted once."""
IN_ORDER = "SELECT loc, change FROM %s ORDER BY loc, rowid"

Row = tuple[str, bytes]


def changes_between(
    old: str | PathLike[str], new: str | PathLike[str], *, max_delete: float = MAX_DELETE
) -> Iterator[Change]:
    """The creates, updates and deletes, in the order of their addresses.

    Each list is a path or a URL of a Resource List or sitemap, of an index of them, or of either
    compressed with gzip. A resource counts as updated if its hashes differ or, where the lists have
    no hash in common, if its `lastmod` or its length does. If more than `max_delete` percent of the
    old list is not in the new one, that is `Rejected`: it may have been cut short.
    """
    with closing(sqlite3.connect("", isolation_level=None)) as lists:
        lists.execute("PRAGMA journal_mode = OFF")
        lists.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        lists.execute("BEGIN")
        counts = [_store(lists, *each) for each in zip(TABLES, (old, new), strict=True)]
        if counts[0] and not counts[1]:
            raise Rejected(
                f"{fspath(new)} lists nothing, which would delete all {counts[0]} resources; "
                "was it written whole?"
            )
        known, gone = lists.execute(COUNT_GONE).fetchone()
        if (refusal := too_many(gone or 0, known, max_delete)) is not None:
            raise Rejected(f"{fspath(new)} would delete {refusal}")
        yield from _merged(*(_in_order(lists, table) for table in TABLES))


def has_changed(old: Change, new: Change) -> bool:
    """Whether two lists tell of different contents."""
    before, now = _digests(old.hash), _digests(new.hash)
    if common := before.keys() & now.keys():
        return any(before[name] != now[name] for name in common)
    pairs = ((_time(old), _time(new)), (old.length, new.length))
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)


def _digests(text: str | None) -> dict[str, str]:
    return dict(token.split(":", 1) for token in (text or "").lower().split() if ":" in token)


def _time(change: Change) -> str | None:
    return change.lastmod and normal_time(change.lastmod)


def _store(lists: sqlite3.Connection, table: str, place: str | PathLike[str]) -> int:
    """How many entries the list has."""
    lists.execute(CREATE % table)
    rows = ((entry.loc, _encode(_listed(entry))) for entry in entries_of(fspath(place)))
    return lists.executemany(INSERT % table, rows).rowcount


def _listed(entry: Entry) -> Change:
    """What the entry would tell if it were new."""
    md = entry.md or Md()
    return Change(
        loc=entry.loc,
        change="created",
        lastmod=entry.lastmod,
        hash=md.hash,
        length=md.length,
        type=md.type,
        encoding=md.encoding,
        changefreq=entry.changefreq,
        links=tuple(map(_link, entry.links)),
    )


def _link(link: Link) -> Link:
    """Without attributes of other namespaces, which a change does not carry."""
    return Link(**{name: getattr(link, name) for name in Link.__struct_fields__})


def _in_order(lists: sqlite3.Connection, table: str) -> Iterator[Row]:
    """Each address once: the first entry of several counts."""
    last = None
    for loc, change in lists.execute(IN_ORDER % table):
        if loc != last:
            yield loc, change
            last = loc


def _merged(old: Iterator[Row], new: Iterator[Row]) -> Iterator[Change]:
    before, now = next(old, None), next(new, None)
    while before or now:
        if now is None or (before and before[0] < now[0]):
            assert before is not None  # noqa: S101
            yield Change(before[0], "deleted")
            before = next(old, None)
        elif before is None or now[0] < before[0]:
            yield _decode(now[1])
            now = next(new, None)
        else:
            if before[1] != now[1] and has_changed(_decode(before[1]), told := _decode(now[1])):
                yield msgspec.structs.replace(told, change="updated")
            before, now = next(old, None), next(new, None)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Change).decode
