"""What plants faults: each change is made where it is meant, or it is said that it cannot be."""

import ast

import pytest

from tests.evidence.simulation.known import FAULTS, ScriptFault
from tests.evidence.simulation.mutation import (
    NotThere,
    becomes,
    before,
    behind,
    changed,
    drop,
    swap,
    unsaid,
)

CODE = """
async def act(self, given):
    first = await self.look(given)
    second = first + given
    if second > given:
        self.told += 1
        await self.tell(first, to=given)
    return second
"""


def after(change):
    tree = ast.parse(CODE)
    change(tree)
    compile(ast.fix_missing_locations(tree), "changed", "exec")
    return [line.strip() for line in ast.unparse(tree).splitlines()]


BEFORE = [line.strip() for line in ast.unparse(ast.parse(CODE)).splitlines()]


@pytest.mark.parametrize(
    ("change", "gone", "new"),
    [
        (swap("second>given", "False"), "if second > given:", "if False:"),
        (drop("self.tell"), "await self.tell(first, to=given)", "pass"),
        (drop("self.told"), "self.told += 1", "pass"),
        (becomes("second", "second = given; first = 1"), "second = first + given", "first = 1"),
        (becomes("return second", "return None"), "return second", "return None"),
        (
            unsaid("self.tell", "to"),
            "await self.tell(first, to=given)",
            "await self.tell(first)",
        ),
    ],
)
def test_a_change_is_made_where_it_is_meant(change, gone, new):
    lines = after(change)
    assert gone in BEFORE
    assert gone not in lines
    assert new in lines


def test_a_statement_is_put_before_another_or_moved_behind_it():
    assert after(before("second", "given = 1"))[1:4] == [BEFORE[1], "given = 1", BEFORE[2]]
    assert after(behind("first", "second"))[1:3] == [BEFORE[2], BEFORE[1]]


@pytest.mark.parametrize(
    "change",
    [
        swap("given", "1"),  # several times
        swap("nothing", "1"),
        drop("nothing"),
        becomes("third", "third = 1"),
        behind("second", "first"),  # it stands before
        behind("first", "self.tell"),  # in another block
        unsaid("self.tell", "by"),
        unsaid("self.nothing", "to"),
    ],
)
def test_what_is_not_there_once_is_refused(change):
    with pytest.raises(NotThere, match=r"^\d times, and not once, there is "):
        after(change)


@pytest.mark.parametrize(
    "function",
    ["rsnotify.live.feed.Feed.nothing", "rsnotify.live.nothing.Feed", "rsnotify.live.feed.No.skip"],
)
def test_a_function_that_is_not_there_is_refused(function):
    with pytest.raises(NotThere, match=function):
        changed(function, drop("self"))


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_changes_the_code_as_it_is(fault):
    path, broken = fault.broken()
    if isinstance(broken, str):
        assert broken != path.read_text()
    else:
        assert ast.dump(broken) != ast.dump(ast.parse(path.read_text()))
        compile(broken, str(path), "exec")


def test_a_line_of_a_script_that_is_not_there_once_is_refused():
    with pytest.raises(NotThere, match="0 times, and not once"):
        ScriptFault("late_append", "journal/append.lua", "no such line", "").broken()
