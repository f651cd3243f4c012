"""`POST /hub`: where peers subscribe and unsubscribe, and where Sources may publish.

A malformed request is answered at once with one sentence (WEBSUB 12), a well-formed one with 202
whatever its callback answers (WEBSUB 11, 13). A topic that is not served is an error in the request
(WEBSUB 12), and so is one that the peer may not know of. No callback is called here.
"""

from collections.abc import Awaitable
from typing import Protocol

from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response

from rsnotify.errors import NoSuchSet, Rejected, TryAgain
from rsnotify.http.messages import read_body
from rsnotify.journal.hub import Hub
from rsnotify.journal.set_options import channel_of_own_topic
from rsnotify.registry.access import JWT, Access
from rsnotify.registry.base_url import BaseUrl
from rsnotify.resourcesync.addresses import literal_address, refusal
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.websub.rules import (
    FORM_BYTES,
    FORM_MEDIA_TYPE,
    FormFields,
    SubscriptionRequest,
    channel_of,
    host_of,
    parse_form,
    parse_links,
    parse_mode,
    parse_ping,
    parse_subscription_request,
)
from rsnotify.websub.subscription import PendingRequest, share_of, subscription_id
from rsnotify.websub.subscription_store import Subscriptions

UNKNOWN_TOPIC = "this hub does not serve the topic"
OUTLIVES = "a subscription outlives a JWT: subscribe with a token that the hub has made"


class Publish(Protocol):
    """Publishes what a request carries to a channel, and answers it."""

    def __call__(
        self, request: HttpRequest, channel: ChannelName, *, in_address: bool, status: int
    ) -> Awaitable[Response]: ...


class WebSubEndpoint:
    """The hub URI."""

    def __init__(
        self,
        hub: Hub,
        access: Access,
        publish: Publish,
        store: Subscriptions,
        base_url: BaseUrl,
        *,
        callback_private: bool,
        lease_seconds: int,
    ) -> None:
        self._hub = hub
        self._access = access
        self._publish_to = publish
        self._store = store
        self._base_url = base_url
        self._callback_private = callback_private
        self._lease_seconds = lease_seconds

    async def post(self, request: HttpRequest) -> Response:
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

    async def _ask(self, request: HttpRequest, asked: SubscriptionRequest) -> Response:
        self._check_address(asked.callback)
        await self._store.ask(await self._accepted(request, asked))
        return PlainTextResponse("The callback will be asked to confirm.\n", 202)

    def _check_address(self, callback: str) -> None:
        """Refuse a callback that the hub may not call: no call can tell it later."""
        address = literal_address(host_of(callback))
        reason = address and refusal(address, private=self._callback_private)
        if reason:
            raise Rejected(f"hub.callback may not be called: {reason}", status=403)

    async def _accepted(self, request: HttpRequest, asked: SubscriptionRequest) -> PendingRequest:
        """The request to keep."""
        token = ""
        if asked.mode == "unsubscribe" and await self._has_subscribed(request, asked):
            channel = self._channel(request, asked.topic)
        else:
            channel = await self._known_channel(request, asked.topic)
        record = self._hub.record(channel.set_name)
        if asked.mode == "subscribe":
            token = await self._access.require_reader(request, channel.set_name, record)
            if token.startswith(JWT):
                raise Rejected(OUTLIVES, status=403)
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
            asker=self._base_url.asker(request),
        )

    async def _has_subscribed(self, request: HttpRequest, asked: SubscriptionRequest) -> bool:
        """Its callback may end a subscription whatever became of the token that began it."""
        channel = self._channel(request, asked.topic)
        share, id_ = share_of(asked.callback), subscription_id(channel, asked.callback)
        return channel.set_name in self._hub.sets and await self._store.at(share, id_) is not None

    async def _known_channel(self, request: HttpRequest, topic: str) -> ChannelName:
        """The channel with this topic, if the peer may know of it."""
        channel = self._channel(request, topic)
        try:
            record = self._hub.sets.get(channel.set_name)
            await self._access.require_aware(request, channel.set_name, record)
        except NoSuchSet:
            raise Rejected(f"{UNKNOWN_TOPIC} {topic[:200]!r}", status=404) from None
        return channel

    def _channel(self, request: HttpRequest, topic: str) -> ChannelName:
        """By one of the hub's own addresses, or by what its Source calls it; of no set if there is
        none."""
        ours = channel_of(topic, self._bases(request))
        own = ours or channel_of_own_topic(self._hub.sets.values(), topic)
        return own or ChannelName("", "change")

    def _bases(self, request: HttpRequest) -> tuple[str, ...]:
        """The base URLs of the hub: as configured, as in discovery, and as the peer used it."""
        reached = str(request.base_url).rstrip("/")
        return self._hub.base_url, self._base_url.base(request), reached

    # --- publishing ------------------------------------------------------------------------------

    async def _publish(self, request: HttpRequest) -> Response:
        """The payload itself, as ResourceSync publishes it: answered with 200, not 201.

        Publishers of 2014 know no header for a token: it may stand in the hub's address.
        """
        links = parse_links(", ".join(request.headers.getlist("link")))
        for rel in ("self", "hub"):
            if rel not in links:
                raise Rejected(f'the Link header has no rel="{rel}": it names the {_NAMED[rel]}')
        channel = await self._known_channel(request, links["self"])
        return await self._publish_to(request, channel, in_address=True, status=200)

    async def _ping(self, request: HttpRequest, form: FormFields) -> Response:
        """WEBSUB 20: there is nothing to fetch, what a Source publishes here came with its POST."""
        for topic in parse_ping(form):
            await self._known_channel(request, topic)
        return Response(status_code=204)


_NAMED = {"self": "topic", "hub": "hub"}


def _refused(error: Rejected | TryAgain) -> Response:
    if isinstance(error, TryAgain):
        headers = {"retry-after": str(error.retry_after_seconds)}
    else:
        headers = error.headers
    return PlainTextResponse(f"{error.detail}\n", error.status, headers)
