"""`GET /api/status`: the hub at a glance, for the page and `rsnotify status`.

Everybody may ask. A private set is shown to those whose token names it, processes and WebSub to
the admin only.
"""

from collections.abc import Sequence
from time import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from rsnotify import __version__
from rsnotify.channels.frames import transport_of
from rsnotify.errors import TryAgain
from rsnotify.http.messages import JsonResponse
from rsnotify.journal.hub import Hub
from rsnotify.journal.query import parse_sets_asked
from rsnotify.journal.set_options import SetRecord
from rsnotify.operation.peers import Peers
from rsnotify.operation.process import Report
from rsnotify.registry.access import Access
from rsnotify.registry.overview import Overview, SetNumbers
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.notification import KINDS

SETS_SHOWN = 1_000  # if no other limit is asked for

RATES = {
    "changes_per_second": ("rsnotify_changes_accepted",),
    "notifications_per_second": ("rsnotify_notifications_sent",),
    "deliveries_per_second": ("rsnotify_websub_deliveries",),
}


class Status:
    """Answers for all hub processes on this Redis."""

    def __init__(self, hub: Hub, access: Access, peers: Peers, overview: Overview) -> None:
        self._hub = hub
        self._access = access
        self._peers = peers
        self._overview = overview

    async def get(self, request: Request) -> Response:
        asked = parse_sets_asked(request.scope["query_string"], SETS_SHOWN)
        told = await self._access.told_of(request, self._hub.sets_asked(asked))
        reports = self._peers.now()
        status = _of_this(reports[0]) | {
            "base_url": self._hub.base_url,
            "rates": {name: round(self._peers.rate(*of), 3) for name, of in RATES.items()},
            "sets_total": len(told),
            "sets": await self._sets(reports, told[: asked.limit]),
        }
        if self._access.is_admin(request):
            status |= {"websub": _websub(reports), "processes": list(map(_process, reports))}
        return JsonResponse(status)

    async def _sets(
        self, reports: list[Report], shown: Sequence[SetRecord]
    ) -> list[dict[str, Any]]:
        numbers = await self._numbers([record.name for record in shown])
        read = _channels(reports)
        return [
            {"name": record.name, "private": record.private, "created": record.created}
            | _kept(numbers.get(record.name))
            | {"channels": [read.get((record.name, kind)) or _unread(kind) for kind in KINDS]}
            for record in shown
        ]

    async def _numbers(self, names: list[str]) -> dict[str, SetNumbers]:
        try:
            return await self._overview.of(names)
        except TryAgain:  # what this process knows is shown all the same
            return {}


def _of_this(report: Report) -> dict[str, Any]:
    """The process that answers, in words."""
    age = report.total("rsnotify_follow_age_seconds")
    trip = report.total("rsnotify_redis_round_trip_seconds")
    return {
        "version": __version__,
        "now": str(Position(int(time() * MICROSECONDS))),
        "ready": not report.not_ready,
        "reason": report.not_ready or None,
        "store": {"round_trip_seconds": round(trip, 6), "text": _store_text(report, trip)},
        "following": {"age_seconds": round(age, 3), "text": f"journals seen {age:.1f} s ago"},
    }


def _store_text(report: Report, seconds: float) -> str:
    if report.not_ready:
        return report.not_ready
    return f"Redis answers in {seconds * 1000:.1f} ms"


def _kept(numbers: SetNumbers | None) -> dict[str, Any]:
    """What Redis has of a set; nothing if Redis does not answer."""
    if numbers is None:
        return dict.fromkeys(("changes", "changes_today", "newest", "change_lists", "resources"))
    return {
        "changes": numbers.changes,
        "changes_today": numbers.today,
        "newest": str(numbers.head) if numbers.changes else None,
        "change_lists": numbers.change_lists,
        "resources": numbers.resources,
    }


def _channels(reports: list[Report]) -> dict[tuple[str, str], dict[str, Any]]:
    """The readers of each channel that is read, in all processes together."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for report in reports:
        for (name, kind, form), count in report.numbers["rsnotify_readers"]:
            readers = found.setdefault((name, kind), _unread(kind))["readers"]
            readers[transport_of(form)] += int(count)
        for (name, kind), count in report.numbers["rsnotify_readers_behind"]:
            found.setdefault((name, kind), _unread(kind))["behind"] += int(count)
        for (name, kind), seconds in report.numbers["rsnotify_readers_behind_seconds"]:
            channel = found.setdefault((name, kind), _unread(kind))
            channel["behind_seconds"] = max(channel["behind_seconds"], round(seconds, 3))
    return found


def _unread(kind: str) -> dict[str, Any]:
    readers = {"websocket": 0, "event stream": 0}
    return {"kind": kind, "readers": readers, "behind": 0, "behind_seconds": 0.0}


def _websub(reports: list[Report]) -> dict[str, Any]:
    return {
        "subscribers": _summed(reports, "rsnotify_websub_subscribers"),
        "deliveries": _summed(reports, "rsnotify_websub_deliveries"),
        "oldest_undelivered_seconds": max(
            report.total("rsnotify_websub_oldest_undelivered_seconds") for report in reports
        ),
    }


def _summed(reports: list[Report], name: str) -> dict[str, int]:
    summed: dict[str, int] = {}
    for report in reports:
        for (label,), number in report.numbers.get(name, ()):
            summed[label] = summed.get(label, 0) + int(number)
    return summed


def _process(report: Report) -> dict[str, Any]:
    started = Position(int(report.identity.started * MICROSECONDS))
    return {
        "name": report.identity.name,
        "started": str(started),
        "ready": not report.not_ready,
        "reason": report.not_ready or None,
        "event_loop_delay_seconds": report.total("rsnotify_event_loop_delay_seconds"),
    }
