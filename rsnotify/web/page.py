"""The page for people at `/`, and the files that it is made of.

`Accept` decides who gets it: those who name HTML, as browsers do. Everybody else is sent to the
Source Description, where machines begin. The files are read once; no other file can be asked for.
The JavaScript client is among them, for the page and for pages that copy its examples.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from gzip import compress
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path, PurePath

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from rsnotify.errors import Rejected
from rsnotify.resourcesync.forms import accepts_gzip
from rsnotify.resourcesync.notification import SOURCE_DESCRIPTION
from rsnotify.web.frame import FRONT_SCRIPTS, HEADERS, STATIC, framed, template

MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
CLONE = Path(__file__).parents[2]
HTML = ("text/html", "application/xhtml+xml")
XML = ("application/xml", "text/xml")
ACCEPT_CHARACTERS = 1024  # that are read of `Accept`; browsers send some hundred


@dataclass(frozen=True)
class File:
    """One file of the page, as it is sent: plain, or compressed for those who take it."""

    content: bytes
    media_type: str
    tag: str

    @cached_property
    def in_gzip(self) -> bytes:
        """Compressed when it is first asked for, so that no start waits for what nobody may ask."""
        return compress(self.content, 9, mtime=0)


class FrontPage:
    """Answers `/` and `/static/`; turned off, it sends everybody to the Source Description,
    and of its files there are those that `/api` needs."""

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on
        self._files = _read_files() if is_on else _read_files(".css", ".svg")
        self._client = _read_client() if is_on else {}
        self._front = _file("index.html", _front())

    async def front(self, request: Request) -> Response:
        if self._is_on and prefers_html(request.headers.get("accept", "")):
            return _sent(request, self._front)
        headers = {"vary": "accept"} if self._is_on else {}
        return RedirectResponse(SOURCE_DESCRIPTION, 302, headers)

    async def file(self, request: Request) -> Response:
        return self._found(request, self._files, request.path_params["file"])

    async def client(self, request: Request) -> Response:
        return self._found(request, self._client, request.url.path.partition("/client/")[2])

    def _found(self, request: Request, among: Mapping[str, File], name: str) -> Response:
        found = among.get(name)
        if found is None:
            raise Rejected(f"there is nothing at {request.url.path}", status=404)
        return _sent(request, found)


def prefers_html(accept: str) -> bool:
    """Whether HTML is named, and no form of XML is preferred to it.

    >>> prefers_html("*/*")
    False
    """
    qualities = qualities_of(accept)
    html = max(qualities.get(name, 0.0) for name in HTML)
    return html > 0 and html >= max(qualities.get(name, 0.0) for name in XML)


def qualities_of(accept: str) -> dict[str, float]:
    return dict(map(_quality, accept.lower()[:ACCEPT_CHARACTERS].split(",")))


def _quality(named: str) -> tuple[str, float]:
    """A media type and its quality, such as `text/xml;q=0.9`; what is malformed counts nothing."""
    name, *parameters = (part.strip() for part in named.split(";"))
    text = next((each[2:] for each in parameters if each.startswith("q=")), "1")
    try:
        return name, float(text)
    except ValueError:
        return name, 0.0


def _front() -> bytes:
    aside, main = template("index.html").split("<main", 1)
    return framed("rsnotify: what changes here", f"<main{main}", aside, FRONT_SCRIPTS).encode()


def _read_files(*kinds: str) -> dict[str, File]:
    """Of these kinds, else all; HTML is what pages are made of."""
    wanted = kinds or (".css", ".js", ".svg")
    found = [each for each in STATIC.iterdir() if each.name.endswith(wanted)]
    return {each.name: _file(each.name, each.read_bytes()) for each in found}


def _read_client() -> dict[str, File]:
    """Of the package that is installed, or of the clone."""
    installed = Path(str(files("rsnotify.web") / "client"))
    folder = installed if installed.is_dir() else CLONE / "clients/javascript"
    found = [folder / "rsnotify.js", *(folder / "lib").glob("*.js")]
    return {
        each.relative_to(folder).as_posix(): _file(each.name, each.read_bytes()) for each in found
    }


def _file(name: str, content: bytes) -> File:
    tag = blake2b(content, digest_size=12).hexdigest()
    return File(content, MEDIA_TYPES[PurePath(name).suffix], f'"{tag}"')


def _sent(request: Request, file: File) -> Response:
    headers = HEADERS | {"etag": f"W/{file.tag}", "vary": "accept, accept-encoding"}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if not accepts_gzip(request.headers.get("accept-encoding")):
        return Response(file.content, headers=headers, media_type=file.media_type)
    headers["content-encoding"] = "gzip"
    return Response(file.in_gzip, headers=headers, media_type=file.media_type)
