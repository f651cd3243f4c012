"""A posted body: read to its end, never more than allowed, and unpacked if it is gzip."""

import zlib

from starlette.requests import ClientDisconnect, Request

from rsnotify.errors import Rejected

GZIP = 16 + zlib.MAX_WBITS
KNOWN = ("gzip", "x-gzip")


def decoded(body: bytes, encoding: str, most: int) -> bytes:
    """The content of a body with this `Content-Encoding`; it is never longer than `most`."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return body
    if name not in KNOWN:
        refused = f"Content-Encoding {name[:40]!r} is not understood; send gzip, or plain"
        raise Rejected(refused, status=415, headers={"accept-encoding": "gzip"})
    return _unzipped(body, most)


def _unzipped(body: bytes, most: int) -> bytes:
    unpacker = zlib.decompressobj(GZIP)
    try:
        content = unpacker.decompress(body, most + 1)
    except zlib.error:
        raise Rejected("the body is not gzip, as its Content-Encoding says") from None
    if len(content) > most:
        raise Rejected(f"unpacked, the body exceeds {most} bytes; post it in parts", status=413)
    if not unpacker.eof or unpacker.unused_data:
        raise Rejected("the gzip of the body is cut off, or something follows it: send one whole")
    return content


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body; refused as soon as it is known to be too long."""
    if int(request.headers.get("content-length", 0)) > limit:
        raise _too_large(limit)
    parts, size, is_last = [], 0, False
    while not is_last:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part, is_last = message["body"], not message["more_body"]
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def _too_large(limit: int) -> Rejected:
    return Rejected(f"the body exceeds {limit} bytes; post the changes in parts", status=413)
