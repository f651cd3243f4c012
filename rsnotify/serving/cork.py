"""A transport that gathers: what is written within one turn of the loop leaves in one system call.

uvicorn writes the head of an answer and its body apart, and at thousands of answers a second the
second call is what costs. Nothing here knows what is written.
"""

import asyncio
from typing import Any

GATHERED_BYTES = 64 * 1024  # beyond that the transport must see it, or it could not push back


class Corked:
    """Stands in for `bare`, whose other methods it has too."""

    def __init__(self, bare: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.bare = bare
        self._loop = loop
        self._gathered: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bare, name)

    def write(self, data: bytes) -> None:
        if not self._gathered:
            self._loop.call_soon(self.flush)
        self._gathered.append(data)
        self._size += len(data)
        if self._size > GATHERED_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._gathered:
            gathered, self._gathered, self._size = self._gathered, [], 0
            self.bare.write(b"".join(gathered))

    def close(self) -> None:
        self.flush()
        self.bare.close()
