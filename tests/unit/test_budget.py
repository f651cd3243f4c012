"""The budget: who has how much, and who gives when it is too much."""

import pytest

from rsnotify.journal.cache import Budget

LIMIT = 100

Use = tuple[str, int]


@pytest.mark.parametrize(
    ("uses", "given", "total"),
    [
        ([("a", 100)], [], 100),
        ([("a", 101)], ["a"], 0),
        ([("a", 60), ("b", 40)], [], 100),
        ([("a", 60), ("b", 41)], ["a"], 41),
        ([("a", 50), ("b", 50), ("c", 1)], ["a"], 51),
        ([("a", 50), ("b", 50), ("c", 51)], ["a", "b"], 51),
        ([("a", 50), ("b", 50), ("a", 50), ("c", 1)], ["b"], 51),  # used again: not the oldest
        ([("a", 90), ("b", 10), ("a", 20), ("c", 70)], [], 100),  # it has shrunk since
        ([("a", 10), ("b", 50), ("a", 51)], ["b"], 51),  # it has grown since
        ([("a", 10), ("b", 101)], ["a", "b"], 0),  # too large to be kept at all
        ([("a", 0), ("b", 100), ("c", 1)], ["a", "b"], 1),
    ],
)
def test_who_was_used_least_recently_gives_first(
    uses: list[Use], given: list[str], total: int
) -> None:
    budget: Budget[str] = Budget(LIMIT)
    found = [owner for who, size in uses for owner in budget.use(who, size, 0)]
    assert (found, budget.total) == (given, total)


def test_who_has_given_or_is_forgotten_has_nothing() -> None:
    budget: Budget[str] = Budget(LIMIT)
    budget.use("a", 60, 0)
    budget.use("b", 30, 0)
    budget.forget("b")
    budget.forget("never seen")
    assert ("a" in budget, "b" in budget, budget.total) == (True, False, 60)
    assert repr(budget) == "<Budget 60 of 100 bytes, 1 owners>"
    assert budget.use("c", 41, 0) == ["a"]
    assert "a" not in budget


@pytest.mark.parametrize(("since", "idle"), [(10, []), (11, ["a"]), (20, ["a"]), (21, ["a", "b"])])
def test_who_was_not_used_since_a_moment_is_idle(since: float, idle: list[str]) -> None:
    budget: Budget[str] = Budget(LIMIT)
    budget.use("a", 1, 10)
    budget.use("b", 1, 20)
    assert budget.idle(since) == idle
