"""`GET /metrics`: the numbers of all workers of this hub, for Prometheus.

Any worker answers for all. Without the token of `RSNOTIFY_METRICS_TOKEN` private sets are left out;
if there is such a token, nothing is shown without it.
"""

import hmac
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from starlette.requests import Request
from starlette.responses import Response

from rsnotify.access.access import Access
from rsnotify.live.journals import Journals
from rsnotify.operation.reports import HistogramNumbers, Numbers, Peers, Report
from rsnotify.operation.status import Overview, SetNumbers
from rsnotify.resourcesync.change import MICROSECONDS
from rsnotify.single_flight import Costly, kept_seconds, let_others_go_on, slices

MetricKind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """One metric. A counter's name gets `_total` where it is shown."""

    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


CHANNEL = ("set", "kind")

OF_A_PROCESS: dict[str, Metric] = {
    "rsnotify_build_info": Metric("gauge", "1, with the version of the hub.", ("version",)),
    "rsnotify_cpu_seconds": Metric("counter", "Processor time, of user and system."),
    "rsnotify_resident_memory_bytes": Metric("gauge", "Memory of the process; on Linux."),
    "rsnotify_open_files": Metric("gauge", "Descriptors that the process has open; on Linux 6.2."),
    "rsnotify_open_files_limit": Metric(
        "gauge", "How many the process may have open; 0 if there is no limit."
    ),
    "rsnotify_redis_memory_bytes": Metric("gauge", "What Redis uses; not shown for a Cluster."),
    "rsnotify_redis_memory_limit_bytes": Metric(
        "gauge", "What Redis may use (`maxmemory`); 0 if it has no limit."
    ),
    "rsnotify_redis_machine_memory_bytes": Metric(
        "gauge", "Memory of the machine of Redis, as Redis says it; 0 if it does not."
    ),
    "rsnotify_disk_free_bytes": Metric("gauge", "Left on the disk of the embedded Redis."),
    "rsnotify_disk_bytes": Metric("gauge", "The size of the disk of the embedded Redis."),
    "rsnotify_last_backup_timestamp_seconds": Metric(
        "gauge", "When `rsnotify backup` last succeeded, in Unix time; 0: never. Embedded Redis."
    ),
    "rsnotify_start_time_seconds": Metric(
        "gauge", "When the process was started, in Unix time: it changes with every restart."
    ),
    "rsnotify_ready": Metric("gauge", "1 if the process can be sent requests, else 0."),
    "rsnotify_warnings": Metric(
        "gauge", "How much is wrong although the process is ready; `rsnotify status` says what."
    ),
    "rsnotify_follow_age_seconds": Metric("gauge", "Seconds since the journals were seen."),
    "rsnotify_redis_round_trip_seconds": Metric("gauge", "What the newest small write took."),
    "rsnotify_event_loop_delay_seconds": Metric(
        "gauge", "How late the event loop was at most, in the last ten seconds."
    ),
    "rsnotify_cache_bytes": Metric("gauge", "Memory for what is kept of the journals."),
    "rsnotify_gaps": Metric("counter", "How often Redis has lost changes, and that was said."),
    "rsnotify_last_gap_timestamp_seconds": Metric(
        "gauge", "Where the newest gap of a channel ends, that was met: in Unix time.", CHANNEL
    ),
    "rsnotify_changes_accepted": Metric("counter", "Changes that were stored.", ("kind",)),
    "rsnotify_publishes_refused": Metric(
        "counter", "Requests to publish that were refused, by HTTP status.", ("status",)
    ),
    "rsnotify_append_waiting_bytes": Metric("gauge", "Bytes of changes that wait for Redis."),
    "rsnotify_append_seconds": Metric("histogram", "From a request's turn until it is stored."),
    "rsnotify_append_round_changes": Metric("histogram", "Changes that went to Redis together."),
    "rsnotify_catch_ups": Metric(
        "counter", "Notifications for those who were behind, by where they were read.", ("origin",)
    ),
    "rsnotify_view_answers": Metric(
        "counter", "Answers by OAI-PMH, as Atom, and as activities of IIIF.", ("view",)
    ),
    "rsnotify_readers": Metric("gauge", "Open connections to a channel.", (*CHANNEL, "form")),
    "rsnotify_readers_behind": Metric(
        "gauge", "Readers that have not been sent everything; absent if there are none.", CHANNEL
    ),
    "rsnotify_readers_behind_seconds": Metric(
        "gauge", "How long the one that is furthest behind has waited for a change.", CHANNEL
    ),
    "rsnotify_notifications_sent": Metric("counter", "Notifications to readers.", ("form",)),
    "rsnotify_sent_bytes": Metric("counter", "Bytes of notifications to readers.", ("form",)),
    "rsnotify_received_bytes": Metric(
        "counter", "Bytes from peers, TLS not included.", ("transport",)
    ),
    "rsnotify_received_frames": Metric("counter", "WebSocket frames from readers."),
    "rsnotify_floods": Metric(
        "counter", "Connections that were closed because too much came.", ("transport",)
    ),
    "rsnotify_websub_subscribers": Metric("gauge", "WebSub subscribers.", ("place",)),
    "rsnotify_websub_oldest_undelivered_seconds": Metric(
        "gauge", "The age of the oldest change that a WebSub subscriber has not got."
    ),
    "rsnotify_websub_deliveries": Metric("counter", "Calls to callbacks.", ("outcome",)),
    "rsnotify_websub_sent_bytes": Metric("counter", "Bytes of notifications to callbacks."),
    "rsnotify_websub_calls": Metric("gauge", "Callbacks that are being called."),
}
"""Each has the label `worker` too: the sum over it is the hub's."""

OF_A_SET: dict[str, Metric] = {
    "rsnotify_journal_changes": Metric("gauge", "Changes in the journal.", ("set",)),
    "rsnotify_journal_oldest_timestamp_seconds": Metric(
        "gauge", "Where the journal begins, in Unix time.", ("set",)
    ),
    "rsnotify_journal_newest_timestamp_seconds": Metric(
        "gauge", "When the newest change came, in Unix time.", ("set",)
    ),
    "rsnotify_set_memory_bytes": Metric(
        "gauge", "What the set takes of Redis: counted, and an estimate since then.", ("set",)
    ),
    "rsnotify_set_memory_limit_bytes": Metric(
        "gauge", "What the set may take of Redis; 0 if it has no limit.", ("set",)
    ),
    "rsnotify_change_lists": Metric("gauge", "Closed Change Lists.", ("set",)),
    "rsnotify_snapshot_resources": Metric(
        "gauge", "Resources in the newest Resource List; 0 without one.", ("set",)
    ),
    "rsnotify_snapshot_timestamp_seconds": Metric(
        "gauge", "When the newest Resource List was completed, in Unix time; 0: never.", ("set",)
    ),
}
"""They are in Redis, and the same for every process: missing while Redis does not answer."""

METRICS = OF_A_PROCESS | OF_A_SET


def shown_names(name: str) -> tuple[str, ...]:
    """The names by which `/metrics` shows a metric."""
    kind = METRICS[name].kind
    if kind == "counter":
        return (f"{name}_total",)
    return (
        tuple(f"{name}_{part}" for part in ("bucket", "count", "sum"))
        if kind == "histogram"
        else (name,)
    )


END = b"# EOF\n"  # of OpenMetrics

Encode = Callable[[Collector], bytes]
Sample = tuple[tuple[str, ...], float | HistogramNumbers]

NUMBER = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


class Metrics:
    """What Prometheus reads."""

    def __init__(
        self,
        journals: Journals,
        access: Access,
        peers: Peers,
        overview: Overview,
        token: str | None,
    ) -> None:
        self._journals = journals
        self._access = access
        self._peers = peers
        self._overview = overview
        self._token = token
        self._answers = Costly[bytes]("metrics")

    async def get(self, request: Request) -> Response:
        """Numbers for Prometheus; with the token that the operator chose, if there is one."""
        everything = await self._may_see_all(request)
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        key = f"{everything} {self._journals.known.revision} {media_type}"
        work = partial(self._render, encode, everything=everything)
        body = await self._answers.result(key, work, kept_seconds(len(self._journals.sets)))
        return Response(body, headers={"content-type": media_type})

    async def _render(self, encode: Encode, *, everything: bool) -> bytes:
        """Again, if a set that it names has turned private while it was written."""
        while True:
            named = _NamedSets(lambda name: everything or self._is_public(name))
            text = await self._write(encode, named)
            if all(map(named.may, named.names)):
                return text

    async def _write(self, encode: Encode, named: "_NamedSets") -> bytes:
        """A few sets at a time, for there may be many."""
        written = _Written(encode)
        for report in self._peers.of_this_hub():
            for name in OF_A_PROCESS:
                for some in slices(list(_samples_of(report, name, named))):
                    written.add(name, some, ("worker",))
                    await let_others_go_on()
        for names in slices(list(filter(named, self._journals.sets))):
            numbers = self._of_sets(await self._overview.of(names))
            for name in OF_A_SET:
                written.add(name, numbers[name])
        return written.whole()

    def _of_sets(self, sets: dict[str, SetNumbers]) -> Numbers:
        found: Numbers = {name: [] for name in OF_A_SET}
        for name, numbers in sets.items():
            for metric, number in _of_set(numbers, self._journals.max_bytes(name)).items():
                found[metric].append(((name,), number))
        return found

    def _is_public(self, name: str) -> bool:
        """Whether it is known as public; another process may know a set that is not known here."""
        record = self._journals.sets.get(name)
        return record is not None and not record.private

    async def _may_see_all(self, request: Request) -> bool:
        scheme, _, sent = request.headers.get("authorization", "").partition(" ")
        token = self._token
        is_right = token and hmac.compare_digest(sent.strip().encode(), token.encode())
        if is_right and scheme.lower() == "bearer":
            return True
        if token:
            await self._access.require_admin(request)
        bearer = await self._access.bearer(request)
        return bearer is not None and bearer.is_admin


class _NamedSets:
    """Which sets may be named, and which were."""

    def __init__(self, may: Callable[[str], bool]) -> None:
        self.may = may
        self.names: set[str] = set()

    def __call__(self, name: str) -> bool:
        if not self.may(name):
            return False
        self.names.add(name)
        return True


class _Written:
    """The metrics as text: of each its head, and then its samples piece by piece."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._pieces: dict[str, list[bytes]] = {name: [] for name in METRICS}
        self._end = b""

    def add(self, name: str, samples: Sequence[Sample], more_labels: tuple[str, ...] = ()) -> None:
        text = self._encode(_One(_family(name, samples, more_labels)))
        if text.endswith(END):
            text, self._end = text.removesuffix(END), END
        self._pieces[name].append(_without_head(text) if self._pieces[name] else text)

    def whole(self) -> bytes:
        for name in METRICS:
            if not self._pieces[name]:
                self.add(name, ())
        return b"".join(piece for pieces in self._pieces.values() for piece in pieces) + self._end


class _One(Collector):
    """One metric, as the library wants it."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterator[Family]:
        yield self._family


def _without_head(text: bytes) -> bytes:
    """Without the lines that say what it is."""
    while text.startswith(b"#"):
        text = text.partition(b"\n")[2]
    return text


def _samples_of(report: Report, name: str, may_name: Callable[[str], bool]) -> Iterator[Sample]:
    worker = (str(report.identity.worker),)
    if name in report.histograms:
        yield worker, report.histograms[name]
    for values, number in report.numbers.get(name, ()):
        if OF_A_PROCESS[name].labels[:1] != ("set",) or may_name(values[0]):
            yield (*values, *worker), number


def _family(
    name: str,
    samples: Iterable[Sample],
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


def _of_set(numbers: SetNumbers, max_bytes: int) -> dict[str, float]:
    return {
        "rsnotify_journal_changes": numbers.changes,
        "rsnotify_journal_oldest_timestamp_seconds": numbers.first / MICROSECONDS,
        "rsnotify_journal_newest_timestamp_seconds": numbers.head / MICROSECONDS,
        "rsnotify_set_memory_bytes": numbers.bytes,
        "rsnotify_set_memory_limit_bytes": max_bytes,
        "rsnotify_change_lists": numbers.change_lists,
        "rsnotify_snapshot_resources": numbers.resources or 0,
        "rsnotify_snapshot_timestamp_seconds": (numbers.snapshot or 0) / MICROSECONDS,
    }
