"""Where in a request a token is looked for."""

import pytest
from starlette.requests import HTTPConnection

from rsnotify.access.sent_token import SentToken, cookie_counts, is_jwt, sent_token

OWN = "https://hub.example"


@pytest.mark.parametrize(
    ("authorization", "subprotocols", "query", "found"),
    [
        ("Bearer a", ["rsnotify.token.b"], "access_token=c", SentToken("a", in_address=False)),
        ("bearer  a ", [], "", SentToken("a", in_address=False)),
        ("Bearer ", [], "access_token=c", None),
        ("Basic a", ["other", "rsnotify.token.b"], "", SentToken("b", in_address=False)),
        ("", ["other"], "access_token=c", SentToken("c", in_address=True)),
        ("", [], "access_token=", None),
    ],
)
def test_the_first_place_with_a_token_counts(authorization, subprotocols, query, found):
    headers = [(b"authorization", authorization.encode())]
    scope = {"type": "websocket", "headers": headers, "query_string": query.encode()}
    assert sent_token(HTTPConnection(scope | {"subprotocols": subprotocols})) == found


@pytest.mark.parametrize(
    ("method", "origin", "site", "counts"),
    [
        ("POST", OWN, None, True),
        ("GET", "https://evil.example", "same-origin", False),
        ("GET", None, "same-origin", True),
        ("HEAD", None, "none", True),
        ("GET", None, "cross-site", False),
        ("GET", None, None, False),
        ("POST", None, "same-origin", False),
    ],
)
def test_a_cookie_counts_for_a_page_of_the_hub_only(method, origin, site, counts):
    assert cookie_counts(method, origin, site, {OWN}) == counts


def test_a_jwt_is_known_by_its_form():
    assert [is_jwt(text) for text in ("eyJa.b.c", "eyJa.b", "a.b.c")] == [True, False, False]
