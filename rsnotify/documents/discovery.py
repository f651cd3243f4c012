"""Discovery over HTTP: Source Description, Capability Lists in both versions, DCAT, robots.txt.

Of more sets than one Source Description may name there are several, with an index in its place.

Private sets are not in documents about all sets. A capability is listed as soon as its document
exists. Where the Source has a document of its own, it is listed instead of the hub's.
"""

import re
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import blake2b
from time import time
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from rsnotify.access.base_url import BaseUrl
from rsnotify.access.query import form_of
from rsnotify.documents import dcat
from rsnotify.documents.documents import (
    DescribedSets,
    Offered,
    capabilities,
    resource_list,
    robots,
    socket_capabilities,
    source_description,
    source_description_index,
)
from rsnotify.documents.responses import DocumentInfo, KeptDocuments, SetAdmission, query_of
from rsnotify.documents.snapshots import Snapshots
from rsnotify.errors import Rejected
from rsnotify.journal.window import Window
from rsnotify.journal.windows import Windows
from rsnotify.live.journals import Journals
from rsnotify.resourcesync.change import DAY, MICROSECONDS, Position
from rsnotify.resourcesync.forms import JSONLD, TURTLE, XML, Form
from rsnotify.resourcesync.json_writer import json_frame, render_entries_json, render_json
from rsnotify.resourcesync.notification import SOURCE_DESCRIPTION, ChannelName, capability_list
from rsnotify.resourcesync.tables import MAX_ENTRIES
from rsnotify.resourcesync.xml_writer import (
    Document,
    Md,
    close_root,
    escape,
    open_root,
    render_document,
    render_entries,
)
from rsnotify.sets.options import SetRecord
from rsnotify.single_flight import Costly, SingleFlight, kept_seconds, let_others_go_on, slices

KEPT_BYTES = 64 * 1024 * 1024  # of Source Descriptions, or the newest of them
FEW = 3_000  # sets, which one Source Description can name whatever addresses they have
_NUMBER = re.compile(r"[1-9][0-9]{0,8}").fullmatch


class Offers:
    """Finds out what sets offer."""

    def __init__(self, windows: Windows, snapshots: Snapshots, index_days: int) -> None:
        self._windows = windows
        self._snapshots = snapshots
        self._index_days = index_days

    async def of(self, record: SetRecord) -> Offered:
        snapshot = await self._snapshots.newest(record.name)
        archived_at = self._archived_at(await self._windows.oldest(record.name))
        taken = 0 if snapshot is None else snapshot.completed
        return Offered(
            record,
            has_resource_list=snapshot is not None,
            has_resource_list_archive=await self._snapshots.has_archive(record.name),
            has_change_list_archive=archived_at is not None,
            changed=Position(max(Position.parse(record.edited), taken, archived_at or 0)),
        )

    def _archived_at(self, oldest: Window | None) -> int | None:
        """Since when the set has an archive; None if it has none."""
        if oldest is None:
            return None
        left = oldest.until + self._index_days * DAY
        return left if left <= time() * MICROSECONDS else None


class PublicSets:
    """The public sets by name, as they are known now. They are put in order once for each revision
    of the sets, for all that name them."""

    def __init__(self, journals: Journals, most_described: int = MAX_ENTRIES) -> None:
        """`most_described`: sets that one Source Description names."""
        self._journals = journals
        self._most = most_described
        self._described = -1, DescribedSets(())  # of this revision of the sets

    @property
    def described(self) -> DescribedSets:
        """Their names, in as many Source Descriptions as they need."""
        revision = self._journals.known.revision
        if self._described[0] != revision:
            self._described = revision, DescribedSets.of(self._journals.sets.values(), self._most)
        return self._described[1]

    def records(self) -> list[SetRecord]:
        """All of them."""
        return self.still_public(self.described.names)

    def still_public(self, names: Iterable[str]) -> list[SetRecord]:
        """Of these, which were public a moment ago."""
        sets = self._journals.sets
        return [sets[name] for name in names if name in sets and not sets[name].private]

    def described_in(self, set_name: str) -> str:
        """The path of the Source Description that names a set."""
        has_one = len(self._journals.sets) <= min(self._most, FEW)  # which needs no order
        return SOURCE_DESCRIPTION if has_one else self.described.described_in(set_name)


BASE = "\ue000"  # in the place of the base URL: no address has this character


class Template(NamedTuple):
    """The description of one revision of the sets, in one form."""

    revision: int
    form: Form
    content: bytes
    digest: bytes
    changed: Position

    def tag(self, base: str) -> str:
        return blake2b(self.digest + base.encode(), digest_size=12).hexdigest()

    def write(self, base: str) -> bytes:
        """The document for this base URL."""
        written = escape(base) if self.form is XML else base  # a checked host needs no more
        return self.content.replace(BASE.encode(), written.encode())


class Descriptions:
    """Renders Source Descriptions, and what they are in DCAT."""

    def __init__(
        self, journals: Journals, sets: PublicSets, describedby: str | None, email: str | None
    ) -> None:
        self._journals = journals
        self._sets = sets
        self._describedby = describedby
        self._email = email
        self._rendering = SingleFlight[tuple[int, str, int], Template]("Source Description")
        self._templates: dict[tuple[str, int], Template] = {}  # by form and number

    async def template(self, form: Form, number: int = 0) -> Template:
        """The description of the sets as they are known now, or this one of several."""
        revision, kept = self._journals.known.revision, self._templates.get((form.name, number))
        if kept is not None and kept.revision == revision:
            return kept
        key = revision, form.name, number
        return await self._rendering.result(key, lambda: self._render(form, number))

    async def _render(self, form: Form, number: int) -> Template:
        revision, changed = self._journals.known.revision, self._journals.known.changed
        is_catalog = form in (TURTLE, JSONLD)
        content = await (self._catalog(form) if is_catalog else self._description(form, number))
        digest = blake2b(content, digest_size=12).digest()
        template = Template(revision, form, content, digest, changed)
        is_new = {key: kept for key, kept in self._templates.items() if kept.revision == revision}
        self._templates = {**is_new, (form.name, number): template}
        return template

    async def _catalog(self, form: Form) -> bytes:
        hub = dcat.catalog(BASE, self._journals.known.changed, self._email)
        parts = dcat.render_things([hub], form)
        for some in slices(self._sets.records()):
            for record in some:
                parts += dcat.render_things(dcat.listed(BASE, record), form)
            await let_others_go_on()
        return b"".join((dcat.head(form), dcat.between(form).join(parts), dcat.foot(form)))

    async def _description(self, form: Form, number: int) -> bytes:
        described, about = self._sets.described, self._describedby
        if described.parts > 1 and not number:
            index = source_description_index(BASE, described.parts, about)
            return render_document(index) if form is XML else render_json(index)
        frame = source_description(BASE, (), about, is_part=number > 0)
        parts = []
        for names in slices(described.part(number or 1)):
            some = self._sets.still_public(names)  # others may have gone meanwhile
            entries = source_description(BASE, some, None).entries
            is_xml = form is XML
            parts.append(
                render_entries(frame.root, entries) if is_xml else render_entries_json(entries)
            )
            await let_others_go_on()
        if form is XML:
            head, foot = open_root(frame.root, frame.links, frame.md), close_root(frame.root)
            between = b""
        else:
            head, foot = json_frame(frame.md or Md(), frame.links, "documents")
            between = b",\n"
        return b"".join((head, between.join(parts), foot))


def _asked(request: Request, form: Form) -> Form:
    """This form, of a document that has no other at its address."""
    query_of(request, ("access_token",))
    return form


class Discovery:
    """The documents with which a Destination starts."""

    def __init__(
        self,
        journals: Journals,
        admission: SetAdmission,
        base_url: BaseUrl,
        offers: Offers,
        sets: PublicSets,
        snapshots: Snapshots,
        *,
        describedby: str | None,
        email: str | None = None,
        seconds_kept: Callable[[int], float] = kept_seconds,
    ) -> None:
        """`seconds_kept`: for how long what was made of so many sets is kept."""
        self._journals = journals
        self._sets = sets
        self._seconds_kept = seconds_kept
        self._admission = admission
        self._base_url = base_url
        self._offers = offers
        self._snapshots = snapshots
        self._email = email
        self._descriptions = Descriptions(journals, sets, describedby, email)
        self._kept_descriptions = KeptDocuments(KEPT_BYTES)
        self._kept = KeptDocuments(0)  # the newest: each is written for its tag, kept or not
        self._robots = Costly[str]("robots.txt")

    async def description(self, request: Request) -> Response:
        """The Source Description, or the index of several."""
        return await self._described(request, form_of(request))

    async def description_part(self, request: Request) -> Response:
        """One of several Source Descriptions."""
        found, parts = _NUMBER(request.path_params["part"]), self._sets.described.parts
        if found is None or not 1 < parts >= int(found[0]):
            words = f"there is no such Source Description: see {SOURCE_DESCRIPTION}"
            raise Rejected(words, status=404)
        return await self._described(request, form_of(request), int(found[0]))

    async def _described(self, request: Request, form: Form, number: int = 0) -> Response:
        base = self._base_url.base(request)
        template = await self._descriptions.template(form, number)
        info = DocumentInfo(template.tag(base), template.changed, form=form)
        write = partial(template.write, base)
        return await self._kept_descriptions.respond(request, info, write)

    async def capabilities(self, request: Request) -> Response:
        """The Capability List."""
        return await self._capability_list(request, capabilities)

    async def socket_capabilities(self, request: Request) -> Response:
        """The Capability List as version 0.8 has it, with ws:// addresses."""
        return await self._capability_list(request, socket_capabilities)

    async def catalog_turtle(self, request: Request) -> Response:
        """The hub and its public sets as a catalog of DCAT, in Turtle."""
        return await self._described(request, _asked(request, TURTLE))

    async def catalog_jsonld(self, request: Request) -> Response:
        """The hub and its public sets as a catalog of DCAT, in JSON-LD."""
        return await self._described(request, _asked(request, JSONLD))

    async def dataset_turtle(self, request: Request) -> Response:
        """A set as a dataset of DCAT, in Turtle."""
        return await self._dataset(request, _asked(request, TURTLE))

    async def dataset_jsonld(self, request: Request) -> Response:
        """A set as a dataset of DCAT, in JSON-LD."""
        return await self._dataset(request, _asked(request, JSONLD))

    async def _dataset(self, request: Request, form: Form) -> Response:
        requested = await self._admission.admit(request)
        offered = await self._offers.of(requested.record)
        head = await self._journals.head(ChannelName(requested.name, "change"))
        things = dcat.dataset(requested.base, offered, head, self._email)
        content = dcat.render(things, form)
        tag = blake2b(content, digest_size=12).hexdigest()
        info = requested._replace(form=form).info(tag, max(offered.changed, head))
        return await self._kept.respond(request, info, lambda: content)

    async def of_set(self, request: Request) -> Response:
        """The set itself: on to its Capability List; a browser goes to its page."""
        requested = await self._admission.admit(request)
        query = request.url.query
        address = capability_list(requested.name).removeprefix(
            "/"
        )  # beside this one, as any proxy has it
        return RedirectResponse(f"{address}?{query}" if query else address, 302)

    async def robots(self, request: Request) -> Response:
        """For crawlers."""
        base = self._base_url.base(request)
        key, work = f"{self._journals.known.revision} {base}", partial(self._write_robots, base)
        seconds = self._seconds_kept(len(self._journals.sets))
        return PlainTextResponse(await self._robots.result(key, work, seconds))

    async def _write_robots(self, base: str) -> str:
        """Write robots.txt, without the hub's Resource Lists whose records cannot be read."""
        found: list[str] = []
        for some in slices(self._sets.records()):
            newest = await self._snapshots.newest_of([record.name for record in some])
            found += [
                record.resourcelist or resource_list(record.name)
                for record in some
                if record.resourcelist or newest.get(record.name)
            ]
        return robots(base, found)

    async def _capability_list(
        self, request: Request, describe: Callable[[str, Offered, str], Document]
    ) -> Response:
        requested = await self._admission.admit(request)
        offered = await self._offers.of(requested.record)
        document = describe(requested.base, offered, self._sets.described_in(requested.name))
        tag = blake2b(render_document(document), digest_size=12).hexdigest()
        return await requested.document(self._kept, tag, offered.changed, lambda: document)
