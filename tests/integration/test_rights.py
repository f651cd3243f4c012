"""Tokens as they are known in memory: for how long, how many, how long a text."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import HTTPConnection, Request

from rsnotify.access.access import SECRET_CHARACTERS, TOKEN_SECONDS, UNKNOWN_SECONDS, Access
from rsnotify.access.tokens import Right, Token, Tokens
from rsnotify.coordination.bell import Bell
from rsnotify.errors import NoSuchSet, Rejected, TokenRefused
from rsnotify.publishing.intake import Intake
from rsnotify.redis_client import Client
from rsnotify.sets.options import SetRecord
from tests.support.hubs import hub_on
from tests.support.running import PATIENT_SECONDS, until

ADMIN = "the-admin-token"


class Watched(Tokens):
    """Counts how often Redis is asked."""

    asked = 0

    async def find(self, secret: str) -> Token | None:
        self.asked += 1
        return await super().find(secret)

    async def make(self, secret: str, *rights: Right) -> None:
        await self.create(secret, Token(secret[:8], ("a",), "now", rights or ("publish",)))


class Clock(SimpleNamespace):
    """Time passes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(client: Client) -> Watched:
    return Watched(client)


@pytest.fixture
def rights(tokens: Watched, clock: Clock) -> Access:
    return Access(tokens, ADMIN, clock=clock)


def sent(secret: str | None, *, in_address: bool = False) -> HTTPConnection:
    """A request that carries this token."""
    headers = [] if secret is None or in_address else [(b"authorization", f"Bearer {secret}")]
    scope: Any = {
        "type": "http",
        "headers": [(name, value.encode()) for name, value in headers],
        "query_string": f"access_token={secret}".encode() if in_address else b"",
        "client": ("192.0.2.1", 1),
    }
    return HTTPConnection(scope)


async def test_rights_are_read_again_after_two_seconds(rights, tokens, clock):
    await tokens.make("secret")
    for now, asked in [(0.0, 1), (TOKEN_SECONDS - 0.1, 1), (TOKEN_SECONDS, 2)]:
        clock.now = now
        await rights.require_publisher(sent("secret"), "a")
        assert tokens.asked == asked


async def test_a_revoked_token_is_refused_two_seconds_later_at_the_latest(rights, tokens, clock):
    await tokens.make("secret")
    await rights.require_publisher(sent("secret"), "a")
    await tokens.revoke("secret")
    clock.now = TOKEN_SECONDS
    with pytest.raises(TokenRefused):
        await rights.require_publisher(sent("secret"), "a")


async def test_redis_is_asked_once_a_second_about_a_token_that_it_does_not_have(
    rights, tokens, clock
):
    for now, asked in [(0.0, 1), (UNKNOWN_SECONDS - 0.1, 1), (UNKNOWN_SECONDS, 2)]:
        clock.now = now
        for _ in range(5):
            with pytest.raises(TokenRefused):
                await rights.require_publisher(sent("secret"), "a")
        assert tokens.asked == asked


async def test_a_token_that_was_unknown_counts_as_soon_as_it_is_made(rights, tokens):
    with pytest.raises(TokenRefused):
        await rights.require_publisher(sent("secret"), "a")
    await tokens.make("secret")
    await rights.require_publisher(sent("secret"), "a")


async def test_a_token_that_is_made_while_redis_is_asked_counts_at_once(rights, tokens):
    """What Redis has answered before is not kept after the token was made."""
    found = tokens.find

    async def find(secret: str) -> Token | None:
        before = await found(secret)
        if before is None:
            await tokens.make(secret)
        return before

    tokens.find = find
    with pytest.raises(TokenRefused):
        await rights.require_publisher(sent("secret"), "a")
    await rights.require_publisher(sent("secret"), "a")


async def test_a_token_that_another_process_makes_counts_once_the_bell_rings(
    rights, tokens, client
):
    heard: asyncio.Queue[str] = asyncio.Queue()
    bell, others = Bell(client), Tokens(client)
    listening = asyncio.create_task(bell.listen(heard.put_nowait))
    await until(lambda: as_fact(bell.connections))
    with pytest.raises(TokenRefused):
        await rights.require_publisher(sent("secret"), "a")
    await others.create("secret", Token("secret", ("a",), "now"))
    async with asyncio.timeout(PATIENT_SECONDS):
        act, _, key = (await heard.get()).partition(" ")
    tokens.hear(act, key)
    await rights.require_publisher(sent("secret"), "a")
    listening.cancel()


async def as_fact(found: object) -> object:
    return found


async def test_strangers_tokens_that_are_remembered_are_bounded(tokens):
    rights = Access(tokens, ADMIN, tokens_known=2)
    for secret in ("first", "second", "third", "first"):
        with pytest.raises(TokenRefused):
            await rights.require_publisher(sent(secret), "a")
    assert tokens.asked == 4


@pytest.mark.parametrize(("characters", "asked"), [(SECRET_CHARACTERS, 1), (257, 0)])
async def test_no_token_is_longer_than_256_characters(rights, tokens, characters, asked):
    with pytest.raises(TokenRefused):
        await rights.require_publisher(sent("x" * characters), "a")
    assert tokens.asked == asked


async def test_who_sends_many_tokens_only_makes_the_hub_ask_again(tokens):
    rights = Access(tokens, ADMIN, tokens_known=2)
    for secret in ("first", "second", "third"):
        await tokens.make(secret)
        await rights.require_publisher(sent(secret), "a")
    await rights.require_publisher(sent("first"), "a")
    assert tokens.asked == 4


@pytest.mark.parametrize("secret", [None, ADMIN, "nobody's"])
async def test_a_public_set_is_read_with_any_token_or_none(rights, secret):
    record = SetRecord(name="a", created="now")
    assert await rights.require_reader(sent(secret), "a", record) == ""


@pytest.mark.parametrize(
    ("secret", "in_address", "status"),
    [
        *((None, False, 404), (ADMIN, False, None), (ADMIN, True, 401)),
        *(("reader", False, None), ("reader", True, None), ("writer", False, 403)),
    ],
)
async def test_a_private_set_is_read_with_a_token_for_it_alone(
    rights, tokens, secret, in_address, status
):
    await tokens.make("reader", "read")
    await tokens.make("writer", "publish")
    record = SetRecord(name="a", created="now", private=True)
    asking = rights.require_reader(sent(secret, in_address=in_address), "a", record)
    if status is None:
        await asking
    else:
        with pytest.raises(Rejected) as refused:
            await asking
        assert refused.value.status == status


async def test_a_token_is_found_once_for_all_sets_of_a_reader(tokens):
    rights = Access(tokens, ADMIN, token_seconds=0)  # Redis is asked each time that it is found
    await tokens.make("secret", "read")
    record = SetRecord(name="a", created="now", private=True)
    await rights.require_reader(sent("secret"), "a", record)
    assert tokens.asked == 1
    with pytest.raises(NoSuchSet):
        await rights.require_readers(sent("secret"), {"a": record, "b": record, "c": None})
    assert tokens.asked == 2


async def test_whoever_reads_public_sets_alone_needs_no_token(rights, tokens):
    sets = dict.fromkeys("abc", SetRecord(name="a", created="now"))
    assert await rights.require_readers(sent("secret"), sets) == ""
    assert tokens.asked == 0


@pytest.mark.parametrize(
    ("known", "seconds", "is_heard", "counts"),
    [
        (0, TOKEN_SECONDS - 0.1, False, True),
        (0, TOKEN_SECONDS, False, False),
        (TOKEN_SECONDS - 0.1, 0.05, False, True),
        (TOKEN_SECONDS - 0.1, 0.1, False, False),
        (0, 0, True, False),
    ],
)
async def test_a_body_that_comes_late_is_published_only_if_its_token_still_counts(
    rights, tokens, clock, client, known, seconds, is_heard, counts
):
    """It was `known` for so long before; another process revokes it, which the bell says or not."""
    hub = hub_on(client)
    await hub.add_set("a")
    await tokens.make("secret")
    await rights.require_publisher(sent("secret"), "a")
    clock.now += known

    async def receive() -> dict[str, object]:
        """The body, so much later; meanwhile the token was revoked."""
        clock.now += seconds
        await (tokens if is_heard else Tokens(client)).revoke("secret")
        body = b'{"loc": "http://example.com/a", "change": "updated"}'
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"authorization", b"Bearer secret"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path_params": {"set": "a"}, "headers": headers}
    publishing = Intake(hub, rights).changes(Request(scope | {"query_string": b""}, receive))
    if counts:
        assert (await publishing).status_code == 201
    else:
        with pytest.raises(TokenRefused):
            await publishing
