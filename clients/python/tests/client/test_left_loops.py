"""A loop that follows is left in the middle: all that it opened ends, and nobody complains."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rsnotify.resourcesync.change import Position
from rsnotify_client import FileCursor, Publisher, SqliteCursor
from tests.support.amount import enough
from tests.support.running import TOKEN, clean_environment

DOCS = Path(__file__).parents[4] / "docs"
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINT = re.compile(r"^( +)(print\(.*\))$", re.MULTILINE)

RUN = """
import asyncio, sys
asyncio.run({main}(sys.argv[1]))
"""
AND_GOES_ON = """
async def main(url):
    await watch(url)
    await asyncio.sleep(0)
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0.01)
"""
ENDS = {
    "return": (r"\1\2\n\1return", "watch", ""),
    "break": (r"\1\2\n\1break", "watch", ""),
    "break, and the program goes on": (r"\1\2\n\1break", "main", AND_GOES_ON),
}


@pytest.mark.parametrize("end", enough([*ENDS], 1))
@pytest.mark.parametrize("page", ["following", "client"])
def test_the_loop_of_the_docs_may_be_left(real_hub, tmp_path, page, end):
    for set_name in ("dataset1", "dataset2"):
        real_hub.add_set(set_name)
        SqliteCursor(tmp_path / "cursors.db", set_name).save(Position(0))
    FileCursor(tmp_path / "cursor").save(Position(0))
    with Publisher(real_hub.url, TOKEN) as publisher:
        publisher.updated("dataset1", "http://example.com/res1")
    programs = PROGRAM.findall((DOCS / f"{page}.md").read_text())
    (example,) = [text for text in programs if "follow_async(" in text]
    leaves, main, more = ENDS[end]
    text = PRINT.sub(leaves, example) + more + RUN.format(main=main)
    url = f"{real_hub.url}/dataset1/capabilitylist.xml" if page == "following" else real_hub.url
    ended = subprocess.run(
        [sys.executable, "-W", "default", "-c", text, url],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=clean_environment(),
    )
    assert ended.stderr == ""
    assert ended.stdout.endswith("updated http://example.com/res1\n")
