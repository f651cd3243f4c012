"""What is told of a hub: counting, processes that come and go, trouble and its end."""

import logging
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest

from rsnotify.errors import TooFewReplicas, TryAgain
from rsnotify.journal.appends import Histogram
from rsnotify.live.feed import Feed
from rsnotify.operation.health import Health, Writable
from rsnotify.operation.reports import GONE_SECONDS, Identity, Peers, Report
from rsnotify.operation.warnings import Warnings, why_unconfirmed
from rsnotify.outbound.answer import CallAnswer
from rsnotify.redis_client import connect
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, Notification


@pytest.mark.parametrize(("number", "at"), [(0, 0), (1, 0), (1.1, 1), (5, 1), (5.1, 2)])
def test_a_number_falls_into_the_first_bound_that_is_not_below_it(number, at):
    histogram = Histogram([1, 5])
    histogram.add(number)
    assert histogram.counts[at] == 1
    assert (sum(histogram.counts), histogram.total) == (1, number)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (CallAnswer(204), "delivered"),
        (CallAnswer(302), "refused"),
        (CallAnswer(500), "refused"),
        (CallAnswer(410), "gone"),
        (CallAnswer(0), "unanswered"),
        (CallAnswer(0, reached=False), "unreachable"),
        (CallAnswer(0, reached=False, refused=True), "forbidden"),
    ],
)
def test_a_delivery_has_one_outcome(answer, outcome):
    assert answer.outcome == outcome


def test_a_change_is_owed_since_it_came_if_that_is_known():
    feed = Feed(ChannelName("dataset1", "change"), "", Position(100))
    feed.push(Notification(Position(100), Position(200), 1, b"x", slice(0, 1)))
    assert feed.owed_since(Position(200)) is None
    assert feed.owed_since(Position(100)) == 200
    assert feed.owed_since(Position(50)) == 50


# --- processes ------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class ThisProcess:
    """A process that has accepted so many changes."""

    identity = Identity("here:1", 1, 0.0)

    def report(self) -> Report:
        return report(self.identity, 0)


def report(identity: Identity, changes: float) -> Report:
    return Report(identity, {"changes": [(("change",), changes)]}, {})


def peers() -> tuple[Peers, Clock]:
    clock = Clock()
    nothing: Any = None
    return Peers(ThisProcess(), nothing, nothing, clock), clock


OTHER = Identity("here:1", 2, 10.0)


def test_a_process_that_is_silent_is_gone():
    known, clock = peers()
    known.hear(report(OTHER, 1))
    clock.now = GONE_SECONDS - 0.1
    assert [each.identity for each in known.now()] == [ThisProcess.identity, OTHER]
    clock.now = GONE_SECONDS
    assert [each.identity for each in known.now()] == [ThisProcess.identity]


def test_the_workers_of_a_hub_are_those_on_its_port():
    known, _ = peers()
    elsewhere = Identity("there:1", 1, 0.0)
    for identity in (OTHER, elsewhere):
        known.hear(report(identity, 1))
    assert [each.identity for each in known.of_this_hub()] == [ThisProcess.identity, OTHER]
    assert len(known.now()) == 3


def test_a_rate_is_the_growth_of_all_processes_in_a_second():
    known, clock = peers()
    for at, changes in ((0, 100), (2, 110), (4, 140)):
        clock.now = at
        known.hear(report(OTHER, changes))
        known.hear(report(Identity("there:1", 1, 0.0), 2 * changes))
    assert known.rate("changes") == 10 + 20


class Rows(list[tuple[tuple[str, ...], float]]):
    """Rows whose end can be seen."""


def test_of_older_reports_only_totals_are_kept_and_answers_that_are_being_made_keep_the_rows():
    def told() -> Report:
        rows = Rows(((name, "change", "frame"), 1.0) for name in ("one", "two"))
        return Report(OTHER, {"readers": rows}, {})

    known, clock = peers()
    known.hear(told())
    clock.now = 2
    being_made = known.now()[1]
    rows = ref(being_made.numbers["readers"])
    known.hear(told())
    assert being_made == known.now()[1] == told()
    assert known.rate("readers") == 0
    del being_made
    assert rows() is None


def test_a_restarted_process_begins_at_zero_and_the_one_it_replaced_counts_no_more():
    known, clock = peers()
    known.hear(report(OTHER, 1_000))
    clock.now = 1
    again = Identity(OTHER.hub, OTHER.worker, OTHER.started + 1)
    known.hear(report(again, 5))
    known.hear(report(OTHER, 2_000))
    assert [each.total("changes") for each in known.now()] == [0, 5]
    assert known.rate("changes") == 0


# --- trouble --------------------------------------------------------------------------------------


TROUBLE = ((0, ""), (2, "no Redis"), (4, "no Redis"), (6, "full"), (34, ""), (36, ""))


def health_of(hub: object, clock: Clock) -> Health:
    nothing: Any = None
    known: Any = hub
    return Health(known, nothing, nothing, nothing, clock=clock)


def test_sets_of_a_part_that_is_away_are_logged_once_ten_of_them_by_name(caplog):
    health = health_of(None, Clock())
    ten = [f"s{number}" for number in range(10)]
    with caplog.at_level(logging.INFO):
        for away in ({}, {"down": ten}, {"down": ten}, {"full": [*ten, "t"]}, {}, {}):
            health.note_away(away)
    names = ", ".join(ten)
    assert [record.getMessage() for record in caplog.records] == [
        f"publishing to 10 sets ({names}) is refused: down",
        f"publishing to 11 sets ({names}, …) is refused: full",
        "all sets can be published to again",
    ]


@pytest.mark.parametrize(
    ("needed", "reason"), [(0, "not writable: "), (2**42, "MiB are left on the disk")]
)
async def test_a_full_disk_is_told_as_the_cause_when_redis_has_ended_of_it(
    needed, reason, tmp_path
):
    anything: Any = SimpleNamespace(is_draining=False)
    async with connect(f"unix://{tmp_path}/nobody-answers-here") as client:
        health = Health(
            anything, anything, Writable(client), anything, disk=tmp_path, free_mib=needed
        )
        with pytest.raises(TryAgain, match=reason):
            await health.ready(anything)


def test_a_warning_is_logged_as_it_begins_and_ends_and_anew_after_something_worse(caplog):
    warnings = Warnings()
    for text in ("low", "lower", "", "low"):
        warnings.note("memory", text)
        assert warnings.now() == [text] * bool(text)
    warnings.forget()
    warnings.note("memory", "low")
    warnings.note("clock", "")
    assert [record.getMessage() for record in caplog.records] == [
        "low",
        "Redis has room again",
        "low",
        "low",
    ]


async def test_masters_whose_replicas_do_not_confirm_are_counted_where_others_do():
    away = TooFewReplicas(TryAgain("0 of 1 replicas"))

    async def once(_: object) -> list[object]:
        return [None, away, TryAgain("of this one it is not known"), away]

    client: Any = SimpleNamespace(confirms=True, once=once)
    said = await why_unconfirmed(client, ["a", "b", "c", "d"], 60)
    assert said == "publishing to the sets of 2 nodes is answered 503: 0 of 1 replicas"


def test_a_trouble_is_logged_once_with_what_it_affects_and_so_is_its_end(caplog):
    clock = Clock()
    health = health_of(None, clock)
    with caplog.at_level(logging.INFO):
        for clock.now, trouble in TROUBLE:
            health.note(trouble)
    assert [record.getMessage() for record in caplog.records] == [
        "no Redis; publishing is refused, readers stay connected and wait",
        "full; publishing is refused, readers stay connected and wait",
        "publishing works again after 32 s",
    ]
