"""How `make test` shares its tests out; its closing lines count all, and say what was not run."""

import os
import sys

import pytest

from tests.tools.evidence import named, parts
from tests.tools.run import Counts, parallel, read_report

REPORT = """<testsuites><testsuite tests="4" failures="1" errors="0" skipped="2">
<testcase/><testcase><failure message="no"/></testcase>
<testcase><skipped type="pytest.skip" message="no Chromium"/></testcase>
<testcase><skipped type="pytest.skip" message="no Chromium"/></testcase>
</testsuite></testsuites>"""


def test_what_was_skipped_is_counted_and_how_often_for_want_of_what(tmp_path):
    (tmp_path / "report.xml").write_text(REPORT)
    total = Counts(1, 0, 0) + read_report(tmp_path / "report.xml")
    assert str(total) == (
        "2 passed, 1 failed, 2 skipped: no Chromium (2); "
        "`make test-packages` installs what is missing"
    )


def test_where_nothing_was_skipped_it_ends_with_the_counts():
    assert str(Counts(3, 0, 0) + Counts(1, 0, 0)) == "4 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize(("cores", "workers"), [(None, 7), (1, 7), (2, 8), (26, 32), (64, 32)])
def test_the_cores_decide_how_many_run_tests_at_once_up_to_a_bound(monkeypatch, cores, workers):
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(sys, "platform", "linux")
    assert parallel(["tests/unit"]) == ("-p", "tests.tools.workers", "--forks", str(workers))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert parallel(["tests/unit"]) == ("-n", str(workers), "--dist", "worksteal")


@pytest.mark.parametrize("chosen", [["-n", "0"], ["-n2"], ["--numprocesses=4", "tests/unit"]])
def test_who_says_how_many_run_tests_at_once_has_so_many(chosen):
    assert parallel(chosen) == ("--dist", "worksteal")


def test_what_is_left_to_the_evidence_is_named():
    said = named()
    assert "fault/test_storm.py" in said
    assert all(part.name in said for part in parts(full=True))
