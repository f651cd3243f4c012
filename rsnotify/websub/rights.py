"""Who may still read: whether the set is there and public, and which tokens have been revoked."""

from collections.abc import Collection

from rsnotify.access.tokens import Tokens
from rsnotify.live.journals import Journals
from rsnotify.websub.subscription import Subscription

NO_SET = "this hub no longer serves the topic"
PRIVATE = "the topic has become private"
NO_FILTERS = "the set no longer allows filters by type and collection"
REVOKED = "the token that the subscription was made with has been revoked"


REASONS = (NO_SET, PRIVATE, NO_FILTERS, REVOKED)


class Rights:
    """Who may read, as far as this process knows at the moment."""

    def __init__(self, journals: Journals, tokens: Tokens) -> None:
        self._journals = journals
        self._tokens = tokens
        self._revoked: set[str] = set()
        tokens.made.append(self._believe)

    async def ask(self, tokens: Collection[str]) -> None:
        """Ask Redis which of these have been revoked: the tokens of all subscriptions. What was
        asked before counts no more: a token may have been made again."""
        self._revoked = await self._tokens.revoked({token for token in tokens if token})

    def _believe(self, token: str) -> None:
        self._revoked.discard(token)

    def why_not(self, subscription: Subscription) -> str | None:
        """Why the subscriber may not read any more; None if it may."""
        kept = self._journals.sets.get(subscription.set_name)
        if kept is None:
            return NO_SET
        if kept.private and not subscription.by_token:
            return PRIVATE
        wanted = subscription.filter
        if wanted is not None and wanted.looks_back and not kept.filters:
            return NO_FILTERS
        return REVOKED if subscription.token in self._revoked else None

    def has_returned(self, subscription: Subscription, reason: str) -> bool:
        """Whether it lacked a right, and has it now: its callback has confirmed it with another
        token since, or what its set allows has changed again."""
        return reason in REASONS and self.why_not(subscription) is None
