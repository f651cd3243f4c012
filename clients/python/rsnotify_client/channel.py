"""What a follower knows of a channel: where it begins, its payloads, and the ways in which it ends.

Nothing here knows how payloads travel, so nothing that speaks WebSocket is imported.
"""

from collections.abc import AsyncIterator, Mapping
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import CHANNELS_PATH
from rsnotify_client.notification import position_of
from rsnotify_client.web import Unreachable

QUIET_SECONDS = 35.0  # the hub pings every 25 s
PONG_SECONDS = 10.0


class Lost(Exception):
    """The connection ended; another may be made from the cursor."""


class TooOld(Exception):
    """The channel no longer tells of what followed the cursor; Change Lists may."""


class NoChannel(Rejected):
    """What answered at the address serves no channel, and does not say why."""

    def __init__(self, url: str, status: int) -> None:
        detail = f"{url}: the answer was {status}"
        if status == 200:
            detail = f"{url} is no channel: it serves neither a WebSocket nor an event stream"
        super().__init__(detail, status=status)


class Standstill:
    """How often the same trouble came at the same place, with nothing handed on in between."""

    def __init__(self) -> None:
        self._at: object = None
        self._times = 0

    def count(self, at: object) -> int:
        """It came again, here; 1 is the first time."""
        self._times = self._times + 1 if at == self._at else 1
        self._at = at
        return self._times


class Channel:
    """An open connection: the payloads, and what the peer has said of where it begins."""

    def __init__(self, payloads: AsyncIterator[bytes | str], announced: str | None = None) -> None:
        self.payloads = payloads
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


def in_short(error: Exception) -> str:
    """What went wrong, for a line of the log; it will be tried again."""
    if isinstance(error, Unreachable):
        server = urlsplit(error.url).netloc.rpartition("@")[2]
        return f"the server at {server} cannot be reached ({error.cause})"
    if isinstance(error, TryAgain):
        return f"the hub cannot serve the channel now ({error.detail})"
    if isinstance(error, Lost):
        return f"the connection was lost ({error})"
    return str(error)
