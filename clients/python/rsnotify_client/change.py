"""A change from what a caller says of a resource, and the words to say it with."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Generic, Literal, TypedDict, TypeVar

from rsnotify.resourcesync.change import Change, ChangeKind, Link
from rsnotify.resourcesync.notification import Kind
from rsnotify_client.errors import InvalidArgument

Sent = TypeVar("Sent")

TIMES: tuple[Literal["lastmod"], Literal["datetime"]] = ("lastmod", "datetime")


Time = str | datetime | None
"""A time as a Source gives it: text, or a datetime with its zone."""


class Fields(TypedDict, total=False):
    """What may be said of a changed resource besides its address."""

    lastmod: Time
    datetime: Time
    hash: str | None
    length: int | None
    type: str | None
    encoding: str | None
    changefreq: str | None
    priority: float | None
    links: Sequence[Link]


def make_change(loc: str, change: ChangeKind, fields: Fields) -> Change:
    """The change, its times as text."""
    for name in TIMES:
        when = fields.get(name)
        if not isinstance(when, datetime):
            continue
        if when.tzinfo is None:
            raise InvalidArgument(
                f"{name} is {when!r}, which has no time zone: give one, such as UTC"
            )
        text = when.astimezone(UTC).isoformat().replace("+00:00", "Z")
        fields = fields | {name: text}  # type: ignore[assignment]
    return Change(loc, change, **fields)  # type: ignore[arg-type]


def fields(
    lastmod: Time,
    datetime: Time,
    hash: str | None,
    length: int | None,
    type: str | None,
    encoding: str | None,
    changefreq: str | None,
    priority: float | None,
    links: Sequence[Link],
) -> Fields:
    """What a method for a change was given."""
    return {
        "lastmod": lastmod,
        "datetime": datetime,
        "hash": hash,
        "length": length,
        "type": type,
        "encoding": encoding,
        "changefreq": changefreq,
        "priority": priority,
        "links": links,
    }


class ChangeMethods(Generic[Sent]):
    """A method for each thing that can happen to a resource; `send` passes it on."""

    def send(self, set_name: str, change: Change, *, kind: Kind = "change") -> Sent:
        raise NotImplementedError

    def created(
        self,
        set_name: str,
        loc: str,
        *,
        lastmod: Time = None,
        datetime: Time = None,
        hash: str | None = None,
        length: int | None = None,
        type: str | None = None,
        encoding: str | None = None,
        changefreq: str | None = None,
        priority: float | None = None,
        links: Sequence[Link] = (),
    ) -> Sent:
        """The resource at `loc` is new."""
        said = fields(lastmod, datetime, hash, length, type, encoding, changefreq, priority, links)
        return self.send(set_name, make_change(loc, "created", said))

    def updated(
        self,
        set_name: str,
        loc: str,
        *,
        lastmod: Time = None,
        datetime: Time = None,
        hash: str | None = None,
        length: int | None = None,
        type: str | None = None,
        encoding: str | None = None,
        changefreq: str | None = None,
        priority: float | None = None,
        links: Sequence[Link] = (),
    ) -> Sent:
        """The resource at `loc` has changed."""
        said = fields(lastmod, datetime, hash, length, type, encoding, changefreq, priority, links)
        return self.send(set_name, make_change(loc, "updated", said))

    def deleted(
        self,
        set_name: str,
        loc: str,
        *,
        lastmod: Time = None,
        datetime: Time = None,
        hash: str | None = None,
        length: int | None = None,
        type: str | None = None,
        encoding: str | None = None,
        changefreq: str | None = None,
        priority: float | None = None,
        links: Sequence[Link] = (),
    ) -> Sent:
        """The resource at `loc` is no more."""
        said = fields(lastmod, datetime, hash, length, type, encoding, changefreq, priority, links)
        return self.send(set_name, make_change(loc, "deleted", said))
