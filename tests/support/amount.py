"""How much of a thing a test tries: enough in `make test`, much in `make soak SOAK_ARGS=amounts`.

    READERS = amount(500, much=2_000)

A test that is worth its time only now and then is `@pytest.mark.much`: `make test` leaves it out.
"""

import os

MUCH = "TESTS_TRY_MUCH"  # an environment variable


def amount(enough: int, *, much: int) -> int:
    return much if tries_much() else enough


def tries_much() -> bool:
    return MUCH in os.environ
