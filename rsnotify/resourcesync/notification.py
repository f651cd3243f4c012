"""What travels on a channel: changes as fragments, and notifications made of them.

A fragment is the finished `<url>` of a change, with a hole (a NUL byte) wherever its position
belongs. It is written twice: as XML, which readers get, and in the short form, which Redis keeps:
with a control character for each phrase that many fragments have. XML never holds these characters,
so nothing else can be meant by them. What is in Redis is written with this table: it may grow, but
nothing in it may ever change.

A notification is rendered once and never changes. It covers `(from_, until]`, and `until` is the
position of its last change.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Literal, NamedTuple, Protocol, Self, TypeVar
from urllib.parse import urlencode
from weakref import ref

import msgspec

from rsnotify.errors import CloseCode, Rejected
from rsnotify.resourcesync.change import (
    ATTRIBUTES,
    CHANGE_TYPES,
    ELEMENTS,
    MICROSECONDS,
    NO_RARE_FIELDS,
    USUAL,
    Change,
    Link,
    Position,
    rare_fields,
    render_datetime,
)
from rsnotify.resourcesync.xml_writer import (
    Md,
    close_root,
    escape,
    is_plain_text,
    open_root,
    render_foreign,
    render_link,
)

# --- fragments -----------------------------------------------------------------------------------

HOLE = b"\0"
"""Marks in a fragment where the position is inserted; XML can never contain this byte."""

LOC = b"\x01"
LOC_END = b"\x02"
END = b"\x03"

KIND = dict(zip(CHANGE_TYPES, "\x04\x05\x06", strict=True))
KIND_AND_CHANGEFREQ = dict(zip(CHANGE_TYPES, "\x0e\x0f\x10", strict=True))
KIND_AND_PRIORITY = dict(zip(CHANGE_TYPES, "\x1b\x1c\x1d", strict=True))
"""What says how a resource changed, behind its `lastmod`, its `changefreq` or its `priority`."""

MD5, SHA_256, SHA_1 = "\x07", "\x08", "\x12"
LENGTH, TYPE, ENCODING = "\x0b", "\x0c", "\x17"
CHANGEFREQ, CAPABILITY = "\x11", "\x13"


def _behind(name: str, kind: str) -> str:
    return f'</{name}><rs:md change="{kind}" datetime="{HOLE.decode()}'


_TABLE = {
    "\x18": '" type="application/',
    "\x19": '" type="text/',
    "\x1a": '" type="image/',
    "\x16": '"/><rs:ln rel="http://www.openarchives.org/rs/terms/patch" href="',
    "\x14": '"/><rs:ln rel="',
    "\x15": '" href="',
    SHA_1: '" hash="sha-1:',
    ENCODING: '" encoding="',
    CAPABILITY: '" capability="',
    CHANGEFREQ: "</lastmod><changefreq>",
    **{short: _behind("changefreq", kind) for kind, short in KIND_AND_CHANGEFREQ.items()},
    **{short: _behind("priority", kind) for kind, short in KIND_AND_PRIORITY.items()},
    **{short: _behind("lastmod", kind) for kind, short in KIND.items()},
    MD5: '" hash="md5:',
    SHA_256: '" hash="sha-256:',
    LENGTH: '" length="',
    TYPE: '" type="',
    END.decode(): '"/></url>',
    LOC_END.decode(): "</loc><lastmod>",
    LOC.decode(): "<url><loc>",
}
PHRASES = tuple((short.encode(), phrase.encode()) for short, phrase in _TABLE.items())
"""In the order in which they are looked for: what begins with another phrase comes before it."""

_FREQUENT = tuple(pair for pair in PHRASES if pair[0] < b"\x0e")
_find_rare = re.compile(rb"[\x0e-\x1f]").search
_FEW = 1_000  # bytes: of more, to look for what is rare costs more than to replace it

_TOGETHER = 100  # fragments: their XML fits in a cache of the processor
_BETWEEN = b"\n"  # fragments: in XML a line break is written as a reference


def shorten(xml: bytes) -> bytes:
    """A fragment, or a part that begins and ends at a phrase, in its short form."""
    for short, phrase in PHRASES:
        xml = xml.replace(phrase, short)
    return xml


def spell_out(stored: bytes) -> bytes:
    """The XML of short forms; what is XML already stays as it is."""
    is_frequent = len(stored) < _FEW and _find_rare(stored) is None
    for short, phrase in _FREQUENT if is_frequent else PHRASES:
        stored = stored.replace(short, phrase)
    return stored


def spell_out_each(stored: Sequence[bytes]) -> list[bytes]:
    """The XML of each: of many together in a fifth of the time."""
    found: list[bytes] = []
    for start in range(0, len(stored), _TOGETHER):
        some = _BETWEEN.join(stored[start : start + _TOGETHER])
        found += spell_out(some).split(_BETWEEN)
    return found


_HOLE = HOLE.decode()
_ELEMENTS = ELEMENTS[2:]  # every entry has the others
_ATTRIBUTES = tuple(name for name in ATTRIBUTES if name not in USUAL)
_TEXTS = tuple(name for name in (*ELEMENTS, *ATTRIBUTES) if name not in ("length", "priority"))
_texts = attrgetter(*_TEXTS)


Forms = tuple[bytes, bytes]  # of one fragment: XML, short form


def render_forms(change: Change, *, foreign: Mapping[str, str] | None = None) -> Forms:
    """Its XML and its short form. `foreign`: attributes of other namespaces for its `rs:md`.

    Publishing spends most of its time here, so one check of all texts together decides whether any
    needs escaping, and what most changes have is not searched for: it is written in both forms.
    """
    c = change
    usual = not foreign and rare_fields(c) == NO_RARE_FIELDS
    texts = (c.loc, c.change, c.lastmod, c.hash, c.type) if usual else _texts(c)
    if not is_plain_text("".join(filter(None, texts))):
        c = _escaped(c)
    if usual:
        return _xml(c).encode(), _short(c).encode()
    elements = "".join(
        f"<{name}>{value}</{name}>" for name in _ELEMENTS if (value := getattr(c, name)) is not None
    )
    attributes = "".join(
        f' {name}="{value}"' for name in _ATTRIBUTES if (value := getattr(c, name)) is not None
    )
    xml = _xml(c, elements, attributes + render_foreign(foreign or {}), _links(c)).encode()
    return xml, shorten(xml)


def _xml(c: Change, elements: str = "", attributes: str = "", links: str = "") -> str:
    return (
        f"<url><loc>{c.loc}</loc><lastmod>{c.lastmod or _HOLE}</lastmod>{elements}"
        f'<rs:md change="{c.change}" datetime="{_HOLE}"'
        f"""{f' hash="{c.hash}"' if c.hash else ""}"""
        f"""{f' length="{c.length}"' if c.length is not None else ""}"""
        f"""{f' type="{c.type}"' if c.type else ""}"""
        f"{attributes}/>{links}</url>"
    )


def _short(c: Change) -> str:
    """What `shorten` would make of it."""
    return (
        f"\x01{c.loc}\x02{c.lastmod or _HOLE}{KIND[c.change]}"
        f"{_short_hash(c.hash) if c.hash else ''}"
        f"{f'{LENGTH}{c.length}' if c.length is not None else ''}"
        f"{_short_type(c.type) if c.type else ''}\x03"
    )


def _short_hash(digests: str) -> str:
    if digests[:4] == "md5:":
        return MD5 + digests[4:]
    if digests[:8] == "sha-256:":
        return SHA_256 + digests[8:]
    return shorten(f'" hash="{digests}'.encode()).decode()


def _escaped(change: Change) -> Change:
    texts = zip(_TEXTS, _texts(change), strict=True)
    return msgspec.structs.replace(change, **{name: escape(text) for name, text in texts if text})


@lru_cache(maxsize=256)
def _short_type(media_type: str) -> str:
    return shorten(f'" type="{media_type}'.encode()).decode()


def _links(change: Change) -> str:
    index = (Link(rel="index", href=change.index),) if change.index else ()
    return "".join(map(render_link, (*index, *change.links)))


_PATCH = re.compile(rb'<rs:ln rel="http://www\.openarchives\.org/rs/terms/patch"[^>]*/>')
_EMPTY_MD = re.compile(rb'<rs:md change="[^"]*" datetime="[^"]*"/>')
_CHANGE_ONLY = re.compile(rb'<rs:md change="[^"]*" datetime="[^"]*"')


def resource_entries(entries: bytes) -> bytes:
    """The entries of resources in the Resource List, made from the fragments of their last changes.

    What describes only the change is removed: `change`, `datetime`, links to patches.
    """
    return _CHANGE_ONLY.sub(b"<rs:md", _EMPTY_MD.sub(b"", _PATCH.sub(b"", entries)))


# --- channels and notifications ------------------------------------------------------------------

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
STREAM_PATH = "/streams/{set}"
FRAMEWORK_STREAM_PATH = "/streams/{set}/framework"
SOURCE_DESCRIPTION = "/.well-known/resourcesync"

T = TypeVar("T")


def canonical_query(pairs: Iterable[tuple[str, str]]) -> bytes:
    """The query of a question to a stream, in the one way that caches share: sorted, and encoded as
    browsers encode a form.

    >>> canonical_query([("type", "image/*"), ("prefix", "http://a/~b")])
    b'prefix=http%3A%2F%2Fa%2F%7Eb&type=image%2F*'
    """
    return form_query(sorted(pairs))


def form_query(pairs: Iterable[tuple[str, str]]) -> bytes:
    """A query as browsers encode a form."""
    return urlencode([*pairs], safe="*").replace("~", "%7E").encode()


def capability_list(set_name: str) -> str:
    return f"/{set_name}/capabilitylist.xml"


def change_list_index(set_name: str) -> str:
    return f"/{set_name}/changelist-index.xml"


def kind_named(kind: str) -> Kind:
    """The kind of a channel that an address names."""
    for known in KINDS:
        if kind == known:
            return known
    raise Rejected(f"there is no {kind} channel", status=404, close_code=CloseCode.NO_SUCH_SET)


class ChannelName(NamedTuple):
    """A set's change channel or its framework channel."""

    set_name: str
    kind: Kind

    @classmethod
    def named(cls, set: str, kind: str) -> Self:  # noqa: A002
        """The channel that an address names."""
        return cls(set, kind_named(kind))

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

    __slots__ = (
        *("__weakref__", "_made", "count", "entries", "from_"),
        *("holder", "payload", "size", "until"),
    )

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
                self.grew(_size_of(made))
        return made  # type: ignore[return-value]

    def grew(self, size: int) -> None:
        """Something takes so many bytes more that was made of it."""
        self.size += size
        if self.holder is not None:
            self.holder.grew(size)

    def __repr__(self) -> str:
        return f"<Notification {self.count} changes ({self.from_}, {self.until}]>"


class _Whole:
    """The notification of which another is a part, and with which it is kept and forgotten."""

    __slots__ = ("_whole",)

    def __init__(self, whole: Notification) -> None:
        self._whole = ref(whole)  # a circle would wait for the garbage collector

    def grew(self, size: int) -> None:
        whole = self._whole()
        if whole is not None:
            whole.grew(size)


def _size_of(made: object) -> int:
    if isinstance(made, bytes):
        return len(made) + MADE_BYTES
    size = getattr(made, "size", None)
    return size if isinstance(size, int) else OBJECT_BYTES


def part_of(whole: Notification, entries: bytes, count: int) -> Notification:
    """Some changes of a notification; it covers the same interval."""
    opening = whole.payload[: whole.entries.start]
    part = _closed(whole.from_, whole.until, count, opening, entries)
    part.holder = _Whole(whole)
    return part


def begun_at(found: Notification, begin: Position) -> Notification:
    """The notification for a reader who has read so far, if nothing between was for it; made once
    for all who are there."""
    if begin == found.from_:
        return found

    def make(found: Notification) -> Notification:
        before = found.payload[: found.entries.start - _INTERVAL_BYTES]
        opening = before + _interval(begin, found.until)
        entries = found.payload[found.entries]
        part = _closed(begin, found.until, found.count, opening, entries)
        part.holder = _Whole(found)
        return part

    return found.derived(f"from {int(begin)}", make)


def render_notification(
    channel: ChannelName, from_: Position, rows: Sequence[Row], *, base_url: str
) -> Notification:
    """All these rows as one notification that begins at `from_`."""
    return _enclose(channel, from_, rows[-1][0], len(rows), render_rows(rows), base_url)


def render_nothing(
    channel: ChannelName, from_: Position, until: Position, *, base_url: str
) -> Notification:
    """A notification without changes: a position, for a reader for whom nothing was."""
    return _enclose(channel, from_, until, 0, b"", base_url)


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
    before = _before_interval(channel, base_url + _up(channel, entries))
    return _closed(from_, until, count, before + _interval(from_, until), entries)


def _closed(
    from_: Position, until: Position, count: int, opening: bytes, entries: bytes
) -> Notification:
    end = len(opening) + len(entries)
    return Notification(from_, until, count, opening + entries + CLOSING, slice(len(opening), end))


def _interval(from_: int, until: int) -> bytes:
    return b' from="%b" until="%b"/>' % (render_datetime_bytes(from_), render_datetime_bytes(until))


_INTERVAL_BYTES = len(b' from="2026-11-20T21:34:00.123456Z" until="2026-11-20T21:34:00.123456Z"/>')


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


def render_datetime_bytes(microseconds: int) -> bytes:
    """The datetime as bytes, sooner than by encoding it: every change that is sent has one."""
    second, microseconds = divmod(microseconds, MICROSECONDS)
    return b"%b.%06dZ" % (_second_bytes(second), microseconds)


@lru_cache(maxsize=4096)
def _second_bytes(seconds: int) -> bytes:
    return render_datetime(seconds * MICROSECONDS)[:19].encode()


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
RESERVED = frozenset(
    {
        *("api", "channels", "hub", "health", "metrics", "static", "streams"),
        *("dcat.jsonld", "dcat.ttl"),
        *("favicon.ico", "robots.txt"),  # which programs ask of every host
    }
)
SET_NAME = rf"(?!(?:{'|'.join(map(re.escape, sorted(RESERVED)))})\Z){NAME.pattern}"
"""What a set can be named, where an address ends with it."""


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
