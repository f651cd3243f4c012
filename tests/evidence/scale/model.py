"""A simulated deployment: hub processes on a core each, one Redis, readers, a Source.

It knows what the hub does: a change is made durable, every process sends it to its readers in one
round, and what comes meanwhile goes into the next round. What each of that costs is measured
(`costs`). Times of receipt are not simulated one by one: in a round they are evenly spread. Readers
have machines of their own, or share a core as those of a benchmark do: then they wait for each
other.
"""

from dataclasses import dataclass, field
from math import log
from random import Random

from rsnotify_client.answer import HUB_BACKOFF
from tests.evidence.scale.events import Clock, Core

SAMPLES = 32  # of the readers of a round
HERD_PATIENCE_SECONDS = 10.0  # how long a reader waits for an answer to its handshake


@dataclass(frozen=True)
class Costs:
    """Seconds of one core, but for `write`: by the number of readers that a process has."""

    publish: float  # a change: from its request to the round, in the hub
    append: float  # … in Redis, with its fsync
    read_back: float  # a change that another process has appended
    write: dict[int, float]  # one notification to one reader
    handshake: float  # one reader that connects
    receive: dict[int, float] = field(default_factory=dict)  # one notification, by a reader

    def write_among(self, readers: int) -> float:
        return _among(readers, self.write)

    def receive_among(self, readers: int) -> float:
        return _among(readers, self.receive)


def _among(readers: int, costs: dict[int, float]) -> float:
    """More sockets cost more each, as caches hold less of them: a straight line over log."""
    (few, cheap), (many, dear) = sorted(costs.items())
    slope = (dear - cheap) / log(many / few)
    return max(min(cheap, dear), cheap + slope * log(max(readers, 1) / few))


@dataclass(frozen=True)
class Setup:
    readers: int
    processes: int = 1
    changes_a_second: float = 0  # 0: the next one when everybody has the last one
    seconds: float = 10.0
    slow_share: float = 0.0  # of the readers: take one notification in `slow_seconds`
    slow_seconds: float = 5.0
    redis_is_away: tuple[float, float] = (0.0, 0.0)
    readers_share_a_core: bool = False  # as those of a benchmark


@dataclass
class Outcome:
    published: int = 0
    deliveries: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    busiest: float = 0.0  # share of a core that the busiest process used
    redis: float = 0.0

    def percentile(self, share: float) -> float:
        return sorted(self.latencies)[int(share * (len(self.latencies) - 1))]


class Process:
    """One hub process: its readers, and the changes that wait for its next round."""

    def __init__(self, deployment: "Deployment", readers: int) -> None:
        self.core = Core(deployment.clock)
        self._deployment = deployment
        slow = int(readers * deployment.setup.slow_share)
        self._fast, self._slow = readers - slow, slow
        self._write = deployment.costs.write_among(readers)
        self._waiting: list[float] = []
        self._is_sending = False
        self._slow_at = float("-inf")

    def push(self, published: float) -> None:
        self._waiting.append(published)
        if not self._is_sending:
            self._send()

    def _send(self) -> None:
        self._is_sending = bool(self._waiting)
        if not self._waiting:
            return
        taken, self._waiting = self._waiting, []
        readers = self._fast + self._slow_ready()
        seconds = readers * self._write
        begins = self.core.do(seconds, self._send)
        self._deployment.outcome.deliveries += readers
        for sample in range(1, SAMPLES + 1):
            at = begins + seconds * sample / SAMPLES
            self._arrive(at, taken, readers / SAMPLES, is_last=sample == SAMPLES)

    def _arrive(self, at: float, taken: list[float], readers: float, *, is_last: bool) -> None:
        deployment = self._deployment
        deployment.clock.at(at, lambda: deployment.arrived(taken, readers, is_last=is_last))

    def _slow_ready(self) -> int:
        now = self._deployment.clock.now
        if now - self._slow_at < self._deployment.setup.slow_seconds:
            return 0
        self._slow_at = now
        return self._slow


class Deployment:
    """Runs one setup to its end."""

    def __init__(self, costs: Costs, setup: Setup, seed: int = 1) -> None:
        self.costs, self.setup = costs, setup
        self.clock, self.outcome = Clock(), Outcome()
        self._random = Random(seed)
        self._redis, self._readers = Core(self.clock), Core(self.clock)
        self._receive = costs.receive_among(setup.readers) if setup.readers_share_a_core else 0.0
        share, more = divmod(setup.readers, setup.processes)
        self.processes = [
            Process(self, share + (number < more)) for number in range(setup.processes)
        ]
        self._unsent: dict[float, int] = {}  # in how many processes a change is yet to be sent

    def run(self) -> Outcome:
        away, back = self.setup.redis_is_away
        if back > away:
            self.clock.at(away, lambda: self._redis.stop_until(back))
        self.clock.at(0.0, self._publish)
        self.clock.run()
        outcome = self.outcome
        outcome.seconds = max(self.clock.now, 1e-9)
        outcome.busiest = max(each.core.busy for each in self.processes) / outcome.seconds
        outcome.redis = self._redis.busy / outcome.seconds
        return outcome

    def _publish(self) -> None:
        now, first = self.clock.now, self.processes[0]
        if now >= self.setup.seconds:
            return
        self.outcome.published += 1
        self._unsent[now] = len(self.processes)
        first.core.do(self.costs.publish, lambda: self._append(now))
        if self.setup.changes_a_second:
            pause = self._random.expovariate(self.setup.changes_a_second)
            self.clock.at(now + pause, self._publish)

    def _append(self, published: float) -> None:
        self._redis.do(self.costs.append, lambda: self._tell(published))

    def _tell(self, published: float) -> None:
        self.processes[0].push(published)
        for other in self.processes[1:]:
            other.core.do(self.costs.read_back, lambda other=other: other.push(published))

    def arrived(self, published: list[float], readers: float, *, is_last: bool) -> None:
        """Some readers have it on their socket, and take it when they are free."""

        def received() -> None:
            self.outcome.latencies += [self.clock.now - each for each in published]
            if is_last:
                self._sent(published)

        self._readers.do(readers * self._receive, received)

    def _sent(self, published: list[float]) -> None:
        for each in published:
            self._unsent[each] -= 1
            if not self._unsent[each] and not self.setup.changes_a_second:
                self._publish()


def herd_seconds(costs: Costs, readers: int, seed: int = 1) -> float:
    """How long it takes until all readers of a process are back, after a restart of everything."""
    clock, random = Clock(), Random(seed)
    core, back = Core(clock), [0.0]

    def come(attempt: int) -> None:
        began = clock.now

        def served() -> None:
            if clock.now - began <= HERD_PATIENCE_SECONDS:
                back[0] = clock.now
            else:
                later = clock.now + HUB_BACKOFF.seconds(attempt, random.random())
                clock.at(later, lambda: come(attempt + 1))

        core.do(costs.handshake, served)

    for _ in range(readers):
        clock.at(HUB_BACKOFF.seconds(0, random.random()), lambda: come(1))
    clock.run()
    return back[0]
