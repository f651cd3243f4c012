"""What a follower knows of a channel: where it begins, its payloads, and the ways in which it ends.

Nothing here knows how payloads travel, so nothing that speaks WebSocket is imported.
"""

from collections.abc import AsyncIterator
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from rsnotify.errors import TryAgain
from rsnotify.resourcesync.change import Position
from rsnotify_client.web import Unreachable

QUIET_SECONDS = 35.0  # the hub pings every 25 s
PONG_SECONDS = 10.0


class Lost(Exception):
    """The connection ended; another may be made from the cursor."""


class TooOld(Exception):
    """The channel no longer tells of what followed the cursor; Change Lists may."""


class Channel:
    """An open connection: where it begins, if the peer has said it, and the payloads."""

    def __init__(
        self, payloads: AsyncIterator[bytes | str], begins: Position | None = None
    ) -> None:
        self.payloads = payloads
        self.begins = begins


def resumed(url: str, cursor: Position | None) -> str:
    """The channel's address for whoever has read up to the cursor."""
    if cursor is None:
        return url
    parts = urlsplit(url)
    query = [pair for pair in parse_qsl(parts.query) if pair[0] != "from"]
    return urlunsplit(parts._replace(query=urlencode([*query, ("from", str(cursor))], safe=":")))


def in_short(error: Exception) -> str:
    """What went wrong, for a line of the log; it will be tried again."""
    if isinstance(error, Unreachable):
        return f"the hub cannot be reached ({error.cause})"
    if isinstance(error, TryAgain):
        return f"the hub cannot serve the channel now ({error.detail})"
    if isinstance(error, Lost):
        return f"the connection was lost ({error})"
    return str(error)
