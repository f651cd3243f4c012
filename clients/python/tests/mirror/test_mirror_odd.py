"""Sources that are right but odd, and Sources that lie: mirrored, and audited.

Of what is right, the copy is what there is, and the audit finds nothing. Of what is not, the mirror
says what is wrong and does not call the copy whole. No run ever loses what there is.
"""

import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from aiohttp import web

from clients.python.tests.bridge.moving import stamp
from clients.python.tests.mirror.odd import MirroredSource
from clients.python.tests.mirror.test_mirror import Once
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
from tests.support.running import rsnotify
from tests.support.sources import Source

CASES: OddCases[Callable[[MirroredSource], Awaitable[Once]]] = OddCases()
right, lie = CASES.right, CASES.lie
OF_TWO_LISTS = {
    "a_list_that_is_empty_now",
    "an_unknown_digest_that_alone_changes",
    "a_digest_of_a_wrong_length_that_alone_changes",
}
"""What is wrong is only that one says something else than the one before: an audit reads one."""
AT = "2026-11-02T00:00:00Z"


@pytest.fixture
async def odd(tmp_path: Path) -> AsyncIterator[MirroredSource]:
    async with Source() as source:
        yield MirroredSource(source, tmp_path / "copy", "odd")


@pytest.mark.parametrize("case", CASES.are_right, ids=named)
async def test_of_a_source_that_is_odd_the_copy_is_what_there_is(odd, case):
    ran = await case(odd)
    assert (ran.is_whole, odd.is_equal(), ran.problems().strip()) == (True, True, "")
    assert (await odd.audit()).is_in_sync


@pytest.mark.parametrize("case", CASES.said, ids=named)
async def test_what_is_wrong_with_a_source_is_said(odd, case):
    ran = await case(odd)
    assert (CASES.said[case] in ran.problems(), ran.is_whole) == (True, False), ran.problems()
    audited = await odd.audit()
    assert (odd.is_equal() and case.__name__ in OF_TWO_LISTS) or not audited.is_in_sync


async def test_the_commands_name_what_is_wrong_and_end_with_1(odd):
    await two_resource_lists(odd)
    for command in (("mirror", "--once"), ("audit",)):
        status, out, err = await rsnotify(*command, odd.address, str(odd.copy))
        assert status == 1
        assert "names several documents as its resourcelist" in f"{out} {err}".replace("\n", " ")


right(a_list_that_was_empty)
lie("20 of 20 resources")(a_list_that_is_empty_now)


# --- what is right but odd: lists -----------------------------------------------------------------


@right
async def a_list_with_a_byte_order_mark_and_a_style(odd):
    begin = '<?xml version="1.0" encoding="UTF-8"?>\n<?xml-stylesheet href="a.xsl"?><!-- a > b -->'
    odd.write(b"\xef\xbb\xbf" + (begin + odd.sitemap()).encode(), **{"Content-Type": "text/plain"})
    return await odd.look()


@right
async def a_prefix_for_what_has_none_elsewhere(odd):
    text = odd.sitemap(lastmod="2026-11-01T00:00:00Z").replace("xmlns=", "xmlns:s=")
    for name in ("urlset", "url", "loc", "lastmod"):
        text = text.replace(f"<{name}>", f"<s:{name}>").replace(f"<{name} ", f"<s:{name} ")
        text = text.replace(f"</{name}>", f"</s:{name}>")
    odd.write(text)
    return await odd.look()


@right
async def parts_that_overlap(odd):
    odd.write(odd.index("one", "two", "one"))
    odd.write(odd.sitemap(*NAMES[:12]), "one")
    odd.write(odd.sitemap(*NAMES[8:]), "two")
    return await odd.look()


@right
async def a_list_that_has_moved(odd):
    odd.answer("list", status=308, headers={"Location": "elsewhere"})
    odd.write(odd.sitemap(), "elsewhere")
    return await odd.look()


@right
async def one_that_is_left_out_once(odd):
    for names in (NAMES, NAMES[1:], NAMES):
        odd.write(odd.sitemap(*names))
        ran = await odd.look()
    return ran


@right
async def one_that_comes_back_after_it_was_gone(odd):
    odd.write(odd.sitemap())
    await odd.look()
    odd.delete("r0")
    odd.write(odd.sitemap())
    await odd.look()
    assert odd.is_equal()
    odd.put("r0")
    odd.write(odd.sitemap())
    return await odd.look()


@right
async def one_address_twice(odd):
    """The later entry counts, be it older or not."""
    odd.write(odd.sitemap(lastmod="2026-11-01T00:00:00Z"))
    await odd.look()
    odd.change("r0")
    twice = odd.urls("r0", lastmod="2026-11-01T00:00:05Z")
    odd.write(odd.sitemap(lastmod="2026-11-01T00:00:00Z").replace("</urlset>", f"{twice}</urlset>"))
    return await odd.look()


@right
async def a_clock_that_is_a_day_ahead_in_all_that_the_source_says(odd):
    now = datetime.now(UTC) + timedelta(days=1)
    at = stamp(now - timedelta(hours=1))
    date = {"Date": format_datetime(now, usegmt=True)}
    offers(odd, ("changelist", "changes"))
    odd.write(odd.sitemap(head=f'<rs:md capability="resourcelist" at="{at}"/>'), **date)
    odd.write(one_change(odd, stamp(now), "r0", begin=at), "changes", **date)
    await odd.look()
    odd.change("r0")
    later = stamp(now + timedelta(seconds=1))
    odd.write(one_change(odd, later, "r0", begin=at), "changes", **date)
    return await odd.look()


def one_change(
    odd: MirroredSource, when: str, name: str, *, begin: str = AT, more: str = ""
) -> str:
    text = f'<urlset {SITEMAP} {RS}><rs:md capability="changelist" from="{begin}"{more}/>'
    md = f'<rs:md change="updated" datetime="{when}"/>' if when else '<rs:md change="updated"/>'
    return f"{text}<url><loc>{odd.loc(name)}</loc>{md}</url></urlset>"


# --- what is right but odd: how it is found -------------------------------------------------------


@right
async def a_page_that_links_to_its_description(odd):
    offers(odd)
    odd.address = odd.loc("index.html")
    html = '<html><head><link REL="Up ResourceSync" href="capabilities"></head></html>'
    odd.answer("index.html", text=html, content_type="text/html")
    return await odd.look()


@right
async def a_description_of_one_set(odd):
    offers(odd)
    odd.address = odd.loc("description")
    entry = '<url><loc>capabilities</loc><rs:md capability="capabilitylist"/></url>'
    head = '<rs:md capability="description"/>'
    odd.write(f"<urlset {SITEMAP} {RS}>{head}{entry}</urlset>", "description")
    return await odd.look()


@right
async def a_part_by_which_the_source_is_named(odd):
    offers(odd)
    odd.address = odd.loc("list")
    odd.write(odd.sitemap(head=f'<rs:ln rel="UP" href="{odd.loc("capabilities")}"/>'))
    return await odd.look()


# --- what is right but odd: resources -------------------------------------------------------------


@right
async def resources_of_odd_names(odd):
    odd.put("r0/r0", "R0", "r0.", "con", "r%20%2F..%2F..%2Fa", "a;b=c", "~", "%C3%A4", "l" * 300)
    odd.write(odd.sitemap())
    return await odd.look()


@right
async def a_resource_without_content(odd):
    odd.put("empty")
    odd.source.resources["/odd/empty"] = b""
    odd.write(odd.sitemap())
    return await odd.look()


@right
async def a_resource_that_has_moved(odd):
    odd.source.resources["/odd/elsewhere"] = odd.source.resources["/odd/r0"]
    odd.answer("r0", status=307, headers={"Location": "elsewhere"})
    odd.write(odd.sitemap())
    await odd.look()
    return await odd.look()


def md(odd: MirroredSource, attributes: str, lastmod: str | None = None) -> str:
    """A list whose first resource has these attributes."""
    return odd.sitemap(lastmod=lastmod).replace("</url>", f"<rs:md {attributes}/></url>", 1)


def sha256(odd: MirroredSource, name: str = "r0") -> str:
    return hashlib.sha256(odd.source.resources[f"/odd/{name}"]).hexdigest()


@right
async def a_digest_in_capitals_among_others(odd):
    odd.write(md(odd, f'hash="odd-1:xyz  sha-256:{sha256(odd).upper()} md5:short"'))
    await odd.look()
    odd.change("r0")
    odd.write(md(odd, f'hash="md5:short sha-256:{sha256(odd).upper()} odd-1:xyz"'))
    return await odd.look()


@right
async def a_digest_of_another_kind_than_before(odd):
    odd.write(md(odd, f'hash="sha-256:{sha256(odd)}"', "2026-11-01T00:00:00Z"))
    await odd.look()
    digest = hashlib.md5(odd.source.resources["/odd/r0"], usedforsecurity=False).hexdigest()
    odd.write(md(odd, f'hash="md5:{digest}"', "2026-11-01T00:00:00Z"))
    return await odd.look()


@right
async def an_unknown_digest_beside_a_time(odd):
    for second in (1, 2):
        odd.write(md(odd, f'hash="odd-1:{second}"', f"2026-11-01T00:00:0{second}Z"))
        ran = await odd.look()
        odd.change("r0", f"for the time {second}")
    odd.write(md(odd, 'hash="odd-1:3"', "2026-11-01T00:00:03Z"))
    return await odd.look() if ran.is_whole else ran


@right
async def an_unknown_digest_and_nothing_else(odd):
    for second in (1, 2):
        odd.write(md(odd, f'hash="odd-1:{second}"'))
        ran = await odd.look()
        odd.change("r0", f"{second}")
    odd.write(md(odd, 'hash="odd-1:3"'))
    return await odd.look() if ran.is_whole else ran


@right
async def a_length_that_alone_changes(odd):
    for content in ("short", "it is longer"):
        odd.change("r0", content)
        length = len(odd.source.resources["/odd/r0"])
        odd.write(md(odd, f'length="{length}"', "2026-11-01T00:00:00Z"))
        ran = await odd.look()
    return ran


@right
async def a_day_on_which_it_changes_twice(odd):
    today = stamp(datetime.now(UTC))[:10]
    for content in ("one", "two", "six"):
        odd.change("r0", content)
        odd.write(odd.sitemap(lastmod=today))
        ran = await odd.look()
    return ran


@right
async def a_time_that_goes_back(odd):
    """As where an old version is put back."""
    for second in (5, 1):
        odd.change("r0", f"at {second}")
        odd.write(odd.sitemap(lastmod=f"2026-11-01T00:00:0{second}Z"))
        ran = await odd.look()
    return ran


@right
async def times_in_another_zone(odd):
    for time in ("2026-11-01T12:00:00Z", "2026-11-01T17:45:00+05:45", "2026-11-01T12:00:00.000Z"):
        odd.write(odd.sitemap(lastmod=time))
        ran = await odd.look()
    return ran


@right
async def no_sign_of_a_change_but_the_content(odd):
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=odd.source.resources["/odd/r0"])

    odd.write(odd.sitemap())
    odd.serve("r0", answer)
    await odd.look()
    odd.change("r0")
    return await odd.look()


@right
async def a_body_in_pieces_without_a_length(odd):
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for byte in odd.source.resources["/odd/r0"]:
            await response.write(bytes([byte]))
        return response

    odd.serve("r0", answer)
    odd.write(odd.sitemap())
    return await odd.look()


# --- what is right but odd: changes ---------------------------------------------------------------


def lists(odd: MirroredSource, *done: tuple[str, str, int], end: int = 0) -> None:
    offers(odd, ("changelist", "changes"), at=AT)
    odd.write(changes(odd, *done, end=end), "changes")


@right
async def changes_without_a_list_of_resources(odd):
    odd.address = odd.loc("changes")
    odd.write(changes(odd, *[("created", name, 1) for name in NAMES]), "changes")
    await odd.look()
    odd.delete("r3")
    done = [("created", name, 1) for name in NAMES]
    odd.write(changes(odd, *done, ("deleted", "r3", 2), ("deleted", "r3", 2)), "changes")
    return await odd.look()


@right
async def one_that_is_made_and_deleted_and_made_again_in_one_second(odd):
    lists(odd)
    await odd.look()
    odd.put("new")
    done = [("created", "new", 3), ("deleted", "new", 3), ("created", "new", 3)]
    odd.write(changes(odd, *done), "changes")
    return await odd.look()


@right
async def what_is_gone_listed_last(odd):
    lists(odd, ("updated", "r0", 1))
    await odd.look()
    odd.delete("r5")
    odd.delete("r6")
    done = [("updated", "r0", 7), ("updated", "r1", 8), ("deleted", "r5", 3), ("deleted", "r6", 4)]
    odd.change("r0")
    odd.change("r1")
    odd.write(changes(odd, *done), "changes")
    return await odd.look()


@right
async def times_of_changes_in_another_zone(odd):
    lists(odd)
    await odd.look()
    odd.change("r0")
    odd.write(one_change(odd, "2026-11-01T19:00:05.5-05:00", "r0"), "changes")
    return await odd.look()


@right
async def changes_of_a_day_that_has_begun_only_where_the_source_is(odd):
    lists(odd)
    await odd.look()
    odd.change("r0")
    day = stamp(datetime.now(UTC) + timedelta(hours=13))[:10]
    odd.write(one_change(odd, day, "r0"), "changes")
    await odd.look()
    odd.change("r0", "once more")
    return await odd.look()


@right
async def an_index_that_names_the_newest_list_first(odd):
    offers(odd, ("changelist", "changes"), at=AT)
    for name, begin, end, changed in (("old", 0, 10, "r0"), ("new", 10, 0, "r1")):
        odd.write(changes(odd, ("updated", changed, begin + 1), begin=begin, end=end), name)
    odd.write(change_index(odd, ("new", 10, 0), ("old", 0, 10)), "changes")
    await odd.look()
    odd.change("r1")
    done = [("updated", "r1", 11), ("updated", "r1", 12)]
    odd.write(changes(odd, *done, begin=10), "new")
    return await odd.look()


@right
async def an_index_that_names_the_newest_list_first_and_says_no_times(odd):
    """Also one under it."""
    offers(odd, ("changelist", "changes"), at=AT)
    odd.write(odd.index("first"), "changes")
    odd.write(changes(odd, ("updated", "r0", 1), begin=0), "first")
    await odd.look()
    for name in ("r1", "r2", "r3"):
        odd.change(name)
    odd.write(changes(odd, ("updated", "r0", 1), ("updated", "r1", 5), end=10), "first")
    odd.write(changes(odd, ("updated", "r2", 11), begin=10, end=20), "second")
    odd.write(changes(odd, ("updated", "r3", 21), begin=20), "third")
    for name, parts in (("changes", ("third", "under")), ("under", ("second", "first"))):
        index = change_index(odd, *((part, 0, 0) for part in parts))
        odd.write(re.sub(r"(</loc>)<rs:md [^>]*>", r"\1", index), name)
    return await odd.look()


@right
async def lists_that_overlap_in_a_second(odd):
    offers(odd, ("changelist", "changes"), at=AT)
    for name, begin, end, changed in (("one", 0, 10, "r0"), ("two", 9, 20, "r1")):
        odd.change(changed)
        odd.write(changes(odd, ("updated", changed, 10), begin=begin, end=end), name)
    odd.write(change_index(odd, ("one", 0, 10), ("two", 9, 20)), "changes")
    return await odd.look()


def change_index(odd: MirroredSource, *named: tuple[str, int, int]) -> str:
    at = "2026-11-02T00:00:{:02}Z"
    entries = "".join(
        f'<sitemap><loc>{odd.loc(name)}</loc><rs:md from="{at.format(begin)}"'
        + (f' until="{at.format(end)}"/></sitemap>' if end else "/></sitemap>")
        for name, begin, end in named
    )
    head = f'<rs:md capability="changelist" from="{AT}"/>'
    return f"<sitemapindex {SITEMAP} {RS}>{head}{entries}</sitemapindex>"


# --- what is wrong: lists -------------------------------------------------------------------------


@lie("names several documents as its resourcelist")
async def two_resource_lists(odd):
    offers(odd, ("resourcelist", "another"))
    odd.write(odd.sitemap(*NAMES[:10]))
    odd.write(odd.sitemap(*NAMES[10:]), "another")
    return await odd.look()


@lie("names several documents as its resourcelist")
async def a_second_resource_list_that_comes_later(odd):
    lists(odd, ("updated", "r0", 1))
    assert (await odd.look()).is_whole
    offers(odd, ("resourcelist", "another"), ("changelist", "changes"), at=AT)
    odd.write(odd.sitemap(*NAMES[10:]), "another")
    return await odd.look()


@lie("names several documents as its changelist")
async def two_change_lists(odd):
    lists(odd)
    offers(odd, ("changelist", "changes"), ("changelist", "others"), at=AT)
    odd.write(changes(odd, ("updated", "r1", 2)), "others")
    return await odd.look()


@lie("which has not come yet")
async def a_list_of_tomorrow(odd):
    """What changes today is copied all the same."""
    lists(odd)
    tomorrow = stamp(datetime.now(UTC) + timedelta(days=1))
    odd.write(odd.sitemap(head=f'<rs:md capability="resourcelist" at="{tomorrow}"/>'))
    await odd.look()
    odd.change("r0")
    now = stamp(datetime.now(UTC))
    odd.write(one_change(odd, now, "r0"), "changes")
    ran = await odd.look()
    assert odd.is_equal()
    return ran


@lie("which has not come yet")
async def a_list_of_a_day_that_has_not_come(odd):
    odd.write(odd.sitemap(head='<rs:md capability="resourcelist" at="2999-01-01"/>'))
    return await odd.look()


@lie("another digest")
async def an_unknown_digest_that_alone_changes(odd):
    for digest in ("1", "2"):
        odd.change("r0", digest)
        odd.write(md(odd, f'hash="odd-1:{digest}"', "2026-11-01T00:00:00Z"))
        ran = await odd.look()
    assert odd.is_equal()
    return ran


@lie("another digest")
async def a_digest_of_a_wrong_length_that_alone_changes(odd):
    for digest in ("1", "2"):
        odd.change("r0", digest)
        odd.write(md(odd, f'hash="sha-256:{digest}"', "2026-11-01T00:00:00Z"))
        ran = await odd.look()
    assert odd.is_equal()
    return ran


@lie("its md5 is")
async def a_digest_that_is_wrong(odd):
    odd.write(odd.sitemap())
    await odd.look()
    odd.write(md(odd, f'hash="md5:{"0" * 32}"', "2026-11-01T00:00:00Z"))
    return await odd.look()


@lie("stated")
async def a_length_that_is_wrong(odd):
    odd.write(md(odd, 'length="7"', "2026-11-01T00:00:00Z"))
    return await odd.look()


@lie("well-formed")
async def a_list_that_breaks_off(odd):
    offers(odd)
    await odd.look()
    odd.write(odd.sitemap()[:-100])
    return await odd.look()


@lie("answers 404")
async def a_resource_that_is_listed_and_not_there(odd):
    odd.write(odd.sitemap())
    await odd.look()
    del odd.source.resources["/odd/r0"]
    odd.has.remove("r0")
    odd.write(odd.sitemap(*NAMES, lastmod="2026-11-03T00:00:00Z"))
    return await odd.look()


# --- what is wrong: changes -----------------------------------------------------------------------


@lie("say that they are of the same time")
async def two_change_lists_of_one_time(odd):
    offers(odd, ("changelist", "changes"), at=AT)
    odd.write(change_index(odd, ("one", 0, 30), ("two", 0, 30)), "changes")
    odd.write(changes(odd, ("updated", "r0", 1), end=30), "one")
    odd.write(changes(odd, ("updated", "r1", 2), end=30), "two")
    return await odd.look()


@lie("say that they are of the same time")
async def two_change_lists_of_one_time_with_another_between_them(odd):
    offers(odd, ("changelist", "changes"), at=AT)
    named = ("one", 0, 30), ("other", 30, 40), ("two", 0, 30)
    odd.write(change_index(odd, *named), "changes")
    for name, begin, end in named:
        odd.write(changes(odd, ("updated", "r0", begin + 1), begin=begin, end=end), name)
    return await odd.look()


@lie("say that they are of the same time")
async def two_change_lists_of_one_time_by_their_own_words(odd):
    offers(odd, ("changelist", "changes"), at=AT)
    head = f'<rs:md capability="changelist" from="{AT}"/>'
    index = odd.index("one", "two").replace("<sitemapindex", f"<sitemapindex {RS}")
    odd.write(index.replace("<sitemap>", f"{head}<sitemap>", 1), "changes")
    odd.write(changes(odd, ("updated", "r0", 9), end=30), "one")
    odd.write(changes(odd, ("updated", "r1", 8), end=30), "two")
    await odd.look()
    return await odd.look()


def lists_with_gaps(odd: MirroredSource) -> None:
    """As a hub has them whose Redis has lost changes twice."""
    named = ("one", 0, 10), ("two", 20, 30), ("three", 40, 50)
    odd.write(change_index(odd, *named), "changes")
    for name, begin, end in named:
        done = [("created", each, begin + 1) for each in odd.has]
        odd.write(changes(odd, *done, begin=begin, end=end), name)


@lie("is in no list of the Source")
async def change_lists_with_gaps_behind_a_resource_list(odd):
    offers(odd, ("changelist", "changes"), at=AT)
    lists_with_gaps(odd)
    ran = await odd.look()
    assert odd.is_equal(), "what there is on both sides of a gap is copied"
    return ran


@lie("is in no list of the Source")
async def change_lists_with_gaps_and_no_resource_list(odd):
    offers(odd, ("changelist", "changes"), at=AT)
    entry = f'<url><loc>{odd.loc("changes")}</loc><rs:md capability="changelist"/></url>'
    head = '<rs:md capability="capabilitylist"/>'
    odd.write(f"<urlset {SITEMAP} {RS}>{head}{entry}</urlset>", "capabilities")
    lists_with_gaps(odd)
    await odd.look()
    assert odd.is_equal()
    return await odd.look()


@lie("listed newest first")
async def changes_with_the_newest_first(odd):
    lists(odd, ("updated", "r0", 1))
    await odd.look()
    done = [("updated", "r0", 9), ("created", "r1", 8), ("deleted", "r1", 7)]
    odd.write(changes(odd, *done), "changes")
    ran = await odd.look()
    assert odd.is_equal()
    return ran


@lie("listed newest first")
async def many_changes_with_the_newest_first(odd):
    """More than are handed on together."""
    lists(odd, ("updated", "r0", 1))
    await odd.look()
    done = [("created", "r1", 40), *[("updated", "r0", 30)] * 1_500, ("deleted", "r1", 20)]
    odd.write(changes(odd, *done), "changes")
    ran = await odd.look()
    assert odd.is_equal()
    return ran


@lie("a later change stands before that")
async def a_deletion_after_what_followed_it(odd):
    lists(odd, ("updated", "r0", 1))
    await odd.look()
    odd.write(changes(odd, ("created", "r1", 9), ("deleted", "r1", 8)), "changes")
    ran = await odd.look()
    assert odd.is_equal()
    return ran


@lie("which has not come yet")
async def a_change_of_tomorrow(odd):
    """It hides none of today."""
    lists(odd)
    await odd.look()
    odd.write(one_change(odd, stamp(datetime.now(UTC) + timedelta(days=1)), "r0"), "changes")
    await odd.look()
    odd.change("r1")
    odd.write(one_change(odd, stamp(datetime.now(UTC)), "r1"), "changes")
    await odd.look()
    assert odd.is_equal()
    odd.write(one_change(odd, stamp(datetime.now(UTC) + timedelta(days=1)), "r0"), "changes")
    return await odd.look()


@lie("which has not come yet")
async def a_list_of_changes_until_tomorrow(odd):
    lists(odd)
    await odd.look()
    tomorrow = stamp(datetime.now(UTC) + timedelta(days=1))
    until = f' until="{tomorrow}"'
    odd.write(one_change(odd, AT, "r0", more=until), "changes")
    await odd.look()
    odd.change("r1")
    odd.write(one_change(odd, stamp(datetime.now(UTC)), "r1", more=until), "changes")
    ran = await odd.look()
    assert odd.is_equal()
    return ran


@lie("which has not come yet")
async def a_list_of_changes_from_tomorrow_on(odd):
    lists(odd)
    await odd.look()
    tomorrow = stamp(datetime.now(UTC) + timedelta(days=1))
    odd.change("r0")
    odd.write(one_change(odd, stamp(datetime.now(UTC)), "r0", begin=tomorrow), "changes")
    return await odd.look()


@lie("does not say when anything changed")
async def changes_without_any_time(odd):
    lists(odd)
    await odd.look()
    odd.change("r0")
    odd.write(changes(odd, ("updated", "r0", 0)), "changes")
    return await odd.look()


@lie("does not say when anything changed")
async def changes_without_any_time_that_the_server_says_are_unchanged(odd):
    lists(odd)
    await odd.look()
    odd.change("r0")
    body = changes(odd, ("updated", "r0", 0)).encode()

    async def answer(request: web.Request) -> web.Response:
        if request.headers.get("If-None-Match") == '"1"':
            return web.Response(status=304, headers={"ETag": '"1"'})
        return web.Response(body=body, content_type="application/xml", headers={"ETag": '"1"'})

    odd.serve("changes", answer)
    await odd.look()
    return await odd.look()


@lie("does not say when anything changed")
async def changes_without_a_time_in_a_list_that_says_its_own(odd):
    offers(odd, ("changelist", "changes"), at="2026-11-03T00:00:00Z")
    odd.write(one_change(odd, AT, "r0"), "changes")
    await odd.look()
    odd.change("r0")
    odd.write(one_change(odd, "", "r0"), "changes")
    return await odd.look()


@lie("the datetime 'soon'")
async def a_time_that_is_none(odd):
    lists(odd)
    await odd.look()
    odd.change("r0")
    odd.write(one_change(odd, "soon", "r0"), "changes")
    return await odd.look()


@lie("change is 'renamed'")
async def a_change_that_is_none(odd):
    lists(odd)
    await odd.look()
    odd.write(changes(odd, ("renamed", "r0", 4)), "changes")
    return await odd.look()
