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
    ("192.0.0.192/32", "a cloud's metadata service"),
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
_NAT64 = ip_network("64:ff9b::/96")
_LOCAL_NAT64 = ip_network("64:ff9b:1::/48")
_TRANSLATED = ip_network("::ffff:0:0:0/96")
_SERVES_ITS_OWN_LINK = frozenset({"a cloud's metadata service", "link-local"})


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


def own_link(text: str) -> str | None:
    """What an address is that serves the machines of its own link only, however it is written.

    >>> own_link("2002:a9fe:a9fe::1"), own_link("127.0.0.1")
    ('link-local', None)
    """
    address = ip_address(text.partition("%")[0])
    found = map(_why_never, (address, *_contained(address)))
    return next((what for what in found if what in _SERVES_ITS_OWN_LINK), None)


def behind_nat64(text: str) -> str:
    """The IPv4 address that a network with IPv6 alone reaches by this one; else the same one.

    >>> behind_nat64("64:ff9b::7f00:1")
    '127.0.0.1'
    """
    address = ip_address(text.partition("%")[0])
    return str(_last_four(address)) if address in _NAT64 else text


def _contained(address: IPv4Address | IPv6Address) -> list[IPv4Address]:
    """The IPv4 addresses that a network may take out of one of IPv6."""
    if isinstance(address, IPv4Address):
        return []
    found = [address.sixtofour, *(address.teredo or ())]
    if address.ipv4_mapped or any(address in each for each in (_COMPATIBLE, _NAT64, _TRANSLATED)):
        found.append(_last_four(address))
    if address in _LOCAL_NAT64:  # where it stands depends on the prefix (RFC 6052, 2.2)
        raw = address.packed
        places = (raw[6:8] + raw[9:11], raw[7:8] + raw[9:12], raw[9:13], raw[12:16])
        found += map(IPv4Address, places)
    return [each for each in found if each is not None]


def _last_four(address: IPv4Address | IPv6Address) -> IPv4Address:
    return IPv4Address(address.packed[-4:])


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
