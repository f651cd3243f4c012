"""Which endpoint answers, and what becomes of an error in it."""

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message
from starlette.websockets import WebSocket

from rsnotify.errors import Rejected
from rsnotify.http.endpoints import ONCE, Application, RequestHeaders, Route, WebSocketRoute


async def tell(request: Request) -> Response:
    return Response(repr((request.method, request.path_params)).encode())


async def refuse(request: Request) -> Response:
    raise Rejected("not today", status=409, headers={"X-Why": "rain"})


async def fail(request: Request) -> Response:
    raise ValueError("a bug")


async def close(websocket: WebSocket) -> None:
    raise Rejected("not you", status=403)


APP = Application(
    [
        Route("/sets/{set}", tell, methods=["PUT"]),
        Route("/sets/{set}", tell),
        Route("/sets/{set}/list.xml", tell),
        Route("/refused", refuse),
        Route("/broken", fail),
        WebSocketRoute("/channels/{set}", close),
    ]
)


Sent = list[tuple[bytes, bytes]]


async def ask(
    method: str, path: str, type_: str = "http", sent_headers: Sent | None = None
) -> tuple[int, dict[bytes, bytes], bytes]:
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    async def send(message: Message) -> None:
        sent.append(message)

    headers = sent_headers or []
    scope = {"type": type_, "method": method, "path": path, "headers": headers, "query_string": b""}
    await APP(scope, receive, send)
    start, *parts = sent
    body = b"".join(part["body"] for part in parts)
    return start["status"], dict(start["headers"]), body


@pytest.mark.parametrize(
    ("method", "path", "found"),
    [
        ("GET", "/sets/a", "('GET', {'set': 'a'})"),
        ("HEAD", "/sets/a", "('HEAD', {'set': 'a'})"),
        ("PUT", "/sets/a", "('PUT', {'set': 'a'})"),
        ("GET", "/sets/a b/list.xml", "('GET', {'set': 'a b'})"),
    ],
)
async def test_the_first_route_with_path_and_method_answers(method, path, found):
    assert await ask(method, path) == (
        200,
        {b"content-length": str(len(found)).encode()},
        found.encode(),
    )


@pytest.mark.parametrize(
    "path",
    [
        "/sets/",
        "/sets/a/",
        "/sets/a/b",
        "/sets/a\n/x",
        "/sets/a/listxxml",
        "/sets/a/list.xml\n",
        "",
    ],
)
async def test_nothing_else_is_there(path):
    status, _, body = await ask("GET", path)
    assert (status, msgspec.json.decode(body)["detail"]) == (404, f"there is nothing at {path}")


async def test_what_is_allowed_at_a_path_is_told():
    status, headers, body = await ask("DELETE", "/sets/a")
    assert (status, headers[b"allow"]) == (405, b"GET, HEAD, PUT")
    assert "use GET, HEAD, PUT" in msgspec.json.decode(body)["detail"]


async def test_an_error_is_answered_with_its_status_and_headers():
    status, headers, body = await ask("GET", "/refused")
    assert (status, headers[b"x-why"]) == (409, b"rain")
    assert msgspec.json.decode(body)["detail"] == "not today"


async def test_a_bug_is_answered_without_its_text(caplog):
    status, _, body = await ask("GET", "/broken")
    assert status == 500
    assert b"a bug" not in body
    assert "internal error while serving /broken" in caplog.text


@pytest.mark.parametrize(("path", "status"), [("/channels/a", 403), ("/sets/a", 404)])
async def test_a_websocket_is_refused_before_it_is_open(path, status):
    assert (await ask("GET", path, "websocket"))[0] == status


@pytest.mark.parametrize("path", ["/channels/a", "/sets/a", "/refused"])
async def test_no_method_of_a_request_makes_it_a_handshake(path):
    """A method may be any word, and some servers hand each of them on."""
    expected = await ask("BREW", path)
    status, _, body = await ask("websocket", path)
    assert (status, body) == (expected[0], expected[2].replace(b"BREW", b"websocket"))


@pytest.mark.parametrize("name", ["accept", "Accept", "ACCEPT"])
def test_a_header_is_found_however_its_name_is_written(name):
    headers = RequestHeaders({"headers": [(b"accept", b"caf\xe9")]})
    assert (headers.get(name), headers[name]) == ("caf\xe9", "caf\xe9")
    assert (headers.get("other"), headers.get("other", "c")) == (None, "c")


def test_the_lines_of_a_list_are_one_list():
    sent = [(b"cookie", b"a=1"), (b"accept", b"a"), (b"accept", b"b"), (b"cookie", b"b=2")]
    headers = RequestHeaders({"headers": sent})
    assert (headers["accept"], headers.get("cookie")) == ("a, b", "a=1; b=2")


@pytest.mark.parametrize(("path", "type_"), [("/channels/a", "websocket"), ("/sets/a", "http")])
@pytest.mark.parametrize("name", ONCE)
async def test_a_header_that_has_one_value_is_refused_if_it_is_sent_twice(name, path, type_):
    sent = [(name.encode(), b"a"), (b"accept", b"b"), (name.encode(), b"a")]
    status, _, body = await ask("GET", path, type_, sent)
    detail = f"the header {name.title()} is sent 2 times: send it once"
    assert (status, msgspec.json.decode(body)["detail"]) == (400, detail)
