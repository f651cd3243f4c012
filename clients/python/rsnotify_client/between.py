"""What changed between two lists of a Source's resources: yesterday's sitemap and today's.

Rules that hold here: neither list is ever in memory, however long; nothing is handed on before
both have been read to their ends, so a list that is broken, suddenly empty or cut short deletes
nothing. The parts and pages of a list that is a file are files beside it; those of a list that was
fetched are fetched. Nothing here knows what is sent, or where.
"""

import sqlite3
from collections.abc import Generator, Iterator
from contextlib import closing
from os import PathLike, fspath
from pathlib import Path
from typing import IO, cast
from urllib.parse import unquote, urlsplit

import msgspec

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.change import ELEMENTS, Change, Link, Position
from rsnotify.resourcesync.delete_guard import MAX_DELETE, too_many, wrong_percent
from rsnotify.resourcesync.stream import DocumentStream, Head
from rsnotify.resourcesync.xml_reader import change_of
from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_client.address import joined, wrong_address
from rsnotify_client.answer import cause_of
from rsnotify_client.database import open_scratch
from rsnotify_client.documents import IndexWalk, PageWalk
from rsnotify_client.errors import InvalidArgument
from rsnotify_client.web import Unpacker, Web

PIECE_BYTES = 64 * 1024
DOCUMENT_BYTES = 4 * 1024**3
"""Decompressed; a million entries take 300 MB. It ends what would otherwise never end."""


class Unreadable(Rejected):
    """There is no list at this path or address, or none that may be read."""


def entries_of(place: str, most_bytes: int = DOCUMENT_BYTES) -> Iterator[Entry]:
    """Every entry of the list at a path or URL, or of all lists that it is an index of; no document
    may have more bytes, decompressed."""
    walk = IndexWalk(place, locate=joined if _is_url(place) else _part)
    for each in walk:
        parts = list[str]()
        head = yield from _document(each, parts, most_bytes)
        if head.root == "sitemapindex":
            for wrong in walk.under(parts):
                raise Rejected(wrong)


def _part(index: str, loc: str) -> str:
    """Where a part of an index, or the next page of a list, is that is a file."""
    name = unquote(urlsplit(loc).path).rpartition("/")[2]
    beside = Path(index).parent / name
    if name and beside.exists():
        return str(beside)
    raise Rejected(
        f"{index} names {loc}, but {beside} is not there: keep a list with its parts and pages"
    )


def _document(place: str, parts: list[str], most_bytes: int) -> Generator[Entry, None, Head]:
    """The entries of one document in all its pages; of an index, the parts, which are none."""
    pages = PageWalk(place, joined if _is_url(place) else _part)
    has_more = True
    while has_more:
        has_more = yield from _page(pages, parts, most_bytes)
    return pages.heads[0]


def _page(pages: PageWalk, parts: list[str], most_bytes: int) -> Generator[Entry, None, bool]:
    """The entries of one page; whether there is another one."""
    stream, place = DocumentStream(), pages.url
    try:
        with closing(_opened(place)) as file:
            for entries in _read(stream, file, most_bytes):
                if stream.skipped:
                    raise Rejected(stream.skipped[0])
                if not entries:
                    continue
                pages.check(stream.head)
                if stream.head.root == "sitemapindex":
                    parts += [entry.loc for entry in entries]
                    continue
                if not all(entry.loc for entry in entries):
                    raise Rejected("it has entries without <loc>")
                yield from entries
            found_at, headers = getattr(file, "url", place), getattr(file, "headers", {})
            return pages.turn(stream.head, found_at, headers.get("link", ""))
    except Rejected as error:
        if isinstance(error, Unreadable) or error.detail.startswith(place):
            raise
        raise Rejected(f"{place}: {error.detail}") from None
    except OSError as error:
        raise Rejected(f"cannot read {place}: {cause_of(error)}") from None


def _read(stream: DocumentStream, file: IO[bytes], most_bytes: int) -> Iterator[list[Entry]]:
    total = 0
    for piece in _unpacked(file):
        total += len(piece)
        if total > most_bytes:
            raise Rejected(f"the document is longer than {most_bytes} bytes")
        yield stream.feed(piece)
    yield stream.close()


def _is_url(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def _opened(place: str) -> IO[bytes]:
    if not _is_url(place):
        try:
            return Path(place).open("rb")
        except (OSError, ValueError) as error:
            raise Unreadable(f"cannot read {place}: {cause_of(error)}") from None
    if (wrong := wrong_address(place)) is not None:
        raise Unreadable(f"{place}: {wrong}")
    try:
        answer = Web(None, place).answer(place, {"Accept-Encoding": "gzip"})
    except (Rejected, TryAgain) as error:
        why = getattr(error, "cause", error.detail)
        raise Unreadable(f"cannot read {place}: {why}") from None
    if answer.status != 200:
        answer.close()
        raise Unreadable(f"cannot read {place}: it answered {answer.status}")
    return cast("IO[bytes]", answer)


def _unpacked(file: IO[bytes]) -> Iterator[bytes]:
    """The list without gzip, which its first bytes show, not its name."""
    unpacker = Unpacker()
    while data := file.read(PIECE_BYTES):
        yield from unpacker.feed(data)
    yield from unpacker.close()


TABLES = ("old", "new")
CREATE = "CREATE TABLE %s (loc TEXT, change BLOB);"
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

EntryRow = tuple[str, bytes]


def changes_between(
    old: str | PathLike[str], new: str | PathLike[str], *, max_delete: float = MAX_DELETE
) -> Iterator[Change]:
    """The creates, updates and deletes, in the order of their addresses.

    Each list is a path or a URL of a Resource List or sitemap, of an index of them, or of either
    compressed with gzip. A resource counts as updated if its hashes differ or, where the lists have
    no hash in common, if its `lastmod` or its length does. If more than `max_delete` percent of the
    old list is not in the new one, that is `Rejected`: it may have been cut short.
    """
    if (wrong := wrong_percent(max_delete)) is not None:
        raise InvalidArgument(wrong)
    with closing(open_scratch("".join(CREATE % table for table in TABLES))) as lists:
        for table, place in zip(TABLES, (old, new), strict=True):
            _store(lists, table, place)
        known, gone = lists.execute(COUNT_GONE).fetchone()
        if (refusal := too_many(gone or 0, known, max_delete)) is not None:
            raise Rejected(f"{fspath(new)} would delete {refusal}")
        yield from _merged(*(_in_order(lists, table) for table in TABLES))


def has_changed(old: Change, new: Change) -> bool:
    """Whether two lists state different contents."""
    before, now = _digests(old.hash), _digests(new.hash)
    if common := before.keys() & now.keys():
        return any(before[name] != now[name] for name in common)
    pairs = ((_time(old), _time(new)), (old.length, new.length))
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)


def _digests(text: str | None) -> dict[str, str]:
    return dict(token.split(":", 1) for token in (text or "").lower().split() if ":" in token)


def _time(change: Change) -> str | None:
    """One text for one moment, however it was written."""
    try:
        return change.lastmod and str(Position.parse(change.lastmod))
    except ValueError:
        return change.lastmod


def _store(lists: sqlite3.Connection, table: str, place: str | PathLike[str]) -> None:
    rows = ((entry.loc, _encode(_listed(entry))) for entry in entries_of(fspath(place)))
    lists.executemany(INSERT % table, rows)


def _listed(entry: Entry) -> Change:
    """The entry as a change that creates its resource."""
    links = tuple(map(_link, entry.links))
    found = change_of(Entry(**{name: getattr(entry, name) for name in ELEMENTS}, md=entry.md))
    return msgspec.structs.replace(
        found, change="created", datetime=None, capability=None, links=links
    )


def _link(link: Link) -> Link:
    """Without attributes of other namespaces, which a change does not carry."""
    return Link(**{name: getattr(link, name) for name in Link.__struct_fields__})


def _in_order(lists: sqlite3.Connection, table: str) -> Iterator[EntryRow]:
    """Each address once: the first of several entries counts."""
    last = None
    for loc, change in lists.execute(IN_ORDER % table):
        if loc != last:
            yield loc, change
            last = loc


def _merged(old: Iterator[EntryRow], new: Iterator[EntryRow]) -> Iterator[Change]:
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
            if before[1] != now[1] and has_changed(_decode(before[1]), current := _decode(now[1])):
                yield msgspec.structs.replace(current, change="updated")
            before, now = next(old, None), next(new, None)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Change).decode
