"""Every operation of the HTTP API: who may ask, what is sent, what is answered.

A row belongs to a method and a path of the route table. Its summary is what the endpoint says of
itself. What follows from who may ask, from the path or from the body (such as 401, 404, 413) is
added by `document`.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from rsnotify.access.query import (
    CHANGE_LIST,
    CHANNEL,
    DOCUMENT,
    FRAMEWORK_STREAM_QUESTION,
    LISTED_SETS,
    OAI,
    RESOURCE_LIST,
    RIGHTS,
    SEVERAL_CHANNELS,
    STATUS,
    STREAM_QUESTION,
)
from rsnotify.openapi.schemas import CALLABLE, OPTIONS_OF_A_NEW_SET, Json, ref
from rsnotify.resourcesync.notification import (
    CHANNEL_PATH,
    CHANNELS_PATH,
    FRAMEWORK_STREAM_PATH,
    STREAM_PATH,
    change_list_index,
)
from rsnotify.websub.rules import SECRET_BYTES, URL_CHARACTERS

Who = Literal["everybody", "reader", "publish", "admin"]

JSON, XML, TEXT = "application/json", "application/xml", "text/plain"
NDJSON, STREAM = "application/x-ndjson", "text/event-stream"
FORM = "application/x-www-form-urlencoded"
ANY_TEXT: Json = {"type": "string"}
ANY_OBJECT: Json = {"type": "object"}

Content = Mapping[str, Json]


class Operation(msgspec.Struct, frozen=True):
    """One row."""

    who: Who
    answers: Mapping[int, Content]
    query: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    body: Content = {}
    body_required: bool = True
    examples: Mapping[str, object] = {}  # of the body, by media type
    errors: tuple[int, ...] = ()  # besides those that follow from the rest


SEVERAL = ["dataset1", "dataset2"]
CHANGE = {"loc": "http://example.com/res1", "change": "updated"}
FRAMEWORK_CHANGE = CHANGE | {"loc": "http://example.com/list.xml", "capability": "changelist"}
RESOURCE = {"loc": "http://example.com/res1", "length": 5}
ENTRY = (
    '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" '
    'xmlns:rs="http://www.openarchives.org/rs/terms/"><url><loc>http://example.com/res1</loc>'
    '<rs:md change="updated"/></url></urlset>'
)
NEW_TOKEN = {"sets": ["dataset1"], "rights": ["publish"], "note": "the repository"}
SUBSCRIBE = {
    "hub.mode": "subscribe",
    "hub.topic": "http://hub.example/channels/dataset1/change_notification_channel",
    "hub.callback": "https://subscriber.example/callback",
}

CHANGES: Content = {JSON: ref("Changes"), NDJSON: ANY_TEXT, XML: ANY_TEXT}
FRAMEWORK_CHANGES: Content = {**CHANGES, JSON: ref("FrameworkChanges")}
AT_THE_HUB: Content = {**CHANGES, JSON: {"anyOf": [ref("Changes"), ref("FrameworkChanges")]}}
FOR_SETS: Content = {
    JSON: {
        "oneOf": [
            ref("ChangeForSets"),
            {"type": "array", "items": ref("ChangeForSets"), "minItems": 1},
        ]
    },
    NDJSON: ANY_TEXT,
}
RESOURCES: Content = {
    JSON: {"type": "array", "items": ref("ResourceToLoad")},
    NDJSON: ANY_TEXT,
    XML: ANY_TEXT,
}
ONE_DOCUMENT: Content = {XML: ANY_TEXT, JSON: ANY_OBJECT}
LIST: Content = {**ONE_DOCUMENT, NDJSON: ANY_TEXT}
CALLED: Json = {"type": "string", "pattern": CALLABLE, "maxLength": URL_CHARACTERS}
NAMED: Json = {
    "type": "object",
    "properties": {"url": CALLED},
    "required": ["url"],
    "additionalProperties": False,
}
KEY = ("Idempotency-Key",)
CONDITIONS = ("If-None-Match", "If-Modified-Since")
FORMS: Json = {
    "type": "object",
    "properties": {
        "hub.mode": {"enum": ["subscribe", "unsubscribe", "publish"]},
        "hub.topic": CALLED,
        "hub.url": {"type": "string", "minLength": 1},
        "hub.callback": CALLED,
        "hub.lease_seconds": {"type": "string", "pattern": "^[0-9]*[1-9][0-9]*$"},
        "hub.secret": {
            "type": "string",
            "maxLength": SECRET_BYTES - 1,
            "description": f"Shorter than {SECRET_BYTES} bytes in UTF-8.",
        },
    },
    "required": ["hub.mode"],
    "anyOf": [
        {
            "properties": {"hub.mode": {"enum": ["subscribe", "unsubscribe"]}},
            "required": ["hub.topic", "hub.callback"],
        },
        {"properties": {"hub.mode": {"const": "publish"}}, "required": ["hub.url"]},
        {"properties": {"hub.mode": {"const": "publish"}}, "required": ["hub.topic"]},
    ],
}

OAI_FORM: Json = {
    "type": "object",
    "properties": {name: ANY_TEXT for name in OAI if name != "access_token"},
    "required": ["verb"],
}


def _json(name: str, *statuses: int) -> Mapping[int, Content]:
    return {status: {JSON: ref(name)} for status in statuses or (200,)}


def _listed(name: str) -> Mapping[int, Content]:
    return {200: {JSON: {"type": "array", "items": ref(name)}}}


def _document(query: tuple[str, ...] = DOCUMENT, *errors: int) -> Operation:
    answers = {200: ONE_DOCUMENT if query == DOCUMENT else LIST, 304: {}}
    return Operation("reader", answers, query, CONDITIONS, errors=(404, *errors))


def _stream(question: tuple[str, ...]) -> Operation:
    return Operation(
        "reader",
        {
            200: {JSON: {"type": "array", "items": ANY_OBJECT}, STREAM: ANY_TEXT},
            204: {},
            304: {},
        },
        question,
        ("If-None-Match",),
        errors=(410,),
    )


_OAI: Mapping[int, Content] = {200: {"text/xml": ANY_TEXT}, 302: {}}
_FEED: Mapping[int, Content] = {200: {"application/atom+xml": ANY_TEXT}, 304: {}}
_LINKED: Mapping[int, Content] = {200: {"application/ld+json": ANY_OBJECT}, 304: {}}
_TURTLE: Mapping[int, Content] = {200: {"text/turtle": ANY_TEXT}, 304: {}}
_TEXT: Mapping[int, Content] = {200: {TEXT: ANY_TEXT}}
_OBJECT: Mapping[int, Content] = {200: {JSON: ANY_OBJECT}}
_SUBSCRIPTION = "/api/subscriptions/{subscription}"
_SETS, _SET = "/api/sets", "/api/sets/{set}"
_CLIENT_FILE = Operation("everybody", {200: {"text/javascript": ANY_TEXT}, 304: {}})

OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("POST", "/api/changes"): Operation(
        "publish",
        _json("AcceptedForSets", 201),
        headers=KEY,
        body=FOR_SETS,
        examples={JSON: CHANGE | {"sets": SEVERAL}},
        errors=(404,),
    ),
    ("POST", f"{_SET}/changes"): Operation(
        "publish",
        _json("Accepted", 201),
        headers=KEY,
        body=CHANGES,
        examples={JSON: CHANGE, XML: ENTRY},
    ),
    ("POST", f"{_SET}/framework"): Operation(
        "publish",
        _json("Accepted", 201),
        headers=KEY,
        body=FRAMEWORK_CHANGES,
        examples={JSON: FRAMEWORK_CHANGE},
    ),
    ("PUT", f"{_SET}/resources"): Operation(
        "publish",
        _json("LoadOutcome", 200, 202),
        query=("publish", "dry_run", "max_delete", "as_of", "overwrite"),
        headers=KEY,
        body=RESOURCES,
        examples={JSON: [RESOURCE]},
        errors=(408,),
    ),
    ("GET", f"{_SET}/resources"): Operation(
        "reader",
        {200: {JSON: {"anyOf": [ref("Resource"), ref("Loaded")]}}},
        query=("loc", "access_token"),
    ),
    ("GET", _SETS): Operation("everybody", _listed("SetRecord"), LISTED_SETS, errors=(401,)),
    ("GET", "/api/rights"): Operation("everybody", _json("RightsShown"), RIGHTS, errors=(401, 429)),
    ("PUT", _SET): Operation(
        "admin",
        _json("SetRecord", 201, 200),
        body={JSON: OPTIONS_OF_A_NEW_SET},
        body_required=False,
        examples={JSON: {"private": False}},
    ),
    ("PATCH", _SET): Operation(
        "admin",
        _json("SetRecord"),
        body={JSON: ref("SetOptions")},
        examples={JSON: {"private": False}},
    ),
    ("DELETE", _SET): Operation("admin", {204: {}}),
    ("POST", f"{_SET}/snapshot"): Operation("publish", _json("SnapshotShown", 201, 202)),
    ("GET", "/api/tokens"): Operation("admin", _listed("TokenListed")),
    ("POST", "/api/tokens"): Operation(
        "admin",
        _json("NewTokenShown", 201, 200),
        body={JSON: ref("NewToken")},
        examples={JSON: NEW_TOKEN},
        errors=(404,),
    ),
    ("DELETE", "/api/tokens/{token}"): Operation("admin", {204: {}}),
    ("POST", "/api/tokens/{token}/rotate"): Operation(
        "admin",
        _json("NewTokenShown", 201, 200),
        body={JSON: ref("Rotation")},
        body_required=False,
        examples={JSON: {"grace_seconds": 60}},
    ),
    ("GET", "/api/subscriptions"): Operation("admin", _listed("Subscription")),
    ("GET", _SUBSCRIPTION): Operation("admin", _json("Subscription")),
    ("DELETE", _SUBSCRIPTION): Operation("admin", {204: {}}),
    ("POST", f"{_SUBSCRIPTION}/retry"): Operation("admin", {202: {}}),
    ("GET", CHANNEL_PATH): Operation(
        "reader", {200: {**ONE_DOCUMENT, STREAM: ANY_TEXT}}, CHANNEL, errors=(410,)
    ),
    ("GET", CHANNELS_PATH): Operation(
        "reader", {200: {STREAM: ANY_TEXT}}, SEVERAL_CHANNELS, errors=(404, 406, 410)
    ),
    ("GET", STREAM_PATH): _stream(STREAM_QUESTION),
    ("GET", FRAMEWORK_STREAM_PATH): _stream(FRAMEWORK_STREAM_QUESTION),
    ("POST", "/hub"): Operation(
        "everybody",
        {202: {TEXT: ANY_TEXT}, 204: {}, 200: {JSON: ref("Accepted")}},
        query=("access_token",),
        headers=("Link",),
        body={FORM: FORMS, **AT_THE_HUB},
        examples={FORM: SUBSCRIBE},
        errors=(401, 403, 404, 409, 429, 507),
    ),
    ("GET", "/health/live"): Operation("everybody", _TEXT),
    ("GET", "/health/ready"): Operation("everybody", _TEXT, errors=(507,)),
    ("GET", "/api/status"): Operation("everybody", _OBJECT, STATUS, errors=(401,)),
    ("GET", "/metrics"): Operation("everybody", _TEXT, errors=(401,)),
    ("POST", "/api/validate"): Operation(
        "everybody",
        _OBJECT,
        body={XML: ANY_TEXT, JSON: NAMED},
        examples={XML: ENTRY},
        errors=(401, 403, 429),
    ),
    ("GET", "/"): Operation("everybody", {200: {"text/html": ANY_TEXT}, 302: {}, 304: {}}),
    ("GET", "/static/{file}"): Operation(
        "everybody", {200: {"text/css": ANY_TEXT, "text/javascript": ANY_TEXT}, 304: {}}
    ),
    ("GET", "/static/client/{file}"): _CLIENT_FILE,
    ("GET", "/static/client/lib/{file}"): _CLIENT_FILE,
    ("GET", "/.well-known/resourcesync"): _document(),
    ("GET", "/.well-known/resourcesync/{part}.xml"): _document(),
    ("GET", "/robots.txt"): Operation("everybody", {**_TEXT, 304: {}}, headers=CONDITIONS),
    ("GET", "/{set}"): Operation("reader", {302: {}}, ("access_token",)),
    ("GET", "/{set}/capabilitylist.xml"): _document(),
    ("GET", "/{set}/capabilitylist-ws.xml"): _document(),
    ("GET", "/dcat.ttl"): Operation("everybody", _TURTLE, ("access_token",), CONDITIONS),
    ("GET", "/dcat.jsonld"): Operation("everybody", _LINKED, ("access_token",), CONDITIONS),
    ("GET", "/{set}/dcat.ttl"): Operation("reader", _TURTLE, ("access_token",), CONDITIONS),
    ("GET", "/{set}/dcat.jsonld"): Operation("reader", _LINKED, ("access_token",), CONDITIONS),
    ("GET", "/{set}/changelist.xml"): _document(CHANGE_LIST, 410),
    ("GET", "/{set}/changelist/{from_}.xml"): _document(CHANGE_LIST, 410),
    ("GET", change_list_index("{set}")): _document(),
    ("GET", "/{set}/changelist-archive.xml"): _document(),
    ("GET", "/{set}/resourcelist.xml"): _document(RESOURCE_LIST),
    ("GET", "/{set}/resourcelist-archive.xml"): _document(),
    ("GET", "/{set}/resourcelist/{part}.xml"): _document(RESOURCE_LIST, 410),
    ("GET", "/{set}/feed.atom"): Operation("reader", _FEED, ("access_token",), CONDITIONS),
    ("GET", "/{set}/feed/{from_}.atom"): Operation(
        "reader", _FEED, ("access_token",), CONDITIONS, errors=(410,)
    ),
    ("GET", "/{set}/activities"): Operation("reader", _LINKED, ("access_token",), CONDITIONS),
    ("GET", "/{set}/activities/{from_}"): Operation(
        "reader", _LINKED, ("access_token",), CONDITIONS, errors=(410,)
    ),
    ("GET", "/{set}/oai"): Operation("reader", _OAI, OAI, errors=(404,)),
    ("POST", "/{set}/oai"): Operation(
        "reader",
        _OAI,
        ("access_token",),
        body={FORM: OAI_FORM},
        examples={FORM: {"verb": "Identify"}},
        errors=(404, 415),
    ),
    ("GET", "/api/openapi.json"): Operation("everybody", _OBJECT),
    ("GET", "/api"): Operation("everybody", {200: {"text/html": ANY_TEXT}}),
}
