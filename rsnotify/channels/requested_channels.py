"""What a request asks for: which channels, from which positions on, in which form."""

from typing import NamedTuple

from starlette.requests import HTTPConnection

from rsnotify.access.query import (
    CHANNEL,
    LAST_EVENT_ID,
    SEVERAL_CHANNELS,
    filter_of,
    form_of,
    parse_cursors,
    parse_moment,
    parse_query,
    parse_sets,
    parse_start,
)
from rsnotify.access.sent_token import SUBPROTOCOL
from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.change_filter import Filter
from rsnotify.resourcesync.forms import JSON, Form
from rsnotify.resourcesync.notification import ChannelName, Kind

JSON_SUBPROTOCOL = "rsnotify.json"
XML_SUBPROTOCOL = "rsnotify.xml"


class ChannelCursor(NamedTuple):
    """A channel that a reader asks for, and the position from which on; None means now."""

    channel: ChannelName
    after: Position | None


def requested_channels(connection: HTTPConnection, kind: Kind) -> list[ChannelCursor]:
    """The channel of the set in the path, or the channels of the sets in the query."""
    requested_form(connection)  # refused before anything else is done
    text, last = connection.scope["query_string"], connection.headers.get("last-event-id")
    set_name = connection.path_params.get("set")
    if set_name is not None:
        start = parse_start(parse_query(text, CHANNEL))
        after = parse_moment(last, LAST_EVENT_ID) if last else start
        return [ChannelCursor(ChannelName(set_name, kind), after)]
    cursors = parse_cursors(last) if last else {}
    return [
        ChannelCursor(ChannelName(name, kind), cursors.get(name, start))
        for name, start in parse_sets(parse_query(text, SEVERAL_CHANNELS))
    ]


def requested_filter(connection: HTTPConnection, kind: Kind) -> Filter | None:
    """Which changes are asked for, if the query is one that was read before."""
    return filter_of(parse_query(connection.scope["query_string"], SEVERAL_CHANNELS), kind)


def subprotocol_of(connection: HTTPConnection) -> str | None:
    """The one subprotocol of the hub that the peer offers; one that brings a token is no choice."""
    offered = connection.scope.get("subprotocols", ())
    for known in (JSON_SUBPROTOCOL, XML_SUBPROTOCOL):
        if known in offered:
            return known
    if any(each.startswith(SUBPROTOCOL) for each in offered):
        also = f"offer {JSON_SUBPROTOCOL} or {XML_SUBPROTOCOL} beside the token"
        raise Rejected(f"{also}: a browser wants one of its subprotocols chosen")
    return None


def requested_form(connection: HTTPConnection) -> Form:
    """XML, or JSON for those who ask for it; a web page can ask by a WebSocket's subprotocol."""
    if subprotocol_of(connection) == JSON_SUBPROTOCOL:
        return JSON
    return form_of(connection)
