"""PostgreSQL's server from the machine's packages, with an empty database of its own.

It refuses to run as root; there it runs as the user that its package made.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from tests.support.hub_processes import eventually
from tests.support.needs import need
from tests.support.redis_server import free_port
from tests.support.redis_tls import SERVER as CERTIFICATE

SERVER = ("PostgreSQL", "postgres")
USERS = ("postgres", "nobody")


class PostgreSQL:
    """A server for anybody on loopback, with TLS for those who want it; it may be killed."""

    def __init__(self, folder: Path) -> None:
        self._data = folder / "data"
        self._log = folder / "postgresql.log"
        self._as = _another_user()
        self._program = need(*SERVER)
        self._port = free_port()
        self.url = f"postgresql://app@127.0.0.1:{self._port}/papers"
        self._make(folder)

    def __enter__(self) -> Self:
        self.start()
        with self.admin() as connection:
            connection.execute("CREATE DATABASE papers")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        ways = {
            "listen_addresses": "127.0.0.1",
            "port": self._port,
            "unix_socket_directories": "",
            "fsync": "off",  # of the machine nothing is pulled out
            "ssl": "on",
            "ssl_cert_file": "server.pem",
            "ssl_key_file": "server.pem",
        }
        words = [word for name, value in ways.items() for word in ("-c", f"{name}={value}")]
        command = [self._program, "-D", str(self._data), *words]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._as)
        eventually(self._answers, 60)

    def stop(self) -> None:
        """End it in good order, whoever is connected."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait()

    def kill(self) -> None:
        """End it and all that it has started, on the spot."""
        processes = self._processes()
        self._signal(signal.SIGKILL, processes)
        self._process.wait()
        eventually(lambda: not processes & self._processes(processes), 60)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It keeps its connections meanwhile, and answers nothing."""
        processes = self._processes()
        self._signal(signal.SIGSTOP, processes)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT, processes)

    def _processes(self, among: Collection[int] = ()) -> set[int]:
        """Its own and those that it has started, each of which leads a group of its own; or those
        of some that are there yet."""
        own = self._process.pid
        listed = subprocess.check_output(["ps", "-A", "-o", "pid=,ppid=,stat="], text=True)
        lines = [line.split() for line in listed.splitlines()]
        there = {int(pid): int(parent) for pid, parent, stat in lines if not stat.startswith("Z")}
        found = {pid for pid, parent in there.items() if own in (pid, parent)}
        return there.keys() & set(among) if among else found

    def _signal(self, number: int, processes: Collection[int]) -> None:
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def admin(self) -> Any:
        """A connection to the server's own database, of which each statement is committed."""
        import psycopg

        own = self.url.removesuffix("/papers") + "/postgres"
        return psycopg.connect(own, autocommit=True)

    def _make(self, folder: Path) -> None:
        if self._as:
            shutil.chown(folder, **self._as)
        make = shutil.which("initdb", path=str(Path(self._program).resolve().parent))
        words = ["--no-sync", "--auth=trust", "--username=app", "--encoding=UTF8", "--locale=C"]
        command = [make, *words, "-D", str(self._data)]
        subprocess.run(command, check=True, capture_output=True, **self._as)
        certificate = self._data / "server.pem"
        shutil.copyfile(CERTIFICATE, certificate)
        certificate.chmod(0o600)
        if self._as:
            shutil.chown(certificate, **self._as)

    def _answers(self) -> bool:
        import psycopg

        assert self._process.poll() is None, self._log.read_text()
        try:
            self.admin().close()
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def server() -> Iterator[PostgreSQL]:
    """The server, in a folder that its user may enter."""
    need(*SERVER)
    with tempfile.TemporaryDirectory() as folder, PostgreSQL(Path(folder)) as running:
        yield running


@contextmanager
def running() -> Iterator[str]:
    """The URL of its database."""
    with server() as postgresql:
        yield postgresql.url


def _another_user() -> dict[str, Any]:
    """Who runs the server, if root runs the tests."""
    if os.geteuid() != 0:
        return {}
    known = {each.pw_name for each in pwd.getpwall()}
    user = next(name for name in USERS if name in known)
    return {"user": user, "group": pwd.getpwnam(user).pw_gid}
