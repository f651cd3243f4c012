"""The OpenAPI document: a row of `operations` for every method and path that is served.

What follows from a row is added here, so that no row repeats it: the errors of a token, of a path,
of a body and of Redis; HEAD wherever there is GET.

`Description` serves it at `/api/openapi.json`, and at `/api` for people, as `reference` shows it.
"""

import re
from collections.abc import Iterator
from functools import cached_property

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from rsnotify import __version__
from rsnotify.access import query, sent_token
from rsnotify.errors import PROBLEM
from rsnotify.http.endpoints import Route, Routes
from rsnotify.openapi.operations import OPERATIONS, SEVERAL, TEXT, Content, Operation
from rsnotify.openapi.reference import TRIED, page_of
from rsnotify.openapi.schemas import MOMENT_OR_DAY, WITH_SCHEME, XML_TEXT, Json, components, ref
from rsnotify.resourcesync.change import CHANGE_TYPES
from rsnotify.resourcesync.change_filter import (
    FILTER,
    FILTER_VALUES,
    MEDIA_RANGE,
    VALUE_CHARACTERS,
)
from rsnotify.resourcesync.forms import DOCUMENT_FORMS, LIST_FORMS
from rsnotify.resourcesync.notification import NAME
from rsnotify.resourcesync.tables import MAX_ENTRIES
from rsnotify.views.oai_question import PREFIX, VERBS
from rsnotify.views.oai_token import TOKEN_CHARACTERS
from rsnotify.web.page import HEADERS

VERSION = "3.1.1"

MEANINGS = {
    200: "Done",
    201: "Stored or made",
    202: "Accepted; it goes on",
    204: "Done; there is nothing to say",
    302: "Elsewhere",
    304: "Not modified",
    400: "Something in the request is wrong; nothing of it was stored",
    401: "No token, an unknown one, or a revoked one",
    403: "The token is not for this, or this may not be called",
    404: "There is no such set, document or address",
    406: "It cannot be had in this form",
    408: "The body did not come in time",
    409: "It is at odds with what is there, or with what the same key was used for",
    410: "It was kept once and is gone",
    413: "The request is too large",
    415: "The format is unknown",
    429: "Too many: wait as long as Retry-After says",
    503: "The hub cannot do it now: wait as long as Retry-After says",
    507: "Redis has no room left; nothing was stored",
}
RETRY_AFTER = (429, 503, 507)

MOMENT = {"type": "string", "pattern": MOMENT_OR_DAY}


def _wanted(value: Json, description: str) -> Json:
    """A parameter of a filter, which may be repeated."""
    return {
        "type": "array",
        "items": {"maxLength": VALUE_CHARACTERS} | value,
        "maxItems": FILTER_VALUES,
        "description": description,
    }


PARAMETERS: dict[str, Json] = {
    # in the path
    "set": {
        "type": "string",
        "pattern": f"^{NAME.pattern}$",
        "description": "The name of a set",
    },
    "from_": {"type": "string", "description": "Where the list begins: a position"},
    "part": {"type": "string", "description": "As an index or an archive names it"},
    "subscription": {"type": "string", "description": "The id of a subscription"},
    "token": {"type": "string", "description": "The id of a token"},
    "file": {"type": "string", "description": "As the page names it"},
    # in the query
    "access_token": {"type": "string", "description": "A token; it opens private sets only"},
    "from": MOMENT | {"description": "A position: all that came after it"},
    "since": MOMENT | {"description": "Another word for from"},
    "until": MOMENT | {"description": "A position: all up to it"},
    "limit": {
        "type": "integer",
        "minimum": 1,
        "maximum": MAX_ENTRIES,
        "description": "So many entries at most, and no more than RSNOTIFY_PAGE_SIZE",
    },
    "name": {"type": "string", "description": "A set"},
    "order": {
        "enum": list(query.ORDERS),
        "description": "By name, or those that changed last first",
    },
    "search": {"type": "string", "description": "A part of the names of sets"},
    "offset": {
        "type": "integer",
        "minimum": 0,
        "maximum": MAX_ENTRIES,
        "description": "Entries that are left out",
    },
    "prefix": _wanted(
        {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9+.-]*:[!#-;=?-\\[\\]_a-z~]*$"},
        "Only changes of resources whose loc begins so",
    ),
    "change": _wanted({"enum": list(CHANGE_TYPES)}, "Only changes of this kind, and deletions"),
    "type": _wanted(
        {
            "type": "string",
            "pattern": MEDIA_RANGE,
        },
        "Only resources of this media type, or of all of a kind: image/*; in a set with filters",
    ),
    "collection": _wanted(
        {"type": "string", "pattern": WITH_SCHEME},
        'Only resources with a link of this href and rel="collection"; in a set with filters',
    ),
    "live": {"enum": ["long-poll", "sse"], "description": "Wait for what is not there yet"},
    "cursor": {
        "type": "string",
        "pattern": "^[0-9]{1,18}$",
        "description": "As Stream-Cursor has said it",
    },
    "loc": {"type": "string", "pattern": XML_TEXT, "description": "A resource"},
    "publish": {"enum": ["yes", "no"], "description": "Whether the differences are published"},
    "dry_run": {"enum": ["yes", "no"], "description": "Only say what would change"},
    "max_delete": {
        "type": "number",
        "minimum": 0,
        "maximum": 100,
        "description": "So many percent of the set at most may be deleted",
    },
    "as_of": {
        "type": "string",
        "format": "date-time",
        "description": "The set's position before the state was read: what is later stays",
    },
    "overwrite": {
        "enum": ["yes", "no"],
        "description": "Take back what was published since the load before",
    },
    # headers
    "Idempotency-Key": {
        "type": "string",
        "pattern": "^[!-~]{1,255}$",
        "description": "The same request with the same key is done once",
    },
    "If-None-Match": {"type": "string"},
    "If-Modified-Since": {"type": "string"},
    "Link": {"type": "string", "description": "Topic (self) and hub of what is published"},
}
SETS = {
    "type": "array",
    "items": {"type": "string", "pattern": f"^{NAME.pattern}(?:@{MOMENT_OR_DAY[1:-1]})?$"},
    "minItems": 1,
    "maxItems": query.SETS_OF_A_CONNECTION,
    "description": "Each set once; `name@position` for one with a position of its own",
}
STREAM_OFFSET = {
    "anyOf": [
        {"enum": ["-1", "now"]},
        {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"},
    ],
    "description": "As Stream-Next-Offset has said it; -1 is the beginning, now the end",
}
PAGE_OF_SETS: dict[str, Json] = {
    "limit": {
        "type": "integer",
        "minimum": 1,
        "maximum": query.SETS_LISTED,
        "description": "So many sets at most",
    },
    "offset": {
        "type": "integer",
        "minimum": 0,
        "maximum": query.SETS_LEFT_OUT,
        "description": "Sets that are left out, by name",
    },
}
OF_OAI: dict[str, Json] = {
    "verb": {"enum": [*VERBS]},
    "metadataPrefix": {"const": PREFIX},
    "identifier": {"type": "string", "description": "The loc of a resource"},
    "from": {"type": "string", "description": "A day, or a second with Z: the first"},
    "until": {"type": "string", "description": "A day, or a second with Z: the last"},
    "set": {"type": "string", "description": "There are none: noSetHierarchy"},
    "resumptionToken": {"type": "string", "maxLength": TOKEN_CHARACTERS},
}
SECURITY: dict[str, tuple[tuple[str, ...], ...]] = {
    "admin": (("token",),),
    "publish": (("token",), ("JWT in a cookie",)),
    "reader": ((), ("token",), ("token in the address",), ("JWT in a cookie",)),
}
EXAMPLES = {"set": "dataset1"}
KIND = "{kind}"

TAGS = {  # an operation has the first that its path fits
    "Publish": r"/api/(changes|sets/{set}/.+)",
    "Sets": "/api/(sets|rights)",
    "Tokens": "/api/tokens",
    "Channels and streams": "/(channels|streams)/",
    "WebSub": "/(hub|api/subscriptions)",
    "Documents": r"/(\.well-known|robots|{set})",
    "Operation": "/(health|metrics|api/(status|validate))",
    "The page and this description": "/",
}


def described(routes: Routes) -> Json:
    """All that these routes serve; what has no row is left out."""
    paths: dict[str, Json] = {}
    for method, route in served(routes):
        if (row := OPERATIONS.get((method, route.path))) is None:
            continue
        for name, operation in _each_kind(route.path, row):
            path = paths.setdefault(name, {})
            path[method.lower()] = _operation(operation, name, route.summary, method)
            if method == "GET":
                path["head"] = _head(operation, name, route.summary)
    return {
        "openapi": VERSION,
        "info": {
            "title": "rsnotify",
            "version": __version__,
            "description": "A push-notification hub for ResourceSync (ANSI/NISO Z39.99).",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name} for name in TAGS],
        "paths": paths,
        "components": {
            "schemas": components(),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "token in the address": {"type": "apiKey", "in": "query", "name": "access_token"},
                "JWT in a cookie": {"type": "apiKey", "in": "cookie", "name": sent_token.COOKIE},
            },
        },
    }


def served(routes: Routes) -> Iterator[tuple[str, Route]]:
    """Method and route of what is served over HTTP; HEAD and OPTIONS follow from GET."""
    for route in routes:
        if isinstance(route, Route):
            for method in sorted(route.methods - {"HEAD", "OPTIONS"}):
                yield method, route


def _each_kind(path: str, operation: Operation) -> Iterator[tuple[str, Operation]]:
    """An address of channels stands for two; the framework channel has no filter."""
    if KIND not in path:
        yield path, operation
        return
    without = tuple(name for name in operation.query if name not in FILTER)
    yield path.replace(KIND, "change"), operation
    yield path.replace(KIND, "framework"), replace(operation, query=without)


def _operation(operation: Operation, path: str, summary: str, method: str) -> Json:
    words = re.findall(r"\w+", path)
    found: Json = {
        "operationId": "_".join([method.lower(), *words]) if words else f"{method.lower()}_root",
        "summary": summary,
        "tags": [next(name for name, pattern in TAGS.items() if re.match(pattern, path))],
        "parameters": list(_parameters(operation, path)),
        "responses": {
            **{str(status): _answer(status, each) for status, each in operation.answers.items()},
            **{str(status): _error(status, path) for status in errors_of(operation, path, method)},
        },
    }
    if operation.body:
        content = {kind: _example(kind, operation) for kind in operation.body}
        found["requestBody"] = {"required": operation.body_required, "content": content}
    if operation.who in SECURITY:
        found["security"] = [{name: [] for name in names} for names in SECURITY[operation.who]]
    return found


def _head(operation: Operation, path: str, summary: str) -> Json:
    """The same headers without the body."""
    found = _operation(operation, path, f"{summary}: its headers", "HEAD")
    for answer in found["responses"].values():
        answer.pop("content", None)
    return found


def _parameters(operation: Operation, path: str) -> Iterator[Json]:
    for name in re.findall(r"{(\w+)}", path):
        yield _parameter(name, "path") | {"required": True}
    for name in operation.query:
        if operation.query == query.OAI and name in OF_OAI:
            yield {"name": name, "in": "query", "schema": OF_OAI[name]}
        elif name == "set":
            several = {"name": "set", "in": "query", "required": True, "schema": SETS}
            yield several | {"example": SEVERAL}
        elif name == "format":
            yield {"name": name, "in": "query", "schema": {"enum": _forms(operation)}}
        elif name == "offset" and "cursor" in operation.query:  # of a stream
            yield {"name": name, "in": "query", "schema": STREAM_OFFSET}
        elif name in PAGE_OF_SETS and operation.query in (query.LISTED_SETS, query.STATUS):
            yield {"name": name, "in": "query", "schema": PAGE_OF_SETS[name]}
        elif name != "access_token" or operation.who != "reader":
            yield _parameter(name, "query")
    for name in operation.headers:
        yield _parameter(name, "header")


def _forms(operation: Operation) -> list[str]:
    """What `?format=` may ask for: the forms in which this address answers."""
    offered = [form for form in LIST_FORMS if form.media_type in operation.answers[200]]
    return [form.name for form in offered or DOCUMENT_FORMS]


def _parameter(name: str, where: str) -> Json:
    found: Json = {"name": name, "in": where, "schema": PARAMETERS[name]}
    return found | ({"example": EXAMPLES[name]} if name in EXAMPLES else {})


def errors_of(operation: Operation, path: str, method: str) -> list[int]:
    """Every error that an operation may answer."""
    is_stored = method not in ("GET", "HEAD") and operation.who in ("publish", "admin")
    found = {*operation.errors}
    if "/health/live" not in path:
        found.add(503)
    if operation.who != "everybody":
        found |= {400, 401, 403, 429}
    if is_stored:
        found |= {409, 507} if operation.body else {507}
    if "{" in path:
        found.add(404)
    if operation.body:
        found |= {400, 413}
    if len(operation.body) > 1:
        found.add(415)
    if operation.query or operation.headers or "{" in path:
        found.add(400)
    return sorted(found)


def _answer(status: int, content: Content) -> Json:
    found: Json = {"description": MEANINGS[status]}
    if content:
        found["content"] = {kind: {"schema": schema} for kind, schema in content.items()}
    return found


def _error(status: int, path: str) -> Json:
    """A problem document; at the WebSub hub, a sentence."""
    found: Json = {"description": MEANINGS[status]}
    content: Json = {PROBLEM: {"schema": ref("Problem"), "example": _problem(status)}}
    found["content"] = {TEXT: {"schema": {"type": "string"}}} if path == "/hub" else content
    if status in RETRY_AFTER:
        seconds = {"description": "Seconds to wait", "schema": {"type": "integer", "minimum": 0}}
        found["headers"] = {"Retry-After": {"required": True, **seconds}}
    return found


def _problem(status: int) -> Json:
    return {"type": "about:blank", "status": status, "detail": MEANINGS[status]}


def _example(kind: str, operation: Operation) -> Json:
    found: Json = {"schema": operation.body[kind]}
    return found | ({"example": operation.examples[kind]} if kind in operation.examples else {})


JSON_PATH, PAGE_PATH = "/api/openapi.json", "/api"


class Description:
    """What these routes serve, these two included; made when it is first asked for."""

    def __init__(self, routes: Routes, *, has_scripts: bool = True) -> None:
        self._scripts = TRIED if has_scripts else ()
        self.routes = [Route(JSON_PATH, self.document), Route(PAGE_PATH, self.page)]
        self._all = [*routes, *self.routes]

    async def document(self, request: Request) -> Response:  # noqa: ARG002
        """This description."""
        return Response(self._json, media_type="application/json")

    async def page(self, request: Request) -> Response:  # noqa: ARG002
        """This description for people."""
        return HTMLResponse(self._html, headers=HEADERS)

    @cached_property
    def _json(self) -> bytes:
        return msgspec.json.encode(described(self._all))

    @cached_property
    def _html(self) -> str:
        return page_of(described(self._all), self._scripts)
