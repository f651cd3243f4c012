"""Run the tests with the lowest versions that pyproject.toml allows, then with the newest.

This is `make test-versions`. Each run has an environment of its own beside `.venv`; what else pip
chooses, it chooses by itself.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.tools.run import parallel

ROOT = Path(__file__).parents[2]
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^]]*\])?>=(?P<lowest>[0-9.]+)")


def main(arguments: Sequence[str]) -> int:
    """Both runs, whatever the first one says."""
    constraints = ROOT / ".venv-lowest.txt"
    constraints.write_text("".join(f"{line}\n" for line in lowest(requirements())))
    failed = [
        name
        for name, options in (("lowest", ("--constraint", str(constraints))), ("newest", ()))
        if not run(name, options, arguments)
    ]
    print(f"failed with the {' and the '.join(failed)} versions" if failed else "both passed")
    return int(bool(failed))


def requirements() -> list[str]:
    """What pyproject.toml demands, the extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = (each for extra in project["optional-dependencies"].values() for each in extra)
    return [*project["dependencies"], *(each for each in extras if not is_own(each))]


def is_own(requirement: str) -> bool:
    """Whether it is one extra of ours that another brings along."""
    return requirement.startswith("rsnotify[")


def lowest(requirements: Iterable[str]) -> list[str]:
    """The constraints that allow nothing but the lowest version of each.

    >>> lowest(["redis[hiredis]>=8.1,<9", "types-lxml"])
    ['redis==8.1']
    """
    found = map(REQUIREMENT.match, requirements)
    return [f"{each['name']}=={each['lowest']}" for each in found if each]


def run(name: str, options: Sequence[str], arguments: Sequence[str]) -> bool:
    """Whether every test passes in an environment made with these options of pip."""
    environment = ROOT / f".venv-{name}"
    python = str(environment / "bin" / "python")
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade")
    return (
        succeeds(sys.executable, "-m", "venv", "--clear", str(environment))
        and succeeds(*pip, *options, "--editable", ".[embedded,test]")
        and succeeds(python, "-m", "pytest", *parallel(arguments), *arguments)
    )


def succeeds(*command: str) -> bool:
    print(f"\n$ {' '.join(command)}", flush=True)
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
