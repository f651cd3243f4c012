"""Which addresses may be called: every row of the table, and what libraries get wrong."""

import pytest

from rsnotify.resourcesync.addresses import literal_address, refusal

PUBLIC = ("93.184.216.34", "8.8.8.8", "2606:4700::6810:84e5", "::ffff:93.184.216.34", "192.0.1.1")

PRIVATE = (
    *("127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1"),
    *("10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1"),
    *("100.64.0.1", "100.127.255.255", "fc00::1", "fd12:3456::1", "::ffff:10.0.0.1"),
)
# `ipaddress.is_global` of Python 3.11 says yes to those marked +.
NEVER = (
    *("169.254.169.254", "::ffff:169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0"),
    *("100.100.100.200", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254"),
    *("224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"),  # +
    *("0.0.0.0", "0.1.2.3", "::", "255.255.255.255", "240.0.0.1"),
    *("192.0.0.8", "192.0.0.170", "192.0.2.1", "198.51.100.1", "203.0.113.1", "198.18.0.1"),  # +
    "192.88.99.1",  # +
    *("64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1"),  # +
    *("2002:7f00:1::1", "2002:808:808::1"),  # +
    *("::127.0.0.1", "::8.8.8.8", "::2"),  # +
    *("2001::1", "2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "3fff::1"),
    *("100::1", "fec0::1", "4000::1", "5f00::1", "1::1"),
)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_may_be_called(address):
    assert refusal(address) is None


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_may_be_called_only_where_that_is_allowed(address):
    assert refusal(address) is not None
    assert refusal(address, private=True) is None


@pytest.mark.parametrize("address", NEVER)
def test_other_addresses_are_never_called(address):
    assert refusal(address) is not None
    assert refusal(address, private=True) is not None


def test_the_reason_names_the_address_and_what_it_is():
    assert refusal("169.254.169.254") == "169.254.169.254 is link-local"


def test_what_is_no_address_is_an_error():
    with pytest.raises(ValueError, match=r"127\.1"):
        refusal("127.1")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("LOCALHOST", "127.0.0.1"),
        ("localhost.", "127.0.0.1"),
        ("a.localhost", "127.0.0.1"),
        ("example.com", None),
        ("localhost.example.com", None),
        ("127.1", None),
    ],
)
def test_a_host_that_is_an_address_is_known_without_asking(host, address):
    assert literal_address(host) == address
