"""JWTs: which are good, what each allows, and in which words the others are refused."""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Sequence
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

from rsnotify.access.jwt_rules import (
    JWT_CHARACTERS,
    KEYS,
    KID_CHARACTERS,
    PATTERNS,
    SET_BYTES,
    TRIED,
    Grant,
    JwtKey,
    UnknownKey,
    judge_jwt,
    parse_key,
    parse_key_set,
)
from rsnotify.errors import TokenRefused

NOW = 1_000_000.0
SECRET = "a secret of exactly thirty-two b"
CURVE, EDWARDS = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
RIVEST = rsa.generate_private_key(65537, 2048)
ALGORITHMS = jwt.algorithms.get_default_algorithms()


def pem(key: Any) -> str:
    public = key.public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return public.public_bytes(serialization.Encoding.PEM, form).decode()


def jwk(key: Any, **members: Any) -> dict[str, Any]:
    kinds = {ed25519.Ed25519PrivateKey: "EdDSA", rsa.RSAPrivateKey: "RS256"}
    name = next((name for kind, name in kinds.items() if isinstance(key, kind)), "ES256")
    return {**ALGORITHMS[name].to_jwk(key.public_key(), as_dict=True), **members}


def key_set(*keys: object) -> bytes:
    return json.dumps({"keys": keys}).encode()


def parsed(*keys: object, is_fetched: bool = True) -> list[JwtKey]:
    return parse_key_set(key_set(*keys), is_fetched=is_fetched)[0]


HMAC_KEY, CURVE_KEY, EDWARDS_KEY = parse_key(SECRET), parse_key(pem(CURVE)), parse_key(pem(EDWARDS))
RIVEST_KEY = parse_key(pem(RIVEST))


def claims(**changed: Any) -> dict[str, Any]:
    said = {"exp": NOW + 60, "rsnotify": {"read": ["a"]}} | changed
    return {name: value for name, value in said.items() if value is not None}


def signed(
    key: Any = SECRET, algorithm: str = "HS256", kid: str | None = None, **changed: Any
) -> str:
    headers = None if kid is None else {"kid": kid}
    return jwt.encode(claims(**changed), key, algorithm, headers=headers)


def by_hand(header: object, payload: object, secret: str = SECRET) -> str:
    """As no library would make it, with a right signature by the secret."""
    texts = [each if isinstance(each, str) else json.dumps(each) for each in (header, payload)]
    parts = [base64.urlsafe_b64encode(text.encode()).rstrip(b"=") for text in texts]
    signature = hmac.digest(secret.encode(), b".".join(parts), hashlib.sha256)
    return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


def judged(text: str, keys: Sequence[JwtKey] = (HMAC_KEY,), **options: Any) -> Grant:
    return judge_jwt(text, keys, **{"audience": None, "skew_seconds": 10, "now": NOW} | options)


def refusal(text: str, keys: Sequence[JwtKey] = (HMAC_KEY,), **options: Any) -> str:
    with pytest.raises(TokenRefused) as refused:
        judged(text, keys, **options)
    assert refused.value.status == 401
    return refused.value.detail


@pytest.mark.parametrize(
    ("key", "signer", "algorithm"),
    [
        (HMAC_KEY, SECRET, "HS256"),
        (CURVE_KEY, CURVE, "ES256"),
        (EDWARDS_KEY, EDWARDS, "EdDSA"),
        (RIVEST_KEY, RIVEST, "RS256"),
    ],
)
def test_a_token_is_good_if_its_key_is_known(key, signer, algorithm):
    grant = judged(signed(signer, algorithm), [EDWARDS_KEY, HMAC_KEY, CURVE_KEY, RIVEST_KEY])
    assert grant.key_id == key.id
    assert grant.key_of("whatever was sent") == grant.key
    assert grant.expires == NOW + 60


HEADER = {"alg": "HS256", "typ": "JWT"}
EXPIRING = claims()

BAD = {
    "nothing is signed": (jwt.encode(claims(), None, "none"), "algorithm"),
    "nothing is signed, in capitals": (by_hand(HEADER | {"alg": "NONE"}, EXPIRING), "algorithm"),
    "no algorithm": (by_hand({"typ": "JWT"}, EXPIRING), "algorithm"),
    "another algorithm of the same secret": (signed(SECRET * 2, "HS512"), "algorithm"),
    "an algorithm that is a list": (by_hand(HEADER | {"alg": ["HS256"]}, EXPIRING), "algorithm"),
    "another secret": (signed(SECRET + "x"), "another key"),
    "no signature": (signed().rpartition(".")[0] + ".", "another key"),
    "a spoilt payload": (signed().replace(".eyJ", ".eyI"), "cannot be read|another key"),
    "garbage": ("eyJ.garbage.garbage", "cannot be read"),
    "no ASCII": ("eyJé.é.é", "cannot be read"),
    "a header that is a list": (by_hand([], EXPIRING), "cannot be read"),
    "a header of many lists": (by_hand("[" * 1500, EXPIRING), "cannot be read"),
    "a kid that is a number": (by_hand(HEADER | {"kid": 1}, EXPIRING), "cannot be read"),
    "claims that are a list": (by_hand(HEADER, []), "refused"),
    "claims of many lists": (by_hand(HEADER, "[" * 1500), "refused"),
    "claims that are no JSON": (by_hand(HEADER, "{"), "refused"),
    "an extension that must be understood": (
        by_hand(HEADER | {"crit": ["x"], "x": 1}, EXPIRING),
        "cannot be read|refused",
    ),
    "a payload that is apart": (
        by_hand(HEADER | {"b64": False, "crit": ["b64"]}, EXPIRING),
        "cannot be read|refused",
    ),
    "no end": (signed(exp=None), "exp"),
    "an end that is a text": (by_hand(HEADER, claims(exp="tomorrow")), "exp"),
    "an end that is true": (by_hand(HEADER, claims(exp=True)), "exp"),
    "an end that never comes": (by_hand(HEADER, '{"exp": 1e999, "rsnotify": {}}'), "exp"),
    "an end that is no number": (by_hand(HEADER, '{"exp": NaN, "rsnotify": {}}'), "exp"),
    "an end before 1970": (by_hand(HEADER, claims(exp=-1)), "exp"),
    "over": (signed(exp=NOW), "has expired"),
    "over long ago": (signed(exp=NOW - 1e5), "has expired"),
    "not yet": (signed(nbf=NOW + 10.001), "not valid yet"),
    "made tomorrow": (signed(iat=NOW + 86_400), "not valid yet"),
    "never": (by_hand(HEADER, '{"exp": 2e9, "nbf": NaN, "rsnotify": {}}'), "not valid yet"),
    "no rights": (signed(rsnotify=None), "rsnotify"),
    "rights misspelt": (signed(rsnotify={"raed": ["a"]}), "raed"),
    "rights that are a text": (signed(rsnotify={"read": "a"}), "read"),
    "a set that cannot be": (signed(rsnotify={"read": ["A/../b"]}), "neither"),
    "a pattern of another kind": (signed(rsnotify={"publish": ["[a-z]"]}), "neither"),
    "somebody else's": (signed(aud="https://other.example"), "another audience"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_token_is_refused_in_words(what):
    text, words = BAD[what]
    assert any(each in refusal(text) for each in words.split("|")), refusal(text)


def test_the_key_and_not_the_token_chooses_the_algorithm():
    """A public key is known to all: as a secret it would let anybody sign."""
    text = by_hand(HEADER, EXPIRING, secret=pem(CURVE))
    assert "algorithm" in refusal(text, [CURVE_KEY])
    assert "another key" in refusal(text, [CURVE_KEY, HMAC_KEY])
    forged = by_hand(HEADER | {"kid": "k"}, EXPIRING, secret=pem(EDWARDS))
    assert "algorithm" in refusal(forged, parsed(jwk(EDWARDS, kid="k")))


@pytest.mark.parametrize("member", ["jku", "jwk", "x5u", "x5c"])
def test_a_token_brings_no_key(member):
    stranger = ec.generate_private_key(ec.SECP256R1())
    brought = {member: jwk(stranger) if member == "jwk" else "https://evil.example/keys"}
    text = jwt.encode(claims(), stranger, "ES256", headers=brought)
    assert "another key" in refusal(text, [CURVE_KEY])


@pytest.mark.parametrize(
    ("characters", "is_good"), [(JWT_CHARACTERS, True), (JWT_CHARACTERS + 1, False)]
)
def test_a_token_has_a_length(characters, is_good):
    text = next(
        text
        for padding in range(2_000, 4_000)
        if len(text := signed(sub="x" * padding)) in (characters, characters + 1)
        and (len(text) == characters or not is_good)
    )
    if is_good:
        assert len(text) == characters
        judged(text)
    else:
        assert "4096 characters" in refusal(text)


@pytest.mark.parametrize(
    ("aud", "audience", "is_good"),
    [
        *((None, None, True), ("hub", None, False), (None, "hub", False), ("hub", "hub", True)),
        *((["a", "hub"], "hub", True), (["a"], "hub", False), ("hub2", "hub", False)),
        *(([], "hub", False), (5, "hub", False)),
    ],
)
def test_a_token_is_for_this_hub(aud, audience, is_good):
    text = by_hand(HEADER, claims(aud=aud))
    if is_good:
        judged(text, audience=audience)
    else:
        refusal(text, audience=audience)


def test_clocks_that_are_ahead_are_forgiven_and_the_end_is_not_put_off():
    judged(signed(nbf=NOW + 10, iat=NOW + 10))
    refusal(signed(nbf=NOW + 1), skew_seconds=0)
    judged(signed(exp=NOW + 0.001))
    assert "expired" in refusal(signed(exp=NOW), skew_seconds=300)


@pytest.mark.parametrize(
    ("pattern", "name", "is_meant"),
    [
        *(("news", "news", True), ("news", "news2", False), ("news-*", "news-a", True)),
        *(("news-*", "news-", True), ("news-*", "news", False), ("*", "anything", True)),
        *(("*-public", "a-public", True), ("a*c", "abbc", True), ("a*c", "abbcd", False)),
        *(("a.b", "axb", False), ("*" * 64, "x" * 64, True)),
    ],
)
def test_a_pattern_means_sets(pattern, name, is_meant):
    reader = judged(signed(rsnotify={"read": [pattern]}))
    assert reader.may("read", name) == reader.names(name) == is_meant
    assert not reader.may("publish", name)
    publisher = judged(signed(rsnotify={"publish": [pattern]}))
    assert publisher.may("publish", name) == publisher.names(name) == is_meant
    assert not publisher.may("read", name)


def test_a_token_names_a_hundred_sets():
    sets = [f"s{number}" for number in range(PATTERNS)]
    assert judged(signed(rsnotify={"read": sets})).may("read", "s99")
    assert "use patterns" in refusal(signed(rsnotify={"read": sets, "publish": ["more"]}))


def test_a_key_set_names_the_key():
    other = ec.generate_private_key(ec.SECP256R1())
    keys = parsed(jwk(CURVE, kid="old"), jwk(other, kid="new"), jwk(EDWARDS, kid="ed"))
    assert judged(signed(other, "ES256", kid="new"), keys).key_id == keys[1].id
    judged(signed(other, "ES256"), keys)  # it names none: those of its algorithm are tried
    assert "another key" in refusal(signed(other, "ES256", kid="old"), keys)
    with pytest.raises(UnknownKey):
        judged(signed(other, "ES256", kid="newer"), keys)


def test_few_keys_are_tried_for_a_token_that_names_none():
    signers = [ec.generate_private_key(ec.SECP256R1()) for _ in range(TRIED + 1)]
    judged(signed(signers[TRIED - 1], "ES256"), parsed(*map(jwk, signers[:TRIED])))
    assert "kid" in refusal(signed(signers[TRIED], "ES256"), parsed(*map(jwk, signers)))


def oct_key(secret: str) -> dict[str, str]:
    return {"kty": "oct", "k": base64.urlsafe_b64encode(secret.encode()).decode().rstrip("=")}


PRIVATE = ALGORITHMS["ES256"].to_jwk(CURVE, as_dict=True)
LEFT_OUT = {
    "of an algorithm that does not count": (jwk(RIVEST, alg="RS512"), "RS512: only secrets"),
    "short": ({"kty": "RSA", "n": "AQAB", "e": "AQAB"}, "2,048 to 4,096 bits|cannot be read"),
    "of another curve": (jwk(CURVE, crv="P-384"), "EC: only"),
    "for another algorithm": (jwk(CURVE, alg="ES384"), "ES384: only"),
    "of no type": ({}, "None: only"),
    "of a type that is a number": ({"kty": 1}, "are texts"),
    "private": (PRIVATE, "private key"),
    "for encryption": (jwk(CURVE, use="enc"), "not for signatures"),
    "to sign with": (jwk(CURVE, key_ops=["sign"]), "not for signatures"),
    "a secret at an address": (oct_key(SECRET), "RSNOTIFY_JWT_KEY"),
    "spoilt": (jwk(CURVE, x="AAAA"), "cannot be read"),
    "half": ({"kty": "EC", "crv": "P-256"}, "cannot be read"),
    "with a long name": (jwk(CURVE, kid="k" * (KID_CHARACTERS + 1)), "kid has more"),
    "a text": ("key", "no object"),
}


@pytest.mark.parametrize("what", LEFT_OUT)
def test_a_key_that_does_not_count_is_left_out_and_named(what):
    listed, words = LEFT_OUT[what]
    keys, left_out = parse_key_set(
        key_set(jwk(EDWARDS, kid="k" * KID_CHARACTERS), listed), is_fetched=True
    )
    assert [key.algorithm for key in keys] == ["EdDSA"]
    assert [each for each in left_out if re.match(f"key 2: .*(?:{words})", each)], left_out
    with pytest.raises(ValueError, match="no key that counts"):
        parse_key_set(key_set(listed), is_fetched=True)


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"[" * 5000, b'{"keys": {}}', b"\xff", b"{"])
def test_what_is_no_key_set_is_said(text):
    with pytest.raises(ValueError, match=r"no JWKS|`keys` is a list"):
        parse_key_set(text, is_fetched=True)


def test_a_key_set_has_its_bounds():
    assert len(parsed(*[jwk(CURVE)] * KEYS)) == KEYS
    with pytest.raises(ValueError, match="32 keys at most"):
        parsed(*[jwk(CURVE)] * (KEYS + 1))
    whole = key_set(jwk(CURVE))
    parse_key_set(whole.ljust(SET_BYTES), is_fetched=True)
    with pytest.raises(ValueError, match="more than 65536 bytes"):
        parse_key_set(whole.ljust(SET_BYTES + 1), is_fetched=True)


def test_a_key_is_known_again_whatever_it_is_called():
    ids = {key.id for key in parsed(jwk(CURVE, kid="a"), jwk(CURVE, kid="b", alg="ES256"))}
    assert ids == {CURVE_KEY.id}
    assert parsed(oct_key(SECRET), is_fetched=False)[0].id == HMAC_KEY.id


@pytest.mark.parametrize(
    ("bits", "counts"), [(2040, False), (2048, True), (4096, True), (4104, False)]
)
def test_an_rsa_key_is_long_enough_and_not_too_long(bits, *, counts):
    """Of a number of this length: no key has to be searched for."""
    number = (1 << bits) - 1
    text = base64.urlsafe_b64encode(number.to_bytes(bits // 8)).decode().rstrip("=")
    listed = {"kty": "RSA", "n": text, "e": "AQAB"}
    if counts:
        assert [key.algorithm for key in parsed(listed)] == ["RS256"]
    else:
        with pytest.raises(ValueError, match="2,048 to 4,096 bits"):
            parsed(listed)


def test_a_public_rsa_key_is_no_secret():
    """Else whoever has it could sign."""
    forged = by_hand(HEADER, claims(), pem(RIVEST))
    assert "algorithm" in refusal(forged, [RIVEST_KEY])


def key_fault(text: str) -> str:
    with pytest.raises(ValueError, match=r".+") as wrong:
        parse_key(text)
    return str(wrong.value)


def test_a_key_that_would_be_weak_or_is_not_public_is_refused():
    assert "32 bytes or more" in key_fault(SECRET[:-1])
    with pytest.raises(ValueError, match="32 bytes or more"):
        parsed(oct_key(SECRET[:-1]), is_fetched=False)
    unencrypted = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    private = CURVE.private_bytes(serialization.Encoding.PEM, form, unencrypted).decode()
    assert "wants the public key" in key_fault(private)
    for other in (
        ec.generate_private_key(ec.SECP384R1()),
        ed448.Ed448PrivateKey.generate(),
    ):
        assert "and Ed25519 (EdDSA) count" in key_fault(pem(other))
    spoilt = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"
    assert "no public key that counts" in key_fault(spoilt)
