"""The body of a load: received, read beside the event loop, and staged while more of it comes."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar

from starlette.requests import Request

from rsnotify.errors import Rejected
from rsnotify.loops import end
from rsnotify.publishing.loads.load_parts import Gathered
from rsnotify.publishing.loads.load_reader import PIECE_BYTES, LoadReader
from rsnotify.publishing.loads.load_store import Load, Loads

LOAD_SECONDS = 3600.0  # for a body to come

Source = TypeVar("Source")
Result = TypeVar("Result")


class BesideTheLoop:
    """Reads bodies in a thread, one piece of all loads at a time: each thread more that is busy
    makes the event loop wait longer for the interpreter."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def do(self, read: Callable[[Source], Result], source: Source) -> Result:
        async with self._turn:
            return await asyncio.to_thread(read, source)

    async def each(self, found: Iterator[Result]) -> AsyncIterator[Result]:
        """What an iterator finds, one by one."""
        while (one := await self.do(_next, found)) is not None:
            yield one


def _next(found: Iterator[Result]) -> Result | None:
    """The next; None after the last."""
    return next(found, None)


class LoadBodies:
    """The bodies of all loads that this process receives."""

    def __init__(self, loads: Loads) -> None:
        self._loads = loads
        self._beside = BesideTheLoop()

    async def stage(self, request: Request, load: Load, reader: LoadReader) -> str:
        """Stage the whole body; its fingerprint."""
        digest = _digest(request)
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                await self._stage_all(load, self._read(request.stream(), reader, digest))
        except TimeoutError:
            detail = f"the body did not come within {LOAD_SECONDS:.0f} s"
            raise Rejected(detail, status=408) from None
        return str(digest.hexdigest())

    async def _stage_all(self, load: Load, gathered: AsyncIterator[Gathered]) -> None:
        """Stage what is gathered while more is read."""
        staging = asyncio.create_task(self._stage_gathered(load, Gathered()))
        try:
            async for each in gathered:
                await staging
                staging = asyncio.create_task(self._stage_gathered(load, each))
            await staging
        finally:
            await end([staging])

    async def _stage_gathered(self, load: Load, gathered: Gathered) -> None:
        async for part in self._beside.each(gathered.parts()):
            await self._loads.stage(load, part)

    async def _read(
        self, parts: AsyncIterator[bytes], reader: LoadReader, digest: Any
    ) -> AsyncIterator[Gathered]:
        """What is in the body."""
        gathered = Gathered()
        async for part in in_pieces(parts):
            digest.update(part)
            async for ready in self._beside.each(reader.feed(part)):
                gathered.add(ready)
                if gathered.is_full:
                    yield gathered
                    gathered = Gathered()
        gathered.add(await self._beside.do(LoadReader.close, reader))
        yield gathered


async def in_pieces(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in pieces worth a turn of the thread, however small a peer cuts them: a
    resource that is not complete is looked through again with each piece."""
    held = bytearray()
    async for part in parts:
        held += part
        if len(held) >= PIECE_BYTES:
            yield bytes(held)
            held.clear()
    yield bytes(held)


def _digest(request: Request) -> Any:
    """Of the options and the body as it comes."""
    return hashlib.blake2b(request.url.query.encode(), digest_size=12)


async def check_same(request: Request, key: str, fingerprint: str) -> None:
    """The key belongs to one body, sent with the same options."""
    digest = _digest(request)
    async for part in request.stream():
        digest.update(part)
    if digest.hexdigest() != fingerprint:
        raise Rejected(
            f"Idempotency-Key {key!r} was used for another load; send it under a new key",
            status=409,
        )
