"""A server that speaks S3: moto, where `pip install 'moto[server]'` has put it."""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import Request, urlopen

from tests.support.needs import need

NAME = "moto_server"


@contextmanager
def bucket(name: str) -> Iterator[dict[str, str]]:
    """An empty one; what the environment says of it."""
    program = shutil.which(NAME, path=Path(sys.executable).parent) or need(NAME)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [program, "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        made = False
        while not made:
            assert server.poll() is None
            with suppress(OSError):
                urlopen(Request(f"{url}/{name}", method="PUT")).close()
                made = True
            time.sleep(0.05)
        yield {
            "AWS_ENDPOINT": url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "anybody",
            "AWS_SECRET_ACCESS_KEY": "anything",
        }
    finally:
        server.kill()
        server.wait()
