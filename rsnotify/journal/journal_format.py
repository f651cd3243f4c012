"""How a journal is kept in Redis: keys, the arguments of journal.lua, rows as they are read."""

from collections.abc import Sequence
from functools import lru_cache
from zlib import crc32

from rsnotify.journal import keys
from rsnotify.journal.healing import KeyedRow
from rsnotify.journal.submission import Fragment
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.fragments import LOC, LOC_END, spell_out_each
from rsnotify.resourcesync.notification import ChannelName, Row

NO_WINDOW = (0, 0, 1)  # a framework channel's journal is not cut into Change Lists
KEY_SECONDS = 24 * 3600
LOC_BEGIN = len(LOC)


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
    short = fragment.short
    shard = crc32(short[LOC_BEGIN : short.index(LOC_END)]) % keys.STATE_SHARDS if of_changes else -1
    kind = ("d" if fragment.deleted else "u") + fragment.load
    return fragment.position, shard, kind, len(fragment.xml), short


def rows_of(entries: Sequence[tuple[bytes, tuple[bytes, bytes]]]) -> list[Row]:
    """The rows; the field of an entry is the note of a key, or empty."""
    xmls = spell_out_each([fields[1] for _, fields in entries])
    return [
        KeyedRow(_position(stream_id), xml, note) if note else (_position(stream_id), xml)
        for (stream_id, (note, _)), xml in zip(entries, xmls, strict=True)
    ]


def remembered_key(channel: ChannelName, created: int, digest: str) -> str:
    """What journal.lua calls what it remembers of a key."""
    return f"{keys.remembered(channel)}{int(created)}:{digest}"


def parse_known(known: bytes) -> tuple[str, Position, Position]:
    """The fingerprint and the interval of what is remembered of a key."""
    fingerprint, from_, until = known.decode().split(" ")
    return fingerprint, Position(int(from_)), Position(int(until))


def _position(stream_id: bytes) -> Position:
    milliseconds, _, microseconds = stream_id.partition(b"-")
    return Position(int(milliseconds) * 1000 + int(microseconds))
