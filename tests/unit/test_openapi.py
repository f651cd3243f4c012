"""The description of the HTTP API says what the code does."""

import json
import re
from html import unescape
from pathlib import Path

import jsonschema
import msgspec
import pytest

from rsnotify import errors
from rsnotify.access.query import CHANNEL, SEVERAL_CHANNELS
from rsnotify.access.sent_token import COOKIE, SUBPROTOCOL
from rsnotify.errors import TryAgain
from rsnotify.http.endpoints import pattern_of
from rsnotify.openapi.document import MEANINGS, Description, described, errors_of, served
from rsnotify.openapi.operations import JSON, OPERATIONS, XML
from rsnotify.openapi.reference import TRIED, page_of
from rsnotify.operation.administration import NewToken
from rsnotify.process.app import build
from rsnotify.process.composition import Composition
from rsnotify.process.settings import Settings
from rsnotify.publishing.bodies import read_submission, read_submissions
from rsnotify.resourcesync.change import CHANGE_TYPES
from rsnotify.resourcesync.change_filter import FILTER
from rsnotify.resourcesync.document_rules import judge_document
from rsnotify.resourcesync.notification import (
    CHANNEL_PATH,
    CHANNELS_PATH,
    FRAMEWORK_STREAM_PATH,
    KINDS,
    RESERVED,
    SET_NAME,
    STREAM_PATH,
    wrong_name,
)
from rsnotify.resourcesync.tables import FRAMEWORK_CHANGES
from rsnotify.sets.options import SetOptions

REFERENCE = Path(__file__).parents[2] / "docs/reference"
OF_HTTP_ITSELF = {405, 414, 431, 500}  # any request may get these


@pytest.fixture(scope="module")
def document() -> dict:
    app = build(Composition(Settings(), "redis://127.0.0.1:1", "token", "http://hub.example"))
    return json.loads(msgspec.json.encode(described(app.routes)))


def each_kind(path: str) -> list[str]:
    return [path.replace("{kind}", kind) for kind in KINDS]


def operations(document: dict) -> list[dict]:
    return [each for methods in document["paths"].values() for each in methods.values()]


def all_errors() -> set[int]:
    return {
        status
        for (method, path), each in OPERATIONS.items()
        for status in errors_of(each, path, method)
    }


def test_each_operation_says_what_it_does(document):
    assert all(len(each["summary"].split()) > 1 for each in operations(document))


def test_all_that_is_served_is_described_and_nothing_else():
    app = build(Composition(Settings(), "redis://127.0.0.1:1", "token", "http://hub.example"))
    found = {(method, route.path) for method, route in served(app.routes)}
    assert found == OPERATIONS.keys()


def test_no_set_can_have_the_name_of_an_address_of_the_hub():
    """Its own address, `/SET`, would be taken."""
    taken = {path.split("/")[1] for _, path in OPERATIONS if not path.startswith("/{set}")}
    assert {name for name in taken if name and wrong_name(name) is None} == set()
    assert wrong_name("favicon.ico") is not None


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *((name, False) for name in sorted(RESERVED)),
        *((name, False) for name in ("Upper", "", ".well-known", "a\n", "hub\n", "a" * 65)),
        *((name, True) for name in ("a", "hubs", "hub-1", "robots-txt", "robots.txt.x", "a" * 64)),
    ],
)
def test_an_address_is_a_sets_if_a_set_can_have_the_name(name, is_one):
    found = pattern_of("/{set}", SET_NAME).fullmatch(f"/{name}")
    assert ((found is not None), wrong_name(name) is None) == (is_one, is_one)


@pytest.mark.parametrize("method", ["get", "head"])
@pytest.mark.parametrize(
    ("changes", "framework", "others"),
    [
        (STREAM_PATH, FRAMEWORK_STREAM_PATH, {"offset", "live", "cursor"}),
        (*each_kind(CHANNEL_PATH), {"format", "from", "since"}),
        (*each_kind(CHANNELS_PATH), {"format", "from", "since", "set"}),
    ],
)
def test_a_framework_channel_is_described_without_a_filter(
    changes, framework, others, method, document
):
    def names(path: str) -> set[str]:
        described = document["paths"][path][method]["parameters"]
        return {each["name"] for each in described if each["in"] == "query"}

    assert names(changes) - names(framework) == {*FILTER}
    assert names(framework) == others


def test_no_address_is_described_for_a_kind_that_is_a_parameter(document):
    assert not [path for path in document["paths"] if "{kind}" in path]


def test_what_has_no_row_is_left_out():
    description = Description([])
    assert described(description.routes)["paths"].keys() == {"/api", "/api/openapi.json"}


def test_each_operation_has_a_name_of_its_own(document):
    names = [each["operationId"] for each in operations(document)]
    assert len(names) == len({*names}) > 50


def test_every_reference_leads_to_a_schema(document):
    names = re.findall(r'"\$ref": ?"#/components/schemas/(\w+)"', json.dumps(document))
    assert {*names} <= document["components"]["schemas"].keys()


def test_every_error_of_an_operation_has_its_line_among_the_status_codes():
    page = (REFERENCE.parent / "errors.md").read_text().partition("## WebSocket")[0]
    known = {int(status) for status in re.findall(r"^\| (\d{3}) \|", page, re.MULTILINE)}
    told = all_errors()
    assert told == known - OF_HTTP_ITSELF
    assert told <= MEANINGS.keys()


def test_the_status_of_every_error_that_may_be_tried_again_is_described():
    found = {
        each.status
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, TryAgain)
    }
    told = all_errors()
    assert found <= told


EXAMPLES = [(key, kind) for key, each in OPERATIONS.items() for kind in each.examples]


@pytest.mark.parametrize(("key", "kind"), EXAMPLES, ids=str)
def test_an_example_fits_its_schema(key, kind, document):
    method, path = key
    content = document["paths"][path][method.lower()]["requestBody"]["content"][kind]
    schema = content["schema"] | {"components": document["components"]}
    jsonschema.validate(content["example"], schema)


READ = {
    "/api/changes": lambda body, kind: read_submissions(body, kind, None),
    "/api/sets/{set}/changes": lambda body, kind: read_submission("change", body, kind, None),
    "/api/sets/{set}/framework": lambda body, kind: read_submission("framework", body, kind, None),
    "/api/sets/{set}": lambda body, _: msgspec.json.decode(body, type=SetOptions),
    "/api/tokens": lambda body, _: msgspec.json.decode(body, type=NewToken),
}


@pytest.mark.parametrize(
    ("key", "kind"), [each for each in EXAMPLES if each[0][1] in READ], ids=str
)
def test_an_example_is_accepted_by_what_judges_requests(key, kind):
    example = OPERATIONS[key].examples[kind]
    body = example.encode() if isinstance(example, str) else json.dumps(example).encode()
    assert kind in (JSON, XML)
    READ[key[1]](body, kind)


WRONG = {
    "an unknown field": {"loc": "http://example.com/a", "change": "updated", "x": 1},
    "another change": {"loc": "http://example.com/a", "change": "moved"},
    "no loc": {"change": "updated"},
    "a loc too long": {"loc": "http://example.com/".ljust(2_049, "a"), "change": "updated"},
    "a length too large": {"loc": "http://example.com/a", "change": "updated", "length": 10**18},
    "nothing": [],
    "a loc that is none": {"loc": "res1", "change": "deleted"},
    "a loc without a host": {"loc": "http:/a", "change": "updated"},
    "a loc with a space": {"loc": "http://example.com/a b", "change": "updated"},
    "a loc with a lone %": {"loc": "http://example.com/%zz", "change": "deleted"},
    "a loc beyond ASCII": {"loc": "http://example.com/\u00fc", "change": "updated"},
    "a loc on this machine": {"loc": "FILE:///srv/a", "change": "created"},
    **{
        f"{name} {value!r}": {"loc": "http://example.com/a", "change": "updated", name: value}
        for name, value in (
            ("lastmod", "yesterday"),
            ("lastmod", "2026-13"),
            ("lastmod", "2026-01-01T00:00:00"),
            ("datetime", "2026-01-01"),
            ("datetime", "0000-01-01T00:00Z"),
            ("hash", "md5:0"),
            ("hash", f"md5:{'a' * 22}"),
            ("hash", f"crc:{'a' * 32}"),
            ("length", -1),
            ("type", "pdf"),
            ("encoding", ""),
            ("encoding", "\x00"),
            ("changefreq", "often"),
            ("capability", "changelist"),
            ("index", "http://example.com/index.xml"),
        )
    },
    **{
        f"a link with {name} {value!r}": {
            "loc": "http://example.com/a",
            "change": "updated",
            "links": [{"rel": "describedby", "href": "http://example.com/b"} | {name: value}],
        }
        for name, value in (
            ("rel", "Described By"),
            ("href", "/b"),
            ("modified", "2026"),
            ("pri", 0),
            ("pri", 1_000_000),
            ("path", "a"),
            ("path", "/a/"),
            ("profile", ""),
        )
    },
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused_does_not_fit_its_schema_either(name, document):
    schema = {"$ref": "#/components/schemas/Changes", "components": document["components"]}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(WRONG[name], schema)
    with pytest.raises(errors.Rejected):
        read_submission("change", json.dumps(WRONG[name]).encode(), JSON, None)


RIGHT = {
    "a deleted one beyond ASCII": {"loc": "http://example.com/\u00fc", "change": "deleted"},
    "a deleted file": {"loc": "file:///srv/a", "change": "deleted"},
    "another scheme": {"loc": "urn:isbn:0451450523", "change": "created"},
    "nothing more": {"loc": "http://example.com/a", "change": "updated", "capability": None},
    "several": [{"loc": "http://[::1]:8080/%C3%BC?a=b#c", "change": "created"}] * 2,
    **{
        f"{name} {value!r}": {"loc": "http://example.com/a", "change": "updated", name: value}
        for name, value in (
            ("lastmod", "2026"),
            ("lastmod", "2026-11"),
            ("lastmod", "2026-11-20"),
            ("lastmod", "2026-11-20T21:34+01:00"),
            ("datetime", "2026-11-20T21:34:00.123456789Z"),
            ("hash", f"md5:{'a' * 32}  sha-256:{'Z' * 43}\nmd5:{'-' * 23}"),
            ("length", 10**18 - 1),
            ("type", 'text/html; charset="utf 8";v=1'),
            ("encoding", "gzip"),
        )
    },
    "links": {
        "loc": "http://example.com/a",
        "change": "updated",
        "links": [
            {"rel": "http://example.com/rel", "href": "http://example.com/\u00fc", "pri": 999_999},
            {"rel": "alternate", "href": "http://example.com/b", "path": "/b", "modified": None},
        ],
    },
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_accepted_fits_its_schema(name, document):
    read_submission("change", json.dumps(RIGHT[name]).encode(), JSON, None)
    schema = {"$ref": "#/components/schemas/Changes", "components": document["components"]}
    jsonschema.validate(RIGHT[name], schema)


@pytest.mark.parametrize(
    ("options", "fits_new", "fits_change"),
    [
        ({"change_notification": "https://example.com/topic"}, False, True),
        ({"change_notification": "wss://example.com/channel"}, True, True),
        (
            {
                "change_notification": "https://example.com/topic",
                "channel_hub": "https://example.com/hub",
            },
            True,
            True,
        ),
        ({"topic": "urn:topic"}, False, False),
        ({"describedby": "about.html"}, False, False),
    ],
)
def test_the_options_of_a_set_are_described_as_they_are_judged(
    options, *, fits_new, fits_change, document
):
    for method, fits in (("put", fits_new), ("patch", fits_change)):
        body = document["paths"]["/api/sets/{set}"][method]["requestBody"]["content"][JSON]
        judge_ = jsonschema.Draft202012Validator(
            body["schema"] | {"components": document["components"]}
        )
        assert judge_.is_valid(options) == fits


def test_a_framework_change_is_described_by_its_table(document):
    schema = {"$ref": "#/components/schemas/FrameworkChanges", "components": document["components"]}
    described_ = jsonschema.Draft202012Validator(schema)
    for capability in (*FRAMEWORK_CHANGES, None):
        for change in CHANGE_TYPES:
            one = {"loc": "http://example.com/a", "change": change, "capability": capability}
            is_allowed = change in FRAMEWORK_CHANGES.get(capability or "", ())
            assert described_.is_valid(one) == is_allowed, one


# For people ------------------------------------------------------------------------------------


def test_the_page_shows_every_operation_and_every_schema(document):
    page = page_of(document)
    for methods in document["paths"].values():
        for method, operation in methods.items():
            assert (f'id="{operation["operationId"]}"' in page) == (method != "head")
    for name in document["components"]["schemas"]:
        assert f'id="{name}"' in page


def test_the_links_of_the_page_lead_to_places_on_it(document):
    page = page_of(document)
    assert {*re.findall(r'href="#(\w+)"', page)} <= {*re.findall(r'id="(\w+)"', page)}


def test_the_contents_lead_to_every_operation_and_every_schema(document):
    contents = page_of(document).partition("<nav class=")[2].partition("</nav>")[0]
    linked = re.findall(r'<li><a href="#(\w+)"', contents)
    operations = [
        operation["operationId"]
        for methods in document["paths"].values()
        for method, operation in methods.items()
        if method != "head"
    ]
    assert sorted(linked) == sorted([*operations, *document["components"]["schemas"]])


def test_every_operation_has_a_tag_that_is_described(document):
    names = [tag["name"] for tag in document["tags"]]
    operations = [each for methods in document["paths"].values() for each in methods.values()]
    used = {name for operation in operations for name in operation["tags"]}
    assert used == {*names}


def test_the_curl_of_several_sets_names_several(document):
    path = "/channels/change_notification_channel"
    assert f'"$RSNOTIFY_URL{path}?set=dataset1&set=dataset2"' in unescape(page_of(document))


def test_the_curl_of_an_operation_says_its_method_its_token_and_its_body(document):
    page = page_of(document)
    assert (
        'curl -X POST "$RSNOTIFY_URL/api/tokens" \\\n  -H "Authorization: Bearer $RSNOTIFY_TOKEN" '
        "\\\n  -H 'Content-Type: application/json' \\\n  --data "
        """'{"sets":["dataset1"],"rights":["publish"],"note":"the repository"}'"""
    ) in unescape(page)
    assert "--data hub.mode=subscribe --data hub.topic=http://hub.example/" in unescape(page)


def test_a_parameter_says_what_it_means_and_where_it_stands(document):
    page = unescape(page_of(document))
    assert "<td>A set (in the query)</td>" in page
    assert "<td>The name of a set (in the path)</td>" in page
    assert "<td>string (in the path)" not in page
    assert "<td>The same request with the same key is done once (a header)</td>" in page


def test_the_page_can_be_had_without_scripts(document):
    assert "<script" not in page_of(document, ())


def test_the_page_has_its_own_scripts_only_and_asks_no_other_host(document):
    page = page_of(document)
    scripts = re.findall(r"<script[^>]*>", page)
    assert scripts == [f'<script type="module" src="./static/{name}">' for name in TRIED]
    assert re.findall(r"<iframe|<style| style=| on\w+=", page) == []
    assert re.findall(r'(?:src|href)="(?!#|\./)', page) == []


def test_what_the_description_holds_is_only_ever_text(document):
    document = json.loads(json.dumps(document))
    document["paths"]["/<script>"] = document["paths"]["/api"]
    document["info"]["description"] = "<script>"
    assert "<script>" not in page_of(document)


# Channels --------------------------------------------------------------------------------------


def test_the_channels_are_described_as_the_code_has_them():
    channels = json.loads((REFERENCE / "asyncapi.json").read_text())
    queries = {
        each["address"]: {*each["bindings"]["ws"]["query"]["properties"]}
        for each in channels["channels"].values()
    }
    assert queries == {
        path.replace("{kind}", kind): {*known} - ({*FILTER} if kind == "framework" else set())
        for path, known in ((CHANNEL_PATH, CHANNEL), (CHANNELS_PATH, SEVERAL_CHANNELS))
        for kind in KINDS
    }
    followed = {each["channel"]["$ref"] for each in channels["operations"].values()}
    assert followed == {f"#/channels/{name}" for name in channels["channels"]}
    schemes = channels["components"]["securitySchemes"]
    assert {each["name"] for each in schemes.values() if "name" in each} == {
        *("access_token", COOKIE, "Sec-WebSocket-Protocol")
    }
    assert SUBPROTOCOL in schemes["subprotocol"]["description"]
    page = (REFERENCE.parent / "errors.md").read_text().partition("## WebSocket")[2]
    codes = {int(code) for code in re.findall(r"^\| (\d{4}) \|", page, re.MULTILINE)}
    assert {int(code) for code in channels["info"]["x-close-codes"]} == codes


def test_the_example_of_a_notification_is_valid():
    channels = json.loads((REFERENCE / "asyncapi.json").read_text())
    (example,) = channels["components"]["messages"]["notification"]["examples"]
    assert judge_document(example["payload"].encode()) == ("change-notification", "1.1", [])
