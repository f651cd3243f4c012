"""Whether a file that Redis has written is damaged: a server reads it, and compares its checksum.

`redis-check-rdb` is redis-server under another name, and `valkey-check-rdb` valkey-server. They may
not be installed, so the server is called by that name. It serves nothing then.
"""

import asyncio
import re
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from pathlib import Path

from rsnotify.errors import InvalidSettings
from rsnotify.process.embedded_redis.binaries import Binary, installed_binaries

_FOUND = re.compile(rb"RDB ERROR DETECTED ---\s*\[offset (\d+)\] ([ -~]{1,120})")
_UNREADABLE = re.compile(rb"Can't handle RDB format version|Wrong signature")


async def refuse_damaged(file: Path) -> bool:
    """Whether it was checked; it cannot be where no server is installed. The path is absolute."""
    binaries = [each for each in await installed_binaries() if each.engine.is_new_enough]
    for binary in sorted(binaries, key=lambda each: each.engine.version, reverse=True):
        if await _reads(binary, file):
            return True
    if binaries:
        raise _unreadable(file, binaries)
    return False


async def _reads(binary: Binary, file: Path) -> bool:
    """False if this is a file of another engine, or of a later version."""
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
        return True
    if _UNREADABLE.search(said):
        return False
    raise _damaged(file, binary, _FOUND.search(said))


def _damaged(file: Path, binary: Binary, found: re.Match[bytes] | None) -> InvalidSettings:
    reason = f" ({found[2].decode()} at byte {int(found[1]):,})" if found else ""
    return InvalidSettings(
        [f"{file} is damaged, says {binary}{reason}: copy it again, or take an older backup"]
    )


def _unreadable(file: Path, binaries: Sequence[Binary]) -> InvalidSettings:
    listed = " nor ".join(map(str, binaries))
    return InvalidSettings(
        [
            f"{file} cannot be read by {listed}: it is damaged, or was written by another engine "
            "or a later version, which must then be on the PATH"
        ]
    )
