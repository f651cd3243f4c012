"""Judges what the peers of a storm were told, by the journal and by what was acknowledged.

A row is the position of a change, and its resource; each resource is published once, those of a
publisher with keys under a key of their own. If Redis may have lost changes, those that came back
may be told at another position too: then the last row of each counts. What was published with a key
is in the journal and the lists once in any case, and once among the rows of a story that the
journal still has.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from tests.soak.peers import INTERVAL, Publisher, Row, rows_of


def check(
    journal: Sequence[Row],
    publishers: Sequence[Publisher],
    histories: Sequence[Sequence[Row]],
    callbacks: Sequence[Sequence[bytes]],
    *,
    was_lossy: bool = False,
) -> None:
    """What was acknowledged is there, nothing is twice, and everybody has got all in order."""
    stories = [*histories, *([row for each in told for row in rows_of(each)] for told in callbacks)]
    for publisher in publishers:
        if publisher.is_keyed or not was_lossy:
            check_stored_once(journal, publisher)
            check_told_once(stories, journal, publisher)
    for publisher in publishers:
        check_publisher(journal, publisher, was_lossy=was_lossy)
    expected = newest_rows(journal) if was_lossy else list(journal)
    for history in histories:
        assert is_rising(history), f"it goes back: {history}"
        found = newest_rows(history) if was_lossy else list(history)
        assert found == expected, difference(found, expected)
    for deliveries in callbacks:
        check_callback(deliveries, expected, was_lossy=was_lossy)


def check_stored_once(rows: Sequence[Row], publisher: Publisher) -> None:
    """Each of its keys is there once."""
    stored = Counter(loc for _, loc in rows if loc.startswith(publisher.prefix))
    assert [row for row in rows if stored[row[1]] > 1] == [], "stored twice"


def check_told_once(
    stories: Sequence[Sequence[Row]], journal: Sequence[Row], publisher: Publisher
) -> None:
    """Each of its keys is told once, but for what was lost; a delivery may be repeated."""
    there = set(journal)
    for story in stories:
        check_stored_once([row for row in dict.fromkeys(story) if row in there], publisher)


def check_publisher(journal: Sequence[Row], publisher: Publisher, *, was_lossy: bool) -> None:
    """All that it was acknowledged is there; in the same order, if nothing was put back."""
    stored = [loc for _, loc in journal if loc.startswith(publisher.prefix)]
    kept = set(stored)
    assert [loc for loc in publisher.acknowledged if loc not in kept] == []
    acknowledged = set(publisher.acknowledged)
    assert was_lossy or [loc for loc in stored if loc in acknowledged] == publisher.acknowledged


def check_callback(
    deliveries: Sequence[bytes], expected: Sequence[Row], *, was_lossy: bool = False
) -> None:
    """Some of it may be told twice; nothing is left out, and the intervals say so."""
    told = [row for each in deliveries for row in rows_of(each)]
    found = newest_rows(told) if was_lossy else list(dict.fromkeys(told))
    reached = _interval(deliveries[0])[0]
    gaps = []
    for each in deliveries:
        begins, ends = _interval(each)
        gaps += [(reached, begins)] if begins > reached else []
        reached = max(reached, ends)
    assert found == expected, f"{difference(found, expected)}; {gaps=}"
    assert gaps == []


def newest_rows(rows: Sequence[Row]) -> list[Row]:
    """The newest row of each resource, by position."""
    return sorted((at, loc) for loc, at in {loc: at for at, loc in sorted(rows)}.items())


def is_rising(rows: Sequence[Row]) -> bool:
    positions = [at for at, _ in rows]
    return all(one < other for one, other in pairwise(positions))


def difference(found: Sequence[Row], expected: Sequence[Row]) -> str:
    """The first place where they differ, what is missing, what is too much."""
    pairs = enumerate(zip(found, expected, strict=False))
    places = (number for number, (one, other) in pairs if one != other)
    at = next(places, min(len(found), len(expected)))
    missing, more = sorted({*expected} - {*found}), sorted({*found} - {*expected})
    return f"at {at}: {found[at : at + 3]}, not {expected[at : at + 3]}; {missing=}, {more=}"


def tracebacks(log: str) -> list[str]:
    """Where a log tells of something that nobody has foreseen, with the line before it."""
    return re.findall(r"[^\n]*\nTraceback.*?(?=\n\d{4}-|\Z)", log, re.DOTALL)


def _interval(document: bytes) -> tuple[str, str]:
    begins, ends = INTERVAL.search(document).groups()
    return begins.decode(), ends.decode()


def _loc(row: Row) -> str:
    return row[1]
