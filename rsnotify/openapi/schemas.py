"""What is sent and answered, as JSON Schema: made of the types that read it, with their limits."""

from typing import Any

import msgspec

from rsnotify.access.bearer import RightsShown
from rsnotify.access.tokens import Right, Token
from rsnotify.errors import Fault
from rsnotify.operation.administration import (
    EXPIRES_DAYS,
    GRACE_SECONDS,
    NOTE_CHARACTERS,
    SECRET,
    SETS_OF_A_TOKEN,
    WEB_ADDRESSES,
    NewToken,
    Rotation,
    SnapshotShown,
)
from rsnotify.publishing.bodies import MAX_CHANGES, ChangeForSets
from rsnotify.resourcesync.change import (
    CHANGE_FREQUENCIES,
    CHANGE_TYPES,
    HASH_DIGITS,
    OF_A_CHANGE,
    VALUES,
    Change,
    Link,
)
from rsnotify.resourcesync.change_rules import LENGTH_END, LINKS, TEXT_CHARACTERS, URI_CHARACTERS
from rsnotify.resourcesync.notification import NAME
from rsnotify.resourcesync.tables import FRAMEWORK_CHANGES
from rsnotify.sets.options import (
    ADDRESSES,
    CHANNEL_OPTIONS,
    LEAST_BYTES,
    MOST_BYTES,
    TITLE_CHARACTERS,
    SetOptions,
    SetRecord,
)

Json = dict[str, Any]
REF = "#/components/schemas/{name}"


# Patterns: what `VALUES` judges, as JSON Schema has it ----------------------------

_NO_XML = r"\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff"
XML_TEXT = f"^[^{_NO_XML}]+$"
WITH_SCHEME = f"^[A-Za-z][A-Za-z0-9+.-]*:[^{_NO_XML}]*$"
_IN_URI = (
    r"(?:%[0-9A-Fa-f]{2}|"
    r"[^\s\u0000-\u0020<>\"{}|\\^`%\u007f-\u009f\u200e\u200f\u202a-\u202e\ufffe\uffff])+"
)
_SCHEME = "(?!(?:https?|wss?):(?!//[^/?#]))[A-Za-z][A-Za-z0-9+.-]*:"
URI = f"^{_SCHEME}{_IN_URI}$"
# A loc that others can fetch, and read in a list.
PUBLISHED = rf"^(?![Ff][Ii][Ll][Ee]:){_SCHEME}(?:%[0-9A-Fa-f]{{2}}|[!#$&-;=?-\[\]_a-z~])+$"
OF_THE_WEB = rf"^https?://(?![/?#]){_IN_URI}$"
OF_A_CHANNEL = rf"^(?:https?|wss?)://(?![/?#]){_IN_URI}$"
CALLABLE = (
    r"^[Hh][Tt][Tt][Pp][Ss]?://(?:[A-Za-z0-9._~%!$&'()*+,;=:-]*@)?(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])"
    r"(?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]"
    r"|6553[0-5])?)?(?:[/?][!\"$-\[\]-~]*)?$"
)

_DAY = "-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_TIME = (
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9])?(?:\.[0-9]+)?"
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_YEAR = "(?!0000-..-)[0-9]{4}"
MOMENT = f"^{_YEAR}{_DAY}{_TIME}$"
MOMENT_OR_DAY = f"^{_YEAR}{_DAY}(?:{_TIME})?$"
W3C_DATETIME = f"^{_YEAR}(?:-(?:0[1-9]|1[0-2])|{_DAY}(?:{_TIME})?)?$"


def _digest(algorithm: str, digits: int) -> str:
    """In hexadecimal, or in base64url."""
    shortest = -(-digits * 4 // 6)
    base64 = rf"(?![0-9A-Fa-f]+(?:\s|$))[0-9A-Za-z_-]{{{shortest},{shortest + 1}}}"
    return f"{algorithm}:(?:[0-9A-Fa-f]{{{digits}}}|{base64})"


_DIGEST = f"(?:{'|'.join(_digest(*each) for each in HASH_DIGITS.items())})"
_RESTRICTED = "[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"
_TOKEN = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - of a media type
_SPACE = r"[ \t\r\n]"

PATTERNS = {
    "lastmod": W3C_DATETIME,
    "datetime": MOMENT,
    "modified": MOMENT,
    "hash": f"^{_SPACE}*{_DIGEST}(?:{_SPACE}+{_DIGEST})*{_SPACE}*$",
    "type": (
        f"^{_RESTRICTED}/{_RESTRICTED}(?:{_SPACE}*;{_SPACE}*{_TOKEN}="
        f'(?:{_TOKEN}|"[^"{_NO_XML}]*"))*$'
    ),
    "path": rf"^/[^\n{_NO_XML}]*[^/{_NO_XML}]$",
    "rel": rf"^(?:[a-z][a-z0-9.-]*|{URI[1:-1]})$",
    "encoding": XML_TEXT,
    "profile": XML_TEXT,
}
"""By the field of a change or a link."""


# What is answered -------------------------------------------------------------------------------


class Problem(msgspec.Struct, omit_defaults=True):
    """An error (RFC 9457); `errors` names each thing that is wrong in the request."""

    type: str
    status: int
    detail: str
    errors: list[Fault] = []


class Accepted(msgspec.Struct, omit_defaults=True):
    """Changes that are stored, and the part of the journal that holds them."""

    accepted: int
    from_: str = msgspec.field(name="from")
    until: str
    not_kept: list[Fault] = []


class AcceptedForSets(msgspec.Struct):
    """What was stored for each set."""

    sets: dict[str, Accepted]


class TokenListed(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A token as the list shows it."""

    id: str
    sets: tuple[str, ...]
    created: str
    expires: str | None
    used: str | None
    rights: tuple[Right, ...] = ("publish",)
    note: str = ""


class NewTokenShown(Token, frozen=True, kw_only=True):
    """A token that was made: the only answer that has the token itself."""

    token: str


class Difference(msgspec.Struct):
    """What a load would change."""

    change: str
    loc: str


class LoadOutcome(msgspec.Struct, omit_defaults=True):
    """What became of a load, or of a dry run."""

    set: str
    stage: str
    published: bool
    at: str
    resources: int
    known: int
    created: int
    updated: int
    deleted: int
    unchanged: int
    newer: int
    as_of: str | None
    refused: str | None = None
    first: list[Difference] = []


class Loaded(msgspec.Struct):
    """How many resources of a set are known, and its loads."""

    set: str
    resources: int
    position: str
    load: LoadOutcome | None
    last_load: LoadOutcome | None


class Resource(msgspec.Struct, omit_defaults=True):
    """One resource as it is known, and when it changed last."""

    loc: str
    datetime: str
    lastmod: str = ""
    hash: str = ""
    length: int = 0
    type: str = ""
    encoding: str = ""
    changefreq: str = ""
    priority: float = 0.5
    links: tuple[Link, ...] = ()


class Subscription(msgspec.Struct, omit_defaults=True):
    """A WebSub subscription, and where its subscriber stands."""

    id: str
    set: str
    kind: str
    topic: str
    callback: str
    signed: bool
    created: str
    lease_seconds_left: int
    position: str
    behind_seconds: float | None
    failures: int
    last_answer: str | None
    answered: str | None
    next_attempt: str | None
    behind_changes: int | None = None  # when one is shown


TYPES = (
    Change,
    ChangeForSets,
    SetOptions,
    SetRecord,
    NewToken,
    Rotation,
    Token,
    Problem,
    Accepted,
    AcceptedForSets,
    NewTokenShown,
    TokenListed,
    RightsShown,
    SnapshotShown,
    LoadOutcome,
    Loaded,
    Resource,
    Subscription,
)


def ref(name: str) -> Json:
    return {"$ref": REF.format(name=name)}


def components() -> dict[str, Json]:
    """Every schema by its name."""
    _, found = msgspec.json.schema_components(TYPES, ref_template=REF)
    for name in ("Change", "ChangeForSets", "Link", "SetOptions", "SetRecord"):
        for field, schema in found[name]["properties"].items():
            schema.update(_limits(field))
    _narrow(found)
    found["FrameworkChange"] = _of_framework(found["Change"])
    found["ResourceToLoad"] = _without(found["Change"], *OF_A_CHANGE)
    to_load = found["ResourceToLoad"]["properties"]
    to_load["loc"] = to_load["loc"] | {"pattern": PUBLISHED}
    for name in ("Change", "ChangeForSets"):
        for field in ("capability", "index"):
            found[name]["properties"][field] = {"type": "null", "description": "Of framework only"}
    for name in ("Change", "ChangeForSets", "FrameworkChange"):
        found[name].setdefault("allOf", []).append(_PUBLISHED_OR_DELETED)
    for name in ("Change", "FrameworkChange"):
        several = {"type": "array", "items": ref(name), "minItems": 1, "maxItems": MAX_CHANGES}
        most = f"One change, or an array of {MAX_CHANGES:,} at most: beyond, 413."
        found[f"{name}s"] = {"description": most, "oneOf": [ref(name), several]}
    return found


NUMBERS: dict[str, Json] = {
    "max_bytes": {"minimum": LEAST_BYTES, "maximum": MOST_BYTES},
    "pri": {"minimum": 1, "maximum": 999_999},
    "length": {"minimum": 0, "exclusiveMaximum": LENGTH_END},
}


def _limits(field: str) -> Json:
    """What holds for a field of this name, wherever it stands."""
    if field in ("loc", "href", "index", *ADDRESSES):
        return {"maxLength": URI_CHARACTERS, "pattern": _address(field)}
    if field in NUMBERS:
        return NUMBERS[field]
    if field == "title":
        return {"minLength": 1, "maxLength": TITLE_CHARACTERS}
    if field == "change":
        return {"enum": list(CHANGE_TYPES)}
    if field not in PATTERNS:
        return {}
    limits: Json = {"maxLength": TEXT_CHARACTERS, "pattern": PATTERNS[field]}
    return limits | ({"description": VALUES[field].wanted} if field in VALUES else {})


def _address(field: str) -> str:
    if field in CHANNEL_OPTIONS:
        return OF_A_CHANNEL
    return OF_THE_WEB if field in WEB_ADDRESSES else URI


def _narrow(found: dict[str, Json]) -> None:
    for name in ("Change", "ChangeForSets"):
        fields = found[name]["properties"]
        fields["links"]["maxItems"] = LINKS
        fields["changefreq"] = {"enum": [*CHANGE_FREQUENCIES, None], "default": None}
        fields["capability"] = {"enum": [*FRAMEWORK_CHANGES, None], "default": None}
    sets = {"items": {"type": "string", "pattern": f"^{NAME.pattern}$"}, "minItems": 1}
    found["ChangeForSets"]["properties"]["sets"] |= sets
    token = found["NewToken"]["properties"]
    token["sets"] |= sets | {"maxItems": SETS_OF_A_TOKEN}
    token["rights"]["minItems"] = 1
    token["expires_days"] |= {"minimum": 1, "maximum": EXPIRES_DAYS}
    token["note"]["description"] = f"Cut after {NOTE_CHARACTERS} characters."
    chosen = {"type": ["string", "null"], "pattern": f"^{SECRET.pattern}$", "default": None}
    token["token"] = found["Rotation"]["properties"]["token"] = chosen
    found["Rotation"]["properties"]["expires_days"] = token["expires_days"]
    found["Rotation"]["properties"]["grace_seconds"] |= {"minimum": 0, "maximum": GRACE_SECONDS}


# What is not deleted has a loc that others can fetch.
_PUBLISHED_OR_DELETED: Json = {
    "anyOf": [
        {"properties": {"change": {"const": "deleted"}, "loc": {"pattern": URI}}},
        {"properties": {"loc": {"pattern": PUBLISHED}}},
    ]
}


def _with_hub(channel: str) -> Json:
    """A channel elsewhere needs its WebSub hub, unless it is a WebSocket."""
    socket = {"anyOf": [{"type": "null"}, {"pattern": "^wss?:"}]}
    hub = {"required": ["channel_hub"], "properties": {"channel_hub": {"type": "string"}}}
    return {"anyOf": [{"properties": {channel: socket}}, hub]}


OPTIONS_OF_A_NEW_SET: Json = {"allOf": [ref("SetOptions"), *map(_with_hub, CHANNEL_OPTIONS)]}


def _of_framework(change: Json) -> Json:
    """A change of a document; the table says which there are."""
    rows = [
        {"properties": {"capability": {"const": name}, "change": {"enum": list(changes)}}}
        for name, changes in FRAMEWORK_CHANGES.items()
    ]
    properties = change["properties"] | {"capability": {"enum": [*FRAMEWORK_CHANGES]}}
    required = [*change["required"], "capability"]
    kept = {"title": "FrameworkChange", "properties": properties, "required": required}
    return change | kept | {"allOf": [{"oneOf": rows}]}


def _without(schema: Json, *names: str) -> Json:
    kept = {name: each for name, each in schema["properties"].items() if name not in names}
    required = [name for name in schema["required"] if name not in names]
    return schema | {"title": "ResourceToLoad", "properties": kept, "required": required}
