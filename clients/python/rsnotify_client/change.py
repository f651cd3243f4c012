"""A change from what a caller says of a resource, and the words to say it with."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Generic, Literal, TypedDict, TypeVar, Unpack

from rsnotify.resourcesync.change import Change, Link
from rsnotify.resourcesync.notification import Kind

Sent = TypeVar("Sent")

TIMES: tuple[Literal["lastmod"], Literal["datetime"]] = ("lastmod", "datetime")


class Fields(TypedDict, total=False):
    """What may be said of a changed resource besides its address."""

    lastmod: str | datetime | None
    datetime: str | datetime | None
    hash: str | None
    length: int | None
    type: str | None
    encoding: str | None
    changefreq: str | None
    priority: float | None
    links: Sequence[Link]


def make_change(loc: str, change: str, fields: Fields) -> Change:
    """The change, its times as text."""
    for name in TIMES:
        when = fields.get(name)
        if not isinstance(when, datetime):
            continue
        if when.tzinfo is None:
            raise ValueError(f"{name} is {when!r}, which has no time zone: give one, such as UTC")
        text = when.astimezone(UTC).isoformat().replace("+00:00", "Z")
        fields = fields | {name: text}  # type: ignore[assignment]
    return Change(loc, change, **fields)  # type: ignore[arg-type]


class ChangeMethods(Generic[Sent]):
    """A method for each thing that can happen to a resource; `send` passes it on."""

    def send(self, set_name: str, change: Change, *, kind: Kind = "change") -> Sent:
        raise NotImplementedError

    def created(self, set_name: str, loc: str, **fields: Unpack[Fields]) -> Sent:
        """The resource at `loc` is new."""
        return self.send(set_name, make_change(loc, "created", fields))

    def updated(self, set_name: str, loc: str, **fields: Unpack[Fields]) -> Sent:
        """The resource at `loc` has changed."""
        return self.send(set_name, make_change(loc, "updated", fields))

    def deleted(self, set_name: str, loc: str, **fields: Unpack[Fields]) -> Sent:
        """The resource at `loc` is no more."""
        return self.send(set_name, make_change(loc, "deleted", fields))
