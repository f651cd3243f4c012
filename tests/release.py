"""Build what is released, and run it from an empty folder; this is `make release-check`.

    python -m tests.release [--fresh]

The sdist is built from this tree, the wheel from the sdist. With `--fresh` the wheel is installed
with its dependencies into an environment of its own; else it runs with those that are here.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
READY = "rsnotify ready "


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


def installed(wheel: Path, folder: Path) -> tuple[Path, dict[str, str]]:
    """The wheel with all that it needs."""
    venv.create(folder / "fresh", with_pip=True)
    python = folder / "fresh/bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"{wheel}[embedded]"], check=True)
    return python, {}


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


def main(*, fresh: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sdist, wheel = build(folder)
        (folder / "empty").mkdir()
        found = serve_answers(*(installed if fresh else unpacked)(wheel, folder), folder / "empty")
        print(f"{sdist.name} and {wheel.name} are built; the wheel serves from {found}")


if __name__ == "__main__":
    main(fresh="--fresh" in sys.argv)
