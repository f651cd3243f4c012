"""The judge of what readers were told around a loss finds what it is there to find."""

import pytest

from tests.support.stories import (
    Row,
    Story,
    difference,
    lost,
    rows_of,
    story_of_deliveries,
    wrong,
)

LOCS = [f"http://example.com/p/{number}" for number in (1, 2, 3)]
TIMES = [f"2026-11-22T00:00:0{number}Z" for number in range(8)]
ONE, TWO, THREE = JOURNAL = [*zip(TIMES[1:], LOCS, strict=False)]
GAP = TIMES[5]
LATER = (TIMES[6], "http://example.com/p/later")
TWICE = (TIMES[6], LOCS[1])
ANSWERS = {loc: [(begins, ends)] for loc, begins, ends in zip(LOCS, TIMES, TIMES[1:], strict=False)}


def document(begins: str, ends: str, *rows: Row) -> bytes:
    entries = "".join(
        f'<loc>{loc}</loc><lastmod>{at}</lastmod><rs:md change="updated" datetime="{at}"/>'
        for at, loc in rows
    )
    return f'<md from="{begins}" until="{ends}"/>{entries}'.encode()


def story(*rows: Row, began: str = TIMES[0]) -> Story:
    """Told these, one by one."""
    told = Story("reader")
    told.begin(began)
    for row in rows:
        told.take(document(told.cursor, row[0], row))
    return told


def told_of_a_gap(*rows: Row, began: str = TIMES[0]) -> Story:
    """Told of these, then of a loss; it goes on behind the gap."""
    told = story(*rows, began=began)
    told.is_told()
    told.begin(GAP)
    return told


def test_rows_are_read_from_a_notification():
    assert rows_of(document(TIMES[0], TIMES[2], ONE, TWO)) == [ONE, TWO]


def test_stories_that_agree_are_right():
    assert wrong(JOURNAL, ANSWERS, [story(*JOURNAL), story(THREE, began=TIMES[2])]) == []


@pytest.mark.parametrize(
    ("journal", "rows"),
    [
        ([ONE, TWO], [ONE, TWO]),
        ([*JOURNAL, TWICE], [*JOURNAL, TWICE]),
        ([TWO, ONE, THREE], [TWO, ONE, THREE]),
        ([ONE, (TIMES[2] + "5", LOCS[1]), THREE], [ONE, (TIMES[2] + "5", LOCS[1]), THREE]),
        (JOURNAL, [ONE, THREE]),
        (JOURNAL, [ONE, TWO, TWO, THREE]),
        (JOURNAL, [TWO, ONE, THREE]),
    ],
    ids=[
        *("lost", "stored twice", "out of order", "moved"),
        *("not told", "told twice", "told out of order"),
    ],
)
def test_any_other_is_found(journal, rows):
    assert wrong(journal, ANSWERS, [story(*rows)])


def test_intervals_that_do_not_join_are_found():
    told = story(ONE)
    told.take(document(TIMES[2], TIMES[3], THREE))
    assert f"came what begins at {TIMES[2]}" in "".join(told.faults)


def test_a_gap_and_a_reader_that_is_told_of_one_are_found_where_nothing_may_be_lost():
    assert wrong(JOURNAL, ANSWERS, [], gaps=1)
    assert wrong(JOURNAL, ANSWERS, [told_of_a_gap(*JOURNAL)])


@pytest.mark.parametrize("journal", [[ONE, TWO], [ONE, TWO, LATER]])
def test_a_loss_that_was_said_to_everybody_is_right(journal):
    """To who has read it, and to who has not."""
    stories = [told_of_a_gap(*JOURNAL), told_of_a_gap(ONE), told_of_a_gap(began=TIMES[2])]
    for each in stories:
        if LATER in journal:
            each.take(document(GAP, LATER[0], LATER))
    assert lost(journal, ANSWERS) == [(LOCS[2], (TIMES[2], TIMES[3]))]
    assert wrong(journal, ANSWERS, stories, gaps=1, may_lose=True) == []


def test_who_began_behind_what_is_lost_need_not_be_told():
    answers = ANSWERS | {LATER[1]: [(GAP, LATER[0])]}
    stories = [story(LATER, began=GAP)]
    assert wrong([ONE, TWO, LATER], answers, stories, gaps=1, may_lose=True) == []


@pytest.mark.parametrize(
    "told",
    [
        story(*JOURNAL),
        story(ONE, TWO),
        story(began=TIMES[2]),
        told_of_a_gap(*JOURNAL, THREE),
    ],
    ids=["has it", "has not read it", "began right before it", "has it twice"],
)
def test_a_loss_that_was_not_said_and_a_repetition_are_found(told):
    assert wrong([ONE, TWO], ANSWERS, [told], gaps=1, may_lose=True)


def test_who_is_told_more_often_than_there_are_gaps_is_found():
    told = told_of_a_gap(*JOURNAL)
    told.is_told()
    assert wrong([ONE, TWO], ANSWERS, [told], gaps=2, may_lose=True) == []
    assert wrong([ONE, TWO], ANSWERS, [told], gaps=1, may_lose=True)


def test_who_roams_may_be_told_once_more_and_hear_again_what_came_before():
    told = story(*JOURNAL)
    told.is_told()
    told.begin(TIMES[1])
    told.take(document(TIMES[1], TIMES[2], TWO))
    told.is_told()
    told.begin(GAP)
    assert wrong([ONE, TWO], ANSWERS, [told], gaps=1, may_lose=True)
    told.roams = True
    assert wrong([ONE, TWO], ANSWERS, [told], gaps=1, may_lose=True) == []
    assert wrong(JOURNAL, ANSWERS, [told])


def test_a_change_that_its_source_has_repeated_after_the_loss_is_there_and_its_loss_is_said():
    answers = ANSWERS | {LOCS[2]: [*ANSWERS[LOCS[2]], (GAP, TIMES[6])]}
    again = (TIMES[6], LOCS[2])
    told = told_of_a_gap(*JOURNAL)
    told.take(document(GAP, TIMES[6], again))
    journal = [ONE, TWO, again]
    assert wrong(journal, answers, [told], gaps=1, may_lose=True) == []
    assert wrong(journal, answers, [story(ONE, TWO, again)], gaps=1, may_lose=True)


def test_who_is_sent_back_goes_on_there_and_keeps_nothing_of_what_is_lost():
    told = story(*JOURNAL)
    told.begin(TIMES[2])
    assert (told.rows, told.before, told.faults) == ([ONE, TWO], [THREE], [])
    told.begin(TIMES[3])
    assert told.faults == [f"sent from {TIMES[2]} on to {TIMES[3]}"]


# --- callbacks -----------------------------------------------------------------------------------


def test_a_delivery_may_come_again():
    told = [(document(TIMES[0], TIMES[2], ONE, TWO), False)] * 2
    told.append((document(TIMES[1], TIMES[3], TWO, THREE), False))
    assert wrong(JOURNAL, ANSWERS, [story_of_deliveries("callback", TIMES[0], told)]) == []


@pytest.mark.parametrize("may_lose", [False, True])
@pytest.mark.parametrize(
    "told",
    [
        [document(TIMES[0], TIMES[1], ONE), document(TIMES[2], TIMES[3], THREE)],
        [document(TIMES[0], TIMES[2], ONE), document(TIMES[2], TIMES[3], THREE)],
        [document(TIMES[0], TIMES[1], ONE), document(TIMES[2], TIMES[3], TWO, THREE)],
    ],
    ids=["a gap", "a change left out", "an interval that does not join"],
)
def test_what_a_callback_was_not_told_is_found(told, may_lose):
    found = story_of_deliveries("callback", TIMES[0], [(each, False) for each in told])
    assert wrong(JOURNAL, ANSWERS, [found], gaps=may_lose, may_lose=may_lose)


def test_a_callback_that_is_told_that_changes_are_missing_goes_on_behind_them():
    journal = [ONE, TWO, LATER]
    answers = ANSWERS | {LATER[1]: [(GAP, LATER[0])]}
    first = document(TIMES[0], TIMES[3], *JOURNAL)
    for says_missing in (True, False):
        then = (document(GAP, LATER[0], LATER), says_missing)
        found = story_of_deliveries("callback", TIMES[0], [(first, False), then])
        assert bool(wrong(journal, answers, [found], gaps=1, may_lose=True)) is not says_missing


def test_the_first_difference_is_said():
    assert difference([ONE, THREE], JOURNAL).startswith(f"at 1: {[THREE]}")
