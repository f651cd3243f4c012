"""The endpoints for the whole state of a set: Sources load it, auditors ask about it.

Rules that hold here: nothing of a body is read before its sender is known to be allowed; a body is
read in pieces, beside the event loop, so that nobody waits for it; nothing of it is visible until
all of it was read and judged.
"""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from html import unescape
from typing import Any, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from rsnotify.access.access import Access
from rsnotify.access.query import RESOURCES, parse_query, single
from rsnotify.coordination.keys import STATE_SHARDS
from rsnotify.documents.documents import described
from rsnotify.errors import Rejected, TryAgain
from rsnotify.http.endpoints import JsonResponse
from rsnotify.journal.submission import fragment_of
from rsnotify.live.journals import Journals
from rsnotify.loops import end
from rsnotify.publishing.bodies import KEY
from rsnotify.publishing.loads.load import (
    NAMED,
    Difference,
    LoadCounts,
    LoadOptions,
    check_deletions,
    moment_of,
    read_options,
    too_many_deleted,
)
from rsnotify.publishing.loads.load_chores import LoadKeeper, LoadOutcome, outcome
from rsnotify.publishing.loads.load_formats import (
    LOAD_LIMITS,
    PIECE_BYTES,
    LoadLimits,
    LoadReader,
)
from rsnotify.publishing.loads.load_store import GATHERED_RESOURCES, Gathered, Load, Loads
from rsnotify.publishing.loads.moment import Published, TakenBack
from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.notification import ChannelName

LOAD_SECONDS = 3600.0  # for a body to come

Source = TypeVar("Source")
Result = TypeVar("Result")
ANSWER_SECONDS = 20.0  # that a request waits once it is decided
AGAIN_SECONDS = 5  # asked of a Source that comes while another load is under way


class BesideTheLoop:
    """Reads bodies in one thread, which an XML document needs (`DocumentStream`), a piece of all
    loads at a time: each thread more that is busy makes the event loop wait longer for the
    interpreter."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "loads")

    async def do(self, read: Callable[[Source], Result], source: Source) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, read, source)

    async def each(self, found: Iterator[Result]) -> AsyncIterator[Result]:
        """What an iterator finds, one by one."""
        while (one := await self.do(_next, found)) is not None:
            yield one


def _next(found: Iterator[Result]) -> Result | None:
    """The next one; None after the last."""
    return next(found, None)


class Reception(NamedTuple):
    """How bodies are received."""

    seconds: float = LOAD_SECONDS
    piece_bytes: int = PIECE_BYTES
    gathered_resources: int = GATHERED_RESOURCES  # that are staged together


RECEPTION = Reception()


class LoadBodies:
    """Receives the bodies of all loads."""

    def __init__(self, loads: Loads, reception: Reception) -> None:
        self._loads = loads
        self._reception = reception
        self._beside = BesideTheLoop()

    async def stage(self, request: Request, load: Load, reader: LoadReader) -> str:
        """Stage the whole body; returns its fingerprint."""
        digest = _digest(request)
        try:
            async with asyncio.timeout(self._reception.seconds):
                await self._stage_all(load, self._read(request.stream(), reader, digest))
        except TimeoutError:
            detail = f"the body did not come within {self._reception.seconds:.0f} s"
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
        most = self._reception.gathered_resources
        gathered = Gathered(most_resources=most)
        async for part in in_pieces(parts, self._reception.piece_bytes):
            digest.update(part)
            async for ready in self._beside.each(reader.feed(part)):
                gathered.add(ready)
                if gathered.is_full:
                    yield gathered
                    gathered = Gathered(most_resources=most)
        gathered.add(await self._beside.do(LoadReader.close, reader))
        yield gathered


async def in_pieces(
    parts: AsyncIterator[bytes], piece_bytes: int = PIECE_BYTES
) -> AsyncIterator[bytes]:
    """The same bytes in pieces worth a turn of the thread, however small a peer cuts them: a
    resource that is not complete is looked through again with each piece."""
    held = bytearray()
    async for part in parts:
        held += part
        if len(held) >= piece_bytes:
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


UNDER_WAY = "a load of {!r} is under way; ask again when it is done"


class Resources:
    """The endpoints for the resources of a set."""

    def __init__(
        self,
        journals: Journals,
        access: Access,
        loads: Loads,
        keeper: LoadKeeper,
        judged: Callable[[TryAgain], Exception] = lambda error: error,
        *,
        limits: LoadLimits = LOAD_LIMITS,
        reception: Reception = RECEPTION,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._judged = judged
        self._journals = journals
        self._access = access
        self._loads = loads
        self._keeper = keeper
        self._bodies = LoadBodies(loads, reception)
        self._limits, self._answer_seconds = limits, answer_seconds

    # --- GET -----------------------------------------------------------------------------------

    async def show(self, request: Request) -> Response:
        """What is known of one resource; without `loc`, how many there are and what is loaded."""
        name = request.path_params["set"]
        await self._require_right(request, name)
        loc = single(parse_query(request.scope["query_string"], RESOURCES), "loc")
        return JsonResponse(await (self._all(name) if loc is None else self._one(name, loc)))

    async def _require_right(self, request: Request, name: str) -> None:
        """A reader; how far a load is may be asked by those who may send one."""
        record = self._journals.sets.get(name)
        if "loc" in request.query_params:
            await self._access.require_reader(request, name, record)
        else:
            await self._access.require_aware(request, name, record)

    async def _all(self, name: str) -> dict[str, Any]:
        load = await self._loads.current(name)
        return {
            "set": name,
            "resources": await self._loads.count(name),
            "position": str((await self._loads.standing(name)).position),
            "load": load and outcome(load, load.stage),
            "last_load": await self._loads.last_outcome(name),
        }

    async def _one(self, name: str, loc: str) -> dict[str, Any]:
        escaped = fragment_of(Change(loc, "deleted")).loc
        kept = await self._loads.known(name, escaped)
        if kept is None:
            detail = f"{loc[:200]!r} is no resource of {name!r}: never known, or deleted"
            raise Rejected(detail, status=404)
        return described(escaped, kept)

    # --- PUT -----------------------------------------------------------------------------------

    async def load(self, request: Request) -> Response:
        """Load the whole state of a set."""
        name = request.path_params["set"]
        await self._access.require_publisher(request, name)
        await self._journals.learn_of(name)
        self._journals.feed(ChannelName(name, "change"))
        options = read_options(request.scope["query_string"])
        key = _key(request)
        try:
            repeated = await self._repeated(request, name, key) if key else None
            return repeated or await self._load(request, name, options, key)
        except TryAgain as error:
            raise self._judged(error) from error.__cause__

    async def _repeated(self, request: Request, name: str, key: str) -> Response | None:
        """What became, or becomes, of the load that had this key before."""
        load = await self._loads.current(name)  # first: once it is done it has an outcome
        known = await self._loads.outcome(name, key)
        if known is None and load is not None and load.is_decided and load.key == key:
            known = load.fingerprint, outcome(load, load.stage)
        if known is None:
            return None
        await check_same(request, key, known[0])
        return _answered(known[1])

    async def _load(self, request: Request, name: str, options: LoadOptions, key: str) -> Response:
        form, encoding = (
            request.headers.get(each, "") for each in ("content-type", "content-encoding")
        )
        reader = LoadReader(form, encoding, self._limits)
        async with AsyncExitStack() as held:
            if not await held.enter_async_context(self._keeper.alone(name)):
                raise await self._busy(name, key)
            publishes = options.publishes(await self._loads.count(name))
            published = Published(self._journals.history, name)
            if (as_of := moment_of(options, None)) is not None:  # before all of the body is sent
                await published.check_as_of(as_of, await self._loads.standing(name))
            async with self._begun(name, key) as begun_now:
                staging = begun_now._replace(max_bytes=self._journals.max_bytes(name))
                fingerprint = await self._bodies.stage(request, staging, reader)
                begun = staging._replace(as_of=moment_of(options, reader.as_of))
                if begun.as_of is not None:
                    await self._spare_what_is_newer(begun, published)
                found, named = await self._compare(begun, NAMED if options.dry_run else 0)
                stage = "publishing" if publishes else "listing"
                load = begun._replace(stage=stage, found=found, fingerprint=fingerprint)
                taken_back = TakenBack(names_all=await self._may_read(request))
                if begun.as_of is None and not options.overwrite and found.differs:
                    await self._find_taken_back(taken_back, load, published)
                if options.dry_run:
                    if not await self._may_read(request):
                        named = [each for each in named if each.change != "deleted"]
                    refused = taken_back.refusal(name)
                    return JsonResponse(_compared(load, named, options.max_delete, refused))
                check_taken_back(taken_back, name)
                check_deletions(found, options.max_delete)
                # It may have been revoked: the body may have come for an hour.
                (await self._access.require_bearer(request)).require("publish", name)
                if publishes:
                    await self._loads.decide(load)
                else:
                    await self._loads.replace(load)
            return await self._answer(load, self._keeper.finish(load, held.pop_all()))

    async def _spare_what_is_newer(self, load: Load, published: Published) -> None:
        """What was published after the moment of the load stays as it is."""
        assert load.as_of is not None  # noqa: S101
        await published.check_as_of(load.as_of, await self._loads.standing(load.set_name))
        async for locs in published.locs_after(load.as_of, load.at):
            await self._loads.note_newer(load, locs)

    async def _find_taken_back(self, found: TakenBack, load: Load, published: Published) -> None:
        """What the load would take back of what was published since the load before it."""
        standing = await self._loads.standing(load.set_name)
        async for locs in self._loads.published_before(load):
            found.add(await self._loads.note_taken_back(load, locs))
        async for locs in published.kept_locs_after(standing.until, load.at):
            found.add(await self._loads.note_taken_back(load, locs))

    async def _busy(self, name: str, key: str) -> Exception:
        """Why the set cannot be loaded now."""
        load = await self._loads.current(name)
        if load is None:
            return TryAgain(f"a load of {name!r} is just beginning or ending")
        if not key or load.key != key:
            return _under_way(name)
        detail = f"the load of {name!r} with this key is still being received; send it again later"
        return TryAgain(f"{detail}: it is done once", retry_after_seconds=AGAIN_SECONDS)

    async def _may_read(self, request: Request) -> bool:
        """Whether the Source may see more than it sent."""
        name = request.path_params["set"]
        try:
            await self._access.require_reader(request, name, self._journals.sets.get(name))
        except Rejected:
            return False
        return True

    @asynccontextmanager
    async def _begun(self, name: str, key: str) -> AsyncIterator[Load]:
        """A load that is decided in this block, or leaves nothing."""
        load = await self._loads.begin(name, secrets.token_hex(8), key)
        if load is None:
            raise _under_way(name)
        try:
            yield load
        finally:
            with suppress(TryAgain):  # upkeep does it
                await self._loads.discard(load)

    async def _compare(self, load: Load, most: int) -> tuple[LoadCounts, list[Difference]]:
        """The counts of a load, and so many of its differences."""
        found, named, shard = LoadCounts(), list[Difference](), 0
        while shard < STATE_SHARDS:
            part = await self._loads.differences(load, shard, most - len(named))
            shard, found, named = part.next_shard, found.plus(part.found), named + part.named
        return found, named

    async def _answer(self, load: Load, finishing: asyncio.Task[LoadOutcome]) -> Response:
        done, _ = await asyncio.wait({finishing}, timeout=self._answer_seconds)
        if done and not isinstance(finishing.exception(), TryAgain):
            return _answered(finishing.result())
        return _answered(outcome(load, load.stage))


def _key(request: Request) -> str:
    key = request.headers.get("idempotency-key")
    if key is not None and KEY.fullmatch(key) is None:
        raise Rejected("an Idempotency-Key is 1 to 255 visible ASCII characters")
    return key or ""


def _answered(known: LoadOutcome) -> Response:
    return JsonResponse(known, 200 if known["stage"] == "done" else 202)


def _under_way(name: str) -> Rejected:
    return Rejected(UNDER_WAY.format(name), status=409, headers={"retry-after": str(AGAIN_SECONDS)})


def check_taken_back(found: TakenBack, name: str) -> None:
    if (refusal := found.refusal(name)) is not None:
        raise Rejected(refusal, status=409)


def _compared(
    load: Load, named: Sequence[Difference], max_delete: float, taken_back: str | None
) -> dict[str, Any]:
    """The answer to a dry run."""
    first = [{"change": each.change, "loc": unescape(each.loc.decode())} for each in named]
    refused = taken_back or too_many_deleted(load.found, max_delete)
    return outcome(load, "compared") | {"refused": refused, "first": first}
