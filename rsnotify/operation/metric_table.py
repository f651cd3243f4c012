"""Every metric of the hub: its kind, its labels, what it says. All begin with `rsnotify_`."""

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """One metric. A counter's name gets `_total` where it is shown."""

    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


CHANNEL = ("set", "kind")

OF_A_PROCESS: dict[str, Metric] = {
    "rsnotify_start_time_seconds": Metric(
        "gauge", "When the process was started, in Unix time: it changes with every restart."
    ),
    "rsnotify_ready": Metric("gauge", "1 if the process can be sent requests, else 0."),
    "rsnotify_follow_age_seconds": Metric("gauge", "Seconds since the journals were seen."),
    "rsnotify_redis_round_trip_seconds": Metric("gauge", "What the newest small write took."),
    "rsnotify_event_loop_delay_seconds": Metric(
        "gauge", "How late the event loop was at most, in the last ten seconds."
    ),
    "rsnotify_cache_bytes": Metric("gauge", "Memory for what is kept of the journals."),
    "rsnotify_gaps": Metric("counter", "How often Redis lost changes that no process remembered."),
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
    "rsnotify_readers": Metric("gauge", "Open connections to a channel.", (*CHANNEL, "form")),
    "rsnotify_readers_behind": Metric(
        "gauge", "Readers that have not been sent everything; none is not told.", CHANNEL
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
    "rsnotify_change_lists": Metric("gauge", "Closed Change Lists.", ("set",)),
    "rsnotify_snapshot_resources": Metric(
        "gauge", "Resources in the newest Resource List.", ("set",)
    ),
    "rsnotify_snapshot_timestamp_seconds": Metric(
        "gauge", "When the newest Resource List was completed, in Unix time.", ("set",)
    ),
}
"""They are in Redis, and the same for every process: missing while Redis does not answer."""

METRICS = OF_A_PROCESS | OF_A_SET


def shown_names() -> set[str]:
    """Every name that stands in `/metrics`."""
    return {name for each in METRICS for name in _shown(each)}


def _shown(name: str) -> tuple[str, ...]:
    kind = METRICS[name].kind
    if kind == "counter":
        return (f"{name}_total",)
    return (
        tuple(f"{name}_{part}" for part in ("bucket", "count", "sum"))
        if kind == "histogram"
        else (name,)
    )
