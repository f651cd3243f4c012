"""`/api/openapi.json` and `/api`: the description for machines and for people."""

from functools import cached_property

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from rsnotify.http.routing import Route, Routes
from rsnotify.openapi.document import described
from rsnotify.openapi.reference_page import page_of
from rsnotify.web.frame import HEADERS

JSON_PATH, PAGE_PATH = "/api/openapi.json", "/api"


class Description:
    """What these routes serve, these two included; made when it is first asked for."""

    def __init__(self, routes: Routes) -> None:
        self.routes = [Route(JSON_PATH, self.document), Route(PAGE_PATH, self.page)]
        self._all = [*routes, *self.routes]

    async def document(self, request: Request) -> Response:  # noqa: ARG002
        return Response(self._json, media_type="application/json")

    async def page(self, request: Request) -> Response:  # noqa: ARG002
        return HTMLResponse(self._html, headers=HEADERS)

    @cached_property
    def _json(self) -> bytes:
        return msgspec.json.encode(described(self._all))

    @cached_property
    def _html(self) -> str:
        return page_of(described(self._all))
