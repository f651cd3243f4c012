"""The head of an HTTP request: how long it is, whether all who read it understand the same."""

from rsnotify.http.response_head import Headers


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
