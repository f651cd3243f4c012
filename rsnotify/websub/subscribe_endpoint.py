"""WebSub over HTTP: the hub, the topics, and the subscriptions for the admin.

`POST /hub` is where peers subscribe and unsubscribe, and where Sources may publish. A malformed
request is answered at once with one sentence (WEBSUB 12), a well-formed one with 202 whatever its
callback answers (WEBSUB 11, 13). A topic that is not served is an error in the request (WEBSUB 12),
and so is one that the peer may not know of. No callback is called here.

A topic is the path of a channel, for discovery. The status is 200 whether there is a notification
or not. The body is the newest notification, byte for byte, and empty before the first one (WEBSUB
21); in JSON, an empty interval. The body is never older than what was acknowledged or delivered
before the request, by any hub process.
"""

from collections.abc import Awaitable
from time import time
from typing import Protocol

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from rsnotify.access.access import JWT, Access
from rsnotify.access.base_url import BaseUrl
from rsnotify.access.query import (
    CHANNEL,
    check_not_future,
    filter_of,
    form_of,
    parse_query,
    parse_start,
)
from rsnotify.errors import NoSuchSet, Rejected, TryAgain
from rsnotify.http.endpoints import JsonResponse, read_body
from rsnotify.live.journals import Journals
from rsnotify.resourcesync.addresses import literal_address, refusal
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.change_filter import FILTER, Filter
from rsnotify.resourcesync.forms import JSON, XML, Form
from rsnotify.resourcesync.json_writer import render_empty_json, render_notification_json
from rsnotify.resourcesync.notification import (
    FROM_HEADER,
    ChannelName,
    Notification,
    render_nothing,
)
from rsnotify.sets.options import SetRecord, channel_of_own_topic
from rsnotify.websub.rules import (
    FORM_BYTES,
    FORM_MEDIA_TYPE,
    FormFields,
    SubscriptionRequest,
    channel_of,
    hostname_of,
    parse_form,
    parse_links,
    parse_mode,
    parse_ping,
    parse_subscription_request,
    render_links,
)
from rsnotify.websub.subscription import PendingRequest, share_of, subscription_id
from rsnotify.websub.subscription_store import Stored, Subscriptions

UNKNOWN_TOPIC = "this hub does not serve the topic"
OUTLIVES = "a subscription outlives a JWT: subscribe with a token that the hub has made"


class Publish(Protocol):
    """Publishes what a request carries to a channel, and answers it."""

    def __call__(
        self, request: Request, channel: ChannelName, *, in_address: bool, status: int
    ) -> Awaitable[Response]: ...


class WebSubEndpoint:
    """The hub URI."""

    def __init__(
        self,
        journals: Journals,
        access: Access,
        publish: Publish,
        store: Subscriptions,
        base_url: BaseUrl,
        *,
        callback_private: bool,
        lease_seconds: int,
    ) -> None:
        self._journals = journals
        self._access = access
        self._publish_to = publish
        self._store = store
        self._base_url = base_url
        self._callback_private = callback_private
        self._lease_seconds = lease_seconds

    async def post(self, request: Request) -> Response:
        """Subscribe, unsubscribe or publish by WebSub; a publish may have an Idempotency-Key;
        errors are one sentence."""
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            if media_type != FORM_MEDIA_TYPE:
                return await self._publish(request)
            form = parse_form(await read_body(request, FORM_BYTES))
            mode = parse_mode(form)
            if mode == "publish":
                return await self._ping(request, form)
            return await self._ask(request, parse_subscription_request(form, mode))
        except (Rejected, TryAgain) as error:
            return _refused(error)

    # --- subscribing -----------------------------------------------------------------------------

    async def _ask(self, request: Request, asked: SubscriptionRequest) -> Response:
        self._check_address(asked.callback)
        await self._store.ask(await self._accepted(request, asked))
        return PlainTextResponse("The callback will be asked to confirm.\n", 202)

    def _check_address(self, callback: str) -> None:
        """Refuse a callback that the hub may not call: no call can report it later."""
        address = literal_address(hostname_of(callback))
        if address is None:
            return
        if reason := refusal(address, private=self._callback_private):
            is_private = refusal(address, private=True) is None
            advice = "; RSNOTIFY_CALLBACK_PRIVATE=allow lets the hub call it" if is_private else ""
            raise Rejected(f"hub.callback may not be called: {reason}{advice}", status=403)

    async def _accepted(self, request: Request, asked: SubscriptionRequest) -> PendingRequest:
        """The request to keep."""
        token = ""
        await self._learn_of(request, asked.topic)
        channel, filter_ = self._part(request, asked.topic)
        wanted = "" if filter_ is None else str(filter_)
        if asked.mode == "subscribe" or not await self._has_subscribed(asked, channel, wanted):
            await self._require_known(request, channel, asked.topic)
        record = self._journals.record(channel.set_name)
        if asked.mode == "subscribe":
            token = await self._access.require_reader(request, channel.set_name, record)
            if token.startswith(JWT):
                raise Rejected(OUTLIVES, status=403)
            await self._journals.known_filter(filter_, [channel])
        return PendingRequest(
            order=asked.mode,
            topic=asked.topic,
            callback=asked.callback,
            set_name=channel.set_name,
            kind=channel.kind,
            secret=asked.secret,
            lease_seconds=asked.lease_seconds or self._lease_seconds,
            by_token=record.private,
            token=token,
            client_address=self._base_url.client_address(request),
            wanted=wanted,
        )

    async def _has_subscribed(
        self, asked: SubscriptionRequest, channel: ChannelName, wanted: str
    ) -> bool:
        """Whether there is one: its callback may end it whatever became of its token."""
        if channel.set_name not in self._journals.sets:
            return False
        share, id_ = share_of(asked.callback), subscription_id(channel, asked.callback, wanted)
        return await self._store.at(share, id_) is not None

    async def _known_channel(self, request: Request, topic: str) -> ChannelName:
        """The channel with this topic, if the peer may know of it."""
        await self._learn_of(request, topic)
        channel = self._channel(request, topic)
        await self._require_known(request, channel, topic)
        return channel

    async def _learn_of(self, request: Request, topic: str) -> None:
        """Another process may have made the set of the topic just now."""
        await self._journals.learn_of(self._channel(request, topic).set_name)

    async def _require_known(self, request: Request, channel: ChannelName, topic: str) -> None:
        try:
            record = self._journals.sets.get(channel.set_name)
            await self._access.require_aware(request, channel.set_name, record)
        except NoSuchSet:
            raise Rejected(f"{UNKNOWN_TOPIC} {topic[:200]!r}", status=404) from None

    def _part(self, request: Request, topic: str) -> tuple[ChannelName, Filter | None]:
        """The channel of a topic, and which of its changes: those of an address with a filter."""
        channel = self._channel(request, topic)
        address, _, query = topic.partition("?")
        if not channel.set_name and query:
            channel = channel_of(address, self._bases(request)) or channel
        if not channel.set_name or address == topic:
            return channel, None
        return channel, filter_of(parse_query(query.encode(), FILTER), channel.kind)

    def _channel(self, request: Request, topic: str) -> ChannelName:
        """The channel at an address of the hub, or of its Source; of no set if unknown."""
        ours = channel_of(topic, self._bases(request))
        own = ours or channel_of_own_topic(self._journals.sets.values(), topic)
        return own or ChannelName("", "change")

    def _bases(self, request: Request) -> tuple[str, ...]:
        """The base URLs of the hub: as configured, as in discovery, and as the peer used it."""
        reached = str(request.base_url).rstrip("/")
        return self._journals.base_url, self._base_url.base(request), reached

    # --- publishing ------------------------------------------------------------------------------

    async def _publish(self, request: Request) -> Response:
        """Publish the payload itself, as ResourceSync does: answered with 200, not 201.

        Publishers of 2014 know no header for a token: it may stand in the hub's address.
        """
        links = parse_links(", ".join(request.headers.getlist("link")))
        for rel, named in (("self", "topic"), ("hub", "hub")):
            if rel not in links:
                raise Rejected(f'the Link header has no rel="{rel}": it names the {named}')
        channel = await self._known_channel(request, links["self"])
        return await self._publish_to(request, channel, in_address=True, status=200)

    async def _ping(self, request: Request, form: FormFields) -> Response:
        """WEBSUB 20: there is nothing to fetch: a Source publishes here in the POST itself."""
        for topic in parse_ping(form):
            await self._known_channel(request, topic)
        return Response(status_code=204)


def _refused(error: Rejected | TryAgain) -> Response:
    if isinstance(error, TryAgain):
        headers = {"retry-after": str(error.retry_after_seconds)}
    else:
        headers = error.headers
    return PlainTextResponse(f"{error.detail}\n", error.status, headers)


REMOVED = "the operator of the hub has removed the subscription"


class SubscriptionAdmin:
    """List, show, remove, retry."""

    def __init__(self, journals: Journals, access: Access, store: Subscriptions) -> None:
        self._journals = journals
        self._access = access
        self._store = store

    async def list(self, request: Request) -> Response:
        """The WebSub subscriptions."""
        await self._access.require_admin(request)
        now = await self._store.now()
        found = await self._store.all()
        in_order = sorted(found.items(), key=lambda item: (item[1].subscription.created, item[0]))
        return JsonResponse([self._shown(id_, stored, now) for id_, stored in in_order])

    async def show(self, request: Request) -> Response:
        """One subscription, and how many changes it is behind, up to one notification."""
        id_, stored = await self._find(request)
        behind = {"behind_changes": await self._behind_changes(stored)}  # reads what is new first
        return JsonResponse(self._shown(id_, stored, await self._store.now()) | behind)

    async def remove(self, request: Request) -> Response:
        """End a subscription and notify its callback."""
        _, stored = await self._find(request)
        await self._store.remove(stored.subscription, REMOVED)
        return Response(status_code=204)

    async def retry(self, request: Request) -> Response:
        """Call the callback again now."""
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
            "failures": progress.failures,
            "last_answer": progress.answer or None,
            "answered": str(Position(progress.answered_at)) if progress.answered_at else None,
            "next_attempt": str(Position(progress.next_attempt)) if progress.next_attempt else None,
        }

    async def _behind_changes(self, stored: Stored) -> int | None:
        """None if the journal no longer holds what follows or cannot be read now, or the set has
        been removed."""
        try:
            feed = self._journals.feed(stored.subscription.channel)
            await self._journals.catch_up(feed)
            cursor = Position(stored.progress.cursor)
            owed = await self._journals.reading.batch_after(feed, cursor)
        except (Rejected, TryAgain, ValueError):
            return None
        return 0 if owed is None else owed.count

    def _behind_seconds(self, stored: Stored) -> float | None:
        """From its position to the newest change; None if the set has been removed."""
        try:
            head = self._journals.feed(stored.subscription.channel).tail.head
        except Rejected:
            return None
        return max(0, head - stored.progress.cursor) / MICROSECONDS


class Topic:
    """Answers GET and HEAD on every channel."""

    def __init__(self, journals: Journals, access: Access, base_url: BaseUrl) -> None:
        self._journals = journals
        self._access = access
        self._base_url = base_url

    async def get(self, request: Request) -> Response:
        channel = ChannelName.named(**request.path_params)
        await self._record_to_read(request, channel)
        feed = self._journals.feed(channel)
        query = parse_query(request.scope["query_string"], CHANNEL)
        after = parse_start(query)  # only checked
        filter_ = await self._journals.known_filter(filter_of(query, channel.kind), [channel])
        begins = feed.tail.head  # read first: a change in between must not be lost
        newest = await self._journals.newest_notification(feed)
        record = await self._record_to_read(request, channel)  # it may have become private
        if after is not None:
            check_not_future(after, feed.tail.head, int(time() * MICROSECONDS))
        if newest is not None and filter_ is not None:
            newest = self._part_of(channel, newest, filter_)
        form = form_of(request)
        return Response(
            _body(channel, newest, begins, form),
            media_type=form.media_type,
            headers={
                "Link": render_links(
                    channel, self._base_url.base(request), record.own_topic(channel.kind)
                ),
                "Cache-Control": f"{'private' if record.private else 'public'}, no-cache",
                "Vary": "accept, authorization" if record.private else "accept",
                FROM_HEADER: str(begins if newest is None else newest.until),
            },
        )

    def _part_of(self, channel: ChannelName, newest: Notification, filter_: Filter) -> Notification:
        base_url = self._journals.base_url
        empty = render_nothing(channel, newest.from_, newest.until, base_url=base_url)
        return filter_.pick(newest) or empty

    async def _record_to_read(self, request: Request, channel: ChannelName) -> SetRecord:
        """The set as it is now, if the peer may read it."""
        name = channel.set_name
        await self._access.require_reader(request, name, self._journals.sets.get(name))
        return self._journals.record(name)


def _body(channel: ChannelName, newest: Notification | None, begins: Position, form: Form) -> bytes:
    if form is XML:
        return b"" if newest is None else newest.payload
    if newest is None:
        return render_empty_json(channel.capability, begins)
    return newest.derived(JSON.name, render_notification_json)
