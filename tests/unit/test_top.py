"""`rsnotify top`: how fast sets change, in which order they stand; and a hub that is away."""

from typing import Any

import pytest

from rsnotify.cli.top import ChangeRates, Picture, Printed, rows_of, watch

AT = "2026-11-20T21:34:00.000000Z"


def set_of(name: str, changes: int | None = 0, newest: str | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "changes": changes,
        "changes_today": changes,
        "newest": newest,
        "resources": 3,
        "bytes": 900,
        "max_bytes": None,
        "channels": [{"readers": {"websocket": 2}, "behind": 1, "behind_seconds": 7.0}],
    }


def status_of(*sets: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": "1", "base_url": "http://hub.example", "ready": True, "now": AT,
        "store": {"text": "Redis answers in 0.4 ms"}, "following": {"text": "journals seen"},
        "rates": {"changes_per_second": 1.0}, "sets": [*sets], "sets_total": len(sets),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("looks", "a_minute"),
    [
        ([(0, 5)], {}),
        ([(0, 5), (2, 6)], {"a": 30.0}),
        ([(0, 5), (30, 5), (60, 65)], {"a": 60.0}),
        ([(0, 0), (1, 600), (61.5, 600)], {}),  # only this look is left of the last minute
        ([(0, 0), (2, 600), (61.5, 600)], {"a": 0.0}),
        ([(0, 9), (2, 6)], {}),  # old ones have left
        ([(0, None), (2, 6)], {}),  # Redis was away
    ],
)
def test_changes_a_minute_are_those_of_the_last_minute(looks, a_minute):
    now = [0.0]
    rates = ChangeRates(clock=lambda: now[0])
    for now[0], changes in looks:
        rates.note([set_of("a", changes)])
    assert rates.a_minute() == a_minute


def test_the_set_that_changed_last_stands_first_and_those_without_changes_last():
    newest = {"a": None, "b": AT, "c": "2026-11-20T21:33:00.000000Z", "d": AT, "e": None}
    status = status_of(*(set_of(name, 4, at) for name, at in newest.items()))
    rows = rows_of(status, {"b": 2.0})
    assert [row["set"] for row in rows] == ["b", "d", "c", "a", "e"]
    assert rows[2]["changed"] == "1 min ago"
    assert (rows[0]["a_minute"], rows[1]["a_minute"], rows[0]["today"]) == (2.0, None, 4)
    assert (rows[0]["behind"], rows[0]["readers"], rows[0]["memory"]) == ("1 (7 s)", 2, "900 B")


class Noted(Printed):
    """What is shown, until so many looks were."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.shown: list[tuple[str, list[str]]] = []

    def show(self, picture: Picture) -> None:
        self.shown.append((picture.above[0], [row["set"] for row in picture.rows]))

    def has_enough(self, seconds: float) -> bool:
        assert seconds == 2
        return len(self.shown) == self.most


def test_a_hub_that_is_away_is_said_with_what_was_seen_last_and_asked_again():
    ready = "rsnotify 1 at http://hub.example is ready"
    looks = iter(["nobody answers", status_of(set_of("a")), "it is gone", status_of(set_of("b"))])
    shown = Noted(4)
    watch(lambda: next(looks), shown, 2)
    assert shown.shown == [
        ("no answer: nobody answers; trying again", []),
        (ready, ["a"]),
        ("no answer: it is gone; trying again", ["a"]),
        (ready, ["b"]),
    ]
