"""What docs/publishing.md and the Makefile say of a shell, run as it stands there."""

import asyncio
import os
import re
import subprocess
from pathlib import Path

from tests.support.needs import need
from tests.support.redis_server import free_port
from tests.support.running import TOKEN, RunningHub, until

ROOT = Path(__file__).parents[4]


async def test_a_publish_by_curl_waits_for_the_hub_and_is_stored_once(tmp_path):
    need("curl")
    section = (ROOT / "docs/publishing.md").read_text().partition("## Publish from a shell")[2]
    (script,) = re.findall(r"```sh\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    hub = RunningHub(tmp_path / "data", port=free_port())
    script = script.replace("http://127.0.0.1:8080", f"http://127.0.0.1:{hub.port}")
    script = script.replace("$(cat data/admin-token)", TOKEN)
    said = (tmp_path / "said").open("wb")
    publishing = await asyncio.create_subprocess_exec(
        "sh", "-c", script, stdout=asyncio.subprocess.PIPE, stderr=said
    )

    async def is_refused() -> bool:
        return "Will retry" in (tmp_path / "said").read_text()

    await until(is_refused)
    async with hub:
        out, _ = await publishing.communicate()
        assert (publishing.returncode, b'"accepted":1' in out) == (0, True), out
        _, listed = await hub.ask("GET", "/dataset1/changelist.xml")
        assert listed.count(b"<loc>http://example.com/res1</loc>") == 1
    said.close()


def test_make_run_takes_a_port_from_its_own_line_alone():
    """Many a shell has a PORT of its own."""
    make = need("make")

    def command(*words: str, **environ: str) -> str:
        return subprocess.run(
            [make, "--dry-run", "--always-make", "-C", ROOT, "run", *words],
            env=os.environ | environ,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert "--port 9000" in command("PORT=9000")
    assert "--port" not in command(PORT="9000")
