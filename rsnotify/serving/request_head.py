"""The head of an HTTP request: how long it is, whether all who read it understand the same."""

from rsnotify.serving.response_head import Headers


def is_unambiguous(version: str, headers: Headers) -> bool:
    """Whether each proxy on the way has read the same host and body (RFC 9112, 3.2 and 6)."""
    names = [name for name, _ in headers]
    hosts, encodings = names.count(b"host"), names.count(b"transfer-encoding")
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        return False
    if not encodings:
        return True
    chunked = (b"transfer-encoding", b"chunked")
    is_chunked = any((name, value.lower()) == chunked for name, value in headers)
    return encodings == 1 and version == "1.1" and is_chunked


def head_length(url: bytes, headers: Headers) -> int:
    """The length of a head, as far as it has been read."""
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


def render_request(url: bytes, headers: Headers) -> bytes:
    lines = [b"GET %b HTTP/1.1" % url, *(b"%b: %b" % header for header in headers), b"", b""]
    return b"\r\n".join(lines)
