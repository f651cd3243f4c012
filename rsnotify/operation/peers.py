"""The hub processes on this Redis, as they tell of themselves.

Nothing is stored: who has not been heard for a while is taken to be gone. Without Redis a process
knows only itself.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

import msgspec

from rsnotify.errors import TryAgain
from rsnotify.journal import keys
from rsnotify.journal.bell import Bell
from rsnotify.operation.process import Report, ThisProcess
from rsnotify.redis_client import Client


class Reports:
    """Sends the reports of this process; a `Bell` of the same name hears those of all."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def send(self, report: bytes) -> None:
        """Tell every process. Nothing is stored."""
        await self._client.publish(keys.REPORTS_BELL, report)


log = logging.getLogger(__name__)

REPORT_SECONDS = 2.0
GONE_SECONDS = 3 * REPORT_SECONDS
RATE_REPORTS = 6  # rates are measured over ten seconds

_DECODE = msgspec.json.Decoder(Report).decode


class _Heard(NamedTuple):
    at: float
    report: Report


class Peers:
    """Every process that was heard lately, this one included."""

    def __init__(
        self,
        this: ThisProcess,
        reports: Reports,
        bell: Bell,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._this = this
        self._reports = reports
        self._bell = bell
        self._clock = clock
        self._heard: dict[str, deque[_Heard]] = {}
        self._told = b""  # by this process, last

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
        """Tell the others of this process, for as long as the hub runs."""
        while True:
            try:
                await self._tell()
            except TryAgain as error:  # `Health` says so
                log.debug("the other processes cannot be notified: %s", error.detail)
            except Exception as error:  # a bug: nobody is worse off than without numbers
                log.warning("the numbers of this process cannot be sent", exc_info=error)
            await asyncio.sleep(REPORT_SECONDS)

    async def _tell(self) -> None:
        await self._this.survey()
        report = self._this.report()
        self.hear(report)
        self._told = msgspec.json.encode(report)
        await self._reports.send(self._told)

    async def listen(self) -> None:
        """Hear the others, for as long as the hub runs."""
        await self._bell.listen(self._hear_stroke)

    def _hear_stroke(self, stroke: str) -> None:
        told = stroke.encode()
        if told == self._told:
            return
        try:
            report = _DECODE(told)
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
