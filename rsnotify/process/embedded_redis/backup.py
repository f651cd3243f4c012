"""The journals of an embedded hub as one file: written while it runs, put into a new directory.

The file is what Redis calls an RDB file: everything as it was at one moment. It has sets, changes,
Change Lists, Resource Lists, subscriptions and hashes of tokens; the admin token is not in it.
"""

import asyncio
import fcntl
import os
import re
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from rsnotify.errors import InvalidSettings, TryAgain
from rsnotify.operation.health import BACKED_UP
from rsnotify.process.embedded_redis.binaries import Binary, installed_binaries
from rsnotify.process.embedded_redis.directory import SOCKET, directory_taken, short_enough
from rsnotify.redis_client import connect

_FOUND = re.compile(rb"RDB ERROR DETECTED ---\s*\[offset (\d+)\] ([ -~]{1,120})")
_DATABASE = re.compile(rb"Selecting DB ID (\d+)")
_UNREADABLE = re.compile(rb"Can't handle RDB format version|Wrong signature")


async def refuse_damaged(file: Path) -> list[int] | None:
    """The databases that it has data of; None where no server is installed that could check it.

    The path is absolute.
    """
    binaries = [each for each in await installed_binaries() if each.engine.is_new_enough]
    for binary in sorted(binaries, key=lambda each: each.engine.version, reverse=True):
        if (databases := await _databases_read_by(binary, file)) is not None:
            return databases
    if binaries:
        listed = " nor ".join(map(str, binaries))
        raise InvalidSettings(
            f"{file} cannot be read by {listed}: it is damaged, or was written by another engine "
            "or a later version, which must then be on the PATH"
        )
    return None


async def _databases_read_by(binary: Binary, file: Path) -> list[int] | None:
    """None if this is a file of another engine, or of a later version."""
    process = await asyncio.create_subprocess_exec(
        f"{binary.engine.name}-check-rdb",
        str(file),
        executable=binary.path,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=DEVNULL,
    )
    said, _ = await process.communicate()
    if process.returncode == 0:
        return list(map(int, _DATABASE.findall(said)))
    if _UNREADABLE.search(said):
        return None
    found = _FOUND.search(said)
    reason = f" ({found[2].decode()} at byte {int(found[1]):,})" if found else ""
    raise InvalidSettings(
        f"{file} is damaged, says {binary}{reason}: copy it again, or take an older backup"
    )


JOURNALS = "appendonlydir"  # a directory; Redis reads first the base, then the increments
BASE, INCREMENT = "appendonly.aof.1.base.rdb", "appendonly.aof.1.incr.aof"
MANIFEST = f"file {BASE} seq 1 type b\nfile {INCREMENT} seq 1 type i\n"
SNAPSHOT = "dump.rdb"  # where Redis writes it, beside the journals
NOT_OWN = "any other Redis, and each master of a Cluster, is backed up by `redis-cli --rdb FILE`"
MAGIC = (b"REDIS0", b"VALKEY")
END_BYTES, END_MARK = 9, b"\xff"  # the mark, and a checksum of eight bytes
POLL_SECONDS = 0.1
COPIED_BYTES = 1 << 20  # at once


Say = Callable[[str], None]


def back_up(data_dir: Path, target: Path, say: Say = lambda _: None) -> int:
    """Write the file, whole or not at all, while the hub runs; its size."""
    data_dir = data_dir.resolve()
    if not (data_dir / SOCKET).exists():
        raise InvalidSettings(f"no hub with a Redis of its own runs in {data_dir}: {NOT_OWN}")
    target = _to_be_written(target, data_dir / SNAPSHOT)
    with one_at_a_time(data_dir):
        with short_enough(data_dir / SOCKET) as socket:
            asyncio.run(_save(f"unix://{quote(str(socket))}", say))
        snapshot, part = data_dir / SNAPSHOT, target.with_name(f".{target.name}.part")
        try:
            _copy(snapshot, part, say)
            part.replace(target)
            stamp(data_dir)
        finally:
            part.unlink(missing_ok=True)
            snapshot.unlink(missing_ok=True)
    return target.stat().st_size


def _to_be_written(target: Path, snapshot: Path) -> Path:
    """A link stays; what is no file, such as /dev/stdout, would be replaced by one."""
    if target.exists() and not target.is_file():
        raise InvalidSettings(f"{target} is no file: name a file to write to")
    if (resolved := target.resolve()) == snapshot:
        raise InvalidSettings(f"{target} is where Redis itself writes: name another file")
    return resolved


@contextmanager
def one_at_a_time(data_dir: Path) -> Iterator[None]:
    """Each removes at its end what Redis has written, be it for another."""
    folder = os.open(data_dir, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise TryAgain(f"another backup of {data_dir} is being written: wait for its end") from None
    finally:
        os.close(folder)


def stamp(data_dir: Path) -> None:
    """A new file: whoever has made the one before, root perhaps, may be another user."""
    made = data_dir / f".{BACKED_UP}"
    made.touch(0o600)
    made.replace(data_dir / BACKED_UP)


async def _save(url: str, say: Say) -> None:
    """Let Redis write its snapshot."""
    async with connect(url) as client:
        before = await client.info("persistence")
        if before["rdb_bgsave_in_progress"]:  # it goes on when what has begun it is ended
            raise TryAgain(
                "Redis still writes its data, for a backup that was ended or for somebody else: "
                "wait for its end"
            )
        await client.bgsave()
        found: dict[str, Any] = before
        while found["rdb_saves"] == before["rdb_saves"] or found["rdb_bgsave_in_progress"]:
            say(_saved(found))
            await asyncio.sleep(POLL_SECONDS)
            found = await client.info("persistence")
    if found["rdb_last_bgsave_status"] != "ok":
        raise TryAgain("Redis could not write its data to a file: see redis.log; is the disk full?")


def _saved(found: dict[str, Any]) -> str:
    """How far Redis is, by the keys that it has written.

    >>> _saved({"current_save_keys_processed": 1, "current_save_keys_total": 4})
    'Redis writes its data: 25 %'
    """
    total = found.get("current_save_keys_total") or 0
    done = found.get("current_save_keys_processed", 0)
    return f"Redis writes its data: {done * 100 // total} %" if total else "Redis writes its data"


def restore(source: Path, data_dir: Path, say: Say = lambda _: None) -> list[int] | None:
    """Make a data directory from the file; one that has journals already is refused.

    The databases that the file has data of; None if it could not be checked.
    """
    with source.open("rb") as file:
        if not file.read(len(MAGIC[0])).startswith(MAGIC):
            raise InvalidSettings(f"{source} is no backup: it is no RDB file of Redis or Valkey")
        if not _is_whole(file):
            raise InvalidSettings(f"{source} is not whole: its end is missing; copy it again")
    return asyncio.run(_put_back(source.resolve(), data_dir, say))


def _is_whole(file: BinaryIO) -> bool:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - END_BYTES))
    return file.read(1) == END_MARK


async def _put_back(source: Path, data_dir: Path, say: Say) -> list[int] | None:
    journals = data_dir / JOURNALS
    databases = await refuse_damaged(source)
    async with directory_taken(data_dir):
        if await asyncio.to_thread(journals.exists):
            raise InvalidSettings(
                f"{data_dir} has journals already: restore into a directory of its own"
            )
        await asyncio.to_thread(_lay_out, source, journals, say)
    return databases


def _lay_out(source: Path, journals: Path, say: Say) -> None:
    """The files as Redis has them right after it has rewritten its journals."""
    part = journals.with_name(f"{JOURNALS}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700)
    try:
        _copy(source, part / BASE, say)
        (part / INCREMENT).touch(0o600)
        (part / "appendonly.aof.manifest").write_text(MANIFEST)
        part.rename(journals)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)  # the disk is full, perhaps
        raise


def _copy(source: Path, target: Path, say: Say) -> None:
    """To disk, readable by its owner alone: it holds what is private."""
    with source.open("rb") as read, open(target, "wb", opener=_private) as written:
        size = os.fstat(read.fileno()).st_size
        while piece := read.read(COPIED_BYTES):
            written.write(piece)
            say(f"copying: {written.tell() * 100 // size} % of {size:,} bytes")
        written.flush()
        os.fsync(written.fileno())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
