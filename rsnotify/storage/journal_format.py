"""How a journal is kept in Redis: its keys, what journal.lua is told, its rows as they are read."""

from collections.abc import Iterable
from functools import lru_cache
from zlib import crc32

from rsnotify.core.submission import LOC_START, Fragment
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, Row
from rsnotify.storage import keys

NO_WINDOW = (0, 0, 1)  # a framework channel's journal is not cut into Change Lists
CALLERS_KEY_SECONDS = 24 * 3600


@lru_cache(maxsize=4096)
def channel_keys(channel: ChannelName) -> tuple[str, ...]:
    """KEYS of journal.lua."""
    names = (keys.stream(channel), keys.record(channel), keys.windows(channel))
    prefixes = (keys.state(channel.set_name), keys.remembered(channel))
    return (*names, *prefixes, keys.hold(channel), keys.load(channel.set_name, "newer"))


def channel_arguments(
    channel: ChannelName, window: tuple[int, int, int], seen: Position, caller: str = ""
) -> tuple[object, ...]:
    """ARGV of journal.lua."""
    limits = window if channel.kind == "change" else NO_WINDOW
    return (f"{channel} {caller}", keys.BELL, *limits, int(seen))


def change_arguments(fragment: Fragment, of_changes: bool) -> tuple[object, ...]:
    end = LOC_START + fragment.loc_length
    shard = crc32(fragment.xml[LOC_START:end]) % keys.STATE_SHARDS if of_changes else -1
    kind = ("d" if fragment.deleted else "u") + fragment.load
    return fragment.position, shard, kind, fragment.loc_length, fragment.xml


def rows_of(entries: Iterable[tuple[bytes, tuple[bytes, bytes]]]) -> list[Row]:
    return [_row(entry) for entry in entries]


def _row(entry: tuple[bytes, tuple[bytes, bytes]]) -> Row:
    stream_id, fields = entry
    milliseconds, _, microseconds = stream_id.partition(b"-")
    return Position(int(milliseconds) * 1000 + int(microseconds)), fields[1]
