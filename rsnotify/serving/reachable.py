"""The address that others reach this machine by, when the hub listens on every address it has.

Nothing here sends anything: connecting a datagram socket only chooses the way that a packet would
take. Nothing here knows names, nor what stands between this machine and those who ask.
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
    """The host itself; for all addresses one of the machine's, or loopback if it has no other."""
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
    """What to tell an operator whose Destinations may hear of an address they cannot reach."""
    if public_url is not None or host not in ALL_ADDRESSES:
        return None
    return (
        f"the hub listens on every address ({host}) and has no --public-url: its notifications "
        f"name {address}; if Destinations reach it by another, give that one"
    )
