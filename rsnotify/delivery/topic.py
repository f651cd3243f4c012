"""The WebSub topic URL: GET and HEAD on a channel's path, for discovery.

The status is always 200. The body is the newest notification, byte for byte, and empty before the
first one (RESOURCESYNC 1.4 a; WEBSUB 21).
"""

from starlette.requests import Request
from starlette.responses import Response

from rsnotify.access import Access
from rsnotify.base_url import BaseUrl
from rsnotify.core.websub.protocol import CONTENT_TYPE, render_links
from rsnotify.hub import Hub
from rsnotify.resourcesync.notification import FROM_HEADER, ChannelName


class Topic:
    """Answers GET and HEAD on every channel."""

    def __init__(self, hub: Hub, access: Access, origin: BaseUrl) -> None:
        self._hub = hub
        self._access = access
        self._origin = origin

    async def get(self, request: Request) -> Response:
        channel = ChannelName.named(**request.path_params)
        feed = self._hub.feed(channel)
        record = self._hub.record(channel.set_name)
        await self._access.require_reader(request, record)
        begins = feed.tail.head  # read first: a change in between is then told twice, not lost
        newest = await self._hub.latest(feed)
        return Response(
            b"" if newest is None else newest.payload,
            media_type=CONTENT_TYPE,
            headers={
                "Link": render_links(
                    channel, self._origin.base(request), record.own_topic(channel.kind)
                ),
                FROM_HEADER: str(begins),
            },
        )
