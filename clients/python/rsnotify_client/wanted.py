"""The part of a Source that a follower wants: asked for at a hub, and left of what others send.

A hub sends no more than that over a channel, or in its Change Lists (`docs/filters.md`). What comes
from another Source is held against the same filter here: whoever cannot know what a resource was
before gets its update, too, because it may have left.
"""

from collections.abc import Sequence
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec.structs import replace

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.change_filter import FILTER, Filter, parse_filter
from rsnotify.resourcesync.notification import render_forms
from rsnotify_client.errors import InvalidArgument
from rsnotify_client.notification import CHANNEL_URL, Received

Values = str | Sequence[str] | None

ALWAYS = "9999-12-31T23:59:59.999999Z"


def wanted_of(prefix: Values, type_: Values, change: Values, collection: Values) -> Filter | None:
    """The filter of a caller's arguments; None if all is wanted.

    >>> wanted_of("http://a/", None, ["created"], None)
    <Filter change=created&prefix=http://a/>
    """
    given = zip(FILTER, (prefix, type_, change, collection), strict=True)
    query = {
        name: [value] if isinstance(value, str) else [*value]
        for name, value in given
        if value is not None
    }
    try:
        return parse_filter(query)
    except Rejected as error:
        raise InvalidArgument(error.detail) from None


def asked_for(url: str, wanted: Filter | None) -> str:
    """The address of a channel, from which only that is wanted."""
    if wanted is None:
        return url
    parts = urlsplit(url)
    query = [*parse_qsl(parts.query, keep_blank_values=True), *wanted.pairs]
    return urlunsplit(parts._replace(query=urlencode(query, safe=":@/")))


class Wanted:
    """Leaves what is wanted of what is received; its interval stays."""

    def __init__(self, wanted: Filter | None) -> None:
        self.filter = wanted
        self._held_against = wanted and wanted.known_since(ALWAYS)

    def asked_of_hub(self, channel: str, url: str) -> str:
        """The address of a Change List; if it is one of the hub's whose channel this is, for what
        is wanted alone."""
        found = CHANNEL_URL.fullmatch(channel)
        if self.filter is None or found is None:
            return url
        lists = f"http{found['secure']}://{found['rest']}/{found['name']}/changelist"
        return asked_for(url, self.filter) if url.startswith((f"{lists}.xml", f"{lists}/")) else url

    def left_of(self, received: Received) -> Received:
        if self._held_against is None or not received.changes:
            return received
        pairs = zip(received.changes, received.positions, strict=True)
        left = [pair for pair in pairs if self._takes(pair[0])]
        if len(left) == len(received.changes):
            return received
        changes, positions = tuple(change for change, _ in left), tuple(at for _, at in left)
        return replace(received, payload=b"", changes=changes, positions=positions)

    def _takes(self, change: Change) -> bool:
        if self._held_against is None:
            return True
        try:
            return self._held_against.matches(render_forms(change)[0])
        except Rejected:  # it has what XML cannot carry: its reader may judge it
            return True
