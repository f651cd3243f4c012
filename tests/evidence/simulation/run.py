"""Many histories on all cores, each in a process of its own; the shortest that fails is shown.

A process is forked for each history from one that has loaded everything, so nothing of a history is
left for the next one, and the same seed begins from the same state.
"""

import argparse
import gc
import json
import logging
import os
import select
import sys
import traceback
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import islice
from math import inf
from pathlib import Path
from random import Random
from signal import SIG_DFL, SIGPIPE, signal
from typing import NamedTuple, NoReturn

from redis.exceptions import RedisError

from rsnotify.errors import Rejected, TryAgain
from tests.evidence.simulation import clients, days, destinations, edges, virtual  # noqa: F401
from tests.evidence.simulation.engine import PORT, Engine, Unusable, require_usable
from tests.evidence.simulation.known import COMMAND, FAULTS
from tests.evidence.simulation.scenarios import LONG, SCENARIOS
from tests.evidence.simulation.world import World

LONGEST_SECONDS = 600.0  # of a world's time
LONGEST_DAYS = 30  # of a long history
PROGRESS_SECONDS = 30.0
STORY_LINES = 100
NOT_AGAIN = "the same seed has told two stories, with these fingerprints"


class Result(NamedTuple):
    scenario: str
    seed: int
    failure: str | None
    story: list[tuple[float, str, str]]
    seconds: float
    virtual_seconds: float
    steps: int
    fingerprint: str

    def beside(self, other: str) -> "Result":
        """A failure, if the same history had another fingerprint before."""
        if self.failure or self.fingerprint == other:
            return self
        return self._replace(failure=f"{NOT_AGAIN}: {other}, {self.fingerprint}")


class Bugs(logging.Handler):
    """Notes each error that the hub has caught and logged, but that nobody foresaw."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info and record.exc_info[1]
        if error and not isinstance(error, Rejected | TryAgain | RedisError | OSError):
            self._errors.append(f"logged: {record.getMessage()}: {error!r}")


def order_sets() -> None:
    """…of what a hub goes through to write to it, by when each was made."""
    from rsnotify.channels.channel import ChannelReaders
    from rsnotify.channels.reader import Reader
    from rsnotify.channels.several import Member, SeveralChannels
    from rsnotify.websub.share import Subscriber

    virtual.in_order(Reader, ChannelReaders, Member, SeveralChannels, Subscriber)


def history(name: str, seed: int, binary: str) -> Result:
    """One history in this process, which must not run another."""
    text = f"{name} {seed}"
    world = World(text)
    began = virtual.real_monotonic()
    failure = None
    gc.disable()
    order_sets()
    logging.getLogger("rsnotify").addHandler(Bugs(world.errors))
    with virtual.given_by(world.now, world.wall, text):
        redis = Engine(world.host("redis"), Random(f"{text} redis"), world.now, binary)
        world.host("redis").context().run(world.network.listen, redis.connection, PORT)
        try:
            longest = LONGEST_DAYS * 86_400 if name in LONG else LONGEST_SECONDS
            world.run(lambda _: SCENARIOS[name](world, redis), longest)
        except Exception as error:
            failure = "".join(traceback.format_exception_only(error)).strip()
            if type(error).__name__ not in ("Wrong", "TimeoutError"):
                failure = traceback.format_exc()
        finally:
            redis.close()
    if failure is None and virtual.threads:
        failure = f"threads begin in the simulated world: {', '.join(virtual.threads)}"
    seconds = virtual.real_monotonic() - began
    return Result(
        name,
        seed,
        failure,
        world.story,
        seconds,
        world.now(),
        redis.commands,
        world.network.fingerprint,
    )


class Worker:
    """A process that does nothing but fork: each history begins in the same state of memory, on
    which the order of sets depends."""

    def __init__(self, binary: str, others: Sequence["Worker"]) -> None:
        jobs, self.jobs = os.pipe()
        self.results, results = os.pipe()
        self.is_idle = True
        if os.fork():
            os.close(jobs)
            os.close(results)
            return
        for each in (self, *others):
            os.close(each.jobs)  # it ends when nobody else has its jobs
            os.close(each.results)  # …and when nobody reads what it has to tell
        for line in os.fdopen(jobs):
            name, seed = line.split()
            child = os.fork()
            if not child:
                _run_and_tell(name, int(seed), binary, results)
            _, status = os.waitpid(child, 0)
            if status == SIGPIPE:
                os._exit(0)
            if status:
                lost = Result(name, int(seed), f"its process ended: {status}", [], 0, 0, 0, "")
                os.write(results, json.dumps(lost).encode() + b"\n")
        os._exit(0)

    def fileno(self) -> int:
        return self.results

    def begin(self, name: str, seed: int) -> None:
        os.write(self.jobs, f"{name} {seed}\n".encode())
        self.is_idle = False

    def result(self) -> Result:
        data = b""
        while not data.endswith(b"\n"):
            data += os.read(self.results, 1 << 20)
        self.is_idle = True
        return Result(*json.loads(data))

    def end(self) -> None:
        os.close(self.jobs)
        os.close(self.results)
        os.wait()


def _run_and_tell(name: str, seed: int, binary: str, results: int) -> NoReturn:
    try:
        found = json.dumps(history(name, seed, binary)).encode() + b"\n"
        signal(SIGPIPE, SIG_DFL)  # it ends here if nobody listens any more
        while found:
            found = found[os.write(results, found) :]
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def results(jobs: Iterator[tuple[str, int]], binary: str, cores: int) -> Iterator[Result]:
    """Of each job, as they end."""
    workers: list[Worker] = []
    while len(workers) < cores:
        workers.append(Worker(binary, workers))
    try:
        for name, seed in jobs:
            idle = next((each for each in workers if each.is_idle), None)
            if idle is None:
                idle, *_ = select.select(workers, [], [])[0]
                yield idle.result()
            idle.begin(name, seed)
        for worker in workers:
            if not worker.is_idle:
                yield worker.result()
    finally:
        for worker in workers:
            worker.end()


def _chosen(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make simulate")
    parser.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []])
    parser.add_argument("--seed", type=int, help="one history, with its story")
    parser.add_argument("--fault", choices=FAULTS, help="a fault to put back, and to be found")
    parser.add_argument("--first", type=int, help="the first seed; by default a new one")
    parser.add_argument("--seconds", type=float, default=60, help="no history begins after these")
    parser.add_argument(
        "--histories", type=int, help="so many in all, however long it takes, until one fails"
    )
    parser.add_argument("--long", action="store_true", help="the long ones, of days each")
    parser.add_argument(
        "--redis", required=True, help="a server, or `packaged`; else the first of this machine"
    )
    parser.add_argument("--part", default="1/1", help="2/4: the second of every four scenarios")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--count", type=int, default=10**9, help="so many of each scenario")
    parser.add_argument("--times", type=int, default=1, help="run each so often: nothing differs")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    given = _chosen(arguments)
    binary = str(Path(given.redis).absolute())
    try:
        require_usable(binary)
    except Unusable as error:
        print(error, file=sys.stderr)
        return 2
    shown = logging.WARNING if given.seed is not None else logging.CRITICAL
    logging.basicConfig(level=shown, format="%(name)s: %(message)s")
    logging.getLogger().handlers[0].setLevel(shown)
    logging.getLogger("rsnotify").setLevel(logging.WARNING)
    names = given.scenarios or (
        [FAULTS[given.fault].scenario]
        if given.fault
        else [name for name in SCENARIOS if (name in LONG) == given.long]
    )
    part, parts = map(int, given.part.split("/"))
    names = names[part - 1 :: parts]
    gc.freeze()
    if given.seed is not None:
        (result,) = results(iter([(names[0], given.seed)]), binary, 1)
        return _show(result, given.fault)
    first = Random().randrange(10**9) if given.first is None else given.first
    began = virtual.real_monotonic()
    until = began + (given.seconds if given.histories is None else inf)
    failed: list[Result] = []
    done: dict[str, list[Result]] = {name: [] for name in names}
    progress = Progress(began, given.histories)

    def jobs() -> Iterator[tuple[str, int]]:
        for seed in range(first, first + given.count):
            for name in names:
                if virtual.real_monotonic() > until:
                    return
                yield from [(name, seed)] * given.times

    told: dict[tuple[str, int], str] = {}
    for found in results(islice(jobs(), given.histories), binary, given.cores):
        result = found.beside(told.setdefault(found[:2], found.fingerprint))
        done[result.scenario].append(result)
        progress.count(failed)
        if result.failure:
            failed.append(result)
            print(f"{result.scenario} {result.seed}: {result.failure}", flush=True)
            if given.fault or given.histories is not None:
                break
    for name, found in done.items():
        each = sum(result.seconds for result in found) / max(1, len(found))
        wrong = sum(result.failure is not None for result in found)
        print(f"{name:20} {len(found):6} histories, {wrong} failed, {each:.2f} s each")
    print(f"{progress.done} histories, {len(failed)} failed, first seed {first}")
    print(f"fingerprint of all: {sha256(repr(sorted(told.items())).encode()).hexdigest()[:16]}")
    if failed:
        print(f"first failed: {failed[0].scenario} {failed[0].seed}; the shortest that failed:")
        _show(min(failed, key=lambda result: len(result.story)), given.fault)
    return int(bool(failed))


class Progress:
    """A line now and then, for who waits for a number of histories."""

    def __init__(self, began: float, histories: int | None) -> None:
        self.done = 0
        self._began = self._said = began
        self._histories = histories

    def count(self, failed: Sequence[Result]) -> None:
        self.done += 1
        now = virtual.real_monotonic()
        if self._histories is None or now < self._said + PROGRESS_SECONDS:
            return
        self._said = now
        left = (now - self._began) / self.done * (self._histories - self.done)
        print(
            f"{self.done} of {self._histories} histories, {len(failed)} failed, "
            f"some {left / 60:.0f} minutes left",
            flush=True,
        )


Line = tuple[float, str, str]


def shortened(story: Sequence[Line], most: int = STORY_LINES) -> list[Line]:
    """What somebody does again and again is one line, and of a long story the end is left.

    >>> shortened([(0.1, "source", "503"), (0.2, "source", "503"), (0.3, "a", "crashes")])
    [(0.1, 'source', '503 (2 times, until 0.200000)'), (0.3, 'a', 'crashes')]
    """
    folded: list[list[Line]] = []
    for line in story:
        if folded and folded[-1][0][1:] == line[1:]:
            folded[-1].append(line)
        else:
            folded.append([line])
    lines = [
        (when, who, what if len(run) == 1 else f"{what} ({len(run)} times, until {run[-1][0]:.6f})")
        for run in folded
        for when, who, what in run[:1]
    ]
    left_out = len(lines) - most
    if left_out > 0:
        lines = [(0.0, "…", f"{left_out} lines before"), *lines[left_out:]]
    return lines


def _show(result: Result, fault: str | None) -> int:
    print(f"{'seconds':>10}  {'who':12} what")
    for when, who, what in shortened(result.story):
        print(f"{when:10.6f}  {who:12} {what}")
    print(f"{result.seconds:.2f} s for {result.virtual_seconds:.1f} s, {result.steps} commands")
    print(result.failure or "all is well")
    print(f"fingerprint: {result.fingerprint}")
    again = f"make simulate SCENARIO={result.scenario} SEED={result.seed}"
    if fault is not None:
        again = f"{COMMAND} --fault {fault} --seed {result.seed}"
    print(f"again: {again}")
    return int(result.failure is not None)
