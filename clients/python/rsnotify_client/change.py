"""A change from what a caller says of a resource."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypedDict

from rsnotify.resourcesync.change import Change, Link, Position


class Fields(TypedDict, total=False):
    """What may be said of a changed resource besides its address."""

    lastmod: str | datetime | None
    datetime: str | datetime | None
    hash: str | None
    length: int | None
    type: str | None
    encoding: str | None
    changefreq: str | None
    links: Sequence[Link]


def make_change(loc: str, change: str, fields: Fields) -> Change:
    """The change, its times as text."""
    for name in ("lastmod", "datetime"):
        if isinstance(when := fields.get(name), datetime):
            fields = fields | {name: _text_of(when)}  # type: ignore[assignment]
    return Change(loc, change, **fields)  # type: ignore[arg-type]


def _text_of(when: datetime) -> str:
    if when.tzinfo is None:
        raise ValueError(f"{when!r} has no time zone: give one, such as datetime.UTC")
    return when.astimezone(UTC).isoformat().replace("+00:00", "Z")


def normal_time(text: str) -> str:
    """One text for one moment, however it was written.

    >>> normal_time("2026-11-20T21:34:00+01:00")
    '2026-11-20T20:34:00.000000Z'
    """
    try:
        return str(Position.parse(text))
    except ValueError:
        return text
