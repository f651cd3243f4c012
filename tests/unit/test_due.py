"""What is due when, in the order of time."""

from rsnotify.documents.due_sets import OUTDATED, Due


def due_of(**planned: float) -> Due:
    due = Due()
    for name, at in planned.items():
        due.plan(name, at)
    return due


def test_what_is_due_comes_out_once_the_earliest_first():
    due = due_of(a=3, b=1, c=2, d=4)
    assert due.take(3, most=10) == ["b", "c", "a"]
    assert due.take(3, most=10) == []
    assert due.take(4, most=10) == ["d"]


def test_no_more_come_out_than_are_asked_for():
    due = due_of(a=1, b=2, c=3)
    assert [due.take(9, most=2), due.take(9, most=2)] == [["a", "b"], ["c"]]


def test_the_newest_plan_counts():
    due = due_of(a=1, b=1)
    due.plan("a", 5)
    due.cancel("b")
    assert due.take(4, most=10) == []
    assert due.take(5, most=10) == ["a"]


def test_planned_by_a_time_is_never_later_than_it_was():
    due = due_of(a=1, b=9)
    due.plan_by(["a", "b", "c"], 5)
    assert due.take(1, most=10) == ["a"]
    assert sorted(due.take(5, most=10)) == ["b", "c"]


def test_planning_again_and_again_takes_no_more_memory():
    due = due_of(a=1, b=2)
    for at in range(10 * OUTDATED):
        due.plan("a", at)
    assert due.kept <= 2 * len(due) + OUTDATED
    assert due.take(10 * OUTDATED, most=10) == ["b", "a"]
