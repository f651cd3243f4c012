"""The delete guard: one rule for all who delete what is no longer named, at its edges."""

import pytest

from rsnotify.publishing.loads.load import LoadCounts, too_many_deleted
from rsnotify.resourcesync.delete_guard import FEW, MAX_DELETE, too_many
from rsnotify_bridge.options import BridgeOptions
from rsnotify_bridge.rules import held_back
from rsnotify_mirror.plan import Options

EXACT = [
    # deleted, known, max_delete, least that allows it; None: it is allowed
    (0, 0, 10.0, None),
    (0, 0, 0.0, None),
    (0, 1_000, 0.0, None),
    (0, 1_000, float("nan"), None),  # from Python; a command refuses it
    (1, 1_000_000, 0.0, 1),
    (100, 1_000, 10.0, None),
    (101, 1_000, 10.0, 11),
    (1, 10, 10.0, None),
    (1, 9, 10.0, 12),
    (1, 9, 11.0, 12),
    (1, 9, 12.0, None),
    (29, 290, 10.0, None),
    (3, 3, 10.0, 100),
    (3, 3, 99.9, 100),
    (3, 3, 100.0, None),
    (500, 1_000, 49.999, 50),
    (500, 1_000, 50.0, None),
]


@pytest.mark.parametrize(("deleted", "known", "max_delete", "least"), EXACT)
def test_no_more_than_so_many_percent_may_vanish_at_once(deleted, known, max_delete, least):
    refusal = too_many(deleted, known, max_delete)
    if least is None:
        assert refusal is None
        return
    assert refusal == (
        f"{deleted} of {known} resources, which is more than {max_delete:g} %; if that is meant, "
        f"say so with max_delete={least} (in a command: --max-delete {least})"
    )
    assert too_many(deleted, known, least) is None
    assert too_many(deleted, known, least - 1) is not None


FEW_OF_THEM = [
    # deleted, known, max_delete, whether it is allowed where few are believed
    (FEW, FEW + 1, 10.0, True),
    (FEW, FEW, 10.0, False),  # all of them
    (1, 1, 10.0, False),
    (1, 2, 10.0, True),
    (FEW + 1, FEW + 2, 10.0, False),
    (FEW + 1, 110, 10.0, True),
    (FEW + 2, 110, 10.0, False),
    (FEW + 1, 109, 10.0, False),
    (1, 1_000_000, 0.0, False),  # none is none
    (1, 100, 0.1, True),
    (FEW, FEW, 100.0, True),
    (FEW + 5, FEW, 100.0, True),  # more than were counted, as some came meanwhile
]


@pytest.mark.parametrize(("deleted", "known", "max_delete", "is_allowed"), FEW_OF_THEM)
def test_a_few_are_believed_where_others_are_left(deleted, known, max_delete, is_allowed):
    assert (too_many(deleted, known, max_delete, few=FEW) is None) is is_allowed
    assert (held_back(deleted, known, max_delete) is None) is is_allowed


def test_what_says_how_many_are_allowed_can_be_said():
    assert "max_delete=100 " in (too_many(15, 10, 99.0) or "")


@pytest.mark.parametrize(("deleted", "known", "max_delete", "least"), EXACT)
def test_a_load_goes_by_the_same_rule(deleted, known, max_delete, least):
    refusal = too_many_deleted(LoadCounts(known=known, deleted=deleted), max_delete)
    said = too_many(deleted, known, max_delete)
    assert refusal == (None if least is None else f"this would delete {said}")


def test_all_have_one_default():
    defaults = {Options().max_delete, BridgeOptions("http://a.example/", "a").max_delete}
    assert defaults == {MAX_DELETE}
