"""Hubs for tests of the synchronous client: a real process, and one that says what it is told."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.request import Request, urlopen

from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.xml_reader import change_of, parse_document
from tests.support.forks import Spawned
from tests.support.running import TOKEN, clean_environment


class HubProcess:
    """A hub; `with` starts and stops it, and in between it may be killed and started again."""

    def __init__(self, data: Path, *sets: str) -> None:
        self._data = data
        self._sets = sets or ("dataset1",)
        self._port = "0"
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self._ended()

    def start(self) -> None:
        sets = [word for name in self._sets for word in ("--set", name)]
        words = ["serve", "--data", str(self._data), "--port", self._port, *sets]
        chosen = {"RSNOTIFY_ADMIN_TOKEN": TOKEN, "RSNOTIFY_ADMIN_EMAIL": "admin@hub.example.org"}
        environment = clean_environment() | chosen
        log = self._data.with_suffix(".log")
        with log.open("ab") as written:
            self.process = Spawned(words, environment, written.fileno())
        ready = self.process.stdout.readline()
        assert ready, f"the hub did not start: {log.read_text()[-2_000:]}"
        self.url = ready.split()[-1]
        self._port = self.url.rpartition(":")[2]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self._ended()

    def _ended(self) -> None:
        self.process.wait()
        self.process.stdout.close()

    def add_set(self, name: str, **options: Any) -> None:
        self.ask("PUT", f"/api/sets/{name}", json.dumps(options).encode())

    def ask(self, method: str, path: str, body: bytes | None = None) -> None:
        """As the admin."""
        request = Request(f"{self.url}{path}", body, method=method)
        request.add_header("Authorization", f"Bearer {TOKEN}")
        request.add_header("Content-Type", "application/json")
        urlopen(request).close()

    def journal(self, set_name: str = "dataset1") -> list[Change]:
        """Every change of the set, in order."""
        changes: list[Change] = []
        place: str | None = "1970-01-01T00:00:00Z"
        while place is not None:
            with urlopen(f"{self.url}/{set_name}/changelist.xml?from={place}") as answer:
                document = parse_document(answer.read())
            changes += map(change_of, document.entries)
            assert document.md is not None
            place = document.md.until
        return changes

    def told(self, set_name: str = "dataset1") -> list[tuple[str, str]]:
        """What happened, and the last part of each address."""
        return [(change.change, change.loc.rpartition("/")[2]) for change in self.journal(set_name)]


class Posted(NamedTuple):
    """A request as the scripted hub got it."""

    set_name: str
    key: str
    locs: list[str]
    token: str = ""


class Answer(NamedTuple):
    status: int
    content: Any = None
    headers: tuple[tuple[str, str], ...] = ()
    closes: bool = False  # the connection, without saying so


ACCEPTED = Answer(201)
Script = Callable[[Posted], Answer]


class ScriptedHub(ThreadingHTTPServer):
    """Answers what the script says, and notes what was posted."""

    def __init__(self, script: Script, port: int) -> None:
        super().__init__(("127.0.0.1", port), ScriptedAnswers)
        self.script = script
        self.posted: list[Posted] = []

    def handle_error(self, *_: object) -> None:  # a client that was killed
        pass


class ScriptedAnswers(BaseHTTPRequestHandler):
    """One connection to a scripted hub."""

    protocol_version = "HTTP/1.1"
    server: ScriptedHub

    def do_POST(self) -> None:
        changes = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = Posted(
            self.path.split("/")[3],
            self.headers["Idempotency-Key"],
            [change["loc"] for change in changes],
            self.headers.get("Authorization", "").removeprefix("Bearer "),
        )
        self.server.posted.append(request)
        self.say(self.server.script(request), len(changes))

    def do_GET(self) -> None:
        self.say(Answer(200 if self.path == "/api/sets" else 404, []), 0)

    def say(self, answer: Answer, count: int) -> None:
        content = answer.content
        if answer is ACCEPTED:
            content = {"accepted": count, "from": "a", "until": "b"}
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(answer.status)
        for name, value in (*answer.headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection |= answer.closes

    def log_message(self, *_: object) -> None:
        pass


class NothingThere(BaseHTTPRequestHandler):
    """One connection to a server that has nothing at any address."""

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def scripted_hub(script: Script, port: int = 0) -> Iterator[tuple[str, list[Posted]]]:
    """A hub that answers what the script says; its address and what it was asked."""
    server = ScriptedHub(script, port)
    with serving_by(server) as url:
        yield url, server.posted


@contextmanager
def granting(content: bytes) -> Iterator[str]:
    """The address of a server that grants whatever is asked with this JSON."""

    class Grants(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with serving_by(ThreadingHTTPServer(("127.0.0.1", 0), Grants)) as url:
        yield url


@contextmanager
def loading_hub(*answers: Answer) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """A hub that answers loads so, in turn; its address, and the key and body of each load."""
    left, loads = list(answers), list[tuple[str, bytes]]()

    class Loads(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            loads.append((self.headers["Idempotency-Key"], body))
            answer = left.pop(0)
            content = json.dumps(answer.content).encode()
            self.send_response(answer.status)
            for name, value in (*answer.headers, ("Content-Length", str(len(content)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with serving_by(ThreadingHTTPServer(("127.0.0.1", 0), Loads)) as url:
        yield url, loads


@contextmanager
def no_hub() -> Iterator[str]:
    """The address of a server that is no hub."""
    with serving_by(ThreadingHTTPServer(("127.0.0.1", 0), NothingThere)) as url:
        yield url


@contextmanager
def serving_by(server: ThreadingHTTPServer) -> Iterator[str]:
    """Its address, for as long as it is needed."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def accept(_: Posted) -> Answer:
    return ACCEPTED


def problem(status: int, detail: str, *faults: tuple[int, str]) -> Answer:
    errors = [{"index": index, "message": message} for index, message in faults]
    return Answer(status, {"detail": detail, "errors": errors})


def eventually(fact: Callable[[], Any], seconds: float = 20) -> Any:
    """Wait for a fact, not for a time."""
    until = time.monotonic() + seconds
    while not (found := fact()):
        assert time.monotonic() < until, "it did not come true"
        time.sleep(0.01)
    return found


_started: list[subprocess.Popen[str]] = []


def python(*words: str, **environ: str) -> subprocess.Popen[str]:
    """A Python process of its own, as an application is."""
    process = subprocess.Popen(
        [sys.executable, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ) | environ,
    )
    _started.append(process)
    return process


def end_processes() -> None:
    """End those that a test has left because it failed."""
    while _started:
        process = _started.pop()
        if process.poll() is None:
            with process:  # closes its pipes, and waits
                process.kill()
