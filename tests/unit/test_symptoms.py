"""The table from the symptom to the mend names alerts that there are, and what the code says."""

import re
from pathlib import Path

import pytest
import yaml

from tests.unit.test_errors_page import SAID

OPERATIONS = Path(__file__).parents[2] / "docs/operations"
HUB, _ = yaml.safe_load((OPERATIONS / "alerts.yml").read_text())["groups"]
ALERTS = {rule["alert"] for rule in HUB["rules"]}
OF_OPENSSL = "certificate has expired"
ROWS = [
    cells
    for row in re.findall(r"(?m)^\| (?!you see|--).*\|$", (OPERATIONS / "symptoms.md").read_text())
    if (cells := [each.strip() for each in row.strip("|").split(" | ")])
]
SYMPTOMS = [each for cells in ROWS for each in re.findall(r"`([^`]+)`", cells[0])]
MESSAGES = sorted({each for each in SYMPTOMS if " " in each} - {OF_OPENSSL})


def parts_of(message: str) -> list[str]:
    """What of a message is not filled in."""
    return [part for each in message.split("…") if (part := each.strip(" :;,.()"))]


def test_every_alert_of_a_hub_has_a_row_and_no_other_is_named():
    assert {each for each in SYMPTOMS if each.startswith("Rsnotify")} == ALERTS


@pytest.mark.parametrize("message", MESSAGES)
def test_each_line_of_the_table_is_said_by_the_code(message):
    parts = parts_of(message)
    assert max(map(len, parts)) > 8, "too little is left to be found"
    for part in parts:
        assert part in SAID, part


def test_each_row_says_what_it_is_and_what_to_do():
    assert len(ROWS) > 20
    for seen, is_, do in ROWS:
        assert re.search(r"`[^`]+`", seen)
        assert is_
        assert do
