"""An answer in JSON: its body and its headers are bytes from the beginning."""

import msgspec
from starlette.responses import Response


class JsonResponse(Response):
    """Its headers are made here: nothing of them has to be found out."""

    def __init__(
        self, content: object, status: int = 200, media_type: bytes = b"application/json"
    ) -> None:
        self.status_code = status
        self.background = None
        self.body = msgspec.json.encode(content)
        self.raw_headers = [
            (b"content-length", b"%d" % len(self.body)),
            (b"content-type", media_type),
        ]
