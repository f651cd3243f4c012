"""Where a request came to, and from: the base of the hub's links, and its client's address.

The base URL is the one that the operator chose, else the one that the request came to. Forwarded
headers count only from proxies that the operator trusts, and what a stranger puts into `Host` is
checked. An IPv4 address in IPv6 notation counts as the IPv4 address; an IPv6 network of 64 bits
counts as one client.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rsnotify.errors import Rejected

if TYPE_CHECKING:  # commands parse positions, and have no web framework
    from starlette.requests import HTTPConnection

IpNetwork = IPv4Network | IPv6Network
IpAddress = IPv4Address | IPv6Address

BASE_BYTES = 300  # of the base of links, as XML writes it: a host has at most 253
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
