"""The token that a request brings, and where: header, WebSocket subprotocol, address or cookie.

A page of any site can have its visitor's browser send a cookie. So a cookie counts only for pages
that the browser says are of the hub's own origin, or of one that the operator has named.
"""

from collections.abc import Collection

import msgspec
from starlette.requests import HTTPConnection

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
