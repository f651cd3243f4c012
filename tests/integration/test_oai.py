"""OAI-PMH over a real Redis: harvests under changes, and what becomes of them when a set does."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import urlencode

import pytest
from lxml import etree
from msgspec.structs import replace

from rsnotify.access.access import Access
from rsnotify.access.base_url import BaseUrl
from rsnotify.access.tokens import Token, Tokens
from rsnotify.process.app import build_app, oai_routes
from rsnotify.resourcesync.change import MICROSECONDS, Change, Link, Position
from rsnotify.sets.options import SetOptions
from rsnotify.views.harvests import Harvests
from rsnotify.views.known_resources import KnownResources
from rsnotify.views.oai_answers import datestamp
from rsnotify.views.oai_endpoint import AT_ONCE, FORM_BYTES, OaiEndpoint
from rsnotify.views.oai_token import LIFETIME
from rsnotify.views.view_answers import ViewAnswers
from tests.support.amount import enough
from tests.support.faults import Losing, out_of_memory
from tests.support.loading import Loading, ndjson
from tests.support.pulling import BASE, CHANGES, SET, Answer, Pulling, loc
from tests.support.running import TOKEN, until

EMAIL = "admin@hub.example.org"
SCHEMAS = Path(__file__).parents[1] / "specification" / "schemas"
SCHEMA = etree.XMLSchema(etree.parse(SCHEMAS / "wrapper-oai.xsd"))
OAI = {"o": "http://www.openarchives.org/OAI/2.0/", "dc": "http://purl.org/dc/elements/1.1/"}


class Record(NamedTuple):
    """What a harvester knows of one."""

    identifier: str
    datestamp: str
    is_deleted: bool
    words: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, element: etree._Element) -> Self:
        header = element if element.tag.endswith("}header") else element[0]
        words = element.xpath(".//dc:*", namespaces=OAI)
        return cls(
            header.findtext("o:identifier", namespaces=OAI),
            header.findtext("o:datestamp", namespaces=OAI),
            header.get("status") == "deleted",
            tuple((etree.QName(each).localname, each.text) for each in words),
        )


class Page(NamedTuple):
    """One answer, valid by the schema of the protocol."""

    root: etree._Element

    @classmethod
    def of(cls, body: bytes) -> Self:
        root = etree.fromstring(body)
        SCHEMA.assertValid(root)
        return cls(root)

    def text(self, path: str) -> str | None:
        return self.root.findtext(path, namespaces=OAI)

    @property
    def error(self) -> str | None:
        found = self.root.find("o:error", namespaces=OAI)
        return None if found is None else found.get("code")

    @property
    def words(self) -> str:
        return self.text("o:error") or ""

    @property
    def date(self) -> str:
        return self.text("o:responseDate") or ""

    @property
    def records(self) -> list[Record]:
        found = self.root.xpath("o:*/o:record | o:ListIdentifiers/o:header", namespaces=OAI)
        return [Record.of(each) for each in found]

    @property
    def token(self) -> str | None:
        return self.text("o:*/o:resumptionToken") or None


class Repository:
    """The endpoint of one hub, asked as a harvester asks."""

    def __init__(
        self, pulling: Pulling, resources: KnownResources | None = None, **page: int
    ) -> None:
        self.pulling = pulling
        resources = resources or KnownResources(pulling.client)
        harvests = Harvests(
            pulling.hub, pulling.windows, resources, pulling.schedule.period, **page
        )
        access = Access(Tokens(pulling.client), TOKEN)
        self.redirects = 0
        self.app = build_app(
            oai_routes(
                OaiEndpoint(pulling.hub, access, BaseUrl(BASE), harvests, EMAIL, ViewAnswers())
            )
        )

    async def answer(self, set_name: str = SET, **asked: str) -> Answer:
        return await self.pulling.get(f"/{set_name}/oai?{urlencode(asked)}", app=self.app)

    async def ask(self, verb: str, set_name: str = SET, **asked: str) -> Page:
        answer = await self.answer(set_name, verb=verb, **named(asked))
        while answer.status == 302:
            self.redirects += 1
            answer = await self.pulling.get(path_of(answer.headers["location"]), app=self.app)
        assert answer.status == 200, answer.body
        assert len(answer.body) < 1_048_576
        return Page.of(answer.body)

    async def list(self, verb: str = "ListRecords", **asked: str) -> AsyncIterator[Page]:
        page = await self.ask(verb, metadataPrefix="oai_dc", **asked)
        yield page
        while page.token is not None:
            page = await self.ask(verb, resumptionToken=page.token)
            yield page


def path_of(url: str) -> str:
    assert url.startswith(f"{BASE}/{SET}/oai?")
    return url.removeprefix(BASE)


def named(asked: dict[str, str]) -> dict[str, str]:
    return {name.rstrip("_"): value for name, value in asked.items()}


@pytest.fixture
def repository(pulling: Pulling) -> Repository:
    return Repository(pulling, page_records=7)


class Copy:
    """What a harvester holds."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.records: dict[str, Record] = {}
        self.since: str | None = None

    async def harvest(self, *, date_of: int = 0) -> AsyncIterator[Page]:
        """Goes on at the time of one page of the list: the first, or the last one."""
        asked = {} if self.since is None else {"from_": self.since}
        dates = []
        async for page in self.repository.list(**asked):
            dates.append(page.date)
            assert page.error in (None, "noRecordsMatch"), page.words
            for record in page.records:
                assert self.since is None or record.datestamp >= self.since
                if record.is_deleted:
                    self.records.pop(record.identifier, None)
                else:
                    self.records[record.identifier] = record
            yield page
        self.since = dates[date_of]

    async def catch_up(self) -> None:
        async for _ in self.harvest():
            pass


class World:
    """A set that changes by chance, and what it must hold."""

    def __init__(self, pulling: Pulling, seed: int) -> None:
        self.pulling = pulling
        self.random = random.Random(seed)
        self.state: dict[str, str] = {}

    async def change(self, count: int) -> None:
        for _ in range(count):
            name = loc(str(self.random.randrange(60)))
            gone = name in self.state and self.random.random() < 0.3
            kind = "deleted" if gone else "updated" if name in self.state else "created"
            at = await self.pulling.publish(Change(name, kind))
            self.state[name] = datestamp(at.until)
            if gone:
                del self.state[name]


@pytest.mark.parametrize("seed", enough(range(8), 1))
@pytest.mark.parametrize("date_of", [0, -1], ids=["first", "last"])
async def test_a_harvest_under_changes_and_what_follows_end_in_the_state(
    pulling, repository, seed, date_of
):
    """Whichever answer's time the next harvest begins at; the stream is cut behind it at times."""
    world, copy = World(pulling, seed), Copy(repository)
    await world.change(50)
    for _ in range(4):
        async for _ in copy.harvest(date_of=date_of):
            await world.change(world.random.randrange(4))
        if world.random.random() < 0.5:
            await pulling.keep_windows()
            await pulling.let_go_of_all()
        await world.change(world.random.randrange(20))
    await copy.catch_up()
    assert {each.identifier: each.datestamp for each in copy.records.values()} == world.state


async def test_a_list_is_read_in_pages_and_each_resource_stands_once_in_it(pulling, repository):
    await pulling.update(*(str(number) for number in range(30)))
    pages = [page async for page in repository.list()]
    assert [len(page.records) for page in pages] == [7, 7, 7, 7, 2]
    records = [record for page in pages for record in page.records]
    assert len({record.identifier for record in records}) == 30
    tokens = [page.root.find("o:*/o:resumptionToken", namespaces=OAI) for page in pages]
    assert [token.get("cursor") for token in tokens] == ["0", "7", "14", "21", "28"]
    assert {token.get("completeListSize") for token in tokens} == {"30"}
    assert tokens[-1].text is None
    assert [record async for page in repository.list("ListIdentifiers") for record in page.records]


async def test_what_comes_while_a_list_is_read_stands_once_in_it(pulling, repository):
    """Whether its shard of the state is listed already, or not."""
    await pulling.update(*(str(number) for number in range(30)))
    found, new = [], itertools.count(30)
    async for page in repository.list():
        found += [record.identifier for record in page.records]
        if len(found) < 30:
            await pulling.update(*(str(next(new)) for _ in range(3)))
    assert sorted(found) == sorted(loc(str(number)) for number in range(next(new)))


async def test_head_says_how_long_the_answer_to_get_is(pulling, repository):
    path = f"/{SET}/oai?verb=ListMetadataFormats"
    got = await pulling.get(path, app=repository.app)
    told = await pulling.get(path, method="HEAD", app=repository.app)
    lengths = [each.headers["content-length"] for each in (got, told)]
    assert lengths == [str(len(got.body))] * 2


async def test_a_list_that_ends_with_a_whole_page_has_no_page_after_it(pulling, repository):
    await pulling.update(*(str(number) for number in range(14)))
    assert [len(page.records) async for page in repository.list()] == [7, 7]


async def test_what_changed_twice_is_listed_where_it_changed_last(pulling, repository):
    first = await pulling.update("a", "b", "c")
    await pulling.publish(Change(loc("b"), "deleted"))
    last = await pulling.update("a")
    since = datestamp(first.from_)
    (page,) = [page async for page in repository.list(from_=since)]
    found = [(each.identifier, each.datestamp, each.is_deleted) for each in page.records]
    assert found[:2] == [
        (loc("c"), datestamp(first.until), False),
        (loc("b"), datestamp(last.from_), True),
    ]
    assert found[2:] == [(loc("a"), datestamp(last.until), False)]


@pytest.mark.parametrize("is_open", [False, True])
async def test_changes_of_one_second_at_the_end_of_a_page_are_all_listed(
    pulling, repository, is_open
):
    """`from` and `until` are both of the second of all of them."""
    at = await pulling.update(*(str(number) for number in range(20)))
    begin = Position(at.until // 1_000_000 * 1_000_000)
    assert at.from_ < begin or at.from_ // 1_000_000 == at.until // 1_000_000
    asked = {"from_": datestamp(at.from_), "until": datestamp(at.until)}
    if is_open:
        del asked["until"]
    records = [each async for page in repository.list(**asked) for each in page.records]
    assert [each.identifier for each in records] == [loc(str(number)) for number in range(20)]


@pytest.mark.parametrize("is_trimmed", [False, True])
async def test_a_range_has_exactly_the_records_that_changed_last_within_it(client, is_trimmed):
    """Of every first and last second that there can be; each record once."""
    async with Pulling(client, changes=8) as pulling:
        repository, chosen = Repository(pulling, page_records=7), random.Random(1)
        last: dict[str, tuple[str, bool]] = {}
        for _ in range(3):
            for _ in range(25):
                name = loc(str(chosen.randrange(40)))
                gone = not last.get(name, ("", True))[1] and chosen.random() < 0.4
                at = await pulling.publish(Change(name, "deleted" if gone else "updated"))
                last[name] = datestamp(at.until), gone
            await in_a_later_second(pulling, at.until)
        if is_trimmed:
            await pulling.keep_windows()
            await pulling.let_go_of_all()
        seconds = sorted({second for second, _ in last.values()})
        assert len(seconds) > 2
        for first, end in itertools.product([*seconds, "2001-01-01T00:00:00Z"], [*seconds, None]):
            if end is not None and first > end:
                continue
            asked = {"from_": first} | ({} if end is None else {"until": end})
            found = [each async for page in repository.list(**asked) for each in page.records]
            assert sorted((each.identifier, each.datestamp, each.is_deleted) for each in found) == [
                (name, second, gone)
                for name, (second, gone) in sorted(last.items())
                if first <= second <= (end or seconds[-1])
            ]


async def test_what_is_known_of_a_resource_is_its_dublin_core(pulling, repository):
    links = (
        Link(rel="describedby", href="http://example.com/a.dc?x=1&y"),
        Link(rel="via", href="http://origin.example/a"),
        Link(rel="http://www.openarchives.org/rs/terms/patch", href="http://example.com/patch"),
    )
    change = Change(
        loc("a?b=1&c=%3C%20"), "created", "2026-11-20", type='text/html; x="<"', links=links
    )
    await pulling.publish(change)
    for found in (
        (await repository.ask("ListRecords", metadataPrefix="oai_dc")).records,
        (await repository.ask("GetRecord", metadataPrefix="oai_dc", identifier=change.loc)).records,
    ):
        (record,) = found
        assert record.identifier == change.loc
        assert record.words == (
            ("identifier", change.loc),
            ("date", "2026-11-20"),
            ("format", 'text/html; x="<"'),
            ("relation", "http://example.com/a.dc?x=1&y"),
            ("source", "http://origin.example/a"),
        )


# --- what is wrong --------------------------------------------------------------------------------


FAULTS = {
    "badVerb": ["", "verb=", "verb=Harvest", "verb=Identify&verb=Identify", "verb=identify"],
    "badArgument": [
        "verb=Identify&x=1",
        "verb=Identify&%FF=1",
        "verb=ListRecords",
        "verb=ListRecords&from=2026-11-20",
        "verb=GetRecord&identifier=a",
        "verb=GetRecord&metadataPrefix=oai_dc",
        "verb=GetRecord&metadataPrefix=oai_dc&identifier=%00",
        "verb=GetRecord&metadataPrefix=oai_dc&identifier=%FF",
        "verb=ListRecords&metadataPrefix=oai_dc&metadataPrefix=oai_dc",
        "verb=ListRecords&metadataPrefix=oai_dc&resumptionToken=a",
        "verb=ListRecords&metadataPrefix=oai_dc&from=soon",
        "verb=ListRecords&metadataPrefix=oai_dc&from=",
        "verb=ListRecords&metadataPrefix=oai_dc&from=2026-13-01",
        "verb=ListRecords&metadataPrefix=oai_dc&from=2026-11-20T21:34:00.5Z",
        "verb=ListRecords&metadataPrefix=oai_dc&until=0000-01-01",
        "verb=ListRecords&metadataPrefix=oai_dc&from=2026-11-21&until=2026-11-20",
        "verb=ListRecords&metadataPrefix=oai_dc&from=2026-11-20&until=2026-11-21T00:00:00Z",
    ],
    "noSetHierarchy": ["verb=ListSets", "verb=ListRecords&metadataPrefix=oai_dc&set=a"],
    "cannotDisseminateFormat": [
        "verb=ListRecords&metadataPrefix=marc",
        "verb=GetRecord&metadataPrefix=marc&identifier=a",
    ],
    "idDoesNotExist": [
        "verb=GetRecord&metadataPrefix=oai_dc&identifier=http://example.com/none",
        "verb=GetRecord&metadataPrefix=oai_dc&identifier=",
        "verb=ListMetadataFormats&identifier=%3C%26%22",
    ],
    "noRecordsMatch": [
        "verb=ListRecords&metadataPrefix=oai_dc&from=9999-01-01",
        "verb=ListRecords&metadataPrefix=oai_dc&until=0001-01-01",
        "verb=ListIdentifiers&metadataPrefix=oai_dc&from=2001-01-01&until=2001-01-01",
    ],
    "badResumptionToken": [
        "verb=ListRecords&resumptionToken=a",
        "verb=ListIdentifiers&resumptionToken=",
        "verb=ListSets&resumptionToken=a",
    ],
}


@pytest.mark.parametrize(
    ("code", "query"), [(code, each) for code in FAULTS for each in FAULTS[code]]
)
async def test_what_is_wrong_is_said_by_a_code_of_the_protocol(pulling, repository, code, query):
    await pulling.update("a")
    answer = await pulling.get(f"/{SET}/oai?{query}", app=repository.app)
    page = Page.of(answer.body)
    assert (answer.status, page.error) == (200, code)
    echoed = page.root.find("o:request", namespaces=OAI).attrib
    assert bool(echoed) == (code not in ("badVerb", "badArgument"))


async def test_identify_says_what_is_so(pulling, repository):
    page = await repository.ask("Identify")
    record = pulling.hub.record(SET)
    assert {etree.QName(each).localname: each.text for each in page.root[2]} == {
        "repositoryName": SET,
        "baseURL": f"{BASE}/{SET}/oai",
        "protocolVersion": "2.0",
        "adminEmail": EMAIL,
        "earliestDatestamp": datestamp(Position.parse(record.created)),
        "deletedRecord": "transient",
        "granularity": "YYYY-MM-DDThh:mm:ssZ",
        "compression": "gzip",
    }


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "the set has no records"),
        ({"from_": "2001-01-01"}, "nothing has changed within this time"),
        ({"until": "9999-01-01"}, "nothing has changed within this time"),
    ],
)
async def test_an_empty_set_has_no_records(repository, asked, words):
    page = await repository.ask("ListRecords", metadataPrefix="oai_dc", **asked)
    assert (page.error, page.words) == ("noRecordsMatch", words)


async def test_a_form_is_read_as_a_query_is(pulling, repository):
    await pulling.update("a")
    sent = {"method": "POST", "app": repository.app}
    body = b"verb=ListRecords&metadataPrefix=oai_dc"
    kind = "application/x-www-form-urlencoded; charset=UTF-8"
    answer = await pulling.get(f"/{SET}/oai", body=body, content_type=kind, **sent)
    assert len(Page.of(answer.body).records) == 1
    wrong = await pulling.get(f"/{SET}/oai", body=body, content_type="text/xml", **sent)
    assert wrong.status == 415
    for size, status in ((FORM_BYTES, 200), (FORM_BYTES + 1, 413), (1_048_576, 413)):
        answer = await pulling.get(f"/{SET}/oai", body=b"a" * size, content_type=kind, **sent)
        assert answer.status == status


# --- tokens and sets that change under them -------------------------------------------------------


async def a_token(pulling: Pulling, repository: Repository, **asked: str) -> str:
    await pulling.update(*(str(number) for number in range(30)))
    page = await repository.ask("ListRecords", metadataPrefix="oai_dc", **asked)
    assert page.token is not None
    return page.token


async def test_a_token_that_was_cut_or_is_of_another_list_is_refused(pulling, repository):
    token = await a_token(pulling, repository)
    await pulling.hub.add_set("other", SetOptions())
    for verb, set_name, sent in (
        *(("ListRecords", SET, token[:size]) for size in range(0, len(token), 7)),
        ("ListRecords", SET, token + "A"),
        ("ListRecords", SET, "A" * 9_000),
        ("ListIdentifiers", SET, token),
        ("ListRecords", "other", token),
    ):
        page = await repository.ask(verb, set_name, resumptionToken=sent)
        assert page.error == "badResumptionToken", sent
    assert (await repository.ask("ListRecords", resumptionToken=token)).error is None


async def test_a_set_that_is_made_again_ends_its_harvests(pulling, repository):
    token = await a_token(pulling, repository)
    await pulling.hub.remove_set(SET)
    assert (await repository.answer(verb="ListRecords", resumptionToken=token)).status == 404
    await pulling.hub.add_set(SET, SetOptions())
    page = await repository.ask("ListRecords", resumptionToken=token)
    assert (page.error, "made again" in page.words) == ("badResumptionToken", True)
    pulling.hub.known.former[SET] = "2026-01-01T00:00:00Z"
    page = await repository.ask("ListRecords", metadataPrefix="oai_dc", from_="2026-01-02")
    assert (page.error, "made again" in page.words) == ("badArgument", True)


async def test_a_set_that_becomes_private_is_closed_to_harvesters(pulling, repository):
    token = await a_token(pulling, repository)
    await pulling.hub.edit_set(SET, {"private": True})
    assert (await repository.answer(verb="ListRecords", resumptionToken=token)).status == 404
    answer = await repository.pulling.get(
        f"/{SET}/oai?verb=ListRecords&resumptionToken={token}",
        app=repository.app,
        authorization=f"Bearer {TOKEN}",
    )
    assert answer.status == 200
    assert answer.headers["cache-control"] == "private, no-cache"


class WhileRead(KnownResources):
    """Something happens while a page is read."""

    happens: Callable[[], Awaitable[object]]

    async def names(
        self, set_name: str, shards: Sequence[int], *, and_ended: bool
    ) -> list[list[bytes]]:
        await self.happens()
        return await super().names(set_name, shards, and_ended=and_ended)


async def read_while(pulling: Pulling, happens: Callable[[], Awaitable[object]]) -> Answer:
    resources = WhileRead(pulling.client)
    resources.happens = happens
    return await Repository(pulling, resources).answer(verb="ListRecords", metadataPrefix="oai_dc")


async def test_what_was_read_of_a_set_that_has_become_private_is_not_given(pulling):
    await pulling.update("a")
    answer = await read_while(pulling, lambda: pulling.hub.edit_set(SET, {"private": True}))
    assert (answer.status, loc("a").encode() in answer.body) == (503, False)


async def test_what_was_read_of_two_sets_of_one_name_is_not_given(pulling):
    await pulling.update("a")

    async def made_again() -> None:
        await pulling.hub.remove_set(SET)
        await pulling.hub.add_set(SET, SetOptions())

    assert (await read_while(pulling, made_again)).status == 404


async def test_four_pages_are_made_at_once(pulling):
    """Whoever comes then waits."""
    await pulling.update("a")
    inside, most, may_go_on = 0, 0, asyncio.Event()

    async def held() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await may_go_on.wait()
        inside -= 1

    resources = WhileRead(pulling.client)
    resources.happens = held
    repository = Repository(pulling, resources)
    asked = {"verb": "ListRecords", "metadataPrefix": "oai_dc"}
    reading = [asyncio.create_task(repository.answer(**asked)) for _ in range(AT_ONCE + 3)]

    async def is_full() -> bool:
        return inside == AT_ONCE

    await until(is_full)
    may_go_on.set()
    assert {answer.status for answer in await asyncio.gather(*reading)} == {200}
    assert most == AT_ONCE == 4


@pytest.mark.parametrize("begins", ["from_", "nothing"])
async def test_a_loss_during_a_harvest_is_said(pulling, repository, begins):
    before = await pulling.update("before")
    asked = {begins: datestamp(before.from_)} if begins == "from_" else {}
    token = await a_token(pulling, repository, **asked)
    async with Losing(pulling.client, f"rsnotify:{{{SET}}}*"):
        await pulling.update("lost")
        since = (await repository.ask("Identify")).date
    await pulling.hub.losses.look(pulling.hub.feed(CHANGES))
    seen, page = [], None
    while token:
        page = await repository.ask("ListRecords", resumptionToken=token)
        token = page.token or ""
        seen.append(page.error)
    assert page is not None
    assert seen[-1] == "badResumptionToken", seen
    again = await repository.ask("ListRecords", metadataPrefix="oai_dc", from_=since)
    assert (again.error, "lost" in again.words) == ("badArgument", True)
    whole = [page.error async for page in repository.list()]
    assert {*whole} == {None}


# --- datestamps -----------------------------------------------------------------------------------


async def in_a_later_second(pulling: Pulling, at: int) -> None:
    async def is_later() -> bool:
        return (await pulling.windows.now()) // MICROSECONDS > at // MICROSECONDS

    await until(is_later)


async def test_no_change_that_comes_after_an_answer_is_stamped_before_it(pulling, repository):
    """Nor one that brings a datetime of its own, from before the answer."""
    first = await pulling.update("a")
    await in_a_later_second(pulling, first.until)
    own = str(Position(first.until + 1))
    answer = await repository.ask("Identify")
    late = await pulling.publish(replace(Change(loc("b"), "created"), datetime=own))
    assert datestamp(late.until) >= answer.date > datestamp(first.until)
    page = await repository.ask("ListRecords", metadataPrefix="oai_dc", from_=answer.date)
    assert [each.identifier for each in page.records] == [loc("b")]


async def test_an_answer_is_of_where_the_journal_ends_while_redis_takes_no_writes(
    client, pulling, repository
):
    first = await pulling.update("a")
    await in_a_later_second(pulling, first.until)
    own = str(Position(first.until + 1))
    async with out_of_memory(client):
        (record,) = (page := await repository.ask("ListRecords", metadataPrefix="oai_dc")).records
    assert (record.identifier, page.date) == (loc("a"), datestamp(first.until))
    await pulling.publish(replace(Change(loc("b"), "created"), datetime=own))
    page = await repository.ask("ListRecords", metadataPrefix="oai_dc", from_=page.date)
    assert [each.identifier for each in page.records] == [loc("a"), loc("b")]


async def test_a_token_lives_as_long_though_its_answer_is_of_where_the_journal_ends(
    client, pulling, repository
):
    at = await pulling.update(*(str(number) for number in range(30)))
    await in_a_later_second(pulling, at.until)
    async with out_of_memory(client):
        page = await repository.ask("ListRecords", metadataPrefix="oai_dc")
    token = page.root.find("o:*/o:resumptionToken", namespaces=OAI)
    assert token is not None
    assert page.date == datestamp(at.until)
    assert (token.get("expirationDate") or "") > datestamp(at.until + LIFETIME)


async def test_a_set_that_is_always_harvested_closes_its_change_lists(client):
    async with Pulling(client, hours=1 / 3_600) as pulling:
        repository = Repository(pulling)
        at = await pulling.update("a")
        for _ in range(2):
            await in_a_later_second(pulling, (await pulling.windows.record(SET)).last)
            await repository.ask("Identify")
        (window,) = (await pulling.windows.span(SET)).windows
        assert (window.changes, window.from_ < at.until <= window.until) == (1, True)


async def test_whoever_looks_back_to_before_the_set_was_made_learns_of_deletions(
    pulling, repository
):
    await pulling.update("a")
    await pulling.publish(Change(loc("a"), "deleted"))
    page = await repository.ask("ListRecords", metadataPrefix="oai_dc", from_="2001-01-01")
    assert [(each.identifier, each.is_deleted) for each in page.records] == [(loc("a"), True)]


async def test_what_the_journal_does_not_reach_back_to_is_found_in_the_state(client):
    """And those deletions that it still has."""
    async with Pulling(client, changes=3) as pulling:
        repository = Repository(pulling, page_records=4)
        first = await pulling.update("a", "b", "c")
        await in_a_later_second(pulling, first.until)
        second = await pulling.update("c", "d", "e")
        await pulling.publish(Change(loc("d"), "deleted"), Change(loc("a"), "deleted"))
        await pulling.keep_windows()
        await pulling.let_go_of_all()
        windows = (await pulling.windows.span(SET)).windows
        await pulling.windows.forget(SET, windows)
        since = datestamp(second.until)
        found = [each async for page in repository.list(from_=since) for each in page.records]
        assert {(each.identifier[-1], each.is_deleted) for each in found} == {
            ("a", True),
            ("c", False),
            ("d", True),
            ("e", False),
        }


async def test_an_end_within_a_packed_change_list_is_an_end(pulling, repository):
    first = await pulling.update("a")
    await in_a_later_second(pulling, first.until)
    await pulling.update("b", "c")
    await pulling.keep_windows()
    await pulling.let_go_of_all()
    ends = {"from_": datestamp(first.until), "until": datestamp(first.until)}
    (page,) = [page async for page in repository.list(**ends)]
    assert [each.identifier for each in page.records] == [loc("a")]


@pytest.mark.parametrize("in_vain", [250, 251, 10_000])
async def test_where_nothing_has_been_found_for_long_a_redirect_leads_on(client, in_vain):
    """250 are looked at in one step: so of 1,000 in vain, 250 by each request, or 500."""
    async with Pulling(client) as pulling:
        repository = Repository(pulling, page_records=5, looked_at=10, in_vain=in_vain)
        at = await pulling.update(*(str(number) for number in range(1_000)))
        await in_a_later_second(pulling, at.until)
        await pulling.update("999")
        await pulling.update(*(str(number) for number in range(990)))
        asked = {"from_": datestamp(at.from_), "until": datestamp(at.until)}
        pages = [page async for page in repository.list(**asked)]
        found = sorted(each.identifier for page in pages for each in page.records)
        assert found == sorted(loc(str(number)) for number in range(990, 999))
        assert {page.error for page in pages} == {None}
        assert repository.redirects == {250: 3, 251: 1, 10_000: 0}[in_vain]


async def test_a_list_whose_rest_has_changed_since_then_ends_without_a_page(pulling, repository):
    at = await pulling.update(*(str(number) for number in range(8)))
    await in_a_later_second(pulling, at.until)
    asked = {"from_": datestamp(at.from_), "until": datestamp(at.until)}
    page = await repository.ask("ListRecords", metadataPrefix="oai_dc", **asked)
    assert len(page.records) == 7
    await pulling.update("7")
    page = await repository.ask("ListRecords", resumptionToken=page.token or "")
    assert (page.error, "nothing more" in page.words) == ("noRecordsMatch", True)


async def test_a_redirect_leads_to_the_list_of_a_private_set_with_the_token_of_its_reader(pulling):
    repository = Repository(pulling, in_vain=0)
    await pulling.update("a")
    await pulling.hub.edit_set(SET, {"private": True})
    await Tokens(pulling.client).create("secret", Token("reads", (SET,), "now", ("read",)))
    asked = {"verb": "ListRecords", "metadataPrefix": "oai_dc", "access_token": "secret"}
    answer = await repository.answer(**asked)
    assert (answer.status, answer.headers["cache-control"]) == (302, "private, no-cache")
    assert answer.headers["location"].endswith("&access_token=secret")


async def test_what_a_load_brought_is_harvested_though_another_has_come(client):
    """By whoever harvested last while the first of the two came."""
    async with Loading(client) as loading:
        copy = Copy(Repository(loading))
        await loading.publish(Change(loc("p"), "created"))
        async with loading.under_way(ndjson("pa"), "publish=no") as upload:
            await in_a_later_second(loading, (await loading.windows.record(SET)).last)
            await copy.catch_up()
        assert (await upload.answer())[0] == 200
        await loading.load(ndjson("pab"), "publish=no")
        await copy.catch_up()
        assert copy.records.keys() == {loc(name) for name in "pab"}


async def test_a_state_that_is_loaded_is_harvested_though_nobody_has_published_it(client):
    """Also by whoever harvested while it came; whoever reads a list then begins anew."""
    async with Loading(client) as loading:
        repository = Repository(loading, page_records=5)
        copy = Copy(repository)
        await loading.publish(Change(loc("p"), "created"))
        numbers = [str(number) for number in range(12)]
        async with loading.under_way(ndjson([*numbers, "p"]), "publish=no") as upload:
            await in_a_later_second(loading, (await loading.windows.record(SET)).last)
            await copy.catch_up()
            assert copy.records.keys() == {loc("p")}
        assert (await upload.answer())[0] == 200
        token = (await repository.ask("ListRecords", metadataPrefix="oai_dc")).token
        await copy.catch_up()
        assert copy.records.keys() == {loc(name) for name in (*numbers, "p")}
        whole = [each async for page in repository.list() for each in page.records]
        assert {each.identifier: each.datestamp for each in whole} == {
            each.identifier: each.datestamp for each in copy.records.values()
        }
        await loading.load(ndjson("z"), "publish=no&max_delete=100&overwrite=yes")
        page = await repository.ask("ListRecords", resumptionToken=token or "")
        assert (page.error, "loaded" in page.words) == ("badResumptionToken", True)
