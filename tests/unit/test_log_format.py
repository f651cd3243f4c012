"""What a line of the log looks like, and what is never in it."""

import json
import logging
import sys

import pytest

from rsnotify.process.logs import OF_A_KIND, FloodFilter, JsonFormat, TextFormat

SECRETS = (
    "rsn_Zm9vYmFyYmF6cXV4cXV1eGNvcmdl",
    "GET /x?access_token=abcdefgh&from=1",
    "Authorization: Bearer abcdefgh",
    "rsnotify_token=eyJhbGciOiJub25lIn0.abcdefgh.Zm9v;",
    "rsnotify.token.eyJhbGciOiJub25lIn0.Zm9v.abcdefgh",
)


def record(message: str, *args: object, level: int = logging.WARNING) -> logging.LogRecord:
    made = logging.LogRecord("rsnotify.live.journals", level, "", 0, message, args, None)
    made.created = 1_795_292_666.2416
    return made


def test_a_line_of_text_has_the_time_with_its_zone_and_the_workers_number():
    assert TextFormat("2").format(record("%s is away", "Redis")) == (
        "2026-11-21T20:24:26.241Z WARNING [2] Redis is away"
    )
    assert "WARNING Redis" in TextFormat().format(record("Redis is away"))


def test_a_line_of_json_is_one_object():
    assert json.loads(JsonFormat("2").format(record("a\nb"))) == {
        "time": "2026-11-21T20:24:26.241Z",
        "level": "warning",
        "worker": 2,
        "room": "rsnotify.live.journals",
        "message": "a\nb",
    }


@pytest.mark.parametrize("form", [TextFormat(), JsonFormat()])
@pytest.mark.parametrize("text", SECRETS)
def test_a_token_is_never_logged_not_even_in_a_traceback(form, text):
    told = record("%s", text)
    try:
        raise ValueError(text)
    except ValueError:
        told.exc_info = sys.exc_info()
    line = form.format(told)
    assert "ValueError" in line
    assert "abcdefgh" not in line
    assert "Zm9v" not in line


def test_of_a_kind_so_many_are_logged_in_a_minute_and_the_rest_is_counted():
    now = 0.0
    flood = FloodFilter(lambda: now)
    passed = [flood.filter(record("%s calls", number)) for number in range(OF_A_KIND + 5)]
    assert passed == [True] * OF_A_KIND + [False] * 5
    assert flood.filter(record("something else"))
    now = 60.0
    following = record("%s calls", 99)
    assert flood.filter(following)
    assert following.getMessage() == "99 calls (5 more like this were left out)"
    now = 120.0
    assert flood.filter(record("%s calls", 100))


def test_the_access_log_is_not_cut():
    flood = FloodFilter()
    lines = [record("%s", number, level=logging.INFO) for number in range(OF_A_KIND + 1)]
    for line in lines:
        line.name = "rsnotify.access_log"
    assert all(map(flood.filter, lines))


def test_a_line_of_json_has_what_is_known_of_a_request():
    line = record("%s %s", "GET", "/a", level=logging.INFO)
    line.fields = {"method": "GET", "path": "/a", "status": 200, "milliseconds": 1.5}
    told = json.loads(JsonFormat().format(line))
    assert told["message"] == "GET /a"
    assert (told["method"], told["status"], told["milliseconds"]) == ("GET", 200, 1.5)
    assert "status" not in TextFormat().format(line)
