"""What a stream answers, changes or that there are none: the same for all who have asked alike."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from time import time
from typing import NamedTuple

from rsnotify.http.endpoints import response_to
from rsnotify.live.feed import Feed
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.forms import JSON
from rsnotify.resourcesync.json_writer import entries_as_json
from rsnotify.resourcesync.notification import ChannelName, Notification
from rsnotify.streams.stream_headers import (
    EMPTY,
    NO_STORE,
    Chunk,
    cache_control,
    etag,
    headers_of,
)

Lines = tuple[tuple[bytes, bytes], ...]


class Variant(NamedTuple):
    """In what the answers differ for those who ask alike."""

    cors: Lines
    is_shared: bool  # by caches: the question was canonical


@lru_cache(maxsize=256)
def variant_of(cors: Lines, *, is_shared: bool) -> Variant:
    """One for all who are alike: thousands may wait."""
    return Variant(cors, is_shared)


class StreamReply(NamedTuple):
    """An answer to all who wait for the same; without `until` it refuses them."""

    status: int
    headers: Mapping[str, str]
    cache_control: str  # where caches may share it
    body: bytes = b""
    until: Position | None = None

    def headers_for(self, variant: Variant, cursor: int) -> Iterator[tuple[bytes, bytes]]:
        for name, value in self.headers.items():
            yield name.encode(), value.encode("latin-1")
        if self.until is not None:
            yield b"stream-cursor", b"%d" % cursor
        is_kept = variant.is_shared or self.cache_control.startswith("private")
        yield b"cache-control", (self.cache_control if is_kept else NO_STORE).encode()
        if self.status != 204:
            yield b"content-length", b"%d" % len(self.body)
        yield from variant.cors


def reply_with(feed: Feed, found: Notification, *, is_private: bool) -> StreamReply:
    """The answer with these changes to somebody who asked for what comes next."""
    chunk = Chunk(found.from_, found.until, is_newest=feed.is_newest(found.until))
    now = int(time() * MICROSECONDS)
    kept = cache_control(chunk._replace(is_newest=False), now, is_private=is_private)
    headers = {
        **headers_of(feed.channel, chunk.until, is_newest=chunk.is_newest),
        "content-type": JSON.media_type,
        "etag": etag(feed.created, chunk),
        **({"vary": "authorization"} if is_private else {}),
    }
    return StreamReply(200, headers, kept, messages_of(found), chunk.until)


def reply_without(channel: ChannelName, until: Position, *, is_private: bool) -> StreamReply:
    """The answer to somebody who has waited for nothing."""
    chunk = Chunk(until, until, is_newest=True)
    kept = cache_control(chunk, until, is_private=is_private)
    return StreamReply(204, headers_of(channel, until, is_newest=True), kept, until=until)


def refusal(error: Exception, path: str) -> StreamReply:
    response = response_to(error, path)
    headers = {
        name: value
        for name, value in response.headers.items()
        if name not in ("cache-control", "content-length")
    }
    return StreamReply(response.status_code, headers, NO_STORE, bytes(response.body))


def messages_of(found: Notification | None) -> bytes:
    """The changes as a stream has them: an array with one message for each."""
    return EMPTY if found is None else found.derived("chunk", _messages)


def _messages(found: Notification) -> bytes:
    return b"[%s]" % b",\n".join(entries_as_json(found.payload[found.entries]))
