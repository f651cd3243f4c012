"""Changes as activities: IIIF Change Discovery 1.0, which is a part of Activity Streams 2.0.

A collection names its last page, and each page the one before it. Within a page the oldest activity
stands first.
"""

import re
from collections.abc import Sequence
from html import unescape
from typing import Any

import msgspec

from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.forms import Form
from rsnotify.resourcesync.notification import Row
from rsnotify.sets.options import IiifType

CONTEXT = "http://iiif.io/api/discovery/1/context.json"
ACTIVITIES = Form("activities", f'application/ld+json;profile="{CONTEXT}"')
ACTIVITY = {b"created": "Create", b"updated": "Update", b"deleted": "Delete"}

_CHANGE = re.compile(
    rb'<url><loc>([^<]*)</loc>.*?<rs:md change="(created|updated|deleted)"', re.DOTALL
)


def render_collection(address: str, last: str) -> bytes:
    return _rendered(_collection(address) | {"last": _page(last)})


def render_page(
    address: str,
    collection: str,
    rows: Sequence[Row],
    kind: IiifType,
    **beside: str | None,
) -> bytes:
    """A page; `prev` and `next` are where those beside it are, if there are any."""
    links = {name: _page(there) for name, there in beside.items() if there is not None}
    items = [_activity(*row, kind) for row in rows]
    page = _page(address) | {"partOf": _collection(collection), **links, "orderedItems": items}
    return _rendered(page)


def _activity(at: Position, fragment: bytes, kind: IiifType) -> dict[str, Any]:
    found = _CHANGE.match(fragment)
    if found is None:
        raise ValueError(f"the change at {at} is none")
    loc = unescape(found[1].decode())
    return {
        "type": ACTIVITY[found[2]],
        "object": {"id": loc, "type": kind},
        "endTime": str(at),
    }


def _collection(address: str) -> dict[str, Any]:
    return {"id": address, "type": "OrderedCollection"}


def _page(address: str) -> dict[str, Any]:
    return {"id": address, "type": "OrderedCollectionPage"}


def _rendered(content: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"@context": CONTEXT} | content)
