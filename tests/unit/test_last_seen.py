"""For how long something has not changed, by our own clock."""

import pytest

from rsnotify.coordination.last_seen import LastSeen


class Seen:
    """With a clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.last: LastSeen[str] = LastSeen(lambda: self.now)

    def note(self, seen: str, now: float) -> None:
        self.now = now
        self.last.note("one", seen)


@pytest.mark.parametrize(("now", "unchanged"), [(14.9, None), (15, "b")])
def test_what_has_looked_the_same_for_so_long_is_unchanged(now, unchanged):
    seen = Seen()
    seen.note("a", now=0)
    seen.note("b", now=5)
    seen.note("b", now=9)
    seen.now = now
    assert seen.last.unchanged("one", 10) == unchanged
    assert seen.last.all_unchanged(10) == ({} if unchanged is None else {"one": unchanged})
    assert [*seen.last.seconds_left(10)] == ([pytest.approx(0.1)] if unchanged is None else [])


def test_what_nobody_has_seen_or_was_forgotten_is_not_unchanged():
    seen = Seen()
    assert seen.last.unchanged("one", 0) is None
    seen.note("a", now=0)
    assert seen.last.unchanged("one", 0) == "a"
    seen.last.forget("one")
    assert seen.last.unchanged("one", 0) is None
