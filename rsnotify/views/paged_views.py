"""The views that are made of pages of the journal, over HTTP: a feed, a collection of activities.

The newest document says where the newest changes are, and each page leads to the one before it.
"""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from rsnotify.documents.responses import KeptDocuments, RequestedSet, SetAdmission, query_of
from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Position
from rsnotify.sets.options import IiifType
from rsnotify.views.activities import ACTIVITIES, render_collection, render_page
from rsnotify.views.atom import ATOM, FeedHead, render_feed
from rsnotify.views.journal_pages import JournalPages
from rsnotify.views.view_answers import ViewAnswers

ASKED = ("access_token",)
NO_FEED = "the feed of the set {!r} is off: `rsnotify sets edit {} --atom` turns it on"
NO_ACTIVITIES = (
    "the set {!r} is no collection of IIIF: `rsnotify sets edit {} --iiif Manifest` says that its "
    "resources are manifests"
)


def feed_path(set_name: str) -> str:
    return f"/{set_name}/feed.atom"


def archive_path(set_name: str, from_: Position | str) -> str:
    """This path never changes."""
    return f"/{set_name}/feed/{from_}.atom"


def activities_path(set_name: str) -> str:
    return f"/{set_name}/activities"


def activities_page_path(set_name: str, from_: Position | str) -> str:
    """This path never changes."""
    return f"/{set_name}/activities/{from_}"


class FeedEndpoint:
    """The feeds of all sets."""

    def __init__(self, admission: SetAdmission, pages: JournalPages, answers: ViewAnswers) -> None:
        self._admission = admission
        self._pages = pages
        self._answers = answers
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
        head = _head(requested, page.newest, links, page.prev)._replace(is_archive=True)
        info = requested.info(page.tag, page.changed, is_fixed=page.is_fixed)
        return await self._kept.respond(request, info, partial(render_feed, head, page.rows))

    async def _admit(self, request: Request) -> RequestedSet:
        query_of(request, ASKED)
        requested = await self._admission.admit(request)
        if not requested.record.atom:
            raise Rejected(NO_FEED.format(requested.name, requested.name), status=404)
        self._answers["atom"] += 1
        return requested._replace(form=ATOM)


class ActivitiesEndpoint:
    """The collections of activities of those sets that are something to IIIF."""

    def __init__(self, admission: SetAdmission, pages: JournalPages, answers: ViewAnswers) -> None:
        self._admission = admission
        self._pages = pages
        self._answers = answers
        self._kept = KeptDocuments()

    async def collection(self, request: Request) -> Response:
        """A set's changes as a collection of activities, by IIIF Change Discovery."""
        requested, _ = await self._admit(request)
        found = await self._pages.newest(requested.name)
        base, name = requested.base, requested.name
        last = base + activities_page_path(name, found.last)
        render = partial(render_collection, base + activities_path(name), last)
        info = requested.info(f"{int(found.last):x}-collection", found.changed)
        return await self._kept.respond(request, info, render)

    async def page(self, request: Request) -> Response:
        """A page of a set's activities."""
        requested, kind = await self._admit(request)
        from_ = page_beginning(request.path_params["from_"])
        page = await self._pages.page(requested, from_)
        base, name = requested.base, requested.name

        def address(there: Position | None) -> str | None:
            return None if there is None else base + activities_page_path(name, there)

        render = partial(
            render_page,
            base + activities_page_path(name, from_),
            base + activities_path(name),
            page.rows,
            kind,
            prev=address(page.prev),
            next=address(page.next),
        )
        info = requested.info(f"{page.tag}-{kind}", page.changed, is_fixed=page.is_fixed)
        return await self._kept.respond(request, info, render)

    async def _admit(self, request: Request) -> tuple[RequestedSet, IiifType]:
        query_of(request, ASKED)
        requested = await self._admission.admit(request)
        kind = requested.record.iiif
        if kind is None:
            raise Rejected(NO_ACTIVITIES.format(requested.name, requested.name), status=404)
        self._answers["iiif"] += 1
        return requested._replace(form=ACTIVITIES), kind


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
