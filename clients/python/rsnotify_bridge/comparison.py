"""Two states of a Source, compared in bounded memory: what is known, and what is read now.

Rules that hold here: nothing is recorded before all was read, so a list that breaks off deletes
nothing. What is new lies in a file meanwhile; what is known is one bit in memory.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from rsnotify.resourcesync.change import Change
from rsnotify_bridge.memory import (
    LOOKED_UP,
    BridgeMemory,
    BridgeStore,
    Known,
    batched,
    decode,
    encode,
)
from rsnotify_bridge.rules import is_news, is_same
from rsnotify_bridge.sources import Piece

AT_ONCE = 1_000


class StateComparison:
    """One reading of a whole state; `close` it."""

    def __init__(self, memory: BridgeStore, bridge: BridgeMemory) -> None:
        self._bridge = bridge
        self._database = memory.database
        self._table = f"temp.fresh_{bridge.id}"
        self._seen = bytearray(bridge.highest // 8 + 1)
        self.told = set[str]()
        """The keys of what the Source itself calls deleted."""
        self.close()
        self._database.execute(
            f"CREATE TABLE {self._table} (key TEXT PRIMARY KEY, part INTEGER, body BLOB)"
        )

    def close(self) -> None:
        self._database.execute(f"DROP TABLE IF EXISTS {self._table}")

    def add(self, piece: Piece) -> None:
        """What a list has; of several entries with one key the first counts."""
        for some in batched(piece.entries, LOOKED_UP):
            known = self._bridge.find([key for key, _ in some])
            fresh, moved = [], []
            for key, change in some:
                row = known.get(key)
                if row is not None and self._has_seen(row.id):
                    continue
                if change.change == "deleted":
                    self._note_deleted(key, row)
                    continue
                body = encode(change)
                if row is None or not self._is_known(row, change, body):
                    fresh.append((key, piece.part, body))
                elif row.part != piece.part:
                    moved.append((piece.part, row.id))
                if row is not None:
                    self._see(row.id)
            self._stage(fresh)
            if moved:
                self._bridge.move(moved)

    def overlay(self, piece: Piece) -> None:
        """What happened since the list was made; the last change of a resource counts."""
        for key, change in piece.entries:
            row = self._bridge.find([key]).get(key)
            self._database.execute(f"DELETE FROM {self._table} WHERE key = ?", (key,))  # noqa: S608
            is_gone = change.change == "deleted"
            if row is not None:
                self._see(row.id, is_seen=not is_gone)
            if is_gone:
                self._note_deleted(key, row)
            body = encode(change)
            if not is_gone and (row is None or not self._is_known(row, change, body)):
                self._stage([(key, 0 if row is None else row.part, body)])

    def unread(self, piece: Piece) -> list[Change]:
        """The changes of a piece whose resources were in no piece so far."""
        found: list[Change] = []
        for some in batched(piece.entries, LOOKED_UP):
            keys = [key for key, _ in some]
            seen = {key for key, row in self._bridge.find(keys).items() if self._has_seen(row.id)}
            marks = ",".join("?" * len(keys))
            query = f"SELECT key FROM {self._table} WHERE key IN ({marks})"  # noqa: S608
            seen |= {key for (key,) in self._database.execute(query, keys)}
            found += [change for key, change in some if key not in seen]
        return found

    def _note_deleted(self, key: str, row: Known | None) -> None:
        if row is not None:
            self.told.add(key)

    @staticmethod
    def _is_known(row: Known, change: Change, body: bytes) -> bool:
        if row.body == body:
            return True
        before = decode(row.body)
        return is_same(before.loc, change.loc) and not is_news(before, change)

    def _stage(self, rows: Sequence[tuple[str, int, bytes]]) -> None:
        if not rows:
            return
        self._database.execute("BEGIN")  # of the temporary file alone
        self._database.executemany(f"INSERT OR IGNORE INTO {self._table} VALUES (?, ?, ?)", rows)  # noqa: S608
        self._database.execute("COMMIT")

    def _see(self, number: int, *, is_seen: bool = True) -> None:
        if is_seen:
            self._seen[number >> 3] |= 1 << (number & 7)
        else:
            self._seen[number >> 3] &= ~(1 << (number & 7))

    def _has_seen(self, number: int) -> bool:
        return bool(self._seen[number >> 3] & 1 << (number & 7))

    def gone(self, unchanged: Collection[int] = ()) -> list[str]:
        """The keys of what is in no part of the list any more; `unchanged` were not read."""
        numbers = self._bridge.numbers()
        return [
            key
            for number, key, part in numbers
            if number >> 3 < len(self._seen) and not self._has_seen(number)
            if part not in unchanged or key in self.told
        ]

    def fresh(self) -> Iterator[Piece]:
        """What is new or different, so many at a time."""
        after = 0
        while True:
            rows = self._database.execute(
                f"SELECT rowid, part, key, body FROM {self._table} WHERE rowid > ?"  # noqa: S608
                " ORDER BY rowid LIMIT ?",
                (after, AT_ONCE),
            ).fetchall()
            if not rows:
                return
            after = rows[-1][0]
            for part, some in groupby(rows, lambda row: row[1]):
                yield Piece([(key, decode(body)) for _, _, key, body in some], part)
