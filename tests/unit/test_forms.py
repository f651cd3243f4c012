"""Who gets JSON: only whoever asks for it."""

import pytest

from rsnotify.errors import Rejected
from rsnotify.resourcesync.forms import (
    DOCUMENT_FORMS,
    HEADER_CHARACTERS,
    JSON,
    LIST_FORMS,
    NDJSON,
    XML,
    wanted_form,
)

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", XML),
        ("*/*", XML),
        ("application/*", XML),
        ("text/html", XML),
        (BROWSER, XML),
        ("application/json", JSON),
        ("APPLICATION/JSON", JSON),
        ("application/json, text/plain, */*", JSON),
        ("application/json;q=0.5, */*", XML),
        ("application/json;q=0.5, application/xml;q=0.4", JSON),
        ("application/json;q=0.4, application/xml;q=0.5", XML),
        ("application/json;q=0.4, text/xml;q=0.5", XML),
        ("application/json, application/xml", XML),
        ("application/json;q=0", XML),
        ("application/json;q=0, */*", XML),
        ("application/json;charset=utf-8;q=0.9, */*;q=0.1", JSON),
        ("application/json; q=0.001", JSON),
        ("application/json;q=nan, */*;q=0.1", XML),
        ("application/json;q=2", XML),
        ("application/x-ndjson", NDJSON),
        ("application/jsonl", NDJSON),
        ("application/json;q=0.9, application/x-ndjson", NDJSON),
        (" " * HEADER_CHARACTERS + "application/json", XML),
        (",;,;q=,", XML),
    ],
)
def test_the_best_of_what_is_accepted_is_sent(accept, form):
    assert wanted_form(accept, None, LIST_FORMS) == form


def test_lines_are_for_lists_only():
    assert wanted_form("application/x-ndjson, */*;q=0.1", None, DOCUMENT_FORMS) == XML


def test_the_format_that_is_named_decides():
    assert wanted_form("application/xml", "json", LIST_FORMS) == JSON
    assert wanted_form("application/json", "xml", LIST_FORMS) == XML


@pytest.mark.parametrize("named", ["yaml", "", "JSON", "ndjson"])
def test_a_format_that_is_not_offered_is_refused(named):
    with pytest.raises(Rejected, match="must be xml or json"):
        wanted_form("", named, DOCUMENT_FORMS)
