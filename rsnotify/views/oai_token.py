"""Resumption tokens: which list a harvester reads, and where it goes on.

A token says all that is needed, so the hub keeps nothing. It is no secret, and whoever writes one
can ask for no more than whoever harvests; it is believed only where it fits the set as it is.
"""

import base64
import binascii
from typing import Annotated, NamedTuple

import msgspec

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import DAY, EARLIEST_SECOND, LATEST_SECOND, MICROSECONDS, Position
from rsnotify.resourcesync.xml_writer import escape
from rsnotify.views.listing import Listing, ListPlace
from rsnotify.views.oai_question import OaiFault

VERSION = 2
LIFETIME = DAY
TOKEN_CHARACTERS = 8 * 1024

_Moment = Annotated[
    int,
    msgspec.Meta(ge=EARLIEST_SECOND * MICROSECONDS, le=(LATEST_SECOND + 1) * MICROSECONDS - 1),
]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Resumption(NamedTuple):
    """What a token says."""

    listing: Listing
    place: ListPlace
    listed: int  # records on all pages before


class _Token(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: int
    verb: str
    set_name: str
    created: int
    issued: _Moment
    from_: _Moment | None
    until: _Moment | None
    begun: _Moment
    of_state: bool
    resources: _Count
    tombstones: _Moment | None
    shard: _Count | None
    loc: str
    change: _Moment
    listed: _Count


class OfList(NamedTuple):
    """The list that a token must be of."""

    verb: str
    set_name: str
    created: Position


def render_token(of: OfList, resumption: Resumption, now: Position) -> str:
    listing, place, listed = resumption
    token = _Token(
        VERSION,
        of.verb,
        of.set_name,
        int(of.created),
        int(now),
        listing.from_ and int(listing.from_),
        listing.until and int(listing.until),
        int(listing.begun),
        listing.of_state,
        listing.resources,
        listing.tombstones and int(listing.tombstones),
        place.shard,
        place.loc,
        int(place.change),
        listed,
    )
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def parse_token(text: str, of: OfList, now: Position, last: Position) -> Resumption:
    """What a token says; `OaiFault` if it is none, of another list, too old, or beyond `last`, the
    last position of the journal."""
    token = _decoded(text)
    if (token.verb, token.set_name) != of[:2]:
        raise bad_token("it is of another list")
    if token.created != of.created:
        raise bad_token("the set was removed and made again")
    if not -LIFETIME < now - token.issued < LIFETIME:
        raise bad_token(f"it has expired: a token lives {LIFETIME // DAY} day")
    if max(token.begun, token.change) > last:
        raise bad_token("it is of a moment that has not come")
    listing = Listing(
        _position(token.from_),
        _position(token.until),
        Position(token.begun),
        token.of_state,
        token.resources,
        _position(token.tombstones),
    )
    place = ListPlace(token.shard, token.loc, Position(token.change))
    return Resumption(listing, place, token.listed)


def bad_token(why: str) -> OaiFault:
    return OaiFault("badResumptionToken", f"{why}; begin the list anew")


def _decoded(text: str) -> _Token:
    try:
        if len(text) > TOKEN_CHARACTERS:
            raise ValueError
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        token = msgspec.json.decode(data, type=_Token)
        if token.version != VERSION:
            raise ValueError
        escape(token.loc)
    except (ValueError, binascii.Error, msgspec.DecodeError, Rejected):
        raise bad_token("it is none that this hub has given") from None
    return token


def _position(number: int | None) -> Position | None:
    return None if number is None else Position(number)
