"""Which engine wrote the data in a directory: a note beside the data.

The note names the newest engine that may have written, so it is on disk before that engine starts.
Data of an earlier rsnotify, without a note, are inspected.
"""

import os
import re
from pathlib import Path

from rsnotify.errors import InvalidSettings
from rsnotify.redis_client.engine import Engine

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
        raise _not_understood(path)
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


def _not_understood(path: Path) -> InvalidSettings:
    return InvalidSettings(
        [
            f"{path} does not name the engine that wrote the data beside it: write "
            "`redis 7.0.15`, `valkey 9.1.2` or whatever it was into it"
        ]
    )
