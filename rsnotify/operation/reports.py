"""What each hub process knows of itself, and what the others on this Redis report of themselves.

No report is stored: who has not been heard for a while is taken to be gone. Without Redis a process
knows only itself.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from time import monotonic, time
from typing import Any, NamedTuple

import msgspec

from rsnotify import __version__
from rsnotify.channels.channels import Channels
from rsnotify.coordination import keys
from rsnotify.coordination.bell import Bell
from rsnotify.errors import TryAgain
from rsnotify.journal.appends import Histogram
from rsnotify.journal.journal_store import JournalStore
from rsnotify.live.feed import Feed
from rsnotify.live.journals import Journals
from rsnotify.operation.health import Health
from rsnotify.operation.machine import Machine
from rsnotify.publishing.intake import Intake
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.views.view_answers import ViewAnswers
from rsnotify.websub.ownership import Ownership
from rsnotify.websub.survey import Survey

log = logging.getLogger(__name__)


# --- this process --------------------------------------------------------------------------------

TICK_SECONDS = 0.25
REMEMBERED = 40  # ticks: ten seconds
REPORT_SECONDS = 2.0
GONE_SECONDS = 3 * REPORT_SECONDS
RATE_REPORTS = 6  # rates are measured over ten seconds


class EventLoopDelay:
    """Measures it four times a second."""

    def __init__(self) -> None:
        self._delays = deque([0.0], maxlen=REMEMBERED)

    def longest(self) -> float:
        """Of the last ten seconds."""
        return max(self._delays)

    async def run(self) -> None:
        """Measure for as long as the hub runs."""
        while True:
            due = monotonic() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            self._delays.append(max(0.0, monotonic() - due))


Numbers = dict[str, list[tuple[tuple[str, ...], float]]]
"""By the name of the metric: the values of its labels, and the number."""


class Identity(msgspec.Struct, frozen=True):
    """Which process it is."""

    hub: str  # the machine and the port, which all workers of a hub share
    worker: int
    started: float  # Unix time

    @property
    def name(self) -> str:
        return f"{self.hub}/{self.worker}"


class HistogramNumbers(msgspec.Struct, array_like=True):
    """A histogram, as it is shown."""

    bounds: tuple[float, ...]
    counts: list[int]
    total: float


class Report(msgspec.Struct):
    """The state of a process, and its counts since its start."""

    identity: Identity
    numbers: Numbers
    histograms: dict[str, HistogramNumbers]
    not_ready: str = ""  # the reason, if it is not
    warnings: list[str] = []  # what is wrong although it is ready

    def total(self, name: str) -> float:
        return sum(number for _, number in self.numbers.get(name, ()))


Samples = list[tuple[tuple[str, ...], float]]


class Watched(NamedTuple):
    """The rooms that count."""

    journals: Journals
    journal: JournalStore
    intake: Intake
    channels: Channels
    ownership: Ownership
    view_answers: ViewAnswers


class ThisProcess:
    """Reads the numbers of every room."""

    def __init__(
        self,
        identity: Identity,
        watched: Watched,
        delay: EventLoopDelay,
        health: Health,
        machine: Machine,
    ) -> None:
        self.identity = identity
        self._survey = Survey()
        self._journals, self._journal, self._intake, self._channels = watched[:4]
        self._ownership, self._view_answers = watched[4:]
        self._delay = delay
        self._health = health
        self._machine = machine

    def report(self) -> Report:
        """The numbers at this moment."""
        numbers = self._own() | self._publishing() | self._sending() | self._websub()
        histograms = {
            "rsnotify_append_seconds": _numbers(self._journal.appends.seconds),
            "rsnotify_append_round_changes": _numbers(self._journal.appends.round_changes),
        }
        not_ready, warnings = self._health.not_ready(), self._health.warnings()
        return Report(self.identity, numbers, histograms, not_ready, warnings)

    async def survey(self) -> None:
        """Look at every WebSub subscriber of this process: there may be very many."""
        self._survey = await self._ownership.survey()

    def _own(self) -> Numbers:
        return {
            "rsnotify_build_info": [((__version__,), 1)],
            "rsnotify_cpu_seconds": _one(self._machine.cpu_seconds()),
            "rsnotify_open_files_limit": _one(self._machine.open_files_limit()),
            **self._of_linux(),
            **{name: _one(number) for name, number in self._health.numbers().items()},
            "rsnotify_start_time_seconds": _one(self.identity.started),
            "rsnotify_ready": _one(not self._health.not_ready()),
            "rsnotify_follow_age_seconds": _one(self._journals.checking.age),
            "rsnotify_redis_round_trip_seconds": _one(self._health.write_seconds),
            "rsnotify_event_loop_delay_seconds": _one(self._delay.longest()),
            "rsnotify_cache_bytes": _one(self._journals.cache.size),
            "rsnotify_gaps": _one(self._journal.appends.gaps.count),
            "rsnotify_last_gap_timestamp_seconds": [
                (tuple(channel), at / MICROSECONDS)
                for channel, at in self._journal.appends.gaps.newest.items()
            ],
        }

    def _of_linux(self) -> Numbers:
        """What other systems do not say."""
        found = {
            "rsnotify_resident_memory_bytes": self._machine.resident_bytes(),
            "rsnotify_open_files": self._machine.open_files(),
        }
        return {name: _one(number) for name, number in found.items() if number}

    def _publishing(self) -> Numbers:
        return {
            "rsnotify_changes_accepted": _by(self._journal.appends.accepted),
            "rsnotify_publishes_refused": _by(self._intake.refused.by_status),
            "rsnotify_append_waiting_bytes": _one(self._journal.appends.waiting_bytes),
            "rsnotify_catch_ups": _by(self._journals.reading.catch_ups),
            "rsnotify_view_answers": _by(self._view_answers),
        }

    def _sending(self) -> Numbers:
        behind = {tuple(feed.channel): (feed, at) for feed, at in self._channels.behind().items()}
        seconds = [(name, _longest_wait(feed, at)) for name, (feed, at) in behind.items()]
        sent, received = self._channels.sent, self._channels.reader_input.received
        return {
            "rsnotify_readers": [*self._channels.limits.audiences.items()],
            "rsnotify_readers_behind": [(name, len(at)) for name, (_, at) in behind.items()],
            "rsnotify_readers_behind_seconds": seconds,
            "rsnotify_notifications_sent": _by(sent.notifications),
            "rsnotify_sent_bytes": _by(sent.bytes),
            "rsnotify_received_bytes": _by(received.bytes),
            "rsnotify_received_frames": _one(received.frames),
            "rsnotify_floods": _by(received.floods),
        }

    def _websub(self) -> Numbers:
        survey, deliverer = self._survey, self._ownership.deliverer
        return {
            "rsnotify_websub_subscribers": _by(survey.places),
            "rsnotify_websub_oldest_undelivered_seconds": _one(_age(survey.owed_since)),
            "rsnotify_websub_deliveries": _by(deliverer.outcomes),
            "rsnotify_websub_sent_bytes": _one(deliverer.sent_bytes),
            "rsnotify_websub_calls": _one(self._ownership.calls),
        }


def _longest_wait(feed: Feed, behind: Iterable[Position]) -> float:
    """Of these readers, the one that has waited for longest for a change."""
    owed = map(feed.owed_since, behind)
    return max((_age(since) for since in owed), default=0.0)


def _age(since: Position | None) -> float:
    return 0.0 if since is None else max(0.0, time() - since / MICROSECONDS)


def _one(number: float) -> Samples:
    return [((), float(number))]


def _by(numbers: Mapping[Any, float]) -> Samples:
    return [((str(label),), number) for label, number in numbers.items()]


def _numbers(histogram: Histogram) -> HistogramNumbers:
    return HistogramNumbers(histogram.bounds, list(histogram.counts), histogram.total)


# --- its peers -----------------------------------------------------------------------------------


_DECODE = msgspec.json.Decoder(Report).decode


class _Heard(NamedTuple):
    at: float
    report: Report


class Peers:
    """Every process that was heard lately, this one included; `bell` is `keys.REPORTS_BELL`."""

    def __init__(
        self,
        this: ThisProcess,
        client: Client,
        bell: Bell,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._this = this
        self._client = client
        self._bell = bell
        self._clock = clock
        self._heard: dict[str, deque[_Heard]] = {}
        self._published = b""  # by this process, last

    def now(self) -> list[Report]:
        """The newest report of each, this process first, as it is now."""
        return [self._this.report(), *(heard[-1].report for heard in self._others().values())]

    def of_this_hub(self) -> list[Report]:
        """The reports of the workers that share the port."""
        hub = self._this.identity.hub
        return [report for report in self.now() if report.identity.hub == hub]

    def rate(self, *names: str) -> float:
        """By how much these numbers of all processes grow in a second."""
        return sum(_rate(heard, names) for heard in self._living().values())

    def _others(self) -> dict[str, deque[_Heard]]:
        own = self._this.identity.name
        return {name: heard for name, heard in self._living().items() if name != own}

    def _living(self) -> dict[str, deque[_Heard]]:
        since = self._clock() - GONE_SECONDS
        self._heard = {name: each for name, each in self._heard.items() if each[-1].at > since}
        return self._heard

    def hear(self, report: Report) -> None:
        heard = self._heard.setdefault(report.identity.name, deque(maxlen=RATE_REPORTS))
        known = heard[-1].report.identity if heard else report.identity
        if known.started > report.identity.started:
            return  # it was replaced, and still serves those that it has
        if known != report.identity:
            heard.clear()  # its counts begin at zero
        if heard:
            heard.append(_totals_of(heard.pop()))
        heard.append(_Heard(self._clock(), report))

    async def run(self) -> None:
        """Report this process to the others, for as long as the hub runs."""
        while True:
            try:
                await self._publish()
            except TryAgain as error:  # `Health` says so
                log.debug("the other processes cannot be notified: %s", error.detail)
            except Exception as error:  # a bug: nobody is worse off than without numbers
                log.warning("the numbers of this process cannot be sent", exc_info=error)
            await asyncio.sleep(REPORT_SECONDS)

    async def _publish(self) -> None:
        await self._this.survey()
        report = self._this.report()
        self.hear(report)
        self._published = msgspec.json.encode(report)
        await self._client.publish(keys.REPORTS_BELL, self._published)  # nothing is stored

    async def listen(self) -> None:
        """Hear the others, for as long as the hub runs."""
        await self._bell.listen(self._hear_message)

    def _hear_message(self, message: str) -> None:
        text = message.encode()
        if text == self._published:
            return
        try:
            report = _DECODE(text)
        except msgspec.DecodeError as error:  # of another version
            log.debug("a report of another process cannot be read: %s", error)
            return
        if report.identity.name != self._this.identity.name:
            self.hear(report)


def _totals_of(heard: _Heard) -> _Heard:
    """Rates need no more of an older report, and there may be a row for each of many channels.

    Who was given the whole report keeps it: an answer may be made of it at this moment.
    """
    report = heard.report
    totals = {name: [((), report.total(name))] for name in report.numbers}
    return _Heard(heard.at, msgspec.structs.replace(report, numbers=totals))


def _rate(heard: deque[_Heard], names: tuple[str, ...]) -> float:
    first, last = heard[0], heard[-1]
    if last.at <= first.at:
        return 0.0
    grown = sum(last.report.total(name) - first.report.total(name) for name in names)
    return grown / (last.at - first.at)
