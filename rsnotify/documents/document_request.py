"""Finds the set that a request is about, and checks that the peer may read it; reads its query."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from starlette.requests import Request

from rsnotify.documents.lists import ListHead
from rsnotify.documents.responses import DocumentInfo
from rsnotify.errors import BecamePrivate
from rsnotify.journal.hub import Hub
from rsnotify.journal.query import Query, parse_query
from rsnotify.journal.set_options import SetRecord
from rsnotify.registry.access import Access
from rsnotify.registry.base_url import BaseUrl
from rsnotify.resourcesync.forms import DOCUMENT_FORMS, Form, wanted_form
from rsnotify.resourcesync.notification import capability_list


class RequestedSet(NamedTuple):
    """A set that the peer may read, in which form, and the base URL for links in the answer."""

    record: SetRecord
    base: str
    form: Form
    find: Callable[[str], SetRecord]  # the set as it is at that moment

    @property
    def name(self) -> str:
        return self.record.name

    def info(
        self, tag: str, modified: int, *, is_fixed: bool = False, head: ListHead | None = None
    ) -> DocumentInfo:
        """Describes a document of this set, whose content is chosen by now."""
        if self.find(self.name).private > self.record.private:
            raise BecamePrivate(self.name)  # and the content may be what came afterwards
        link = self.base + capability_list(self.name)
        return DocumentInfo(tag, modified, is_fixed, self.record.private, link, self.form, head)


class SetAdmission:
    """Admits requests to sets."""

    def __init__(self, hub: Hub, access: Access, base_url: BaseUrl) -> None:
        self._hub = hub
        self._access = access
        self._base_url = base_url

    async def admit(self, request: Request, forms: Sequence[Form] = DOCUMENT_FORMS) -> RequestedSet:
        name = request.path_params["set"]
        await self._access.require_reader(request, name, self._hub.sets.get(name))
        record = self._hub.record(name)
        base, form = self._base_url.base(request), form_of(request, forms)
        return RequestedSet(record, base, form, self._hub.record)


def query_of(request: Request, known: Sequence[str]) -> Query:
    """The query of the address; a parameter that is not known here is refused."""
    return parse_query(request.scope["query_string"], known)


def form_of(request: Request, forms: Sequence[Form] = DOCUMENT_FORMS) -> Form:
    accept = ",".join(request.headers.getlist("accept"))
    return wanted_form(accept, request.query_params.get("format"), forms)
