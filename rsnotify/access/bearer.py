"""Who has sent a token that counts, and what that token may do: one of ours, or a JWT.

It is found once for a request, and handed on. Nothing here knows where in a request the token was,
or how it was found.
"""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple, Protocol

import msgspec

from rsnotify.access.tokens import Right
from rsnotify.errors import Rejected
from rsnotify.sets.options import SetRecord


class RightsOfToken(Protocol):
    """What a token may do: one of ours, or a JWT."""

    def key_of(self, secret: str) -> str: ...

    def may(self, right: Right, set_name: str) -> bool: ...

    def names(self, set_name: str) -> bool: ...


class RightsShown(msgspec.Struct, frozen=True):
    """What a request may do with one set, and whether it comes from the admin."""

    admin: bool
    publish: bool
    read: bool


class Bearer(NamedTuple):
    """Who has sent a token that counts."""

    secret: str
    token: RightsOfToken | None  # None: the admin token, which may do everything
    until: float = inf  # so long is this believed, by the clock of `Access`

    @property
    def is_admin(self) -> bool:
        return self.token is None

    @property
    def key(self) -> str:
        """What identifies the token later; empty for the admin token, which never ends."""
        return "" if self.token is None else self.token.key_of(self.secret)

    def may(self, right: Right, set_name: str) -> bool:
        return self.token is None or self.token.may(right, set_name)

    def names(self, set_name: str) -> bool:
        """Whether it may do anything with the set, and so may know that there is one."""
        return self.token is None or self.token.names(set_name)

    def require(self, right: Right, set_name: str) -> None:
        if not self.may(right, set_name):
            detail = f"the token has no right to {right} {set_name!r}"
            raise Rejected(detail, status=403)


def visible_to(bearer: Bearer | None, sets: Iterable[SetRecord]) -> list[SetRecord]:
    """Those that it may know of: public ones, and those that its token names."""
    if bearer is None:
        return [each for each in sets if not each.private]
    return [each for each in sets if not each.private or bearer.names(each.name)]


def rights_of(bearer: Bearer | None, set_name: str, *, is_private: bool) -> RightsShown:
    """The rights to a set; one that does not exist is judged as a private one."""
    if bearer is None:
        return RightsShown(admin=False, publish=False, read=not is_private)
    may_read = not is_private or bearer.may("read", set_name)
    return RightsShown(bearer.is_admin, bearer.may("publish", set_name), may_read)
