"""Resource Dumps: ZIP packages of many resources, with a manifest that names and describes them.

Rules that hold here: a name in a package is never a path on our disk; what is inflated is bounded
by what the manifest says, or by what compression can honestly reach; one that breaks a rule is
refused as a whole or in that member, and named.
"""

import struct
import zipfile
from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO, NamedTuple

from rsnotify.errors import Rejected
from rsnotify.resourcesync.stream import DocumentStream
from rsnotify.resourcesync.validation.tables import MAX_BYTES
from rsnotify.resourcesync.xml_writer import Entry, Md
from rsnotify_client.web import Refused

MANIFEST = "manifest.xml"
MEMBERS = 0xFFFE  # what a ZIP without extensions can say
DIRECTORY_BYTES = 64 * 1024 * 1024
RATIO = 200  # text compresses ten times, the emptiest honest file a hundred times
FREE_BYTES = 1024 * 1024
PIECE_BYTES = 256 * 1024

_END = struct.Struct("<4s4H2LH")
_END_BYTES = _END.size + 0xFFFF


class Packed(NamedTuple):
    """A resource in a package."""

    entry: Entry
    name: str
    path: str


class Package:
    """One ZIP package, opened with care."""

    def __init__(self, file: BinaryIO, where: str) -> None:
        self._where = where
        self.refused: list[str] = []
        _check_directory(file, where)
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
            raise Refused(f"{where} is no ZIP package: {error}") from None

    def resources(self) -> Iterator[Packed]:
        """What the manifest describes and the package holds; what it may not is in `refused`."""
        names = self._names()
        for entry in self.entries():
            yield from self._held(entry, names)

    def entries(self) -> Iterator[Entry]:
        """All that the manifest tells; a path that leads out of the package is in `refused`."""
        name = self._names().get(MANIFEST)
        if name is None:
            raise Refused(f"{self._where} has no {MANIFEST}, which every package must have")
        stream = DocumentStream()
        for piece in chain(self._pieces(name, MAX_BYTES), (None,)):
            yield from filter(self._is_inside, self._read(stream, piece))
        self.refused += [f"{self._where}: {each}" for each in stream.skipped]

    def _names(self) -> dict[str, str]:
        return {info.filename.lstrip("/"): info.filename for info in self._zip.infolist()}

    def _is_inside(self, entry: Entry) -> bool:
        path = entry.md.path if entry.md else None
        problem = None if path is None else _wrong_path(path)
        if path is not None and problem is not None:
            self.refused.append(f"{self._where}: {path[:200]!r} {problem}")
        return problem is None

    def _read(self, stream: DocumentStream, piece: bytes | None) -> list[Entry]:
        try:
            return stream.close() if piece is None else stream.feed(piece)
        except Rejected as error:
            raise Refused(f"{self._where}: {MANIFEST}: {error.detail}") from None

    def _held(self, entry: Entry, names: dict[str, str]) -> Iterator[Packed]:
        path = entry.md.path if entry.md else None
        if path is None:
            return
        if (name := names.get(path.lstrip("/"))) is None:
            self.refused.append(f"{self._where} does not hold {path[:200]!r}")
        else:
            yield Packed(entry, name, path)

    def content(self, packed: Packed) -> Iterator[bytes]:
        """A member's bytes; `Refused` where it is more than it may be."""
        md = packed.entry.md or Md()
        size = self._zip.getinfo(packed.name).compress_size
        cap = md.length if md.length is not None else size * RATIO + FREE_BYTES
        yield from self._pieces(packed.name, cap)

    def _pieces(self, name: str, cap: int) -> Iterator[bytes]:
        total = 0
        try:
            with self._zip.open(name) as member:
                while piece := member.read(PIECE_BYTES):
                    total += len(piece)
                    if total > cap:
                        raise Refused(f"{self._where}: {name[:200]!r} inflates beyond {cap} bytes")
                    yield piece
        except Rejected:
            raise
        except Exception as error:  # each way to compress has errors of its own
            raise Refused(f"{self._where}: {name[:200]!r} cannot be read: {error}") from None


def _wrong_path(path: str) -> str | None:
    if ".." in path.replace("\\", "/").split("/"):
        return "leads out of the package"
    if "\0" in path or len(path) > 4_096:
        return "is no path"
    return None


def _check_directory(file: BinaryIO, where: str) -> None:
    """How many members it has, before anything of them is read into memory."""
    file.seek(0, 2)
    size = file.tell()
    file.seek(max(0, size - _END_BYTES))
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + _END.size > len(tail):
        raise Refused(f"{where} is no ZIP package, or it is not whole")
    found = _END.unpack_from(tail, at)
    members, length = found[4], found[5]
    if members > MEMBERS or length == 0xFFFFFFFF:
        raise Refused(f"{where} has more than {MEMBERS:,} members: make smaller packages")
    if length > DIRECTORY_BYTES:
        raise Refused(f"{where} has {members} members in {length} bytes: make smaller packages")
