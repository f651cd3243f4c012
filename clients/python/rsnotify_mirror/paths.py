"""Where in the copy a resource is stored: a URI goes in, a relative path comes out.

Rules that hold here: whatever the URI says, the path stays inside the directory, has no empty or
dotted component, is no longer than a file system allows, and touches no file of our own. What a
component means is decided after its percent-encoding was undone, once. `~` followed by eight
hexadecimal digits, or by `dir`, is ours: no URI can bring it. A path is given once and for as long
as the resource lives, and no two have one that any disk could mix up.
"""

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from itertools import accumulate
from urllib.parse import unquote_to_bytes, urlsplit

OURS = ".rsnotify"
COMPONENT_BYTES = 240
PATH_BYTES = 2_000
PATH_FOLDERS = 500  # Python goes through folders by recursion, a thousand levels deep at most
INDEX = "index.html"
LONG = "~long"

Map = tuple[str, str]  # resources whose URI begins with this stand in that folder

_OWN_SUFFIX = re.compile(r"~(?=[0-9a-f]{8}(\.[^.]*)?$|dir$|long$)", re.IGNORECASE)
_NAME = r"\w[\w.-]{0,99}"
_PLAIN = re.compile(
    rf"https?://([a-z0-9][a-z0-9.:-]{{0,199}}/(?:{_NAME}/){{0,15}}{_NAME})", re.ASCII
)
_UNSAFE = re.compile(r'[\x00-\x1f\x7f/\\*?"<>|]')


def place_of(loc: str, maps: Sequence[Map] = ()) -> str:
    """The path of a resource, unless another has it already.

    >>> place_of("http://example.com/a/b.pdf")
    'example.com/a/b.pdf'
    >>> place_of("http://example.com/../%2e%2e/etc/passwd")
    'example.com/%2E%2E/%2E%2E/etc/passwd'
    >>> place_of("http://example.com/data/x", [("http://example.com/data/", "d")])
    'd/x'
    """
    if not maps and (plain := _PLAIN.fullmatch(loc)) is not None:
        return plain[1]  # as most are: the rules below would change nothing
    parts = [part for part in _components(loc, maps) if part]
    path = "/".join(map(_shortened, parts))
    if len(path.encode()) > PATH_BYTES or len(parts) > PATH_FOLDERS + 1:
        return f"{_safe(parts[0])}/{LONG}/{digest(loc, 64)}"
    return path


def key_of(path: str) -> str:
    """What two paths share if some file system takes them for the same."""
    if path.isascii():
        return path.lower()
    from unicodedata import normalize  # noqa: PLC0415 - takes memory

    return normalize("NFKC", normalize("NFKC", path).casefold())


def settled(path: str, loc: str, is_file: Callable[[str], bool | None]) -> str:
    """The path that a resource gets, where others may stand in its way already.

    `is_file` is asked with keys: whether a file is there, or else a folder; None for what is free.
    """
    *folders, name = path.split("/")
    here: list[str] = []
    for folder in folders:
        free = folder
        while is_file(key_of("/".join([*here, free]))):
            free += "~dir"
        here.append(free)
    found = "/".join([*here, name])
    if is_file(key_of(found)) is None:
        return found
    for length in (8, 64):
        found = "/".join([*here, _marked(name, digest(loc, length))])
        if is_file(key_of(found)) is None:
            break
    return found


def digest(loc: str, length: int = 8) -> str:
    return sha256(loc.encode(errors="surrogatepass")).hexdigest()[:length]


def _components(loc: str, maps: Sequence[Map]) -> list[str]:
    for prefix, folder in maps:
        if loc.startswith(prefix):
            return [*folder.split("/"), *_named(loc[len(prefix) :])]
    parts = urlsplit(loc)
    rest = parts.path + (f"?{parts.query}" if parts.query else "")
    return [_safe(parts.netloc.rpartition("@")[2].lower()) or "~host", *_named(rest)]


def _named(rest: str) -> list[str]:
    """The components of what follows the prefix or the host; a query belongs to the last one."""
    path, mark, query = rest.partition("?")
    parts = path.removeprefix("/").split("/")
    if not parts[-1]:
        parts[-1] = INDEX
    named = [_safe(_decoded(part)) or "%2F" for part in parts]
    if mark:
        named[-1] += "%3F" + _safe(_decoded(query))
    return named


def _decoded(part: str) -> str:
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        return part


def _safe(component: str) -> str:
    """A name that means nothing but itself to a file system."""
    text = component.encode(errors="replace").decode()
    text = _UNSAFE.sub(_encoded, text)
    text = _OWN_SUFFIX.sub("%7E", text)
    if not text.strip(". ") or key_of(text).startswith(OURS):
        text = text.replace(".", "%2E").replace(" ", "%20")
    return text


def _encoded(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())


def _shortened(component: str) -> str:
    encoded = component.encode()
    if len(encoded) <= COMPONENT_BYTES:
        return component
    return encoded[:COMPONENT_BYTES].decode(errors="ignore") + "~" + digest(component)


def _marked(name: str, mark: str) -> str:
    """The mark stands before the name's suffix, which programs look at."""
    stem, dot, suffix = name.rpartition(".")
    if not dot or not stem or len(suffix) > 10:
        return f"{name}~{mark}" if len(name.encode()) < 180 else f"~{mark}"
    return f"{stem}~{mark}.{suffix}" if len(name.encode()) < 180 else f"~{mark}.{suffix}"


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
            path = settled(path, loc, self._found)
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
