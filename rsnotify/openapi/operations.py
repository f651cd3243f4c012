"""Every operation of the HTTP API: who may ask, what is sent, what is answered.

A row belongs to a method and a path of the route table. What follows from who may ask, from the
path or from the body (such as 401, 404, 413) is added by `document`.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from rsnotify.openapi.schemas import CALLABLE, OPTIONS_OF_A_NEW_SET, Json, ref
from rsnotify.registry.requests import (
    CHANGE_LIST,
    CHANNEL,
    DOCUMENT,
    LISTED_SETS,
    RESOURCE_LIST,
    RIGHTS,
    SEVERAL_CHANNELS,
)
from rsnotify.resourcesync.notification import CHANNEL_PATH, CHANNELS_PATH, change_list_index
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

    summary: str
    who: Who
    answers: Mapping[int, Content]
    query: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    body: Content = {}
    body_required: bool = True
    examples: Mapping[str, object] = {}  # of the body, by media type
    errors: tuple[int, ...] = ()  # besides those that follow from the rest


CHANGE = {"loc": "http://example.com/res1", "change": "updated"}
FRAMEWORK_CHANGE = {
    "loc": "http://example.com/list.xml",
    "change": "updated",
    "capability": "changelist",
}
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


def _array(name: str) -> Json:
    return {"type": "array", "items": ref(name)}


def _document(summary: str, query: tuple[str, ...] = DOCUMENT, *errors: int) -> Operation:
    is_list = query != DOCUMENT
    answers = {200: LIST if is_list else ONE_DOCUMENT, 304: {}}
    return Operation(summary, "reader", answers, query, CONDITIONS, errors=(400, 404, *errors))


def _set(summary: str, **answers_and_more: object) -> Operation:
    options = {"body": {JSON: ref("SetOptions")}, "examples": {JSON: {"private": False}}}
    return Operation(summary, "admin", **(options | answers_and_more))  # type: ignore[arg-type]


_SUBSCRIPTION = "/api/subscriptions/{subscription}"
_SETS, _SET = "/api/sets", "/api/sets/{set}"

_CLIENT_FILE = Operation(
    "A file of the JavaScript client, which web pages import",
    "everybody",
    {200: {"text/javascript": ANY_TEXT}, 304: {}},
    errors=(404,),
)

OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("POST", "/api/changes"): Operation(
        "Publish to several sets at once; each change names its own",
        "publish",
        {201: {JSON: ref("AcceptedForSets")}},
        headers=KEY,
        body=FOR_SETS,
        examples={JSON: CHANGE | {"sets": ["dataset1"]}},
        errors=(404, 409, 507),
    ),
    ("POST", f"{_SET}/changes"): Operation(
        "Publish changes of resources",
        "publish",
        {201: {JSON: ref("Accepted")}},
        headers=KEY,
        body=CHANGES,
        examples={JSON: CHANGE, XML: ENTRY},
        errors=(409, 507),
    ),
    ("POST", f"{_SET}/framework"): Operation(
        "Publish changes of capability documents",
        "publish",
        {201: {JSON: ref("Accepted")}},
        headers=KEY,
        body=FRAMEWORK_CHANGES,
        examples={JSON: FRAMEWORK_CHANGE},
        errors=(409, 507),
    ),
    ("PUT", f"{_SET}/resources"): Operation(
        "Load the whole state of a set",
        "publish",
        {200: {JSON: ref("LoadOutcome")}, 202: {JSON: ref("LoadOutcome")}},
        query=("tell", "dry_run", "max_delete"),
        headers=KEY,
        body=RESOURCES,
        examples={JSON: [RESOURCE]},
        errors=(408, 409, 507),
    ),
    ("GET", f"{_SET}/resources"): Operation(
        "What is known of one resource, or how many there are",
        "reader",
        {200: {JSON: {"anyOf": [ref("Resource"), ref("Loaded")]}}},
        query=("loc", "access_token"),
        errors=(400,),
    ),
    ("GET", _SETS): Operation(
        "The sets by name; private ones only for tokens that name them",
        "everybody",
        {200: {JSON: _array("SetRecord")}},
        query=LISTED_SETS,
        errors=(401,),
    ),
    ("GET", "/api/rights"): Operation(
        "What the token that is sent may do with a set",
        "everybody",
        {200: {JSON: ref("RightsShown")}},
        query=RIGHTS,
        errors=(401, 429),
    ),
    ("PUT", _SET): _set(
        "Make a set; one that is there stays as it is",
        answers={201: {JSON: ref("SetRecord")}, 200: {JSON: ref("SetRecord")}},
        body={JSON: OPTIONS_OF_A_NEW_SET},
        body_required=False,
        errors=(409, 507),
    ),
    ("PATCH", _SET): _set(
        "Change the options that are named",
        answers={200: {JSON: ref("SetRecord")}},
        errors=(409, 507),
    ),
    ("DELETE", _SET): Operation(
        "Remove a set and all its changes", "admin", {204: {}}, errors=(507,)
    ),
    ("POST", f"{_SET}/snapshot"): Operation(
        "Write a new Resource List; 202 if that takes longer",
        "publish",
        {201: {JSON: ref("Snapshot")}, 202: {JSON: ref("Snapshot")}},
        errors=(507,),
    ),
    ("GET", "/api/tokens"): Operation(
        "The tokens, without the tokens themselves", "admin", {200: {JSON: _array("TokenListed")}}
    ),
    ("POST", "/api/tokens"): Operation(
        "Make a token; 200 if the one that was chosen is there already",
        "admin",
        {201: {JSON: ref("NewTokenShown")}, 200: {JSON: ref("NewTokenShown")}},
        body={JSON: ref("NewToken")},
        examples={JSON: NEW_TOKEN},
        errors=(404, 409, 507),
    ),
    ("DELETE", "/api/tokens/{token}"): Operation(
        "Revoke a token", "admin", {204: {}}, errors=(507,)
    ),
    ("POST", "/api/tokens/{token}/rotate"): Operation(
        "Replace a token by another one with the same rights",
        "admin",
        {201: {JSON: ref("NewTokenShown")}, 200: {JSON: ref("NewTokenShown")}},
        body={JSON: ref("Rotation")},
        body_required=False,
        examples={JSON: {"grace_seconds": 60}},
        errors=(404, 409, 507),
    ),
    ("GET", "/api/subscriptions"): Operation(
        "The WebSub subscriptions", "admin", {200: {JSON: _array("Subscription")}}
    ),
    ("GET", _SUBSCRIPTION): Operation(
        "One subscription", "admin", {200: {JSON: ref("Subscription")}}
    ),
    ("DELETE", _SUBSCRIPTION): Operation(
        "End a subscription and notify its callback", "admin", {204: {}}, errors=(507,)
    ),
    ("POST", f"{_SUBSCRIPTION}/retry"): Operation(
        "Call the callback again now", "admin", {202: {}}, errors=(507,)
    ),
    ("GET", CHANNEL_PATH): Operation(
        "The latest notification of a channel; as an event stream, all that follow",
        "reader",
        {200: {**ONE_DOCUMENT, STREAM: ANY_TEXT}},
        query=CHANNEL,
        errors=(400, 410),
    ),
    ("GET", CHANNELS_PATH): Operation(
        "Several channels over one connection, as an event stream",
        "reader",
        {200: {STREAM: ANY_TEXT}},
        query=SEVERAL_CHANNELS,
        errors=(400, 404, 406, 410),
    ),
    ("POST", "/hub"): Operation(
        "Subscribe, unsubscribe or publish by WebSub; a publish may have an Idempotency-Key; "
        "errors are one sentence",
        "everybody",
        {202: {TEXT: ANY_TEXT}, 204: {}, 200: {JSON: ref("Accepted")}},
        query=("access_token",),
        headers=("Link",),
        body={FORM: FORMS, **AT_THE_HUB},
        examples={FORM: SUBSCRIBE},
        errors=(401, 403, 404, 409, 429, 507),
    ),
    ("GET", "/health/live"): Operation(
        "Whether the process serves", "everybody", {200: {TEXT: ANY_TEXT}}
    ),
    ("GET", "/health/ready"): Operation(
        "Whether the journals are followed and can be written",
        "everybody",
        {200: {TEXT: ANY_TEXT}},
        errors=(507,),
    ),
    ("GET", "/api/status"): Operation(
        "The hub at a glance; private sets only for tokens that name them, WebSub for the admin",
        "everybody",
        {200: {JSON: ANY_OBJECT}},
        query=LISTED_SETS,
        errors=(401,),
    ),
    ("GET", "/metrics"): Operation(
        "Numbers for Prometheus; with the token that the operator chose, if there is one",
        "everybody",
        {200: {TEXT: ANY_TEXT}},
        errors=(401,),
    ),
    ("POST", "/api/validate"): Operation(
        "Check a ResourceSync document that is sent, or that the admin names",
        "everybody",
        {200: {JSON: ANY_OBJECT}},
        body={XML: ANY_TEXT, JSON: NAMED},
        examples={XML: ENTRY},
        errors=(401, 403, 429),
    ),
    ("GET", "/"): Operation(
        "The page for people; others are led to the Source Description",
        "everybody",
        {200: {"text/html": ANY_TEXT}, 302: {}, 304: {}},
    ),
    ("GET", "/static/{file}"): Operation(
        "A file of the page",
        "everybody",
        {200: {"text/css": ANY_TEXT, "text/javascript": ANY_TEXT}, 304: {}},
        errors=(404,),
    ),
    ("GET", "/static/client/{file}"): _CLIENT_FILE,
    ("GET", "/static/client/lib/{file}"): _CLIENT_FILE,
    ("GET", "/.well-known/resourcesync"): _document("Source Description"),
    ("GET", "/robots.txt"): Operation(
        "For crawlers", "everybody", {200: {TEXT: ANY_TEXT}, 304: {}}, headers=CONDITIONS
    ),
    ("GET", "/{set}/capabilitylist.xml"): _document("Capability List"),
    ("GET", "/{set}/capabilitylist-ws.xml"): _document(
        "Capability List as version 0.8 has it, with ws:// addresses"
    ),
    ("GET", "/{set}/changelist.xml"): _document(
        "Open Change List; with `from`, all after a position", CHANGE_LIST, 410
    ),
    ("GET", "/{set}/changelist/{from_}.xml"): _document("One Change List", CHANGE_LIST, 410),
    ("GET", change_list_index("{set}")): _document("Change List Index"),
    ("GET", "/{set}/changelist-archive.xml"): _document("Change List Archive"),
    ("GET", "/{set}/resourcelist.xml"): _document(
        "Resource List, or the index of its parts", RESOURCE_LIST
    ),
    ("GET", "/{set}/resourcelist-archive.xml"): _document("Resource List Archive"),
    ("GET", "/{set}/resourcelist/{part}.xml"): _document(
        "A part of a Resource List, or one of the archive", RESOURCE_LIST, 410
    ),
    ("GET", "/api/openapi.json"): Operation(
        "This description", "everybody", {200: {JSON: ANY_OBJECT}}
    ),
    ("GET", "/api"): Operation(
        "This description for people", "everybody", {200: {"text/html": ANY_TEXT}}
    ),
}
