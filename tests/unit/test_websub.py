"""WebSub's rules without a socket: forms, links, topics, callbacks, signatures."""

import hashlib
import hmac
from urllib.parse import urlencode

import pytest

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, Interval
from rsnotify.websub.rules import (
    LEASE_MAX_SECONDS,
    URL_CHARACTERS,
    FormFields,
    authority,
    channel_of,
    denial_url,
    hostname_of,
    notification_id,
    parse_form,
    parse_links,
    parse_mode,
    parse_ping,
    parse_subscription_request,
    signing_headers,
    verification_url,
)

BASES = ("https://hub.example/rs", "http://127.0.0.1:8080")
PATH = "/channels/a.b/change_notification_channel"


@pytest.mark.parametrize(
    ("topic", "found"),
    [
        (f"https://hub.example/rs{PATH}", True),
        (f"HTTPS://Hub.Example/rs{PATH}", True),
        (f"http://127.0.0.1:8080{PATH}", True),
        (f"https://hub.example/rs{PATH.replace('.', '%2E')}", True),
        (f"https://hub.example{PATH}", False),
        (f"https://other.example/rs{PATH}", False),
        (f"https://hub.example/rs{PATH}?from=now", False),
        (f"https://hub.example/rs{PATH}/", False),
        ("https://hub.example/rs/channels/A/change_notification_channel", False),
        ("https://hub.example/rs/channels/a/other_notification_channel", False),
    ],
)
def test_8_a_topic_is_ours_by_its_path_under_one_of_our_addresses(topic, found):
    assert channel_of(topic, BASES) == (ChannelName("a.b", "change") if found else None)


@pytest.mark.parametrize(
    ("callback", "begins"),
    [
        ("http://c/", "http://c/?hub.mode="),
        ("http://c", "http://c?hub.mode="),
        ("http://c/?a=b", "http://c/?a=b&hub.mode="),
        ("http://c/?a=b&", "http://c/?a=b&hub.mode="),
        ("http://c/?", "http://c/?hub.mode="),
        ("http://c/?hub.mode=mine", "http://c/?hub.mode=mine&hub.mode="),
        ("http://c/?a=%C3%A9+%20", "http://c/?a=%C3%A9+%20&hub.mode="),
    ],
)
def test_10_the_callbacks_own_query_stays_as_it_is(callback, begins):
    url = verification_url(callback, "subscribe", "http://t/", "abc", 60)
    assert url.startswith(begins)


def test_16_unsubscribing_is_verified_without_a_lease():
    url = verification_url("http://c/", "unsubscribe", "http://t/?a&b", "abc", 60)
    assert (
        url
        == "http://c/?hub.mode=unsubscribe&hub.topic=http%3A%2F%2Ft%2F%3Fa%26b&hub.challenge=abc"
    )


def test_15_a_denial_names_the_topic_and_the_reason():
    url = denial_url("http://c/", "http://t/", "no such topic")
    assert url == ("http://c/?hub.mode=denied&hub.topic=http%3A%2F%2Ft%2F&hub.reason=no+such+topic")


def test_the_host_of_a_callback_is_its_name_and_port():
    assert authority("http://user@Example.COM/a") == "example.com:80"
    assert authority("https://example.com/a") == "example.com:443"
    assert hostname_of("http://user@Example.COM:81/a") == "example.com"


@pytest.mark.parametrize(
    "callback",
    [
        *("http:///a", "http://a b/", "http://a/\x7f", "http://ä/", "http://%31%32/", "//a/"),
        *("http://a:0/", "http://a:99999/", "http://[::1/", "http://a\\@b/", "javascript:x"),
    ],
)
def test_1_what_is_no_url_is_no_callback(callback):
    form = {"hub.topic": ["http://t/"], "hub.callback": [callback]}
    with pytest.raises(Rejected, match="not an http or https URL"):
        parse_subscription_request(form, "subscribe")


def test_an_empty_secret_is_none():
    form = parse_form(b"hub.topic=http://t/&hub.callback=http://c/&hub.secret=")
    assert parse_subscription_request(form, "subscribe").secret is None


@pytest.mark.parametrize(
    ("header", "links"),
    [
        (
            '<http://t/>; rel="self", <http://h/>; rel="hub"',
            {"self": "http://t/", "hub": "http://h/"},
        ),
        ("<http://t/>;rel=self,<http://h/>;rel=hub", {"self": "http://t/", "hub": "http://h/"}),
        (
            '<http://t/>; title="a, b; c"; REL="Self Other"',
            {"self": "http://t/", "other": "http://t/"},
        ),
        ('<http://t/,a;b>; rel="self"', {"self": "http://t/,a;b"}),
        ('<http://1/>; rel="self", <http://2/>; rel="self"', {"self": "http://1/"}),
        ("http://t/; rel=self", {}),
        ("<http://t/>", {}),
        ("", {}),
    ],
)
def test_a_link_header_is_read_as_it_is_meant(header, links):
    assert parse_links(header) == links


def test_a_long_link_header_takes_no_long_time():
    assert parse_links("<" * 60_000) == {}
    assert parse_links("<a>" + ";" * 60_000) == {}
    assert parse_links('<a>;"' * 12_000) == {}


@pytest.mark.parametrize("algorithm", ["sha1", "sha256", "sha384", "sha512"])
def test_25_the_signature_is_an_hmac_of_the_body(algorithm):
    headers = signing_headers("é", b"body", algorithm=algorithm, webhook_id="i", timestamp=1)
    digest = hmac.new("é".encode(), b"body", getattr(hashlib, algorithm)).hexdigest()
    assert headers["X-Hub-Signature"] == f"{algorithm}={digest}"


def test_25_without_a_secret_nothing_is_signed():
    headers = signing_headers(None, b"body", algorithm="sha256", webhook_id="i", timestamp=1)
    assert headers == {"webhook-id": "i", "webhook-timestamp": "1"}


def test_the_id_of_a_notification_is_its_set_and_interval_without_a_full_stop():
    interval = Interval(Position(1), Position(2))
    assert notification_id(ChannelName("a.b", "change"), interval) == "a~b-change-1-2"


TOPIC, CALLBACK = "http://hub.example/topic", "http://receiver.example/"
SUBSCRIBE = {"hub.mode": "subscribe", "hub.topic": TOPIC, "hub.callback": CALLBACK}


def form_of(**fields: str) -> FormFields:
    named = {name.replace("_", ".", 1): value for name, value in fields.items()}
    return parse_form(urlencode(SUBSCRIBE | named).encode())


@pytest.mark.parametrize(
    ("form", "detail"),
    [
        ({"hub_mode": "publishing"}, "hub.mode is subscribe, unsubscribe or publish"),
        ({"hub_callback": ""}, "hub.callback is missing"),
        ({"hub_callback": CALLBACK + "#here"}, "hub.callback has a fragment"),
        ({"hub_callback": CALLBACK + "x" * URL_CHARACTERS}, "hub.callback is longer than"),
        ({"hub_secret": "s" * 200}, "hub.secret must be shorter than 200 bytes"),
        *(
            ({"hub_lease_seconds": wrong}, "hub.lease_seconds is a positive whole number")
            for wrong in ("0", "-1", "1.5", "ten")
        ),
        ({"hub_lease_seconds": ""}, "hub.lease_seconds is missing"),
    ],
)
def test_1_to_5_a_field_that_is_not_well_formed_is_named(form, detail):
    fields = form_of(**form)
    with pytest.raises(Rejected) as refused:
        parse_subscription_request(fields, parse_mode(fields))
    assert detail in refused.value.detail


@pytest.mark.parametrize(
    ("form", "detail"), [(b"", "missing"), (b"hub.mode=a&hub.mode=a", "given more than once")]
)
def test_1_a_mode_is_given_once(form, detail):
    with pytest.raises(Rejected, match=f"hub.mode is {detail}"):
        parse_mode(parse_form(form))


def test_5_a_secret_has_at_most_199_bytes_and_a_lease_an_end():
    fields = form_of(hub_secret="s" * 199, hub_lease_seconds="9" * 30)
    request = parse_subscription_request(fields, "subscribe")
    assert request.secret == "s" * 199
    assert request.lease_seconds == LEASE_MAX_SECONDS


@pytest.mark.parametrize("body", [b"hub.mode=\xff", b"a=b&" * 1_000])
def test_a_form_that_cannot_be_read_is_refused(body):
    with pytest.raises(Rejected, match="form"):
        parse_form(body)


def test_20_a_ping_names_topics_in_either_spelling():
    form = parse_form(b"hub.mode=publish&hub.url=a&hub.url=b&hub.topic=c")
    assert parse_ping(form) == ["a", "b", "c"]
    with pytest.raises(Rejected, match=r"hub\.url is missing"):
        parse_ping(parse_form(b"hub.mode=publish"))
