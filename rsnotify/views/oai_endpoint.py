"""OAI-PMH over HTTP: a set of the hub is a repository, and its resources are the items.

A page is made whole before it is sent, so no list is broken off. Only some pages are made at once,
whoever asks: the others wait, and are then asked to come again. The protocol knows no page without
records: where nothing has been found for long, a redirect leads to where the list goes on.
"""

from typing import NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from rsnotify.access.access import Access
from rsnotify.access.base_url import BaseUrl
from rsnotify.documents.responses import gzipped
from rsnotify.errors import Rejected
from rsnotify.http.endpoints import read_body
from rsnotify.live.journals import Journals
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.forms import accepts_gzip
from rsnotify.resourcesync.notification import capability_list
from rsnotify.resourcesync.xml_writer import escape
from rsnotify.sets.options import SetRecord
from rsnotify.single_flight import AtOnce
from rsnotify.views.harvests import Harvests, HistoryLost
from rsnotify.views.listing import Listing
from rsnotify.views.oai_answers import (
    NOT_ECHOED,
    NextPage,
    render_answer,
    render_fault,
    render_formats,
    render_identity,
    render_list,
    render_one,
)
from rsnotify.views.oai_question import (
    NO_HARVESTING,
    OaiFault,
    OaiQuestion,
    check_served,
    parse_arguments,
    parse_question,
)
from rsnotify.views.oai_token import (
    LIFETIME,
    OfList,
    Resumption,
    bad_token,
    parse_token,
    render_token,
)
from rsnotify.views.view_answers import ViewAnswers

FORM_BYTES = 16 * 1024
AT_ONCE = 4  # pages that are made
FULL = "too many others harvest; try again later"
FORM = "application/x-www-form-urlencoded"
OFF = "OAI-PMH is off at this hub: its operator turns it on with RSNOTIFY_ADMIN_EMAIL"
OFF_FOR_SET = "OAI-PMH is off for the set {!r}: `rsnotify sets edit {} --oai` turns it on"
NOTHING = "the set has no records"
NOTHING_IN_TIME = "nothing has changed within this time"
NOTHING_MORE = "what was left of the list has changed since then: nothing more is in it"
ANEW = "harvest all of it, without `from`"


class GoesOn(Exception):
    """Much was looked at, and nothing found yet: the list goes on with these arguments."""

    def __init__(self, verb: str, token: str) -> None:
        super().__init__("the list goes on elsewhere")
        self.arguments = {"verb": verb, "resumptionToken": token}


class HarvestedSet(NamedTuple):
    """A set that the peer may harvest, as it was when that was decided."""

    record: SetRecord
    base_url: str  # of the repository
    up: str  # its Capability List

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def created(self) -> Position:
        return Position.parse(self.record.created)


def oai_path(set_name: str) -> str:
    return f"/{set_name}/oai"


class OaiEndpoint:
    """The repositories of all sets."""

    def __init__(
        self,
        journals: Journals,
        access: Access,
        base_url: BaseUrl,
        harvests: Harvests,
        admin_email: str | None,
        answers: ViewAnswers,
    ) -> None:
        self._journals = journals
        self._access = access
        self._base_url = base_url
        self._harvests = harvests
        self._admin_email = admin_email
        self._answers = answers
        self._made = AtOnce(AT_ONCE, FULL)

    async def get(self, request: Request) -> Response:
        """A set as an OAI-PMH repository."""
        return await self._respond(request, request.scope["query_string"])

    async def post(self, request: Request) -> Response:
        """A set as an OAI-PMH repository; the arguments come in a form."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != FORM:
            raise Rejected(f"the body of OAI-PMH is a form: send {FORM}", status=415)
        return await self._respond(request, await read_body(request, FORM_BYTES))

    # --- answers ---------------------------------------------------------------------------------

    async def _respond(self, request: Request, sent: bytes) -> Response:
        harvested = await self._admit(request)
        question = None
        async with self._made.turn():
            date = await self._harvests.settled(harvested.name)
            try:
                question = parse_question(parse_arguments(sent))
                check_served(question)
                content = await self._content(harvested, question)
            except OaiFault as fault:
                content = render_fault(fault)
                question = None if fault.code in NOT_ECHOED else question
            except GoesOn as found:
                self._journals.require_unchanged(harvested.record)
                return _redirect(request, harvested, found)
            self._journals.require_unchanged(harvested.record)
            document = render_answer(harvested.base_url, date, content, question)
        self._answers["oai"] += 1
        return await self._response(request, harvested, document)

    async def _admit(self, request: Request) -> HarvestedSet:
        name = request.path_params["set"]
        await self._access.require_reader(request, name, self._journals.sets.get(name))
        record = self._journals.record(name)
        if self._admin_email is None:
            raise Rejected(OFF, status=404)
        if not record.oai:
            raise Rejected(OFF_FOR_SET.format(name, name), status=404)
        base = self._base_url.base(request)
        return HarvestedSet(record, base + oai_path(name), base + capability_list(name))

    async def _response(
        self, request: Request, harvested: HarvestedSet, document: bytes
    ) -> Response:
        headers = _headers(harvested)
        if accepts_gzip(request.headers.get("accept-encoding")):
            document = await gzipped(document)
            headers["content-encoding"] = "gzip"
        return Response(document, headers=headers, media_type="text/xml; charset=utf-8")

    async def _content(self, harvested: HarvestedSet, question: OaiQuestion) -> bytes:
        match question.verb:
            case "Identify":
                forgets = await self._harvests.forgets(harvested.name)
                email, created = self._admin_email or "", harvested.created
                return render_identity(
                    harvested.name, harvested.base_url, email, created, forgets=forgets
                )
            case "ListSets":
                raise _no_sets(question)
            case "ListMetadataFormats":
                await self._check_identifier(harvested, question)
                return render_formats()
            case "GetRecord":
                return await self._record(harvested, question.identifier or "")
        return await self._list(harvested, question)

    # --- records ---------------------------------------------------------------------------------

    async def _record(self, harvested: HarvestedSet, identifier: str) -> bytes:
        found = await self._harvests.one(harvested.name, escape(identifier).encode())
        if found is None:
            raise OaiFault("idDoesNotExist", "no resource has this identifier, or it was deleted")
        return render_one(found)

    async def _check_identifier(self, harvested: HarvestedSet, question: OaiQuestion) -> None:
        if question.identifier is not None:
            await self._record(harvested, question.identifier)

    async def _list(self, harvested: HarvestedSet, question: OaiQuestion) -> bytes:
        of = OfList(question.verb, harvested.name, harvested.created)
        now = await self._harvests.now()
        begun = await self._begun(of, question, now)
        try:
            page = await self._harvests.page(of.set_name, begun.listing, begun.place)
        except HistoryLost as lost:
            raise _lost(question, lost) from None
        listing, listed, said = begun.listing, begun.listed, None
        if page.next is not None:
            resumption = Resumption(listing, page.next, listed + len(page.found))
            token = render_token(of, resumption, now)
            if not page.found:
                raise GoesOn(question.verb, token)
            said = NextPage(token, listed, listing.size, Position(now + LIFETIME))
        elif not page.found:
            raise OaiFault("noRecordsMatch", NOTHING_MORE if listed else _nothing_in(listing))
        elif question.token is not None:
            said = NextPage("", listed, listing.size)
        return render_list(question.verb, page.found, said)

    async def _begun(self, of: OfList, question: OaiQuestion, now: Position) -> Resumption:
        """Where the list begins, or goes on."""
        if question.token is not None:
            last = await self._harvests.last(of.set_name)
            return parse_token(question.token, of, now, last)
        try:
            listing, place = await self._harvests.begin(of.set_name, question.from_, question.until)
        except HistoryLost as lost:
            raise _lost(question, lost) from None
        return Resumption(listing, place, 0)


def _headers(harvested: HarvestedSet) -> dict[str, str]:
    is_private = harvested.record.private
    return {
        "cache-control": "private, no-cache" if is_private else "public, no-cache",
        "vary": "accept-encoding, authorization" if is_private else "accept-encoding",
        "link": f'<{harvested.up}>; rel="resourcesync"',
    }


def _redirect(request: Request, harvested: HarvestedSet, found: GoesOn) -> Response:
    """To where a list goes on: with `GET`, and with what the hub itself was told in the query."""
    sent = request.query_params
    kept = {name: sent[name] for name in NO_HARVESTING if name in sent}
    asked = urlencode(found.arguments | kept)
    return Response(b"", 302, _headers(harvested) | {"location": f"{harvested.base_url}?{asked}"})


def _no_sets(question: OaiQuestion) -> OaiFault:
    if question.token is not None:
        return bad_token("a set of the hub has no sets in it")
    return OaiFault("noSetHierarchy", "a set of the hub has no sets in it")


def _nothing_in(listing: Listing) -> str:
    return NOTHING if listing.from_ is None and listing.until is None else NOTHING_IN_TIME


def _lost(question: OaiQuestion, lost: HistoryLost) -> OaiFault:
    if question.token is not None:
        return bad_token(str(lost))
    return OaiFault("badArgument", f"{lost}: {ANEW}")
