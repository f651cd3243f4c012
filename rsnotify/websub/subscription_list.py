"""WebSub subscriptions over HTTP, for the admin."""

from starlette.requests import Request
from starlette.responses import Response

from rsnotify.errors import Rejected
from rsnotify.http.messages import JsonResponse
from rsnotify.journal.hub import Hub
from rsnotify.registry.access import Access
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.notification import NOTIFICATION_CHANGES
from rsnotify.websub.subscription_store import Stored, Subscriptions

REMOVED = "the operator of the hub has removed the subscription"


class SubscriptionAdmin:
    """List, show, remove, retry."""

    def __init__(self, hub: Hub, access: Access, store: Subscriptions) -> None:
        self._hub = hub
        self._access = access
        self._store = store

    async def list(self, request: Request) -> Response:
        await self._access.require_admin(request)
        now = await self._store.now()
        found = await self._store.all()
        in_order = sorted(found.items(), key=lambda item: (item[1].subscription.created, item[0]))
        return JsonResponse([self._shown(id_, stored, now) for id_, stored in in_order])

    async def show(self, request: Request) -> Response:
        """As listed, and by how many changes it is behind, as far as one notification reaches."""
        id_, stored = await self._find(request)
        shown = self._shown(id_, stored, await self._store.now())
        return JsonResponse(shown | {"behind_changes": await self._behind_changes(stored)})

    async def remove(self, request: Request) -> Response:
        _, stored = await self._find(request)
        await self._store.remove(stored.subscription, REMOVED)
        return Response(status_code=204)

    async def retry(self, request: Request) -> Response:
        _, stored = await self._find(request)
        await self._store.retry(stored.subscription)
        return Response(status_code=202)

    async def _find(self, request: Request) -> tuple[str, Stored]:
        await self._access.require_admin(request)
        id_ = request.path_params["subscription"]
        stored = await self._store.find(id_)
        if stored is None:
            raise Rejected(f"there is no subscription {id_[:80]!r}", status=404)
        return id_, stored

    def _shown(self, id_: str, stored: Stored, now: int) -> dict[str, object]:
        subscription, progress = stored
        return {
            "id": id_,
            "set": subscription.set_name,
            "kind": subscription.kind,
            "topic": subscription.topic,
            "callback": subscription.callback,
            "signed": subscription.secret is not None,
            "created": str(Position(subscription.created)),
            "lease_seconds_left": max(0, subscription.lease_end - now) // MICROSECONDS,
            "position": str(Position(progress.cursor)),
            "behind_seconds": self._behind_seconds(stored),
        } | _last_answer(stored)

    async def _behind_changes(self, stored: Stored) -> int | None:
        """None if the journal no longer holds what follows, or the set has been removed."""
        try:
            feed = self._hub.feed(stored.subscription.channel)
            owed = await self._hub.stretch_after(feed, Position(stored.progress.cursor))
        except Rejected:
            return None
        return 0 if owed is None else min(owed.count, NOTIFICATION_CHANGES)

    def _behind_seconds(self, stored: Stored) -> float | None:
        """From its position to the newest change."""
        try:
            head = self._hub.feed(stored.subscription.channel).tail.head
        except Rejected:
            return None
        return max(0, head - stored.progress.cursor) / MICROSECONDS


def _last_answer(stored: Stored) -> dict[str, object]:
    progress = stored.progress
    return {
        "failures": progress.failures,
        "last_answer": progress.answer or None,
        "answered": str(Position(progress.answered_at)) if progress.answered_at else None,
        "next_attempt": str(Position(progress.next_attempt)) if progress.next_attempt else None,
    }
