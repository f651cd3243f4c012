"""How much of a thing a test tries: enough in `make test`, more as evidence.

    READERS = amount(500, evidence=2_000)
    @pytest.mark.parametrize("kind", enough(KINDS, 3))  # the first three in `make test`

`make evidence FULL=yes` tries all of an amount, `make evidence` all that is parametrized. A test
that is evidence as a whole, because what it tries is long, random or exhaustive, is
`@pytest.mark.evidence`: `make test` leaves it out, and names it.
"""

import os
from collections.abc import Sequence
from typing import Any

import pytest
from _pytest.mark import ParameterSet

AS_EVIDENCE = "TESTS_AS_EVIDENCE"  # an environment variable


def amount(enough: int, *, evidence: int) -> int:
    return evidence if as_evidence() else enough


def enough(values: Sequence[Any], count: int) -> list[Any]:
    """For `parametrize`, where each value tries the same code: the first are enough."""
    return [*values[:count], *map(_as_evidence, values[count:])]


def _as_evidence(value: object) -> ParameterSet:
    if isinstance(value, ParameterSet):
        return pytest.param(*value.values, id=value.id, marks=[*value.marks, pytest.mark.evidence])
    return pytest.param(value, marks=pytest.mark.evidence)


def as_evidence() -> bool:
    return AS_EVIDENCE in os.environ
