"""The keys of JWTs, where the settings say they are: in a setting, in a file, or at an address."""

import asyncio
from pathlib import Path

from rsnotify.access.jwt_rules import SET_BYTES, parse_key
from rsnotify.access.jwts import Jwts, KeySetSource
from rsnotify.outbound.dialler import Dialler
from rsnotify.process.settings import Settings, is_web_address


def jwts_of(settings: Settings) -> Jwts:
    """What judges JWTs."""
    return Jwts(
        [] if settings.jwt_key is None else [parse_key(settings.jwt_key)],
        None if settings.jwks is None else _source(settings.jwks, settings.proxy),
        audience=settings.jwt_audience,
        skew_seconds=settings.jwt_skew_seconds,
        refresh_seconds=settings.jwks_seconds,
    )


def _source(where: str, proxy: str | None) -> KeySetSource:
    if is_web_address(where):
        return KeySetSource(where, lambda: _fetch(where, proxy), is_fetched=True)
    return KeySetSource(where, lambda: asyncio.to_thread(_read, where), is_fetched=False)


def _read(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(SET_BYTES + 1)


async def _fetch(url: str, proxy: str | None) -> bytes:
    """The operator's own address may be private; a redirect is not followed."""
    async with Dialler(private=True, proxy=proxy, body_bytes=SET_BYTES, lines=SET_BYTES) as dialler:
        answer = await dialler.get(url)
    if answer.status != 200:
        raise OSError(f"it answers {answer.status}" if answer.status else answer.note)
    if not answer.body:
        raise OSError(f"it is empty, or has more than {SET_BYTES} bytes")
    return answer.body
