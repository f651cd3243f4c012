"""What a mirror stores, as records of a WARC (ISO 28500): for archives, and what replays them.

Rules that hold here: a record is a `resource` with the bytes that were verified, each a gzip member
of its own, so tools find their way by offsets. A record counts from the transaction on in which the
copy has the resource: what stands behind the last one that counts is cut off at the next start. No
file is touched that this copy has not begun, unless it is empty, as a killed mirror may leave it.
"""

import asyncio
import fcntl
import gzip
import hashlib
import io
import os
from base64 import b32encode
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

import msgspec

from rsnotify import __version__
from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import as_ascii
from rsnotify_client.database import check_path
from rsnotify_mirror.state import State

WARC = "warc"  # the file, and how long it is as far as its records count
READ_BYTES = 256 * 1024
COMPRESSION = 6
_INFO = f"software: rsnotify/{__version__}\r\nformat: WARC File Format 1.1\r\n"


class WarcFile:
    """The file that one mirror appends to."""

    def __init__(self, path: Path, state: State) -> None:
        check_path(path, lambda said: InvalidSettings(f"--warc {said}"))
        self._path, self._state = path.absolute(), state
        self._alone = asyncio.Lock()
        known, length = msgspec.json.decode(state.fact(WARC) or '["", 0]', type=tuple[str, int])
        is_new = known != str(self._path)
        try:
            self._file = _opened(self._path, is_new=is_new)
            with ExitStack() as opened:
                opened.callback(self._file.close)
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._end = 0 if is_new else length
                self._begin(os.fstat(self._file.fileno()).st_size, is_new=is_new)
                opened.pop_all()
        except BlockingIOError:
            raise InvalidSettings(
                f"--warc {path}: another mirror writes it: name another"
            ) from None
        except FileExistsError:
            raise InvalidSettings(f"--warc {path}: it is there already: name a new one") from None
        except OSError as error:
            raise InvalidSettings(f"--warc {path}: {error.strerror}") from None

    def _begin(self, size: int, *, is_new: bool) -> None:
        """Go on with it; or note that it is this copy's before anything is written into it."""
        if size < self._end:
            raise InvalidSettings(f"--warc {self._path}: it was cut: move it away, or name another")
        if is_new:
            if size:
                raise FileExistsError
            self._count(0)
            self._state.commit()
        if self._end == 0:
            fields = {"WARC-Filename": self._path.name}
            self._append("warcinfo", fields, "application/warc-fields", io.BytesIO(_INFO.encode()))
            self._count(self._file.tell())

    def close(self) -> None:
        self._file.close()

    async def add(self, loc: str, kind: str | None, asked: int | None, content: BinaryIO) -> None:
        """A resource that is in its place; to be followed by what the state records of it."""
        fields = {"WARC-Target-URI": as_ascii(loc)}
        async with self._alone:
            with closing(content):
                await asyncio.to_thread(
                    self._append,
                    "resource",
                    fields,
                    kind or "application/octet-stream",
                    content,
                    asked,
                )
            self._count(self._file.tell())

    def _count(self, end: int) -> None:
        self._end = end
        said = [str(self._path), self._end]
        self._state.set_fact(WARC, msgspec.json.encode(said).decode())

    def _append(
        self,
        record: str,
        fields: dict[str, str],
        kind: str,
        content: BinaryIO,
        at: int | None = None,
    ) -> None:
        self._file.seek(self._end)
        self._file.truncate()
        digest, length = hashlib.sha256(), 0
        while piece := content.read(READ_BYTES):
            digest.update(piece)
            length += len(piece)
        content.seek(0)
        when = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
        said = {
            "WARC-Type": record,
            "WARC-Record-ID": f"<{uuid4().urn}>",
            "WARC-Date": f"{when:%Y-%m-%dT%H:%M:%SZ}",
            **fields,
            "WARC-Block-Digest": f"sha256:{b32encode(digest.digest()).decode()}",
            "Content-Type": " ".join(kind.split()),
            "Content-Length": str(length),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in said.items())
        with gzip.GzipFile("", "wb", COMPRESSION, self._file) as packed:
            packed.write(f"WARC/1.1\r\n{head}\r\n".encode())
            while piece := content.read(READ_BYTES):
                packed.write(piece)
            packed.write(b"\r\n\r\n")
        self._file.flush()


def _opened(path: Path, *, is_new: bool) -> BinaryIO:
    """The file; made, unless a mirror was killed once it had made it."""
    if is_new:
        try:
            return path.open("x+b")
        except FileExistsError:
            if not path.is_file() or path.stat().st_size:
                raise
    return path.open("r+b")
