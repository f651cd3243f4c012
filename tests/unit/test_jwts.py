"""The keys of JWTs, read again and again: how often, how long they count, who ends with them."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from time import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from rsnotify.access.jwts import AGAIN_SECONDS, KEPT_SECONDS, Jwts, KeySetSource
from rsnotify.errors import TokenRefused, TryAgain


class Signer:
    """A key, and what is signed with it."""

    def __init__(self, kid: str) -> None:
        self.kid = kid
        self.key = ed25519.Ed25519PrivateKey.generate()

    def token(self) -> str:
        claims = {"exp": time() + 3_600, "rsnotify": {"read": ["*"]}}
        return jwt.encode(claims, self.key, "EdDSA", headers={"kid": self.kid})

    def listed(self) -> dict[str, Any]:
        algorithm = jwt.algorithms.get_default_algorithms()["EdDSA"]
        return {**algorithm.to_jwk(self.key.public_key(), as_dict=True), "kid": self.kid}


class Source:
    """A key set that changes, or cannot be read."""

    def __init__(self, *signers: Signer) -> None:
        self.signers: Sequence[Signer] = signers
        self.more: Sequence[dict[str, str]] = ()  # listed besides
        self.error: Exception | None = None
        self.asked = 0

    async def read(self) -> bytes:
        self.asked += 1
        if self.error is not None:
            raise self.error
        listed = [*(signer.listed() for signer in self.signers), *self.more]
        return json.dumps({"keys": listed}).encode()

    def judged(self, **options: Any) -> Jwts:
        source = KeySetSource("https://a.example", self.read, is_fetched=True)
        return Jwts(source=source, **options)


class Clock:
    """Time passes when it is told to."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


N = urlsafe_b64encode(b"\xff" * 256).decode().rstrip("=")
OLD, NEW = Signer("old"), Signer("new")


async def test_a_key_that_is_new_is_read_at_once_but_not_for_each_stranger(clock):
    source = Source(OLD)
    jwts = source.judged(clock=clock)
    await jwts.grant(OLD.token())
    assert source.asked == 1
    source.signers = [OLD, NEW]
    for seconds, asked in [(0.0, 1), (AGAIN_SECONDS - 0.1, 1)]:
        clock.now = 1_000_000 + seconds
        with pytest.raises(TokenRefused):
            await jwts.grant(NEW.token())
        assert source.asked == asked
    clock.now = 1_000_000 + AGAIN_SECONDS
    await jwts.grant(NEW.token())
    assert source.asked == 2


async def test_a_listed_key_without_a_name_does_not_keep_a_new_one_from_being_read(clock):
    source = Source(OLD)
    source.more = [{"kty": "RSA", "n": N, "e": "AQAB"}]
    jwts = source.judged(clock=clock)
    await jwts.grant(OLD.token())
    source.signers = [OLD, NEW]
    clock.now += AGAIN_SECONDS
    await jwts.grant(NEW.token())
    assert source.asked == 2


async def test_keys_count_for_an_hour_while_they_cannot_be_read(clock):
    source = Source(OLD)
    jwts = source.judged(clock=clock)
    grant = await jwts.grant(OLD.token())
    source.error = OSError("it answers 500")
    for seconds, is_good in [(KEPT_SECONDS, True), (KEPT_SECONDS + 0.1, False)]:
        clock.now = 1_000_000 + seconds
        await jwts.refresh()
        assert jwts.ended([grant.key]) == (set() if is_good else {grant.key})
        if is_good:
            await jwts.grant(OLD.token())
        else:
            with pytest.raises(TryAgain, match="it answers 500"):
                await jwts.grant(OLD.token())
    source.error = None
    await jwts.refresh()
    await jwts.grant(OLD.token())


async def test_a_key_that_was_never_read_lets_nobody_in(clock):
    source = Source(OLD)
    source.error = ValueError("it is no JWKS")
    jwts = source.judged(clock=clock)
    with pytest.raises(TryAgain, match="it is no JWKS"):
        await jwts.grant(OLD.token())
    assert jwts.keys == ()


async def test_what_was_remembered_of_a_token_ends_with_its_key(clock):
    source = Source(OLD, NEW)
    jwts = source.judged(clock=clock)
    text = OLD.token()
    grant, other = await jwts.grant(text), await jwts.grant(NEW.token())
    assert await jwts.grant(text) is grant
    source.signers = [NEW]
    await jwts.refresh()
    assert jwts.ended([grant.key, other.key]) == {grant.key}
    with pytest.raises(TokenRefused):
        await jwts.grant(text)


async def test_what_is_remembered_is_bounded():
    jwts = Source(OLD, NEW).judged(remembered=1)
    first, second = OLD.token(), NEW.token()
    grant = await jwts.grant(first)
    await jwts.grant(second)
    assert await jwts.grant(first) is not grant


async def test_a_failure_is_logged_once(clock, caplog):
    source = Source(OLD)
    jwts = source.judged(clock=clock)
    source.error = OSError("it answers 500")
    for _ in range(3):
        await jwts.refresh()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "no JWT can be judged" in caplog.text
