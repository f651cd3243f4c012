"""What a browser is shown where a document or an error would be: a page, at the same address.

Everybody else gets what they always got. Crawlers name HTML too, as browsers do, and read Resource
Lists as sitemaps; so a wish for HTML counts only where nothing else is accepted, or where the
request says `Upgrade-Insecure-Requests`: browsers do when a person opens an address. Caches learn
that from `Vary`. The page has nothing of the document: its script asks for it as anybody would, so
whoever may not read it gets the same page.
"""

from html import escape

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rsnotify.http.endpoints import Route, Routes
from rsnotify.resourcesync.notification import CHANNELS_PATH
from rsnotify.web.frame import HEADERS, framed, template
from rsnotify.web.page import HTML, prefers_html, qualities_of

VARY = ("accept", "upgrade-insecure-requests")
KEPT = ("allow", "link", "retry-after", "www-authenticate")  # of an error
LEFT_OUT = (b"accept", b"if-none-match", b"if-modified-since", b"range")
NO_DOCUMENTS = ("/robots.txt", CHANNELS_PATH)
PROBLEM, XML = "application/problem+json", "application/xml"
TITLES = {404: "There is nothing here", 410: "This is no longer kept"}


class ForBrowsers:
    """Puts pages in front of what is read by GET."""

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on

    def opened(self, routes: Routes) -> Routes:
        """The same routes; those of XML documents are pages for browsers."""
        for route in routes:
            if not isinstance(route, Route) or route.path in NO_DOCUMENTS:
                continue
            if "GET" in route.methods:
                route.app = self.around(route.app, scripts=("token.js", "document.js"))
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
    if kind == XML and status == 200:
        return _page(scope, 200, "Document", "", Headers(), scripts)

    async def repeat(_: Scope, __: Receive, send: Send) -> None:
        await send(found.start)
        await send({"type": "http.response.body", "body": found.body})

    return repeat


def _page(
    scope: Scope,
    status: int,
    title: str,
    detail: str,
    headers: Headers,
    scripts: tuple[str, ...],
) -> ASGIApp:
    depth = scope.get("raw_path", scope["path"].encode()).partition(b"?")[0].count(b"/") - 1
    root = "../" * depth or "./"
    main = template("document.html").replace("{heading}", escape(title))
    page = framed(title, main.replace("{problem}", escape(detail)), "", scripts, root)
    kept = {name: headers[name] for name in KEPT if name in headers}
    vary = ", ".join((*VARY, "accept-encoding", "authorization"))
    return HTMLResponse(page, status, HEADERS | kept | {"vary": vary})


def _detail(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body)["detail"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""


def _varying(send: Send) -> Send:
    async def tell(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            known = headers.get("vary", "").lower()
            for name in VARY:
                if name not in known.split(", "):
                    headers.add_vary_header(name)
        await send(message)

    return tell
