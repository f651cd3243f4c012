"""The closing line of `make test` counts everything and says what was not run."""

from tests.run import Counts, read_report

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
