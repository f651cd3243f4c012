"""Shares the tests among forks of one process, which has imported and collected all of them.

    pytest -p tests.tools.workers --forks 8

A worker of pytest-xdist begins anew: it imports and collects everything, which takes 3 s of
processor time, and as long again to find out what another has done. A fork has all of it. Each
takes tests file by file, the next one while it begins one; when all files are given out, it takes
half of what is left of another's. What a fork says of a test is reported by the first process. If
one dies, its test has failed, and another takes its place.
"""

import gc
import os
import signal
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from traceback import print_exc
from typing import Any

import pytest
from _pytest import tmpdir
from _pytest.runner import pytest_sessionfinish as tear_down
from _pytest.runner import runtestprotocol

from tests.support.shell import come_back, leave

GC_THRESHOLDS = 20_000, 20, 20
"""Looked for less often than by default, garbage takes a twentieth less of the processor time."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, help="how many processes run the tests")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """None leaves it to pytest itself: there is nothing to share."""
    count = session.config.getoption("forks")
    if not count or session.testsfailed or session.config.option.collectonly:
        return None
    Sharing(session, count).run()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


class Left:
    """What is left to be run, and who is at it: numbers of tests, in groups that stay together."""

    def __init__(self, groups: Sequence[Sequence[int]]) -> None:
        self._groups = deque(deque(group) for group in groups)
        self._of: dict[int, deque[int]] = {}

    def take(self, worker: int) -> int | None:
        """The next one for this worker; None if nothing is left."""
        if not self._of.get(worker):
            self._of[worker] = self._groups.popleft() if self._groups else self._half_of_another()
        return self._of[worker].popleft() if self._of[worker] else None

    def _half_of_another(self) -> deque[int]:
        longest = max(self._of.values(), key=len, default=deque())
        return deque(reversed([longest.pop() for _ in range((len(longest) + 1) // 2)]))

    def give_back(self, numbers: Sequence[int]) -> None:
        self._groups.appendleft(deque(numbers))

    def clear(self) -> None:
        self._groups.clear()
        self._of.clear()


class Worker:
    """A fork, as the first process knows it."""

    def __init__(self, number: int, pid: int, connection: Connection) -> None:
        self.number = number
        self.pid = pid
        self.connection = connection
        self.held: list[int] = []  # the test that it runs, and the one that it runs next


class Sharing:
    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session = session
        self._config = session.config
        self._count = count
        files = groupby(range(len(session.items)), key=lambda each: session.items[each].path)
        self._left = Left([[*numbers] for _, numbers in files])
        self._workers: dict[Connection, Worker] = {}
        self._started = 0

    def run(self) -> None:
        """Give out tests and report what became of them until none is left."""
        self._config.get_terminal_writer().flush()
        gc.freeze()  # what was collected stays, and no worker need look at it
        gc.set_threshold(*GC_THRESHOLDS)
        if reporter := self._config.pluginmanager.getplugin("terminalreporter"):
            reporter.showfspath = False  # tests of many files end at the same time
        for _ in range(min(self._count, len(self._session.items))):
            self._start()
        try:
            while self._workers:
                for connection in wait([*self._workers]):
                    self._hear(self._workers[connection])
                if self._session.shouldfail or self._session.shouldstop:
                    self._left.clear()
        finally:
            for worker in self._workers.values():
                os.kill(worker.pid, signal.SIGINT)
                os.waitpid(worker.pid, 0)

    def _hear(self, worker: Worker) -> None:
        try:
            message = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            self._on_end(worker)
        else:
            self._on_message(worker, message)

    def _start(self) -> None:
        """Fork another worker, which never returns from here."""
        number, basetemp = self._started, self._config._tmp_path_factory.getbasetemp()
        ours, its = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._started += 1
        if pid := os.fork():
            its.close()
            self._workers[ours] = Worker(number, pid, ours)
            return
        status = 1
        try:
            for connection in (ours, *self._workers):
                connection.close()
            become_worker(self._config, number, self._count, basetemp)
            folder = leave()
            fork = Fork(self._session, its)
            self._config.pluginmanager.register(fork)
            try:
                fork.run()
            finally:
                tear_down(self._session)
                come_back(folder)
            status = 0
        except KeyboardInterrupt:
            status = 130
        except BaseException:  # nothing above may go on in a fork
            print_exc()
        finally:
            os._exit(status)

    def _on_message(self, worker: Worker, message: list[dict[str, Any]] | None) -> None:
        if message is None:
            number = self._left.take(worker.number)
            worker.held += [] if number is None else [number]
            with suppress(BrokenPipeError):  # it has died since, which is heard next
                worker.connection.send(number)
            return
        hook = self._config.hook
        reports = [
            hook.pytest_report_from_serializable(config=self._config, data=each) for each in message
        ]
        self._report(worker.held.pop(0), reports)

    def _report(self, number: int, reports: Sequence[pytest.TestReport]) -> None:
        item, hook = self._session.items[number], self._config.hook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports:
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _on_end(self, worker: Worker) -> None:
        self._workers.pop(worker.connection).connection.close()
        status = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        if not worker.held:
            if status:
                self._session.shouldstop = f"a worker ended with status {status} and no test"
            return
        died, *others = worker.held
        item = self._session.items[died]
        problem = f"the worker that ran this ended with status {status}"
        self._report(
            died, [pytest.TestReport(item.nodeid, item.location, {}, "failed", problem, "call")]
        )
        self._left.give_back(others)
        self._start()


class Fork:
    """A worker, as it knows itself: it asks for tests, and tells what became of each."""

    def __init__(self, session: pytest.Session, connection: Connection) -> None:
        self._session = session
        self._connection = connection

    def run(self) -> None:
        running = self._take()
        while running is not None:
            following = self._take()  # what both need stays
            self._session.config.hook.pytest_runtest_protocol(item=running, nextitem=following)
            running = following

    def _take(self) -> pytest.Item | None:
        self._connection.send(None)
        number = self._connection.recv()
        return None if number is None else self._session.items[number]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        told = item.config.hook.pytest_report_to_serializable
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        self._connection.send([told(config=item.config, report=report) for report in reports])
        return True


def become_worker(config: pytest.Config, number: int, count: int, basetemp: Path) -> None:
    """Have what a process that was started anew would have of its own."""
    config.workerinput = {"workerid": f"gw{number}", "workercount": count}
    config.option.basetemp = str(basetemp / f"fork{number}")
    tmpdir.pytest_configure(config)
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
