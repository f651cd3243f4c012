"""Sources that are right but odd, and Sources that lie: many of them on one server.

Of what is right, what is published is what there is, and the bridge is in step. Of what is not, it
says what is wrong. Nothing is ever called deleted that is not.
"""

import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from clients.python.tests.bridge.bridging import Bridging
from clients.python.tests.bridge.moving import OAI, stamp
from clients.python.tests.bridge.odd import BridgedSource
from rsnotify_bridge.memory import Facts
from tests.support.hub_processes import HubProcess
from tests.support.odd import (
    NAMES,
    RS,
    SITEMAP,
    OddCases,
    a_list_that_is_empty_now,
    a_list_that_was_empty,
    changes,
    named,
    offers,
)
from tests.support.sources import Source

CASES: OddCases[Callable[[BridgedSource], Awaitable[Facts]]] = OddCases()
right, lie = CASES.right, CASES.lie


@pytest.fixture
async def odd(
    real_hub: HubProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[BridgedSource]:
    name = f"odd-{request.node.callspec.id.replace('_', '-')}"[:60].rstrip("-")
    real_hub.add_set(name)
    async with Source() as source:
        yield BridgedSource(source, Bridging(real_hub, name, tmp_path / "bridge.db"), name)


@pytest.mark.parametrize("case", CASES.are_right, ids=named)
async def test_of_a_source_that_is_odd_what_is_published_is_what_there_is(odd, case):
    facts = await case(odd)
    odd.check_state()
    assert (facts.error, facts.held, facts.skipped, facts.is_well) == (None, None, None, True)


@pytest.mark.parametrize("case", CASES.said, ids=named)
async def test_what_is_wrong_with_a_source_is_said(odd, case):
    facts = await case(odd)
    wrong = " ".join(filter(None, (facts.error, facts.held, facts.skipped)))
    assert (CASES.said[case] in wrong, facts.is_well) == (True, False), wrong


right(a_list_that_was_empty)
lie("20 of 20 resources")(a_list_that_is_empty_now)


# --- what is right but odd: lists -----------------------------------------------------------------


@right
async def pages_by_a_link_header(odd):
    odd.write(odd.sitemap(*NAMES[:10]), Link=f'<{odd.loc("more")}>; rel="next"')
    odd.write(odd.sitemap(*NAMES[10:]), "more")
    await odd.look()
    odd.delete("r15")
    odd.write(odd.sitemap(*odd.has[10:]), "more")
    return await odd.look()


@right
async def bytes_in_capitals_or_not(odd):
    odd.put("ä")
    odd.locs["ä"] = odd.loc("%c3%a4")
    odd.write(odd.sitemap().replace("ä", "%c3%a4"))
    await odd.look()
    for written in ("%C3%A4", "ä", "%c3%A4"):
        odd.write(odd.sitemap().replace("ä", written))
        facts = await odd.look()
        assert odd.bridging.told() == []
    return facts


@right
async def a_port_that_is_the_default_and_a_scheme_in_capitals(odd):
    odd.locs["r0"] = "http://a.example/r0"
    here = odd.sitemap(lastmod="2026-11-01")
    others = ("http://a.example/r0", "http://a.example:80/r0", "HTTP://A.example/%720")
    for written in others:
        odd.write(here.replace(odd.loc("r0") + "<", f"{written}<"))
        facts = await odd.look()
    assert odd.bridging.told() == []
    return facts


@right
async def one_address_twice_in_two_ways(odd):
    odd.write(odd.sitemap().replace("</urlset>", odd.urls("%720") + "</urlset>"))
    await odd.look()
    return await odd.look()


@right
async def addresses_that_are_relative(odd):
    odd.write(odd.sitemap().replace(odd.loc(""), ""))
    await odd.look()
    odd.delete("r3")
    odd.write(odd.sitemap().replace(odd.loc(""), ""))
    return await odd.look()


@right
async def a_list_with_a_byte_order_mark(odd):
    text = '<?xml version="1.0" encoding="UTF-8"?>' + odd.sitemap()
    odd.write(b"\xef\xbb\xbf" + text.encode())
    return await odd.look()


@right
async def gzip_without_a_name_for_it(odd):
    odd.write(gzip.compress(odd.sitemap().encode()))
    await odd.look()
    odd.delete("r1")
    odd.write(gzip.compress(odd.sitemap().encode()))
    return await odd.look()


@right
async def an_entry_that_moves_between_parts_that_are_tagged(odd):
    odd.write(odd.index("one", "two"))
    for one, two in ((10, 10), (12, 12), (5, 5)):
        odd.write(odd.sitemap(*NAMES[:one]), "one", ETag=f'"{one}"')
        odd.write(odd.sitemap(*NAMES[two:]), "two", ETag=f'"{two}"')
        facts = await odd.look()
    assert odd.bridging.told() == []
    return facts


@right
async def an_entry_in_two_parts(odd):
    odd.write(odd.index("one", "two"))
    odd.write(odd.sitemap(*NAMES[:12]), "one")
    odd.write(odd.sitemap(*NAMES[8:]), "two")
    await odd.look()
    return await odd.look()


@right
async def a_part_that_goes_with_all_that_it_had(odd):
    odd.write(odd.index("one", "two"))
    odd.write(odd.sitemap(*NAMES[:18]), "one")
    odd.write(odd.sitemap(*NAMES[18:]), "two")
    await odd.look()
    odd.write(odd.index("one"))
    odd.delete("r18")
    odd.delete("r19")
    return await odd.look()


@right
async def one_that_is_left_out_once(odd):
    for names in (NAMES, NAMES[1:], NAMES):
        odd.write(odd.sitemap(*names))
        facts = await odd.look()
    assert odd.bridging.told() == []
    return facts


@right
async def one_that_comes_back_after_it_was_gone(odd):
    odd.write(odd.sitemap())
    await odd.look()
    odd.delete("r0")
    odd.write(odd.sitemap())
    await odd.look()
    odd.put("r0")
    odd.write(odd.sitemap())
    return await odd.look()


@right
async def one_that_is_gone_by_410(odd):
    odd.write(odd.sitemap())
    await odd.look()
    odd.delete("r0")
    odd.answer("r0", status=410)
    odd.write(odd.sitemap())
    return await odd.look()


@right
async def one_that_is_gone_only_at_the_next_look(odd):
    odd.write(odd.sitemap())
    await odd.look()
    odd.answer("r0", status=503)
    odd.write(odd.sitemap(*NAMES[1:]))
    assert (await odd.look()).held is not None
    odd.delete("r0")
    del odd.source.handlers[f"/{odd.name}/r0"]
    return await odd.look()


@right
async def a_time_zone_that_changes(odd):
    for time in ("2026-11-01T12:00:00Z", "2026-11-01T13:00:00+01:00", "2026-11-01T12:00:00.000Z"):
        odd.write(odd.sitemap(lastmod=time))
        facts = await odd.look()
    assert odd.bridging.told() == []
    return facts


@right
async def a_list_whose_moment_stays_while_it_changes(odd):
    head = '<rs:md capability="resourcelist" at="2026-11-01T00:00:00Z"/>'
    odd.write(odd.sitemap(head=head))
    await odd.look()
    odd.delete("r7")
    odd.put("new")
    odd.write(odd.sitemap(head=head))
    return await odd.look()


@right
async def a_moment_as_a_day_after_one_as_a_second(odd):
    for at in ("2026-11-01T12:00:00Z", "2026-11-01", "2026-11-01T13:00:00Z"):
        odd.write(odd.sitemap(head=f'<rs:md capability="resourcelist" at="{at}"/>'))
        facts = await odd.look()
    return facts


@right
async def an_unknown_digest_that_alone_changes(odd):
    for digest in ("odd-1:1", "odd-1:2"):
        md = f'<rs:md hash="{digest}"/></url>'
        odd.write(odd.sitemap(*NAMES, lastmod="2026-11-01").replace("</url>", md, 1))
        facts = await odd.look()
    assert odd.bridging.told() == [("updated", "r0")]
    return facts


@right
async def a_list_that_is_set_back_if_that_is_meant(odd):
    for at, names in (("09", NAMES), ("08", NAMES[1:])):
        head = f'<rs:md capability="resourcelist" at="2026-11-{at}T00:00:00Z"/>'
        odd.write(odd.sitemap(*names, head=head))
        facts = await odd.look()
    assert "was set back" in (facts.skipped or "")
    odd.delete("r0")
    odd.release()
    return await odd.look()


# --- feeds, activities, records -------------------------------------------------------------------


def feed(odd: BridgedSource, *names: str, more: str = "", complete: bool = True) -> str:
    entries = "".join(
        f'<entry><id>urn:odd:{n}</id><link href="{odd.loc(n)}"/>'
        f"<updated>2026-11-01T00:00:{int(n[1:]):02}Z</updated></entry>"
        for n in names
    )
    history = "http://purl.org/syndication/history/1.0"
    whole = f'<fh:complete xmlns:fh="{history}"/>' if complete else ""
    return f'<feed xmlns="http://www.w3.org/2005/Atom">{whole}{more}{entries}</feed>'


@right
async def a_feed_that_is_complete_and_leaves_one_out_that_is_gone(odd):
    odd.write(feed(odd, *odd.has))
    await odd.look()
    odd.delete("r5")
    odd.write(feed(odd, *odd.has))
    return await odd.look()


@right
async def a_tombstone_of_what_still_answers(odd):
    odd.write(feed(odd, *odd.has))
    await odd.look()
    odd.delete("r5", is_there=True)
    tombstone = (
        '<at:deleted-entry xmlns:at="http://purl.org/atompub/tombstones/1.0" ref="urn:odd:r5" '
        'when="2026-11-02T00:00:00Z"/>'
    )
    odd.write(feed(odd, *odd.has, more=tombstone))
    return await odd.look()


def activities(odd: BridgedSource, *done: tuple[str, str, int]) -> str:
    items = [
        {
            "type": kind,
            "endTime": f"2026-11-01T00:00:{second:02}Z",
            "object": {"id": odd.loc(name)},
        }
        for kind, name, second in done
    ]
    return json.dumps({"type": "OrderedCollectionPage", "orderedItems": items})


@right
async def an_activity_that_deletes_what_still_answers(odd):
    made = [("Create", name, number) for number, name in enumerate(NAMES)]
    odd.write(activities(odd, *made))
    await odd.look()
    odd.delete("r5", is_there=True)
    odd.write(activities(odd, *made, ("Delete", "r5", 40)))
    return await odd.look()


@right
async def an_activity_whose_object_is_written_in_another_way(odd):
    made = [("Create", name, number) for number, name in enumerate(NAMES)]
    odd.write(activities(odd, *made))
    await odd.look()
    odd.delete("r5", is_there=True)
    odd.write(activities(odd, *made, ("Delete", "%725", 40)))
    return await odd.look()


def repository(odd: BridgedSource, *, deleted: str = "no", days: bool = False) -> dict[str, str]:
    """Its records by their identifiers, each with what its header says besides."""
    records = dict.fromkeys(NAMES, "")
    odd.address = f"oai:{odd.loc('oai')}"
    odd.options = {"loc": odd.loc("{identifier}")}
    granularity = "YYYY-MM-DD" if days else "YYYY-MM-DDThh:mm:ssZ"
    when = stamp(datetime.now(UTC) - timedelta(hours=2))

    def header(name: str) -> str:
        at = when[:10] if days else when
        names = f"<identifier>{name}</identifier><datestamp>{at}</datestamp>"
        return f"<header {records.get(name, '')}>{names}</header>"

    def told(asked: dict[str, str]) -> str:
        if asked["verb"] == "Identify":
            said = (
                f"<granularity>{granularity}</granularity><deletedRecord>{deleted}</deletedRecord>"
            )
            return f"<Identify>{said}</Identify>"
        if asked["verb"] == "GetRecord":
            name = asked["identifier"]
            found = name in odd.has
            missing = '<error code="idDoesNotExist"/>'
            return f"<GetRecord><record>{header(name)}</record></GetRecord>" if found else missing
        return f"<ListIdentifiers>{''.join(map(header, records))}</ListIdentifiers>"

    async def handler(request: web.Request) -> web.Response:
        text = OAI.format(stamp(datetime.now(UTC)), told(dict(request.query)))
        return web.Response(text=text, content_type="text/xml")

    odd.serve("oai", handler)
    return records


@right
async def a_record_that_is_called_deleted_and_still_answers(odd):
    records = repository(odd, deleted="persistent")
    await odd.look()
    records["r4"] = 'status="deleted"'
    odd.delete("r4", is_there=True)
    return await odd.look()


@right
async def a_record_that_vanishes(odd):
    records = repository(odd, deleted="transient")
    await odd.look()
    del records["r4"]
    odd.delete("r4")
    return await odd.look()


@right
async def a_record_that_is_left_out_by_one_harvest(odd):
    records = repository(odd, days=True)
    await odd.look()
    said = records.pop("r4")
    await odd.look()
    records["r4"] = said
    return await odd.look()


# --- what is wrong --------------------------------------------------------------------------------


def left_out(said: str, **answer: object) -> None:
    """A list that leaves out what answers so."""

    async def case(odd: BridgedSource) -> Facts:
        odd.write(odd.sitemap())
        await odd.look()
        odd.answer("r0", **answer)
        odd.write(odd.sitemap(*NAMES[1:]))
        return await odd.look()

    case.__name__ = f"left_out_{said.rsplit(maxsplit=1)[-1]}"
    lie(said)(case)


left_out("r0 answers 200", text="Not found")
left_out("r0 answers 403", status=403)
left_out("r0 answers 500", status=500)


@right
async def a_change_that_says_when_of_what_a_list_says_nothing_of(odd):
    offers(odd, ("changelist", "changes"), at="2026-11-02T00:00:00Z")
    odd.write(changes(odd, ("updated", "r0", 5)), "changes")
    await odd.look()
    odd.write(changes(odd, ("updated", "r0", 5), ("updated", "r2", 7)), "changes")
    await follow(odd)
    facts = await odd.look()  # the same is not published twice
    assert odd.bridging.told() == [("updated", "r2")]
    return facts


@lie("not known to be gone")
async def a_redirect_to_the_front_page(odd):
    odd.source.resources["/"] = b"front"
    odd.write(odd.sitemap())
    await odd.look()
    odd.answer("r0", status=301, headers={"Location": "/"})
    odd.write(odd.sitemap(*NAMES[1:]))
    return await odd.look()


@lie("11 of 20 resources")
async def half_of_a_list(odd):
    odd.options = {"max-delete": 20}
    odd.write(odd.sitemap())
    await odd.look()
    odd.write(odd.sitemap(*NAMES[:9]))
    facts = await odd.look()
    assert odd.source.asked[f"/{odd.name}/r15"] == 0
    return facts


@lie("was set back")
async def an_old_list(odd):
    for at, names in (("09", NAMES), ("08", NAMES[1:])):
        head = f'<rs:md capability="resourcelist" at="2026-11-{at}T00:00:00Z"/>'
        odd.write(odd.sitemap(*names, head=head))
        facts = await odd.look()
    odd.check_state()
    return facts


@lie("has not come yet")
async def a_list_of_tomorrow(odd):
    at = stamp(datetime.now(UTC) + timedelta(days=1))
    odd.write(odd.sitemap(head=f'<rs:md capability="resourcelist" at="{at}"/>'))
    await odd.look()
    return await odd.look()


@lie("no ResourceSync document")
async def a_page_of_html_in_place_of_a_list(odd):
    odd.write(odd.sitemap())
    await odd.look()
    odd.write("<html><body>Log in</body></html>")
    return await odd.look()


@lie("list")
async def a_list_that_breaks_off(odd):
    odd.write(odd.sitemap())
    await odd.look()
    odd.write(odd.sitemap()[:-100])
    return await odd.look()


@lie("not known to be gone")
async def a_complete_feed_that_leaves_out_what_is_there(odd):
    odd.write(feed(odd, *NAMES))
    await odd.look()
    odd.write(feed(odd, *NAMES[1:]))
    return await odd.look()


@lie("does not reach back")
async def a_feed_with_a_gap(odd):
    odd.write(feed(odd, *NAMES[:5], complete=False))
    await odd.look()
    odd.write(feed(odd, *NAMES[10:], complete=False))
    odd.bridging.state.touch()
    return await odd.bridging.once(odd.address)


@lie("an activity of")
async def activities_that_nobody_knows(odd):
    odd.write(activities(odd, ("Create", "r0", 1), ("Like", "r1", 2)))
    return await odd.look()


@lie("the record r4 is there")
async def a_harvest_that_leaves_out_what_is_there(odd):
    records = repository(odd)
    await odd.look()
    del records["r4"]
    return await odd.look()


@lie("11 of 20 resources")
async def a_harvest_of_half(odd):
    records = repository(odd)
    odd.options["max-delete"] = 20
    await odd.look()
    for name in NAMES[9:]:
        del records[name]
    return await odd.look()


# --- Change Lists ---------------------------------------------------------------------------------


async def follow(odd: BridgedSource) -> Facts:
    """Without comparing all that there is."""
    facts = await odd.bridging.once(odd.address, **odd.options)
    odd.check_deletions()
    return facts


@lie("listed newest first")
async def changes_with_the_newest_first(odd):
    """What was deleted and made again is there, and nothing is published twice."""
    offers(odd, ("changelist", "changes"))
    odd.write(changes(odd, ("updated", "r0", 1)), "changes")
    await odd.look()
    odd.ever_gone.add("r1")
    done = [("created", "r1", 9), ("deleted", "r1", 8), ("updated", "r0", 1)]
    odd.write(changes(odd, *done), "changes")
    await follow(odd)
    odd.write(changes(odd, ("updated", "r2", 10), *done), "changes")
    facts = await follow(odd)
    odd.check_state()
    said = [pair for pair in odd.bridging.told() if pair[1] in ("r0", "r1")]
    assert said == [("deleted", "r1"), ("created", "r1")]
    return facts


@lie("which has not come yet")
async def a_change_of_tomorrow(odd):
    """It hides none of today."""
    offers(odd, ("changelist", "changes"))
    now, tomorrow = (stamp(datetime.now(UTC) + timedelta(days=days)) for days in (0, 1))
    done = ("updated", "r0", 5), ("updated", "r1", 6)
    odd.write(changes(odd, done[0]), "changes")
    await odd.look()
    odd.write(changes(odd, *done).replace("2026-11-02T00:00:06Z", tomorrow), "changes")
    await follow(odd)
    odd.delete("r2")
    text = changes(odd, *done, ("deleted", "r2", 7)).replace("2026-11-02T00:00:06Z", tomorrow)
    odd.write(text.replace("2026-11-02T00:00:07Z", now), "changes")
    facts = await follow(odd)
    assert ("deleted", "r2") in odd.bridging.told()
    return facts


@lie("which has not come yet")
async def changes_until_tomorrow(odd):
    offers(odd, ("changelist", "changes"))
    tomorrow = stamp(datetime.now(UTC) + timedelta(days=1))
    text = changes(odd, ("updated", "r0", 5), end=9).replace("2026-11-02T00:00:09Z", tomorrow)
    odd.write(text, "changes")
    return await odd.look()


@lie("does not say when anything changed")
async def changes_without_any_time(odd):
    offers(odd, ("changelist", "changes"))
    odd.write(changes(odd), "changes")
    await odd.look()
    odd.write(changes(odd, ("updated", "r0", 0)), "changes")
    return await follow(odd)


@lie("names several documents as its resourcelist")
async def two_resource_lists(odd):
    offers(odd, ("resourcelist", "another"))
    return await odd.look()


@lie("say that they are of the same time")
async def two_change_lists_of_one_time(odd):
    offers(odd, ("changelist", "changes"))
    entries = "".join(
        f'<sitemap><loc>{odd.loc(name)}</loc><rs:md from="2026-11-02T00:00:00Z"'
        ' until="2026-11-02T00:00:30Z"/></sitemap>'
        for name in ("one", "two")
    )
    head = '<rs:md capability="changelist" from="2026-11-02T00:00:00Z"/>'
    odd.write(f"<sitemapindex {SITEMAP} {RS}>{head}{entries}</sitemapindex>", "changes")
    odd.write(changes(odd, ("updated", "r0", 1), end=30), "one")
    odd.write(changes(odd, ("updated", "r1", 2), end=30), "two")
    return await odd.look()
