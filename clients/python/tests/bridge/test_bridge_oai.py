"""`rsnotify bridge oai:…`: repositories that have OAI-PMH and nothing else."""

import json
import re
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from urllib.request import urlopen

import pytest
from aiohttp import web

from rsnotify_bridge import oaipmh
from rsnotify_bridge.oaipmh import OVERLAP_SECONDS, WAIT_SECONDS, OaiPage, page_of
from tests.support.repositories import Record, Repository
from tests.support.sources import Source

BY_ELEMENT = {"loc-from": "dc:identifier"}
BY_TEMPLATE = {"loc": "https://repo.example/record/{local}"}


@pytest.fixture
async def repository() -> AsyncIterator[Repository]:
    async with Source() as source:
        found = Repository(source.loc("oai"))
        source.handlers["/oai"] = found.handler
        for number in range(35):
            found.put(number)
        yield found


async def test_a_set_of_a_hub_that_is_harvested_and_published_again_is_the_same(
    real_hub, bridging, set_name
):
    """From the hub to a harvester and back, in pages: nothing is missing, nothing comes twice."""
    origin = f"{set_name[:50]}-origin"
    real_hub.add_set(origin)
    names = [f"a?b={number}&c=%C3%BC" for number in range(600)]

    def publish(change: str, *some: str) -> None:
        changes = [{"loc": f"http://example.com/{name}", "change": change} for name in some]
        real_hub.ask("POST", f"/api/sets/{origin}/changes", json.dumps(changes).encode())

    publish("created", *names)
    address = f"oai:{real_hub.url}/{origin}/oai"
    facts = await bridging.once(address, **BY_ELEMENT)
    assert (facts.error, facts.skipped, bridging.told()) == (None, None, [])
    assert {*bridging.resources()} == {f"http://example.com/{name}" for name in names}
    publish("updated", names[3])
    publish("deleted", names[5])
    publish("created", "new", "gone")
    publish("deleted", "gone")
    await bridging.once(address, **BY_ELEMENT)
    changed = [("deleted", names[5]), ("created", "new")]
    assert [each for each in bridging.told() if each[0] != "updated"] == changed
    assert bridging.count() == 600
    bridging.forget_comparison()
    await bridging.once(address, **BY_ELEMENT)
    assert [each for each in bridging.told() if each[0] != "updated"] == changed
    assert {name for change, name in bridging.told() if change == "updated"} <= {names[3]}


async def test_what_ended_in_a_set_that_keeps_its_tombstones_ends_once_in_a_set_that_does_so_too(
    real_hub, bridging, set_name
):
    """Every harvest names all that has ended. What the copy never had does not end in it."""
    origin = f"{set_name[:50]}-origin"
    real_hub.add_set(origin, tombstones=True)
    real_hub.ask("PATCH", f"/api/sets/{set_name}", b'{"tombstones": true}')

    def publish(change: str, *names: str) -> None:
        changes = [{"loc": f"http://example.com/{name}", "change": change} for name in names]
        real_hub.ask("POST", f"/api/sets/{origin}/changes", json.dumps(changes).encode())

    def harvested(name: str) -> dict[str, bool]:
        """By the end of the identifier: whether it is deleted."""
        url = f"{real_hub.url}/{name}/oai?verb=ListIdentifiers&metadataPrefix=oai_dc"
        with urlopen(url) as answer:
            found = re.findall(
                "<header(.*?)>.*?([^/]+)</identifier>", answer.read().decode(), re.DOTALL
            )
        return {identifier: "deleted" in attributes for attributes, identifier in found}

    publish("created", "a", "b", "c", "gone")
    publish("deleted", "gone")
    address = f"oai:{real_hub.url}/{origin}/oai"
    facts = await bridging.once(address, **BY_ELEMENT)
    assert (facts.error, facts.skipped, bridging.told()) == (None, None, [])
    publish("deleted", "a", "b")
    publish("created", "b", "new")
    publish("deleted", "new")
    for is_whole in (False, False, True):
        if is_whole:
            bridging.forget_comparison()
        facts = await bridging.once(address, **BY_ELEMENT)
        assert (facts.error, facts.skipped) == (None, None)
        assert [each for each in bridging.told() if each[0] != "updated"] == [("deleted", "a")]
    kept = {"a": True, "b": False, "c": False}
    assert harvested(origin) == {**kept, "gone": True, "new": True}
    assert harvested(set_name) == kept


async def test_a_repository_is_recognised_by_what_it_answers(bridging, source):
    """Whoever gives its address without `oai:` means the same."""
    repository = Repository(source.loc("oai"))
    source.handlers["/oai"] = repository.handler
    for number in range(3):
        repository.put(number)
    facts = await bridging.once(source.loc("oai"))
    assert (facts.error, facts.skipped) == (None, None)
    assert facts.how.startswith("OAI-PMH: ListIdentifiers of A repository with oai_dc;")
    assert bridging.count() == 3


def address(repository: Repository) -> str:
    return f"oai:{repository.url}?metadataPrefix=oai_dc"


async def test_a_repository_is_harvested_once_and_then_followed(repository, bridging):
    facts = await bridging.once(address(repository), **BY_ELEMENT)
    assert (facts.error, facts.skipped, bridging.told(), bridging.count()) == (None, None, [], 35)
    repository.put(3, "new words")
    repository.put(99)
    repository.delete(5)
    repository.asked.clear()
    await bridging.once(address(repository), **BY_ELEMENT)
    assert bridging.told() == [("updated", "3"), ("created", "99"), ("deleted", "5")]
    begun = [asked for asked in repository.asked if "metadataPrefix" in asked]
    assert begun
    assert all("from" in asked for asked in begun)
    (via,) = bridging.hub.journal(bridging.set_name)[0].links
    assert (via.rel, "verb=GetRecord&identifier=oai:repo.example:3&" in via.href) == ("via", True)


async def test_a_record_is_its_own_resource_where_nothing_else_is_said(repository, bridging):
    await bridging.once(address(repository))
    repository.put(1)
    await bridging.once(address(repository))
    (change,) = bridging.hub.journal(bridging.set_name)
    wanted = "?verb=GetRecord&identifier=oai:repo.example:1&metadataPrefix=oai_dc"
    assert change.loc == repository.url + wanted


async def test_a_function_of_ones_own_names_the_resource(
    repository, bridging, tmp_path, monkeypatch
):
    """As an installed package offers it, by an entry point."""
    package = tmp_path / "package"
    (package / "of_mine-1.dist-info").mkdir(parents=True)
    (package / "of_mine-1.dist-info/METADATA").write_text("Name: of_mine\nVersion: 1\n")
    (package / "of_mine-1.dist-info/entry_points.txt").write_text(
        "[rsnotify.bridge.loc]\nmine = of_mine:loc\n"
    )
    (package / "of_mine.py").write_text(
        "def loc(record):\n"
        "    number = int(record.identifier.rpartition(':')[2])\n"
        "    if number == 3: raise KeyError('three')\n"
        "    return None if number == 4 else record.fields['dc:identifier'][1] + '/mine'\n"
    )
    monkeypatch.syspath_prepend(package)
    facts = await bridging.once(address(repository), **{"loc-by": "mine"})
    assert (facts.error, bridging.count()) == (None, 33)
    assert "2 of its entries" in (facts.skipped or "")
    assert repository.loc(5) + "/mine" in bridging.resources()


async def test_stamps_by_a_clock_that_is_hours_behind_lose_nothing(bridging, source):
    """The repository's answers are dated by another clock than its records."""

    async def handler(request: web.Request) -> web.Response:
        if request.query["verb"] == "Identify":
            return web.Response(text=IDENTIFY, content_type="text/xml")
        since = request.query.get("from", "")
        found = [RECORD.replace("2026-11-20T00:00:00Z", at).format(name)
                 for name, at in stamps.items() if at >= since]  # fmt: skip
        text = PAGE.format("".join(found)).replace("2026-11-20T00:00:00Z", stamp(0))
        return web.Response(text=text, content_type="text/xml")

    def stamp(hours: int) -> str:
        return f"{datetime.now(UTC) - timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}"

    source.handlers["/oai"] = handler
    stamps = {"oai:a:1": stamp(5)}
    await bridging.once(f"oai:{source.loc('oai')}", **BY_TEMPLATE)
    stamps["oai:a:2"] = stamp(5)
    facts = await bridging.once(f"oai:{source.loc('oai')}", **BY_TEMPLATE)
    assert (facts.error, bridging.told()) == (None, [("created", "2")])


async def test_a_record_of_the_year_one_is_no_trouble(bridging, source):
    """So systems write a date that they do not know."""
    stamps = {"oai:a:1": "0001-01-01T00:00:00Z"}

    async def handler(request: web.Request) -> web.Response:
        if request.query["verb"] == "Identify":
            return web.Response(text=IDENTIFY, content_type="text/xml")
        found = [RECORD.replace("2026-11-20T00:00:00Z", at).format(name)
                 for name, at in stamps.items() if at >= request.query.get("from", "")]  # fmt: skip
        text = PAGE.format("".join(found)).replace("2026-11-20T00:00:00Z", "0001-01-01T00:00:09Z")
        return web.Response(text=text, content_type="text/xml")

    source.handlers["/oai"] = handler
    for number in (1, 2, 3):
        stamps[f"oai:a:{number}"] = "0001-01-01T00:00:00Z"
        facts = await bridging.once(f"oai:{source.loc('oai')}", **BY_TEMPLATE)
        assert (facts.error, bridging.count()) == (None, number)


async def test_a_page_is_read_beside_the_loop(repository, bridging, monkeypatch):
    """A page of 16 MB takes seconds, in which the other bridges go on."""
    threads: list[threading.Thread] = []

    def read(*words: object) -> OaiPage:
        threads.append(threading.current_thread())
        return page_of(*words)

    monkeypatch.setattr("rsnotify_bridge.oaipmh.page_of", read)
    facts = await bridging.once(address(repository), **BY_TEMPLATE)
    assert facts.error is None
    assert threads
    assert threading.main_thread() not in threads


async def test_what_was_stored_a_minute_after_its_stamp_is_found_and_later_by_harvesting_all(
    repository, bridging
):
    await bridging.once(address(repository), **BY_TEMPLATE)
    newest = max(each.stamp for each in repository.records.values())
    for number, seconds in ((60, OVERLAP_SECONDS), (61, OVERLAP_SECONDS + 1)):
        stamp = newest - timedelta(seconds=seconds)
        repository.records[number] = Record(number, stamp, False, "stored late")
    await bridging.once(address(repository), **BY_TEMPLATE)
    assert bridging.told() == [("created", "60")]
    bridging.forget_comparison()
    await bridging.once(address(repository), **BY_TEMPLATE)
    assert bridging.told() == [("created", "60"), ("created", "61")]


async def test_deletions_that_a_repository_forgets_are_found_by_harvesting_all(
    repository, bridging
):
    repository.deleted = "no"
    await bridging.once(address(repository), **BY_TEMPLATE)
    repository.delete(7)
    await bridging.once(address(repository), **BY_TEMPLATE)
    assert bridging.told() == []
    bridging.forget_comparison()
    facts = await bridging.once(address(repository), **BY_TEMPLATE, compare=1.0)
    assert (bridging.told(), facts.error) == ([("deleted", "7")], None)


async def test_a_record_that_pages_skipped_is_not_taken_for_gone(repository, bridging, source):
    async def handler(request: web.Request) -> web.Response:
        answer = await repository.handler(request)
        if skips and request.query.get("resumptionToken"):
            answer.text = (answer.text or "").replace("oai:repo.example:12<", "oai:repo.example:1<")
        return answer

    skips = False
    source.handlers["/oai"] = handler
    address = f"oai:{source.loc('oai')}"
    await bridging.once(address, **BY_TEMPLATE)
    skips = True
    bridging.forget_comparison()
    facts = await bridging.once(address, **BY_TEMPLATE)
    assert (facts.error, bridging.told()) == (None, [])


async def test_a_harvest_whose_token_expires_begins_again(repository, bridging):
    repository.expire_after = 2
    facts = await bridging.once(address(repository), **BY_TEMPLATE)
    assert (facts.error, bridging.count(), repository.expired) == (None, 35, 1)


async def test_a_repository_is_waited_for_as_long_as_it_asks_but_not_for_more_than_minutes(
    repository, bridging, source
):
    """What asks for longer is asked again at the next look: its token would not live so long."""

    async def handler(request: web.Request) -> web.Response:
        if "resumptionToken" in request.query and (asked := next(waits, None)) is not None:
            return web.Response(status=503, headers={"Retry-After": asked})
        return await repository.handler(request)

    source.handlers["/oai"] = handler
    waits = iter([str(int(WAIT_SECONDS) + 1)])
    facts = await bridging.once(f"oai:{source.loc('oai')}", **BY_TEMPLATE)
    assert "cannot be served now (503)" in (facts.error or "")
    waits = iter(["1"])
    facts = await bridging.once(f"oai:{source.loc('oai')}", **BY_TEMPLATE)
    assert (facts.error, bridging.count()) == (None, 35)


async def test_tokens_that_go_in_a_circle_end_the_harvest(repository, bridging, source):
    page = PAGE.format(RECORD.format("oai:a:1") + "<resumptionToken>again</resumptionToken>")
    asked = serve(source, page)
    facts = await bridging.once(f"oai:{source.loc('oai')}", **BY_TEMPLATE)
    assert "go in a circle" in (facts.error or "")
    assert len(asked) < 5


@pytest.mark.parametrize("again", [oaipmh.STALE_PAGES - 1, oaipmh.STALE_PAGES])
async def test_fresh_tokens_that_bring_no_new_record_end_the_harvest(bridging, source, again):
    """The same two pages by turns, each time with another token, so often until the list ends."""

    async def handler(request: web.Request) -> web.Response:
        if request.query["verb"] == "Identify":
            return web.Response(text=IDENTIFY, content_type="text/xml")
        number = int(request.query.get("resumptionToken", 0))
        token = "" if number == again + 2 else number + 1
        text = f"{RECORD.format(number % 2)}<resumptionToken>{token}</resumptionToken>"
        return web.Response(text=PAGE.format(text), content_type="text/xml")

    source.handlers["/oai"] = handler
    facts = await bridging.once(f"oai:{source.loc('oai')}", **BY_TEMPLATE)
    is_endless = again == oaipmh.STALE_PAGES
    said = f"{oaipmh.STALE_PAGES} pages without a new record, one after the other"
    assert (said in (facts.error or "")) == is_endless
    assert facts.is_loaded != is_endless


@pytest.mark.parametrize("attributes", ['completeListSize="{}"', 'cursor="{}"'])
async def test_a_list_that_announced_more_than_came_is_said_until_it_is_read_whole(
    bridging, source, attributes
):
    def announce(count: int) -> None:
        token = f"<resumptionToken {attributes.format(count)}/>"
        serve(source, PAGE.format("".join(map(RECORD.format, "abc")) + token))

    address = f"oai:{source.loc('oai')}"
    short = "the list ended after 3 records, though it announced 4"
    announce(4)
    facts = await bridging.once(address, **BY_TEMPLATE)
    assert (facts.error, facts.skipped, facts.is_well, bridging.count()) == (None, short, False, 3)
    announce(3)
    facts = await bridging.once(address, **BY_TEMPLATE)
    assert (facts.error, facts.skipped) == (None, short)  # what has changed since was read
    bridging.forget_comparison()
    facts = await bridging.once(address, **BY_TEMPLATE)
    assert (facts.error, facts.skipped, facts.is_well) == (None, None, True)
    cursor = facts.cursor
    announce(4)
    facts = await bridging.once(address, **BY_TEMPLATE)
    assert (facts.skipped, facts.cursor) == (short, cursor)


async def test_of_what_a_harvest_left_out_only_what_the_repository_does_not_have_is_deleted(
    repository, bridging, source
):
    """By its answer to `GetRecord`, even where the harvest is shorter than it announced."""
    answers = {
        1: (200, ERROR.format("idDoesNotExist"), True),
        2: (404, ERROR.format("idDoesNotExist"), True),
        3: (200, DELETED.format("oai:repo.example:3"), True),
        4: (200, DELETED.format("oai:repo.example:5"), False),
        5: (200, ERROR.format("cannotDisseminateFormat"), False),
        6: (404, "not found", False),
        7: (410, "not found", False),
        8: (200, "<html>log in</html>", False),
        9: (200, "", False),
        10: (500, "", False),
    }

    async def handler(request: web.Request) -> web.Response:
        number = int(request.query.get("identifier", "").rpartition(":")[2] or 0)
        if is_short and number:
            status, text, _ = answers.get(number, (200, RECORD, True))
            return web.Response(status=status, text=text, content_type="text/xml")
        answer = await repository.handler(request)
        for each in answers if is_short else ():
            answer.text = (answer.text or "").replace(f"oai:repo.example:{each}<", "oai:a:0<")
        return answer

    is_short = False
    source.handlers["/oai"] = handler
    address = f"oai:{source.loc('oai')}"
    await bridging.once(address, **BY_TEMPLATE, **{"max-delete": 100})
    is_short = True
    bridging.forget_comparison()
    facts = await bridging.once(address, **BY_TEMPLATE, **{"max-delete": 100})
    gone = sorted(str(number) for number, (_, _, is_gone) in answers.items() if is_gone)
    deleted = sorted(loc for change, loc in bridging.told() if change == "deleted")
    assert (deleted, facts.error) == (gone, None)
    assert "7 resources are missing" in (facts.held or "")


async def test_a_record_that_a_whole_harvest_calls_deleted_is_not_asked_for(repository, bridging):
    await bridging.once(address(repository), **BY_TEMPLATE)
    repository.delete(7)
    bridging.forget_comparison()
    repository.asked.clear()
    facts = await bridging.once(address(repository), **BY_TEMPLATE)
    assert (bridging.told(), facts.held, facts.error) == ([("deleted", "7")], None, None)
    assert [each for each in repository.asked if each["verb"] == "GetRecord"] == []


async def test_a_token_to_which_nothing_matches_any_more_is_said(repository, bridging, source):
    async def handler(request: web.Request) -> web.Response:
        if "resumptionToken" in request.query:
            text = BAD_ARGUMENT.replace("badArgument", "noRecordsMatch")
            return web.Response(text=text, content_type="text/xml")
        return await repository.handler(request)

    source.handlers["/oai"] = handler
    facts = await bridging.once(f"oai:{source.loc('oai')}", **BY_TEMPLATE)
    assert facts.skipped == "the list ended after 10 records, though it announced 11"


async def test_the_text_of_the_wild_is_read(bridging, source):
    records = "".join(RECORD.format(f"oai:a:{number}") for number in range(3))
    page = PAGE.format(records).replace("TITLE", "caf\xe9 &nbsp;\x01&#x2; R&D")
    serve(source, page, encoding="latin-1")
    facts = await bridging.once(f"oai:{source.loc('oai')}", **BY_TEMPLATE)
    assert (facts.error, facts.skipped, bridging.count()) == (None, None, 3)


async def test_a_repository_without_seconds_is_asked_for_days(repository, bridging, source):
    asked: list[str | None] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.query.get("from"))
        if "T" in (asked[-1] or ""):
            return web.Response(text=BAD_ARGUMENT, content_type="text/xml")
        return await repository.handler(request)

    source.handlers["/oai"] = handler
    await bridging.once(f"oai:{source.loc('oai')}", **BY_TEMPLATE)
    facts = await bridging.once(f"oai:{source.loc('oai')}", **BY_TEMPLATE)
    assert facts.error is None
    assert [len(each) for each in asked if each] == [20, 10]


PAGE = (
    '<?xml version="1.0" encoding="UTF-8"?><OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/">'
    "<responseDate>2026-11-20T00:00:00Z</responseDate><request/><ListIdentifiers>{}"
    "</ListIdentifiers></OAI-PMH>"
)
RECORD = (
    "<header><identifier>{}</identifier><datestamp>2026-11-20T00:00:00Z</datestamp>"
    "<setSpec>TITLE</setSpec></header>"
)
IDENTIFY = (
    '<OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/"><Identify>'
    "<repositoryName>R</repositoryName><granularity>YYYY-MM-DDThh:mm:ssZ</granularity>"
    "<deletedRecord>persistent</deletedRecord></Identify></OAI-PMH>"
)
ERROR = '<OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/"><error code="{}"/></OAI-PMH>'
DELETED = (
    '<OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/"><GetRecord><record>'
    '<header status="deleted"><identifier>{}</identifier></header></record></GetRecord></OAI-PMH>'
)
BAD_ARGUMENT = (
    '<OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/">'
    '<error code="badArgument">no seconds</error></OAI-PMH>'
)


def serve(source: Source, page: str, encoding: str = "utf-8") -> list[str]:
    """The same page for every list; what was asked."""
    asked: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        is_list = request.query["verb"] == "ListIdentifiers"
        asked.append(request.query["verb"])
        body = page if is_list else IDENTIFY
        return web.Response(body=body.encode(encoding), content_type="text/xml")

    source.handlers["/oai"] = handler
    return asked
