"""A directory that a web server of others shows, at an address that stays."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.hub_processes import serving_by


class Files(SimpleHTTPRequestHandler):
    """The files of a directory."""

    protocol_version = "HTTP/1.1"
    asked: set[str]

    def do_GET(self) -> None:
        self.asked.add(self.path)
        super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


class FileServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # several mirrors ask at once

    def handle_error(self, *_: object) -> None:  # a client that was killed
        pass


@contextmanager
def serving(directory: Path, asked: set[str] | None = None) -> Iterator[str]:
    """The address of the directory, which need not be there yet; what is asked for is noted."""
    files = type("AskedFiles", (Files,), {"asked": set() if asked is None else asked})
    handler = partial(files, directory=str(directory))
    with serving_by(FileServer(("127.0.0.1", 0), handler)) as url:
        yield f"{url}/"
