"""Reads a request: its base URL, its client's address, its token and its query.

The base URL is the one that the operator chose, else the one that the request came to. Forwarded
headers count only from proxies that the operator trusts, and what a stranger puts into `Host` is
checked. An IPv4 address in IPv6 notation counts as the IPv4 address; an IPv6 network of 64 bits
counts as one client. Nothing here knows a clock or a set.

A token may be in a header, a WebSocket subprotocol, the address or a cookie. A page of any site can
have its visitor's browser send a cookie. So a cookie counts only for pages that the browser says
are of the hub's own origin, or of one that the operator has named.

The query of an address asks for positions, sets and pages: one parser for all that is read,
channels in every form, and lists. A name that is not known is refused, because a reader that
misspells `from` would silently lose changes.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec

from rsnotify.errors import Rejected
from rsnotify.journal.set_options import SetRecord
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.forms import DOCUMENT_FORMS, Form, wanted_form

if TYPE_CHECKING:  # commands parse positions, and have no web framework
    from starlette.requests import HTTPConnection

# --- base URL and peer ---------------------------------------------------------------------------

IpNetwork = IPv4Network | IPv6Network
IpAddress = IPv4Address | IPv6Address

ADDRESS_CHARACTERS = 64  # with a zone and a port
HOPS = 32  # of a request that was forwarded

_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?").fullmatch


_OF_SOCKETS = {"ws": "http", "wss": "https"}


class BaseUrl:
    """Finds the base of the links, such as `https://hub.example.org`."""

    def __init__(self, public_url: str | None, trusted: Sequence[IpNetwork] = ()) -> None:
        self._public_url = public_url
        self._trusted = trusted

    def base(self, request: "HTTPConnection") -> str:
        if self._public_url is not None:
            return self._public_url
        host, scheme = request.headers.get("host", ""), request.url.scheme
        if self._trusts(peer_of(request)):
            host = _nearest(request, "x-forwarded-host") or host
            scheme = _nearest(request, "x-forwarded-proto") or scheme
        scheme = _OF_SOCKETS.get(scheme, scheme)
        if _HOST(host) is None or scheme not in ("http", "https"):
            raise Rejected("the Host header is missing or not valid")
        return f"{scheme}://{host}"

    def origin(self, request: "HTTPConnection") -> str:
        """The origin of the hub's own pages; empty if the request does not say it."""
        try:
            parts = urlsplit(self.base(request))
        except Rejected:
            return ""
        return f"{parts.scheme}://{parts.netloc}"

    def client_address(self, request: "HTTPConnection") -> str:
        """The address to which limits apply: the peer's, or the one behind trusted proxies."""
        host = peer_of(request)
        if not self._trusted:
            return _counted_address(host)
        for forwarded in _forwarded_for(request):
            if not self._trusts(host):
                break
            if _address(forwarded) is None:
                break  # a name, or hidden: only the proxy is known
            host = forwarded
        return _counted_address(host)

    def counted_as(self, host: str) -> str | None:
        """The address for which a connection counts; None for that of a trusted proxy."""
        return None if self._trusts(host) else _counted_address(host)

    def _trusts(self, host: str) -> bool:
        if not self._trusted:
            return False
        address = _address(host)
        return address is not None and any(address in network for network in self._trusted)


def peer_of(connection: "HTTPConnection") -> str:
    """The address that the connection came from; nothing if it has none."""
    client = connection.scope.get("client")
    return client[0] if client else ""


@lru_cache(4096)
def _counted_address(host: str) -> str:
    address = _address(host)
    if isinstance(address, IPv6Address):
        return str(IPv6Network((int(address), 64), strict=False))
    return host if address is None else str(address)


def _address(text: str) -> IpAddress | None:
    """An address as it may be forwarded: with a port, in brackets, IPv4 written as IPv6."""
    if len(text) > ADDRESS_CHARACTERS:
        return None
    bare = text[1:].partition("]")[0] if text.startswith("[") else text
    if bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        address = ip_address(bare)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _forwarded_for(request: "HTTPConnection") -> Iterator[str]:
    """The addresses that proxies have added, the nearest first."""
    for hop in reversed(_forwarded(request, "x-forwarded-for").split(",")[-HOPS:]):
        yield hop.strip()


def _nearest(request: "HTTPConnection", name: str) -> str:
    """What the nearest proxy added; what stands before it, anybody may have written."""
    return _forwarded(request, name).rpartition(",")[2].strip()


def _forwarded(request: "HTTPConnection", name: str) -> str:
    """What all lines of this name say: a proxy may have added one of its own."""
    return ",".join(request.headers.getlist(name))


# --- token ---------------------------------------------------------------------------------------

COOKIE = "rsnotify_token"
SUBPROTOCOL = "rsnotify.token."
"""How a subprotocol begins that carries a token; a second one must be offered to be chosen."""


class SentToken(msgspec.Struct, frozen=True):
    """A token, and where in the request it was."""

    secret: str
    in_address: bool


def sent_token(connection: "HTTPConnection") -> SentToken | None:
    """The token of the header, the subprotocol or the query, which no browser adds by itself."""
    scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        secret = secret.strip()
        return SentToken(secret, in_address=False) if secret else None
    for offered in connection.scope.get("subprotocols", ()):
        if offered.startswith(SUBPROTOCOL):
            return SentToken(offered.removeprefix(SUBPROTOCOL), in_address=False)
    in_query = connection.query_params.get("access_token")
    return SentToken(in_query, in_address=True) if in_query else None


def cookie_counts(
    method: str, origin: str | None, fetch_site: str | None, trusted: Collection[str]
) -> bool:
    """Whether a cookie was sent for a page that may act for its visitor.

    >>> cookie_counts("POST", "https://evil.example", "cross-site", {"https://hub.example"})
    False
    >>> cookie_counts("GET", None, "same-origin", ())
    True
    """
    if origin is not None:
        return origin in trusted
    return method in ("GET", "HEAD") and fetch_site in ("same-origin", "none")


def is_jwt(text: str) -> bool:
    """Whether a token has the form of a JWT; the hub's own have no dots.

    >>> is_jwt("eyJhbGciOiJIUzI1NiJ9.e30.c2ln"), is_jwt("rsn_eyJ"), is_jwt("eyJ.a")
    (True, False, False)
    """
    return text.startswith("eyJ") and text.count(".") == 2


# --- query ---------------------------------------------------------------------------------------

# The parameters that the address of each knows.
DOCUMENT = ("access_token", "format")
RESOURCE_LIST = (*DOCUMENT, "limit", "offset")
CHANGE_LIST = (*DOCUMENT, "from", "since", "until", "limit")
CHANNEL = (*DOCUMENT, "from", "since")
SEVERAL_CHANNELS = (*CHANNEL, "set")
LISTED_SETS = ("name", "search", "limit")
RIGHTS = ("name",)
RESOURCES = ("loc", "access_token")

LAST_EVENT_ID = "Last-Event-ID"  # what a browser sends when it comes back to an event stream

AHEAD_SECONDS = 5  # by how much the clocks of hub and Destination may differ
SETS_OF_A_CONNECTION = 100
SETS_LISTED = 10_000

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_LOST_PLUS = re.compile(r" (?=\d\d:\d\d$)", re.ASCII)  # in an address, `+` means a space

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
    unknown = [repr(name) for name in query if name not in known]
    if unknown:
        names = ", ".join(known)
        raise _refused(f"unknown parameter {', '.join(unknown)}; known here: {names}")
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
    text = _LOST_PLUS.sub("+", text)
    try:
        return Position.parse(f"{text}T00:00:00Z" if _DATE.fullmatch(text) else text)
    except (ValueError, OverflowError) as error:
        raise _refused(f"malformed `{name}`: {error}") from None


def check_not_future(after: Position, newest: Position, now: int) -> None:
    """Refuse a position that no change can have yet. `now` is in microseconds."""
    if after > max(newest, now + AHEAD_SECONDS * MICROSECONDS):
        raise _refused(f"`from` is in the future: {after}")


def _refused(detail: str) -> Rejected:
    return Rejected(detail, close_code=4400)


# --- which sets are shown -------------------------------------------------------------------------


class SetsAsked(NamedTuple):
    """Which sets an answer is to list."""

    name: str | None  # the set of this name
    search: str  # sets that have this in their names
    limit: int | None  # so many sets at most

    def among(self, sets: Mapping[str, SetRecord]) -> list[SetRecord]:
        """The sets that are asked for, in the order of their names."""
        names = (name for name in sets if self.name in (None, name) and self.search in name)
        return [sets[name] for name in sorted(names)]


def parse_sets_asked(text: bytes, limit: int | None = None) -> SetsAsked:
    """The sets that `?name=`, `?search=` and `?limit=` ask for."""
    query = parse_query(text, LISTED_SETS)
    return SetsAsked(
        name=single(query, "name"),
        search=(single(query, "search") or "").lower(),
        limit=whole_number(query, "limit", 1, SETS_LISTED, 0) or limit,
    )


# --- several sets --------------------------------------------------------------------------------


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
