"""Whose fault a refusal is, and for how long it holds."""

import pytest

from rsnotify.errors import Fault, Rejected, TryAgain
from rsnotify_client.answer import LONGEST_PAUSE_SECONDS, NotAHub, content_of, refused_changes
from rsnotify_client.web import detail_of

FAULTS = [{"index": 1, "message": "bad"}, {"index": 9, "message": "not of this batch"}]
HTML = NotAHub("http://hub", "answered 413", 413)


def test_the_changes_that_are_named_are_at_fault():
    assert refused_changes(Rejected("", faults=FAULTS), 3) == {1: "bad"}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("Expected `int | null`, got `str`", "length: Expected `int | null`, got `str`"),
        ("length must not be negative", "length must not be negative"),
    ],
)
def test_the_reason_names_the_field_once(message, reason):
    fault = Fault(index=0, field="length", message=message)
    assert refused_changes(Rejected("", faults=[fault]), 1) == {0: reason}


@pytest.mark.parametrize("status", [400, 413, 422])
def test_an_unexplained_refusal_of_many_is_tried_with_fewer(status):
    assert refused_changes(Rejected("no", status=status), 2) == {}


@pytest.mark.parametrize("status", [400, 413, 422])
def test_an_unexplained_refusal_of_one_is_that_change_s_fault(status):
    assert refused_changes(Rejected("no", status=status), 1) == {0: "no"}


@pytest.mark.parametrize("status", [301, 401, 403, 404, 405, 410, 415])
def test_a_token_a_set_or_an_address_is_no_change_s_fault(status):
    assert refused_changes(Rejected("no", status=status), 1) is None


def test_a_used_key_is_changed():
    assert refused_changes(Rejected("used", status=409), 1) == {}


def test_the_limit_of_a_proxy_makes_batches_smaller_but_never_costs_a_change():
    assert refused_changes(HTML, 2) == {}
    assert refused_changes(HTML, 1) is None


@pytest.mark.parametrize("status", [400, 409])
def test_what_is_no_hub_refuses_nothing(status):
    assert refused_changes(NotAHub("http://hub", f"answered {status}", status), 2) is None


@pytest.mark.parametrize(
    ("told", "seconds"),
    [(None, 0), ("soon", 0), ("5", 5), ("61", LONGEST_PAUSE_SECONDS), ("9" * 5_000, 60)],
)
def test_a_hub_that_asks_for_time_gets_a_minute_at_most(told, seconds):
    with pytest.raises(TryAgain) as caught:
        content_of("http://hub", 503, told, b"")
    assert caught.value.retry_after_seconds == seconds


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("piece", [b"[", b'{"detail":'])
def test_json_that_is_nested_too_deep_is_no_answer_of_a_hub(status, piece):
    with pytest.raises(NotAHub):
        content_of("http://hub", status, None, piece * 100_000)


@pytest.mark.parametrize(
    "body",
    [
        b'{"detail": [{"loc": ["body"], "msg": "Field required"}]}',
        b'{"detail": "no", "errors": 7}',
        b'{"detail": "no", "errors": {"name": ["is missing"]}}',
        b'{"detail": "kein Datensatz f\xfcr Sie"}',
    ],
)
def test_what_another_api_says_is_no_change_s_fault(body):
    with pytest.raises(NotAHub) as caught:
        content_of("http://hub", 422, None, body)
    assert refused_changes(caught.value, 1) is None
    assert detail_of(body) is None


def test_text_that_is_not_utf_8_is_no_answer_of_a_hub():
    with pytest.raises(NotAHub):
        content_of("http://hub", 200, None, b'{"name": "\xfc"}')


def test_a_refusal_that_is_nested_too_deep_explains_nothing():
    assert detail_of(b"[" * 100_000) is None
