"""`POST /hub`: where peers subscribe and unsubscribe, and where Sources may publish.

A malformed request is answered at once with one sentence (WEBSUB 12), a well-formed one with 202
whatever becomes of it (WEBSUB 11, 13): only its callback learns that. No callback is called here.
"""

from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response

from rsnotify.access import Access
from rsnotify.base_url import BaseUrl
from rsnotify.core.set_options import channel_of_own_topic
from rsnotify.core.websub.addresses import literal_address, refusal
from rsnotify.core.websub.protocol import (
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
from rsnotify.core.websub.subscription import PendingRequest
from rsnotify.errors import Rejected, TryAgain
from rsnotify.hub import Hub
from rsnotify.intake.publishing import Intake, read_body
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.storage.subscriptions import Subscriptions

UNKNOWN_TOPIC = "this hub does not serve the topic"


class WebSubEndpoint:
    """The hub URI."""

    def __init__(
        self,
        hub: Hub,
        access: Access,
        intake: Intake,
        store: Subscriptions,
        base_url: BaseUrl,
        *,
        callback_private: bool,
        lease_seconds: int,
    ) -> None:
        self._hub = hub
        self._access = access
        self._intake = intake
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
                return self._ping(request, form)
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
        """The request to keep, or its denial (WEBSUB 15); the answer is the same (WEBSUB 13)."""
        channel = self._channel(request, asked.topic)
        asker = self._base_url.asker(request)
        record = None if channel is None else self._hub.sets.get(channel.set_name)
        if channel is None or record is None:
            return PendingRequest(
                order="denied",
                topic=asked.topic,
                callback=asked.callback,
                reason=UNKNOWN_TOPIC,
                asker=asker,
            )
        token = ""
        if asked.mode == "subscribe":
            token = await self._access.require_reader(request, record)
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
            asker=asker,
        )

    def _channel(self, request: HttpRequest, topic: str) -> ChannelName | None:
        """By one of the hub's own addresses, or by what its Source calls it."""
        ours = channel_of(topic, self._bases(request))
        return ours or channel_of_own_topic(self._hub.sets.values(), topic)

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
        channel = self._channel(request, links["self"])
        if channel is None:
            raise Rejected(f"{UNKNOWN_TOPIC} {links['self'][:200]!r}", status=404)
        return await self._intake.publish(request, channel, in_address=True, status=200)

    def _ping(self, request: HttpRequest, form: FormFields) -> Response:
        """WEBSUB 20: there is nothing to fetch, what a Source publishes here came with its POST."""
        for topic in parse_ping(form):
            channel = self._channel(request, topic)
            if channel is None or channel.set_name not in self._hub.sets:
                raise Rejected(f"{UNKNOWN_TOPIC} {topic[:200]!r}", status=404)
        return Response(status_code=204)


_NAMED = {"self": "topic", "hub": "hub"}


def _refused(error: Rejected | TryAgain) -> Response:
    if isinstance(error, TryAgain):
        headers = {"retry-after": str(error.retry_after_seconds)}
    else:
        headers = error.headers
    return PlainTextResponse(f"{error.detail}\n", error.status, headers)
