"""The files to run a hub with: what they say of it is true."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rsnotify import __version__
from rsnotify.http.protocol import LAST_REQUEST_SECONDS
from rsnotify.process.settings import Settings
from tests.unit.test_docs import COMMANDS, DOCS

ROOT = Path(__file__).parents[2]
KUBERNETES = list(yaml.safe_load_all((ROOT / "docs/operations/kubernetes.yaml").read_text()))
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
CLIENTS = yaml.safe_load((ROOT / "docs/operations/compose-clients.yml").read_text())
UNIT = (ROOT / "docs/operations/rsnotify.service").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
UNITS = "/etc/systemd/system/"
PROOF = "\ndef main()"
DEFAULT = re.compile(r"\$\{\w+:[-?]([^{}]*)\}")


def defaults(text: str) -> str:
    """The text with the defaults of its variables, as compose would see it."""
    while DEFAULT.search(text):
        text = DEFAULT.sub(r"\1", text)
    return text


def of_kubernetes(kind: str, name: str) -> Any:
    (found,) = [
        each for each in KUBERNETES if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    return found


HUB = of_kubernetes("Deployment", "rsnotify")["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize(
    "environment",
    [
        {
            name: defaults(value)
            for name, value in COMPOSE["services"]["hub"]["environment"].items()
        },
        {each["name"]: each.get("value", "x" * 32) for each in HUB["env"]},
        dict(re.findall(r"^Environment=(\w+)=(.*)$", UNIT, re.MULTILINE)),
    ],
    ids=["compose", "kubernetes", "systemd"],
)
def test_every_setting_is_one_and_has_a_good_value(environment):
    read = Settings.from_env(environment)
    assert read.admin_token is None or read.trusted_proxies


def typed() -> list[str]:
    """What the pages for operators let somebody type, in blocks and within lines."""
    pages = [*(ROOT / "docs/operations").glob("*.md"), ROOT / "docs/operations.md"]
    texts = [page.read_text() for page in (*pages, ROOT / "docs/install.md")]
    quoted = r"(?ms)^```(?:sh)?\n(.*?)^```|`([^`\n]+)`"
    return [line for text in texts for each in re.findall(quoted, text) for line in each if line]


def test_every_unit_that_somebody_is_let_control_is_one():
    lines = "\n".join(typed())
    named = re.findall(r"systemctl (?:--?\S+ )*[a-z]+ (?:--?\S+ )*([\w@.-]+)", lines)
    assert len(named) >= 8
    units = {each.name for each in (ROOT / "docs/operations").glob("rsnotify*.*")}
    assert [each for each in named if not {each, f"{each}.service"} & units] == []


def test_every_container_that_somebody_is_let_enter_is_one():
    lines = "\n".join(typed())
    named = re.findall(r"docker compose exec (\S+)", lines)
    assert len(named) >= 2
    assert [each for each in named if each not in COMPOSE["services"]] == []


def test_what_is_installed_and_removed_is_what_the_unit_names():
    _, _, page = (ROOT / "docs/install.md").read_text().partition("## On a server, with systemd")
    installing, removing = re.findall(r"(?ms)^```sh\n(.*?)^```", page)[:2]
    keys = "ExecStart|EnvironmentFile|StateDirectory"
    program, settings, data = re.findall(rf"(?m)^(?:{keys})=-?(\S+)", UNIT)
    folder = program.removesuffix("/bin/rsnotify")
    for path in (f"python3 -m venv {folder}\n", f"{folder}/bin/pip install", f"> {settings}\n"):
        assert path in installing
    removed = re.sub(r" +#.*", "", removing).split()
    assert {folder, settings, f"/var/lib/private/{data}", f"/var/lib/{data}"} <= {*removed}
    assert f"{UNITS}rsnotify.service" in removed
    assert installing.count(f" {UNITS}\n") == 1


def test_every_selector_finds_its_pods():
    pods = [
        each["spec"]["template"]["metadata"]["labels"]
        for each in KUBERNETES
        if each["kind"] in ("Deployment", "StatefulSet")
    ]
    for each in KUBERNETES:
        selector = each["spec"].get("selector")
        if selector:
            assert selector.get("matchLabels", selector) in pods, each["metadata"]["name"]


def test_no_service_sets_variables_that_the_hub_reads():
    """Kubernetes would, by its name, unless a pod says that it wants none."""
    (hub,) = (each for each in KUBERNETES if each["kind"] == "Deployment")
    assert hub["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_probes_ask_for_what_the_hub_answers():
    for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
        assert f"`{HUB[probe]['httpGet']['path']}`" in DOCS["reference/http.md"]


@pytest.mark.parametrize("file", ["docker-compose.yml", "docs/operations/kubernetes.yaml"])
def test_the_redis_beside_the_hub_keeps_what_is_acknowledged(file):
    text = re.sub(r"[^\w-]+", " ", (ROOT / file).read_text())
    for option in ("--appendonly yes", "--appendfsync always", "--maxmemory-policy noeviction"):
        assert option in text


def test_every_image_is_pinned():
    images = re.findall(r"image: (\S+)", (ROOT / "docker-compose.yml").read_text())
    images += re.findall(r"image: (\S+)", (ROOT / "docs/operations/kubernetes.yaml").read_text())
    images += [f"python:{tag}" for tag in re.findall(r"ARG PYTHON=(\S+)", DOCKERFILE)]
    assert len(images) == 5
    for image in images:
        assert re.search(r":\d+\.\d+\.\d+", image), image
    assert HUB["image"].endswith(f":{__version__}")


def test_the_image_is_not_root_and_has_two_stages_and_every_file_that_it_copies():
    assert re.search(r"^USER 10001$", DOCKERFILE, re.MULTILINE)
    assert len(re.findall(r"^FROM ", DOCKERFILE, re.MULTILINE)) == 2
    for sources in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE):
        assert all((ROOT / source).exists() for source in sources.split())


def test_time_to_end_is_longer_than_the_hub_needs():
    needed = Settings.drain_seconds + 20
    pod = of_kubernetes("Deployment", "rsnotify")["spec"]["template"]["spec"]
    compose = COMPOSE["services"]["hub"]["stop_grace_period"]
    (unit,) = re.findall(r"TimeoutStopSec=(\d+)", UNIT)
    for given in (pod["terminationGracePeriodSeconds"], int(compose.rstrip("s")), int(unit)):
        assert given > needed


def test_the_audit_of_a_mirror_is_a_command_that_exists_and_may_read_the_copy():
    audit, mirror = (
        (ROOT / f"docs/operations/rsnotify-{name}.service").read_text()
        for name in ("audit", "mirror")
    )
    (words,) = re.findall(r"^ExecStart=/opt/rsnotify/bin/rsnotify audit (.*)$", audit, re.MULTILINE)
    read = COMMANDS["audit"].make_context("audit", words.split()).params
    assert f"mirror {read['source']} {read['directory']} " in mirror
    assert "DynamicUser=yes\nUser=rsnotify-mirror\nStateDirectory=mirror" in audit
    assert "OnCalendar=" in (ROOT / "docs/operations/rsnotify-audit.timer").read_text()


@pytest.mark.parametrize("name", ["relay", "mirror", "audit", "bridge"])
def test_the_units_and_services_of_clients_run_commands_that_exist(name):
    unit = (ROOT / f"docs/operations/rsnotify-{name}.service").read_text()
    (line,) = re.findall(r"^ExecStart=/opt/rsnotify/bin/rsnotify (.*)$", unit, re.MULTILINE)
    service = CLIENTS["services"][name]
    _, *words = [defaults(word) for word in service["command"]]
    for command, *arguments in (line.split(), words):
        given = ["--database", "sqlite:///a.db"] if command == "relay" else []
        assert COMMANDS[command].make_context(command, [*arguments, *given])
    for each in service["environment"]:
        assert f"`{each}`" in DOCS["reference/settings.md"]
    assert ("Type=oneshot" if name == "audit" else "Type=notify") in unit


def test_each_client_has_a_unit_and_a_service_that_is_confined():
    clients = {"relay", "mirror", "audit", "bridge"}
    assert CLIENTS["services"].keys() == clients
    assert {each.stem for each in (ROOT / "docs/operations").glob("*.service")} == {
        "rsnotify",
        *(f"rsnotify-{each}" for each in clients),
    }
    for service in [COMPOSE["services"]["hub"], *CLIENTS["services"].values()]:
        assert (service["read_only"], service["cap_drop"], service["init"]) == (True, ["ALL"], True)
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_the_image_has_the_drivers_of_the_databases_that_a_relay_knows():
    (extras,) = re.findall(r"/src\[(.*)\]", DOCKERFILE)
    assert {"hub", "mysql", "postgresql"} <= {*extras.split(",")}


def test_each_rule_that_is_named_is_one_and_each_of_clients_is_named():
    groups = yaml.safe_load((ROOT / "docs/operations/alerts.yml").read_text())["groups"]
    of_hub, of_clients = ({rule["alert"] for rule in group["rules"]} for group in groups)
    watched = DOCS["operations.md"].partition("## What to watch")[2].partition("\n## ")[0]
    rows = re.findall(r"(?m)^\| (?!what|--).*\|$", watched)
    named = [set(re.findall(r"`(Rsnotify\w+)`", row)) for row in rows]
    assert len(rows) == 9
    assert all(each and each <= of_hub for each in named)
    assert set(re.findall(r"`(Rsnotify\w+)`", DOCS["operations/clients.md"])) == of_clients


def test_haproxy_knows_that_a_hub_has_ended_before_that_closes_idle_connections():
    text = (ROOT / "docs/operations/haproxy.cfg").read_text()
    (checked,) = re.findall(r"check inter (\d+)ms fastinter (\d+)ms fall (\d+)", text)
    interval, after_a_failure, fall = map(int, checked)
    known_after = interval + (fall - 1) * after_a_failure
    assert known_after / 1_000 <= 0.7 * LAST_REQUEST_SECONDS
    (answer,) = re.findall(r"timeout check (\d+)s", text)
    assert int(answer) * 1_000 > interval  # who is only busy stays


def test_every_proof_that_takes_minutes_runs_at_night():
    jobs = yaml.safe_load((ROOT / ".github/workflows/soak.yml").read_text())["jobs"]
    programs = (ROOT / "tests/evidence/soak").glob("*.py")
    proofs = {path.stem for path in programs if PROOF in path.read_text()}
    assert sorted(proofs) == jobs["soak"]["strategy"]["matrix"]["proof"]
