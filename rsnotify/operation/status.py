"""`GET /api/status`: the hub at a glance, for the page and `rsnotify status`.

Everybody may ask. A private set is shown to those whose token names it, processes and WebSub to
the admin only.

`Overview` is what Redis has of every set, in numbers.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from time import time
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from rsnotify import __version__
from rsnotify.access.access import Access
from rsnotify.access.bearer import Bearer, visible_to
from rsnotify.access.query import STATUS, SetsAsked, parse_sets_asked
from rsnotify.channels.frames import transport_of
from rsnotify.coordination import keys
from rsnotify.errors import TryAgain
from rsnotify.http.endpoints import JsonResponse
from rsnotify.journal.window import Window, changes_since
from rsnotify.live.journals import Journals
from rsnotify.operation.reports import Peers, Report
from rsnotify.operation.shared_answers import SharedAnswers
from rsnotify.redis_client import Client, each
from rsnotify.resourcesync.change import DAY, MICROSECONDS, Position
from rsnotify.resourcesync.notification import KINDS, ChannelName
from rsnotify.sets.options import SetRecord

AT_ONCE = 200  # sets, in one round trip
OF_RECORD = ("first", "head", "counted", "grown", "window_from", "window_count")
SETS_SHOWN = 1_000  # if no other limit is asked for


class SetNumbers(NamedTuple):
    """What is kept of a set. Its documents are those of the change channel."""

    changes: int  # in the stream
    first: Position  # where the stream begins
    head: Position  # the newest change
    change_lists: int  # closed ones that can be pulled
    resources: int | None  # of the newest snapshot; None if there is none
    snapshot: Position | None  # when it was completed
    bytes: int  # that it takes of Redis: as they were counted, and an estimate of what came since
    today: int | None  # changes since 0:00 UTC; None if Change Lists do not end there


class Overview:
    """Reads the numbers of many sets."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def of(self, set_names: Sequence[str]) -> dict[str, SetNumbers]:
        """The numbers of these sets; those that cannot be read are left out: all, without Redis."""
        found: dict[str, SetNumbers] = {}
        with suppress(TryAgain):  # what is known without it is shown all the same
            for start in range(0, len(set_names), AT_ONCE):
                found |= await self._some(set_names[start : start + AT_ONCE])
        return found

    async def _some(self, set_names: Sequence[str]) -> dict[str, SetNumbers]:
        now = int(time() * MICROSECONDS)
        midnight = now - now % DAY
        pipeline = self._client.pipeline(transaction=False)
        for name in set_names:
            channel = ChannelName(name, "change")
            pipeline.xlen(keys.stream(channel))
            pipeline.hmget(keys.record(channel), *OF_RECORD)
            pipeline.zcard(keys.windows(channel))
            pipeline.zrangebyscore(keys.windows(channel), f"({midnight}", "+inf")
            pipeline.hmget(keys.snapshot(name), "resources", "completed")
        answers = await pipeline.execute(raise_on_error=False)
        rows = [answers[at : at + 5] for at in range(0, len(answers), 5)]
        numbers = partial(_numbers, midnight)
        read = zip(set_names, each(rows, numbers), strict=True)
        return {name: row for name, row in read if isinstance(row, SetNumbers)}


def _numbers(midnight: int, row: Sequence[Any]) -> SetNumbers:
    for answer in row:
        if isinstance(answer, Exception):
            raise answer
    (
        changes,
        (first, head, counted, grown, *open_list),
        change_lists,
        closed,
        (resources, completed),
    ) = row
    begin, count = map(int, open_list)
    return SetNumbers(
        changes=changes,
        first=Position(int(first)),
        head=Position(int(head)),
        change_lists=change_lists,
        resources=None if resources is None else int(resources),
        snapshot=None if completed is None else Position(int(completed)),
        bytes=max(0, int(counted or 0) + int(grown or 0)),
        today=changes_since(midnight, int(head), begin, count, map(Window.parse, closed)),
    )


RATES = {
    "changes_per_second": ("rsnotify_changes_accepted",),
    "notifications_per_second": ("rsnotify_notifications_sent",),
    "deliveries_per_second": ("rsnotify_websub_deliveries",),
}


class Status:
    """Answers for all hub processes on this Redis."""

    def __init__(
        self, journals: Journals, access: Access, peers: Peers, overview: Overview
    ) -> None:
        self._journals = journals
        self._access = access
        self._peers = peers
        self._overview = overview
        self._shared = SharedAnswers()

    async def get(self, request: Request) -> Response:
        """The hub at a glance; private sets only for tokens that name them, WebSub for the
        admin."""
        asked = parse_sets_asked(request.scope["query_string"], SETS_SHOWN, STATUS)
        bearer = await self._access.bearer(request)
        if bearer is None:
            return await self._shared.of(request, partial(self._status, bearer, asked))
        return JsonResponse(await self._status(bearer, asked))

    async def _status(self, bearer: Bearer | None, asked: SetsAsked) -> dict[str, Any]:
        visible = visible_to(bearer, asked.among(self._journals.sets))
        if asked.by_newest:
            newest = self._journals.newest_known
            visible.sort(key=lambda record: newest(record.name), reverse=True)
        reports = self._peers.now()
        status = _of_this(reports[0]) | {
            "base_url": self._journals.base_url,
            "rates": {name: round(self._peers.rate(*of), 3) for name, of in RATES.items()},
            "sets_total": len(visible),
            "sets": await self._sets(reports, asked.part(visible)),
        }
        if bearer is not None and bearer.is_admin:
            status |= {"websub": _websub(reports), "processes": list(map(_process, reports))}
            status |= {"readers": int(sum(each.total("rsnotify_readers") for each in reports))}
            status["store"] |= _memory(reports[0])
        return status

    async def _sets(
        self, reports: list[Report], shown: Sequence[SetRecord]
    ) -> list[dict[str, Any]]:
        numbers = await self._overview.of([record.name for record in shown])
        read = _channels(reports)
        rows: list[dict[str, Any]] = []
        for number, record in enumerate(shown, 1):
            kept = _kept(numbers.get(record.name))
            channels = [read.get((record.name, kind)) or _unread(kind) for kind in KINDS]
            named = {"name": record.name, "private": record.private, "created": record.created}
            most = {"max_bytes": self._journals.max_bytes(record.name) or None}
            rows.append(named | kept | most | {"channels": channels})
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)  # others need turns of the event loop, too
        return rows


def _of_this(report: Report) -> dict[str, Any]:
    """The process that answers, in words."""
    age = report.total("rsnotify_follow_age_seconds")
    trip = report.total("rsnotify_redis_round_trip_seconds")
    answers = f"Redis answers in {trip * 1000:.1f} ms"
    return {
        "version": __version__,
        "now": str(Position(int(time() * MICROSECONDS))),
        "ready": not report.not_ready,
        "reason": report.not_ready or None,
        "warnings": report.warnings,
        "store": {"round_trip_seconds": round(trip, 6), "text": report.not_ready or answers},
        "following": {"age_seconds": round(age, 3), "text": f"journals seen {age:.1f} s ago"},
    }


def _memory(report: Report) -> dict[str, int | None]:
    """What Redis uses and may use, as far as it is known: of a Cluster it is not."""
    used = int(report.total("rsnotify_redis_memory_bytes"))
    limit = int(report.total("rsnotify_redis_memory_limit_bytes"))
    return {"bytes": used or None, "max_bytes": limit or None}


def _kept(numbers: SetNumbers | None) -> dict[str, Any]:
    """What Redis has of a set; nothing if Redis does not answer."""
    if numbers is None:
        names = ("changes", "changes_today", "newest", "change_lists", "resources", "bytes")
        return dict.fromkeys(names)
    return {
        "changes": numbers.changes,
        "changes_today": numbers.today,
        "newest": str(numbers.head) if numbers.changes else None,
        "change_lists": numbers.change_lists,
        "resources": numbers.resources,
        "bytes": numbers.bytes,
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
    readers = {"websocket": 0, "event stream": 0, "long poll": 0}
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
