"""The folder in which dumps are published: packages, and the documents of each generation.

    packages/NAME.zip, NAME.xml         never change; the next dump names most of them again
    generations/TIME/…                  the documents of one dump
    current                             a symlink to the newest generation
    resourcedump.xml, changedump.xml…   symlinks to what `current` has

Rules that hold here: all that a generation names is there before `current` leads to it, by one
rename; what no kept generation names is removed afterwards. What a killed run left is such.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec

from rsnotify.errors import InvalidSettings
from rsnotify_client.locks import lock_directory
from rsnotify_mirror.dumping.dump_documents import ARCHIVES, GENERATIONS, PACKAGES, Generation

CURRENT, RECORD, NEXT = "current", ".generation.json", ".next"
PUBLISHED = (*ARCHIVES, *ARCHIVES.values())


class DumpFolder:
    """The folder, for one run at a time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.packages = directory / PACKAGES
        self._generations = directory / GENERATIONS
        self._lock = self._taken(directory)
        self.kept = self._read()

    def _taken(self, directory: Path) -> int:
        lock = lock_directory(directory, "rsnotify dump")
        if not self._generations.exists() and any(directory.iterdir()):
            os.close(lock)
            raise InvalidSettings(
                [f"{directory} holds files, but no dumps: give an empty directory or a new one"]
            )
        self._generations.mkdir(exist_ok=True)
        self.packages.mkdir(exist_ok=True)
        return lock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def _read(self) -> list[Generation]:
        """Those that are published, oldest first; one that was made and never became so is not."""
        with suppress(OSError):
            newest = os.readlink(self.directory / CURRENT).rpartition("/")[2]
            names = sorted(os.listdir(self._generations))
            return [self._record(name) for name in names if name[0] != "." and name <= newest]
        return []

    def _record(self, name: str) -> Generation:
        path = self._generations / name / RECORD
        try:
            return msgspec.json.decode(path.read_bytes(), type=Generation)
        except (OSError, msgspec.MsgspecError) as error:
            raise InvalidSettings([f"cannot read {path}: {error}; remove its folder"]) from None

    def publish(self, generation: Generation, documents: Mapping[str, bytes]) -> None:
        """Let all readers see it, at once."""
        folder = self._generations / f".{generation.name}"
        folder.mkdir()
        record = {RECORD: msgspec.json.format(msgspec.json.encode(generation), indent=0)}
        for name, content in {**documents, **record}.items():
            _write(folder / name, content)
        os.rename(folder, self._generations / generation.name)
        _sync(self.packages)
        _sync(self._generations)
        pointer = self.directory / NEXT
        pointer.unlink(missing_ok=True)
        pointer.symlink_to(f"{GENERATIONS}/{generation.name}")
        os.rename(pointer, self.directory / CURRENT)
        for name in documents.keys() & {*PUBLISHED}:
            if not (self.directory / name).is_symlink():
                (self.directory / name).symlink_to(f"{CURRENT}/{name}")
        _sync(self.directory)

    def sweep(self, kept: Sequence[Generation]) -> None:
        """Remove what these do not name."""
        self.kept = list(kept)
        generations = {each.name for each in kept}
        made = (one.name for each in kept for one in (*each.packages, *(each.changes or ())))
        packages = {*made, *(name for each in kept for name in each.told)}
        for name in set(os.listdir(self._generations)) - generations:
            hidden = self._generations / f".{name.removeprefix('.')}"  # one half removed is none
            os.rename(self._generations / name, hidden)
            shutil.rmtree(hidden)
        for name in os.listdir(self.packages):
            if name.rpartition(".")[0] not in packages:
                (self.packages / name).unlink()


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
