"""What lies in docs/operations for other programs: those programs take it, and do what it is for.

The proxies are in `tests/fault/test_proxies.py`, the containers in `test_image.py`.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
import yaml

from tests.support.needs import need

FOLDER = Path(__file__).parents[2] / "docs/operations"
UNITS = sorted(each.name for each in (*FOLDER.glob("*.service"), *FOLDER.glob("*.timer")))
PROGRAM = "/opt/rsnotify/bin/rsnotify"
PROMETHEUS = ("Prometheus", "promtool")

# What each alert looks at: a metric, other labels, its values where the alert fires, and where it
# just does not. There is a value every two minutes, for 50 hours.
WATCHED = {
    "RsnotifyDown": [("up", 'job="rsnotify"', "0", "1")],
    "RsnotifyNotReady": [("rsnotify_ready", "", "0", "1")],
    "RsnotifyWarning": [("rsnotify_warnings", "", "1", "0")],
    "RsnotifyNotFollowing": [("rsnotify_follow_age_seconds", "", "10.1", "10")],
    "RsnotifyLostChanges": [("rsnotify_gaps_total", 'set="a"', "0+1", "3")],
    "RsnotifyRefusesPublishes": [
        ("rsnotify_publishes_refused_total", 'status="507"', "0+1", "3"),
        ("rsnotify_publishes_refused_total", 'status="400"', "0+1", "0+1"),
    ],
    "RsnotifyAppendsSlow": [
        ("rsnotify_append_seconds_bucket", 'le="0.5"', "0", "0+10"),
        ("rsnotify_append_seconds_bucket", 'le="1"', "0+10", "0+10"),
        ("rsnotify_append_seconds_bucket", 'le="+Inf"', "0+10", "0+10"),
    ],
    "RsnotifyReadersBehind": [("rsnotify_readers_behind_seconds", 'set="a"', "61", "60")],
    "RsnotifyWebSubBehind": [
        ("rsnotify_websub_oldest_undelivered_seconds", "", "3601", "3600"),
    ],
    "RsnotifyEventLoopBlocked": [("rsnotify_event_loop_delay_seconds", "", "0.6", "0.5")],
    "RsnotifyRestarts": [("rsnotify_start_time_seconds", "", "0+60", "60")],
    "RsnotifySetNearlyFull": [
        ("rsnotify_set_memory_bytes", 'set="a"', "91", "90"),
        ("rsnotify_set_memory_limit_bytes", 'set="a"', "100", "100"),
        ("rsnotify_set_memory_bytes", 'set="has no limit"', "91", "91"),
        ("rsnotify_set_memory_limit_bytes", 'set="has no limit"', "0", "0"),
    ],
    "RsnotifyRedisMemory": [  # of `maxmemory`; without it, of the machine
        ("rsnotify_redis_memory_bytes", "", "71", "70"),
        ("rsnotify_redis_memory_limit_bytes", "", "0", "100"),
        ("rsnotify_redis_machine_memory_bytes", "", "100", "50"),
    ],
    "RsnotifyDisk": [
        ("rsnotify_disk_free_bytes", "", "29", "30"),
        ("rsnotify_disk_bytes", "", "100", "100"),
    ],
    "RsnotifyOpenFiles": [
        ("rsnotify_open_files", "", "81", "80"),
        ("rsnotify_open_files_limit", "", "100", "100"),
    ],
    "RsnotifyProcessBusy": [("rsnotify_cpu_seconds_total", "", "0+110", "0+107")],
    "RsnotifyResourceListOld": [
        ("rsnotify_journal_newest_timestamp_seconds", 'set="a"', "90000", "90000"),
        ("rsnotify_snapshot_timestamp_seconds", 'set="a"', "3599", "3600"),
        ("rsnotify_journal_newest_timestamp_seconds", 'set="has no list"', "90000", "90000"),
        ("rsnotify_snapshot_timestamp_seconds", 'set="has no list"', "0", "0"),
    ],
    "RsnotifyNoBackup": [("rsnotify_last_backup_timestamp_seconds", "", "46000", "50400")],
    "RsnotifyNeverBackedUp": [  # where all is well it began 35 hours ago
        ("rsnotify_last_backup_timestamp_seconds", 'job="new"', "0", "_x450 0"),
    ],
    "RsnotifyMirrorBehind": [
        ("rsnotify_mirror_in_step_timestamp_seconds", "", "172000", "172800"),
        ("rsnotify_mirror_in_step_timestamp_seconds", 'directory="first run"', "0", "0"),
    ],
    "RsnotifyMirrorStopped": [
        ("rsnotify_mirror_looked_timestamp_seconds", "", "172000", "172800"),
    ],
    "RsnotifyMirrorFailures": [("rsnotify_mirror_failed", "", "1", "0")],
    "RsnotifyMirrorNoRoom": [("rsnotify_mirror_room_bytes", "", "999999999", "1000000000")],
    "RsnotifyAuditFindings": [("rsnotify_audit_in_sync", "", "0", "1")],
    "RsnotifyAuditOld": [("rsnotify_audit_timestamp_seconds", "", "-700000", "-684000")],
    "RsnotifyBridgeBehind": [
        ("rsnotify_bridge_read_timestamp_seconds", "", "172000", "172800"),
        ("rsnotify_bridge_read_timestamp_seconds", 'set="first harvest"', "0", "0"),
    ],
    "RsnotifyBridgeStopped": [
        ("rsnotify_bridge_looked_timestamp_seconds", "", "172000", "172800"),
    ],
    "RsnotifyBridgeOutOfStep": [("rsnotify_bridge_in_step", "", "0", "1")],
    "RsnotifyBridgeHoldsBack": [("rsnotify_bridge_held", "", "1", "0")],
    "RsnotifyBridgeRefused": [("rsnotify_bridge_refused_total", "", "0+1", "3")],
    "RsnotifyRelayStopped": [
        ("rsnotify_relay_looked_timestamp_seconds", "", "179000", "179700"),
    ],
    "RsnotifyRelayBehind": [
        ("rsnotify_relay_waiting_since_seconds", "", "179000", "179700"),
        ("rsnotify_relay_waiting_since_seconds", 'database="empty"', "0", "0"),
    ],
    "RsnotifyRelayRefused": [("rsnotify_relay_refused_total", "", "0+1", "3")],
}
VALUES = 1_500
OF_CLIENTS = tuple(f"rsnotify_{each}_" for each in ("mirror", "audit", "bridge", "relay"))
RULES = [
    each
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    for each in group["rules"]
]


def promtool(*words: str) -> str:
    command = [need(*PROMETHEUS), *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_takes_the_alert_rules():
    found = promtool("check", "rules", str(FOLDER / "alerts.yml"))
    assert sum(map(int, re.findall(r"SUCCESS: (\d+) rules found", found))) == len(RULES)


def test_each_alert_is_tried_by_what_it_looks_at():
    assert WATCHED.keys() == {each["alert"] for each in RULES}


def test_prometheus_can_read_what_the_dashboard_asks(tmp_path):
    panels = json.loads((FOLDER / "grafana.json").read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    rules = [
        {"record": f"panel:{number}", "expr": expression.replace("$instance", ".*")}
        for number, expression in enumerate(asked)
    ]
    file = tmp_path / "dashboard.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"SUCCESS: {len(asked)} rules found" in promtool("check", "rules", str(file))


def series() -> Iterator[dict[str, str]]:
    for metric, labels, *values in chain.from_iterable(WATCHED.values()):
        for instance, each in zip(("ill", "well"), values, strict=True):
            worker = "" if metric.startswith(OF_CLIENTS) else 'worker="1", '
            name = f'{metric}{{instance="{instance}", {worker}{labels}}}'
            yield {"series": name.replace(", }", "}"), "values": f"{each}x{VALUES}"}


def test_each_alert_fires_for_the_machine_that_is_ill_and_none_for_the_other(tmp_path):
    firing = [
        {"labels": f'{{alertname="{alert}", instance="ill"}}', "value": 1} for alert in WATCHED
    ]
    asked = {
        "expr": 'count by (alertname, instance) (ALERTS{alertstate="firing"})',
        "eval_time": f"{2 * VALUES}m",
        "exp_samples": firing,
    }
    test = {"interval": "2m", "input_series": [*series()], "promql_expr_test": [asked]}
    file = tmp_path / "test.yml"
    rules = {"rule_files": [str(FOLDER / "alerts.yml")], "evaluation_interval": "2m"}
    file.write_text(yaml.safe_dump(rules | {"tests": [test]}))
    promtool("test", "rules", str(file))


def verify(folder: Path, unit: str) -> list[str]:
    """What systemd says of a unit, beside the others; what they run need not be there."""
    for name in UNITS:
        text = (FOLDER / name).read_text()
        if not (folder / name).exists():
            (folder / name).write_text(text.replace(PROGRAM, need("true")))
    words = [need("systemd-analyze"), "verify", "--man=no", str(folder / unit)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    return [line for line in done.stderr.splitlines() if unit in line]


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_takes_a_unit_and_has_nothing_to_say(tmp_path, unit):
    assert verify(tmp_path, unit) == []


@pytest.mark.parametrize("unit", [each for each in UNITS if each.endswith(".service")])
def test_a_unit_lets_hardly_anything_be_done(unit):
    words = [need("systemd-analyze"), "security", "--offline=true", "--no-pager", FOLDER / unit]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    found = re.search(r"Overall exposure level for .*: ([\d.]+)", done.stdout)
    assert found is not None, done.stderr
    assert float(found[1]) <= 2.0, done.stdout


def test_systemd_names_what_is_wrong_in_a_unit(tmp_path):
    """Else the test above could not fail."""
    text = (FOLDER / "rsnotify-audit.timer").read_text()
    (tmp_path / "rsnotify-audit.timer").write_text(text.replace("OnCalendar", "OnCalender"))
    assert "OnCalender" in " ".join(verify(tmp_path, "rsnotify-audit.timer"))
