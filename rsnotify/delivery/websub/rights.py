"""Who may still be told: what was allowed when somebody subscribed may be forbidden by now.

Rules that hold here: what a set is now is the hub's to say, which knows it no later than any change
published since; tokens are asked about once a second. Nothing here delivers or ends anything.
"""

from collections.abc import Collection

from rsnotify.core.websub.subscription import Record
from rsnotify.hub import Hub
from rsnotify.storage.tokens import Tokens

NO_SET = "this hub no longer serves the topic"
PRIVATE = "the topic has become private"
REVOKED = "the token that the subscription was made with has been revoked"


class Rights:
    """What is known of them at this moment."""

    def __init__(self, hub: Hub, tokens: Tokens) -> None:
        self._hub = hub
        self._tokens = tokens
        self._revoked: set[str] = set()

    async def ask(self, tokens: Collection[str]) -> None:
        """Whether these tokens, with which subscriptions were made, have been revoked."""
        self._revoked |= await self._tokens.revoked([token for token in tokens if token])

    def why_not(self, record: Record) -> str | None:
        """Why the subscriber may not be told any more; None if it may."""
        kept = self._hub.sets.get(record.set_name)
        if kept is None:
            return NO_SET
        if kept.private and not record.by_token:
            return PRIVATE
        return REVOKED if record.token in self._revoked else None
