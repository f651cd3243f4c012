"""The base of all links: what the operator chose, what the request says, whom it comes from."""

from ipaddress import ip_network

import pytest
from starlette.requests import Request

from rsnotify.access.base_url import BaseUrl
from rsnotify.errors import Rejected

PROXY = (ip_network("10.0.0.0/8"), ip_network("2001:db8:1::/48"))


def request(client: str = "192.0.2.1", **headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    scope = {"type": "http", "scheme": "http", "path": "/", "headers": raw, "client": (client, 1)}
    return Request(scope | {"server": ("a", 80), "query_string": b""})


def test_the_public_address_wins():
    assert BaseUrl("https://a.example.org").base(request(host="b")) == "https://a.example.org"


@pytest.mark.parametrize("host", ["hub.example.org", "127.0.0.1:8080", "[::1]:8080", "localhost"])
def test_without_one_the_request_says_how_it_came(host):
    assert BaseUrl(None).base(request(host=host)) == f"http://{host}"


@pytest.mark.parametrize("host", ["", "a b", 'a"><x', "a/b", "a" * 300, "a:b", "a@b"])
def test_a_host_that_cannot_stand_in_a_link_is_refused(host):
    with pytest.raises(Rejected):
        BaseUrl(None).base(request(host=host))


FORWARDED = {"x_forwarded_host": "evil, hub.example.org", "x_forwarded_proto": "https"}


def test_a_trusted_proxy_says_how_it_was_asked():
    asked = request("10.1.2.3", host="inner", **FORWARDED)
    assert BaseUrl(None, PROXY).base(asked) == "https://hub.example.org"


def test_what_a_proxy_adds_as_a_line_of_its_own_counts_too():
    asked = request("10.1.2.3", host="inner", **FORWARDED)
    asked.scope["headers"] += [(b"x-forwarded-host", b"proxied.example.org")]
    assert BaseUrl(None, PROXY).base(asked) == "https://proxied.example.org"


def test_what_anybody_else_says_was_forwarded_does_not_count():
    asked = request("192.0.2.1", host="inner", **FORWARDED)
    assert BaseUrl(None, PROXY).base(asked) == "http://inner"
    assert BaseUrl(None).base(request("10.1.2.3", host="inner", **FORWARDED)) == "http://inner"


def test_the_origin_of_the_hubs_pages_is_that_of_its_base():
    assert BaseUrl("https://a.example.org/hub").origin(request()) == "https://a.example.org"
    assert BaseUrl(None).origin(request(host="a b")) == ""


# --- who asks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("192.0.2.1", "203.0.113.9", "192.0.2.1"),
        ("10.1.2.3", "203.0.113.9", "203.0.113.9"),
        ("::ffff:10.1.2.3", "203.0.113.9", "203.0.113.9"),
        ("2001:db8:1::5", "203.0.113.9", "203.0.113.9"),
        ("10.1.2.3", "198.51.100.7, 203.0.113.9", "203.0.113.9"),
        ("10.1.2.3", "198.51.100.7, 203.0.113.9, 10.9.9.9", "203.0.113.9"),
        ("10.1.2.3", "10.9.9.9", "10.9.9.9"),
        ("10.1.2.3", "203.0.113.9:4711", "203.0.113.9"),
        ("10.1.2.3", "::ffff:203.0.113.9", "203.0.113.9"),
        ("10.1.2.3", "[2001:db8:2:3:4:5:6:7]:4711", "2001:db8:2:3::/64"),
        ("10.1.2.3", "203.0.113.9, unknown", "10.1.2.3"),
        ("10.1.2.3", "1" * 100, "10.1.2.3"),
        ("10.1.2.3", "", "10.1.2.3"),
    ],
)
def test_behind_a_trusted_proxy_whoever_it_names_asks(peer, forwarded, address):
    assert BaseUrl(None, PROXY).client_address(request(peer, x_forwarded_for=forwarded)) == address


def test_without_trusted_proxies_the_peer_asks_whatever_it_says():
    assert (
        BaseUrl(None).client_address(request("10.1.2.3", x_forwarded_for="203.0.113.9"))
        == "10.1.2.3"
    )
    assert BaseUrl(None).client_address(request("::ffff:203.0.113.9")) == "203.0.113.9"


def test_64_bits_of_an_ipv6_address_are_one_client_address():
    one, same, other = (
        BaseUrl(None).client_address(request(address))
        for address in ("2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", "2001:db8:0:1::1")
    )
    assert one == same != other


def test_a_proxy_known_by_ipv4_is_known_in_ipv6_notation_too():
    asked = request("::ffff:10.1.2.3", host="inner", **FORWARDED)
    assert BaseUrl(None, PROXY).base(asked) == "https://hub.example.org"


def test_a_connection_of_a_trusted_proxy_counts_for_nobody():
    assert BaseUrl(None, PROXY).counted_as("10.1.2.3") is None
    assert BaseUrl(None, PROXY).counted_as("192.0.2.1") == "192.0.2.1"
