"""Whether an address and a token can be sent in a request at all. Pure: nothing is asked.

Rules that hold here: a problem is put into words that can follow the address; a token is never
shown.
"""

import re
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

EXAMPLE = "http://127.0.0.1:8080"
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_PLAIN = re.compile(r"(?:https?|wss?)://[a-z0-9.-]+(?::(?!80/|443/)\d+)?/[!-$&-~]*")
_ASCII = "".join(map(chr, range(33, 127)))
_TRIPLET = re.compile(r"%[0-9A-Fa-f]{2}")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")
SHOWN_CHARS = 2_000
_TOKEN = re.compile(r"[!-~]([ -~]*[!-~])?")
_SHOWN_LOGIN = re.compile(r"(?<=://)(?!user:password@)[^/\s@]+@")  # but in an example
_SHOWN_TOKEN = re.compile(r"(?<=[?&]access_token=)[^&#\s]+?(?=[:;,]?(?:[&#\s]|$))")


def joined(base: str, named: str) -> str:
    """The address that a document at `base` names; what is none stays, and is refused when asked.

    >>> joined("http://example.com/a/b", "../c"), joined("http://example.com/", "http://[x")
    ('http://example.com/c', 'http://[x')
    """
    try:
        return urljoin(base, named)
    except ValueError:
        return named


def host_of(url: str) -> str:
    """What distinguishes hosts: the part of an address before its path.

    >>> host_of("http://a.example:81/x?y")
    'http://a.example:81'
    """
    return "/".join(url.split("/", 3)[:3])


def canonical(url: str) -> str:
    """One way of writing all addresses that are equivalent (RFC 3986, 6.2.2.1, 6.2.2.2 and 6.2.3).

    >>> canonical("HTTP://A.example:80?x=%c3%7e"), canonical("http://a.example/ö%2f")
    ('http://a.example/?x=%C3~', 'http://a.example/%C3%B6%2F')
    """
    if _PLAIN.fullmatch(url):
        return url
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    if not parts.netloc:
        return url
    login, at, _ = parts.netloc.rpartition("@")
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    is_default = port in (None, _PORTS.get(parts.scheme))
    netloc = f"{login}{at}{host}" if is_default else f"{login}{at}{host}:{port}"
    path, query, fragment = map(_written, (parts.path or "/", parts.query, parts.fragment))
    return urlunsplit((parts.scheme, netloc, path, query, fragment))


def _written(part: str) -> str:
    """With each character that must be written as bytes in capitals, and no other."""
    part = quote(part, safe="%" + _ASCII)
    return _TRIPLET.sub(lambda found: _triplet(found[0]), part)


def _triplet(text: str) -> str:
    character = chr(int(text[1:], 16))
    return character if _UNRESERVED.fullmatch(character) else text.upper()


def origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port; a channel's ws address has the origin of its http twin.

    Raises `ValueError` for what is no address.
    """
    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    port = parts.port or {"http": 80, "https": 443}.get(scheme)
    return scheme, (parts.hostname or "").lower(), port


def wrong_address(url: str) -> str | None:
    """What is wrong with an http or https address; None if it can be asked.

    >>> wrong_address("http://example.com/a b")
    'it has a space or a character that cannot be printed'
    """
    if "://" not in url:
        return f"http:// or https:// is missing: write http://{url}"
    if " " in url or not url.isprintable():
        return "it has a space or a character that cannot be printed"
    try:
        parts = urlsplit(url)
        _ = parts.port  # it is only read, and refused, when it is asked for
        (parts.hostname or "").encode("idna")
    except UnicodeError:
        return f"{parts.hostname!r} cannot be the name of a host"
    except ValueError as error:
        return f"{error}; must be an address such as {EXAMPLE}"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return f"must be an address such as {EXAMPLE}"
    path = url.partition("://")[2].removeprefix(parts.netloc)
    wanted = f"write {url.removesuffix(path)}{quote(path, safe='/?#%&=+,;:@!~')}"
    return None if path.isascii() else wanted


def wrong_token(token: str) -> str | None:
    """What is wrong with a token; None if a header can carry it."""
    if _TOKEN.fullmatch(token):
        return None
    return "it has a line break or another character that no token has: write it again"


def without_tokens(text: str) -> str:
    """A message without the tokens and passwords of the addresses in it, as it may be shown.

    A stranger may have written parts of it, so it is cut, and has no control characters.

    >>> without_tokens("http://a/?access_token=b&c=d answers 404; http://a/?access_token=b: gone")
    'http://a/?access_token=…&c=d answers 404; http://a/?access_token=…: gone'
    """
    return shown(_SHOWN_TOKEN.sub("…", _SHOWN_LOGIN.sub("", text) if "@" in text else text))


def shown(text: str) -> str:
    """A text of a stranger, cut, and a space for each character that is not printed.

    >>> shown("a\\x1b[31m\\n" + "b" * SHOWN_CHARS)[:8]
    'a [31m b'
    """
    return printable(text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…")


def printable(text: str) -> str:
    """The whole text, with a space for each character that is not printed.

    >>> printable("a\\x9b31m\\u202eb")
    'a 31m b'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
