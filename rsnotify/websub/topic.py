"""The WebSub topic URL: GET and HEAD on a channel's path, for discovery.

The status is 200 whether there is a notification or not. The body is the newest notification, byte
for byte, and empty before the first one (WEBSUB 21); in JSON, an empty interval. The body is never
older than what was acknowledged or delivered before the request, by any hub process.
"""

from time import time

from starlette.requests import Request
from starlette.responses import Response

from rsnotify.journal.hub import Hub
from rsnotify.journal.query import CHANNEL, check_not_future, parse_query, parse_start
from rsnotify.journal.set_options import SetRecord
from rsnotify.registry.access import Access
from rsnotify.registry.base_url import BaseUrl
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.forms import DOCUMENT_FORMS, JSON, XML, Form, wanted_form
from rsnotify.resourcesync.json_writer import render_empty_json, render_notification_json
from rsnotify.resourcesync.notification import FROM_HEADER, ChannelName, Notification
from rsnotify.websub.rules import render_links


class Topic:
    """Answers GET and HEAD on every channel."""

    def __init__(self, hub: Hub, access: Access, base_url: BaseUrl) -> None:
        self._hub = hub
        self._access = access
        self._base_url = base_url

    async def get(self, request: Request) -> Response:
        channel = ChannelName.named(**request.path_params)
        await self._record_to_read(request, channel)
        feed = self._hub.feed(channel)
        after = parse_start(parse_query(request.scope["query_string"], CHANNEL))  # only checked
        begins = feed.tail.head  # read first: a change in between must not be lost
        newest = await self._hub.latest(feed)
        record = await self._record_to_read(request, channel)  # it may have become private
        if after is not None:
            check_not_future(after, feed.tail.head, int(time() * MICROSECONDS))
        form = _form(request)
        return Response(
            _body(channel, newest, begins, form),
            media_type=form.media_type,
            headers={
                "Link": render_links(
                    channel, self._base_url.base(request), record.own_topic(channel.kind)
                ),
                "Vary": "accept",
                FROM_HEADER: str(begins if newest is None else newest.until),
            },
        )

    async def _record_to_read(self, request: Request, channel: ChannelName) -> SetRecord:
        """The set as it is now, if the peer may read it."""
        name = channel.set_name
        await self._access.require_reader(request, name, self._hub.sets.get(name))
        return self._hub.record(name)


def _form(request: Request) -> Form:
    accept = ",".join(request.headers.getlist("accept"))
    return wanted_form(accept, request.query_params.get("format"), DOCUMENT_FORMS)


def _body(channel: ChannelName, newest: Notification | None, begins: Position, form: Form) -> bytes:
    if form is XML:
        return b"" if newest is None else newest.payload
    if newest is None:
        return render_empty_json(channel.capability, begins)
    return newest.derived(JSON.name, render_notification_json)
