"""Whether a subscriber may still read: what was allowed when it subscribed may be forbidden now.

The hub knows of a change to a set no later than of any change published after it; whether tokens
were revoked is asked about once a second.
"""

from collections.abc import Collection

from rsnotify.journal.hub import Hub
from rsnotify.registry.tokens import Tokens
from rsnotify.websub.subscription import Subscription

NO_SET = "this hub no longer serves the topic"
PRIVATE = "the topic has become private"
REVOKED = "the token that the subscription was made with has been revoked"


class Rights:
    """What is known of the rights at this moment."""

    def __init__(self, hub: Hub, tokens: Tokens) -> None:
        self._hub = hub
        self._tokens = tokens
        self._revoked: set[str] = set()

    async def ask(self, tokens: Collection[str]) -> None:
        """Ask Redis whether these tokens of subscriptions have been revoked."""
        self._revoked |= await self._tokens.revoked([token for token in tokens if token])

    def why_not(self, subscription: Subscription) -> str | None:
        """Why the subscriber may not read any more; None if it may."""
        kept = self._hub.sets.get(subscription.set_name)
        if kept is None:
            return NO_SET
        if kept.private and not subscription.by_token:
            return PRIVATE
        return REVOKED if subscription.token in self._revoked else None
