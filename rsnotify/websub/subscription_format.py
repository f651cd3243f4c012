"""Subscriptions in Redis: their keys, how a record is written and read."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from rsnotify.journal import keys
from rsnotify.websub.subscription import PendingRequest, Progress, Subscription

RECORDED_AT_ONCE = 2_000  # Lua's unpack takes no more than some 8,000 values

PROGRESS = msgspec.json.Decoder(Progress)
SUBSCRIPTION = msgspec.json.Decoder(Subscription)
REQUEST = msgspec.json.Decoder(PendingRequest)


class Stored(NamedTuple):
    """A subscription as Redis has it."""

    subscription: Subscription
    progress: Progress


class ShareContent(NamedTuple):
    """What is in one share."""

    subscriptions: dict[str, Stored]
    requests: dict[str, PendingRequest]  # by id, oldest first


def share_keys(share: int, host: str = "") -> list[str]:
    """As subscriptions.lua wants them; `host` is whose pending requests are counted."""
    names = [("owner",), ("records",), ("progress",), ("requests",), ("latest",), ("host", host)]
    return [keys.of_share(share, *name) for name in [*names, ("ended",)]]


def digest(request: PendingRequest) -> str:
    """Equal requests have equal digests: the same request again is nothing new."""
    same = msgspec.structs.replace(request, asker="")
    return hashlib.sha256(msgspec.json.encode(same)).hexdigest()[:16]


def records_in_parts(progress: Mapping[str, Progress]) -> Iterator[list[str | bytes]]:
    """Each id with its progress, as many as one call of the script takes."""
    ids = list(progress)
    for at in range(0, len(ids), RECORDED_AT_ONCE):
        part = ids[at : at + RECORDED_AT_ONCE]
        yield [value for id_ in part for value in (id_, msgspec.json.encode(progress[id_]))]


def read_one(record: bytes | None, progress: bytes | None) -> Stored | None:
    if record is None or progress is None:
        return None
    return Stored(SUBSCRIPTION.decode(record), PROGRESS.decode(progress))


def read_subscriptions(
    records: Mapping[bytes, bytes], progress: Mapping[bytes, bytes]
) -> dict[str, Stored]:
    found = {id_.decode(): read_one(text, progress.get(id_)) for id_, text in records.items()}
    return {id_: stored for id_, stored in found.items() if stored is not None}


def read_requests(stored: Mapping[bytes, bytes]) -> dict[str, PendingRequest]:
    """The oldest first."""
    in_order = sorted(stored.items(), key=lambda item: int(item[1].partition(b" ")[0]))
    return {id_.decode(): REQUEST.decode(text.partition(b" ")[2]) for id_, text in in_order}
