"""The rows of a journal as Redis keeps them: a stream id, the mark of the call that stored it, and
the change in the short form."""

from collections.abc import Sequence

from rsnotify.journal.witness import MARK_LENGTH
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import Row, spell_out_each

Entry = tuple[bytes, tuple[bytes, bytes]]  # as XRANGE answers it


def rows_of(entries: Sequence[Entry]) -> list[Row]:
    """The rows of stream entries."""
    xmls = spell_out_each([fields[1] for _, fields in entries])
    return [(_position(stream_id), xml) for (stream_id, _), xml in zip(entries, xmls, strict=True)]


def marks_of(entries: Sequence[Entry]) -> dict[Position, str]:
    """By position: the mark of the call that stored each entry."""
    return {_position(stream_id): mark_of(field) for stream_id, (field, _) in entries}


def mark_of(field: bytes) -> str:
    """The mark in the field of an entry."""
    return field[:MARK_LENGTH].decode()


def mark_of_newest(newest: bytes | None, head: int) -> str:
    """The mark of a journal's newest change, as its record has it; empty if a hub of an earlier
    version has appended since.

    >>> mark_of_newest(b"7:abcdef", 7), mark_of_newest(b"7:abcdef", 8), mark_of_newest(None, 8)
    ('abcdef', '', '')
    """
    at, _, mark = (newest or b"").decode().partition(":")
    return mark if at == str(int(head)) else ""


def _position(stream_id: bytes) -> Position:
    milliseconds, _, microseconds = stream_id.partition(b"-")
    return Position(int(milliseconds) * 1000 + int(microseconds))
