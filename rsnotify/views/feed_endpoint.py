"""A set's changes as an Atom feed over HTTP: the newest ones, and archives of those before."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from rsnotify.documents.responses import KeptDocuments, RequestedSet, SetAdmission, query_of
from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Position
from rsnotify.views.atom import ATOM, FeedHead, render_feed
from rsnotify.views.journal_pages import JournalPages

ASKED = ("access_token",)
OFF = "the feed of the set {!r} is off: `rsnotify sets edit {} --atom` turns it on"


def feed_path(set_name: str) -> str:
    return f"/{set_name}/feed.atom"


def archive_path(set_name: str, from_: Position | str) -> str:
    """This path never changes."""
    return f"/{set_name}/feed/{from_}.atom"


class FeedEndpoint:
    """The feeds of all sets."""

    def __init__(self, admission: SetAdmission, pages: JournalPages) -> None:
        self._admission = admission
        self._pages = pages
        self._kept = KeptDocuments()

    async def newest(self, request: Request) -> Response:
        """A set's newest changes as an Atom feed."""
        requested = await self._admit(request)
        found = await self._pages.newest(requested.name)
        links = {"self": requested.base + feed_path(requested.name)}
        head = _head(requested, found.head, links, found.full)
        info = requested.info(f"{int(found.head):x}-{int(found.full or 0):x}", found.changed)
        return await self._kept.respond(request, info, partial(render_feed, head, found.rows))

    async def archive(self, request: Request) -> Response:
        """A page of a set's changes as an Atom feed."""
        requested = await self._admit(request)
        from_ = page_beginning(request.path_params["from_"])
        page = await self._pages.page(requested, from_)
        links = {
            "self": requested.base + archive_path(requested.name, from_),
            "current": requested.base + feed_path(requested.name),
        }
        newest = page.rows[-1][0] if page.rows else from_
        head = _head(requested, newest, links, page.prev)._replace(is_archive=True)
        tag = f"{int(from_):x}-{int(newest):x}-{int(page.prev or 0):x}"
        info = requested.info(tag, page.changed, is_fixed=page.is_fixed)
        return await self._kept.respond(request, info, partial(render_feed, head, page.rows))

    async def _admit(self, request: Request) -> RequestedSet:
        query_of(request, ASKED)
        requested = await self._admission.admit(request)
        if not requested.record.atom:
            raise Rejected(OFF.format(requested.name, requested.name), status=404)
        return requested._replace(form=ATOM)


def page_beginning(text: str) -> Position:
    """The position in the address of a page, which can be written in one way only."""
    try:
        found = Position.parse(text)
    except (ValueError, OverflowError):
        found = None
    if found is None or str(found) != text:
        raise Rejected(f"no page begins at {text[:80]!r}", status=404)
    return found


def _head(
    requested: RequestedSet, updated: Position, links: dict[str, str], prev: Position | None
) -> FeedHead:
    if prev is not None:
        links["prev-archive"] = requested.base + archive_path(requested.name, prev)
    feed = requested.base + feed_path(requested.name)
    return FeedHead(feed, requested.name, updated, links)
