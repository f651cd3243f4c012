"""What bridges know, in one SQLite file: each Source's resources, and batches not published yet.

Rules that hold here: what a Source has changes in one transaction with the batch that says so, so a
process that is killed anywhere goes on without fetching again and without publishing twice. One
process at a time holds the file; any other may read how the bridges are.
"""

import os
import secrets
import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from time import time
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import Change, as_ascii
from rsnotify_bridge.rules import change_between, is_same, with_entry
from rsnotify_bridge.sources import Parts, Piece
from rsnotify_client.database import CACHE_KIB, checked, format_of, keep, open_file, unusable
from rsnotify_client.locks import lock_beside

FORMAT = 2
ANEW = "if it is a bridge's, move it away: the bridge then begins anew, and deletes nothing"
BATCH = 1_000
LOOKED_UP = 500
SCHEMA = """
CREATE TABLE bridge (
    id INTEGER PRIMARY KEY, source TEXT, hub TEXT, set_name TEXT, epoch TEXT,
    batches INTEGER DEFAULT 0, released INTEGER DEFAULT 0, facts BLOB, parts BLOB DEFAULT x'80',
    UNIQUE (source, hub, set_name)
);
CREATE TABLE entry (
    id INTEGER PRIMARY KEY, bridge INTEGER, key TEXT, loc TEXT, part INTEGER, body BLOB
);
CREATE UNIQUE INDEX entry_key ON entry (bridge, key);
CREATE INDEX entry_loc ON entry (loc) WHERE loc IS NOT NULL;
CREATE TABLE waiting (bridge INTEGER, number INTEGER, body BLOB, PRIMARY KEY (bridge, number));
CREATE TABLE held (bridge INTEGER, key TEXT, PRIMARY KEY (bridge, key));
"""
REFUSED = """
CREATE TABLE IF NOT EXISTS refused (
    bridge INTEGER, loc TEXT, body BLOB, why TEXT, PRIMARY KEY (bridge, loc)
);
"""
FIND = "SELECT id, key, part, body FROM entry WHERE bridge = ? AND key IN (%s)"
OTHERS = """
SELECT entry.body, bridge.facts FROM entry JOIN bridge ON bridge.id = entry.bridge
WHERE bridge.hub = :hub AND bridge.set_name = :set AND entry.id != :id
AND entry.id IN (
    SELECT id FROM entry WHERE loc = :loc
    UNION SELECT entry.id FROM entry JOIN bridge ON bridge.id = entry.bridge
    WHERE bridge.hub = :hub AND bridge.set_name = :set AND key = :loc AND loc IS NULL
)
"""


Read = TypeVar("Read")


def batched(all_: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (all_[at : at + size] for at in range(0, len(all_), size))


def reader(decoded: Callable[[bytes], Read]) -> Callable[[bytes], Read]:
    """What reads a field of the file: what it cannot read is damaged, as SQLite says it."""

    def read(field: bytes) -> Read:
        try:
            return decoded(field)
        except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
            raise sqlite3.DatabaseError(f"a field of it is damaged: {error}") from None

    return read


Refusal = tuple[Change, str]
"""A change that the hub does not take, and why."""

encode = msgspec.msgpack.Encoder().encode
decode = reader(msgspec.msgpack.Decoder(Change).decode)


class Facts(msgspec.Struct):
    """How one bridge is, as it was known last."""

    how: str = ""  # it is followed
    by_site: bool | None = None  # whether its site led to it; None: that was not recorded yet
    via: str = ""  # the Source's own address
    cursor: str | None = None
    is_read: bool = False  # the whole state was read once
    is_loaded: bool = False  # and the hub has it
    as_of: str | None = None  # the position of the set before the state was read
    interval: float = 0.0
    looked_at: float | None = None
    read_at: float | None = None  # when all was read that the Source said
    compared_at: float | None = None
    changed_at: float | None = None
    lag_seconds: float | None = None  # from a change's own time to when it was published
    loaded: int = 0  # resources of the last load, which are not published change by change
    published: int = 0
    refused: int = 0
    refused_at: float | None = None
    looks: int = 0
    failures: int = 0  # one after the other
    failed: int = 0  # in all
    error: str | None = None
    error_at: float | None = None
    held: str | None = None
    asked_for: str = ""  # the key of the missing resource up to which all were asked for
    held_changes: bool = False  # deletions that it said one by one; else what a list left out
    skipped: str | None = None
    short: str | None = None  # the whole state that was read last
    at: str | None = None  # the moment of the last list that was believed, as it says
    clock: str | None = None  # how far the Source's is off

    @property
    def is_well(self) -> bool:
        """Whether all was read that the Source said when it was looked at last, and believed."""
        return self.read_at is not None and not (self.error or self.held or self.skipped)


read_facts = reader(msgspec.json.Decoder(Facts).decode)
read_parts = reader(msgspec.msgpack.Decoder(Parts).decode)
read_batch = reader(msgspec.json.Decoder(list[Change]).decode)


class Known(NamedTuple):
    """What is known of one resource of a Source."""

    id: int
    key: str
    part: int
    body: bytes


GONE = Change("", "deleted")
"""A resource that the Source has no longer, of which it says nothing else."""


class BridgeStore:
    """The file; one connection for all its bridges."""

    def __init__(self, path: Path, *, is_writer: bool = True) -> None:
        self.path = path
        self._lock = lock_beside(path, "bridge") if is_writer else None
        if not is_writer and not path.exists():
            raise InvalidSettings(f"{path} is not there: no bridge has run with it yet")
        with self.checked():
            self.database = open_file(path, mode="rwc" if is_writer else "rw")
            try:
                self._prepare(is_writer=is_writer)
            except BaseException:
                self.close()
                raise

    def _prepare(self, *, is_writer: bool) -> None:
        run = self.database.execute
        run(f"PRAGMA cache_size = -{CACHE_KIB}")
        run("PRAGMA temp_store = FILE")
        self.database.create_function("as_ascii", 1, as_ascii, deterministic=True)
        version = format_of(self.database, self.path, FORMAT)
        (tables,) = run("SELECT COUNT(*) FROM sqlite_master").fetchone()
        if version not in (0, FORMAT):
            raise InvalidSettings(
                f"{self.path} was written by an older version of rsnotify: {ANEW}"
            )
        if version == 0 and (tables or not is_writer):
            raise sqlite3.DatabaseError("no bridge has written it")
        if is_writer:
            keep(self.database)
            if version == 0:
                whole = f"BEGIN; {SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;"
                self.database.executescript(whole)
            run(REFUSED)  # a file of before has none

    def problem(self, error: sqlite3.Error) -> str:
        """What is wrong with the file, and what to do."""
        return unusable(self.path, error, ANEW)

    def checked(self) -> AbstractContextManager[None]:
        return checked(self.path, ANEW)

    def close(self) -> None:
        self.database.close()
        if self._lock is not None:
            os.close(self._lock)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.database.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self.database.execute("ROLLBACK")
            raise

    def bridge(self, source: str, hub: str, set_name: str) -> "BridgeMemory":
        self.database.execute(
            "INSERT OR IGNORE INTO bridge (source, hub, set_name, epoch, facts)"
            " VALUES (?, ?, ?, ?, ?)",
            (source, hub, set_name, secrets.token_hex(8), msgspec.json.encode(Facts())),
        )
        return self._found("(source, hub, set_name) = (?, ?, ?)", source, hub, set_name)[0]

    def move(self, old: str, new: str, hub: str, set_name: str) -> None:
        """The Source of this bridge is at another address now; all of it is compared there."""
        found = self._found("(source, hub, set_name) = (?, ?, ?)", old, hub, set_name)
        others = self._found("(source, hub, set_name) = (?, ?, ?)", new, hub, set_name)
        if others and not found:
            return  # it was said before
        if not found or others:
            why = f"there is one from {new} already" if found else f"none is from {old}"
            raise InvalidSettings(f"{self.path}: of the bridges to {set_name} {why}")
        facts = replace(found[0].facts, at=None, compared_at=None, via="", how="")
        update = "UPDATE bridge SET source = ?, parts = x'80', facts = ? WHERE id = ?"
        self.database.execute(update, (new, msgspec.json.encode(facts), found[0].id))

    def all(self) -> list["BridgeMemory"]:
        return self._found("true ORDER BY id")

    def _found(self, where: str, *values: str) -> list["BridgeMemory"]:
        fields = "id, source, hub, set_name, epoch, facts"
        rows = self.database.execute(f"SELECT {fields} FROM bridge WHERE {where}", values)  # noqa: S608
        return [BridgeMemory(self, *row) for row in rows.fetchall()]


class BridgeMemory:
    """What one bridge knows."""

    def __init__(self, memory: BridgeStore, *row: Any) -> None:
        self._memory = memory
        self._run = memory.database.execute
        self.id, self.source, self.hub, self.set_name, self.epoch, facts = row
        self.facts = read_facts(facts)
        self._aliases = self._count("entry WHERE bridge = ? AND loc IS NOT NULL") > 0
        self._has_others = False

    def _count(self, what: str) -> int:
        found: int = self._run(f"SELECT COUNT(*) FROM {what}", (self.id,)).fetchone()[0]  # noqa: S608
        return found

    def save(self, facts: Facts | None = None) -> None:
        encoded = msgspec.json.encode(facts or self.facts)
        self._run("UPDATE bridge SET facts = ? WHERE id = ?", (encoded, self.id))

    # What the Source has ----------------------------------------------------------------------

    @property
    def known(self) -> int:
        return self._count("entry WHERE bridge = ?")

    @property
    def resources(self) -> int:
        """As the hub has them: several entries may be of one."""
        if not self._aliases:
            return self.known
        query = "SELECT COUNT(DISTINCT as_ascii(COALESCE(loc, key))) FROM entry WHERE bridge = ?"
        found: int = self._run(query, (self.id,)).fetchone()[0]
        return found

    @property
    def highest(self) -> int:
        """The highest number of an entry."""
        found: int = self._run("SELECT COALESCE(MAX(id), 0) FROM entry").fetchone()[0]
        return found

    def find(self, keys: Sequence[str]) -> dict[str, Known]:
        """What is known of these."""
        found: dict[str, Known] = {}
        for some in batched(keys, LOOKED_UP):
            marks = ",".join("?" * len(some))
            found |= {row[1]: Known(*row) for row in self._run(FIND % marks, (self.id, *some))}
        return found

    def unread(self, piece: Piece) -> list[Change]:
        """The changes of a piece of the first state whose resources were in no piece so far."""
        known = self.find([key for key, _ in piece.entries])
        return [change for key, change in piece.entries if key not in known]

    def loc_of(self, key: str) -> str | None:
        """The address of a resource that is known."""
        known = self.find([key]).get(key)
        return None if known is None else decode(known.body).loc

    def numbers(self) -> Iterator[tuple[int, str, int]]:
        """The number, key and part of every entry."""
        yield from self._run("SELECT id, key, part FROM entry WHERE bridge = ?", (self.id,))

    def move(self, moved: Iterable[tuple[int, int]]) -> None:
        """These entries are in other parts of the Source's list now."""
        with self._memory.transaction():
            self._memory.database.executemany("UPDATE entry SET part = ? WHERE id = ?", moved)

    def insert(self, piece: Piece, *, is_newer: bool = False) -> None:
        """Of the first state, which is not published change by change.

        Of several entries with one key the first counts, or the last where they are newer.
        """
        entries = [*dict(piece.entries).items()] if is_newer else piece.entries
        rows = [
            (self.id, key, None if change.loc == key else change.loc, piece.part, encode(change))
            for key, change in entries
            if change.change != "deleted"
        ]
        self._aliases |= any(loc is not None for _, _, loc, _, _ in rows)
        run_all = self._memory.database.executemany
        with self._memory.transaction():
            if is_newer:
                keys = ((self.id, key) for key, _ in entries)
                run_all("DELETE FROM entry WHERE bridge = ? AND key = ?", keys)
            run_all("INSERT OR IGNORE INTO entry (bridge, key, loc, part, body)"
                    " VALUES (?, ?, ?, ?, ?)", rows)  # fmt: skip

    def apply(self, piece: Piece) -> int:
        """Record what the Source has now, and what of that is to be published; how much that is."""
        with self._memory.transaction():
            self._has_others = self._aliases or self.is_shared
            changes: list[Change] = []
            for some in batched(piece.entries, LOOKED_UP):
                found = self.find([*{key for key, _ in some}])
                for key, change in some:
                    changes += self._apply(key, change, piece.part, found)
            for batch in batched(changes, BATCH):
                self._wait(batch)
            cursor = piece.cursor or self.facts.cursor
            self.save(replace(self.facts, cursor=cursor))
        self.facts.cursor = cursor  # not before the file has it: a disk may be full
        return len(changes)

    def _apply(
        self, key: str, change: Change, part: int, found: dict[str, Known]
    ) -> Iterator[Change]:
        known = found.get(key)
        before = None if known is None else decode(known.body)
        is_gone = change.change == "deleted"
        after = None if is_gone else replace(change, change="created")
        if before is not None and after is not None and is_same(before.loc, after.loc):
            after = replace(after, loc=before.loc)  # as it was published
        is_moved = before is not None and after is not None and before.loc != after.loc
        if before is not None and (after is None or is_moved):
            others = self._others(before.loc, known)
            yield from self._published(before, None, others, change if is_gone else GONE)
        if after is not None:
            old = None if is_moved else before
            yield from self._published(old, after, self._others(after.loc, known), GONE)
        self._run("DELETE FROM held WHERE bridge = ? AND key = ?", (self.id, key))
        if after is None:
            self._run("DELETE FROM entry WHERE bridge = ? AND key = ?", (self.id, key))
            found.pop(key, None)
        elif before is None or is_moved or change_between(before, after, ()) is not None:
            self._record(key, after, part, found)

    @staticmethod
    def _published(
        before: Change | None, after: Change | None, others: list[Change], gone: Change
    ) -> Iterator[Change]:
        """What is published; of a deletion in the Source's own words, if it has any."""
        change = change_between(before, after, others)
        if change is not None:
            is_said = change.change == "deleted" and gone != GONE
            yield replace(gone, loc=change.loc) if is_said else change

    def _others(self, loc: str, known: Known | None) -> list[Change]:
        """What other Sources of the set say of it, or other records of this one."""
        if not self._has_others:
            return []
        id_ = -1 if known is None else known.id
        rows = self._run(OTHERS, {"hub": self.hub, "set": self.set_name, "id": id_, "loc": loc})
        return [with_entry(decode(body), read_facts(facts).via) for body, facts in rows]

    @property
    def is_shared(self) -> bool:
        """Whether other bridges of this file publish to the same set."""
        count = "SELECT COUNT(*) FROM bridge WHERE hub = ? AND set_name = ?"
        return bool(self._run(count, (self.hub, self.set_name)).fetchone()[0] > 1)

    def _record(self, key: str, change: Change, part: int, found: dict[str, Known]) -> None:
        loc = None if change.loc == key else change.loc
        self._aliases |= loc is not None
        self._has_others |= self._aliases
        body = encode(change)
        row = self._run(
            "INSERT INTO entry (bridge, key, loc, part, body) VALUES (?, ?, ?, ?, ?) ON CONFLICT"
            " (bridge, key) DO UPDATE SET loc = excluded.loc, part = excluded.part,"
            " body = excluded.body RETURNING id",
            (self.id, key, loc, part, body),
        ).fetchone()
        found[key] = Known(row[0], key, part, body)

    def states(self, published: Callable[[Change], Change | None]) -> Generator[Change, None, None]:
        """All that the Source has as it is published, by a connection of its own, in any thread."""
        with closing(open_file(self._memory.path, mode="rw")) as database:
            seen = set[str]()  # where each has its own address they need no memory
            for row in database.execute("SELECT body FROM entry WHERE bridge = ?", (self.id,)):
                change = decode(row[0])
                if change.loc not in seen and (ready := published(change)) is not None:
                    yield ready
                if self._aliases:
                    seen.add(change.loc)

    def begin_again(self) -> None:
        """Of a first reading that broke off, or may not be loaded, nothing was published."""
        with self._memory.transaction():
            self.facts.is_read = False
            self.save()
            self.keep_parts({})
            for table in ("entry", "held", "waiting", "refused"):
                self._run(f"DELETE FROM {table} WHERE bridge = ?", (self.id,))  # noqa: S608

    # Its list's parts -------------------------------------------------------------------------

    def parts(self) -> Parts:
        found = self._run("SELECT parts FROM bridge WHERE id = ?", (self.id,))
        return read_parts(found.fetchone()[0])

    def keep_parts(self, parts: Parts) -> None:
        body = msgspec.msgpack.encode(parts)
        self._run("UPDATE bridge SET parts = ? WHERE id = ?", (body, self.id))

    # What waits -------------------------------------------------------------------------------

    def _wait(self, changes: Sequence[Change]) -> None:
        number = self._run(
            "UPDATE bridge SET batches = batches + 1 WHERE id = ? RETURNING batches", (self.id,)
        ).fetchone()[0]
        body = msgspec.json.encode(changes)
        self._run("INSERT INTO waiting VALUES (?, ?, ?)", (self.id, number, body))

    def next_batch(self) -> tuple[int, bytes, list[Change]] | None:
        row = self._run(
            "SELECT number, body FROM waiting WHERE bridge = ? ORDER BY number LIMIT 1", (self.id,)
        ).fetchone()
        return row and (*row, read_batch(row[1]))

    def forget_batch(
        self, number: int, changes: Sequence[Change], refused: Sequence[Refusal]
    ) -> None:
        """The hub has these, but for some."""
        with self._memory.transaction():
            self._run("DELETE FROM waiting WHERE bridge = ? AND number = ?", (self.id, number))
            self._refuse({as_ascii(each.loc) for each in changes}, refused)
            self.save()

    @property
    def waiting(self) -> int:
        return self._count("waiting WHERE bridge = ?")

    # What the hub refuses -----------------------------------------------------------------------

    @property
    def refused(self) -> tuple[int, str]:
        """Of how many resources the last change was, and why the first of them."""
        query = "SELECT COUNT(*), COALESCE(MIN(why), '') FROM refused WHERE bridge = ?"
        found: tuple[int, str] = self._run(query, (self.id,)).fetchone()
        return found

    def note_load(self, refused: Sequence[Refusal]) -> None:
        """The hub has all that is known, but for some."""
        before = self._run("SELECT loc FROM refused WHERE bridge = ?", (self.id,)).fetchall()
        with self._memory.transaction():
            self._refuse({loc for (loc,) in before}, refused)

    def _refuse(self, offered: set[str], refused: Sequence[Refusal]) -> None:
        """Of the resources that were offered the hub has all but some."""
        rows = {as_ascii(each.loc): (msgspec.json.encode([each]), why) for each, why in refused}
        run_all = self._memory.database.executemany
        if self.refused[0]:
            taken = ((self.id, loc) for loc in offered - rows.keys())
            run_all("DELETE FROM refused WHERE bridge = ? AND loc = ?", taken)
        if rows:
            before = self.refused[0]
            query = "INSERT OR REPLACE INTO refused VALUES (?, ?, ?, ?)"
            run_all(query, ((self.id, loc, *row) for loc, row in rows.items()))
            self.facts.refused += self.refused[0] - before
            self.facts.refused_at = time()

    def offer_again(self) -> None:
        """It waits again, behind all else; as soon as the hub takes it, it is refused no more."""
        query = "SELECT body FROM refused WHERE bridge = ?"
        changes = [read_batch(body)[0] for (body,) in self._run(query, (self.id,))]
        with self._memory.transaction():
            for batch in batched(changes, BATCH):
                self._wait(batch)

    # What is held back ------------------------------------------------------------------------

    def hold(self, keys: Iterable[str], *, is_all: bool = False) -> None:
        with self._memory.transaction():
            if is_all:
                self._run("DELETE FROM held WHERE bridge = ?", (self.id,))
            rows = ((self.id, key) for key in keys)
            self._memory.database.executemany("INSERT OR IGNORE INTO held VALUES (?, ?)", rows)

    def held(self) -> list[str]:
        rows = self._run("SELECT key FROM held WHERE bridge = ? ORDER BY key", (self.id,))
        return [key for (key,) in rows]

    def release(self) -> None:
        """What is held back is let through, once; the bridge that runs does it."""
        self._run("UPDATE bridge SET released = 1 WHERE id = ?", (self.id,))

    def take_release(self) -> bool:
        taken = "UPDATE bridge SET released = 0 WHERE id = ? AND released"
        return self._run(taken, (self.id,)).rowcount > 0
