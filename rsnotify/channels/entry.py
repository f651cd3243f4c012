"""What the address of a connection asks for: one channel or several, and from which position on.

Nothing here knows whether there are such sets, or who may read them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from starlette.requests import HTTPConnection

from rsnotify.errors import Rejected
from rsnotify.http.forms import DOCUMENT_FORMS, JSON, XML, Form, wanted_form
from rsnotify.journal.query import (
    CHANNEL,
    CHANNELS,
    LAST_EVENT_ID,
    parse_cursors,
    parse_moment,
    parse_query,
    parse_sets,
    parse_start,
    render_cursors,
)
from rsnotify.journal.set_options import SetRecord
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import KINDS, ChannelName, Kind

JSON_SUBPROTOCOL = "rsnotify.json"


class ChannelCursor(NamedTuple):
    """A channel that a reader asks for, and from which position on; None is now."""

    channel: ChannelName
    after: Position | None


class Admitted(NamedTuple):
    """The sets that a reader may read, as they were when that was decided."""

    sets: Sequence[SetRecord]
    token: str  # the key of the token that it used, empty if none was needed


class ChannelEntry(NamedTuple):
    """Where a reader begins that may read: in one channel, or in several over one connection."""

    places: Sequence[tuple[ChannelName, Position]]
    is_several: bool
    admitted: Admitted
    form: Form = XML
    address: str = ""  # whose reader it is, for the limits

    @property
    def cursor(self) -> str:
        """Where it stands, as it is told and may send it back."""
        if not self.is_several:
            return str(self.places[0][1])
        return render_cursors((name.set_name, cursor) for name, cursor in self.places)


def requested_kind(connection: HTTPConnection) -> Kind:
    for kind in KINDS:
        if kind == connection.path_params["kind"]:
            return kind
    detail = f"there is no {connection.path_params['kind']} channel"
    raise Rejected(detail, status=404, close_code=4404)


def requested_channels(connection: HTTPConnection, kind: Kind) -> list[ChannelCursor]:
    """The channel of the set in the path, or those of the sets in the query."""
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
        for name, start in parse_sets(parse_query(text, CHANNELS))
    ]


def entry_of(
    connection: HTTPConnection,
    wanted: Sequence[ChannelCursor],
    cursors: Sequence[Position],
    admitted: Admitted,
) -> ChannelEntry:
    names = (each.channel for each in wanted)
    is_several = "set" not in connection.path_params
    places = list(zip(names, cursors, strict=True))
    return ChannelEntry(places, is_several, admitted, requested_form(connection))


def subprotocol_of(connection: HTTPConnection) -> str | None:
    """The one subprotocol that the hub knows, if the peer offers it."""
    return (
        JSON_SUBPROTOCOL if JSON_SUBPROTOCOL in connection.scope.get("subprotocols", ()) else None
    )


def requested_form(connection: HTTPConnection) -> Form:
    """XML, or JSON for those who ask for it; a web page can ask by a WebSocket's subprotocol."""
    if subprotocol_of(connection) is not None:
        return JSON
    accept = ",".join(connection.headers.getlist("accept"))
    return wanted_form(accept, connection.query_params.get("format"), DOCUMENT_FORMS)
