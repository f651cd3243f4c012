"""Which addresses the hub may call when a stranger names a callback.

Addresses are refused by an explicit list, not by what a library calls global. An address that
contains another (NAT64, 6to4, Teredo) is always refused, because the network unwraps it. How a name
is resolved is not known here.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

# Refused always, in the order of asking: the first network that holds the address names the reason.
_NEVER = (
    ("100.100.100.200/32", "a cloud's metadata service"),
    ("168.63.129.16/32", "a cloud's metadata service"),
    ("fd00:ec2::254/128", "a cloud's metadata service"),
    ("fd20:ce::254/128", "a cloud's metadata service"),
    ("169.254.0.0/16", "link-local"),
    ("fe80::/10", "link-local"),
    ("224.0.0.0/4", "multicast"),
    ("ff00::/8", "multicast"),
    ("0.0.0.0/8", "unspecified"),
    ("::/128", "unspecified"),
    ("192.0.0.0/24", "reserved for protocols"),
    ("192.0.2.0/24", "reserved for documentation"),
    ("192.88.99.0/24", "a 6to4 relay"),
    ("198.18.0.0/15", "reserved for benchmarks"),
    ("198.51.100.0/24", "reserved for documentation"),
    ("203.0.113.0/24", "reserved for documentation"),
    ("240.0.0.0/4", "reserved"),
    ("64:ff9b::/96", "an IPv4 address behind NAT64"),
    ("64:ff9b:1::/48", "an IPv4 address behind NAT64"),
    ("100::/64", "a black hole"),
    ("2001::/32", "an IPv4 address behind Teredo"),
    ("2001::/23", "reserved for protocols"),
    ("2001:db8::/32", "reserved for documentation"),
    ("2002::/16", "an IPv4 address behind 6to4"),
    ("3fff::/20", "reserved for documentation"),
    ("fec0::/10", "site-local"),
)
# Refused unless the operator allows private callbacks.
_PRIVATE = (
    ("127.0.0.0/8", "loopback"),
    ("::1/128", "loopback"),
    ("10.0.0.0/8", "private"),
    ("172.16.0.0/12", "private"),
    ("192.168.0.0/16", "private"),
    ("100.64.0.0/10", "shared by a provider's customers"),
    ("fc00::/7", "private"),
)
_NEVER_NETWORKS = tuple((ip_network(text), what) for text, what in _NEVER)
_PRIVATE_NETWORKS = tuple((ip_network(text), what) for text, what in _PRIVATE)
_COMPATIBLE = ip_network("::/96")
_UNICAST = ip_network("2000::/3")  # all of IPv6 that is assigned


def refusal(text: str, *, private: bool = False) -> str | None:
    """Why this address may not be called; None if it may.

    >>> refusal("169.254.169.254")
    '169.254.169.254 is link-local'
    """
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped  # the kernel dials the IPv4 address itself
    what = _why_never(address) or (None if private else _why_private(address))
    return None if what is None else f"{text} is {what}"


def literal_address(host: str) -> str | None:
    """The IP address that is the host of a URL, or is always meant by it; None for other names."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return "127.0.0.1"
    try:
        return str(ip_address(name))
    except ValueError:
        return None


def _why_never(address: IPv4Address | IPv6Address) -> str | None:
    for network, what in _NEVER_NETWORKS:
        if address in network:
            return what
    if isinstance(address, IPv4Address) or _why_private(address):
        return None
    if address in _COMPATIBLE:
        return "an IPv4 address in IPv6 notation"
    return None if address in _UNICAST else "not assigned to anyone"


def _why_private(address: IPv4Address | IPv6Address) -> str | None:
    return next((what for network, what in _PRIVATE_NETWORKS if address in network), None)
