"""A Source of files: a folder that a web server of others shows."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rsnotify.resourcesync.xml_writer import Entry, Md
from tests.support.sources import CAPABILITIES, Source, rendered


def write_source(folder: Path, url: str) -> None:
    """The documents of a Source at this address, and its one resource: `a.txt`."""
    source = Source()
    source.url = url
    source.add("a.txt", b"the content")
    source.list_resources()
    source.documents[CAPABILITIES] = source.capability_list("resourcelist")
    described = [Entry(url + CAPABILITIES, md=Md(capability="capabilitylist"))]
    source.documents["/.well-known/resourcesync"] = rendered("description", described)
    for path, content in (source.documents | source.resources).items():
        file = folder / path[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


@contextmanager
def source_of_files(folder: Path) -> Iterator[str]:
    """The address of that Source, as long as the block lasts."""
    words = [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(words, cwd=folder, **quiet) as server:
        assert server.stdout is not None
        try:
            (url,) = re.findall(r"\((http://.*)/\)", server.stdout.readline())
            write_source(folder, url)
            yield url
        finally:
            server.terminate()
