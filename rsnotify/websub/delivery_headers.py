"""The headers of a delivery: what it is, where more of it is, and who signed it."""

import base64
import hmac

from rsnotify.resourcesync.notification import ChannelName, Interval, Notification
from rsnotify.websub.rules import CONTENT_TYPE, render_index_link, render_links


def delivery_headers(
    owed: Notification,
    channel: ChannelName,
    base_url: str,
    *,
    secret: str | None,
    has_missed: bool,
    algorithm: str,
    timestamp: int,
    topic: str | None = None,
) -> dict[str, str]:
    """WEBSUB 21, 22 and 25; whoever has missed changes is led to the Change Lists.

    `topic`: what the Source calls the channel, if that is what was subscribed to.
    """
    headers = owed.derived(  # the same for all subscribers of a topic
        f"websub {topic or ''}",
        lambda owed: {
            "Content-Type": CONTENT_TYPE,
            "Link": render_links(channel, base_url, topic),
            "webhook-id": notification_id(channel, Interval(owed.from_, owed.until)),
        },
    )
    if has_missed and channel.kind == "change":
        headers = headers | {"Link": f"{headers['Link']}, {render_index_link(channel, base_url)}"}
    return headers | signing_headers(
        secret,
        owed.payload,
        algorithm=algorithm,
        webhook_id=headers["webhook-id"],
        timestamp=timestamp,
    )


def notification_id(channel: ChannelName, interval: Interval) -> str:
    """The same for every repetition. Standard Webhooks wants no full stop in it."""
    set_name = channel.set_name.replace(".", "~")
    return f"{set_name}-{channel.kind}-{int(interval.from_)}-{int(interval.until)}"


def signing_headers(
    secret: str | None, body: bytes, *, algorithm: str, webhook_id: str, timestamp: int
) -> dict[str, str]:
    """WEBSUB 25: signed only if a secret was given; the Standard Webhooks headers beside it."""
    headers = {"webhook-id": webhook_id, "webhook-timestamp": str(timestamp)}
    if secret is not None:
        key = secret.encode()
        digest = hmac.digest(key, f"{webhook_id}.{timestamp}.".encode() + body, "sha256")
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
        headers["X-Hub-Signature"] = f"{algorithm}={hmac.digest(key, body, algorithm).hex()}"
    return headers
