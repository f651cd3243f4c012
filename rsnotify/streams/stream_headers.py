"""The headers of a stream's answers: where it goes on, and what caches may keep.

What lies between two positions never changes, so it is kept as long as anything may be
(`access.caching`).
"""

from collections.abc import Mapping
from typing import NamedTuple

from rsnotify.access.caching import max_age
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, capability_list

NEWEST_SECONDS = 1  # of an answer that reaches the newest change, and of one without changes
NO_STORE = "no-store"
EMPTY = b"[]"


class Chunk(NamedTuple):
    """The part `(from_, until]` of a stream, as one answer has it."""

    from_: Position
    until: Position
    is_newest: bool
    """Whether nothing that is known follows it."""


def cache_control(chunk: Chunk, now: int, *, is_private: bool) -> str:
    """What caches may keep of a chunk; `now` is in microseconds."""
    if is_private:
        return "private, no-cache"
    if chunk.is_newest:
        return f"public, max-age={NEWEST_SECONDS}"
    return f"public, {max_age(chunk.until, now)}"


def etag(created: str, chunk: Chunk, *, in_gzip: bool = False) -> str:
    """The entity tag of a chunk; another one for a set that was made again under its name."""
    made = int(Position.parse(created))
    tag = f'"{made:x}-{int(chunk.from_):x}-{int(chunk.until):x}"'
    return f"W/{tag}" if in_gzip else tag


def headers_of(channel: ChannelName, next_offset: Position, *, is_newest: bool) -> dict[str, str]:
    """What each answer of a stream says. The link is relative: caches share it between the names
    of a host."""
    up = ".." if channel.kind == "change" else "../.."
    headers = {
        "stream-next-offset": str(next_offset),
        "cross-origin-resource-policy": "cross-origin",
        "link": f'<{up}{capability_list(channel.set_name)}>; rel="resourcesync"',
    }
    return headers | ({"stream-up-to-date": "true"} if is_newest else {})


def vary(*, is_private: bool) -> Mapping[str, str]:
    return {"vary": "accept-encoding, authorization" if is_private else "accept-encoding"}
