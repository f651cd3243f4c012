"""The checker of `make soak SOAK_ARGS=storm` finds what it is there to find."""

import random

import pytest

from tests.soak.peers import Publisher
from tests.soak.storm import check, check_callback

ONE, TWO, THREE = JOURNAL = [f"http://example.com/p/{number}" for number in (1, 2, 3)]


def publisher(*acknowledged: str) -> Publisher:
    made = Publisher([], random.Random(), "p", keyed=True)
    made.acknowledged += acknowledged
    return made


def delivery(begins: int, ends: int, *locs: str) -> bytes:
    entries = "".join(f"<loc>{loc}</loc>" for loc in locs)
    return f'<md from="{begins}" until="{ends}"/>{entries}'.encode()


def test_histories_that_agree_pass() -> None:
    check(JOURNAL, [publisher(ONE, THREE)], [JOURNAL], [])
    check_callback([delivery(0, 2, ONE, TWO), delivery(1, 3, TWO, THREE)], JOURNAL)


@pytest.mark.parametrize(
    ("journal", "acknowledged", "history"),
    [
        ([ONE, TWO], JOURNAL, [ONE, TWO]),
        ([ONE, TWO, TWO], [ONE, TWO], [ONE, TWO, TWO]),
        ([TWO, ONE], [ONE, TWO], [TWO, ONE]),
        (JOURNAL, JOURNAL, [ONE, THREE]),
        (JOURNAL, JOURNAL, [ONE, TWO, TWO, THREE]),
        (JOURNAL, JOURNAL, [TWO, ONE, THREE]),
    ],
    ids=["lost", "stored twice", "out of order", "not told", "told twice", "told out of order"],
)
def test_any_other_is_found(
    journal: list[str], acknowledged: list[str], history: list[str]
) -> None:
    with pytest.raises(AssertionError):
        check(journal, [publisher(*acknowledged)], [history], [])


@pytest.mark.parametrize(
    "told",
    [
        [delivery(0, 1, ONE), delivery(2, 3, THREE)],
        [delivery(0, 2, ONE), delivery(2, 3, THREE)],
        [delivery(0, 1, ONE), delivery(2, 3, TWO, THREE)],
    ],
    ids=["a gap", "a change left out", "an interval that does not join"],
)
def test_so_is_what_a_callback_was_not_told(told: list[bytes]) -> None:
    with pytest.raises(AssertionError):
        check_callback(told, JOURNAL)
