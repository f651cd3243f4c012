"""The heads of requests and responses, as bytes."""

from collections.abc import Iterable
from http import HTTPStatus

from starlette.types import Message

Headers = Iterable[tuple[bytes, bytes]]


def render_head(status: int, headers: Headers) -> bytes:
    """The head of a response. A line break in a header is an error, never sent."""
    lines = [STATUS_LINES[status], *map(b": ".join, headers)]
    head = b"\r\n".join(lines)
    ends = len(lines) - 1
    if head.count(b"\n") != ends or head.count(b"\r") != ends or b"\0" in head:
        raise RuntimeError("a header of the response contains a line break")
    return head + b"\r\n\r\n"


def plain_head(status: int, body: bytes) -> Message:
    """The start of a plain-text response, the last one of its connection."""
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    return {"type": "http.response.start", "status": status, "headers": headers}


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


STATUS_LINES = {
    status: f"HTTP/1.1 {status} {_phrase(status)}".encode() for status in range(200, 600)
}


def is_unambiguous(version: str, headers: Headers) -> bool:
    """Whether each proxy on the way has read the same host and body (RFC 9112, 3.2 and 6)."""
    hosts = encodings = 0
    encoding = b""
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding":
            encodings, encoding = encodings + 1, value.lower()
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        return False
    return encodings == 0 or (encodings == 1 and encoding == b"chunked" and version == "1.1")


def head_length(url: bytes, headers: Headers) -> int:
    """The length of a head, as far as it has been read."""
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


def render_request(url: bytes, headers: Headers) -> bytes:
    lines = [b"GET %b HTTP/1.1" % url, *(b"%b: %b" % header for header in headers), b"", b""]
    return b"\r\n".join(lines)
