"""Which proxy leads to an address, as the environment says. Nothing is asked here.

Rules that hold here: a name in small letters counts before the one in capitals; this machine is
never asked by a proxy; no error shows the password of a proxy.
"""

import socket
from base64 import b64encode
from collections.abc import Mapping
from importlib.util import find_spec
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple, Self
from urllib.parse import quote, unquote, urlsplit

import msgspec

from rsnotify.errors import InvalidSettings

PORTS = {"http": 80, "https": 443}
SCHEMES = {"http": 80, "https": 443, "socks4": 1080, "socks5": 1080, "socks5h": 1080}
EXAMPLE = "http://user:password@proxy.example.org:3128"


class Proxy(NamedTuple):
    """A proxy, and who may use it."""

    scheme: str
    host: str
    port: int
    user: str | None = None
    password: str = ""

    @property
    def is_socks(self) -> bool:
        return self.scheme.startswith("socks")

    @property
    def login(self) -> str | None:
        """As a header says it."""
        if self.user is None:
            return None
        return f"Basic {b64encode(f'{self.user}:{self.password}'.encode()).decode()}"

    @property
    def url(self) -> str:
        """Its address with the password."""
        if self.user is None:
            return self.name
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        return self.name.replace("://", f"://{login}@")

    @property
    def name(self) -> str:
        """Its address without the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class _Exception(NamedTuple):
    """One entry of `NO_PROXY`: every host, one with its subdomains, or a network."""

    suffix: str = ""
    network: IPv4Network | IPv6Network | None = None
    port: int | None = None

    def meets(self, host: str, port: int) -> bool:
        if self.port not in (None, port):
            return False
        if self.network is not None:
            address = _address(host)
            return address is not None and address in self.network
        return self.suffix == "*" or f".{host}".endswith(f".{self.suffix}")


class Proxies(msgspec.Struct, frozen=True):
    """The proxies of an environment."""

    by_scheme: dict[str, Proxy] = {}
    exceptions: tuple[_Exception, ...] = ()

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """Raises `InvalidSettings` for what is no proxy."""
        for_all = _named(environment, "all_proxy")
        found = {
            scheme: proxy
            for scheme in PORTS
            if (proxy := _named(environment, f"{scheme}_proxy") or for_all) is not None
        }
        exempt = _value(environment, "no_proxy")[1].replace(",", " ").split()
        return cls(found, tuple(map(_exception, exempt)))

    def lead_to(self, scheme: str, host: str, port: int | None = None) -> Proxy | None:
        """The proxy for an http or https origin; None if it is asked directly."""
        proxy = self.by_scheme.get(scheme)
        if proxy is None or _is_here(host := host.lower().strip("[]").rstrip(".")):
            return None
        port = port or PORTS[scheme]
        if any(each.meets(host, port) for each in self.exceptions):
            return None
        if proxy.is_socks and find_spec("python_socks") is None:
            raise InvalidSettings([f"{proxy.name} speaks SOCKS: install rsnotify[socks]"])
        return proxy


def parse_proxy(name: str, address: str) -> Proxy:
    """The proxy at an address, which a setting of that name gives."""
    full = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(full)
        host, port, scheme = parts.hostname, parts.port, parts.scheme
        user = None if parts.username is None else unquote(parts.username)
        password = unquote(parts.password or "")
    except ValueError:
        host, scheme = None, ""
    if not host or scheme not in SCHEMES or parts.path not in ("", "/"):
        raise InvalidSettings([f"{name} is no address of a proxy: write {EXAMPLE}"])
    return Proxy(scheme, host, port or SCHEMES[scheme], user, password)


def connected_by(proxy: Proxy, host: str, port: int, seconds: float | None) -> socket.socket:
    """A connection by a SOCKS proxy, which looks up the name, if it can (SOCKS 4 cannot)."""
    from python_socks import ProxyError, ProxyType  # noqa: PLC0415 - of an extra
    from python_socks.sync import Proxy as Socks  # noqa: PLC0415

    kind = ProxyType.SOCKS4 if proxy.scheme == "socks4" else ProxyType.SOCKS5
    by = Socks(kind, proxy.host, proxy.port, proxy.user, proxy.password)
    try:
        return by.connect(host, port, timeout=seconds)
    except ProxyError as error:
        raise OSError(f"the proxy {proxy.host}:{proxy.port}: {error}") from None


def _named(environment: Mapping[str, str], name: str) -> Proxy | None:
    name, value = _value(environment, name)
    return parse_proxy(name, value) if value else None


def _value(environment: Mapping[str, str], name: str) -> tuple[str, str]:
    """The variable that counts, and what it says.

    A web server hands a request's `Proxy` header to a CGI program as HTTP_PROXY.
    """
    if name in environment:
        return name, environment[name].strip()
    if name == "http_proxy" and "REQUEST_METHOD" in environment:
        return name, ""
    return name.upper(), environment.get(name.upper(), "").strip()


def _exception(text: str) -> _Exception:
    text = text.lower()
    if (network := _network(text)) is not None:
        return _Exception(network=network)
    host, colon, digits = text.rpartition(":")
    port = int(digits) if colon and digits.isascii() and digits.isdecimal() else None
    host = text if port is None else host
    if (network := _network(host.strip("[]"))) is not None:
        return _Exception(network=network, port=port)
    return _Exception(host.removeprefix("*.").strip("."), port=port)


def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_here(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    network = _network(host)
    return network is not None and network.is_loopback
