"""Publish changes to a hub: each exactly once, however often the network fails.

Rules that hold here: every request carries an idempotency key, and is repeated with it until the
hub has answered.
"""

import secrets
from collections.abc import Sequence

import msgspec

from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.notification import Kind
from rsnotify_client.connection import Connection

PLACES = {"change": "changes", "framework": "framework"}


class Accepted(msgspec.Struct, frozen=True):
    """The hub has made the changes durable; they stand in `(from_, until]`."""

    accepted: int
    from_: str = msgspec.field(name="from")
    until: str


class Publisher(Connection):
    """Publishes to the sets that its token allows."""

    async def publish(
        self,
        set_name: str,
        changes: Sequence[Change],
        *,
        kind: Kind = "change",
        key: str | None = None,
    ) -> Accepted:
        """Publish these changes together: all are accepted, or none."""
        body = msgspec.json.encode(changes)
        return await self.publish_body(set_name, body, "application/json", kind=kind, key=key)

    async def publish_body(
        self,
        set_name: str,
        body: bytes,
        content_type: str,
        *,
        kind: Kind = "change",
        key: str | None = None,
    ) -> Accepted:
        """Publish changes in any form that the hub reads, of resources or of the framework."""
        headers = {"Content-Type": content_type, "Idempotency-Key": key or secrets.token_hex(16)}
        path = f"/api/sets/{set_name}/{PLACES[kind]}"
        answer = await self.ask("POST", path, body=body, headers=headers)
        return msgspec.convert(answer, Accepted)
