"""`GET /metrics`: the numbers of all workers of this hub, for Prometheus.

Any worker answers for all. Without the token of `RSNOTIFY_METRICS_TOKEN` private sets are left out;
if there is such a token, nothing is told without it.
"""

import hmac
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import (
    Metric as Family,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString
from starlette.requests import Request
from starlette.responses import Response

from rsnotify.access import Access
from rsnotify.errors import TryAgain
from rsnotify.hub import Hub
from rsnotify.resourcesync.change import MICROSECONDS
from rsnotify.storage.overview import Overview, SetNumbers
from rsnotify.watching.metric_table import METRICS, OF_A_PROCESS, OF_A_SET
from rsnotify.watching.peers import Peers
from rsnotify.watching.report import HistogramNumbers, Numbers, Report

NUMBER = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


class Metrics:
    """What Prometheus reads."""

    def __init__(
        self, hub: Hub, access: Access, peers: Peers, overview: Overview, *, token: str | None
    ) -> None:
        self._hub = hub
        self._access = access
        self._peers = peers
        self._overview = overview
        self._token = token

    async def get(self, request: Request) -> Response:
        everything = await self._may_see_all(request)

        def is_told(name: str) -> bool:
            """At this moment: sets change while Redis is asked."""
            return everything or self._is_public(name)

        sets = await self._sets(list(filter(is_told, self._hub.sets)))
        collected = CollectorRegistry()
        collected.register(_Numbers(self._peers.of_this_hub(), sets, is_told))
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(collected), headers={"content-type": media_type})

    def _is_public(self, name: str) -> bool:
        """Whether it is known as public; another process may know a set that is not known here."""
        record = self._hub.sets.get(name)
        return record is not None and not record.private

    async def _may_see_all(self, request: Request) -> bool:
        scheme, _, sent = request.headers.get("authorization", "").partition(" ")
        token = self._token
        is_right = token and hmac.compare_digest(sent.strip().encode(), token.encode())
        if is_right and scheme.lower() == "bearer":
            return True
        if token:
            await self._access.require_admin(request)
        await self._access.require_known(request)
        return self._access.is_admin(request)

    async def _sets(self, names: Sequence[str]) -> dict[str, SetNumbers]:
        try:
            return await self._overview.of(names)
        except TryAgain:
            return {}


class _Numbers(Collector):
    """What was read, as the library wants it."""

    def __init__(
        self,
        reports: Sequence[Report],
        sets: dict[str, SetNumbers],
        is_told: Callable[[str], bool],
    ) -> None:
        self._reports = reports
        self._of_sets = _of_sets({name: sets[name] for name in filter(is_told, sets)})
        self._is_told = is_told

    def collect(self) -> Iterator[Family]:
        for name in OF_A_PROCESS:
            yield _family(name, self._samples(name), ("worker",))
        for name in OF_A_SET:
            yield _family(name, self._of_sets[name])

    def _samples(self, name: str) -> Iterator[tuple[tuple[str, ...], float | HistogramNumbers]]:
        labels = OF_A_PROCESS[name].labels
        for report in self._reports:
            worker = (str(report.identity.worker),)
            if name in report.histograms:
                yield worker, report.histograms[name]
            for values, number in report.numbers.get(name, ()):
                if labels[:1] != ("set",) or self._is_told(values[0]):
                    yield (*values, *worker), number


def _family(
    name: str,
    samples: Iterable[tuple[tuple[str, ...], float | HistogramNumbers]],
    more_labels: tuple[str, ...] = (),
) -> Family:
    kind, about, labels = METRICS[name]
    if kind == "histogram":
        histogram = HistogramMetricFamily(name, about, labels=(*labels, *more_labels))
        for values, numbers in samples:
            assert isinstance(numbers, HistogramNumbers)  # noqa: S101
            histogram.add_metric(values, _buckets(numbers), numbers.total)
        return histogram
    family: Any = NUMBER[kind](name, about, labels=(*labels, *more_labels))
    for values, number in samples:
        assert not isinstance(number, HistogramNumbers)  # noqa: S101
        family.add_metric(values, number)
    return cast(Family, family)


def _buckets(numbers: HistogramNumbers) -> list[tuple[str, float]]:
    """Each with all that is in those before it, as the format wants them."""
    bounds = [*map(floatToGoString, numbers.bounds), "+Inf"]
    counts = numbers.counts
    return [(bound, sum(counts[: at + 1])) for at, bound in enumerate(bounds)]


def _of_sets(sets: dict[str, SetNumbers]) -> Numbers:
    found: Numbers = {name: [] for name in OF_A_SET}
    for name, numbers in sets.items():
        for metric, number in _of_set(numbers).items():
            if number is not None:
                found[metric].append(((name,), number))
    return found


def _of_set(numbers: SetNumbers) -> dict[str, float | None]:
    completed = numbers.snapshot
    return {
        "rsnotify_journal_changes": numbers.changes,
        "rsnotify_journal_oldest_timestamp_seconds": numbers.first / MICROSECONDS,
        "rsnotify_journal_newest_timestamp_seconds": numbers.head / MICROSECONDS,
        "rsnotify_change_lists": numbers.change_lists,
        "rsnotify_snapshot_resources": numbers.resources,
        "rsnotify_snapshot_timestamp_seconds": None
        if completed is None
        else completed / MICROSECONDS,
    }
