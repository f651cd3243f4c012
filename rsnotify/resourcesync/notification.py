"""What travels on a channel: the channel's name, what it may be, the interval, the notification.

A notification is rendered once and never changes. It covers `(from_, until]`, and `until` is the
position of its last change.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, Protocol, Self, TypeVar

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Link, Position, render_datetime_bytes
from rsnotify.resourcesync.fragments import HOLE
from rsnotify.resourcesync.xml_writer import Md, close_root, open_root

Kind = Literal["change", "framework"]
KINDS: tuple[Kind, ...] = ("change", "framework")

NOTIFICATION_CHANGES = 1_000
NOTIFICATION_BYTES = 512 * 1024  # common WebSocket clients refuse messages over 1 MiB

CLOSING = close_root("urlset")
END_OF_ENTRY = b"</url>"

Row = tuple[Position, bytes]  # a change in the journal: its position and its fragment

HELD_BYTES = 600  # memory of a notification besides its payload, as measured
MADE_BYTES = 50  # memory of bytes made of it, besides the bytes
OBJECT_BYTES = 1_000  # memory of anything else made of it, such as headers

FROM_HEADER = "Rsnotify-From"
"""The header that gives a reader its position before the first notification."""

CHANNEL_PATH = "/channels/{set}/{kind}_notification_channel"
CHANNELS_PATH = "/channels/{kind}_notification_channel"  # of several sets, over one connection
SOURCE_DESCRIPTION = "/.well-known/resourcesync"

T = TypeVar("T")


def capability_list(set_name: str) -> str:
    return f"/{set_name}/capabilitylist.xml"


def change_list_index(set_name: str) -> str:
    return f"/{set_name}/changelist-index.xml"


class ChannelName(NamedTuple):
    """A set's change channel or its framework channel."""

    set_name: str
    kind: Kind

    @classmethod
    def named(cls, set: str, kind: str) -> Self:  # noqa: A002
        """The channel that an address names."""
        for known in KINDS:
            if kind == known:
                return cls(set, known)
        raise Rejected(f"there is no {kind} channel", status=404, close_code=4404)

    @property
    def capability(self) -> str:
        return f"{self.kind}-notification"

    @property
    def path(self) -> str:
        return CHANNEL_PATH.format(set=self.set_name, kind=self.kind)

    def __str__(self) -> str:
        return f"{self.set_name}/{self.kind}"


class Interval(NamedTuple):
    """The stretch `(from_, until]` of a journal."""

    from_: Position
    until: Position


class Holder(Protocol):
    """Keeps notifications in memory, and counts the bytes they take."""

    def grew(self, size: int) -> None: ...


class Notification:
    """One `<urlset>` with every change in `(from_, until]`."""

    __slots__ = ("_made", "count", "entries", "from_", "holder", "payload", "size", "until")

    def __init__(
        self, from_: Position, until: Position, count: int, payload: bytes, entries: slice
    ) -> None:
        self.from_ = from_
        self.until = until
        self.count = count
        self.payload = payload
        self.entries = entries
        self.size = HELD_BYTES + len(payload)  # in memory, with everything made of it
        self.holder: Holder | None = None
        self._made: dict[str, object] = {}

    @property
    def entries_size(self) -> int:
        """The bytes of its changes, without what encloses them."""
        size: int = self.entries.stop - self.entries.start
        return size

    def derived(self, name: str, make: Callable[["Notification"], T]) -> T:
        """The result of `make`: made for the first reader, kept for all others."""
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = make(self)
            if made is not self.payload:
                self._grow(len(made) + MADE_BYTES if isinstance(made, bytes) else OBJECT_BYTES)
        return made  # type: ignore[return-value]

    def _grow(self, size: int) -> None:
        self.size += size
        if self.holder is not None:
            self.holder.grew(size)

    def __repr__(self) -> str:
        return f"<Notification {self.count} changes ({self.from_}, {self.until}]>"


def render_notification(
    channel: ChannelName, from_: Position, rows: Sequence[Row], *, base_url: str
) -> Notification:
    """All these rows as one notification that begins at `from_`."""
    return _enclose(channel, from_, rows[-1][0], len(rows), render_rows(rows), base_url)


def join_notifications(
    channel: ChannelName, run: Sequence[Notification], *, base_url: str
) -> Notification:
    """Consecutive notifications joined into one, for readers that are behind."""
    if len(run) == 1:
        return run[0]
    count = sum(each.count for each in run)
    entries = b"".join([each.payload[each.entries] for each in run])
    return _enclose(channel, run[0].from_, run[-1].until, count, entries, base_url)


def _enclose(
    channel: ChannelName,
    from_: Position,
    until: Position,
    count: int,
    entries: bytes,
    base_url: str,
) -> Notification:
    interval = render_datetime_bytes(from_), render_datetime_bytes(until)
    before = _before_interval(channel, base_url + _up(channel, entries))
    opening = b'%b from="%b" until="%b"/>' % (before, *interval)
    end = len(opening) + len(entries)
    return Notification(from_, until, count, opening + entries + CLOSING, slice(len(opening), end))


@lru_cache(maxsize=512)  # some 0.6 KB each
def _before_interval(channel: ChannelName, up: str) -> bytes:
    """A notification up to its interval, the last attributes of its `rs:md`."""
    opening = open_root("urlset", (Link(rel="up", href=up),), Md(capability=channel.capability))
    return opening.removesuffix(b"/>")


def _up(channel: ChannelName, entries: bytes) -> str:
    """The document above: the Source Description if a Capability List changed, else the latter."""
    if channel.kind == "framework" and all(map(_is_above_sets, entries.split(END_OF_ENTRY)[:-1])):
        return SOURCE_DESCRIPTION
    return capability_list(channel.set_name)


def _is_above_sets(entry: bytes) -> bool:
    return b' capability="capabilitylist"' in entry or b' capability="description"' in entry


def render_rows(rows: Sequence[Row]) -> bytes:
    """The `<url>` elements of these changes, with their positions filled in."""
    return b"".join([fragment.replace(HOLE, render_datetime_bytes(at)) for at, fragment in rows])


def first_batch(rows: Sequence[Row]) -> Sequence[Row]:
    """The first rows, as many as one notification may carry, at least one."""
    size = 0
    for number, (_, fragment) in enumerate(rows[:NOTIFICATION_CHANGES]):
        size += len(fragment)
        if size > NOTIFICATION_BYTES and number:
            return rows[:number]
    return rows[:NOTIFICATION_CHANGES]


NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
RESERVED = frozenset({"api", "channels", "hub", "health", "metrics", "static"})


def wrong_name(name: str) -> str | None:
    """Why no set can have this name; None if one can.

    >>> wrong_name("hub")
    "the name 'hub' is reserved for the hub itself; choose another"
    """
    if NAME.fullmatch(name) is None:
        return (
            f"{name[:80]!r} is not a valid name for a set: use 1 to 64 of a-z 0-9 - _ . "
            "beginning with a letter or digit"
        )
    if name in RESERVED:
        return f"the name {name!r} is reserved for the hub itself; choose another"
    return None
