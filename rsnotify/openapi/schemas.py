"""What is sent and answered, as JSON Schema: made of the types that read it, with their limits."""

from typing import Any

import msgspec

from rsnotify.core.bodies import MAX_CHANGES, ChangeForSets
from rsnotify.core.set_options import ADDRESSES, SetOptions, SetRecord
from rsnotify.errors import Fault
from rsnotify.intake.administration import (
    GRACE_SECONDS,
    NOTE_CHARACTERS,
    SECRET,
    SETS_OF_A_TOKEN,
    NewToken,
    Rotation,
)
from rsnotify.resourcesync.change import Change, Link
from rsnotify.resourcesync.change_rules import (
    LENGTH_END,
    LINKS,
    TEXT_CHARACTERS,
    URI_CHARACTERS,
)
from rsnotify.resourcesync.validation.tables import FRAMEWORK_CHANGES
from rsnotify.resourcesync.values import CHANGE_FREQUENCIES, CHANGE_TYPES, VALUES
from rsnotify.storage.tokens import Right, Token

Json = dict[str, Any]
REF = "#/components/schemas/{name}"


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


class Snapshot(msgspec.Struct, omit_defaults=True):
    """A snapshot that was taken; only its set if that goes on."""

    set: str
    resources: int = 0
    at: str = ""
    completed: str = ""


class Difference(msgspec.Struct):
    """What a load would change."""

    change: str
    loc: str


class LoadOutcome(msgspec.Struct, omit_defaults=True):
    """What became of a load, or of a dry run."""

    set: str
    stage: str
    told: bool
    at: str
    resources: int
    known: int
    created: int
    updated: int
    deleted: int
    unchanged: int
    refused: str | None = None
    first: list[Difference] = []


class Loaded(msgspec.Struct):
    """How many resources of a set are known, and its loads."""

    set: str
    resources: int
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
    Snapshot,
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
    several = {"type": "array", "items": ref("Change"), "minItems": 1}
    most = f"One change, or an array of {MAX_CHANGES:,} at most: beyond, 413."
    found["Changes"] = {"description": most, "oneOf": [ref("Change"), several]}
    found["ResourceToLoad"] = _without(found["Change"], "change", "datetime", "capability", "index")
    return found


def _limits(field: str) -> Json:
    """What holds for a field of this name, wherever it stands."""
    if field in ("loc", "href", "index", *ADDRESSES):
        return {"maxLength": URI_CHARACTERS, "format": "uri"}
    if field == "length":
        return {"minimum": 0, "exclusiveMaximum": LENGTH_END}
    if field == "change":
        return {"enum": list(CHANGE_TYPES)}
    told = VALUES[field].wanted if field in VALUES else None
    if told is None and field not in ("encoding", "profile"):
        return {}
    return {"maxLength": TEXT_CHARACTERS} | ({"description": told} if told else {})


def _narrow(found: dict[str, Json]) -> None:
    for name in ("Change", "ChangeForSets"):
        fields = found[name]["properties"]
        fields["links"]["maxItems"] = LINKS
        fields["changefreq"] = {"enum": [*CHANGE_FREQUENCIES, None], "default": None}
        fields["capability"] = {"enum": [*FRAMEWORK_CHANGES, None], "default": None}
    found["ChangeForSets"]["properties"]["sets"]["minItems"] = 1
    token = found["NewToken"]["properties"]
    token["sets"] |= {"minItems": 1, "maxItems": SETS_OF_A_TOKEN}
    token["rights"]["minItems"] = 1
    token["note"]["description"] = f"Cut after {NOTE_CHARACTERS} characters."
    chosen = {"type": ["string", "null"], "pattern": f"^{SECRET.pattern}$", "default": None}
    token["token"] = found["Rotation"]["properties"]["token"] = chosen
    found["Rotation"]["properties"]["expires_days"] = token["expires_days"]
    found["Rotation"]["properties"]["grace_seconds"] |= {"minimum": 0, "maximum": GRACE_SECONDS}


def _without(schema: Json, *names: str) -> Json:
    kept = {name: each for name, each in schema["properties"].items() if name not in names}
    required = [name for name in schema["required"] if name not in names]
    return schema | {"title": "ResourceToLoad", "properties": kept, "required": required}
