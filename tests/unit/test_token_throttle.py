"""Who tries tokens waits; who has a right one, or only repeats a wrong one, does not."""

from itertools import count

import pytest

from rsnotify.access.throttle import FREE_TRIES, KNOWN, LONGEST_SECONDS, SECONDS_EACH, TokenThrottle

HERE, THERE = "192.0.2.1", "192.0.2.2"


class Tried(TokenThrottle):
    """TokenThrottle whose time passes when told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.tried = count()
        super().__init__(lambda: self.now)

    def wrong(self, number: int, address: str = HERE) -> None:
        for _ in range(number):
            self.was_wrong(address, f"wrong {next(self.tried)}")


@pytest.fixture
def throttle() -> Tried:
    return Tried()


def test_20_wrong_tokens_are_free_and_then_one_a_second(throttle):
    throttle.wrong(FREE_TRIES - 1)
    assert throttle.seconds_to_wait(HERE, "the twentieth") == 0
    throttle.wrong(1)
    assert throttle.seconds_to_wait(HERE, "the next") == SECONDS_EACH
    throttle.now += SECONDS_EACH
    assert throttle.seconds_to_wait(HERE, "the next") == 0
    throttle.wrong(1)
    assert throttle.seconds_to_wait(HERE, "the next but one") == SECONDS_EACH


def test_another_address_does_not_wait(throttle):
    throttle.wrong(FREE_TRIES + 1)
    assert throttle.seconds_to_wait(THERE, "another") == 0


def test_a_right_token_is_not_slowed_where_somebody_else_guesses(throttle):
    throttle.was_right(HERE, "right")
    throttle.wrong(10 * FREE_TRIES)
    assert throttle.seconds_to_wait(HERE, "right") == 0


def test_where_it_is_right_elsewhere_helps_nobody_who_guesses_it(throttle):
    throttle.was_right(THERE, "right")
    throttle.wrong(FREE_TRIES + 1)
    assert throttle.seconds_to_wait(HERE, "right") > 0


def test_to_repeat_a_wrong_token_is_no_guess(throttle):
    for _ in range(10 * FREE_TRIES):
        throttle.was_wrong(HERE, "revoked")
    assert throttle.seconds_to_wait(HERE, "another") == 0
    throttle.wrong(2 * FREE_TRIES)
    assert throttle.seconds_to_wait(HERE, "revoked") == 0


def test_a_token_that_was_right_and_is_revoked_counts_as_wrong(throttle):
    throttle.was_right(HERE, "right")
    throttle.was_wrong(HERE, "right")
    throttle.wrong(FREE_TRIES)
    assert throttle.seconds_to_wait(HERE, "another") > 0


def test_a_token_that_was_wrong_before_it_was_right_is_no_guess(throttle):
    throttle.wrong(FREE_TRIES - 1)
    throttle.was_wrong(HERE, "made later")
    throttle.was_right(HERE, "made later")
    throttle.was_wrong(HERE, "made later")
    assert throttle.seconds_to_wait(HERE, "another") == SECONDS_EACH
    assert throttle.seconds_to_wait(HERE, "made later") == 0


def test_nobody_waits_longer_than_a_minute(throttle):
    throttle.wrong(1_000)
    assert throttle.seconds_to_wait(HERE, "another") == LONGEST_SECONDS


def test_an_attacker_who_fills_the_memory_only_makes_the_hub_forget(throttle):
    throttle.wrong(FREE_TRIES + 1)
    for number in range(KNOWN):
        throttle.was_wrong(f"address {number}", "wrong")
    assert throttle.seconds_to_wait(HERE, "another") == 0


GUESSES = FREE_TRIES + 1  # so that an address must wait


@pytest.mark.parametrize(("one_more", "is_known"), [(0, True), (1, False)])
@pytest.mark.parametrize(
    ("was", "others"), [(Tried.was_right, KNOWN - 1), (Tried.was_wrong, KNOWN - 1 - GUESSES)]
)
def test_so_many_tokens_are_known_and_no_more(throttle, was, others, one_more, is_known):
    was(throttle, HERE, "known")
    for number in range(others + one_more):
        was(throttle, f"address {number}", "known")
    throttle.wrong(GUESSES)
    assert (throttle.seconds_to_wait(HERE, "known") == 0) == is_known


def test_a_token_in_constant_use_is_not_forgotten_for_others(throttle):
    def others(number: int) -> None:
        for _ in range(number):
            throttle.was_right(HERE, f"another {next(throttle.tried)}")

    throttle.was_right(HERE, "ours")
    others(KNOWN - 1)
    throttle.was_right(HERE, "ours")
    others(KNOWN - 1)
    throttle.wrong(FREE_TRIES + 1)
    assert throttle.seconds_to_wait(HERE, "ours") == 0
    others(1)
    assert throttle.seconds_to_wait(HERE, "ours") > 0
