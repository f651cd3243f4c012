"""What the query of an address asks for: positions, sets and pages.

One parser serves all that is read, channels in every form, and lists. A name that is not known is
refused, because a reader that misspells `from` would silently lose changes. Nothing here knows a
clock, or which sets there are.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

from rsnotify.errors import CloseCode, Rejected
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.change_filter import FILTER, Filter, parse_filter
from rsnotify.resourcesync.forms import DOCUMENT_FORMS, Form, wanted_form
from rsnotify.resourcesync.notification import Kind
from rsnotify.sets.options import SetRecord

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

# The parameters that the address of each knows.
DOCUMENT = ("access_token", "format")
RESOURCE_LIST = (*DOCUMENT, "limit", "offset")
CHANGE_LIST = (*DOCUMENT, "from", "since", "until", "limit", *FILTER)
CHANNEL = (*DOCUMENT, "from", "since", *FILTER)
SEVERAL_CHANNELS = (*CHANNEL, "set")
OAI = (
    *("verb", "identifier", "metadataPrefix", "from", "until", "set", "resumptionToken"),
    "access_token",
)
LISTED_SETS = ("name", "search", "limit", "offset")
STATUS = (*LISTED_SETS, "order")
RIGHTS = ("name",)
RESOURCES = ("loc", "access_token")
FRAMEWORK_STREAM_QUESTION = ("access_token", "cursor", "live", "offset")
STREAM_QUESTION = (*FRAMEWORK_STREAM_QUESTION, *FILTER)

LAST_EVENT_ID = "Last-Event-ID"  # what a browser sends when it comes back to an event stream

AHEAD_SECONDS = 5  # by how much the clocks of hub and Destination may differ
SETS_OF_A_CONNECTION = 100
SETS_LISTED = 10_000
ORDERS = ("name", "newest")
DIGITS = re.compile(r"(\d+)")
SETS_LEFT_OUT = 1_000_000
NAME_CHARACTERS = 40  # of an unknown parameter, for which one that is meant is looked for

Query = Mapping[str, Sequence[str]]


class SetCursor(NamedTuple):
    """A set that is asked for, and from which position on."""

    set_name: str
    after: Position | None


def parse_query(text: bytes, known: Sequence[str]) -> Query:
    """The values of each parameter, in their order; names that are not known are refused."""
    query: dict[str, list[str]] = {}
    for name, value in parse_qsl(text.decode("latin-1"), keep_blank_values=True):
        query.setdefault(name, []).append(value)
    unknown = [name for name in query if name not in known]
    if unknown:
        named, names = ", ".join(map(repr, unknown)), ", ".join(known)
        near = get_close_matches(unknown[0][:NAME_CHARACTERS], known, n=1)
        meant = f"; did you mean {near[0]}? Known" if near else "; known"
        raise _refused(f"unknown parameter {named}{meant} here: {names}")
    single(query, "format")
    return query


def form_of(request: "HTTPConnection", forms: Sequence[Form] = DOCUMENT_FORMS) -> Form:
    """The form that is asked for, of those that there are."""
    accept = ",".join(request.headers.getlist("accept"))
    return wanted_form(accept, request.query_params.get("format"), forms)


def parse_start(query: Query) -> Position | None:
    """The position in `from`, or in `since`, which means the same."""
    found = {parse_moment(text, name) for name in ("from", "since") for text in query.get(name, ())}
    if len(found) > 1:
        raise _refused("`from` and `since` are two words for one position: send only one")
    return found.pop() if found else None


def filter_of(query: Query, kind: Kind = "change") -> Filter | None:
    """Which changes are asked for; None if all are."""
    found = parse_filter(query)
    if found is not None and kind == "framework":
        names = ", ".join(sorted({name for name, _ in found.pairs}))
        raise _refused(f"the framework channel has no filter: leave out {names}")
    return found


def single(query: Query, name: str) -> str | None:
    """The value of a parameter that may be given once."""
    values = query.get(name, ())
    if len(values) > 1:
        raise _refused(f"`{name}` is given more than once")
    return values[0] if values else None


def whole_number(query: Query, name: str, low: int, high: int, default: int) -> int:
    text = single(query, name)
    if text is None:
        return default
    is_number = text.isascii() and text.isdecimal() and len(text) < 10
    if not is_number or not low <= int(text) <= high:
        raise _refused(f"{name} is {text[:80]!r}: it must be a whole number from {low} to {high}")
    return int(text)


def parse_moment(text: str, name: str = "from") -> Position:
    """A full datetime with its zone, or a date alone: its first moment in UTC."""
    try:
        return Position.parse_moment(text)
    except (ValueError, OverflowError) as error:
        raise _refused(f"malformed `{name}`: {error}") from None


def check_not_future(after: Position, newest: Position, now: int, name: str = "from") -> None:
    """Refuse a position that no change can have yet. `now` is in microseconds."""
    if after > max(newest, now + AHEAD_SECONDS * MICROSECONDS):
        raise _refused(f"`{name}` is in the future: {after}")


def _refused(detail: str) -> Rejected:
    return Rejected(detail, close_code=CloseCode.BAD_REQUEST)


class SetsAsked(NamedTuple):
    """Which sets an answer is to list."""

    name: str | None  # the set of this name
    search: str  # sets that have this in their names
    limit: int | None  # so many sets at most
    by_newest: bool = False  # those first that changed last; else by name
    offset: int = 0  # so many of them are left out before

    def among(self, sets: Mapping[str, SetRecord]) -> list[SetRecord]:
        """The sets that are asked for, in the order of their names."""
        names = (name for name in sets if self.name in (None, name) and self.search in name)
        return [sets[name] for name in sorted(names, key=natural)]

    def part(self, found: Sequence[SetRecord]) -> Sequence[SetRecord]:
        """The page of them that is asked for."""
        return found[self.offset :][: self.limit]


@lru_cache(SETS_LISTED)
def natural(name: str) -> tuple[list[Any], str]:
    """What names are ordered by: a number in them by its value.

    >>> sorted(["set10", "set2"], key=natural)
    ['set2', 'set10']
    """
    parts = DIGITS.split(name)
    return [int(part) if at % 2 else part for at, part in enumerate(parts)], name


def parse_sets_asked(
    text: bytes, limit: int | None = None, known: Sequence[str] = LISTED_SETS
) -> SetsAsked:
    """The sets that `?name=` and `?search=` ask for, the page of them, and its order."""
    query = parse_query(text, known)
    order = single(query, "order") or ORDERS[0]
    if order not in ORDERS:
        raise _refused(f"order is {order[:80]!r}: it must be {' or '.join(ORDERS)}")
    return SetsAsked(
        name=single(query, "name"),
        search=(single(query, "search") or "").lower(),
        limit=whole_number(query, "limit", 1, SETS_LISTED, 0) or limit,
        by_newest=order == "newest",
        offset=whole_number(query, "offset", 0, SETS_LEFT_OUT, 0),
    )


def parse_sets(query: Query) -> list[SetCursor]:
    """The sets of `?set=a&set=b@T`; `from` is for those without a position of their own."""
    start = parse_start(query)
    texts = query.get("set", ())
    if not 1 <= len(texts) <= SETS_OF_A_CONNECTION:
        raise _refused(
            f"{len(texts)} sets are asked for: name 1 to {SETS_OF_A_CONNECTION}, `?set=a&set=b`"
        )
    wanted = [_parse_set(text, start) for text in texts]
    _check_each_once([each.set_name for each in wanted])
    return wanted


def _parse_set(text: str, start: Position | None) -> SetCursor:
    name, at, moment = text.partition("@")
    return SetCursor(name, parse_moment(moment, f"set={name}@") if at else start)


def _check_each_once(names: Sequence[str]) -> None:
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise _refused(f"set {min(twice)!r} is named twice")


def render_cursors(cursors: Iterable[tuple[str, Position]]) -> str:
    """`a@T,b@T`: where a reader of several sets stands in each."""
    return ",".join(f"{name}@{position}" for name, position in cursors)


def parse_cursors(text: str) -> dict[str, Position]:
    """What `render_cursors` has written, as a peer sends it back."""
    cursors: dict[str, Position] = {}
    for each in text.split(","):
        name, _, moment = each.partition("@")
        cursors[name] = parse_moment(moment, LAST_EVENT_ID)
    return cursors
