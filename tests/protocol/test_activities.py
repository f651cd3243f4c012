"""A set as a collection of activities, by a program of others that consumes Change Discovery."""

import random
from io import BytesIO

import msgspec

JSON = {"Content-Type": "application/json"}
SET = "manifests"


async def test_a_harvester_of_others_ends_in_the_state_and_reads_later_only_what_is_new(shared_hub):
    """It reads from the newest page back, and stops where it has been before."""
    from iiisight import AsyncClient

    assert (await shared_hub.ask("PUT", f"/api/sets/{SET}", json={"iiif": "Manifest"}))[0] == 201
    chosen, state = random.Random(7), dict[str, str]()

    async def publish(count: int) -> None:
        changes = []
        for _ in range(count):
            loc = f"http://example.com/{chosen.randrange(90)}/manifest.json"
            gone = loc in state and chosen.random() < 0.4
            change = "deleted" if gone else "updated" if loc in state else "created"
            state[loc] = change
            if gone:
                del state[loc]
            changes.append({"loc": loc, "change": change})
        sent = {"data": BytesIO(msgspec.json.encode(changes)), "headers": JSON}
        assert (await shared_hub.ask("POST", f"/api/sets/{SET}/changes", **sent))[0] == 201

    await publish(350)  # several pages
    seen: dict[str, str] = {}
    newest: str | None = None
    async with AsyncClient() as client:
        for more in (30, 0):
            read = {}
            source = f"{shared_hub.url}/{SET}/activities"
            found = [each async for each in client.iter_activities(source, since=newest)]
            for activity in found:  # the newest of a resource comes first
                assert activity.object is not None
                read.setdefault(activity.object.id, activity.type)
            assert {activity.object.type for activity in found if activity.object} == {"Manifest"}
            assert len(found) == (350 if newest is None else 30)
            seen |= read
            newest = max(activity.end_time or "" for activity in found)
            assert {loc for loc, kind in seen.items() if kind != "Delete"} == state.keys()
            if more:
                await publish(more)
