"""A world: hosts that run the hub and its peers, with one seed for everything that may vary."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from rsnotify.operation.machine import Machine
from rsnotify.outbound import dialler
from rsnotify.process.app import build
from rsnotify.process.composition import Composition
from rsnotify.process.engine import replicas_of, wait_until_usable
from rsnotify.process.settings import Settings
from rsnotify.process.webserver import WebServer, web_config
from tests.evidence.simulation.loop import HOST, Host, SimulatedLoop
from tests.evidence.simulation.network import FakeSocket, Network
from tests.evidence.simulation.virtual import EPOCH

TOKEN = "the-admin-token-of-the-tests"
HUB_PORT = 8000
RESIDENT_BYTES, OPEN_FILES = 64_000_000, 64


class SimulatedMachine(Machine):
    """A machine of the world, on which nothing but time grows."""

    def __init__(self, name: str, process: int, now: Callable[[], float]) -> None:
        self._name, self._process, self._now = name, process, now

    def host_name(self) -> str:
        return self._name

    def process_id(self) -> int:
        return self._process

    def cpu_seconds(self) -> float:
        return self._now() / 10

    def resident_bytes(self) -> int:
        return RESIDENT_BYTES

    def open_files(self) -> int:
        return OPEN_FILES

    def open_files_limit(self) -> int:
        return 1_000 * OPEN_FILES


class World:
    """Hosts, their network, the time, and what happened."""

    def __init__(self, seed: str) -> None:
        self.chance = Random(seed)
        self.loop = SimulatedLoop(Random(f"{seed} timers").random)
        self.hosts: dict[str, Host] = {}
        self.network = Network(self.loop, Random(f"{seed} network"), self.hosts)
        self.story: list[tuple[float, str, str]] = []
        self.errors: list[str] = []
        self._processes = itertools.count(1)
        self.loop.set_exception_handler(self._note_error)
        dialler._getaddrinfo = self._look_up
        dialler.Dialler.open_socket = lambda *_: FakeSocket()
        self._graveyard: list[Any] = []  # what a crash has stopped must not be freed: it would act

    def _look_up(self, name: str, port: int) -> list[tuple[Any, ...]]:
        return [(2, 1, 6, "", (self.network.address_of(name), port))]

    # --- time ------------------------------------------------------------------------------------

    def now(self) -> float:
        return self.loop.time()

    def wall(self) -> float:
        """The wall clock of the host that asks."""
        host = HOST.get()
        return EPOCH + self.loop.time() + (host.clock_moved if host else 0.0)

    def note(self, who: str, what: str) -> None:
        self.story.append((self.now(), who, what))

    def _note_error(self, _: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(f"{context.get('message')}: {error!r}")
        logging.getLogger("world").error("%s", context.get("message"), exc_info=error)

    # --- hosts -----------------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        """The machine of this name; a new one, if the last one has crashed."""
        found = self.hosts.get(name)
        if found is None or not found.is_alive:
            found = self.hosts[name] = Host(name)
        return found

    def run_on(self, host: Host, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        return self.loop.create_task(work, name=name, context=host.context())

    def crash(self, name: str) -> None:
        """Stop everything on it at once; its peers learn that from resets."""
        host = self.hosts[name]
        self.note(name, "crashes")
        self.network.reset_all(host)
        host.is_alive = False
        for key in [key for key, (owner, _) in self.network.listening.items() if owner is host]:
            del self.network.listening[key]
        self.loop.stop_all_of(host)
        self._graveyard += asyncio.all_tasks(self.loop)

    # --- the hub ---------------------------------------------------------------------------------

    def start_hub(self, name: str, redis_url: str, sets: tuple[str, ...], **settings: Any) -> None:
        host = self.host(name)
        task = self.run_on(host, self._hub(host, redis_url, sets, settings), f"hub {name}")
        task.add_done_callback(lambda ended: self._hub_ended(host, ended))

    def _hub_ended(self, host: Host, task: asyncio.Task[Any]) -> None:
        if host.is_alive and not task.cancelled():
            self.errors.append(f"the hub on {host.name} ended: {task.exception()!r}")

    async def _hub(
        self, host: Host, redis_url: str, sets: tuple[str, ...], settings: dict[str, Any]
    ) -> None:
        chosen = Settings(redis_url=redis_url, data=Path("/nonexistent"), **settings)
        url = f"http://{host.name}:{HUB_PORT}"
        await wait_until_usable(redis_url, warn=False, replicas=replicas_of(chosen, redis_url))
        number = sum(map(ord, host.name))
        machine = SimulatedMachine(host.name, next(self._processes), self.now)
        composition = Composition(chosen, redis_url, TOKEN, url, port=number, machine=machine)
        await composition.open(sets)
        drain = partial(composition.channels.drain, chosen.drain_seconds)
        config = web_config(build(composition), chosen, composition.connections)
        config.host, config.port = host.name, HUB_PORT
        ready = partial(self.note, host.name, "is ready")
        server = WebServer(config, ready, drain, is_worker=False)
        await composition.run(server.serve())

    # --- a history -------------------------------------------------------------------------------

    def run(self, history: Callable[["World"], Coroutine[Any, Any, None]], seconds: float) -> None:
        """Run it; it must end within so many seconds of the world's time."""
        asyncio.set_event_loop(self.loop)
        teller = self.host("teller")
        task = self.run_on(teller, history(self), "history")

        async def bounded() -> None:
            done, _ = await asyncio.wait([task], timeout=seconds)
            if not done:
                raise TimeoutError(f"the history did not end within {seconds:.0f} s")
            task.result()

        self.loop.run_until_complete(self.run_on(teller, bounded(), "bound"))
