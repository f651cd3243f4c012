"""The tables of the command line in a narrow terminal."""

import json
import logging
import sys

import pytest

from rsnotify.cli.output import json_line, print_done, print_fields, print_found, print_table
from rsnotify.cli.terminal import LogLines, echo

ID = "0123456789abcdef"
COLUMNS = ("id", "set", "kind", "callback", "behind_seconds", "last_answer", "next_attempt")
ROW = {
    "id": ID,
    "set": "dataset1",
    "kind": "change",
    "callback": "https://receiver.example.org/some/long/path/to/a/callback",
    "behind_seconds": 86_400.123456,
    "last_answer": "503 Service Unavailable",
    "next_attempt": "2026-11-20T21:34:00.123456Z",
}


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_table([ROW], COLUMNS, json=False)
    return capsys.readouterr().out


def test_a_program_gets_tabs_and_whole_moments(capsys):
    print_table([ROW], COLUMNS, json=False)
    head, row = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert head == [*COLUMNS]
    assert row[-1] == ROW["next_attempt"]


def test_a_person_reads_minutes(printed):
    assert "UTC" in printed
    assert "123456Z" not in printed


def test_an_id_is_never_cut(printed):
    assert ID in printed


def test_nothing_is_left_out_for_want_of_room(printed):
    assert "…" not in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_seconds_are_whole(printed):
    assert "86400" in printed
    assert "86400." not in printed


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_a_hub_says_ends_no_cell_and_steers_no_terminal(capsys, monkeypatch, is_terminal):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    row = {"name": "a\x1b]0;b\x07\tc\r\nd\u202ee[/f]"}
    print_table([row], ["name"], json=False)
    print_fields(row, json=False)
    lines = capsys.readouterr().out.splitlines()
    assert sum("a?]0;b??c??d?e[/f]" in line for line in lines) == 2


def test_json_says_the_same_in_characters_that_steer_no_terminal(capsys):
    row = {"loc": "http://é.example/\x7f\x85\x9b31m\u061c\u200f\u202e\u2066", "set": "日本"}
    print_table([row], ["loc"], json=True)
    print_fields(row, json=True)
    print_found(row, (), json=True)
    said = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in said] == [[row], row, row]
    assert all(line.isprintable() and "é" in line and "日本" in line for line in said)


def test_lines_for_people_and_logs_steer_no_terminal_and_end_where_we_end_them(capsys):
    stranger = "http://é.example/\x1b[2J\x7f\x85\x9b31m\u061c\u200f\u202e\u2066\r\nIN SYNC\t"
    shown = "http://é.example/?[2J???31m??????IN SYNC?"
    echo(stranger)
    print_found(None, [stranger], json=False)
    print_done({}, stranger, json=False)
    said = capsys.readouterr()
    assert said.out.splitlines() == [shown, shown]
    assert said.err.splitlines() == [shown]
    try:
        raise ValueError(stranger)
    except ValueError:
        raised = sys.exc_info()
    record = logging.LogRecord("a", logging.INFO, "", 0, "%s is away", (stranger,), raised)
    first, second, *_, last = LogLines("%(message)s").format(record).split("\n")
    assert first == f"{shown} is away"
    assert second == "Traceback (most recent call last):"
    assert last.isprintable()


def test_json_in_ascii_is_as_it_was():
    assert json_line({"a": "b\n", "c": [1.5, None]}) == b'{"a":"b\\n","c":[1.5,null]}'
