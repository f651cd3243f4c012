"""Inspects a whole Source: discovery in each of its forms, documents, channels, samples.

Rules that hold here: a form of discovery that is not used is no violation; one that leads nowhere
is. Each channel is opened for a moment only.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.document_rules import Violation, Violations, check
from rsnotify.resourcesync.stream import DocumentStream
from rsnotify.resourcesync.tables import CHANNELS
from rsnotify.resourcesync.xml_reader import parse_document
from rsnotify_client.address import joined
from rsnotify_client.discovery import (
    WELL_KNOWN,
    all_linked,
    http_twin,
    linked,
    linked_in_html,
    one_step,
    sitemaps_of,
)
from rsnotify_client.network import Network
from rsnotify_client.notification import (
    Channel,
    Lost,
    Messages,
    Received,
    Renewed,
    read_notification,
)
from rsnotify_client.token import Token
from rsnotify_client.web import FetchedPage, Unpacker, Web
from rsnotify_mirror.inspection.contents import Contents, Found
from rsnotify_mirror.inspection.documents import Documents, Packages, Report
from rsnotify_mirror.inspection.relations import (
    NamedChannel,
    capability_of,
    channels_in,
    intervals_apart,
    named_in,
)
from rsnotify_mirror.inspection.samples import (
    TOKEN_NEEDED,
    Asking,
    Bounds,
    Checked,
    Samples,
    chosen,
)
from rsnotify_mirror.inspection.samples import linked as linked_resources

SOCKETS = ("ws://", "wss://")


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
    advice = "Serve the channel, or name it no longer."
    return Violation(CHANNELS[capability], "/", detail, advice)


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
    for relation, stated in (("self", (named.url,)), ("hub", named.hubs)):
        found = [joined(page.url, each) for each in all_linked(header, relation)]
        if not found:
            message = f'the answer has no Link with rel="{relation}"'
            yield Violation(clause, "/", message, f'Send Link: <…>; rel="{relation}".')
        elif stated and not {*stated} & {*found}:
            message = f"its {relation} is {found[0]}, the Capability List says {stated[0]}"
            yield Violation(clause, "/", message, "Let both say the same.")
    if page.body:
        yield from _of_payload(named.capability, page.body)


def _of_payload(capability: str, payload: bytes) -> Violations:
    yield from check(payload)
    with suppress(Rejected):  # `check` has said so
        stated = capability_of(parse_document(payload))
        if stated and stated != capability:
            message = f"the channel of {capability} sends a {stated}"
            yield Violation(CHANNELS[capability], "/urlset/rs:md/@capability", message, "Send one.")


# A WebSocket ------------------------------------------------------------------------------------


async def _socket(web: Web, capability: str, url: str, bounds: Bounds) -> list[Violation]:
    from rsnotify_client.live import open_channel  # noqa: PLC0415 - slow

    async with open_channel(web, url, None, ("websocket", "sse")) as channel:
        payloads = await _heard(channel, bounds)
        found = [each for payload in payloads for each in _of_payload(capability, payload)]
        return found + list(_apart(channel.begins, payloads))


async def _heard(channel: Channel, bounds: Bounds) -> list[bytes]:
    """What the channel sends in a moment."""
    payloads: list[bytes] = []
    with suppress(TimeoutError, Renewed):
        async with asyncio.timeout(bounds.listen_seconds):
            async for payload in channel.payloads:
                if isinstance(payload, Messages):
                    continue  # it has no XML
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


ROBOTS = "/robots.txt"
NOT_USED = "not used"
ADVICE = f"Serve the Source Description at {WELL_KNOWN}, or link to the Capability List."


def begins_a_document(body: bytes) -> bool:
    """Whether this is the beginning of a document, packed or not."""
    stream = DocumentStream()
    with suppress(Rejected):
        for piece in Unpacker().feed(body):
            stream.feed(piece)
    return stream.has_head


async def begin(web: Web, documents: Documents, url: str, report: Report) -> list[Checked]:
    """Let the documents begin where any form of discovery leads to; what became of each form.

    `TryAgain` or `Rejected` if the address itself gives no answer, or what a mirror refuses.
    """
    url = http_twin(url)
    page = await web.page(url)
    described, robots = joined(url, WELL_KNOWN), joined(url, ROBOTS)
    description = None if await _body(web, described) is None else described
    maps = sitemaps_of((await _body(web, robots) or b"").decode(errors="replace"))
    leads_on = not urlsplit(url).path.strip("/") and (description or maps)
    if page.status != 200 and not leads_on and (set_there := (await one_step(web, url)).found):
        page = await web.page(set_there.url)
    is_there = page.status == 200 and begins_a_document(page.body)
    if is_there:
        documents.begin_at(page.url)
    header = linked(page.headers.get("link", ""), "resourcesync")
    is_html = "html" in page.headers.get("content-type", "")
    element = linked_in_html(page.body.decode(errors="replace")) if is_html else None
    forms: list[tuple[str, str, Sequence[str | None], str, str]] = [
        ("discovery by Link", page.url, [header], "", f"Link of {page.url}"),
        ("discovery by <link>", page.url, [element], "", f"<link> of {page.url}"),
        ("discovery", described, [description], "description", "discovery"),
        ("discovery", robots, maps, "", robots),
    ]
    found = []
    for kind, where, hrefs, capability, namer in forms:
        there = [joined(where, each) for each in hrefs if each is not None]
        for each in there:
            documents.begin_at(each, capability, namer=namer)
        found.append(Checked(where, kind, note=None if there else NOT_USED))
    if not is_there and all(each.note for each in found):
        message = f"neither {url} itself, its links, {WELL_KNOWN} nor {ROBOTS} lead anywhere"
        wrong = Violation("Core 6.3", "/", message, ADVICE)
        found.append(Checked(url, "discovery", violations=[wrong]))
    for checked in found:
        report(checked)
    return found


async def _body(web: Web, url: str) -> bytes | None:
    with suppress(Rejected, TryAgain):
        page = await web.page(url)
        return page.body if page.status == 200 else None
    return None


class Inspection(msgspec.Struct):
    """All that was looked at, and what was not, because of the bounds."""

    site: str
    checked: list[Checked]
    beyond: int = 0  # documents
    unchecked: list[str] = []

    @property
    def violations(self) -> int:
        return sum(len(each.violations) for each in self.checked)

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong, and all could be judged."""
        return not self.violations and not self.unchecked


async def inspect(
    url: str,
    *,
    token: Token | None = None,
    bounds: Bounds | None = None,
    network: Network | None = None,
    report: Report = lambda _: None,
) -> Inspection:
    """The Source that the address leads to; `report` hears of each step as it is done.

    Raises `Rejected` or `TryAgain` if the address itself cannot be read.
    """
    bounds = bounds or Bounds()
    async with Web(token, url, network=network) as web:
        walk = await _walked(web, url, bounds, report)
        if walk.documents.relations:
            await asyncio.sleep(bounds.pause_seconds)
            again = await _walked(web, url, bounds, report)
            again.keep_only(walk.documents.relations)
            walk = again
        documents, checked = walk.documents, walk.checked()
        channels = (checked_channel(web, each, bounds) for each in _channels(documents))
        checked += await asyncio.gather(*channels)
        samples = Samples(documents.asking, _change_lists(documents), bounds)
        checked += await samples.check(chosen(documents.samples, bounds.samples), report)
        links = linked_resources(documents.links, bounds.links)
        checked += await samples.check_links(links, report)
    return Inspection(url, checked, documents.beyond, _unchecked(walk, checked))


class _Walk(NamedTuple):
    """A Source's documents and packages, as they were read one after another."""

    begun: list[Checked]
    documents: Documents
    packages: Sequence[Checked]
    unopened: int

    def keep_only(self, before: Sequence[Found]) -> None:
        """A Source changes while it is looked at: what does not fit twice is wrong."""
        known = {(url, each.clause, each.path) for url, each in before}
        relations = self.documents.relations
        relations[:] = [
            (url, each) for url, each in relations if (url, each.clause, each.path) in known
        ]

    def checked(self) -> list[Checked]:
        found = {each.document: each for each in self.packages} | self.documents.checked
        for url, violation in self.documents.relations:
            found[url].violations.append(violation)
        return [*self.begun, *self.documents.checked.values(), *self.packages]


async def _walked(web: Web, url: str, bounds: Bounds, report: Report) -> _Walk:
    with Contents() as contents:
        documents = Documents(Asking(web), bounds, report, contents)
        begun = await begin(web, documents, url, report)
        await documents.walk()
        packages = Packages(documents, contents, bounds)
        checked = await packages.check()
        documents.look_at_all()
    return _Walk(begun, documents, checked, packages.unopened)


def _counted(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def _unchecked(walk: _Walk, checked: Sequence[Checked]) -> list[str]:
    """What could not be judged, and why."""
    found = [
        f"{each.document}: {each.error.removeprefix(f'{each.document}: ')}"
        for each in checked
        if each.error
    ]
    if walk.documents.beyond:
        count = _counted(walk.documents.beyond, "document")
        found.append(f"{count} beyond the limits: see --documents")
    if walk.unopened:
        found.append(f"{_counted(walk.unopened, 'package')} not opened: see --packages")
    return found


def _channels(documents: Documents) -> Iterable[NamedChannel]:
    return dict.fromkeys(
        each for url, document in documents.read.items() for each in channels_in(url, document)
    )


def _change_lists(documents: Documents) -> list[str]:
    """What Capability Lists name as such."""
    named = (
        each
        for url, document in documents.read.items()
        if (document.md and document.md.capability) == "capabilitylist"
        for each in named_in(url, document)
    )
    return list(dict.fromkeys(each.url for each in named if each.capability == "changelist"))
