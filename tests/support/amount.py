"""How much of a thing a test tries: enough in `make test`, more as evidence.

    READERS = amount(500, evidence=2_000)

`make evidence FULL=yes` tries all of it. A test that is evidence as a whole, because what it tries
is long, random or exhaustive, is `@pytest.mark.evidence`: `make test` leaves it out, and names it.
"""

import os

AS_EVIDENCE = "TESTS_AS_EVIDENCE"  # an environment variable


def amount(enough: int, *, evidence: int) -> int:
    return evidence if as_evidence() else enough


def as_evidence() -> bool:
    return AS_EVIDENCE in os.environ
