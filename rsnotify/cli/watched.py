"""How those who run for long are watched: numbers for Prometheus, and what `--status` ends with.

Rules that hold here: a file of numbers that cannot be written is named at once, and nothing begins.
Later that is said once and ends nothing, for the numbers' own time shows that they are old. The
last numbers are those of the end. Nothing here knows what is counted.
"""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, NamedTuple

from typer import Option

from rsnotify.errors import InvalidSettings
from rsnotify_client.queue import OutboxError
from rsnotify_client.textfile import check, write

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
"""Between two looks at how it goes."""

MaxBehind = Annotated[
    float,
    Option(min=0, metavar="SECONDS", help="With --status: how far behind is still in step."),
]


class StepVerdict(NamedTuple):
    """Whether one of those that are watched is in step, and why not."""

    is_well: bool
    why: str = ""

    def __str__(self) -> str:
        said = "IN STEP" if self.is_well else "OUT OF STEP"
        return f"{said}: {self.why}" if self.why else said

    @property
    def exit_status(self) -> int:
        return 0 if self.is_well else 1


def judge(*, is_in_step: bool, behind_seconds: float | None, max_behind: float) -> StepVerdict:
    """In step is what was in step when it was looked at last, not too long ago.

    >>> str(judge(is_in_step=True, behind_seconds=100.0, max_behind=60.0))
    'OUT OF STEP: 100 s behind, and 60 s are allowed'
    """
    if not is_in_step or behind_seconds is None:
        return StepVerdict(False)
    if behind_seconds <= max_behind:
        return StepVerdict(True)
    return StepVerdict(False, f"{behind_seconds:.0f} s behind, and {max_behind:g} s are allowed")


def worst(verdicts: Iterable[StepVerdict]) -> StepVerdict:
    """That of all: the first which is not well; where nothing is watched, nothing is in step."""
    found = list(verdicts)
    return next((each for each in found if not each.is_well), StepVerdict(bool(found)))


class Numbers:
    """The file of numbers that a command writes, if it was asked to."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._said = ""
        if path is not None:
            check(path)

    def write(self, text: Callable[[], str]) -> None:
        """Write what this returns, if that can be counted and written now."""
        if self._path is None:
            return
        try:
            write(self._path, text())
        except (InvalidSettings, OutboxError) as error:
            if str(error) != self._said:
                log.warning("%s", error)
            self._said = str(error)
        else:
            self._said = ""
