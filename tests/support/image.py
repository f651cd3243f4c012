"""The image without a container engine: what its Dockerfile does, with what its context has.

    image = Image(folder)          # `docker build .`, into a folder, unless it was built there
    image.command("rsnotify", …)   # `docker run`, with the image's environment

Rules that hold here: each line of the Dockerfile is read, and one that is not understood is an
error. A path of the image is the same path below the folder. The files of its base are this
machine's; what pip would fetch is seen in this environment, unless all of it is asked for.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tests.support.shell import environment as shell

ROOT = Path(__file__).parents[2]
FROM_HERE = {"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_IGNORE_INSTALLED": "1"}
"""With these pip fetches nothing; it reads the `0` of an option that begins with `no` as a yes."""

RULES = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class Rule(NamedTuple):
    """A line of .dockerignore."""

    lets_in: bool
    pattern: re.Pattern[str]

    def is_of(self, path: PurePosixPath) -> bool:
        """Whether it is about this path, or about a folder that the path is in."""
        return any(self.pattern.fullmatch(str(each)) for each in (path, *path.parents[:-1]))


def rules_of(text: str) -> list[Rule]:
    lines = [line.strip() for line in text.splitlines()]
    return [_rule(line) for line in lines if line and not line.startswith("#")]


def _rule(line: str) -> Rule:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", line.removeprefix("!").strip("/"))
    pattern = "".join(RULES.get(part, re.escape(part)) for part in parts)
    return Rule(line.startswith("!"), re.compile(pattern))


def lets_in(rules: Sequence[Rule], path: PurePosixPath) -> bool:
    """The last rule that is about a path decides."""
    return next((rule.lets_in for rule in reversed(rules) if rule.is_of(path)), True)


def context(root: Path) -> Iterator[PurePosixPath]:
    """The files that are sent to whoever builds an image of this folder."""
    rules = rules_of((root / ".dockerignore").read_text())
    for top in root.iterdir():  # here no rule lets in what is below a folder that another keeps out
        if lets_in(rules, PurePosixPath(top.name)):
            below = top.rglob("*") if top.is_dir() else [top]
            paths = (PurePosixPath(each.relative_to(root)) for each in below if each.is_file())
            yield from (path for path in paths if lets_in(rules, path))


def instructions(text: str) -> list[tuple[str, str]]:
    """Each instruction of a Dockerfile and its words, with the defaults of its arguments."""
    joined = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^#.*\n", "", text))
    found = [line.split(None, 1) for line in joined.splitlines() if line]
    arguments = dict(words.split("=", 1) for name, words in found if name == "ARG")
    for name, value in arguments.items():
        found = [(each, words.replace(f"${{{name}}}", value)) for each, words in found]
    return [(name, words) for name, words in found if name != "ARG"]


class Image:
    """What an image has: its files below a folder, its environment, its command."""

    def __init__(self, folder: Path, *, fetches: bool = False) -> None:
        self.folder = folder
        self.environment = {"PATH": os.defpath}
        self.user = 0
        self.health: list[str] = []
        self.words: list[str] = []
        self._fetches = fetches
        self._context = folder / "context"
        built = folder / "built"
        self._is_built = built.exists()
        if not self._is_built:
            self._take_context()
        for name, words in instructions((ROOT / "Dockerfile").read_text()):
            getattr(self, f"_{name.lower()}")(words)
        built.touch()

    def command(self, *words: str) -> list[str]:
        """The words of a command, which is one of the image's own."""
        found = shutil.which(words[0], path=self.environment["PATH"])
        assert found is not None, f"the image has no {words[0]}"
        return [found, *words[1:]]

    def _take_context(self) -> None:
        for each in context(ROOT):
            target = self._context / each
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / each, target)

    # --- what the lines of the Dockerfile do ------------------------------------------------------

    def _from(self, words: str) -> None:
        """Another stage: the same folder, as each has paths of its own."""
        assert re.match(r"python:\d+\.\d+\.\d+-slim", words), words

    def _copy(self, words: str) -> None:
        *sources, target = words.split()
        if sources[0].startswith("--from="):
            assert sources[1:] == [target], "a path has another name in the next stage"
            assert self._at(target).exists(), target
            return
        for source in () if self._is_built else sources:
            came, into = self._context / source, self._at(target)
            assert came.exists(), f"{source} is not in the context: .dockerignore keeps it out"
            if came.is_dir():
                shutil.copytree(came, into, dirs_exist_ok=True)
            else:
                into.mkdir(parents=True, exist_ok=True)
                shutil.copy(came, into)

    def _run(self, words: str) -> None:
        if words.startswith("useradd"):
            assert " --uid 10001 " in words
            return
        if self._is_built:
            return
        environment = shell() | {"PATH": f"{Path(sys.executable).parent}:{os.defpath}"}
        environment.pop("PYTHONPATH", None)  # where these tests import from
        command = re.sub(r"(?<![\w.])/(?=\w)", f"{shlex.quote(str(self.folder))}/", words)
        if not self._fetches:
            environment |= FROM_HERE
        done = subprocess.run(
            ["sh", "-c", command], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        if "-m venv" in words and not self._fetches:
            self._see_this_environment(Path(command.split()[-1]))

    def _see_this_environment(self, made: Path) -> None:
        (packages,) = made.glob("lib/python*/site-packages")
        (packages / "here.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def _env(self, words: str) -> None:
        name, value = words.split("=", 1)
        self.environment[name] = value.replace("/opt/", f"{self._at('/opt')}/").replace(
            "$PATH", self.environment["PATH"]
        )

    def _user(self, words: str) -> None:
        self.user = int(words)

    def _workdir(self, words: str) -> None:
        assert words == "/tmp"

    def _expose(self, words: str) -> None:
        assert words == "8080"

    def _healthcheck(self, words: str) -> None:
        self.health = json.loads(words.partition("CMD ")[2])

    def _cmd(self, words: str) -> None:
        self.words = json.loads(words)

    def _at(self, path: str) -> Path:
        return self.folder / path.removeprefix("/")
