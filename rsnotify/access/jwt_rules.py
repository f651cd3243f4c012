"""What a JWT allows: which keys count, which algorithm each is for, what a token must say.

The key fixes the algorithm; what a token says of it must only agree. A token is short-lived: it
ends at its `exp`, by this machine's clock. A token of a machine whose clock is ahead is forgiven
so many seconds.
"""

import hashlib
import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

import jwt
import msgspec
from jwt.algorithms import get_default_algorithms

from rsnotify.errors import TokenRefused

JWT_CHARACTERS = 4_096
SECRET_BYTES = 32  # of HS256 at least: RFC 7518, 3.2
KEYS = 32  # of a key set
TRIED = 4  # for a token that names none
SET_BYTES = 64 * 1024  # of a key set
KID_CHARACTERS = 200
PATTERNS = 100  # of a token
LATEST = 253_402_300_800  # the year 10000

RSA_BITS = (2_048, 4_096)  # RFC 7518, 3.3; no longer than what strangers may have checked
ALGORITHMS = {
    ("oct", None): "HS256",
    ("RSA", None): "RS256",
    ("EC", "P-256"): "ES256",
    ("OKP", "Ed25519"): "EdDSA",
}
MEMBERS = {  # RFC 7638
    "oct": ("k",),
    "RSA": ("e", "n"),
    "EC": ("crv", "x", "y"),
    "OKP": ("crv", "x"),
}
WHICH_KEYS = "only secrets (HS256), RSA (RS256), P-256 (ES256) and Ed25519 (EdDSA) count"
OURS = ("verify_exp", "verify_nbf", "verify_iat", "verify_sub", "verify_jti")
"""What the library need not check: times, which are judged here, and what nobody reads."""

_PATTERN = re.compile(r"[a-z0-9*][a-z0-9._*-]{0,63}").fullmatch


class UnknownKey(TokenRefused):
    """The token names a key that is not known, or no longer, or not yet."""


class JwtKey(msgspec.Struct, frozen=True):
    """A key that tokens may be signed with."""

    id: str  # of what it is: another key has another one, whatever its name
    kid: str | None  # its name
    algorithm: str
    material: jwt.PyJWK


class JwtRights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names of sets; `*` stands for any characters."""

    read: tuple[str, ...] = ()
    publish: tuple[str, ...] = ()


class JwtClaims(msgspec.Struct, frozen=True):
    """What the hub reads of a token; `aud` was judged before."""

    exp: float
    rsnotify: JwtRights
    nbf: float = 0
    iat: float = 0


class Grant(msgspec.Struct, frozen=True):
    """What a token allows, until when, and by which key."""

    rights: JwtRights
    expires: float
    key_id: str

    def may(self, right: Literal["publish", "read"], set_name: str) -> bool:
        patterns = self.rights.read if right == "read" else self.rights.publish
        return _match(patterns, set_name)

    def names(self, set_name: str) -> bool:
        return _match((*self.rights.read, *self.rights.publish), set_name)

    @property
    def key(self) -> str:
        """All that decides later whether what was opened with the token may stay open."""
        return f"jwt:{self.expires}:{self.key_id}"

    def key_of(self, _: str) -> str:
        return self.key


def is_over(grant_key: str, key_ids: Collection[str], now: float) -> bool:
    """Whether a token has expired, or its key counts no more.

    >>> [is_over("jwt:5.0:a", *now) for now in (({"a"}, 4.9), ({"a"}, 5), ((), 4))]
    [False, True, True]
    """
    _, expires, key_id = grant_key.split(":", 2)
    return now >= float(expires) or key_id not in key_ids


def _match(patterns: Iterable[str], set_name: str) -> bool:
    return any(fnmatchcase(set_name, pattern) for pattern in patterns)


# --- keys ----------------------------------------------------------------------------------------


def parse_key(text: str) -> JwtKey:
    """A secret, or a public key in PEM; ValueError says what is wrong with it."""
    if not text.startswith("-----"):
        secret = text.encode()
        if len(secret) < SECRET_BYTES:
            raise ValueError(f"a secret has {SECRET_BYTES} bytes or more")
        return _key({"kty": "oct", "k": urlsafe_b64encode(secret).decode().rstrip("=")})
    if "PUBLIC KEY-----" not in text:
        raise ValueError("the hub wants the public key: -----BEGIN PUBLIC KEY-----")
    for name in ("RS256", "ES256", "EdDSA"):
        algorithm = get_default_algorithms()[name]
        try:
            listed = algorithm.to_jwk(algorithm.prepare_key(text), as_dict=True)
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        return _key({name: each for name, each in listed.items() if name != "key_ops"})
    raise ValueError(f"it is no public key that counts: {WHICH_KEYS}")


def parse_key_set(text: bytes, *, is_fetched: bool) -> tuple[list[JwtKey], list[str]]:
    """The keys of a JWKS that count, and why each other one does not; ValueError if none does."""
    if len(text) > SET_BYTES:
        raise ValueError(f"it has more than {SET_BYTES} bytes")
    try:
        listed = json.loads(text)["keys"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise ValueError('it is no JWKS: {"keys": [{"kty": "EC", …}]}') from None
    if not isinstance(listed, list) or len(listed) > KEYS:
        raise ValueError(f"`keys` is a list of {KEYS} keys at most")
    keys, left_out = [], []
    for number, each in enumerate(listed, 1):
        try:
            keys.append(_listed_key(each, is_fetched=is_fetched))
        except ValueError as error:
            left_out.append(f"key {number}: {error}")
    if not keys:
        raise ValueError("; ".join(["it has no key that counts", *left_out]))
    return keys, left_out


def _listed_key(listed: object, *, is_fetched: bool) -> JwtKey:
    if not isinstance(listed, dict):
        raise ValueError("it is no object")
    if "d" in listed:
        raise ValueError("it is a private key: list the public one")
    if is_fetched and listed.get("kty") == "oct":
        raise ValueError("a secret is not fetched: use RSNOTIFY_JWT_KEY")
    if listed.get("use", "sig") != "sig" or "verify" not in listed.get("key_ops", ["verify"]):
        raise ValueError("it is not for signatures")
    return _key(listed)


def _key(listed: Mapping[str, Any]) -> JwtKey:
    kty, crv, kid = (listed.get(name) for name in ("kty", "crv", "kid"))
    if not all(isinstance(each, str | None) for each in (kty, crv, kid)):
        raise ValueError("kty, crv and kid are texts")
    algorithm = ALGORITHMS.get((kty or "", crv if kty in ("EC", "OKP") else None))
    if algorithm is None or listed.get("alg", algorithm) != algorithm:
        raise ValueError(f"{str(listed.get('alg') or kty)[:20]}: {WHICH_KEYS}")
    if kid is not None and len(kid) > KID_CHARACTERS:
        raise ValueError(f"its kid has more than {KID_CHARACTERS} characters")
    kept = {"kty": kty, **{name: listed.get(name) for name in MEMBERS[str(kty)]}}
    try:
        material = jwt.PyJWK(kept, algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):
        raise ValueError("it cannot be read") from None
    if kty == "oct" and len(material.key) < SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes or more")
    if kty == "RSA" and not RSA_BITS[0] <= material.key.key_size <= RSA_BITS[1]:
        raise ValueError(f"an RSA key has {RSA_BITS[0]:,} to {RSA_BITS[1]:,} bits")
    id_ = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
    return JwtKey(id_, kid, algorithm, material)


# --- tokens --------------------------------------------------------------------------------------


def judge_jwt(
    text: str, keys: Sequence[JwtKey], *, audience: str | None, skew_seconds: float, now: float
) -> Grant:
    """What the token allows; `TokenRefused` if it is not good."""
    if len(text) > JWT_CHARACTERS:
        raise TokenRefused(f"the JWT has more than {JWT_CHARACTERS} characters")
    claims, key = _signed(text, keys, audience)
    try:
        said = msgspec.convert(claims, JwtClaims)
    except (msgspec.ValidationError, RecursionError) as error:
        raise TokenRefused(f"the JWT's claims do not fit: {error}") from None
    if not 0 < said.exp < LATEST:
        raise TokenRefused("the JWT's exp must be seconds since 1970")
    if now >= said.exp:
        raise TokenRefused("the JWT has expired")
    if not max(said.nbf, said.iat) <= now + skew_seconds:
        raise TokenRefused("the JWT is not valid yet: see its nbf and iat, and the clocks")
    _check_patterns((*said.rsnotify.read, *said.rsnotify.publish))
    return Grant(said.rsnotify, said.exp, key.id)


def _check_patterns(patterns: Collection[str]) -> None:
    if len(patterns) > PATTERNS:
        raise TokenRefused(f"the JWT names more than {PATTERNS} sets: use patterns")
    for pattern in patterns:
        if _PATTERN(pattern) is None:
            fault = "is neither a set's name nor a pattern such as news-*"
            raise TokenRefused(f"the JWT's {pattern[:70]!r} {fault}")


def _signed(text: str, keys: Sequence[JwtKey], audience: str | None) -> tuple[Any, JwtKey]:
    """Its claims, and the key that it is signed with; times are not judged yet."""
    try:
        header = jwt.get_unverified_header(text)
    except (jwt.PyJWTError, ValueError, TypeError):
        raise TokenRefused("the JWT cannot be read") from None
    kid = header.get("kid")
    named = [key for key in keys if None in (kid, key.kid) or key.kid == kid]
    if not named:
        raise UnknownKey("the JWT's key is unknown, or is not used any more")
    fitting = [key for key in named if key.algorithm == header.get("alg")]
    if kid is not None and all(key.kid is None for key in named) and not fitting:
        raise UnknownKey("the JWT's key is unknown, or is not used any more")  # or not read yet
    if not fitting:
        raise TokenRefused("the JWT's algorithm is not that of its key")
    if len(fitting) > TRIED:
        raise TokenRefused("the JWT must name its key (kid): there are several")
    unchecked: Any = {"require": ["exp"], **dict.fromkeys(OURS, False)}
    for key in fitting:
        try:
            claims = jwt.decode(
                text,
                key.material,
                algorithms=[key.algorithm],
                audience=audience,
                options=unchecked,
            )
        except jwt.InvalidSignatureError:
            continue
        except jwt.InvalidAudienceError:
            detail = "the JWT is for another audience: see RSNOTIFY_JWT_AUDIENCE"
            raise TokenRefused(detail) from None
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise TokenRefused(f"the JWT is refused: {str(error)[:200]}") from None
        return claims, key
    raise UnknownKey("the JWT is signed with another key")
