"""The page for people at `/`, and the files that it is made of.

`Accept` decides who gets it: those who name HTML, as browsers do. Everybody else is sent to the
Source Description, where machines begin. The files are read once; no other file can be asked for.
"""

from hashlib import blake2b
from importlib.resources import files
from pathlib import PurePath
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from rsnotify.errors import Rejected
from rsnotify.resourcesync.notification import SOURCE_DESCRIPTION

FRONT = "index.html"
MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
HTML = ("text/html", "application/xhtml+xml")
XML = ("application/xml", "text/xml")
ACCEPT_CHARACTERS = 1024  # that are read of `Accept`; browsers send some hundred

# Scripts, styles and connections of the hub itself only, none of them inline.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "vary": "accept",
}


class File(NamedTuple):
    """One file of the page, as it is sent."""

    content: bytes
    media_type: str
    tag: str


class FrontPage:
    """Answers `/` and `/static/`; turned off, it sends everybody to the Source Description."""

    def __init__(self, *, is_on: bool) -> None:
        self._files = _read_files() if is_on else {}

    async def front(self, request: Request) -> Response:
        if self._files and prefers_html(request.headers.get("accept", "")):
            return _sent(request, self._files[FRONT])
        headers = {"vary": "accept"} if self._files else {}
        return RedirectResponse(SOURCE_DESCRIPTION, 302, headers)

    async def file(self, request: Request) -> Response:
        found = self._files.get(request.path_params["file"])
        if found is None:
            raise Rejected(f"there is nothing at {request.url.path}", status=404)
        return _sent(request, found)


def prefers_html(accept: str) -> bool:
    """Whether HTML is named, and no form of XML is preferred to it.

    >>> prefers_html("*/*")
    False
    """
    qualities = dict(map(_quality, accept.lower()[:ACCEPT_CHARACTERS].split(",")))
    html = max(qualities.get(name, 0.0) for name in HTML)
    return html > 0 and html >= max(qualities.get(name, 0.0) for name in XML)


def _quality(named: str) -> tuple[str, float]:
    """A media type and its quality, such as `text/xml;q=0.9`; what is malformed counts nothing."""
    name, *parameters = (part.strip() for part in named.split(";"))
    text = next((each[2:] for each in parameters if each.startswith("q=")), "1")
    try:
        return name, float(text)
    except ValueError:
        return name, 0.0


def _read_files() -> dict[str, File]:
    folder = files("rsnotify.web") / "static"
    return {each.name: _file(each.name, each.read_bytes()) for each in folder.iterdir()}


def _file(name: str, content: bytes) -> File:
    tag = blake2b(content, digest_size=12).hexdigest()
    return File(content, MEDIA_TYPES[PurePath(name).suffix], f'"{tag}"')


def _sent(request: Request, file: File) -> Response:
    headers = HEADERS | {"etag": file.tag}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)
