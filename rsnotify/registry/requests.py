"""What a request says of itself: the base URL it came to, the peer that limits count, its token.

The public address that the operator chose comes first. Forwarded headers count only from proxies
that the operator trusts, and what a stranger puts into `Host` is checked. An IPv4 address in IPv6
notation counts as the IPv4 address; an IPv6 network of 64 bits counts as one peer.

A token may be in a header, a WebSocket subprotocol, the address or a cookie. A page of any site can
have its visitor's browser send a cookie. So a cookie counts only for pages that the browser says
are of the hub's own origin, or of one that the operator has named.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

import msgspec
from starlette.requests import HTTPConnection

from rsnotify.errors import Rejected

# --- base URL and peer ---------------------------------------------------------------------------

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

ADDRESS_CHARACTERS = 64  # with a zone and a port
HOPS = 32  # of a request that was forwarded

_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?").fullmatch


_OF_SOCKETS = {"ws": "http", "wss": "https"}


class BaseUrl:
    """Finds the base of the links, such as `https://hub.example.org`."""

    def __init__(self, public_url: str | None, trusted: Sequence[Network] = ()) -> None:
        self._public_url = public_url
        self._trusted = trusted

    def base(self, request: HTTPConnection) -> str:
        if self._public_url is not None:
            return self._public_url
        host, scheme = request.headers.get("host", ""), request.url.scheme
        if self._is_trusted(request):
            host = _nearest(request, "x-forwarded-host") or host
            scheme = _nearest(request, "x-forwarded-proto") or scheme
        scheme = _OF_SOCKETS.get(scheme, scheme)
        if _HOST(host) is None or scheme not in ("http", "https"):
            raise Rejected("the Host header is missing or not valid")
        return f"{scheme}://{host}"

    def origin(self, request: HTTPConnection) -> str:
        """That of the hub's own pages; nothing if the request does not say it."""
        try:
            parts = urlsplit(self.base(request))
        except Rejected:
            return ""
        return f"{parts.scheme}://{parts.netloc}"

    def asker(self, request: HTTPConnection) -> str:
        """The address that limits count: the peer's, or the one behind trusted proxies."""
        host = peer_of(request)
        if not self._trusted:
            return _asker(host)
        for forwarded in _forwarded_for(request):
            if not self._trusts(host):
                break
            if _address(forwarded) is None:
                break  # a name, or hidden: only the proxy is known
            host = forwarded
        return _asker(host)

    def counted_as(self, host: str) -> str | None:
        """The address for which a connection counts; None for that of a trusted proxy."""
        return None if self._trusts(host) else _asker(host)

    def _is_trusted(self, request: HTTPConnection) -> bool:
        return self._trusts(peer_of(request))

    def _trusts(self, host: str) -> bool:
        if not self._trusted:
            return False
        address = _address(host)
        return address is not None and any(address in network for network in self._trusted)


def peer_of(connection: HTTPConnection) -> str:
    """The address that the connection came from; nothing if it has none."""
    client = connection.scope.get("client")
    return client[0] if client else ""


@lru_cache(4096)
def _asker(host: str) -> str:
    address = _address(host)
    if isinstance(address, IPv6Address):
        return str(IPv6Network((int(address), 64), strict=False))
    return host if address is None else str(address)


def _address(text: str) -> Address | None:
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


def _forwarded_for(request: HTTPConnection) -> Iterator[str]:
    """From the nearest on."""
    lines = ",".join(request.headers.getlist("x-forwarded-for"))
    for hop in reversed(lines.split(",")[-HOPS:]):
        yield hop.strip()


def _nearest(request: HTTPConnection, name: str) -> str:
    """What the nearest proxy added; anybody may have written what is before it."""
    return request.headers.get(name, "").rpartition(",")[2].strip()


# --- token ---------------------------------------------------------------------------------------

COOKIE = "rsnotify_token"
SUBPROTOCOL = "rsnotify.token."
"""What a WebSocket's subprotocol with a token begins with; offer one that can be chosen, too."""


class SentToken(msgspec.Struct, frozen=True):
    """A token, and where in the request it was."""

    secret: str
    in_address: bool


def sent_token(connection: HTTPConnection) -> SentToken | None:
    """From the header, the subprotocol or the query: what no browser adds by itself."""
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
    """Whether it was sent for a page that may act for its visitor.

    >>> cookie_counts("POST", "https://evil.example", "cross-site", {"https://hub.example"})
    False
    >>> cookie_counts("GET", None, "same-origin", ())
    True
    """
    if origin is not None:
        return origin in trusted
    return method in ("GET", "HEAD") and fetch_site in ("same-origin", "none")


def is_jwt(text: str) -> bool:
    """By its form: a token of the hub's own making has no dots.

    >>> is_jwt("eyJhbGciOiJIUzI1NiJ9.e30.c2ln"), is_jwt("rsn_eyJ"), is_jwt("eyJ.a")
    (True, False, False)
    """
    return text.startswith("eyJ") and text.count(".") == 2
