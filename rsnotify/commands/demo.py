"""`rsnotify demo`: a Source to try things with; its resources change by themselves.

Rules that hold here: a resource changes before its change is told; discovery leads to the hub; a
set that holds anything but a demo's resources is left as it is.
"""

import asyncio
import secrets
from collections.abc import Sequence
from time import time
from typing import Any

import msgspec
import typer
from aiohttp import web

from rsnotify.commands.demo_site import OURS, Collection, Site
from rsnotify.commands.mirror import until_ended
from rsnotify.commands.target import path_of_set
from rsnotify.errors import InvalidSettings, Rejected, TryAgain
from rsnotify.resourcesync.change import Change
from rsnotify_client.connection import Connection
from rsnotify_client.documents import RemoteDocument
from rsnotify_client.web import Web

AT_ONCE = 1_000
TICK_SECONDS = 0.02
PATIENCE_SECONDS = 86_400.0


def run_demo(
    hub: str, token: str | None, set_name: str, *, host: str, port: int, count: int, rate: float,
    seed: int | None,
) -> None:  # fmt: skip
    """Run it until it is interrupted."""
    until_ended(_demo(hub.rstrip("/"), token, set_name, host, port, count, rate, seed))


async def _demo(
    hub: str, token: str | None, set_name: str, host: str, port: int, count: int, rate: float,
    seed: int | None,
) -> int:  # fmt: skip
    async with Connection(hub, token, patience_seconds=PATIENCE_SECONDS) as connection:
        collection = Collection("", 0, seed)
        runner = web.AppRunner(Site(collection, hub, set_name).application(), access_log=None)
        await runner.setup()
        try:
            collection.base = await _listen(runner, host, port)
            await _begin(connection, collection, set_name, count)
            typer.echo(f"rsnotify demo ready {collection.base}")
            typer.echo(
                f"{count} resources, {rate:g} changes a second; copy them with: "
                f"rsnotify mirror {collection.base} copy --lag",
                err=True,
            )
            await _go_on(connection, collection, set_name, rate)
        finally:
            await runner.cleanup()
    return 0


async def _listen(runner: web.AppRunner, host: str, port: int) -> str:
    site = web.TCPSite(runner, host, port)
    try:
        await site.start()
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "no name of a host"
        raise InvalidSettings(
            [f"cannot listen on {host}:{port}: {why}; choose another --host or --port"]
        ) from None
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{runner.addresses[0][1]}"


async def _begin(connection: Connection, collection: Collection, set_name: str, count: int) -> None:
    """The set exists and has exactly our resources; a snapshot says so."""
    try:
        await connection.ask("PUT", path_of_set(set_name), body=b"{}")
    except Rejected as error:
        if error.status != 403:
            raise
    await _snapshot(connection, set_name)
    listed = await _listed(connection, set_name)
    _check_ours(set_name, listed)
    for _ in range(count):
        collection.create()
    now = {collection.loc(name) for name in collection.resources}
    stale = [Change(loc, "deleted") for loc in listed if loc not in now]
    await _publish(connection, set_name, stale)
    await _publish(connection, set_name, list(collection.told()))
    await _snapshot(connection, set_name)


async def _snapshot(connection: Connection, set_name: str) -> None:
    """Whoever may not ask for one waits for the hub's own."""
    try:
        await connection.ask("POST", f"{path_of_set(set_name)}/snapshot")
    except (Rejected, TryAgain):
        return


async def _listed(connection: Connection, set_name: str) -> list[str]:
    async with Web(connection.token, connection.url) as web:
        try:
            document = RemoteDocument(web, f"{connection.url}/{set_name}/resourcelist.xml")
            return [entry.loc async for entries in document for entry in entries]
        except Rejected:
            return []  # there is no snapshot yet


def _check_ours(set_name: str, listed: Sequence[str]) -> None:
    """Refuse a set with resources of somebody else: the demo would delete them."""
    foreign = [loc for loc in listed if not OURS.fullmatch(loc)]
    if foreign:
        raise InvalidSettings(
            [
                f"the set {set_name} holds {len(foreign)} resources that are no demo's, such as "
                f"{foreign[0]}: give the demo a set of its own with --set"
            ]
        )


async def _go_on(
    connection: Connection, collection: Collection, set_name: str, rate: float
) -> None:
    if rate <= 0:
        await asyncio.Event().wait()
    began, done = time(), 0
    while True:
        await asyncio.sleep(max(TICK_SECONDS, (done + 1) / rate - (time() - began)))
        due = min(int((time() - began) * rate) - done, AT_ONCE)
        if due > 0:
            await _publish(connection, set_name, [collection.change() for _ in range(due)])
            done += due


async def _publish(connection: Connection, set_name: str, changes: Sequence[Change]) -> None:
    for start in range(0, len(changes), AT_ONCE):
        body = msgspec.json.encode(changes[start : start + AT_ONCE])
        headers: dict[str, Any] = {
            "Content-Type": "application/json",
            "Idempotency-Key": secrets.token_hex(16),
        }
        await connection.ask("POST", f"{path_of_set(set_name)}/changes", body=body, headers=headers)
