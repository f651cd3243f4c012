"""The dashboard and the alert rules ask for numbers and labels that the hub has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rsnotify.operation.metrics import METRICS, OF_A_PROCESS, shown_names
from rsnotify_bridge.commands import METRICS as OF_BRIDGES
from rsnotify_client.commands.relay import METRICS as OF_RELAYS
from rsnotify_mirror.commands.audit import METRICS as OF_AUDITS
from rsnotify_mirror.report import METRICS as OF_MIRRORS

FOLDER = Path(__file__).parents[2] / "docs" / "operations"
DASHBOARD = json.loads((FOLDER / "grafana.json").read_text())
RULES = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
OF_CLIENTS = {
    **dict.fromkeys([*OF_MIRRORS, *OF_AUDITS], ("directory",)),
    **dict.fromkeys(OF_BRIDGES, ("source", "set")),
    **dict.fromkeys(OF_RELAYS, ("database",)),
}
OF_PROMETHEUS = {"instance", "job", "le", "worker"}


def expressions() -> Iterator[str]:
    yield from (target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"])
    yield from (rule["expr"] for rule in RULES)


@pytest.mark.parametrize("expression", [*expressions()])
def test_an_expression_asks_for_what_there_is(expression):
    names = set(re.findall(r"\brsnotify_\w+", expression))
    of_hub = {shown for name in METRICS for shown in shown_names(name)}
    assert names <= of_hub | OF_CLIENTS.keys()
    assert names or expression.startswith("up{")
    known = OF_PROMETHEUS.union(*(labels_of(name) for name in names))
    assert labels_in(expression) <= known
    assert expression.count("(") == expression.count(")")


def labels_of(name: str) -> tuple[str, ...]:
    return OF_CLIENTS.get(name) or METRICS[re.sub("_(total|bucket|sum|count)$", "", name)].labels


def labels_in(expression: str) -> set[str]:
    lists = re.findall(r"\b(?:by|without) \(([^)]*)\)", expression)
    matched = re.findall(r"[{,]\s*(\w+)\s*(?:=~|!~|!=|=)", expression)
    return {label.strip() for each in lists for label in each.split(",")} | set(matched)


def test_every_metric_is_on_the_dashboard():
    shown = " ".join(expressions())
    of_all = [*METRICS, *OF_CLIENTS]
    assert [name for name in of_all if not re.search(rf"\b{name}(_\w+)?\b", shown)] == []


def test_an_alert_names_only_labels_that_its_numbers_have():
    for rule in RULES:
        names = re.findall(r"\brsnotify_\w+", rule["expr"])
        has = {"instance", "job"}.union(*(labels_of(name) for name in names))
        said = " ".join(rule["annotations"].values())
        assert set(re.findall(r"\$labels\.(\w+)", said)) <= has


def test_a_number_of_a_process_is_never_shown_for_one_worker_alone_by_an_alert():
    """The worker is left out, so an alert is one for a machine."""
    for rule in RULES:
        if any(name in rule["expr"] for name in OF_A_PROCESS):
            assert "without (worker" in rule["expr"]


def test_a_backup_that_was_never_made_is_no_old_one_and_has_a_rule_of_its_own():
    old, never = (each for each in RULES if "last_backup" in each["expr"])
    assert "rsnotify_last_backup_timestamp_seconds > 0)" in old["expr"]
    assert never["expr"].endswith("(rsnotify_last_backup_timestamp_seconds) == 0")
    assert old["expr"].endswith("> 129600")
    assert never["for"] == "36h"


def test_a_set_without_a_resource_list_has_no_old_one():
    (rule,) = [each for each in RULES if "snapshot" in each["expr"]]
    assert "(rsnotify_snapshot_timestamp_seconds > 0)" in rule["expr"]


def test_every_alert_says_what_is_wrong_and_what_to_do():
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["mend"]
        assert rule["labels"]["severity"] in ("page", "ticket")
