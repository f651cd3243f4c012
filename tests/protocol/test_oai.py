"""A set as an OAI-PMH repository, by programs of others and over HTTP."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from datetime import datetime
from io import BytesIO
from urllib.parse import urlencode

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from lxml import etree
from oaipmh.client import Client
from oaipmh.error import BadResumptionTokenError, IdDoesNotExistError, NoRecordsMatchError
from oaipmh.metadata import MetadataRegistry, oai_dc_reader

from tests.support.amount import amount
from tests.support.running import TOKEN, RunningHub

EMAIL = "admin@hub.example.org"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningHub]:
    data = tmp_path_factory.mktemp("oai") / "data"
    async with RunningHub(data, admin_email=EMAIL, changelist_max="100") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def harvested(hub: RunningHub, request: pytest.FixtureRequest) -> str:
    """A new set."""
    name = f"set-{abs(hash(request.node.nodeid))}"
    assert (await hub.ask("PUT", f"/api/sets/{name}"))[0] == 201
    return name


def client_of(hub: RunningHub, set_name: str) -> Client:
    registry = MetadataRegistry()
    registry.registerReader("oai_dc", oai_dc_reader)
    return Client(f"{hub.url}/{set_name}/oai", registry)


async def publish(hub: RunningHub, set_name: str, change: str, *names: str) -> None:
    changes = [{"loc": f"http://example.com/{name}", "change": change} for name in names]
    sent = {"data": BytesIO(msgspec.json.encode(changes))}
    kind = {"headers": {"Content-Type": "application/json"}}
    status, told = await hub.ask("POST", f"/api/sets/{set_name}/changes", **sent, **kind)
    assert status == 201, told


class Answer(msgspec.Struct):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str | None:
        found = etree.fromstring(self.body).find("{*}error")
        return None if found is None else found.get("code")


async def ask(hub: RunningHub, set_name: str, **asked: str) -> Answer:
    url = f"{hub.url}/{set_name}/oai?{urlencode(asked)}"
    plain = {"headers": {"Accept-Encoding": "identity"}}
    async with aiohttp.ClientSession() as session, session.get(url, **plain) as answer:
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return Answer(answer.status, headers, await answer.read())


async def test_a_harvester_of_others_reads_all_and_then_what_has_changed(hub, harvested):
    names = [str(number) for number in range(1_234)]
    await publish(hub, harvested, "created", *names)
    client = client_of(hub, harvested)
    said = await asyncio.to_thread(client.identify)
    assert (said.adminEmails(), said.deletedRecord()) == ([EMAIL], "transient")
    ((prefix, _, namespace),) = await asyncio.to_thread(client.listMetadataFormats)
    assert (prefix, namespace) == ("oai_dc", "http://www.openarchives.org/OAI/2.0/oai_dc/")
    every = await asyncio.to_thread(lambda: list(client.listRecords(metadataPrefix="oai_dc")))
    assert len(every) == 1_234
    held = {header.identifier(): metadata for header, metadata, _ in every}
    assert held["http://example.com/7"].getField("identifier") == ["http://example.com/7"]
    since: datetime = max(header.datestamp() for header, _, _ in every)
    await publish(hub, harvested, "deleted", "7")
    await publish(hub, harvested, "created", "new", "new2")
    await publish(hub, harvested, "deleted", "new2")
    later = await asyncio.to_thread(
        lambda: list(client.listRecords(metadataPrefix="oai_dc", from_=since))
    )
    ends = {header.identifier().rpartition("/")[2]: header.isDeleted() for header, _, _ in later}
    assert (ends["7"], ends["new"], ends["new2"]) == (True, False, True)
    header, *_ = await asyncio.to_thread(
        client.getRecord, identifier="http://example.com/new", metadataPrefix="oai_dc"
    )
    assert header.identifier() == "http://example.com/new"
    for identifier in ("http://example.com/7", "http://example.com/none"):
        with pytest.raises(IdDoesNotExistError):
            await asyncio.to_thread(
                client.getRecord, identifier=identifier, metadataPrefix="oai_dc"
            )


@pytest.mark.evidence
async def test_a_harvester_of_others_learns_of_deletions_where_they_are_kept(hub, harvested):
    await hub.ask("PATCH", f"/api/sets/{harvested}", json={"tombstones": True})
    await publish(hub, harvested, "created", "a", "b", "c")
    await publish(hub, harvested, "deleted", "b", "c")
    await publish(hub, harvested, "created", "c")
    client = client_of(hub, harvested)
    said = await asyncio.to_thread(client.identify)
    assert said.deletedRecord() == "persistent"
    every = await asyncio.to_thread(lambda: list(client.listRecords(metadataPrefix="oai_dc")))
    ends = {header.identifier()[-1]: header.isDeleted() for header, _, _ in every}
    assert ends == {"a": False, "b": True, "c": False}
    header, metadata, _ = await asyncio.to_thread(
        client.getRecord, identifier="http://example.com/b", metadataPrefix="oai_dc"
    )
    assert (header.isDeleted(), metadata) == (True, None)


async def test_a_harvester_of_others_is_told_what_is_wrong(hub, harvested):
    client = client_of(hub, harvested)
    with pytest.raises(NoRecordsMatchError):
        await asyncio.to_thread(client.listIdentifiers, metadataPrefix="oai_dc")
    with pytest.raises(BadResumptionTokenError):
        await asyncio.to_thread(
            client.makeRequestErrorHandling, verb="ListRecords", resumptionToken="abc"
        )


async def test_a_form_and_gzip_are_answered_alike(hub, harvested):
    await publish(hub, harvested, "created", "a?b=1&c=%C3%BC%20d")
    asked = {"verb": "ListRecords", "metadataPrefix": "oai_dc"}
    plain = await ask(hub, harvested, **asked)
    assert plain.headers["content-type"] == "text/xml; charset=utf-8"
    assert plain.headers["cache-control"] == "public, no-cache"
    assert b"<dc:identifier>http://example.com/a?b=1&amp;c=%C3%BC%20d</dc:identifier>" in plain.body
    url = f"{hub.url}/{harvested}/oai"
    sent = {"headers": FORM | {"Accept-Encoding": "gzip"}, "data": urlencode(asked)}
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.post(url, **sent) as answer,
    ):
        assert answer.headers["Content-Encoding"] == "gzip"
        records = gzip.decompress(await answer.read()).partition(b"<ListRecords>")[2]
    assert records == plain.body.partition(b"<ListRecords>")[2]
    async with aiohttp.ClientSession() as session, session.head(f"{url}?verb=Identify") as answer:
        assert (answer.status, await answer.read()) == (200, b"")


async def test_an_identifier_is_asked_for_by_its_characters(hub, harvested):
    identifier = "http://example.com/a?b=1&c=%C3%BC%20d'"
    await publish(hub, harvested, "created", identifier.removeprefix("http://example.com/"))
    asked = {"verb": "GetRecord", "metadataPrefix": "oai_dc"}
    found = await ask(hub, harvested, **asked, identifier=identifier)
    assert found.error is None
    for other in ("http://example.com/a?b=1", '<&">', "\u00fc\U0001f600", "a" * 5_000):
        found = await ask(hub, harvested, **asked, identifier=other)
        assert found.error == "idDoesNotExist"
        request = etree.fromstring(found.body).find("{*}request")
        assert request is not None
        assert request.get("identifier") == other


async def test_a_set_can_be_left_out(hub, harvested):
    await hub.ask("PATCH", f"/api/sets/{harvested}", json={"oai": False})
    found = await ask(hub, harvested, verb="Identify")
    assert (found.status, b"rsnotify sets edit" in found.body) == (404, True)


async def test_a_private_set_is_harvested_with_a_token_only(hub, harvested):
    await publish(hub, harvested, "created", "a")
    await hub.ask("PATCH", f"/api/sets/{harvested}", json={"private": True})
    assert (await ask(hub, harvested, verb="Identify")).status == 404
    made = await hub.ask("POST", "/api/tokens", json={"sets": [harvested], "rights": ["read"]})
    token = made[1]["token"]
    listed = {"verb": "ListRecords", "metadataPrefix": "oai_dc"}
    found = await ask(hub, harvested, **listed, access_token=token)
    assert (found.status, found.error) == (200, None)
    assert token.encode() not in found.body
    assert found.headers["cache-control"] == "private, no-cache"
    url = f"{hub.url}/{harvested}/oai?{urlencode(listed)}"
    sent = {"headers": {"Authorization": f"Bearer {TOKEN}"}}
    async with aiohttp.ClientSession() as session, session.get(url, **sent) as answer:
        assert answer.status == 200


async def test_without_the_address_of_somebody_the_hub_says_how_it_is_switched_on(shared_hub):
    found = await ask(shared_hub, "dataset1", verb="Identify")
    assert (found.status, b"RSNOTIFY_ADMIN_EMAIL" in found.body) == (404, True)


@pytest.mark.evidence
async def test_many_harvesters_at_once_end_with_everything(hub, harvested):
    """Those who are asked to come again do so."""
    names = {f"http://example.com/{number}" for number in range(700)}
    await publish(hub, harvested, "created", *(name.rpartition("/")[2] for name in names))
    url = f"{hub.url}/{harvested}/oai"
    refused = 0

    async def harvest(session: aiohttp.ClientSession) -> set[str]:
        nonlocal refused
        found: set[str] = set()
        asked = {"verb": "ListIdentifiers", "metadataPrefix": "oai_dc"}
        while asked:
            async with session.get(url, params=asked) as answer:
                if answer.status == 503:
                    refused += 1
                    assert int(answer.headers["Retry-After"]) > 0
                    await asyncio.sleep(0.1)
                    continue
                root = etree.fromstring(await answer.read())
            found |= {each.text or "" for each in root.iterfind(".//{*}identifier")}
            token = root.findtext(".//{*}resumptionToken")
            asked = {"verb": "ListIdentifiers", "resumptionToken": token} if token else {}
        return found

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        found = await asyncio.gather(*(harvest(session) for _ in range(amount(40, evidence=200))))
    assert all(each == names for each in found)
