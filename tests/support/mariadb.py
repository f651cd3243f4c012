"""MariaDB's server from the machine's packages, with an empty database of its own."""

import getpass
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.support.hub_processes import eventually
from tests.support.needs import need
from tests.support.redis_server import free_port

SERVER = ("MariaDB", "mariadbd")
ANYBODY = "--skip-grant-tables"  # on loopback, for as long as a test takes


@contextmanager
def running(folder: Path, *options: str) -> Iterator[str]:
    """The URL of the database; the server's files are in the folder."""
    import pymysql

    server, port = need(*SERVER), free_port()
    place = [f"--datadir={folder / 'mariadb'}", f"--user={getpass.getuser()}"]
    make = [need("mariadb-install-db"), "--no-defaults", *place]
    own = os.environ | {"TMPDIR": str(folder)}  # a server that starts removes all `#sql…` there
    subprocess.run(make, check=True, capture_output=True, env=own)
    ways = [f"--port={port}", "--bind-address=127.0.0.1", f"--socket={folder / 'mariadb.sock'}"]
    command = [server, "--no-defaults", *place, *ways, *options, ANYBODY]
    with (folder / "mariadb.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=own)

    def answers() -> bool:
        try:
            pymysql.connect(host="127.0.0.1", port=port, user="root").close()
        except pymysql.err.OperationalError:
            return False
        return True

    try:
        eventually(answers, 60)
        with closing(pymysql.connect(host="127.0.0.1", port=port, user="root")) as connection:
            connection.cursor().execute("CREATE DATABASE papers")
        yield f"mysql://root@127.0.0.1:{port}/papers"
    finally:
        process.terminate()
        process.wait()
