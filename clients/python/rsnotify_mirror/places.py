"""Which resource has which path, in the mirror's state: no two have one that any disk could mix up.

Rules that hold here: a path is given once and for as long as the resource lives; a file's name is
never a folder's too. How a path is chosen is decided elsewhere, by a pure function.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from rsnotify_mirror.paths import key_of, settled

FOLDERS_KNOWN = 1_000
AT_ONCE = 500


class Places:
    """The places of one mirror; to be used within its transactions."""

    def __init__(self, database: Callable[[], sqlite3.Connection]) -> None:
        self._database = database
        self._known: dict[str, bool | None] = {}  # is it a file; None for what is free
        self._folders: set[str] = set()  # keys of some that are recorded

    def settle(self, wishes: Mapping[str, str]) -> dict[str, str]:
        """A path for each resource, by `loc`; wished is the path that it would have alone."""
        keys = [key_of(path) for path in wishes.values()]
        self._look(keys)
        rows = [
            self._settled(loc, path, key)
            for (loc, path), key in zip(wishes.items(), keys, strict=True)
        ]
        self._database().executemany("INSERT INTO place VALUES (?, 1, ?)", rows)
        self._known.clear()
        return {loc: path for loc, (_, path) in zip(wishes, rows, strict=True)}

    def _settled(self, loc: str, path: str, key: str) -> tuple[str, str]:
        """Its key and its path."""
        is_plain = path.isascii() and key.rpartition("/")[0] in self._folders
        if not is_plain or self._found(key) is not None:
            path = settled(path, loc, self._is_file, self._is_taken)
            key = key_of(path)
            self._record_folders(path.split("/")[:-1])
        self._known[key] = True
        return key, path

    def _look(self, keys: Sequence[str]) -> None:
        """Many at once, what is free included."""
        self._known |= dict.fromkeys(keys)
        for start in range(0, len(keys), AT_ONCE):
            part = keys[start : start + AT_ONCE]
            query = f"SELECT key, is_file FROM place WHERE key IN ({','.join('?' * len(part))})"  # noqa: S608
            self._known |= {
                key: bool(is_file) for key, is_file in self._database().execute(query, part)
            }

    def _found(self, key: str) -> bool | None:
        if key in self._folders:
            return False
        if key not in self._known:
            self._look([key])
        return self._known[key]

    def _is_file(self, key: str) -> bool:
        return bool(self._found(key))

    def _is_taken(self, key: str) -> bool:
        return self._found(key) is not None

    def _record_folders(self, names: list[str]) -> None:
        folders = list(accumulate(names, "{}/{}".format))
        new = {key_of(folder): folder for folder in folders}
        rows = [(key, 0, folder) for key, folder in new.items() if key not in self._folders]
        if rows:
            self._database().executemany("INSERT OR IGNORE INTO place VALUES (?, ?, ?)", rows)
            self._folders = set(list(self._folders)[-FOLDERS_KNOWN:]) | new.keys()

    def free(self, path: str) -> None:
        """Another resource may have it."""
        self._database().execute("DELETE FROM place WHERE key = ?", (key_of(path),))

    def forget_folder(self, path: str) -> None:
        """It is removed; a file may have its name now, unless something is to come into it."""
        key = key_of(path)
        self._folders.discard(key)
        self._database().execute(
            "DELETE FROM place WHERE key = ? AND NOT is_file"
            " AND NOT EXISTS (SELECT 1 FROM place WHERE key > ? AND key < ?)",
            (key, f"{key}/", f"{key}0"),  # 0 is the character after /
        )
