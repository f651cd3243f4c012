"""Those who run for long and are watched: when they are in step, and what their numbers do."""

import logging
import shutil

import pytest

from rsnotify.cli.watched import Numbers, StepVerdict, judge, worst
from rsnotify.errors import InvalidSettings
from rsnotify_client.queue import OutboxError

JUDGED = [
    # in step, behind, allowed
    (True, 0.0, 0.0, "IN STEP"),
    (True, 60.0, 60.0, "IN STEP"),
    (True, 60.1, 60.0, "OUT OF STEP: 60 s behind, and 60 s are allowed"),
    (True, 0.1, 0.0, "OUT OF STEP: 0 s behind, and 0 s are allowed"),
    (True, None, 60.0, "OUT OF STEP"),  # never in step, however patient one is
    (True, None, float("inf"), "OUT OF STEP"),
    (True, 1.0, float("nan"), "OUT OF STEP: 1 s behind, and nan s are allowed"),
    (False, 0.0, 60.0, "OUT OF STEP"),
    (False, 100.0, 60.0, "OUT OF STEP"),
]


@pytest.mark.parametrize(("is_in_step", "behind", "allowed", "said"), JUDGED)
def test_what_was_in_step_not_too_long_ago_is_in_step(is_in_step, behind, allowed, said):
    verdict = judge(is_in_step=is_in_step, behind_seconds=behind, max_behind=allowed)
    assert (str(verdict), verdict.exit_status) == (said, 0 if said == "IN STEP" else 1)


def test_several_are_as_the_worst_of_them_and_none_is_not_in_step():
    late = StepVerdict(False, "late")
    assert worst([StepVerdict(True), late, StepVerdict(False)]) == late
    assert worst([StepVerdict(True), StepVerdict(True)]) == StepVerdict(True)
    assert worst([]) == StepVerdict(False)


def test_numbers_that_cannot_be_written_are_named_before_anything_begins(tmp_path):
    with pytest.raises(InvalidSettings, match=r"--metrics .*no/n\.prom: No such file"):
        Numbers(tmp_path / "no" / "n.prom")


def test_a_check_leaves_the_numbers_of_the_run_before(tmp_path):
    (tmp_path / "n.prom").write_text("before")
    Numbers(tmp_path / "n.prom")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("n.prom", "before")]


def test_what_cannot_be_written_later_is_said_once_and_ends_nothing(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    folder = tmp_path / "collector"
    folder.mkdir()
    numbers = Numbers(folder / "n.prom")
    shutil.rmtree(folder)
    for _ in range(3):
        numbers.write(lambda: "1")
    assert len(caplog.records) == 1
    folder.mkdir()
    numbers.write(lambda: "2")
    assert (folder / "n.prom").read_text() == "2"
    shutil.rmtree(folder)
    numbers.write(lambda: "3")
    assert len(caplog.records) == 2


def test_what_cannot_be_counted_now_leaves_the_file_as_it_is(tmp_path, caplog):
    numbers = Numbers(tmp_path / "n.prom")
    numbers.write(lambda: "1")

    def away() -> str:
        raise OutboxError("the database is away")

    numbers.write(away)
    assert (tmp_path / "n.prom").read_text() == "1"
    assert "the database is away" in caplog.text


def test_nothing_is_counted_where_no_file_was_asked_for():
    Numbers(None).write(lambda: pytest.fail("counted"))
