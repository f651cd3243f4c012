"""The pages for people: the one at `/`, its files, and the one in place of a document or an error.

`Accept` decides who gets the front page: those who name HTML, as browsers do. Everybody else is
sent to the Source Description, where machines begin. The files are read once; no other file can be
asked for. The JavaScript client is among them, for the page and for pages that copy its examples.

At other addresses everybody but browsers gets what they always got. Crawlers name HTML too, and
read Resource Lists as sitemaps; so a wish for HTML counts only where nothing else is accepted, or
where the request says `Upgrade-Insecure-Requests`: browsers do when a person opens an address.
Caches learn that from `Vary`. The page has nothing of the document: its script asks for it as
anybody would, so whoever may not read it gets the same page. The address of a set leads such a
browser to the set's view, and everybody else to its Capability List.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from gzip import compress
from hashlib import blake2b
from html import escape
from importlib.resources import files
from pathlib import Path, PurePath

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rsnotify import __version__
from rsnotify.access.caching import has_tag
from rsnotify.errors import PROBLEM, Rejected, shown
from rsnotify.http.endpoints import Routes
from rsnotify.resourcesync.forms import accepts_gzip, qualities_of
from rsnotify.resourcesync.notification import CHANNELS_PATH, SOURCE_DESCRIPTION

# --- the frame of every page: header, views, footer ----------------------------------------------

STATIC = files("rsnotify.web") / "static"
FRONT_SCRIPTS = ("token.js", "main.js", "palette.js")
DOCUMENT_SCRIPTS = ("token.js", "document.js", "palette.js")

# Scripts, styles and connections of the hub itself only, none of them inline.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "vary": "accept",
}


DEEPEST = 64  # segments of an address from which links lead back to the root, step by step
NAME = re.compile(r"\{(\w+)\}")


def filled(name: str, parts: Mapping[str, str]) -> str:
    """A template with its own names filled in, in one pass: what is filled in stays as it is."""
    text = (STATIC / name).read_text()
    return NAME.sub(lambda found: parts[found[1]], text)


def root_from(path: bytes) -> str:
    """The way from an address to `/`, also below a path of a proxy; from far away, the host's."""
    depth = path.partition(b"?")[0].count(b"/") - 1
    return "../" * depth if 0 < depth <= DEEPEST else "./" if depth <= 0 else "/"


def framed(
    title: str, main: str, aside: str = "", scripts: tuple[str, ...] = (), root: str = "./"
) -> str:
    """The whole page. `title` is text, the rest is HTML; `root` leads from its address to `/`."""
    sources = (f'<script type="module" src="{root}static/{name}"></script>' for name in scripts)
    parts = {
        "title": escape(title),
        "scripts": "\n  ".join(sources),
        "aside": aside,
        "main": main,
        "version": __version__,
        "root": root,
    }
    return filled("frame.html", parts)


# --- the front page ------------------------------------------------------------------------------

FONT = ".woff2"
MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    FONT: "font/woff2",
}
FONT_KEPT = "public, max-age=31536000, immutable"  # another font has another name
CLONE = Path(__file__).parents[2]
HTML = ("text/html", "application/xhtml+xml")
XML = ("application/xml", "text/xml")


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

    def __init__(self, *, is_on: bool, has_oai: bool = False) -> None:
        self._is_on = is_on
        self._files = _read_files() if is_on else _read_files(".css", ".svg", ".txt", FONT)
        self._client = _read_client() if is_on else {}
        self._front = _file("index.html", _front(has_oai=has_oai))

    async def front(self, request: Request) -> Response:
        """The page for people; others are led to the Source Description."""
        if self._is_on and prefers_html(request.headers.get("accept", "")):
            return _sent(request, self._front)
        headers = {"vary": "accept"} if self._is_on else {}
        return RedirectResponse(SOURCE_DESCRIPTION, 302, headers)

    async def file(self, request: Request) -> Response:
        """A file of the page."""
        return self._found(request, self._files, request.path_params["file"])

    async def client(self, request: Request) -> Response:
        """A file of the JavaScript client, which web pages import."""
        return self._found(request, self._client, request.url.path.partition("/client/")[2])

    def _found(self, request: Request, among: Mapping[str, File], name: str) -> Response:
        found = among.get(name)
        if found is None:
            raise Rejected(f"there is nothing at {shown(request.url.path)}", status=404)
        return _sent(request, found)


def prefers_html(accept: str) -> bool:
    """Whether HTML is named, and no form of XML is preferred to it.

    >>> prefers_html("*/*")
    False
    """
    qualities = qualities_of(accept)
    html = max(qualities.get(name, 0.0) for name in HTML)
    return html > 0 and html >= max(qualities.get(name, 0.0) for name in XML)


def _front(*, has_oai: bool) -> bytes:
    said = {"oai": "on" if has_oai else "off"}
    aside, main = filled("index.html", said).split("<main", 1)
    return framed("rsnotify: what changes here", f"<main{main}", aside, FRONT_SCRIPTS).encode()


def _read_files(*kinds: str) -> dict[str, File]:
    """Of these kinds, else all; HTML is what pages are made of."""
    wanted = kinds or (".css", ".js", ".svg", ".txt", FONT)
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
    if has_tag(request.headers.get("if-none-match"), file.tag):
        return Response(status_code=304, headers=headers)
    is_font = file.media_type == MEDIA_TYPES[FONT]  # it is compressed by itself
    if is_font:
        headers["cache-control"] = FONT_KEPT
    if is_font or not accepts_gzip(request.headers.get("accept-encoding")):
        return Response(file.content, headers=headers, media_type=file.media_type)
    headers["content-encoding"] = "gzip"
    return Response(file.in_gzip, headers=headers, media_type=file.media_type)


# --- in place of a document or an error ----------------------------------------------------------

VARY = ("accept", "upgrade-insecure-requests")
PAGE_VARY = ", ".join((*VARY, "accept-encoding", "authorization"))
KEPT = ("allow", "link", "retry-after", "www-authenticate")  # of an error
LEFT_OUT = (b"accept", b"if-none-match", b"if-modified-since", b"range")
NO_DOCUMENTS = ("/robots.txt", CHANNELS_PATH)
DOCUMENT = XML[0]
TITLES = {404: "Not found", 410: "This is no longer kept"}


class ForBrowsers:
    """Puts pages in front of what is read by GET."""

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on

    def opened(self, routes: Routes) -> Routes:
        """The same routes; those of XML documents are pages for browsers."""
        for route in routes:
            if "GET" in route.methods and route.path not in NO_DOCUMENTS:
                route.app = self.around(route.app, scripts=DOCUMENT_SCRIPTS)
        return routes

    def around(self, app: ASGIApp, scripts: tuple[str, ...] = ()) -> ASGIApp:
        """The same application; its documents and errors are pages for browsers."""
        if not self._is_on:
            return app

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["method"] in ("GET", "HEAD") and is_opened(Headers(scope=scope), scope):
                found = _Found()
                await app(_as_for_a_crawler(scope), receive, found.take)
                await _answer(found, scope, scripts)(scope, receive, send)
            else:
                await app(scope, receive, _varying(send))

        return answer


def is_opened(headers: Headers, scope: Scope) -> bool:
    """Whether a person opens this address, and has not asked for a form of it.

    >>> is_opened(Headers({"accept": "text/html"}), {"query_string": b""})
    True
    """
    accept = headers.get("accept", "")
    if b"format=" in scope["query_string"] or not prefers_html(accept):
        return False
    others = {name for name, quality in qualities_of(accept).items() if quality > 0}
    return headers.get("upgrade-insecure-requests") == "1" or others <= set(HTML)


class _Found:
    """What an application answers."""

    def __init__(self) -> None:
        self.start: Message = {}
        self.body = b""

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.start = message
        else:
            self.body += message.get("body", b"")

    @property
    def headers(self) -> Headers:
        return Headers(raw=list(self.start["headers"]))


def _as_for_a_crawler(scope: Scope) -> Scope:
    """The same request for the head of the XML: nothing is made, and all rights are checked."""
    headers = [each for each in scope["headers"] if each[0] not in LEFT_OUT]
    return {**scope, "method": "HEAD", "headers": headers}


def _answer(found: _Found, scope: Scope, scripts: tuple[str, ...]) -> ASGIApp:
    kind = found.headers.get("content-type", "").partition(";")[0]
    status = found.start["status"]
    if kind == PROBLEM:
        title, detail = TITLES.get(status, "This cannot be shown"), _detail(found.body)
        return _page(scope, status, title, detail, found.headers, scripts)
    if status == 302:  # from a set to its documents
        return _view(scope)
    if kind == DOCUMENT and status == 200:
        return _page(scope, 200, "Document", "", Headers(), scripts)

    async def repeat(_: Scope, __: Receive, send: Send) -> None:
        await send(found.start)
        await send({"type": "http.response.body", "body": found.body})

    return repeat


def _view(scope: Scope) -> ASGIApp:
    """On to the set's view, from an address beside the front page."""
    address = f"./?set={scope['path_params']['set']}"
    return RedirectResponse(address, 302, {"vary": PAGE_VARY})


def _page(
    scope: Scope,
    status: int,
    title: str,
    detail: str,
    headers: Headers,
    scripts: tuple[str, ...],
) -> ASGIApp:
    root = root_from(scope.get("raw_path", scope["path"].encode()))
    main = filled("document.html", {"heading": escape(title), "problem": escape(detail)})
    page = framed(title, main, "", scripts, root)
    kept = {name: headers[name] for name in KEPT if name in headers}
    return HTMLResponse(page, status, HEADERS | kept | {"vary": PAGE_VARY})


def _detail(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body)["detail"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""


def _varying(send: Send) -> Send:
    async def send_varying(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            known = headers.get("vary", "").lower()
            for name in VARY:
                if name not in known.split(", "):
                    headers.add_vary_header(name)
        await send(message)

    return send_varying
