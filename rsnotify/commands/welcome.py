"""What a newcomer reads once the hub runs: where it is, where the token is, what to try."""

import shutil
import sys
from collections.abc import Sequence

from rich.console import Console

from rsnotify.settings import Settings


def print_next_steps(
    console: Console, address: str, settings: Settings, sets: Sequence[str]
) -> None:
    """The lines to copy for a first publish and a first subscription."""
    command = "rsnotify" if shutil.which("rsnotify") else sys.argv[0]
    token = settings.data / "admin-token"
    options = "" if address.endswith(":8080") else f" --url {address}"
    secret = "$RSNOTIFY_ADMIN_TOKEN" if settings.admin_token else f"$(cat {token})"
    steps = {
        "The hub answers at": address,
        "The admin token is": "RSNOTIFY_ADMIN_TOKEN" if settings.admin_token else f"in {token}",
    }
    if not sets:
        steps["Make a set"] = f"{command} sets add dataset1{options}"
    name = sets[0] if sets else "dataset1"
    steps["Follow its channel"] = f"{command} subscribe {name}{options}"
    steps["Publish a change"] = (
        f'curl -H "Authorization: Bearer {secret}" -H "Content-Type: application/json" \\\n'
        f'      -d \'{{"loc": "http://example.com/res1", "change": "updated"}}\' \\\n'
        f"      {address}/api/sets/{name}/changes"
    )
    lines = "".join(f"\n  {what}:\n    {how}\n" for what, how in steps.items())
    console.print(lines, markup=False, soft_wrap=True)
