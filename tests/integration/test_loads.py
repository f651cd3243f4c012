"""A Source brings the whole state of its set: what is told, what is kept, what is never seen."""

import asyncio
import gzip
import hashlib
import itertools
import json
import threading
from collections.abc import AsyncIterator

import pytest

from rsnotify.access.tokens import Right, Token, Tokens, id_of, new_secret
from rsnotify.coordination import keys
from rsnotify.errors import NoSuchSet, TryAgain
from rsnotify.journal.submission import Submission, fragment_of
from rsnotify.publishing.loads import load_formats
from rsnotify.publishing.loads.load import Difference, LoadCounts, fragments_of
from rsnotify.publishing.loads.load_endpoint import BesideTheLoop, Reception, in_pieces
from rsnotify.publishing.loads.load_formats import LoadLimits
from rsnotify.publishing.loads.load_store import Load, Part, pack
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import Change, Link
from rsnotify.resourcesync.notification import LOC_END, ChannelName, Interval, shorten, spell_out
from rsnotify.resourcesync.xml_reader import change_of
from rsnotify.resourcesync.xml_writer import Document
from tests.support.faults import Losing
from tests.support.loading import PATH, Loading, ndjson, said
from tests.support.pulling import CHANGES, FRAMEWORK, SET, loc, names
from tests.support.running import TOKEN, until

REST = shorten(b'</loc><lastmod>\0</lastmod><rs:md change="created" datetime="\0"/></url>')
TEN = [f"res{number}" for number in range(10)]


@pytest.fixture
async def loading(client: Client) -> AsyncIterator[Loading]:
    """A hub with one empty set."""
    async with Loading(client) as found:
        yield found


# What is told ----------------------------------------------------------------------------------


async def test_the_first_load_is_told_to_nobody_and_listed(loading):
    answer = await loading.load(ndjson(TEN))
    assert (answer["published"], answer["resources"], answer["created"]) == (False, 10, 10)
    assert await loading.told() == []
    listed = await loading.document(f"/{SET}/resourcelist.xml")
    assert sorted(names(listed)) == TEN
    begin = (await loading.hub.reading.standing(FRAMEWORK)).first
    rows = await loading.journal.read(FRAMEWORK, begin, count=10)
    assert [b"/resourcelist.xml" in fragment for _, fragment in rows] == [True]


async def test_later_loads_publish_just_the_differences(loading):
    await loading.load(ndjson(TEN))
    body = ndjson(TEN[1:9]) + ndjson(["res9"], length=5) + ndjson(["res10"])
    answer = await loading.load(body)
    counts = {name: answer[name] for name in ("created", "updated", "deleted", "unchanged")}
    assert counts == {"created": 1, "updated": 1, "deleted": 1, "unchanged": 8}
    expected = [("created", "res10"), ("deleted", "res0"), ("updated", "res9")]
    assert said(await loading.told()) == expected
    assert said_in(await loading.document(f"/{SET}/changelist.xml")) == expected
    assert await loading.load(body) | {"at": ""} == answer | {
        "at": "",
        "created": 0,
        "updated": 0,
        "deleted": 0,
        "unchanged": 10,
    }
    assert len(await loading.told()) == 3


async def test_a_load_that_publishes_ends_in_a_new_list_and_one_without_differences_in_none(
    loading,
):
    await loading.upkeep.snapshots.take(SET)
    await loading.load(ndjson(TEN), "publish=yes")
    assert sorted(names(await loading.document(f"/{SET}/resourcelist.xml"))) == TEN
    listed = await loading.snapshots.newest(SET)
    await loading.load(ndjson(TEN))
    assert await loading.snapshots.newest(SET) == listed
    await loading.load(ndjson([*TEN, "new"]))
    assert sorted(names(await loading.document(f"/{SET}/resourcelist.xml"))) == ["new", *TEN]


def said_in(document: Document) -> list[tuple[str, str]]:
    return said(change_of(entry) for entry in document.entries)


async def test_with_publish_no_nothing_is_published_and_what_is_the_same_keeps_its_position(
    loading,
):
    await loading.load(ndjson(TEN))
    before = await loading.known()
    body = ndjson(TEN[:8]) + ndjson(["res8"], length=5) + ndjson(["res10"])
    assert (await loading.load(body, "publish=no"))["published"] is False
    assert await loading.told() == []
    after = await loading.known()
    assert list(after) == sorted([*TEN[:9], "res10"])
    assert {name for name in TEN[:9] if after[name] != before[name]} == {"res8"}


async def test_with_publish_yes_a_first_load_publishes_everything(loading):
    assert (await loading.load(ndjson(TEN), "publish=yes"))["published"] is True
    assert said(await loading.told()) == [("created", name) for name in TEN]


async def test_the_hubs_own_resource_list_makes_no_difference(loading):
    await loading.load(ndjson(TEN, hash=f"md5:{'0' * 32}", length=3, type="text/plain"))
    await loading.update("res3", "a&b")
    await loading.upkeep.snapshots.take(SET)
    listed = (await loading.get(f"/{SET}/resourcelist.xml")).body
    answer = await loading.load(listed, content_type="application/xml")
    assert (answer["unchanged"], answer["resources"]) == (11, 11)


async def test_a_lastmod_that_is_left_out_makes_no_difference(loading):
    await loading.load(ndjson(TEN, lastmod="2026-01-01T00:00:00Z"))
    assert (await loading.load(ndjson(TEN)))["unchanged"] == 10
    other = await loading.load(ndjson(TEN, lastmod="2026-01-02T00:00:00Z"))
    assert other["updated"] == 10


async def test_large_differences_are_published_in_bounded_submissions(loading, monkeypatch):
    sizes: list[int] = []
    publish = loading.hub.publish

    async def counted(
        channel: ChannelName, submission: Submission, *, is_limited: bool
    ) -> Interval:
        if channel == CHANGES:
            sizes.append(len(submission.fragments))
        return await publish(channel, submission, is_limited=is_limited)

    monkeypatch.setattr(loading.hub, "publish", counted)
    many = [f"res{number}" for number in range(1_200)]
    await loading.load(ndjson(many), "publish=yes")
    assert sum(sizes) == len(await loading.told()) == 1_200
    assert max(sizes) <= 500


# All or nothing --------------------------------------------------------------------------------


async def test_nothing_is_visible_before_the_body_has_ended(loading):
    await loading.load(ndjson(TEN))
    before = await loading.known()
    async with loading.under_way(ndjson(["new1", "new2"]), "publish=no&max_delete=100") as upload:
        assert await loading.known() == before
    assert (await upload.answer())[0] == 200
    assert list(await loading.known()) == ["new1", "new2"]


async def test_a_body_that_breaks_off_leaves_nothing(loading):
    await loading.load(ndjson(TEN))
    before = await loading.known()
    upload = loading.upload()
    upload.send(ndjson(["new1", "new2"]))
    upload.break_off()
    await upload.answer()
    assert (await loading.known(), await loading.told()) == (before, [])
    assert await loading.leavings() == []


@pytest.mark.parametrize(
    ("body", "headers", "status", "detail"),
    [
        (ndjson(TEN) + b"{", {}, 400, "resource 10: "),
        (ndjson(TEN) + ndjson(["new"], change="created"), {}, 400, "resource 10: "),
        (ndjson(TEN) + ndjson(["new"], length=-1), {}, 400, "resource 10, length: "),
        (gzip.compress(ndjson(TEN))[:-1], {"content_encoding": "gzip"}, 400, "breaks off"),
        (ndjson(TEN), {"content_encoding": "br"}, 415, "'br' is not understood; send gzip"),
        (ndjson(TEN), {"content_type": "text/csv"}, 415, "send one of application/json"),
        (ndjson(TEN), {"idempotency_key": "a b"}, 400, "visible ASCII"),
        (ndjson(TEN), {"authorization": "Bearer wrong"}, 401, "unknown"),
    ],
    ids=["json", "field", "value", "gzip", "encoding", "type", "key", "token"],
)
async def test_a_refused_body_leaves_nothing(loading, body, headers, status, detail):
    answered, problem = await loading.put(body, **headers)
    assert (answered, detail in problem["detail"]) == (status, True), problem
    assert (await loading.known(), await loading.leavings()) == ({}, [])


async def test_a_dry_run_says_what_would_change_and_changes_nothing(loading):
    await loading.load(ndjson(TEN))
    before = await loading.known()
    answer = await loading.load(ndjson([*TEN[:8], "a&b"]), "dry_run=yes")
    assert (answer["created"], answer["deleted"], answer["stage"]) == (1, 2, "compared")
    assert answer["refused"].startswith("this would delete 2 of 10 resources")
    first = [(each["change"], each["loc"]) for each in answer["first"]]
    gone = [("deleted", loc(name)) for name in TEN[8:]]
    assert sorted(first) == [("created", loc("a&b")), *gone]
    assert (await loading.known(), await loading.told()) == (before, [])
    assert await loading.leavings() == []


@pytest.mark.parametrize("different", [100, 101])
async def test_a_dry_run_names_100_differences_and_counts_the_others(loading, different):
    brought = ndjson([f"new{number}" for number in range(different)])
    answer = await loading.load(brought, "dry_run=yes")
    assert (answer["created"], len(answer["first"])) == (different, 100)


@pytest.mark.parametrize(
    ("kept", "query", "status"),
    [
        (9, "", 200),
        (8, "", 409),
        (8, "max_delete=20", 200),
        (8, "max_delete=19.9", 409),
        (8, "max_delete=19.9&publish=no", 409),
        (0, "max_delete=100", 200),
    ],
)
async def test_no_more_is_deleted_than_the_source_has_said(loading, kept, query, status):
    await loading.load(ndjson(TEN))
    answered, answer = await loading.put(ndjson(TEN[:kept]), query)
    assert answered == status, answer
    assert list(await loading.known()) == (TEN[:kept] if status == 200 else TEN)
    assert await loading.leavings() == []


@pytest.mark.parametrize(
    "query",
    ["publish=maybe", "max_delete=101", "max_delete=-1", "speed=11", "max_delete=1&max_delete=100"],
)
async def test_an_option_that_is_not_understood_is_refused(loading, query):
    assert (await loading.put(ndjson(TEN), query))[0] == 400


# Others meanwhile ------------------------------------------------------------------------------


@pytest.mark.parametrize("publish", ["yes", "no"])
async def test_what_others_publish_meanwhile_is_newer_and_wins(loading, publish):
    await loading.load(ndjson(["same", "changed", "left", "gone", "unlisted"]))
    body = ndjson(["same"]) + ndjson(["changed", "left", "gone", "never", "both"], length=1)
    async with loading.under_way(body, f"publish={publish}&max_delete=100") as upload:
        await loading.publish(
            Change(loc("changed"), "updated", length=7),
            Change(loc("gone"), "deleted"),
            Change(loc("unlisted"), "updated", length=7),
            Change(loc("never"), "created"),
            Change(loc("never"), "deleted"),
            Change(loc("both"), "created", length=7),
        )
    await upload.answer()
    known = await loading.known()
    assert list(known) == ["both", "changed", "left", "same", "unlisted"]
    lengths = {name for name, kept in known.items() if b'length="7"' in kept}
    assert lengths == {"both", "changed", "unlisted"}
    assert said((await loading.told())[6:]) == ([("updated", "left")] if publish == "yes" else [])


async def test_what_others_publish_before_the_differences_are_published_wins(loading):
    await loading.load(ndjson(TEN))
    load = await staged(loading, "publishing", "res0", "res1", "new")
    await loading.publish(Change(loc("new"), "created"), Change(loc("new"), "deleted"))
    await loading.update("res5")
    await loading.keeper.keep_loads()
    await finished(loading)
    assert "new" not in await loading.known()
    assert list(await loading.known()) == ["res0", "res1", "res5"]
    late = fragments_of([difference("late")], load.token)
    latest = await loading.journal.newest_begin(CHANGES)
    witness = loading.hub.feed(CHANGES).witness
    before = witness.evidence
    interval = await loading.hub.publish(CHANGES, Submission(late))
    assert interval.from_ == interval.until == (await loading.hub.reading.standing(CHANGES)).head
    assert await loading.journal.newest_begin(CHANGES) == latest
    assert witness.evidence == before, "nothing of it is there to be missed"
    assert "late" not in await loading.known()


def difference(name: str) -> Difference:
    return Difference("created", loc(name).encode(), REST)


async def test_a_deletion_by_others_hides_no_deletion_of_the_load(loading):
    kept, unlisted = of_one_shard(2)
    await loading.load(ndjson([kept, unlisted]))
    async with loading.under_way(ndjson([kept]), "max_delete=100"):
        await loading.publish(Change(loc(kept), "deleted"))
    await finished(loading)
    assert await loading.known() == {}


@pytest.mark.parametrize("how", ["created", "updated"])
@pytest.mark.parametrize("fields", [{}, {"changefreq": "daily"}, {"priority": 1}])
async def test_redis_itself_finds_what_is_the_same(loading, how, fields):
    """Whatever change said it last: only what is different is looked up in what was brought."""
    await loading.publish(Change(loc("res"), how, **fields))
    load = await loading.loads.begin(SET, "aaaa")
    assert load is not None
    await loading.loads.stage(load, Part([], staged_form(**fields)))
    with pytest.raises(IndexError):
        await loading.loads.stage(load, Part([], staged_form(length=7, **fields)))


def staged_form(**fields: object) -> bytes:
    fragment = fragment_of(Change(loc("res"), "created", **fields))
    return pack([(fragment.loc, fragment.short[fragment.short.index(LOC_END) :])])


async def test_what_a_development_version_has_kept_as_xml_is_known(loading):
    await loading.load(ndjson(TEN))
    await loading.publish(Change(loc("res1"), "updated", length=7))
    await as_xml(loading)
    status, known = await loading.ask(f"{PATH}?loc={loc('res1')}")
    assert (status, known["length"]) == (200, 7)
    assert (await loading.load(ndjson(TEN), "overwrite=yes"))["updated"] == 1
    await as_xml(loading)
    assert (await loading.load(ndjson(TEN)))["unchanged"] == 10
    await as_xml(loading)
    assert await loading.upkeep.snapshots.take(SET) is not None
    assert sorted(names(await loading.document(f"/{SET}/resourcelist.xml"))) == TEN


async def as_xml(loading: Loading) -> None:
    for shard in range(keys.STATE_SHARDS):
        key = keys.state(SET, shard)
        for name, kept in (await loading.client.hgetall(key)).items():
            await loading.client.hset(key, name, spell_out(kept))


async def test_a_large_shard_is_replaced_whole(loading):
    many = of_one_shard(2_001)
    await loading.load(ndjson(many))
    before = await loading.known()
    answer = await loading.load(ndjson([*many, "new"]), "publish=no")
    after = await loading.known()
    assert (answer["created"], answer["unchanged"]) == (1, 2_001)
    assert {name: after[name] for name in many} == before


def of_one_shard(count: int) -> list[str]:
    every = (f"res{number}" for number in itertools.count())
    chosen = (name for name in every if keys.shard_of(loc(name).encode()) == 7)
    return list(itertools.islice(chosen, count))


async def test_a_second_load_of_the_set_is_refused_until_the_first_is_done(loading):
    async with loading.under_way(ndjson(TEN)) as upload:
        status, problem = await loading.put(ndjson(TEN))
        assert (status, "is under way" in problem["detail"]) == (409, True)
    assert (await upload.answer())[0] == 200
    assert (await loading.put(ndjson(TEN)))[0] == 200


@pytest.mark.parametrize("made_anew", [False, True])
async def test_a_set_that_is_removed_meanwhile_takes_the_load_with_it(loading, made_anew):
    async with loading.under_way(ndjson(TEN)) as upload:
        await loading.hub.remove_set(SET)
        if made_anew:
            await loading.hub.add_set(SET)
    status, _ = await upload.answer()
    assert status == (503 if made_anew else 404)
    await loading.keeper.keep_loads()
    assert (await loading.known(), await loading.leavings()) == ({}, [])


async def test_a_snapshot_that_is_being_taken_is_never_half_of_each_state(loading, monkeypatch):
    await loading.load(ndjson(TEN))
    halfway, go_on = asyncio.Event(), asyncio.Event()
    write_part = loading.snapshots.write_part

    async def wait(*part: object) -> None:
        halfway.set()
        await go_on.wait()
        await write_part(*part)

    monkeypatch.setattr(loading.snapshots, "write_part", wait)
    taking = asyncio.create_task(loading.upkeep.snapshots.take(SET))
    await halfway.wait()
    monkeypatch.setattr(loading.snapshots, "write_part", write_part)
    await loading.load(ndjson([*TEN, "new"]), "publish=no")
    go_on.set()
    assert await taking is None
    assert "new" in names(await loading.document(f"/{SET}/resourcelist.xml"))


# Taken up by others ----------------------------------------------------------------------------


async def staged(loading: Loading, stage: str, *brought: str, fingerprint: str = "f") -> Load:
    """A load as a process that was killed has left it."""
    load = await loading.loads.begin(SET, "aaaa", "k")
    assert load is not None
    ready = [(loc(name).encode(), REST) for name in brought]
    await loading.loads.stage(load, Part(ready, pack(ready)))
    load = load._replace(stage=stage, found=LoadCounts(3, 10, 1, 0, 8), fingerprint=fingerprint)
    if stage == "publishing":
        await loading.loads.decide(load)
    elif stage == "listing":
        await loading.loads.replace(load)
    return load


async def finished(loading: Loading) -> None:
    async def leaves_nothing() -> bool:
        return not await loading.leavings()

    await until(leaves_nothing)


async def test_what_was_only_staged_is_removed_by_whoever_lives(loading):
    await loading.load(ndjson(TEN))
    await staged(loading, "staging", "res0")
    await loading.keeper.keep_loads()
    assert await loading.leavings() == []
    assert list(await loading.known()) == TEN


@pytest.mark.parametrize("stage", ["publishing", "listing"])
async def test_what_was_decided_is_done_by_whoever_lives(loading, stage):
    await loading.load(ndjson(TEN))
    await staged(loading, stage, "res0", "res1", "new")
    await loading.keeper.keep_loads()
    await finished(loading)
    assert list(await loading.known()) == ["new", "res0", "res1"]
    assert len(await loading.told()) == (9 if stage == "publishing" else 0)
    assert await loading.loads.outcome(SET, "k") == ("f", await loading.loads.last_outcome(SET))
    assert await loading.leavings() == []


async def test_what_was_published_already_is_not_published_again(loading):
    await loading.load(ndjson(TEN))
    load = await staged(loading, "publishing", "res0", "res1", "new")
    some = (await loading.loads.differences(load, 0, 4)).named
    await loading.hub.publish(CHANGES, Submission(fragments_of(some, load.token)))
    await loading.keeper.keep_loads()
    await finished(loading)
    changes = await loading.told()
    assert len(changes) == len({change.loc for change in changes}) == 9


async def test_to_ask_again_for_what_was_done_does_no_harm(loading):
    await loading.load(ndjson(TEN))
    load = await staged(loading, "listing", "res0", "res1")
    await loading.loads.replace(load)
    await loading.loads.discard(load)
    assert list(await loading.known()) == ["res0", "res1"]
    assert await loading.loads.current(SET) is not None


async def test_a_load_while_one_that_was_decided_waits_is_refused(loading):
    await staged(loading, "publishing", "res0")
    assert (await loading.put(ndjson(TEN)))[0] == 409
    await loading.keeper.keep_loads()
    await finished(loading)
    assert (await loading.put(ndjson(TEN)))[0] == 200


async def test_a_process_that_was_frozen_finds_its_load_gone(loading):
    async with loading.under_way(ndjson(TEN)) as upload:
        await loading.client.delete(f"rsnotify:{{{SET}}}:claim:load")  # its time is over
        await loading.keeper.keep_loads()
    status, problem = await upload.answer()
    assert (status, "the load was lost" in problem["detail"]) == (503, True)
    assert (await loading.known(), await loading.leavings()) == ({}, [])


# Keys ------------------------------------------------------------------------------------------


async def test_the_same_key_again_is_answered_as_before(loading):
    await loading.load(ndjson(TEN))
    body = ndjson([*TEN, "new"])
    answer = await loading.load(body, idempotency_key="k")
    await loading.publish(Change(loc("new"), "deleted"))
    assert await loading.load(body, idempotency_key="k") == answer
    assert "new" not in await loading.known()


async def test_a_key_that_was_used_for_another_load_is_refused(loading):
    await loading.load(ndjson(TEN), idempotency_key="k")
    status, problem = await loading.put(ndjson(TEN[1:]), idempotency_key="k")
    assert (status, "was used for another load" in problem["detail"]) == (409, True)
    assert (await loading.put(ndjson(TEN), "publish=no", idempotency_key="k"))[0] == 409


async def test_the_same_key_while_the_first_is_received_is_told_to_wait(loading):
    async with loading.under_way(ndjson(TEN), key="k") as upload:
        status, problem = await loading.put(ndjson(TEN), idempotency_key="k")
        assert (status, "is still being received" in problem["detail"]) == (503, True)
        assert (await loading.put(ndjson(TEN), idempotency_key="other"))[0] == 409
    assert (await upload.answer())[0] == 200


async def test_while_a_load_begins_or_ends_another_is_told_to_come_again(loading):
    async with loading.keeper.alone(SET):
        status, problem = await loading.put(ndjson(TEN))
    assert (status, "just beginning or ending" in problem["detail"]) == (503, True)


async def test_the_same_key_while_the_first_is_being_done_is_answered_how_far_it_is(loading):
    body = ndjson(["res0"])
    fingerprint = hashlib.blake2b(body, digest_size=12).hexdigest()
    await staged(loading, "publishing", "res0", fingerprint=fingerprint)
    status, answer = await loading.put(body, idempotency_key="k")
    assert (status, answer["stage"], answer["resources"]) == (202, "publishing", 3)
    status, problem = await loading.put(ndjson(["res1"]), idempotency_key="k")
    assert (status, "was used for another load" in problem["detail"]) == (409, True)
    await loading.keeper.keep_loads()
    await finished(loading)
    status, answer = await loading.put(body, idempotency_key="k")
    assert (status, answer["stage"]) == (200, "done")


async def test_a_later_set_of_the_same_name_knows_no_key_of_the_one_before(loading):
    await loading.load(ndjson(TEN), idempotency_key="k")
    await loading.hub.remove_set(SET)
    await loading.hub.add_set(SET)
    await loading.load(ndjson(TEN), idempotency_key="k")
    assert list(await loading.known()) == TEN


# Who may ---------------------------------------------------------------------------------------


async def test_a_private_set_is_asked_about_by_its_readers_only(loading):
    await loading.load(ndjson(TEN))
    assert (await loading.ask(f"{PATH}?loc={loc('res0')}"))[0] == 200
    await loading.hub.edit_set(SET, {"private": True})
    assert (await loading.ask(f"{PATH}?loc={loc('res0')}"))[0] == 404
    assert (await loading.ask(PATH))[0] == 404
    assert (await loading.ask(PATH, authorization=f"Bearer {TOKEN}"))[0] == 200
    publisher = await token_for(loading, ("publish",))
    assert (await loading.ask(PATH, authorization=publisher))[0] == 200
    assert (await loading.ask(f"{PATH}?loc={loc('res0')}", authorization=publisher))[0] == 403


@pytest.mark.parametrize(
    ("rights", "named"),
    [(("publish",), ["updated"]), (("publish", "read"), ["deleted", "updated"])],
)
async def test_a_dry_run_names_nothing_of_a_private_set_but_what_was_sent(loading, rights, named):
    await loading.load(ndjson(TEN))
    await loading.hub.edit_set(SET, {"private": True})
    token = await token_for(loading, rights)
    answer = await loading.load(ndjson(["res0"], length=5), "dry_run=yes", authorization=token)
    assert answer["deleted"] == 9
    assert sorted({each["change"] for each in answer["first"]}) == named


@pytest.mark.parametrize(
    ("rights", "named"), [(("publish",), [False, True]), (("publish", "read"), [True, True])]
)
async def test_nor_does_the_refusal_of_a_load_that_is_older(loading, rights, named):
    await loading.load(ndjson(["sent"]))
    await loading.publish(
        Change(loc("hidden"), "created"), Change(loc("sent"), "updated", length=5)
    )
    await loading.hub.edit_set(SET, {"private": True})
    token = await token_for(loading, rights)
    status, problem = await loading.put(ndjson(["sent"]), authorization=token)
    assert (status, "2 changes" in problem["detail"]) == (409, True)
    assert [loc(each) in problem["detail"] for each in ("hidden", "sent")] == named


async def test_a_refusal_of_which_nothing_may_be_named_says_so(loading):
    await loading.publish(Change(loc("hidden"), "created"))
    await loading.hub.edit_set(SET, {"private": True})
    token = await token_for(loading, ("publish",))
    _, problem = await loading.put(ndjson([]), authorization=token)
    assert "load before it: not shown to this token; say" in problem["detail"]


async def test_a_token_that_is_revoked_while_its_load_comes_loads_nothing(client):
    async with Loading(client, token_seconds=0) as loading:  # each time, Redis is asked
        secret = await token_for(loading, ("publish", "read"))
        await loading.load(ndjson(["res0"]))
        upload = loading.upload(authorization=secret)
        upload.send(ndjson(["res0", "res1"]))
        await until(lambda: loading.loads.current(SET))
        await Tokens(loading.client).revoke(id_of(secret.removeprefix("Bearer ")))
        upload.send(ndjson(["res2"]), is_last=True)
        assert (await upload.answer())[0] == 401
        assert len(await loading.known()) == 1
        assert await loading.leavings() == []


async def token_for(loading: Loading, rights: tuple[Right, ...]) -> str:
    secret = new_secret()
    token = Token(id_of(secret), sets=(SET,), created="2026-11-21T00:00:00Z", rights=rights)
    await Tokens(loading.client).create(secret, token)
    return f"Bearer {secret}"


@pytest.mark.parametrize(("rights", "status"), [(("read",), 403), (("publish",), 200)])
async def test_a_load_needs_the_right_to_publish(loading, rights, status):
    found, _ = await loading.put(ndjson(TEN), authorization=await token_for(loading, rights))
    assert found == status


# What is known of a resource -------------------------------------------------------------------


async def test_a_resource_is_told_as_it_was_published_with_its_position(loading):
    told = {"hash": f"md5:{'0' * 32}", "length": 3, "type": "text/plain"}
    links = (Link("describes", "http://example.com/é?a=1&b=2"),)
    change = Change(loc("a&b"), "updated", "2026-01-01T00:00:00Z", links=links, **told)
    interval = await loading.publish(change)
    status, found = await loading.ask(f"{PATH}?loc={loc('a%26b')}")
    assert (status, found["datetime"]) == (200, str(interval.until))
    assert found["links"] == [{"rel": "describes", "href": "http://example.com/é?a=1&b=2"}]
    assert {name: found[name] for name in told} == told
    await loading.publish(Change(loc("a&b"), "deleted"))
    status, problem = await loading.ask(f"{PATH}?loc={loc('a%26b')}")
    assert (status, "never known, or deleted" in problem["detail"]) == (404, True)


async def test_a_question_that_is_not_understood_is_refused(loading):
    status, problem = await loading.ask(f"{PATH}?uri={loc('res0')}")
    detail = "unknown parameter 'uri'; known here: loc, access_token"
    assert (status, problem["detail"]) == (400, detail)
    assert (await loading.ask(f"{PATH}?loc={loc('res0')}&loc={loc('res1')}"))[0] == 400


async def test_a_load_under_way_is_shown(loading):
    async with loading.under_way(ndjson(TEN)) as upload:
        _, shown = await loading.ask(PATH)
        assert (shown["resources"], shown["load"]["stage"]) == (0, "staging")
    answer = (await upload.answer())[1]
    assert (await loading.ask(PATH))[1] == {
        "set": SET,
        "resources": 10,
        "position": str((await loading.loads.standing(SET)).position),
        "load": None,
        "last_load": answer,
    }


@pytest.mark.parametrize("name", ["told", "published"])
async def test_what_was_kept_of_a_load_under_its_older_name_is_shown_under_its_own(
    loading, client, name
):
    answer = await loading.load(ndjson(TEN), "publish=yes", idempotency_key="k")
    older = json.dumps({name if each == "published" else each: answer[each] for each in answer})
    await client.set(keys.load(SET, "last"), older)
    (kept_key,) = await client.keys("rsnotify:*load*key*k")
    fingerprint = (await client.get(kept_key)).partition(b" ")[0]
    await client.set(kept_key, fingerprint + b" " + older.encode())
    assert (await loading.ask(PATH))[1]["last_load"] == answer
    assert await loading.load(ndjson(TEN), "publish=yes", idempotency_key="k") == answer


# Limits ----------------------------------------------------------------------------------------


async def test_one_piece_of_all_loads_is_read_at_once():
    both, beside = threading.Barrier(2), BesideTheLoop()

    def read(_: None) -> None:
        both.wait(timeout=0.1)

    found = await asyncio.gather(*(beside.do(read, None) for _ in range(2)), return_exceptions=True)
    assert [type(each) for each in found] == [threading.BrokenBarrierError] * 2


async def test_one_thread_reads_all_loads_whatever_other_threads_do():
    """A parser that a second thread feeds may end the process."""
    beside, done = BesideTheLoop(), threading.Event()
    first = await beside.do(lambda _: threading.get_ident(), None)
    other = asyncio.create_task(asyncio.to_thread(done.wait))
    await asyncio.sleep(0)
    second = await beside.do(lambda _: threading.get_ident(), None)
    done.set()
    await other
    assert first == second != threading.get_ident()


@pytest.mark.parametrize(("most", "status"), [(10, 200), (9, 413)])
async def test_a_body_holds_so_many_resources_and_no_more(client, most, status):
    async with Loading(client, limits=LoadLimits(resources=most)) as loading:
        assert (await loading.put(ndjson(TEN)))[0] == status
        assert await loading.leavings() == []


@pytest.mark.parametrize(("less", "status"), [(0, 200), (1, 413)])
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_a_body_has_so_many_bytes_decompressed_and_no_more(client, less, status, encoding):
    body = ndjson(TEN)
    sent = gzip.compress(body) if encoding == "gzip" else body
    async with Loading(client, limits=LoadLimits(body_bytes=len(body) - less)) as loading:
        assert (await loading.put(sent, content_encoding=encoding))[0] == status
        assert await loading.leavings() == []


async def test_a_body_that_takes_too_long_leaves_nothing(client):
    async with Loading(client, reception=Reception(seconds=0.2)) as loading:
        upload = loading.upload()
        upload.send(ndjson(TEN))
        status, problem = await upload.answer()
        assert (status, "did not come within" in problem["detail"]) == (408, True)
        assert await loading.leavings() == []


async def test_a_load_that_takes_long_to_publish_is_answered_202_and_goes_on(client):
    async with Loading(client, answer_seconds=0.0) as loading:
        status, answer = await loading.put(ndjson(TEN), "publish=yes")
        assert (status, answer["stage"]) == (202, "publishing")
        await finished(loading)
        assert said(await loading.told()) == [("created", name) for name in TEN]


async def test_an_unknown_set_is_refused_before_the_body_is_read(loading):
    await loading.hub.remove_set(SET)
    assert (await loading.put(b"{"))[0] == 404
    with pytest.raises(NoSuchSet):
        await loading.loads.begin(SET, "aaaa")
    assert await loading.leavings() == []


async def test_a_body_cut_small_is_read_in_pieces_worth_reading():
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(2 * load_formats.PIECE_BYTES + 1):
            yield b" "

    sizes = [len(piece) async for piece in in_pieces(parts())]
    assert sizes == [load_formats.PIECE_BYTES, load_formats.PIECE_BYTES, 1]


# What Redis loses -------------------------------------------------------------------------------


def part_of(*some: str) -> Part:
    brought = [(loc(name).encode(), REST) for name in some]
    return Part(brought, pack(brought))


@pytest.mark.parametrize("lost", ["a part", "what is newer", "nothing"])
async def test_a_load_of_which_redis_has_lost_something_deletes_nothing(loading, client, lost):
    """What is missing of what was brought would be taken for deleted, what is newer for older."""
    await loading.load(ndjson(TEN))
    before = await loading.known()
    load = await loading.loads.begin(SET, "token")
    assert load is not None
    await loading.loads.stage(load, part_of(*TEN[:5]))
    async with Losing(client, f"rsnotify:{{{SET}}}*" if lost != "nothing" else "none"):
        if lost == "a part":
            await loading.loads.stage(load, part_of(*TEN[5:9]))
        elif lost == "what is newer":
            await loading.loads.note_newer(load, [loc("res9").encode()])
    if lost == "nothing":
        await loading.loads.stage(load, part_of(*TEN[5:]))
        assert (await loading.loads.differences(load, 0, 10)).found.known
        return
    for act in (
        loading.loads.stage(load, part_of("res9")),
        loading.loads.differences(load, 0, 10),
        loading.loads.decide(load),
    ):
        with pytest.raises(TryAgain, match="Redis lost data; send it again"):
            await act
    await loading.loads.discard(load)
    assert await loading.known() == before


async def test_a_load_that_told_nobody_and_is_lost_leaves_a_gap(loading, client):
    """No change says it, but who has the list that it made has what Redis lacks now."""
    async with Losing(client, f"rsnotify:{{{SET}}}*"):
        await loading.load(ndjson(TEN))
    assert await loading.known() == {}
    await loading.hub.checking.check_all()
    record = keys.record(CHANGES)
    assert await client.hget(record, "gaps") == await client.hget(record, "head")
