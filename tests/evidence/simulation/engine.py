"""A real Redis in the world: each command is one step of it, at the world's time.

On the network it is a host of its own. What it is asked is handed to the real server and answered
within the same step; what may go wrong on the way is decided here. A failover that loses starts a
second server from the file that the first had written a while before, or goes to one that has
executed the same commands at the same times, but for the last few.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable
from hashlib import sha1, sha256
from mmap import mmap
from pathlib import Path
from random import Random
from struct import pack
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any, NamedTuple

import hiredis

from rsnotify.redis_client import Script
from tests.evidence.simulation.loop import Host
from tests.evidence.simulation.virtual import EPOCH, real_monotonic
from tests.support.needs import COMPILER, need

SOURCE = Path(__file__).with_name("engine.c")
START_SECONDS = 60
AGAIN_SECONDS = 0.002
LIBRARY = "engine.so"
LONGEST_FOLDER = 80  # bytes; the address of a socket has up to 107
C_LIBRARY = "POSIX"  # how INFO calls the clocks that engine.c stands before
PORT = 6379
URL = f"redis://redis:{PORT}"
INCOMPLETE = object()
NOT_REPLICATED = frozenset(
    (
        *(b"HELLO", b"CLIENT", b"PING", b"INFO", b"WAIT"),
        *(b"PUBLISH", b"SUBSCRIBE", b"UNSUBSCRIBE"),
    )
)
# What it answers to everything, where the server cannot be brought to it…
SAID = {
    "busy": b"-BUSY Redis is busy running a script. You can only call SCRIPT KILL.\r\n",
    "loading": b"-LOADING Redis is loading the dataset in memory\r\n",
    "misconf": b"-MISCONF Errors writing to the AOF file: No space left on device\r\n",
}
# …and what makes it refuse by itself, and what ends that.
MADE = {
    "noreplicas": (b"CONFIG SET min-replicas-to-write 1", b"CONFIG SET min-replicas-to-write 0"),
    "oom": (b"CONFIG SET maxmemory 1", b"CONFIG SET maxmemory 0"),
    "readonly": (b"REPLICAOF 127.0.0.1 1", b"REPLICAOF NO ONE"),
}
REFUSALS = sorted((*SAID, *MADE))
# Of INFO, what is the same on every machine. A hub that asks for more does not find it: what the
# server takes of memory and time, and where it runs, would make a story that no seed tells again.
TOLD = frozenset((b"run_id", b"master_replid", b"maxmemory"))
MEMORY = b"used_memory:1000000"


def called(words: list[bytes]) -> str:
    """The command, or the name of the script that it runs: `XRANGE`, `append`. Of the script for
    subscriptions its act, too: `subscriptions.forget`."""
    name = words[0].upper()
    if name not in (b"EVALSHA", b"EVAL"):
        return name.decode()
    is_text = name == b"EVAL"
    sha = sha1(words[1], usedforsecurity=False).hexdigest() if is_text else words[1].decode()
    found = _names.get(sha, "script")
    return f"{found}.{words[3 + int(words[2])].decode()}" if found == "subscriptions" else found


def may_publish(words: list[bytes]) -> bool:
    """Whether it can have something for those who listen: of most scripts, the text says no."""
    name = words[0].upper()
    if name == b"EVALSHA":
        command = Script.in_full(("EVALSHA", words[1].decode()))
        return "PUBLISH" in str(command[1])
    return name in (b"PUBLISH", b"EXEC") or (name == b"EVAL" and b"PUBLISH" in words[1])


class _Names(dict[str, str]):
    """By hash: the last file that a script is made of, without its ending."""

    def learn(self) -> None:
        make = Script.__init__

        def learning(script: Script, *names: str) -> None:
            make(script, *names)
            self[script.command([])[1]] = Path(names[-1]).stem

        Script.__init__ = learning


_names = _Names()
_names.learn()


def library() -> Path:
    """Compiled once a machine and version of the source."""
    version = sha256(SOURCE.read_bytes()).hexdigest()[:12]
    made = Path(tempfile.gettempdir(), f"rsnotify-tests-{os.getuid()}-engine-{version}.so")
    if not made.exists():
        part = made.with_suffix(f".{os.getpid()}")
        command = [need(*COMPILER), "-shared", "-fPIC", "-O1", "-o", part, SOURCE, "-ldl"]
        subprocess.run(command, check=True)
        part.replace(made)
    return made


class Moment(NamedTuple):
    """What the clocks of a server say."""

    elapsed: float  # seconds of the world, which no jump of a clock changes
    ahead: float = EPOCH  # by so much is the wall clock ahead of them

    @property
    def wall(self) -> int:
        """Unix time in microseconds."""
        return int(self.elapsed * 1e6) + int(self.ahead * 1e6)

    def __bytes__(self) -> bytes:
        return pack("=qq", self.wall, int(self.elapsed * 1e6))


def short_folder() -> str:
    """Where temporary files go, unless no socket could have an address there."""
    chosen = tempfile.gettempdir()
    return chosen if len(os.fsencode(chosen)) <= LONGEST_FOLDER else "/tmp"


def mapped(path: Path, data: bytes) -> mmap:
    """A new file that two processes have in their memory."""
    path.write_bytes(data)
    with path.open("r+b") as file:
        return mmap(file.fileno(), len(data))


class Server:
    """A process of Redis whose clocks stand still between two steps."""

    def __init__(self, binary: str, folder: Path, seed: str, now: Moment) -> None:
        folder.mkdir()
        self.folder = folder
        self._clock = mapped(folder / "clock", bytes(now))
        chance = folder / "chance"
        chance.write_bytes(Random(seed).randbytes(4096))
        (folder / LIBRARY).symlink_to(library())
        environment = {
            "LD_PRELOAD": f"./{LIBRARY}",  # beside it: a path with a space would be two
            "TZ": "UTC",
            "WORLD_CLOCK": str(folder / "clock"),
            "WORLD_CHANCE": str(chance),
        }
        self._command = [
            *(binary, "--port", "0", "--unixsocket", "s", "--save", "", "--hz", "1"),
            *("--enable-debug-command", "yes", "--daemonize", "no"),
        ]
        self._environment = environment
        self._process: subprocess.Popen[bytes]

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    self._command, cwd=self.folder, env=self._environment, stdout=log, stderr=log
                )
            except OSError as error:
                raise Unusable(f"{self._command[0]} cannot be started: {error}") from None
        asker = self._reached()
        asker.ask(b"DEBUG", b"SET-ACTIVE-EXPIRE", b"0")
        asker.close()

    def _reached(self) -> "Asker":
        """The first connection to it, once it answers: its clients have numbers."""
        deadline = real_monotonic() + START_SECONDS
        asker: Asker | None = None
        while real_monotonic() < deadline:
            try:
                asker = asker or Asker(self)
                if asker.ask(b"PING") == b"+PONG\r\n":
                    return asker
            except (FileNotFoundError, ConnectionError):
                asker = None
            if self._process.poll() is not None:
                break
            sleep(AGAIN_SECONDS)
        log = (self.folder / "log").read_text()
        raise Unusable(f"{self._command[0]} has ended, or does not answer: {log}")

    def set_time(self, now: Moment) -> None:
        self._clock[:] = bytes(now)

    def save(self) -> None:
        Asker(self).ask(b"SAVE")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Unusable(Exception):
    """A server in which a seed would not tell the same story again."""


def require_usable(binary: str) -> None:
    """Raise unless this server takes its time from a world."""
    now = Moment(1.25)
    with TemporaryDirectory(prefix="world-", dir=short_folder()) as folder:
        server = Server(binary, Path(folder, "1"), "", now)
        server.start()
        try:
            asker = Asker(server)
            clock = lines_of(asker.ask(b"INFO", b"server")).get(b"monotonic_clock", b"").decode()
            reader = hiredis.Reader()
            reader.feed(asker.ask(b"TIME"))
            seconds, microseconds = map(int, reader.gets())
        finally:
            server.kill()
    if clock and not clock.startswith(C_LIBRARY):
        raise Unusable(
            f"{binary} counts time by {clock}, which a world cannot move: it would have to find "
            "`getMonotonicUs` among the symbols of the server (Makefiles link it with -rdynamic)"
        )
    if seconds * 1_000_000 + microseconds != now.wall:
        raise Unusable(f"{binary} does not take its time from a world: was engine.c loaded?")


def lines_of(info: bytes) -> dict[bytes, bytes]:
    """What an answer to INFO says, by name.

    >>> lines_of(b"$26\\r\\n# Server\\r\\nrun_id:1\\r\\nhz:10\\r\\n\\r\\n")
    {b'run_id': b'1', b'hz': b'10'}
    """
    pairs = (line.partition(b":") for line in info.split(b"\r\n"))
    return {name: value for name, colon, value in pairs if colon}


def told(info: bytes) -> bytes:
    """Of an answer to INFO, what any machine would say."""
    lines = [b"%b:%b" % pair for pair in lines_of(info).items() if pair[0] in TOLD]
    text = b"\r\n".join([*lines, MEMORY, b""])
    return b"$%d\r\n%b\r\n" % (len(text), text)


class Asker:
    """One connection to a server, on which one thing at a time is asked and waited for."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(server.folder / "s"))
        self._reader = hiredis.Reader(notEnoughData=INCOMPLETE, replyError=Exception)

    def ask(self, *words: bytes) -> bytes:
        """The answer, as it was sent."""
        self._socket.sendall(hiredis.pack_command(words))
        return self._read(until_pong=False)

    def look(self) -> None:
        """Ask for what has been published to this connection, which has subscribed to something."""
        self._socket.sendall(PING)

    def pushed(self) -> bytes:
        """…and get it."""
        return self._read(until_pong=True)

    def read_more(self, answers: int) -> bytes:
        return b"".join(self._read(until_pong=False) for _ in range(answers))

    def _read(self, *, until_pong: bool) -> bytes:
        found = b""
        while True:
            data = self._socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the server has closed the connection")
            found += data
            self._reader.feed(data)
            while (answer := self._reader.gets()) is not INCOMPLETE:
                if not until_pong:
                    return found
                if answer == [b"pong", b""]:
                    return found[: -len(PONG)]

    def close(self) -> None:
        self._socket.close()


PING = b"*1\r\n$4\r\nPING\r\n"
PONG = b"*2\r\n$4\r\npong\r\n$0\r\n\r\n"


class Replica:
    """A server that is so many commands behind."""

    def __init__(self, server: Server, lag: int) -> None:
        self.server = server
        self._lag = lag
        self._waiting: deque[tuple[int, list[bytes], Moment]] = deque()
        self._askers: dict[int, Asker] = {}

    def feed(self, connection: int, words: list[bytes], when: Moment) -> None:
        """A connection of the first server has executed this, then."""
        self._waiting.append((connection, words, when))
        while len(self._waiting) > self._lag:
            self._execute(*self._waiting.popleft())

    def catch_up(self) -> None:
        """It has executed all: whoever waits for it is answered."""
        while self._waiting:
            self._execute(*self._waiting.popleft())

    def _execute(self, connection: int, words: list[bytes], when: Moment) -> None:
        if connection not in self._askers:  # what is between MULTI and EXEC is of one connection
            self._askers[connection] = Asker(self.server)
        asker = self._askers[connection]
        self.server.set_time(when)
        answer = asker.ask(*words)
        if answer.startswith(b"-NOSCRIPT"):
            asker.ask(*Script.in_full((words[0], words[1].decode(), *words[2:])))


class Engine:
    """The host named redis: which server answers there now, and what it does to its clients."""

    def __init__(
        self, host: Host, chance: Random, elapsed: Callable[[], float], binary: str
    ) -> None:
        self.host = host
        self.chance = chance
        self.folder = Path(tempfile.mkdtemp(prefix="world-", dir=short_folder()))
        self.refusal: bytes | None = None  # what it answers instead of doing anything
        self._refusing: str | None = None
        self.commands = 0
        self.clock_moved = 0.0
        self.lose_answer_of = 0.0  # of all answers are lost with their connection, once executed
        # By the name of the host that asks and what it calls: so many seconds until a command is
        # executed, and from then on until its answer is sent.
        self.late: Callable[[str, str], float] = lambda _, __: 0.0
        self.answers_late: Callable[[str, str], float] = lambda _, __: 0.0
        self.deaf: set[str] = set()  # hosts to which nothing that is published gets through
        self.ends_in: tuple[str, bool] | None = None  # see `fail_over_in`
        self._replica: Replica | None = None
        self._elapsed = elapsed
        self._binary = binary
        self._servers = self._numbers = 0
        self._connections: list[Connection] = []
        self.server = self._started(None)

    def _started(self, copy: Path | None) -> Server:
        self._servers += 1
        name = str(self._servers)
        seed = f"{self.chance.random()} {name}"
        server = Server(self._binary, self.folder / name, seed, self.now())
        if copy is not None:
            shutil.copy(copy, server.folder / "dump.rdb")
        server.start()
        return server

    def now(self) -> Moment:
        return Moment(self._elapsed(), EPOCH + self.clock_moved)

    def keep(self) -> None:
        """What is there now is what a failover will find."""
        self.server.set_time(self.now())
        (self.server.folder / "dump.rdb").unlink(missing_ok=True)
        self.server.save()

    def fail_over(self, *, keeps_bell: bool = False) -> None:
        """Another server takes over with what was kept; all later writes are lost. Those who listen
        to what is published may go on listening."""
        former = self.server
        self.server = self._started(former.folder / "dump.rdb")
        for connection in [*self._connections]:
            if keeps_bell and connection.is_listening:
                connection.listen_at(self.server)
            else:
                connection.end()
        former.kill()

    def replicate(self, lag: int) -> None:
        """From now on another server follows, so many commands behind."""
        self.keep()
        self._replica = Replica(self._started(self.server.folder / "dump.rdb"), lag)

    def fail_over_to_replica(self) -> None:
        """What it has not executed yet is lost."""
        assert self._replica is not None
        former, self.server = self.server, self._replica.server
        self._replica = None
        self.drop_connections()
        former.kill()

    def fail_over_in(self, name: str, *, is_kept: bool) -> None:
        """While the next script of this name runs: nobody learns what has become of it.

        A script's effects reach a replica together, or not at all: so it is kept or lost whole.
        """
        self.ends_in = (name, is_kept)

    def replicated(self, connection: int, name: bytes, words: list[bytes]) -> None:
        if self._replica is not None and name not in NOT_REPLICATED:
            self._replica.feed(connection, words, self.now())

    def wait_for_replica(self) -> None:
        if self._replica is not None:
            self._replica.catch_up()
            self.server.set_time(self.now())

    def refuse(self, name: str | None) -> None:
        """In this way from now on; or in none."""
        if self._refusing is not None and self._refusing in MADE:
            self._tell(MADE[self._refusing][1])
        self._refusing = name
        self.refusal = SAID.get(name or "")
        if name is not None and name in MADE:
            self._tell(MADE[name][0])

    def _tell(self, command: bytes) -> None:
        answer = Asker(self.server).ask(*command.split())
        assert answer == b"+OK\r\n", answer

    def restart(self) -> None:
        """The same data, another process."""
        self.keep()
        self.fail_over()

    def drop_connections(self) -> None:
        for connection in [*self._connections]:
            connection.end()

    def connection(self) -> "Connection":
        self._numbers += 1
        made = Connection(self, self._numbers)
        self._connections.append(made)
        return made

    def forget(self, connection: "Connection") -> None:
        if connection in self._connections:
            self._connections.remove(connection)

    def announce(self) -> None:
        """What was published reaches its listeners: all are asked, then one after another waited
        for."""
        listening = [connection for connection in self._connections if connection.is_listening]
        for connection in listening:
            connection.look()
        for connection in listening:
            connection.hand_on_pushed()

    def close(self) -> None:
        self.server.kill()
        if self._replica is not None:
            self._replica.server.kill()
        shutil.rmtree(self.folder)


class Connection(asyncio.Protocol):
    """One client of the engine. What it has sent is executed, also when it has gone meanwhile."""

    def __init__(self, engine: Engine, number: int) -> None:
        self._engine = engine
        self._number = number
        self._asker = Asker(engine.server)
        self._requests = hiredis.Reader(notEnoughData=INCOMPLETE)
        self._waiting: deque[list[bytes]] = deque()
        self._answers: deque[bytes] = deque()  # held back, and those behind them
        self._is_held = False  # a command that is late
        self._subscriptions: set[bytes] = set()
        self._transport: Any = None
        self._client = ""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._client = transport.get_extra_info("peername")[0]

    def connection_lost(self, _: Exception | None) -> None:
        if not self._waiting:
            self._engine.forget(self)
            self._asker.close()

    def end(self) -> None:
        self._waiting.clear()
        self._engine.forget(self)
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._requests.feed(data)
        while (words := self._requests.gets()) is not INCOMPLETE:
            self._waiting.append([bytes(word) for word in words])
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and not self._is_held:
            late = self._engine.late(self._client, called(self._waiting[0]))
            if not late:
                self._answer(self._waiting.popleft())
                continue
            self._is_held = True
            asyncio.get_running_loop().call_later(late, self._execute_late)

    def _execute_late(self) -> None:
        self._is_held = False
        if not self._waiting:
            return
        self._answer(self._waiting.popleft())
        self._go_on()
        if self._transport.is_closing() and not self._waiting:
            self.connection_lost(None)

    def _answer(self, words: list[bytes]) -> None:
        engine = self._engine
        engine.commands += 1
        name = words[0].upper()
        if engine.refusal is not None and name not in (b"HELLO", b"CLIENT", b"SELECT"):
            self._transport.write(engine.refusal)
            return
        engine.server.set_time(engine.now())
        if engine.ends_in is not None and called(words) == engine.ends_in[0]:
            self._end_within(words)
            return
        answer = self._ask(name, words)
        engine.replicated(self._number, name, words)
        if may_publish(words):
            engine.announce()
        lost = engine.lose_answer_of and engine.chance.random() < engine.lose_answer_of
        if lost:
            self._transport.write(answer[: engine.chance.randrange(len(answer))])
            self.end()
            return
        seconds = engine.answers_late(self._client, called(words))
        if seconds or self._answers:
            self._answers.append(answer)
            asyncio.get_running_loop().call_later(seconds, self._send_held)
            return
        self._transport.write(answer)

    def _end_within(self, words: list[bytes]) -> None:
        """The server dies while it executes this, and another one takes over."""
        engine = self._engine
        _, is_kept = engine.ends_in or ("", False)
        engine.ends_in = None
        if is_kept:
            self._asker.ask(*words)
        engine.restart()

    def _send_held(self) -> None:
        if self._answers:
            self._transport.write(self._answers.popleft())

    def _ask(self, name: bytes, words: list[bytes]) -> bytes:
        if name in (b"SUBSCRIBE", b"UNSUBSCRIBE"):
            answer = self._asker.ask(*words)
            answer += self._asker.read_more(len(words) - 2)
            change = set(words[1:])
            self._subscriptions = (
                self._subscriptions | change
                if name == b"SUBSCRIBE"
                else self._subscriptions - change
            )
            return answer
        if name == b"WAIT":
            self._engine.wait_for_replica()
            return b":1\r\n"
        answer = self._asker.ask(*words)
        return told(answer) if name == b"INFO" and answer.startswith(b"$") else answer

    @property
    def is_listening(self) -> bool:
        return bool(self._subscriptions) and not self._transport.is_closing()

    def listen_at(self, server: Server) -> None:
        """Go on listening to another server."""
        self._asker = Asker(server)
        self._asker.ask(b"SUBSCRIBE", *sorted(self._subscriptions))

    def look(self) -> None:
        self._asker.look()

    def hand_on_pushed(self) -> None:
        pushed = self._asker.pushed()
        if pushed and self._client not in self._engine.deaf:
            self._transport.write(pushed)
