"""Addresses of a Redis, as operators write them."""

import pytest
from redis.asyncio.connection import SSLConnection

from rsnotify.errors import InvalidSettings
from rsnotify.redis_client import Address
from tests.support.redis_tls import AUTHORITY


def test_an_address_of_sentinels_names_each_of_them_and_the_primary():
    address = Address.parse("redis+sentinel://a:1,b,[::1]:3/main")
    assert address.sentinels == (("a", 1), ("b", 26379), ("::1", 3))
    assert address.name == "main"
    assert "db" not in address.options


def test_user_and_password_before_the_hosts_are_those_of_redis():
    address = Address.parse("redis+sentinel://user:p%40ss@a/main/2")
    assert (address.options["username"], address.options["password"]) == ("user", "p@ss")
    assert address.options["db"] == 2
    assert not {"username", "password"} & address.sentinel_options.keys()


def test_user_and_password_of_the_sentinels_stand_behind_the_question_mark():
    address = Address.parse("redis+sentinel://a/main?sentinel_username=u&sentinel_password=p%26")
    assert (address.sentinel_options["username"], address.sentinel_options["password"]) == (
        "u",
        "p&",
    )
    assert not {"username", "password"} & address.options.keys()


def test_with_tls_it_is_spoken_to_redis_and_to_the_sentinels():
    address = Address.parse(f"rediss+sentinel://a/main?ssl_ca_certs={AUTHORITY}")
    assert address.has_tls
    for options in (address.options, address.sentinel_options):
        assert options["connection_class"] is SSLConnection
        assert options["ssl_ca_certs"] == str(AUTHORITY)


def test_an_address_of_a_cluster_names_some_of_its_nodes():
    address = Address.parse("redis+cluster://user:p%40ss@a:1,b,[::1]:3/0")
    assert address.nodes == (("a", 1), ("b", 6379), ("::1", 3))
    assert not address.sentinels
    assert (address.options["username"], address.options["password"]) == ("user", "p@ss")
    assert "host" not in address.options


def test_with_tls_it_is_spoken_to_all_nodes():
    address = Address.parse(f"rediss+cluster://a,b?ssl_ca_certs={AUTHORITY}")
    assert address.has_tls
    assert address.nodes == (("a", 6379), ("b", 6379))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis+sentinel://a", "it needs the name of the primary"),
        ("redis+sentinel:///main", "it names no Sentinel"),
        ("redis+sentinel://a:x/main", "could not be cast to integer"),
        ("redis+sentinel://a,:1/main", "':1' is no host"),
        ("redis+sentinel://a/main?colour=red", "it has an unknown option: 'colour'"),
        ("redis+sentinel://a/main?sentinel_colour=red", "it has an unknown option: 'colour'"),
        ("rediss://a?ssl_cert_reqs=perhaps", "perhaps"),
        ("rediss://a?ssl_ca_certs=/nowhere", "No such file or directory: '/nowhere'"),
        ("redis+clusters://a", "must begin with one of redis, rediss, unix, redis+sentinel"),
        ("redis+cluster://", "it names no node"),
        ("redis+cluster://a,:1", "':1' is no host"),
        ("redis+cluster://a/1", "a Cluster has no numbered databases"),
        ("redis+cluster://a?colour=red", "it has an unknown option: 'colour'"),
        ("localhost:6379", "write redis://localhost:6379"),
        ("redis:6379", "write redis://redis:6379"),
        ("/run/redis.sock", "write unix:///run/redis.sock"),
        ("redis:/localhost", "must begin with one of redis"),
        ("", "must begin with one of redis"),
        ("redis://a:99999", "Port out of range"),
    ],
)
def test_what_is_no_address_is_refused_with_what_is_wrong(url, said):
    with pytest.raises(InvalidSettings) as refused:
        Address.parse(url)
    assert said in str(refused.value)


def test_a_password_of_its_own_takes_its_place_in_any_address():
    for url, options in {
        "redis://localhost:1/2": {"host": "localhost", "port": 1, "db": 2},
        "redis://user@localhost": {"host": "localhost", "username": "user"},
        "redis://user:old@localhost": {"host": "localhost", "username": "user"},
        "redis://localhost?db=1": {"host": "localhost", "db": 1},
        "redis+sentinel://user@a,b:1/name": {"username": "user"},
        "redis+cluster://user@a,b:1": {"username": "user"},
        "unix:///run/redis.sock?db=1": {"path": "/run/redis.sock", "db": 1},
    }.items():
        parsed = Address.parse(Address.with_password(url, "p@:/?ss")).options
        assert parsed["password"] == "p@:/?ss"
        assert options.items() <= parsed.items()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@host:1/0", "redis://…@host:1/0"),
        ("redis://host/?password=secret&db=1", "redis://host/?password=…&db=1"),
        ("unix:///a@b/redis.sock", "unix:///a@b/redis.sock"),
        (
            "redis+sentinel://:secret@a,b/main?sentinel_password=secret",
            "redis+sentinel://…@a,b/main?sentinel_password=…",
        ),
        ("rediss://a?ssl_password=secret", "rediss://a?ssl_password=…"),
        ("redis://:secret/secret@host:1/0", "redis://…@host:1/0"),
        ("redis://:secret@secret@host", "redis://…@host"),
        ("redis://:secret://secret@host", "redis://…@host"),
        (":secret@host", "…@host"),
        ("redis://host?password=secret@secret", "redis://host?password=…"),
    ],
)
def test_no_password_is_shown(url, shown):
    assert Address.without_password(url) == shown


@pytest.mark.parametrize("mark", ["/", "?", "#"])
def test_a_password_that_is_not_escaped_is_told_how_and_not_shown(mark):
    for url in (f"redis://:se{mark}cret@host:1", f"redis+sentinel://:se{mark}cret@host/main"):
        with pytest.raises(InvalidSettings) as refused:
            Address.parse(url)
        assert "write / ? # @ in a user or password as %2F" in str(refused.value)
        assert f"se{mark}" not in str(refused.value)
        assert "cret" not in str(refused.value)
