"""Which proxy leads to an address, and to which addresses none."""

import pytest

from rsnotify.errors import InvalidSettings
from rsnotify_client.network import Proxies, Proxy, parse_proxy

PROXY = "http://proxy.example:3128"


def by(environment: dict[str, str], scheme: str, host: str, port: int | None = None) -> str | None:
    proxy = Proxies.of(environment).lead_to(scheme, host, port)
    return proxy and proxy.name


@pytest.mark.parametrize(
    ("environment", "http", "https"),
    [
        ({}, None, None),
        ({"HTTP_PROXY": "a:1"}, "http://a:1", None),
        ({"https_proxy": "http://a:1"}, None, "http://a:1"),
        ({"HTTPS_PROXY": "https://a"}, None, "https://a:443"),
        ({"ALL_PROXY": "http://a"}, "http://a:80", "http://a:80"),
        ({"all_proxy": "http://a:1", "http_proxy": "http://b:2"}, "http://b:2", "http://a:1"),
        ({"HTTP_PROXY": "http://a:1", "http_proxy": "http://b:2"}, "http://b:2", None),
        ({"HTTP_PROXY": "http://a:1", "http_proxy": ""}, None, None),
        ({"HTTP_PROXY": "http://a:1", "REQUEST_METHOD": "GET"}, None, None),
        ({"http_proxy": "http://a:1", "REQUEST_METHOD": "GET"}, "http://a:1", None),
        ({"HTTP_PROXY": "http://[::1]:1/"}, "http://[::1]:1", None),
    ],
)
def test_the_environment_names_the_proxy(environment, http, https):
    assert by(environment, "http", "x.example") == http
    assert by(environment, "https", "x.example") == https


@pytest.mark.parametrize(
    ("exempt", "host", "port", "is_direct"),
    [
        ("", "a.example", None, False),
        ("*", "a.example", None, True),
        (".*", "a.example", None, True),
        ("*.*:443", "a.example", None, True),
        ("a.example", "a.example", None, True),
        ("A.Example", "a.EXAMPLE.", None, True),
        ("a.example", "www.a.example", None, True),
        ("a.example", "ba.example", None, False),
        (".a.example", "www.a.example", None, True),
        (".a.example", "a.example", None, True),
        ("*.a.example", "www.a.example", None, True),
        ("b.example, a.example", "a.example", None, True),
        ("b.example a.example", "a.example", None, True),
        ("a.example:8080", "a.example", 8080, True),
        ("a.example:8080", "a.example", None, False),
        ("a.example:443", "a.example", None, True),
        ("a.example:0443", "a.example", None, True),
        ("10.0.0.0/8", "10.255.0.1", None, True),
        ("10.0.0.0/8", "11.0.0.1", None, False),
        ("10.0.0.0/8", "10.example", None, False),
        ("10.1.2.3", "10.1.2.3", None, True),
        ("10.1.2.3:81", "10.1.2.3", 81, True),
        ("10.1.2.3:81", "10.1.2.3", 82, False),
        ("2001:db8::/32", "2001:db8::1", None, True),
        ("2001:db8::1", "[2001:db8::1]", None, True),
        ("[2001:db8::1]:81", "2001:db8::1", 81, True),
        ("[2001:db8::1]:81", "2001:db8::1", 82, False),
    ],
)
def test_no_proxy_names_hosts_suffixes_networks_and_ports(exempt, host, port, is_direct):
    environment = {"HTTPS_PROXY": PROXY, "NO_PROXY": exempt}
    assert by(environment, "https", host, port) == (None if is_direct else PROXY)


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_this_machine_is_asked_without_a_proxy(host):
    assert by({"ALL_PROXY": PROXY}, "http", host) is None


def test_a_proxy_may_want_a_user_and_a_password_that_nobody_is_shown():
    proxy = parse_proxy("HTTP_PROXY", "http://u%40x:p%3Aw@proxy.example:3128")
    assert proxy == Proxy("http", "proxy.example", 3128, "u@x", "p:w")
    assert proxy.login == "Basic dUB4OnA6dw=="
    assert proxy.name == "http://proxy.example:3128"


@pytest.mark.parametrize(
    "wrong", ["ftp://p:secret@a", "http://p:secret@a:99999", "http://p:secret@", "http://[p:secret"]
)
def test_what_is_no_proxy_is_refused_without_its_password(wrong):
    with pytest.raises(InvalidSettings) as refused:
        Proxies.of({"HTTP_PROXY": wrong})
    assert refused.value.problems[0].startswith("HTTP_PROXY is no address of a proxy: write http")
    assert "secret" not in str(refused.value.problems)


def test_socks_wants_its_extra(monkeypatch):
    monkeypatch.setattr("rsnotify_client.network.find_spec", lambda _: None)
    proxies = Proxies.of({"ALL_PROXY": "socks5://u:p@a.example", "NO_PROXY": "b.example"})
    assert proxies.lead_to("http", "b.example") is None
    with pytest.raises(InvalidSettings) as refused:
        proxies.lead_to("http", "c.example")
    assert refused.value.problems == (
        "socks5://a.example:1080 speaks SOCKS: in a clone of rsnotify, pip install '.[socks]'",
    )
