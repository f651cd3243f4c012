"""Where a request goes: an address taken apart."""

import re
from base64 import b64encode
from urllib.parse import quote, unquote, urljoin, urlsplit

import msgspec

_PLAIN = re.compile(
    r"http://([a-z0-9-]+(?:\.[a-z0-9-]+)*)(?::([1-9][0-9]{0,4}))?(/[\w/.~-]*)", re.ASCII
)
_SAFE = "!$%&'()*+,-./:;=?@_~"


class Target(msgspec.Struct, frozen=True):
    """Where a request goes, and what its first lines say."""

    scheme: str
    host: str
    port: int
    lines: str  # the path and Host, and Authorization if the address brings a password

    @property
    def origin(self) -> tuple[str, str, int]:
        """What has connections of its own."""
        return self.scheme, self.host, self.port


def host_of(url: str) -> str:
    """What tells hosts apart: the part of an address before its path.

    >>> host_of("http://a.example:81/x?y")
    'http://a.example:81'
    """
    return "/".join(url.split("/", 3)[:3])


def target_of(url: str) -> Target:
    """Raises `ValueError` for what is no address.

    >>> target_of("http://a.example/x y/../z?q=é").lines
    '/z?q=%C3%A9 HTTP/1.1\\r\\nHost: a.example\\r\\n'
    """
    if (plain := _PLAIN.fullmatch(url)) is not None and "/." not in url[7:]:
        host, digits, path = plain.groups()
        if (port := int(digits or 80)) < 65_536:
            named = f"{host}:{digits}" if digits else host
            return Target("http", host, port, f"{path} HTTP/1.1\r\nHost: {named}\r\n")
    parts = urlsplit(url)
    host = (parts.hostname or "").encode(
        "idna" if ":" not in url.partition("]")[0][8:] else "ascii"
    )
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("http and https addresses can be fetched")
    name = f"[{host.decode()}]" if b":" in host else host.decode()
    port = parts.port or (443 if parts.scheme == "https" else 80)
    path = parts.path if "/." not in parts.path else urlsplit(urljoin("http://x/", parts.path)).path
    asked = quote((path or "/") + (f"?{parts.query}" if parts.query else ""), _SAFE)
    lines = f"{asked} HTTP/1.1\r\nHost: {name}{f':{parts.port}' if parts.port else ''}\r\n"
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        lines += f"Authorization: Basic {b64encode(pair).decode()}\r\n"
    return Target(parts.scheme, host.decode(), port, lines)
