"""Every number of docs/reference/limits.md is the code's; most are held at their edge here."""

import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from rsnotify.access import query
from rsnotify.errors import InvalidSettings, Rejected
from rsnotify.journal import submission
from rsnotify.process.settings import PREFIX, Settings
from rsnotify.publishing.bodies import read_submission
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.notification import Kind
from rsnotify.resourcesync.xml_writer import RS_NS, SITEMAP_NS
from rsnotify.sets import records
from rsnotify.websub import rules
from tests.tools import limits

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
DOCUMENT = (REFERENCE / "limits.md").read_text()
WITHOUT = re.compile(r"(?ms)^## What a stranger is answered.*?(?=^## Starting)")
"""What is no constant: held to every address by tests/protocol/test_answer_sizes.py, and prose."""
ROW = re.compile(r"^\| ([^|]+?) \| (\d[^|]*) \|", re.MULTILINE)
RANGE = re.compile(r"^\| `(RSNOTIFY_\w+)`[^|]*\| `\d+`, ([\d,]+) to ([\d,]+) \|", re.MULTILINE)

UNNAMED = {
    "`pri` of a link",
    "characters of an `Idempotency-Key`",
    "characters of a set's name",
    "random characters of a token that you choose, at least 43",
    "bytes of the answer to an address at which there is nothing",
}
"""What is part of a pattern or of another number, so that no constant has it: held at its edge."""


def test_the_documented_limits_are_the_ones_that_hold():
    """`python -m tests.tools.limits` writes them."""
    assert limits.written(DOCUMENT) == DOCUMENT


def test_every_limit_names_the_constant_that_holds_it():
    rows = ROW.findall(WITHOUT.sub("", DOCUMENT))
    assert len(rows) > 190
    assert {what for what, most in rows if not limits.NUMBER.match(most)} == UNNAMED


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("9 <!-- rsnotify.websub.rules.FORM_FIELDS -->", "100"),
        ("9 KiB <!-- rsnotify.websub.rules.FORM_BYTES -->", "16 KiB"),
        ("9 <!-- rsnotify.websub.rules.SECRET_BYTES - 1 -->", "199"),
        ("9 <!-- rsnotify.redis_client.client.WAIT_MILLISECONDS / 1000 -->", "1.5"),
        ("9 <!-- rsnotify.process.settings.Settings().page_size -->", "50,000"),
    ],
)
def test_a_number_is_written_in_its_unit_from_what_holds_it(written, meant):
    assert limits.written(written) == f"{meant} {written[written.index('<') :]}"


def test_a_number_that_its_unit_cannot_say_is_not_written():
    with pytest.raises(ValueError, match="no whole number of MiB: choose a smaller unit"):
        limits.written("1 MiB <!-- rsnotify.websub.rules.FORM_BYTES -->")


def whole(text: str) -> int:
    return int(text.replace(",", ""))


# Settings --------------------------------------------------------------------------------------

RANGES = {
    name: (whole(low), whole(high))
    for name, low, high in RANGE.findall((REFERENCE / "settings.md").read_text())
}


def test_every_number_among_the_settings_has_its_range_in_the_docs():
    assert RANGES.keys() == {
        PREFIX + each.name.upper() for each in fields(Settings) if isinstance(each.default, int)
    }


DAYS = {"RSNOTIFY_CHANGELIST_DAYS": "1", "RSNOTIFY_RETENTION_DAYS": "36500"}  # fit with any other


@pytest.mark.parametrize("name", RANGES)
def test_a_setting_may_be_what_its_range_says_and_no_more(name):
    low, high = RANGES[name]
    for value in (low, high):
        settings = Settings.from_env({**DAYS, name: str(value)})
        assert getattr(settings, name.removeprefix(PREFIX).lower()) == value
    for value in (low - 1, high + 1):
        with pytest.raises(InvalidSettings, match=f"a whole number from {low} to {high}"):
            Settings.from_env({name: str(value)})


# What a change may be --------------------------------------------------------------------------

ONE = {"loc": "http://example.com/a", "change": "updated"}
LINK = {"rel": "describedby", "href": "http://example.com/b"}
FRAMEWORK = {"loc": "http://example.com/l", "change": "updated", "capability": "changelist"}


def uri(characters: int) -> str:
    return "http://example.com/".ljust(characters, "a")


def accepted(
    change: object,
    kind: Kind = "change",
    key: str | None = None,
    media_type: str = "application/json",
) -> bool:
    try:
        body = change if isinstance(change, bytes) else json.dumps(change).encode()
        read_submission(kind, body, media_type, key)
    except Rejected:
        return False
    return True


def with_(**chosen: object) -> dict[str, object]:
    return {**ONE, **chosen}


LONGEST_HASH = "md5:" + "0" * 32
AT_MOST: dict[str, tuple[int, Callable[[int], bool]]] = {
    "loc": (2_048, lambda n: accepted(with_(loc=uri(n)))),
    "index": (2_048, lambda n: accepted({**FRAMEWORK, "index": uri(n)}, "framework")),
    "href": (2_048, lambda n: accepted(with_(links=[{**LINK, "href": uri(n)}]))),
    "encoding": (1_024, lambda n: accepted(with_(encoding="g" * n))),
    "profile": (1_024, lambda n: accepted(with_(links=[{**LINK, "profile": "p" * n}]))),
    "hash": (1_024, lambda n: accepted(with_(hash=LONGEST_HASH.ljust(n)))),
    "length": (10**18 - 1, lambda n: accepted(with_(length=n))),
    "length of a link": (10**18 - 1, lambda n: accepted(with_(links=[{**LINK, "length": n}]))),
    "links": (100, lambda n: accepted(with_(links=[LINK] * n))),
    "pri": (999_999, lambda n: accepted(with_(links=[{**LINK, "pri": n}]))),
    "Idempotency-Key": (255, lambda n: accepted(ONE, key="k" * n)),
    "body": (8 * 1024**2, lambda n: accepted(json.dumps(ONE).encode().ljust(n))),
}


@pytest.mark.parametrize("name", AT_MOST)
def test_a_change_may_be_as_long_as_documented_and_no_longer(name):
    most, is_accepted = AT_MOST[name]
    assert is_accepted(most)
    assert not is_accepted(most + 1)


def test_a_change_takes_as_many_bytes_as_documented_and_no_more():
    links = [{**LINK, "href": uri(2_000)}] * 15 + [{**LINK, "href": uri(1_200)}]
    (fragment,) = read_submission(
        "change", json.dumps(with_(links=links, type="a/b")).encode(), "application/json", None
    ).fragments
    left = submission.FRAGMENT_BYTES - len(fragment.xml) - len(' encoding=""')
    assert accepted(with_(links=links, type="a/b", encoding="e" * left))
    assert not accepted(with_(links=links, type="a/b", encoding="e" * (left + 1)))


def test_a_length_means_the_same_in_every_format():
    """A digit more could be published, but nobody would read it in the notification."""
    for digits, fits in [(18, True), (19, False)]:
        entry = f'<url><loc>{uri(30)}</loc><rs:md change="updated" length="{"9" * digits}"/></url>'
        body = f'<urlset xmlns="{SITEMAP_NS}" xmlns:rs="{RS_NS}">{entry}</urlset>'.encode()
        assert accepted(body, media_type="text/xml") == fits
        assert accepted(with_(length=int("9" * digits))) == fits


# The rest --------------------------------------------------------------------------------------


def test_a_set_s_name_has_64_characters_at_most():
    records.check_name("a" * 64)
    with pytest.raises(Rejected, match="use 1 to 64"):
        records.check_name("a" * 65)


@pytest.mark.parametrize("name", ["hub.callback", "hub.topic"])
def test_a_callback_or_topic_has_2048_characters_at_most(name):
    form = {"hub.callback": ["http://a.example/"], "hub.topic": ["http://hub.example/"]}
    rules.parse_subscription_request({**form, name: [uri(2_048)]}, "subscribe")
    with pytest.raises(Rejected, match="longer than 2048 characters"):
        rules.parse_subscription_request({**form, name: [uri(2_049)]}, "subscribe")


def test_a_form_has_100_fields_at_most():
    assert len(rules.parse_form(b"&".join([b"a=b"] * 100))["a"]) == 100
    with pytest.raises(Rejected, match="form cannot be read"):
        rules.parse_form(b"&".join([b"a=b"] * 101))


@pytest.mark.parametrize(
    ("asked", "granted"), [(2_678_399,) * 2, (2_678_400,) * 2, (2_678_401, 2_678_400)]
)
def test_a_lease_lasts_31_days_at_most(asked, granted):
    form = {"hub.callback": ["http://a.example/"], "hub.topic": ["http://hub.example/"]}
    form["hub.lease_seconds"] = [str(asked)]
    assert rules.parse_subscription_request(form, "subscribe").lease_seconds == granted


@pytest.mark.parametrize(
    ("wrong", "more"), [(99, "98 more"), (100, "99 more at least"), (101, "99 more at least")]
)
def test_an_answer_names_100_faults_and_does_not_count_the_others(wrong, more):
    body = json.dumps([with_(change="moved")] * wrong).encode()
    with pytest.raises(Rejected) as refused:
        read_submission("change", body, "application/json", None)
    assert len(refused.value.faults) == min(wrong, 100)
    assert refused.value.detail.endswith(f"(and {more})")


def test_a_position_may_be_5_seconds_in_the_future_and_no_more():
    now, newest = 10 * MICROSECONDS, Position(0)
    query.check_not_future(Position(now + 5 * MICROSECONDS), newest, now)
    with pytest.raises(Rejected, match="in the future"):
        query.check_not_future(Position(now + 5 * MICROSECONDS + 1), newest, now)
    query.check_not_future(Position(now * 9), Position(now * 9), now)  # there is such a change
