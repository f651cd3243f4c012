"""Who is told what about the token that was sent."""

import pytest

from tests.running import RunningHub

NOBODY = {"Authorization": "Bearer of-nobody"}
ADMIN_ONLY = [
    ("PUT", "/api/sets/dataset2"),
    ("PATCH", "/api/sets/dataset1"),
    ("DELETE", "/api/sets/dataset1"),
    ("GET", "/api/tokens"),
    ("GET", "/api/subscriptions"),
]


@pytest.mark.parametrize(("method", "path"), [("GET", "/api/sets"), *ADMIN_ONLY])
async def test_a_token_that_nobody_knows_is_refused_as_unknown(
    hub: RunningHub, method: str, path: str
) -> None:
    status, problem = await hub.ask(method, path, headers=NOBODY)
    assert (status, problem["detail"]) == (401, "the token is not known, or was revoked")


async def test_a_known_token_is_told_that_it_is_not_the_admins(hub: RunningHub) -> None:
    _, token = await hub.ask("POST", "/api/tokens", json={"sets": ["dataset1"]})
    known = {"Authorization": f"Bearer {token['token']}"}
    for method, path in ADMIN_ONLY:
        status, problem = await hub.ask(method, path, headers=known)
        assert (status, problem["detail"]) == (403, "only the admin token may do this")
    assert (await hub.ask("GET", "/api/sets", headers=known))[0] == 200
