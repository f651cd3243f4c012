"""Finds the address by which others reach this machine, if the hub listens on all addresses.

Nothing is sent: connecting a datagram socket only chooses a route. Names, proxies and NAT are not
known here.
"""

import socket
from ipaddress import ip_address

# An address that nobody has (RFC 5737, RFC 3849), in each family.
UNUSED_ADDRESSES = {socket.AF_INET: "198.51.100.1", socket.AF_INET6: "2001:db8::1"}
ALL_ADDRESSES = {
    "0.0.0.0": ([socket.AF_INET], "127.0.0.1"),  # noqa: S104
    "::": ([socket.AF_INET6, socket.AF_INET], "::1"),
}


def reachable(host: str) -> str:
    """The host itself; if it means all addresses, one of the machine's, else loopback."""
    families, loopback = ALL_ADDRESSES.get(host, ([], host))
    found = (own_address(family) for family in families)
    return next((address for address in found if address is not None), loopback)


def own_address(family: socket.AddressFamily) -> str | None:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((UNUSED_ADDRESSES[family], 9))
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    found = ip_address(address)
    return None if found.is_link_local or found.is_unspecified else address


def warning(host: str, address: str, public_url: str | None) -> str | None:
    """A warning if Destinations may be sent an address that they cannot reach."""
    if public_url is not None or host not in ALL_ADDRESSES:
        return None
    return (
        f"the hub listens on all addresses ({host}) without --public-url: links in its "
        f"notifications use {address}; if Destinations need another one, set --public-url"
    )


def url_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    host = reachable(host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
