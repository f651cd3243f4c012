"""Where a reader begins, who may read, and how a channel ends."""

import asyncio
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rsnotify.coordination import keys
from rsnotify.resourcesync.change import Change, Position, render_datetime
from rsnotify.resourcesync.notification import ChannelName
from rsnotify_client.notification import Received, read_notification
from tests.support.raw import raw_channel
from tests.support.running import PATIENT_SECONDS, TOKEN, RunningHub

BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
async def hub(shared_hub: RunningHub) -> RunningHub:
    """As new, though it is not: no test of this file with it ends it or looks at its files."""
    return shared_hub


def in_seconds(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


async def received(channel: ClientConnection) -> Received:
    async with asyncio.timeout(PATIENT_SECONDS):
        return read_notification(await channel.recv())


async def refusal(url: str, **options: object) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as refused:
        await connect(url, **options)
    answer = refused.value.response
    assert answer.headers["Content-Type"] == "application/problem+json"
    return answer.status_code, (answer.body or b"").decode()


async def close_of(url: str, **options: object) -> tuple[int, str]:
    async with connect(url, **options) as channel:
        with pytest.raises(ConnectionClosed) as closed:
            await received(channel)
        return closed.value.rcvd.code, closed.value.rcvd.reason


# --- where a reader begins -----------------------------------------------------------------------


async def test_an_unknown_set_is_refused(hub):
    status, body = await refusal(hub.channel("nosuchset"))
    assert status == 404
    assert "nosuchset" in body


async def test_an_unknown_kind_of_channel_is_refused(hub):
    assert (await refusal(hub.channel(kind="weather")))[0] == 404


@pytest.mark.parametrize("path", ["/nothing", "/", "/hub", "/channels/dataset1/change/"])
async def test_a_handshake_where_no_channel_is_is_refused(hub, path):
    status, body = await refusal(f"ws://127.0.0.1:{hub.port}{path}")
    assert (status, f"there is nothing at {path}" in body) == (404, True)


async def test_a_handshake_without_a_key_is_a_bad_request(hub):
    async with raw_channel(hub.channel(), {"Sec-WebSocket-Key": "short"}) as raw:
        assert raw.status == 400


async def test_another_version_of_the_protocol_is_a_bad_request(hub):
    async with raw_channel(hub.channel(), {"Sec-WebSocket-Version": "12"}) as raw:
        assert raw.status == 400


@pytest.mark.parametrize(
    "after",
    ["yesterday", "2026-11", "2026-11-20T10:00:00", "", "9" * 400, "2026-99-99T00:00:00Z"],
)
async def test_a_malformed_position_is_closed_with_4400(hub, after):
    assert (await close_of(f"{hub.channel()}?from={after}"))[0] == 4400


async def test_a_position_in_the_future_is_closed_with_4400(hub):
    code, reason = await close_of(f"{hub.channel()}?from={in_seconds(60)}")
    assert code == 4400
    assert "future" in reason


async def test_a_position_before_the_set_s_first_moment_means_that_moment(hub):
    first = await hub.publish("http://example.com/res1")
    for query in ("from=1999-12-31", "since=1999-12-31T23:00:00+01:00"):
        async with connect(f"{hub.channel()}?{query}") as channel:
            assert channel.response.headers["Rsnotify-From"] == first["from"]
            assert str((await received(channel)).until) == first["until"]


async def test_an_unknown_parameter_is_closed_with_4400_and_the_known_ones(hub):
    code, reason = await close_of(f"{hub.channel()}?form=2026-11-20")
    assert (code, reason) == (
        4400,
        "unknown parameter 'form'; did you mean format? Known here: access_token, format, from, "
        "since, prefix, type, change, collect",
    )
    path = "/channels/dataset1/change_notification_channel?form=2026-11-20"
    for headers in ({}, {"Accept": "text/event-stream"}):
        status, problem = await hub.ask("GET", path, headers=headers)
        assert (status, problem["detail"]) == (400, f"{reason}ion")


async def test_a_position_between_the_head_and_now_means_the_head(hub):
    first = await hub.publish("http://example.com/res1")
    async with connect(f"{hub.channel()}?from={in_seconds(0)}") as channel:
        await hub.publish("http://example.com/res2", datetime=first["until"])
        assert str((await received(channel)).from_) == first["until"]


async def test_a_reader_is_told_where_it_begins_and_comes_back_there(hub):
    """By a position, not a time: a change that comes may have a datetime before the handshake's."""
    async with connect(hub.channel()) as channel:
        begins = channel.response.headers["Rsnotify-From"]
    last = await hub.publish("http://example.com/a", datetime=begins)  # older than the handshake
    assert last["from"] == begins
    async with connect(f"{hub.channel()}?from={begins}") as channel:
        assert channel.response.headers["Rsnotify-From"] == begins
        assert str((await received(channel)).until) == last["until"]
    async with connect(f"{hub.channel()}?from={last['until']}") as channel:
        assert channel.response.headers["Rsnotify-From"] == last["until"]
    async with connect(f"{hub.channel()}?from=broken") as channel:
        assert "Rsnotify-From" not in channel.response.headers


async def test_a_position_before_the_journal_is_closed_with_4410_and_told_where_to_look(
    tmp_path, redis_url, client
):
    async with RunningHub(tmp_path / "data", "--redis", redis_url) as own_hub:
        until = await own_hub.publish("http://example.com/res1")
        await own_hub.stop()
        record = keys.record(ChannelName("dataset1", "change"))
        await client.hset(record, "first", await client.hget(record, "head"))
        await own_hub.start()
        code, reason = await close_of(f"{own_hub.channel()}?from={until['from']}")
        assert code == 4410
        assert f"{own_hub.url}/dataset1/changelist-index.xml" in reason
        status, problem = await own_hub.ask(
            "GET",
            f"/channels/dataset1/change_notification_channel?from={until['from']}",
            headers={"Accept": "text/event-stream"},
        )
        assert status == 410
        assert f"{own_hub.url}/dataset1/changelist-index.xml" in problem["detail"]


async def test_a_position_within_a_notification_gives_the_rest_of_it(hub):
    async with connect(hub.channel()) as witness:
        await hub.publish(*(f"http://example.com/res{number}" for number in range(5)))
        whole = await received(witness)
    middle = whole.changes[1].datetime
    async with connect(f"{hub.channel()}?from={middle}") as channel:
        rest = await received(channel)
    assert rest.changes == whole.changes[2:]
    assert (str(rest.from_), rest.until) == (middle, whole.until)


async def test_libraries_get_compression_as_they_ask_for_it_by_themselves(hub):
    """None of them offers to do without context takeover; the hub chooses that unasked."""
    async with (
        connect(hub.channel(), compression=None) as plain,
        connect(hub.channel()) as one,
        aiohttp.ClientSession() as session,
        session.ws_connect(hub.channel(), compress=15) as another,
    ):
        assert "server_no_context_takeover" in one.response.headers["Sec-WebSocket-Extensions"]
        assert another.compress
        for number in range(3):
            await hub.publish(f"http://example.com/res{number}")
            told = await plain.recv()
            assert await one.recv() == told
            assert (await another.receive()).data == told


async def test_compression_of_channels_can_be_turned_off(tmp_path):
    async with (
        RunningHub(tmp_path / "data", channel_compression="off") as hub,
        connect(hub.channel()) as channel,
        aiohttp.ClientSession(headers={"Accept": "text/event-stream"}) as session,
        session.get(hub.channel().replace("ws:", "http:")) as events,
    ):
        assert "Sec-WebSocket-Extensions" not in channel.response.headers
        assert "Content-Encoding" not in events.headers


# --- who may read --------------------------------------------------------------------------------


@pytest.fixture
async def private(hub: RunningHub) -> RunningHub:
    """The hub with a private set, secrets."""
    status, _ = await hub.ask("PUT", "/api/sets/secrets", json={"private": True})
    assert status == 201
    return hub


async def token_for(hub: RunningHub, *rights: str, set_name: str = "secrets") -> str:
    asked = {"sets": [set_name], "rights": rights}
    status, token = await hub.ask("POST", "/api/tokens", json=asked)
    assert status == 201
    return token["token"]


async def test_a_reader_ends_with_its_token_and_the_others_stay(private):
    readers = [{"Authorization": f"Bearer {await token_for(private, 'read')}"} for _ in range(2)]
    (first, _) = (await private.ask("GET", "/api/tokens"))[1]
    url = private.channel("secrets")
    async with (
        connect(url, additional_headers=readers[0]) as ends,
        connect(url, additional_headers=readers[1]) as stays,
    ):
        await private.ask("DELETE", f"/api/tokens/{first['id']}")
        with pytest.raises(ConnectionClosed) as closed:
            await ends.recv()
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (
            *(1008, "the token has been revoked or has expired"),
        )
        await private.publish("http://example.com/a", set_name="secrets")
        assert [each.loc for each in (await received(stays)).changes] == ["http://example.com/a"]


async def test_an_event_stream_ends_with_its_token(private):
    token = await token_for(private, "read")
    (made,) = (await private.ask("GET", "/api/tokens"))[1]
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    url = f"{private.url}/channels/secrets/change_notification_channel"
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as stream:
        await private.ask("DELETE", f"/api/tokens/{made['id']}")
        while await stream.content.read(100):
            pass


async def test_a_reader_s_token_opens_it_by_header_or_by_query_and_is_never_logged(own_hub):
    await own_hub.ask("PUT", "/api/sets/secrets", json={"private": True})
    secret = await token_for(own_hub, "read")
    bearer = {"Authorization": f"Bearer {secret}"}
    async with (
        connect(own_hub.channel("secrets"), additional_headers=bearer) as by_header,
        connect(f"{own_hub.channel('secrets')}?access_token={secret}") as by_query,
    ):
        await own_hub.publish("http://example.com/res1", set_name="secrets")
        assert await received(by_header) == await received(by_query)
    await close_of(f"{own_hub.channel('secrets')}?access_token={secret}&from=broken")
    await refusal(f"{own_hub.channel('nosuchset')}?access_token={secret}")
    await own_hub.stop()
    assert secret not in own_hub.log.read_text()


async def test_browsers_may_read_public_sets_from_any_page_and_private_ones_from_none(private):
    async with connect(private.channel(), origin="https://anywhere.example"):
        pass
    status, _ = await refusal(
        private.channel("secrets"), origin="https://anywhere.example", additional_headers=BEARER
    )
    assert status == 403


async def test_allowed_origins_hold_for_every_set(tmp_path):
    origins = "https://a.example, https://b.example/"
    async with RunningHub(tmp_path / "data", allowed_origins=origins) as hub:
        await hub.ask("PUT", "/api/sets/secrets", json={"private": True})
        assert (await refusal(hub.channel(), origin="https://c.example"))[0] == 403
        async with (
            connect(hub.channel(), origin="https://a.example"),
            connect(hub.channel("secrets"), origin="https://b.example", additional_headers=BEARER),
            connect(hub.channel()),
        ):
            pass


# --- how a channel ends --------------------------------------------------------------------------


async def test_the_readers_of_a_removed_set_are_closed_with_4404(hub):
    async with connect(hub.channel()) as channel:
        await hub.ask("DELETE", "/api/sets/dataset1")
        with pytest.raises(ConnectionClosed) as closed:
            await received(channel)
    assert closed.value.rcvd.code == 4404


async def test_a_set_made_anew_has_a_channel_of_its_own(hub):
    async with connect(hub.channel()) as old:
        await hub.ask("DELETE", "/api/sets/dataset1")
        await hub.ask("PUT", "/api/sets/dataset1")
        async with connect(hub.channel()) as new:
            await hub.publish("http://example.com/res1")
            assert len((await received(new)).changes) == 1
        with pytest.raises(ConnectionClosed):
            await received(old)


async def test_sigterm_sends_readers_away_with_1001_and_finishes_what_was_asked(tmp_path):
    async with RunningHub(tmp_path / "data", drain_seconds="1") as own_hub:
        readers = [await connect(own_hub.channel()) for _ in range(50)]
        posting = asyncio.create_task(own_hub.publish("http://example.com/res1"))
        await received(readers[0])
        status = await own_hub.stop()
        assert (await posting)["accepted"] == 1
        for reader in readers:
            await reader.wait_closed()
            assert reader.close_code == 1001
    assert status == 0


async def test_a_reader_that_does_not_answer_the_close_does_not_hold_the_hub(tmp_path):
    async with (
        RunningHub(tmp_path / "data", drain_seconds="0") as own_hub,
        raw_channel(own_hub.channel()) as raw,
    ):
        ending = asyncio.create_task(own_hub.stop())
        assert await raw.closed_with_code() == 1001
        assert await ending == 0


# --- the framework channel -----------------------------------------------------------------------


async def test_framework_changes_travel_on_their_own_channel(hub):
    index = "http://example.com/changelist-index.xml"
    change = {"loc": "http://example.com/changelist2.xml", "change": "created"}
    change |= {"capability": "changelist", "index": index}
    async with (
        connect(hub.channel()) as changes,
        connect(hub.channel(kind="framework")) as framework,
    ):
        status, answer = await hub.ask("POST", "/api/sets/dataset1/framework", json=change)
        assert status == 201, answer
        found = await received(framework)
        await hub.publish("http://example.com/res1")
        assert [each.loc for each in (await received(changes)).changes] == [
            "http://example.com/res1"
        ]
    assert found.changes[0].capability == "changelist"
    assert found.changes[0].index == index
    assert b'capability="framework-notification"' in found.payload


DESCRIPTION = {
    "loc": "http://example.com/.well-known/resourcesync",
    "change": "updated",
    "capability": "description",
}


async def test_a_change_of_the_source_description_goes_to_every_set(hub):
    await hub.ask("PUT", "/api/sets/dataset2")
    other = DESCRIPTION | {"capability": "capabilitylist", "loc": "http://example.com/caps.xml"}
    async with (
        connect(hub.channel("dataset1", "framework")) as own,
        connect(hub.channel("dataset2", "framework")) as another,
    ):
        status, _ = await hub.ask("POST", "/api/sets/dataset1/framework", json=[other, DESCRIPTION])
        assert status == 201
        assert await told(own, 2) == ["capabilitylist", "description"]
        assert await told(another, 1) == ["description"]


async def told(channel: ClientConnection, number: int) -> list[str | None]:
    """What the next so many changes are about that the hub does not tell of itself."""
    changes: list[Change] = []
    while len(changes) < number:
        found = (await received(channel)).changes
        changes += [each for each in found if each.loc.startswith("http://example.com/")]
    return [each.capability for each in changes]


async def test_it_is_told_once_however_often_it_is_posted_with_one_key(hub):
    await hub.ask("PUT", "/api/sets/dataset2")
    last = DESCRIPTION | {"capability": "capabilitylist"}
    async with connect(hub.channel("dataset2", "framework")) as another:
        for key in ("one", "one", "two"):
            headers = {"Idempotency-Key": key}
            path = "/api/sets/dataset1/framework"
            await hub.ask("POST", path, json=DESCRIPTION, headers=headers)
        await hub.ask("POST", "/api/sets/dataset2/framework", json=last)
        assert await told(another, 3) == ["description", "description", "capabilitylist"]


async def test_who_may_not_publish_to_every_set_may_not_tell_every_set(hub):
    secret = await token_for(hub, "publish", set_name="dataset1")
    bearer = {"Authorization": f"Bearer {secret}"}
    address = "/api/sets/dataset1/framework"
    assert (await hub.ask("POST", address, json=DESCRIPTION, headers=bearer))[0] == 201
    await hub.ask("PUT", "/api/sets/dataset2")
    status, problem = await hub.ask("POST", address, json=DESCRIPTION, headers=bearer)
    assert status == 403
    assert "every set" in problem["detail"]


# --- a set that was removed and made again -------------------------------------------------------


@pytest.fixture
async def old_positions(own_hub: RunningHub) -> tuple[str, str, str]:
    """Where the first set of this name began, within it, and where the second one begins."""
    begun = (await own_hub.publish("http://example.com/old"))["from"]
    read = (await own_hub.publish("http://example.com/read"))["until"]
    await own_hub.ask("DELETE", "/api/sets/dataset1")
    await own_hub.ask("PUT", "/api/sets/dataset1")
    new = (await own_hub.publish("http://example.com/new"))["from"]
    return begun, read, new


@pytest.mark.parametrize("read", [False, True])
async def test_a_cursor_of_a_set_that_was_removed_is_refused(own_hub, old_positions, read):
    """Also of one of which nothing had been read yet."""
    new, cursor = old_positions[2], old_positions[read]
    code, reason = await close_of(f"{own_hub.channel()}?from={cursor}")
    assert (code, new in reason) == (4410, True)
    for path in ("/channels/dataset1/change_notification_channel", "/dataset1/changelist.xml"):
        for more in ("", "&limit=5") if "list" in path else ("",):
            headers = {"Accept": "text/event-stream"} if "channels" in path else {}
            status, _ = await own_hub.ask("GET", f"{path}?from={cursor}{more}", headers=headers)
            assert status == 410, path
    headers = {"Accept": "text/event-stream", "Last-Event-ID": cursor}
    status, _ = await own_hub.ask(
        "GET", "/channels/dataset1/change_notification_channel", headers=headers
    )
    assert status == 410


async def test_a_cursor_beside_those_of_a_set_that_was_removed_means_the_new_one(
    own_hub, old_positions
):
    begun, _, new = old_positions
    for cursor in (render_datetime(Position.parse(begun) - 1), "2020-01-01", new):
        async with connect(f"{own_hub.channel()}?from={cursor}") as channel:
            found = await received(channel)
        assert [change.loc for change in found.changes] == ["http://example.com/new"]
