"""Build what is released, check it, and run it from empty folders; this is `make release-check`.

    python -m tests.tools.release [--fresh [FOLDER]]

The sdist is built from this tree, the wheel from the sdist. With `--fresh` the wheel is installed
with each of its extras into an environment of its own, for every Python 3.11 or newer that is found
here, and both archives are put into the folder; else it runs with the packages that are here.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rsnotify import __version__
from tests.support.shell import environment as shell

ROOT = Path(__file__).parents[2]
READY = "rsnotify ready "
CODE = {
    "rsnotify": ROOT / "rsnotify",
    "rsnotify_bridge": ROOT / "clients/python/rsnotify_bridge",
    "rsnotify_client": ROOT / "clients/python/rsnotify_client",
    "rsnotify_mirror": ROOT / "clients/python/rsnotify_mirror",
    "rsnotify/web/client/lib": ROOT / "clients/javascript/lib",
}
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
IMPORTED = {
    "": "rsnotify_bridge.service, rsnotify_client, rsnotify_mirror.audit, "
    "rsnotify.resourcesync.xml_reader",
    "cli": "rsnotify.cli",
    "hub": "rsnotify.process.composition",
    "embedded": "rsnotify.process.composition",
    "django": "django, rsnotify_client.integrations, rsnotify_client.relay",
    "flask": "rsnotify_client.integrations.flask",
    "mysql": "pymysql, rsnotify_client.relay",
    "postgresql": "psycopg, rsnotify_client.relay",
    "s3": "rsnotify_mirror.dumping.generations",
    "socks": "python_socks, rsnotify_client.web",
    "sqlalchemy": "rsnotify_client.integrations.sqlalchemy",
}
"""What each extra is enough to import."""


def build(folder: Path) -> tuple[Path, Path]:
    """The sdist and the wheel."""
    words = ["-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def names_in(archive: Path) -> set[str]:
    """The files of it, without the folder that an sdist puts them in."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return set(wheel.namelist())
    with tarfile.open(archive) as sdist:
        return {name.partition("/")[2] for name in sdist.getnames()}


def unpacked(wheel: Path, folder: Path) -> tuple[Path, dict[str, str]]:
    """The wheel before all else that this Python would import."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "wheel")
    return Path(sys.executable), {"PYTHONPATH": str(folder / "wheel")}


def wrong_versions() -> list[str]:
    """Where another version stands than in the code."""
    package = json.loads((ROOT / "clients/javascript/package.json").read_text())["version"]
    first = re.findall(r"(?m)^## (\S+)", (ROOT / "CHANGELOG.md").read_text())[0]
    found = {"clients/javascript/package.json": package, "CHANGELOG.md": first}
    return [f"{name}: {each}" for name, each in found.items() if each != __version__]


def code_files() -> set[str]:
    """What the wheel is to hold, and nothing else but its description."""
    return {
        f"{package}/{path.relative_to(folder)}"
        for package, folder in CODE.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    } | {"rsnotify/web/client/rsnotify.js"}


def check_metadata(*archives: Path) -> None:
    """Whether PyPI would take them, and show the README."""
    words = [sys.executable, "-m", "twine", "check", "--strict", *map(str, archives)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def pythons() -> Iterator[str]:
    """One of each version: on the PATH, or of pyenv."""
    for version in VERSIONS:
        home = shell().get("PYENV_ROOT") or Path(shell()["HOME"], ".pyenv")
        of_pyenv = sorted(map(str, Path(home, "versions").glob(f"{version}.*/bin/python")))
        candidates = [shutil.which(f"python{version}"), *of_pyenv]
        yield from [path for path in candidates if path and runs(path, version)][:1]


def runs(python: str, version: str) -> bool:
    words = [python, "-c", "import sys, ensurepip; print('%d.%d' % sys.version_info[:2])"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


def installed(wheel: Path, extra: str, python: str, folder: Path) -> Path:
    """The Python of an empty environment into which the wheel was installed with this extra."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    what = f"{wheel}[{extra}]" if extra else str(wheel)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "install"]
    words = [*pip, "--quiet", "--disable-pip-version-check", what]
    subprocess.run(words, check=True, env=shell())
    return folder / "bin/python"


def works(wheel: Path, extra: str, python: str) -> str:
    """Install and use it; what was done, in a line."""
    with tempfile.TemporaryDirectory() as name:
        own = installed(wheel, extra, python, Path(name, "environment"))
        clean = {each: text for each, text in os.environ.items() if each != "PYTHONPATH"}
        where = {"cwd": name, "env": clean}
        subprocess.run([own, "-c", f"import {IMPORTED[extra]}"], check=True, **where)
        words = [own, "-m", "rsnotify", "--version"]
        told = subprocess.run(words, check=True, capture_output=True, **where)
        assert __version__ in told.stdout.decode()
        if extra == "embedded":
            serve_answers(own, {"PYTHONPATH": ""}, Path(name))
        return f"{python}: {wheel.name}{f'[{extra}]' if extra else ''} works"


def serve_answers(python: Path, environment: Mapping[str, str], folder: Path) -> str:
    """Run a hub in this folder until it has answered; where its code was."""
    where = [python, "-c", "import rsnotify; print(rsnotify.__file__)"]
    kept = {name: text for name, text in os.environ.items() if not name.startswith("RSNOTIFY_")}
    whole = {"cwd": folder, "env": kept | environment, "text": True}
    found = subprocess.run(where, check=True, capture_output=True, **whole).stdout.strip()
    words = [python, "-m", "rsnotify", "serve", "--port", "0", "--set", "dataset1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **whole) as hub:
        try:
            line = hub.stdout.readline()
            assert line.startswith(READY), line
            address = line.removeprefix(READY).strip()
            with urllib.request.urlopen(f"{address}/dataset1/changelist.xml", timeout=30) as answer:
                assert answer.status == 200
        finally:
            hub.terminate()
    assert hub.returncode == 0, hub.returncode
    return found


def main(*, fresh: bool, into: str | None = None) -> None:
    assert not wrong_versions(), wrong_versions()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sdist, wheel = build(folder)
        check_metadata(sdist, wheel)
        print(f"{sdist.name} ({len(names_in(sdist))} files), {wheel.name}:")
        print(*sorted(names_in(wheel)), sep="\n")
        if fresh:
            with ThreadPoolExecutor(os.cpu_count()) as several:
                tried = [(python, extra) for python in pythons() for extra in IMPORTED]
                done = [several.submit(works, wheel, extra, python) for python, extra in tried]
                for each in done:
                    print(each.result(), flush=True)
            if into is not None:
                Path(into).mkdir(exist_ok=True)
                for archive in (sdist, wheel):
                    print(shutil.copy(archive, into))
        else:
            (folder / "empty").mkdir()
            found = serve_answers(*unpacked(wheel, folder), folder / "empty")
            print(f"{wheel.name} serves from {found}")


if __name__ == "__main__":
    main(fresh=sys.argv[1:2] == ["--fresh"], into="".join(sys.argv[2:3]) or None)
