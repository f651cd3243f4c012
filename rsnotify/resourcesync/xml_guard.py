"""What is refused of an XML document before it is parsed.

Only UTF-8 is accepted, and the parser is set so: it sees the same bytes that are checked here.
Each cap stops documents that cost far more time or memory to parse than to send.
"""

import re
from typing import Any

from rsnotify.errors import Rejected

TAG_BYTES = 8 * 1024  # parsing time grows with the square of a tag's attributes
MARKUP = 1_000_000  # tags, or attributes: each takes up to 500 bytes of memory, but only 7 to send
MARKUP_BYTES = 16  # a larger document may have one tag for so many bytes
ENCODINGS = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})

_ENDLESS_TAG = re.compile(rb"<[^<]{%d}" % TAG_BYTES)
_ATTRIBUTE = re.compile(rb"=\s*[\"']")
_DECLARED = re.compile(rb"(?:\xef\xbb\xbf)?<\?xml\s[^>]*?\sencoding\s*=\s*[\"']([^\"'>]*)")
_MARKS = {
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"<\0\0\0": "UTF-32",
    b"\0\0\0<": "UTF-32",
    b"<\0": "UTF-16",
    b"\0<": "UTF-16",
    b"\x4c\x6f\xa7\x94": "EBCDIC",
}
"""How documents begin in encodings that a parser would detect by itself."""

PARSER_OPTIONS: dict[str, Any] = {
    "encoding": "utf-8",  # whatever a document declares: it has been checked that it is UTF-8
    "resolve_entities": False,
    "no_network": True,
    "load_dtd": False,
    "huge_tree": False,
    "remove_comments": True,
    "remove_pis": True,
}
"""The options of every parser of these documents."""


def check_before_parsing(data: bytes) -> None:
    """Raise `Rejected` with what is wrong and how to correct it."""
    _check_encoding(data)
    if b"<!DOCTYPE" in data:  # it can cost much before it can be refused
        raise Rejected("a DOCTYPE is not accepted: remove it, ResourceSync documents have none")
    if _ENDLESS_TAG.search(data):
        raise Rejected(f"a tag or a text is longer than {TAG_BYTES} bytes: shorten it")
    most = max(MARKUP, len(data) // MARKUP_BYTES)
    _check_number("tags", data.count(b"<"), most)
    _check_number("attributes", sum(1 for _ in _ATTRIBUTE.finditer(data)), most)


def _check_number(what: str, number: int, most: int) -> None:
    if number > most:
        raise Rejected(f"the document has more than {most} {what}: send it in parts", status=413)


def _check_encoding(data: bytes) -> None:
    found = _other_encoding(data)
    if found is not None:
        raise Rejected(
            f"the document is in {found}: send it in UTF-8, no other encoding is accepted"
        )


def _other_encoding(data: bytes) -> str | None:
    """The encoding that the document has or declares, if it is not UTF-8."""
    for mark, name in _MARKS.items():
        if data.startswith(mark):
            return name
    declared = _DECLARED.match(data[:TAG_BYTES])
    if declared is not None and declared[1].decode("latin-1").lower() not in ENCODINGS:
        return repr(declared[1][:40].decode("latin-1"))
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return f"another encoding (byte {error.start} is not UTF-8)"
    return None
