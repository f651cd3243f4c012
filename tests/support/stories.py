"""What was acknowledged, what is listed and what each reader was told around a loss; and the judge.

A row is the position of a change, and its resource; each resource is published once, or again with
its key. What was acknowledged is listed where its answer said, or it is lost: then everybody who
had begun before it was told so, once for each gap, and began anew behind it. What is listed was
told once to everybody who had begun before it. If nothing may be lost, there is no gap.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import monotonic
from typing import NamedTuple

INTERVAL = re.compile(rb' from="([^"]+)" until="([^"]+)"')
ENTRY = re.compile(
    rb'<loc>([^<]*)</loc>(?:<lastmod>[^<]*</lastmod>)?<rs:md [^>]*datetime="([^"]+)"'
)

Row = tuple[str, str]  # the position of a change, and its resource
Ends = tuple[str, str]  # from and until of an interval
Answers = Mapping[str, Sequence[Ends]]  # by resource: the interval of each answer that it got


def rows_of(document: bytes) -> list[Row]:
    return [(at.decode(), loc.decode()) for loc, at in ENTRY.findall(document)]


def ends_of(document: bytes) -> Ends:
    begins, ends = INTERVAL.search(document).groups()
    return begins.decode(), ends.decode()


class Told(NamedTuple):
    """A reader was told that what followed its position is deleted or lost."""

    at: str  # its position
    when: float  # by the monotonic clock


@dataclass(eq=False)
class Story:
    """What one reader was told since it began; after a loss it begins anew."""

    name: str
    began: str | None = None
    cursor: str = ""
    rows: list[Row] = field(default_factory=list)
    before: list[Row] = field(default_factory=list)  # what it had, before it was told of a loss
    told: list[Told] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    roams: bool = False  # it may begin anew at a hub that has not seen the loss yet, and hear so

    def begin(self, at: str) -> None:
        """It is connected here. A hub that does not know yet what is lost says where it ends."""
        if self.began is None:
            self.began = self.cursor = at
        if at > self.cursor:
            self.faults.append(f"sent from {self.cursor} on to {at}")
        self.before += [row for row in self.rows if row[0] > at]
        self.rows = [row for row in self.rows if row[0] <= at]
        self.cursor = at

    def take(self, document: bytes) -> None:
        """A notification, which joins the one before."""
        begins, ends = ends_of(document)
        if begins != self.cursor:
            self.faults.append(f"after {self.cursor} came what begins at {begins}")
        self.rows += rows_of(document)
        self.cursor = ends

    def is_told(self) -> None:
        self.told.append(Told(self.cursor, monotonic()))
        self.before += self.rows
        self.rows, self.began = [], None

    def has(self, loc: str) -> bool:
        return any(each == loc for _, each in self.rows)


def story_of_deliveries(name: str, began: str, deliveries: Iterable[tuple[bytes, bool]]) -> Story:
    """What a callback was sent, which may come again; where it says that changes are missing, the
    callback begins anew."""
    story = Story(name, began, began)
    for document, says_missing in deliveries:
        begins, ends = ends_of(document)
        if begins > story.cursor and says_missing:
            story.is_told()
            story.begin(begins)
        if begins > story.cursor:
            story.faults.append(f"after {story.cursor} came what begins at {begins}")
        story.rows += [row for row in rows_of(document) if row[0] > story.cursor]
        story.cursor = max(story.cursor, ends)
    return story


def lost(journal: Sequence[Row], answers: Answers) -> list[tuple[str, Ends]]:
    """What was acknowledged, and is not where its answer said."""
    at = {loc: position for position, loc in journal}
    return [
        (loc, (begins, ends))
        for loc, intervals in answers.items()
        for begins, ends in dict.fromkeys(intervals)
        if not begins < at.get(loc, "") <= ends
    ]


def wrong(
    journal: Sequence[Row],
    answers: Answers,
    stories: Sequence[Story],
    *,
    gaps: int = 0,
    may_lose: bool = False,
) -> list[str]:
    """What may not be. The journal is what all Change Lists hold; `gaps`, how many it has."""
    missing = lost(journal, answers)
    found = [*_wrong_journal(journal)]
    if not may_lose:
        found += [f"{loc} is not in {ends}" for loc, ends in missing]
        found += [f"there are {gaps} gaps"] if gaps else []
    for story in stories:
        found += [f"{story.name}: {fault}" for fault in _wrong_story(story, journal)]
        found += [
            f"{story.name}, which began at {story.began}, was not told that {loc} is lost, {ends}"
            for loc, ends in missing
            if story.began is not None and story.began <= ends[0]
        ]
        if len(story.told) > gaps and not (story.roams and gaps):
            found.append(f"{story.name} was told of {len(story.told)} losses, of {gaps}")
    return found


def _wrong_journal(journal: Sequence[Row]) -> list[str]:
    counts = Counter(loc for _, loc in journal)
    found = [f"{loc} is listed {count} times" for loc, count in counts.items() if count > 1]
    return found if is_rising(journal) else [*found, "positions are out of order"]


def _wrong_story(story: Story, journal: Sequence[Row]) -> list[str]:
    found = [*story.faults]
    heard = Counter(story.rows if story.roams else (*story.before, *story.rows))
    found += [f"was told {row} {count} times" for row, count in heard.items() if count > 1]
    began = story.began
    expected = [row for row in journal if began is not None and row[0] > began]
    if story.rows != expected:
        found.append(difference(story.rows, expected))
    return found


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
