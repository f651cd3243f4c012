"""Who tries tokens waits; who has a right one, or only repeats a wrong one, does not."""

from itertools import count

import pytest

from rsnotify.core.token_throttle import FREE_TRIES, KNOWN, LONGEST_SECONDS, SECONDS_EACH, Guesses

HERE, THERE = "192.0.2.1", "192.0.2.2"


class Tried(Guesses):
    """Guesses whose time passes when told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.tried = count()
        super().__init__(lambda: self.now)

    def wrong(self, number: int, address: str = HERE) -> None:
        for _ in range(number):
            self.was_wrong(address, f"wrong {next(self.tried)}")


@pytest.fixture
def guesses() -> Tried:
    return Tried()


def test_20_wrong_tokens_are_free_and_then_one_a_second(guesses: Tried) -> None:
    guesses.wrong(FREE_TRIES - 1)
    assert guesses.seconds_to_wait(HERE, "the twentieth") == 0
    guesses.wrong(1)
    assert guesses.seconds_to_wait(HERE, "the next") == SECONDS_EACH
    guesses.now += SECONDS_EACH
    assert guesses.seconds_to_wait(HERE, "the next") == 0
    guesses.wrong(1)
    assert guesses.seconds_to_wait(HERE, "the next but one") == SECONDS_EACH


def test_another_address_does_not_wait(guesses: Tried) -> None:
    guesses.wrong(FREE_TRIES + 1)
    assert guesses.seconds_to_wait(THERE, "another") == 0


def test_a_right_token_is_not_slowed_where_somebody_else_guesses(guesses: Tried) -> None:
    guesses.was_right(HERE, "right")
    guesses.wrong(10 * FREE_TRIES)
    assert guesses.seconds_to_wait(HERE, "right") == 0


def test_where_it_is_right_elsewhere_helps_nobody_who_guesses_it(guesses: Tried) -> None:
    guesses.was_right(THERE, "right")
    guesses.wrong(FREE_TRIES + 1)
    assert guesses.seconds_to_wait(HERE, "right") > 0


def test_to_repeat_a_wrong_token_is_no_guess(guesses: Tried) -> None:
    for _ in range(10 * FREE_TRIES):
        guesses.was_wrong(HERE, "revoked")
    assert guesses.seconds_to_wait(HERE, "another") == 0
    guesses.wrong(2 * FREE_TRIES)
    assert guesses.seconds_to_wait(HERE, "revoked") == 0


def test_a_token_that_was_right_and_is_revoked_counts_as_wrong(guesses: Tried) -> None:
    guesses.was_right(HERE, "right")
    guesses.was_wrong(HERE, "right")
    guesses.wrong(FREE_TRIES)
    assert guesses.seconds_to_wait(HERE, "another") > 0


def test_nobody_waits_longer_than_a_minute(guesses: Tried) -> None:
    guesses.wrong(1_000)
    assert guesses.seconds_to_wait(HERE, "another") == LONGEST_SECONDS


def test_an_attacker_who_fills_the_memory_only_makes_the_hub_forget(guesses: Tried) -> None:
    guesses.wrong(FREE_TRIES + 1)
    for number in range(KNOWN):
        guesses.was_wrong(f"address {number}", "wrong")
    kept = (guesses._settled, guesses._right, guesses._wrong)
    assert max(map(len, kept)) == KNOWN
    assert guesses.seconds_to_wait(HERE, "another") == 0
