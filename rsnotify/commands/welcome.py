"""What a newcomer reads once the hub runs: where it is, where the token is, what to try."""

import os
import shutil
import sys
from collections.abc import Sequence
from shlex import quote

from rsnotify.commands.target import ADMIN_FILE
from rsnotify.process.settings import Settings


def next_steps(address: str, settings: Settings, sets: Sequence[str]) -> str:
    """The lines to copy for a first publish and a first subscription."""
    command = "rsnotify" if shutil.which("rsnotify") else sys.argv[0]
    options = _options(address, settings)
    secret = _secret(settings)
    steps = {"The hub answers at": address}
    if settings.page == "on":
        steps["Try it in a browser"] = f"{address}/"
    if not sets:
        steps["Make a set"] = f"{command} sets add dataset1{options}"
    name = sets[0] if sets else "dataset1"
    steps["Follow its channel"] = f"{command} subscribe {name}{options}"
    steps["Publish a change"] = (
        f'curl -H "Authorization: Bearer {secret}" -H "Content-Type: application/json" \\\n'
        f'      -d \'{{"loc": "http://example.com/res1", "change": "updated"}}\' \\\n'
        f"      {address}/api/sets/{name}/changes"
    )
    lines = [f"{what}:\n    {how}" for what, how in steps.items()]
    lines.insert(1, _where_the_token_is(settings))
    return "".join(f"\n  {line}\n" for line in lines)


def _options(address: str, settings: Settings) -> str:
    """What the commands must be told of a hub that is not where they look for it."""
    elsewhere = "" if address.endswith(":8080") else f" --url {address}"
    if settings.data != Settings.data:
        elsewhere += f" --data {quote(str(settings.data))}"
    return elsewhere


def _secret(settings: Settings) -> str:
    if not settings.admin_token:
        return f"$(cat {_token_file(settings)})"
    return f"$(cat ${ADMIN_FILE})" if _variable() == ADMIN_FILE else "$RSNOTIFY_ADMIN_TOKEN"


def _variable() -> str:
    """The variable in which the operator gave the admin token."""
    return ADMIN_FILE if ADMIN_FILE in os.environ else "RSNOTIFY_ADMIN_TOKEN"


def _where_the_token_is(settings: Settings) -> str:
    if settings.admin_token:
        return f"The admin token is in {_variable()}: set it in your other terminals too"
    return f"The admin token is in {_token_file(settings)}"


def _token_file(settings: Settings) -> str:
    return quote(str(settings.data / "admin-token"))
