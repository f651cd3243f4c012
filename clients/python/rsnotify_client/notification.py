"""What a channel sends and a follower hands on: changes, their interval and their positions.

Rules that hold here: positions never run backwards within one `Received`; a change without a time
has the position of the one before it. A change that cannot be read is skipped and named. Nothing
here knows how changes travel.
"""

import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import (
    ATTRIBUTES,
    CHANGE_TYPES,
    ELEMENTS,
    Change,
    Position,
    is_w3c_datetime,
)
from rsnotify.resourcesync.notification import CHANNEL_PATH, CHANNELS_PATH
from rsnotify.resourcesync.xml_reader import change_of, parse_document
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, render_document

log = logging.getLogger(__name__)

CHANNEL_URL = re.compile(
    r"ws(?P<secure>s?)://(?P<rest>.+)"
    + CHANNEL_PATH.format(set=r"(?P<name>[^/]+)", kind=r"(?P<kind>\w+)")
)


def is_hub_channel(url: str) -> bool:
    """Whether the address of a channel, or of its topic, is one as hubs have.

    >>> is_hub_channel("http://a/b/channels/c/change_notification_channel"), is_hub_channel("http://a/b")
    (True, False)
    """
    return CHANNEL_URL.fullmatch(re.sub("^http", "ws", url.partition("?")[0])) is not None


SET = re.compile(r"/([^/]+)/capabilitylist\.xml$")

ChannelTransport = Literal["websocket", "sse", "long-poll"]
"""How a channel is read."""

TRANSPORTS: tuple[ChannelTransport, ...] = ("websocket", "sse", "long-poll")
"""In the order in which they are tried."""


class Messages(NamedTuple):
    """What a stream of a hub answers: changes in JSON, and the interval that they cover."""

    body: bytes
    after: Position
    until: Position
    up: str  # the Capability List of its set


Payload = str | bytes | Messages


class Received(msgspec.Struct, frozen=True):
    """The changes of one notification, or of a stretch of a Change List."""

    payload: bytes
    from_: Position
    until: Position
    changes: tuple[Change, ...]
    positions: tuple[Position, ...] = ()
    joins: bool = True  # whether it says itself where it begins; 0.8 does not
    up: str | None = None  # the Capability List of its set
    is_state: bool = False  # resources as they are, before any change


def channel_url(url: str, set_name: str, kind: Literal["change", "framework"] = "change") -> str:
    """The WebSocket address of a set's channel on the hub at `url`."""
    scheme, _, rest = url.rstrip("/").partition("://")
    scheme = {"http": "ws", "https": "wss"}.get(scheme, scheme)
    return f"{scheme}://{rest}{CHANNEL_PATH.format(set=set_name, kind=kind)}"


def channel_named(url: str) -> str:
    """The channel in a reader's words, such as `dataset1/change at http://127.0.0.1:8080`."""
    parts = CHANNEL_URL.fullmatch(url)
    if parts is None:
        return url
    return f"{parts['name']}/{parts['kind']} at http{parts['secure']}://{parts['rest']}"


def log_skipped(what: str) -> None:
    """Report what cannot be read, or is not believed."""
    log.warning("skipped %s", what)


def read_notification(
    payload: Payload,
    skip: Callable[[str], object] = log_skipped,
    is_ahead: Callable[[str], bool] | None = None,
) -> Received:
    """The changes and the interval of a notification's `<urlset>`; 0.8 has no interval.

    A time that is yet to come is named, and not believed: whoever stood there would pass over all
    that is published until then.
    """
    if isinstance(payload, Messages):
        return _read_messages(payload, skip, is_ahead)
    data = payload.encode() if isinstance(payload, str) else payload
    document = parse_document(data)
    md = document.md or Md()
    skipped: list[str] = []
    believed = [_believed(each, is_ahead, skipped.append) for each in (md.from_, md.until)]
    from_, until = map(position_of, believed)
    timed = list(timed_changes(document.entries, from_, skipped.append, is_ahead))
    if skipped:
        skip(f"of a notification: {skipped[0]}; {len(skipped)} in all")
    if from_ is None or until is None:
        if from_ is None and (not timed or timed[-1][0] == 0):
            raise Rejected("the notification says neither an interval nor when anything happened")
        from_ = from_ or timed[0][0]
        until = timed[-1][0] if timed else from_
    changes, positions = tuple(change for _, change in timed), tuple(each for each, _ in timed)
    up = next((link.href for link in document.links if link.rel == "up"), None)
    return Received(data, from_, until, changes, positions, believed[0] is not None, up)


def _read_messages(
    messages: Messages, skip: Callable[[str], object], is_ahead: Callable[[str], bool] | None
) -> Received:
    """The same of what a stream answers. It has no XML, so the payload is empty."""
    try:
        found = msgspec.json.decode(messages.body, type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        raise Rejected(f"the answer of a stream is no array in JSON: {error}") from None
    skipped: list[str] = []
    said = _believed(str(messages.until), is_ahead, skipped.append)
    changes = (_change_in(each, skipped.append) for each in found)
    there = (change for change in changes if change is not None)
    timed = list(_timed(there, messages.after, skipped.append, is_ahead))
    if skipped:
        skip(f"of a stream: {skipped[0]}; {len(skipped)} in all")
    last = timed[-1][0] if timed else messages.after
    until = last if said is None else max(messages.until, last)
    return Received(
        b"",
        messages.after,
        until,
        tuple(change for _, change in timed),
        tuple(position for position, _ in timed),
        up=messages.up,
    )


def _change_in(message: msgspec.Raw, skip: Callable[[str], object]) -> Change | None:
    try:
        return msgspec.json.decode(message, type=Change)
    except (msgspec.DecodeError, RecursionError) as error:
        skip(f"a change that cannot be read: {error}")
        return None


def _believed(
    time: str | None, is_ahead: Callable[[str], bool] | None, skip: Callable[[str], object]
) -> str | None:
    if time is None or is_ahead is None or not is_ahead(time):
        return time
    skip(f"it says that it is of {time}, which has not come yet: correct it, or the clock")
    return None


def standing(cursor: Position | None) -> Received:
    """A `Received` without changes, at this position."""
    at = cursor or Position(0)
    return Received(b"", at, at, ())


def set_named(capability_list: str) -> str | None:
    """The set that a Capability List of a hub is about."""
    found = SET.search(capability_list)
    return found and found[1]


def timed_changes(
    entries: Iterable[Entry],
    begin: Position | None,
    skip: Callable[[str], object],
    is_ahead: Callable[[str], bool] | None = None,
) -> Iterator[tuple[Position, Change]]:
    """Each change with its time: its datetime, else its lastmod if that fits.

    One that is yet to come is named, and is that of the change before.
    """
    return _timed(map(change_of, entries), begin, skip, is_ahead)


def _timed(
    changes: Iterable[Change],
    begin: Position | None,
    skip: Callable[[str], object],
    is_ahead: Callable[[str], bool] | None,
) -> Iterator[tuple[Position, Change]]:
    before = begin or Position(0)
    for found in changes:
        change = found
        if not change.loc or change.change not in CHANGE_TYPES:
            skip(_unreadable(change))
            continue
        when = position_of(change.datetime)
        if when is None and change.datetime:
            skip(f"the datetime {change.datetime[:80]!r} of {change.loc[:200]!r}")
            change = msgspec.structs.replace(change, datetime=None)
        at = when or position_of(change.lastmod) or before
        said = change.datetime or change.lastmod
        if is_ahead is not None and said is not None and is_ahead(said):
            skip(f"{change.loc[:200]!r} has changed at {said}, which has not come yet: correct it")
            change = msgspec.structs.replace(change, datetime=None)
            at = before
        before = max(before, at)
        yield before, change


def _unreadable(change: Change) -> str:
    if not change.loc:
        return f"an entry without loc, with change {change.change[:80]!r}"
    return f"{change.loc[:200]!r}: change is {change.change[:80]!r}"


def position_of(text: str | None) -> Position | None:
    """The position of a time of any granularity; a day begins at midnight UTC."""
    if not text:
        return None
    if "T" in text:
        try:
            return Position.parse(text)
        except ValueError:
            return None
    if not is_w3c_datetime(text):
        return None
    return Position.parse(f"{text}{'-01-01'[len(text) - 4 :] if len(text) < 10 else ''}T00:00:00Z")


def rendered(received: Received) -> bytes:
    """The payload as it came, or the changes as a Change List has them."""
    if received.payload:
        return received.payload
    md = Md(capability="changelist", from_=str(received.from_), until=str(received.until))
    return render_document(Document("urlset", md, (), tuple(map(_entry, received.changes))))


def _entry(change: Change) -> Entry:
    elements = {name: getattr(change, name) for name in ELEMENTS}
    md = Md(**{name: getattr(change, name) for name in ATTRIBUTES})
    return Entry(**elements, md=md, links=change.links)


# --- channels ------------------------------------------------------------------------------------


class Channel:
    """An open connection: the payloads, and what the peer has said of where it begins."""

    def __init__(
        self,
        payloads: AsyncIterator[Payload],
        announced: str | None = None,
        ahead_seconds: float = 0.0,
    ) -> None:
        self.payloads = payloads
        self.ahead_seconds = ahead_seconds
        """By how much the clock of the peer is ahead of this machine's, if it is."""
        self._announced = announced or ""

    @property
    def begins(self) -> Position | None:
        return position_of(self._announced)

    @property
    def begins_in_each(self) -> dict[str, Position]:
        """Where several sets are read: by their names, those whose place can be read."""
        places = (each.partition("@")[::2] for each in self._announced.split(","))
        found = {name: position_of(text) for name, text in places}
        return {name: position for name, position in found.items() if position is not None}


class Lost(Exception):
    """The connection ended; another may be made from the cursor."""


class Cut(Lost):
    """It brought nothing: something on the way may hold back what this transport sends."""


class Renewed(Exception):
    """There is another token: the channel is opened again with it, from the cursor."""

    def __init__(self, *, was_refused: bool) -> None:
        super().__init__("the token was renewed")
        self.was_refused = was_refused


class TooOld(Exception):
    """The channel no longer has what followed the cursor; Change Lists may."""


class NoChannel(Rejected):
    """What answered at the address serves no channel, and does not say why."""

    def __init__(self, url: str, status: int, kind: str | None = None) -> None:
        detail = f"{url}: the answer was {status}"
        if status == 200:
            came = "sent a page in HTML" if "html" in (kind or "") else "serves something else"
            detail = f"{url} is no channel: it {came}, neither a WebSocket nor an event stream"
        super().__init__(detail, status=status)

    @property
    def may_pass(self) -> bool:
        """Whether what was a channel before may be one again: it is only not there now."""
        return self.status in (200, 404)


def resumed(url: str, cursor: Position | None) -> str:
    """The channel's address for a reader at this cursor."""
    if cursor is None:
        return url
    parts = urlsplit(url)
    query = [pair for pair in parse_qsl(parts.query) if pair[0] != "from"]
    return urlunsplit(parts._replace(query=urlencode([*query, ("from", str(cursor))], safe=":")))


def channels_address(url: str, cursors: Mapping[str, Position | None]) -> str:
    """The WebSocket address of one connection to the change channels of several sets of a hub.

    >>> channels_address("http://a", {"x": None, "y": Position(0)})
    'ws://a/channels/change_notification_channel?set=x&set=y@1970-01-01T00:00:00.000000Z'
    """
    sets = [("set", name if at is None else f"{name}@{at}") for name, at in cursors.items()]
    path = CHANNELS_PATH.format(kind="change")
    return f"ws{url.removeprefix('http')}{path}?{urlencode(sets, safe=':@')}"
