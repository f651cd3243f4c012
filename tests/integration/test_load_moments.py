"""Export, publish, load: what was published after the moment of a state is never taken back."""

import json
from collections.abc import AsyncIterator

import pytest

from rsnotify.journal.submission import Submission, fragment_of
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import DAY, Change, Position
from rsnotify.resourcesync.notification import ChannelName
from tests.support.amount import enough
from tests.support.loading import PATH, Loading, ndjson, said
from tests.support.pulling import CHANGES, SET, loc

TEN = [f"res{number}" for number in range(10)]
OLD, NEW = {"type": "text/plain"}, {"type": "text/html"}


@pytest.fixture
async def loading(client: Client) -> AsyncIterator[Loading]:
    """A hub with one empty set."""
    async with Loading(client) as found:
        yield found


async def position(loading: Loading) -> str:
    status, answer = await loading.ask(PATH)
    assert status == 200
    return str(answer["position"])


async def types(loading: Loading) -> dict[str, str]:
    """The resources that are known, and which type each has."""
    found = {}
    for name in await loading.known():
        found[name] = (await loading.ask(f"{PATH}?loc={loc(name)}"))[1].get("type", "")
    return found


# A resource at the moment of the state, what is published of it later, and how the state that is
# loaded has it; then what the hub must have of it in the end, and what the load must publish.
CASES = {
    "in the file, as it is": (OLD, None, OLD, OLD, None),
    "in the file, changed at its Source before": (OLD, None, NEW, NEW, "updated"),
    "in the file, new at its Source": (None, None, OLD, OLD, "created"),
    "not in the file, gone at its Source": (OLD, None, None, None, "deleted"),
    "never known": (None, None, None, None, None),
    "in the file, updated later": (OLD, NEW, OLD, NEW, None),
    "in the file in a third version, updated later": (OLD, NEW, {"type": "a/b"}, NEW, None),
    "in the file, and updated later to just that": (OLD, NEW, NEW, NEW, None),
    "in the file, created later": (None, NEW, OLD, NEW, None),
    "in the file, deleted later": (OLD, "deleted", OLD, None, None),
    "in the file, never known before, deleted later": (None, "deleted", OLD, None, None),
    "not in the file, created later": (None, NEW, None, NEW, None),
    "not in the file, updated later": (OLD, NEW, None, NEW, None),
    "not in the file, deleted later": (OLD, "deleted", None, None, None),
}


@pytest.mark.parametrize("publish", enough(["yes", "no"], 1))
@pytest.mark.parametrize("when", ["before the load", "while it is staged"])
@pytest.mark.parametrize("case", CASES)
async def test_what_is_later_than_the_moment_stays_as_it_is(loading, case, when, publish):
    before, later, brought, expected, published = CASES[case]
    await loading.load(ndjson(TEN))
    if before is not None:
        await loading.publish(Change(loc("one"), "created", **before))
    query = f"as_of={await position(loading)}&publish={publish}"
    if when == "before the load":
        await publish_later(loading, later)
    begun = len(await loading.told())
    one = ndjson(["one"], **brought) if brought else b""
    async with loading.under_way(ndjson(TEN) + one, query) as upload:
        if when == "while it is staged":
            await publish_later(loading, later)
            begun = len(await loading.told())
    status, answer = await upload.answer()
    assert (status, answer["stage"]) == (200, "done"), answer
    assert (await types(loading)).get("one") == (expected and expected["type"])
    told = said((await loading.told())[begun:])
    assert told == ([(published, "one")] if published and publish == "yes" else [])


async def publish_later(loading: Loading, later: dict[str, str] | str | None) -> None:
    if later == "deleted":
        await loading.publish(Change(loc("one"), "deleted"))
    elif later is not None:
        assert isinstance(later, dict)
        await loading.publish(Change(loc("one"), "updated", **later))


async def test_an_export_that_is_loaded_makes_no_draft_public_again(loading):
    await loading.load(ndjson([*TEN, "draft"]))
    as_of = await position(loading)
    exported = ndjson([*TEN, "draft"])
    await loading.publish(Change(loc("draft"), "deleted"))
    answer = await loading.load(exported, f"as_of={as_of}")
    assert (answer["created"], answer["newer"], answer["as_of"]) == (0, 1, as_of)
    assert "draft" not in await loading.known()
    assert said(await loading.told()) == [("deleted", "draft")]


async def test_the_first_line_of_ndjson_may_name_the_moment(loading):
    await loading.load(ndjson([*TEN, "draft"]))
    heading = json.dumps({"as_of": await position(loading)}).encode() + b"\n"
    await loading.publish(Change(loc("draft"), "deleted"))
    answer = await loading.load(b"\n" + heading + ndjson([*TEN, "draft"]))
    assert (answer["created"], answer["newer"], answer["resources"]) == (0, 1, 11)


@pytest.mark.parametrize(
    "heading",
    [
        b'{"as_of": "yesterday"}\n',
        b'{"as_of": 5}\n',
        b'{"as_of": "2026-11-20T21:34:00Z", "loc": "http://example.com/a"}\n',
    ],
)
async def test_a_first_line_that_cannot_be_meant_is_refused(loading, heading):
    status, problem = await loading.put(heading + ndjson(TEN))
    assert (status, "the first line" in problem["detail"]) == (400, True)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("as_of=", "as_of is '': it must be a position that the hub gave"),
        ("as_of=%20", "as_of is ' ': it must be a position that the hub gave"),
        ("as_of=9999-12-31T23:59:59-23:59", "it must be a position that the hub gave"),
        ("as_of=1970-01-01T00:00:00Z", "as_of 1970-01-01T00:00:00.000000Z"),
        ("as_of=1970-01-01T00:00:00Z&overwrite=yes", "send one of them"),
    ],
)
async def test_a_moment_in_the_address_that_cannot_be_meant_is_refused(loading, query, said):
    status, problem = await loading.put(ndjson(TEN), query)
    assert status in (400, 409)
    assert said in problem["detail"]
    assert await loading.known() == {}


async def test_the_moment_stands_in_the_first_line_only(loading):
    heading = json.dumps({"as_of": await position(loading)}).encode() + b"\n"
    status, _ = await loading.put(ndjson(TEN) + heading)
    assert status == 400


# Without a moment ------------------------------------------------------------------------------


async def test_without_a_moment_nothing_is_taken_back_unless_it_is_meant(loading):
    await loading.load(ndjson([*TEN, "draft", "title"], **OLD))
    await loading.publish(
        Change(loc("draft"), "deleted"),
        Change(loc("title"), "updated", **NEW),
        Change(loc("new"), "created", **NEW),
    )
    body = ndjson([*TEN, "draft", "title"], **OLD)
    status, problem = await loading.put(body)
    assert status == 409
    for named in ("draft (created)", "title (updated)", "new (deleted)", "3 changes", "--as-of"):
        assert named in problem["detail"]
    assert "max-delete" not in problem["detail"]
    assert await types(loading) == dict.fromkeys(TEN, "text/plain") | {
        "title": "text/html",
        "new": "text/html",
    }
    compared = await loading.load(body, "dry_run=yes")
    assert compared["refused"] == problem["detail"]
    answer = await loading.load(body, "overwrite=yes")
    assert (answer["created"], answer["updated"], answer["deleted"]) == (1, 1, 1)


async def test_the_delete_guard_does_not_answer_where_the_load_is_older(loading):
    await loading.load(ndjson(TEN))
    await loading.publish(*(Change(loc(f"new{number}"), "created") for number in range(9)))
    status, problem = await loading.put(ndjson(TEN))
    assert (status, "published since" in problem["detail"]) == (409, True)
    assert "max_delete" not in problem["detail"]
    status, problem = await loading.put(ndjson(TEN), "max_delete=100")
    assert (status, "published since" in problem["detail"]) == (409, True)
    status, problem = await loading.put(ndjson(TEN), "overwrite=yes")
    assert (status, "max_delete=48" in problem["detail"]) == (409, True)


async def test_a_refusal_names_ten_and_counts_the_others(loading):
    await loading.publish(*(Change(loc(f"new{number}"), "created") for number in range(11)))
    _, problem = await loading.put(ndjson(TEN))
    assert "11 changes" in problem["detail"]
    assert "and 1 more" in problem["detail"]
    assert problem["detail"].count("(deleted)") == 10


async def test_what_the_load_before_published_itself_may_be_changed_again(loading):
    await loading.load(ndjson(TEN))
    await loading.load(ndjson(["res0"], **NEW) + ndjson([*TEN[1:9], "new"]))
    answer = await loading.load(ndjson(TEN, **OLD))
    assert (answer["created"], answer["updated"], answer["deleted"]) == (1, 9, 1)


@pytest.mark.parametrize("publish", ["yes", "no"])
async def test_what_was_published_during_the_load_before_is_not_taken_back_either(loading, publish):
    await loading.load(ndjson(TEN))
    async with loading.under_way(ndjson([*TEN, "draft"]), f"publish={publish}") as upload:
        await loading.publish(Change(loc("res5"), "deleted"))
    assert (await upload.answer())[0] == 200
    status, problem = await loading.put(ndjson([*TEN, "draft"]))
    assert (status, "res5 (created)" in problem["detail"]) == (409, True)


async def test_what_stayed_in_the_load_before_is_not_taken_back_either(loading):
    await loading.load(ndjson(TEN))
    as_of = await position(loading)
    await loading.publish(Change(loc("res5"), "deleted"))
    await loading.load(ndjson(TEN), f"as_of={as_of}")
    status, problem = await loading.put(ndjson(TEN))
    assert (status, "res5 (created)" in problem["detail"]) == (409, True)


async def test_a_first_load_needs_no_moment(loading):
    assert (await loading.load(ndjson(TEN)))["created"] == 10


async def test_a_set_that_was_emptied_is_no_first_load(loading):
    await loading.publish(Change(loc("draft"), "created"), Change(loc("draft"), "deleted"))
    status, problem = await loading.put(ndjson(["draft"]))
    assert (status, "draft (created)" in problem["detail"]) == (409, True)


async def test_what_is_older_than_the_journal_is_still_known_as_far_as_it_is_kept(loading):
    await loading.publish(Change(loc("old"), "created"), Change(loc("old"), "deleted"))
    await forget_all(loading)
    await loading.publish(Change(loc("draft"), "created"), Change(loc("draft"), "deleted"))
    status, problem = await loading.put(ndjson(["old", "draft"]))
    assert (status, "a change that was" in problem["detail"]) == (409, True)
    assert (await loading.load(ndjson(["old"])))["created"] == 1


async def test_what_is_packed_is_read_too(loading):
    await loading.load(ndjson([*TEN, "draft"]))
    as_of = await position(loading)
    await loading.publish(Change(loc("draft"), "deleted"))
    await pack_all(loading)
    assert (await loading.put(ndjson([*TEN, "draft"])))[0] == 409
    assert (await loading.load(ndjson([*TEN, "draft"]), f"as_of={as_of}"))["newer"] == 1


async def pack_all(loading: Loading) -> None:
    """Close the window of all that was published, and trim the stream."""
    await loading.windows.close(SET, 1)
    record = await loading.windows.record(SET)
    await loading.upkeep.windows.announce_and_pack(SET, record.packed_until)
    for window in (await loading.windows.span(SET)).windows:
        assert await loading.windows.trim(SET, window)


async def forget_all(loading: Loading) -> None:
    await pack_all(loading)
    await loading.windows.forget(SET, (await loading.windows.span(SET)).windows)


# Which positions count -------------------------------------------------------------------------


async def test_a_moment_before_what_the_journal_keeps_is_gone(loading):
    await loading.load(ndjson(TEN))
    await loading.update("res1")
    as_of = await position(loading)
    await loading.publish(Change(loc("res2"), "deleted"))
    await forget_all(loading)
    await loading.update("res3")
    status, problem = await loading.put(ndjson(TEN), f"as_of={as_of}")
    assert (status, "rsnotify resources position dataset1" in problem["detail"]) == (410, True)
    assert (await loading.put(ndjson(TEN), f"as_of={await position(loading)}"))[0] == 200


@pytest.mark.parametrize("microseconds", [1, DAY])
async def test_a_moment_in_the_future_is_refused(loading, microseconds):
    await loading.update(*TEN)
    as_of = Position(Position.parse(await position(loading)) + microseconds)
    status, problem = await loading.put(ndjson(TEN), f"as_of={as_of}")
    assert (status, "lies after the newest position" in problem["detail"]) == (409, True)


async def test_a_clocks_time_is_no_moment(loading):
    await loading.update("res1")
    between = Position.parse(await position(loading)) + 1
    while (await loading.update("res2"), Position.parse(await position(loading)))[1] <= between:
        pass
    status, problem = await loading.put(ndjson(TEN), f"as_of={Position(between)}")
    assert (status, "no position that this hub gave" in problem["detail"]) == (409, True)


async def test_a_position_of_another_set_is_refused(loading):
    await loading.hub.add_set("other")
    as_of = await position(loading)
    await loading.publish(Change(loc("res1"), "created"))
    other = ChannelName("other", "change")
    await loading.hub.publish(other, submission("res1"))
    foreign = await loading.hub.head(other)
    await loading.publish(Change(loc("res2"), "created"))
    status, problem = await loading.put(ndjson(TEN), f"as_of={foreign}")
    assert (status, "no position that this hub gave" in problem["detail"]) == (409, True)
    assert (await loading.put(ndjson(TEN), f"as_of={as_of}"))[0] == 200


def submission(name: str) -> Submission:
    return Submission([fragment_of(Change(loc(name), "created"))])


async def test_a_position_of_a_set_that_was_made_again_is_refused(loading):
    await loading.update("res1")
    as_of = await position(loading)
    await loading.hub.remove_set(SET)
    await loading.hub.add_set(SET)
    status, problem = await loading.put(ndjson(TEN), f"as_of={as_of}")
    assert (status, "before the set" in problem["detail"]) == (409, True)


async def test_a_moment_before_a_load_that_published_nothing_is_refused(loading):
    as_of = await position(loading)
    await loading.load(ndjson([*TEN, "draft"]))
    await loading.load(ndjson(TEN), "publish=no")
    status, problem = await loading.put(ndjson([*TEN, "draft"]), f"as_of={as_of}")
    assert (status, "published nothing" in problem["detail"]) == (409, True)
    assert (await loading.put(ndjson(TEN), f"as_of={await position(loading)}"))[0] == 200


async def test_several_loads_of_one_moment_leave_what_the_first_of_them_published(loading):
    await loading.load(ndjson(TEN))
    query = f"as_of={await position(loading)}"
    assert (await loading.load(ndjson([*TEN, "new"]), query))["created"] == 1
    assert (await loading.load(ndjson([*TEN, "new"]), query))["newer"] == 0
    assert (await loading.load(ndjson(TEN), query))["newer"] == 1
    assert "new" in await loading.known()


async def test_a_moment_and_overwrite_contradict_each_other(loading):
    query = f"as_of={await position(loading)}&overwrite=yes"
    assert (await loading.put(ndjson(TEN), query))[0] == 400


async def test_two_moments_contradict_each_other(loading):
    await loading.load(ndjson(TEN))
    first = await position(loading)
    heading = json.dumps({"as_of": first}).encode() + b"\n"
    await loading.update("res1")
    assert (await loading.put(heading + ndjson(TEN), f"as_of={await position(loading)}"))[0] == 400
    assert (await loading.put(heading + ndjson(TEN), f"as_of={first}"))[0] == 200


async def test_the_position_is_that_of_the_newest_change(loading):
    await loading.update("res1")
    assert await position(loading) == str(await loading.hub.head(CHANGES))


async def test_a_set_that_is_removed_leaves_nothing_of_its_loads(loading):
    await loading.load(ndjson(TEN))
    async with loading.under_way(ndjson(TEN), "publish=yes") as upload:
        await loading.publish(Change(loc("res5"), "deleted"))
    await upload.answer()
    await loading.hub.remove_set(SET)
    assert [key async for key in loading.client.scan_iter(f"rsnotify:{{{SET}}}:load*")] == []
