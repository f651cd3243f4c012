"""How `make test` shares its tests out; its closing lines count all, and say what was not run."""

import os
import sys

import pytest

from tests.tools.evidence import Part, named, parts, run
from tests.tools.run import Counts, parallel, read_report

REPORT = """<testsuites><testsuite tests="4" failures="1" errors="0" skipped="2">
<testcase/>
<testcase classname="tests.unit.test_a" name="test_b[c]"><failure message="no"/></testcase>
<testcase><skipped type="pytest.skip" message="no Chromium"/></testcase>
<testcase><skipped type="pytest.skip" message="no Chromium"/></testcase>
</testsuite></testsuites>"""


def test_what_was_skipped_is_counted_and_how_often_for_want_of_what(tmp_path):
    (tmp_path / "report.xml").write_text(REPORT)
    total = Counts(1, 0, 0) + read_report(tmp_path / "report.xml")
    assert str(total) == (
        "2 passed, 1 failed, 2 skipped: no Chromium (2); "
        "`make test-packages` installs what is missing\n"
        "failed: tests/unit/test_a.py::test_b[c]"
    )


def test_of_many_that_failed_some_are_named():
    lines = str(Counts(0, 22, 0, names=tuple(map(str, range(22))))).split("\n")
    assert lines == [
        "0 passed, 22 failed, 0 skipped",
        *(f"failed: {n}" for n in range(20)),
        "…and 2 more",
    ]


def test_a_part_of_the_evidence_that_fails_is_named_with_its_last_word(capfd):
    program = "print('again: make simulate SEED=7'); print(); raise SystemExit(1)"
    counts = run(Part("new histories", (sys.executable, "-c", program)))
    assert (
        str(counts)
        == "0 passed, 1 failed, 0 skipped\nfailed: new histories: again: make simulate SEED=7"
    )
    assert "again: make simulate SEED=7\n" in capfd.readouterr().out
    assert str(run(Part("fuzzing", (sys.executable, "-c", "")))) == "1 passed, 0 failed, 0 skipped"


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
