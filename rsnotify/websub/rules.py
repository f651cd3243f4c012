"""The rules of WebSub that need no socket: requests, verification, links, signatures, waits.

The numbers are those of a hub's duties in `docs/reference/websub-conformance.md`. What a stranger
wrote is checked before anything is done with it, and every length of it has a cap.
"""

import base64
import hmac
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit
from zlib import crc32

from rsnotify.errors import Rejected
from rsnotify.resourcesync.notification import (
    CHANNEL_PATH,
    KINDS,
    ChannelName,
    Interval,
    Notification,
    capability_list,
    change_list_index,
)

FORM_MEDIA_TYPE = "application/x-www-form-urlencoded"
CONTENT_TYPE = "application/xml"  # of a topic and of its notifications alike (WEBSUB 21)

FORM_BYTES = 16 * 1024  # callback and topic at their longest, each character escaped
FORM_FIELDS = 100
URL_CHARACTERS = 2048  # of a topic or a callback: longer ones are attacks on proxies and logs
SECRET_BYTES = 200  # WEBSUB 2: fewer than this
LEASE_MAX_SECONDS = 31 * 24 * 3600  # WEBSUB 18; ResourceSync recommends no more
REASON_CHARACTERS = 200
LINK_CHARACTERS = 8 * 1024

Mode = Literal["subscribe", "unsubscribe"]
PostedMode = Mode | Literal["publish"]
FormFields = Mapping[str, Sequence[str]]

_MODES: Mapping[str, PostedMode] = {
    "subscribe": "subscribe",
    "unsubscribe": "unsubscribe",
    "publish": "publish",
}
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")  # a name, or what stood in brackets
_CHANNEL = re.compile(
    CHANNEL_PATH.format(
        set="(?P<set>[a-z0-9][a-z0-9._-]{0,63})", kind=f"(?P<kind>{'|'.join(KINDS)})"
    )
)
_LINK = re.compile(r"<(?P<href>[^<>]*)>(?P<parameters>(?:\s*;[^,;\"]*(?:\"[^\"]*\")?)*)")
_REL = re.compile(r";\s*rel\s*=\s*(?:\"([^\"]*)\"|([^\s;,\"]+))", re.IGNORECASE)


class SubscriptionRequest(NamedTuple):
    """A well-formed request to subscribe or unsubscribe."""

    mode: Mode
    topic: str
    callback: str
    secret: str | None
    lease_seconds: int | None


def parse_form(body: bytes) -> FormFields:
    """WEBSUB 1: form fields in UTF-8; each name may come several times."""
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, errors="strict", max_num_fields=FORM_FIELDS
        )
    except UnicodeDecodeError:
        raise Rejected("the form is not UTF-8") from None
    except ValueError as error:
        raise Rejected(f"the form cannot be read: {error}") from None
    fields = defaultdict(list)
    for name, value in pairs:
        fields[name].append(value)
    return fields


def parse_mode(form: FormFields) -> PostedMode:
    """WEBSUB 3, and 20 for `publish`."""
    given = _the(form, "hub.mode")
    mode = _MODES.get(given)
    if mode is None:
        raise Rejected(f"hub.mode is subscribe, unsubscribe or publish, not {given[:80]!r}")
    return mode


def parse_subscription_request(form: FormFields, mode: Mode) -> SubscriptionRequest:
    """WEBSUB 1 to 5: known fields must be well formed, unknown ones are ignored."""
    return SubscriptionRequest(
        mode,
        checked_url("hub.topic", _the(form, "hub.topic")),
        checked_url("hub.callback", _the(form, "hub.callback")),
        _secret(form) if mode == "subscribe" else None,
        _lease_seconds(form) if mode == "subscribe" else None,
    )


def parse_ping(form: FormFields) -> list[str]:
    """WEBSUB 20: the topics of a ping, in either spelling, repeated or not."""
    topics = [*form.get("hub.url", ()), *form.get("hub.topic", ())]
    if not topics:
        raise Rejected("hub.url is missing: it names the topic that has changed")
    return topics


def _the(form: FormFields, name: str) -> str:
    values = form.get(name, ())
    if len(values) != 1 or not values[0]:
        raise Rejected(f"{name} is {'given more than once' if len(values) > 1 else 'missing'}")
    return values[0]


def checked_url(name: str, text: str) -> str:
    """An address that a stranger has sent, if it is one of http or https."""
    if len(text) > URL_CHARACTERS:
        raise Rejected(f"{name} is longer than {URL_CHARACTERS} characters")
    try:
        parts = urlsplit(text)
        host = _HOST.fullmatch(parts.hostname or "")
        usable = parts.scheme in ("http", "https") and host is not None and parts.port != 0
    except ValueError:
        usable = False
    if not usable or _VISIBLE.fullmatch(text) is None or "\\" in text:
        raise Rejected(f"{name} is not an http or https URL: {text[:80]!r}")
    if "#" in text:
        raise Rejected(f"{name} has a fragment; remove it, no request can carry one")
    return text


def _secret(form: FormFields) -> str | None:
    values = form.get("hub.secret", ())
    if not any(values):
        return None
    secret = _the(form, "hub.secret")
    if len(secret.encode()) >= SECRET_BYTES:
        raise Rejected(f"hub.secret must be shorter than {SECRET_BYTES} bytes")
    return secret


def _lease_seconds(form: FormFields) -> int | None:
    """WEBSUB 4 and 18: as requested, up to the longest lease."""
    if "hub.lease_seconds" not in form:
        return None
    text = _the(form, "hub.lease_seconds")
    if not (text.isascii() and text.isdecimal()) or not text.strip("0"):
        raise Rejected("hub.lease_seconds is a positive whole number of seconds")
    return min(int(text.lstrip("0")[:10]), LEASE_MAX_SECONDS)


# --- topics and callbacks ------------------------------------------------------------------------


def channel_of(topic: str, bases: Iterable[str]) -> ChannelName | None:
    """The channel whose topic URI this is, under one of the hub's own addresses (WEBSUB 8)."""
    for base in bases:
        if topic[: len(base)].lower() == base.lower():
            found = _CHANNEL.fullmatch(unquote(topic[len(base) :]))
            if found:
                return ChannelName(found["set"], found["kind"])  # type: ignore[arg-type]
    return None


def own_topic(channel: ChannelName, topic: str) -> str | None:
    """The topic subscribed to, if it is not one of the hub's own names for the channel."""
    return None if unquote(topic).endswith(channel.path) else topic


def hostname_of(url: str) -> str:
    return urlsplit(url).hostname or ""


def authority(url: str) -> str:
    """Host and port: what the limits per host count."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def verification_url(
    callback: str, mode: str, topic: str, challenge: str, lease_seconds: int
) -> str:
    """WEBSUB 16."""
    fields = {"hub.mode": mode, "hub.topic": topic, "hub.challenge": challenge}
    if mode == "subscribe":
        fields["hub.lease_seconds"] = str(lease_seconds)
    return _with_query(callback, fields)


def denial_url(callback: str, topic: str, reason: str) -> str:
    """WEBSUB 15."""
    fields = {"hub.mode": "denied", "hub.topic": topic, "hub.reason": reason[:REASON_CHARACTERS]}
    return _with_query(callback, fields)


def _with_query(callback: str, fields: Mapping[str, str]) -> str:
    """WEBSUB 10: the query of the callback stays, ours is appended."""
    joint = "?" if "?" not in callback else "" if callback[-1] in "?&" else "&"
    return callback + joint + urlencode(fields)


# --- links ---------------------------------------------------------------------------------------


def render_links(channel: ChannelName, base_url: str, topic: str | None = None) -> str:
    """WEBSUB 22: self and hub in one header; ResourceSync adds where the set is described.

    `topic`: what the Source calls the channel, if it has a name of its own.
    """
    return (
        f'<{topic or base_url + channel.path}>; rel="self", <{base_url}/hub>; rel="hub", '
        f'<{base_url}{capability_list(channel.set_name)}>; rel="resourcesync"'
    )


def render_index_link(channel: ChannelName, base_url: str) -> str:
    """Where a Destination finds the changes that it has missed."""
    return f'<{base_url}{change_list_index(channel.set_name)}>; rel="index"'


def parse_links(header: str) -> dict[str, str]:
    """The first target of each relation in a `Link` header."""
    links: dict[str, str] = {}
    for link in _LINK.finditer(header[:LINK_CHARACTERS]):
        rel = _REL.search(link["parameters"])
        for name in (rel[1] or rel[2] or "").lower().split() if rel else ():
            links.setdefault(name, link["href"])
    return links


# --- headers of a notification ------------------------------------------------------------


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
    wanted: str = "",
) -> dict[str, str]:
    """WEBSUB 21, 22 and 25; a callback that has missed changes is led to the Change Lists.

    `topic`: what was subscribed to, if it is not the hub's own name for all of the channel.
    `wanted`: which changes, if not all.
    """
    headers = owed.derived(  # the same for all subscribers of a topic
        f"websub {topic or ''}",
        lambda owed: {
            "Content-Type": CONTENT_TYPE,
            "Link": render_links(channel, base_url, topic),
            "webhook-id": notification_id(channel, Interval(owed.from_, owed.until), wanted),
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


def notification_id(channel: ChannelName, interval: Interval, wanted: str = "") -> str:
    """The same for every repetition, and for nothing else that a callback may get. Standard
    Webhooks wants no full stop in it."""
    set_name = channel.set_name.replace(".", "~")
    part = f"-{crc32(wanted.encode()):x}" if wanted else ""
    return f"{set_name}-{channel.kind}-{int(interval.from_)}-{int(interval.until)}{part}"


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


# --- when a callback is called again -------------------------------------------------------------

WAITS = (5, 30, 2 * 60, 10 * 60, 30 * 60, 2 * 3600, 6 * 3600)
VERIFICATION_WAITS = (1, 5, 25)  # only while nothing accepts the connection
LONGEST_RETRY_AFTER = 24 * 3600

JITTER = 0.2


def wait_seconds(attempt: int, chance: float) -> float:
    """How long to wait after failure number `attempt` (1 is the first); `chance` is in [0, 1).

    >>> [wait_seconds(attempt, 0) for attempt in (1, 2, 7, 99)]
    [5.0, 30.0, 21600.0, 21600.0]
    """
    return WAITS[min(attempt, len(WAITS)) - 1] * (1 + JITTER * chance)
