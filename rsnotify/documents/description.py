"""The Source Description, which names every public set: rendered once for each change of the sets.

What is kept does not have its base URL yet, since anybody may ask by any name of the hub.
"""

from collections import OrderedDict
from hashlib import blake2b
from typing import NamedTuple

from rsnotify.costly import let_others_go_on, slices
from rsnotify.documents.capabilities import capabilities_of
from rsnotify.documents.documents import source_description
from rsnotify.documents.responses import Parts, gzipped
from rsnotify.http.forms import XML, Form
from rsnotify.journal.hub import Hub
from rsnotify.journal.set_options import SetRecord
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.json_writer import json_frame, render_entries_json
from rsnotify.resourcesync.xml_writer import Md, close_root, escape, open_root, render_entries
from rsnotify.single_flight import SingleFlight

BASE = "\ue000"  # in the place of the base URL: no address has this character
DOCUMENTS_KEPT = 8


class Template(NamedTuple):
    """The description of one revision of the sets, in one form."""

    revision: int
    form: Form
    content: bytes
    digest: bytes
    changed: Position

    def tag(self, base: str) -> str:
        return blake2b(self.digest + base.encode(), digest_size=12).hexdigest()


class KeptDescription:
    """Renders it, and keeps what was asked for lately."""

    def __init__(self, hub: Hub, describedby: str | None) -> None:
        self._hub = hub
        self._describedby = describedby
        self._rendering = SingleFlight[tuple[int, str], Template]("Source Description")
        self._templates: dict[str, Template] = {}  # by form
        self._documents: OrderedDict[tuple[str, str, bool], bytes] = OrderedDict()

    async def template(self, form: Form) -> Template:
        """Of the sets as they are known now."""
        revision, kept = self._hub.sets_revision, self._templates.get(form.name)
        if kept is not None and kept.revision == revision:
            return kept
        key = revision, form.name
        return await self._rendering.result(key, lambda: self._render(form))

    async def at(self, template: Template, base: str, in_gzip: bool) -> Parts:
        """The document for this base URL."""
        key = template.tag(base), template.form.name, in_gzip
        document = self._documents.pop(key, None)
        if document is None:
            written = escape(base) if template.form is XML else base
            document = template.content.replace(BASE.encode(), written.encode())
            document = await gzipped(document) if in_gzip else document
        self._documents[key] = document
        if len(self._documents) > DOCUMENTS_KEPT:
            self._documents.popitem(last=False)
        return [document]

    async def _render(self, form: Form) -> Template:
        revision, changed = self._hub.sets_revision, self._hub.sets_changed
        frame = source_description(BASE, (), self._describedby)
        parts = []
        for some in slices(public_sets(self._hub)):
            sets = [capabilities_of(record) for record in some]
            entries = source_description(BASE, sets, None).entries
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
        content = b"".join((head, between.join(parts), foot))
        digest = blake2b(content, digest_size=12).digest()
        template = Template(revision, form, content, digest, changed)
        self._templates[form.name] = template
        return template


def public_sets(hub: Hub) -> list[SetRecord]:
    """By name."""
    public = [record for record in hub.sets.values() if not record.private]
    return sorted(public, key=lambda record: record.name)
