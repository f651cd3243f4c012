"""Speaking to the hub, with the token that goes with its address."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from rsnotify.commands.target import credential_for, refusals_of

Result = TypeVar("Result")


def speak(
    url: str, data: Path, work: Callable[[str | None], Coroutine[Any, Any, Result]]
) -> Result:
    """Do what speaks to the hub, with the token for it."""
    import asyncio

    credential = credential_for(url, data)
    with refusals_of(credential):
        return asyncio.run(work(credential.token))


def ask(url: str, data: Path, method: str, path: str, content: object | None = None) -> Any:
    """Make one request; what the hub answered."""
    from rsnotify.commands import administer

    return speak(url, data, lambda token: administer.ask(url, token, method, path, content))
