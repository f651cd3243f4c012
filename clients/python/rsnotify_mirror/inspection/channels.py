"""Each channel of a Source, opened for a moment: its links, its notifications, their intervals."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.validation.document_rules import check
from rsnotify.resourcesync.validation.entry_rules import Violation, Violations
from rsnotify.resourcesync.validation.tables import CHANNELS
from rsnotify.resourcesync.xml_reader import parse_document
from rsnotify_client.address import joined
from rsnotify_client.channel import Channel, Lost
from rsnotify_client.discovery import all_linked
from rsnotify_client.notification import Received, read_notification
from rsnotify_client.web import FetchedPage, Web
from rsnotify_mirror.inspection.checked import Bounds, Checked
from rsnotify_mirror.inspection.relations import NamedChannel, capability_of, intervals_apart

SOCKETS = ("ws://", "wss://")
TOKEN_NEEDED = (401, 403)


async def checked_channel(web: Web, named: NamedChannel, bounds: Bounds) -> Checked:
    """What is wrong with a channel; as a WebSub topic, or as a WebSocket."""
    capability, url = named.capability, named.url
    checked = Checked(url, capability)
    try:
        if url.startswith(SOCKETS):
            checked.violations += await _socket(web, capability, url, bounds)
        else:
            checked.violations += _of_topic(named, await web.page(url, accept="application/xml"))
    except (Rejected, TryAgain) as error:
        if getattr(error, "status", None) in TOKEN_NEEDED:
            checked.error = error.detail
        else:
            checked.violations.append(_refused(capability, error.detail))
    except Lost as lost:
        checked.violations.append(_refused(capability, f"the connection ended: {lost}"))
    return checked


def _refused(capability: str, detail: str) -> Violation:
    mend = "Serve the channel, or name it no longer."
    return Violation(CHANNELS[capability], "/", detail, mend)


# A topic ----------------------------------------------------------------------------------------


def _of_topic(named: NamedChannel, page: FetchedPage) -> Violations:
    clause = CHANNELS[named.capability]
    if page.status in TOKEN_NEEDED:
        raise Rejected(f"{named.url}: a token is needed", status=page.status)
    if page.status != 200:
        message = f"the topic answers {page.status}"
        yield Violation(clause, "/", message, "Answer 200, with an empty body if there is nothing.")
        return
    header = page.headers.get("link", "")
    for relation, told in (("self", (named.url,)), ("hub", named.hubs)):
        found = [joined(page.url, each) for each in all_linked(header, relation)]
        if not found:
            message = f'the answer has no Link with rel="{relation}"'
            yield Violation(clause, "/", message, f'Send Link: <…>; rel="{relation}".')
        elif told and not {*told} & {*found}:
            message = f"its {relation} is {found[0]}, the Capability List says {told[0]}"
            yield Violation(clause, "/", message, "Let both say the same.")
    if page.body:
        yield from _of_payload(named.capability, page.body)


def _of_payload(capability: str, payload: bytes) -> Violations:
    yield from check(payload)
    with suppress(Rejected):  # `check` has said so
        told = capability_of(parse_document(payload))
        if told and told != capability:
            message = f"the channel of {capability} sends a {told}"
            yield Violation(CHANNELS[capability], "/urlset/rs:md/@capability", message, "Send one.")


# A WebSocket ------------------------------------------------------------------------------------


async def _socket(web: Web, capability: str, url: str, bounds: Bounds) -> list[Violation]:
    from rsnotify_client.live import open_channel  # noqa: PLC0415 - slow

    async with open_channel(web, url, None) as channel:
        payloads = await _heard(channel, bounds)
        found = [each for payload in payloads for each in _of_payload(capability, payload)]
        return found + list(_apart(channel.begins, payloads))


async def _heard(channel: Channel, bounds: Bounds) -> list[bytes]:
    """What the channel sends in a moment."""
    payloads: list[bytes] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(bounds.listen_seconds):
            async for payload in channel.payloads:
                payloads.append(payload if isinstance(payload, bytes) else payload.encode())
                if len(payloads) >= bounds.payloads:
                    break
    return payloads


def _apart(begins: Position | None, payloads: Sequence[bytes]) -> Violations:
    received: list[Received] = []
    with suppress(Rejected):  # `check` has said so
        for payload in payloads:
            received.append(read_notification(payload))  # noqa: PERF401 - what came before stays
    yield from intervals_apart(begins, received)
