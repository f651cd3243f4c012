"""Which token a request carries: in a header, a WebSocket subprotocol, its address or a cookie.

A page of any site can have its visitor's browser send a cookie. So a cookie counts only for pages
that the browser says are of the hub's own origin, or of one that the operator has named. Nothing
here knows what a token allows.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:  # commands parse positions, and have no web framework
    from starlette.requests import HTTPConnection

COOKIE = "rsnotify_token"
SUBPROTOCOL = "rsnotify.token."
"""How a subprotocol begins that carries a token; a second one must be offered to be chosen."""


class SentToken(msgspec.Struct, frozen=True):
    """A token, and where in the request it was."""

    secret: str
    in_address: bool


def sent_token(connection: "HTTPConnection") -> SentToken | None:
    """The token of the header, the subprotocol or the query, which no browser adds by itself."""
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
    """Whether a cookie was sent for a page that may act for its visitor.

    >>> cookie_counts("POST", "https://evil.example", "cross-site", {"https://hub.example"})
    False
    >>> cookie_counts("GET", None, "same-origin", ())
    True
    """
    if origin is not None:
        return origin in trusted
    return method in ("GET", "HEAD") and fetch_site in ("same-origin", "none")


def is_jwt(text: str) -> bool:
    """Whether a token has the form of a JWT; the hub's own have no dots.

    >>> is_jwt("eyJhbGciOiJIUzI1NiJ9.e30.c2ln"), is_jwt("rsn_eyJ"), is_jwt("eyJ.a")
    (True, False, False)
    """
    return text.startswith("eyJ") and text.count(".") == 2
