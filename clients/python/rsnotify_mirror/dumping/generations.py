"""The folder in which dumps are published: packages, and the documents of each generation.

    packages/NAME.zip, NAME.xml         never change; the next dump names most of them again
    generations/TIME/…                  the documents of one dump
    current                             a symlink to the newest generation
    resourcedump.xml, changedump.xml…   symlinks to what `current` has

Rules that hold here: all that a generation names is there before `current` leads to it, by one
rename; what no kept generation names is removed afterwards. What a killed run left is such.

In an object store, `s3://bucket/prefix`, is a copy of the folder. Packages and documents of a
generation come first, then the documents that Destinations know, each replaced at once; those that
there are no more, and then what is not named any more, are removed last. So whatever is killed
when, what is named is there, and the next run completes it.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec

from rsnotify.errors import InvalidSettings, TryAgain
from rsnotify_client.locks import lock_directory
from rsnotify_mirror.dumping.dump_documents import ARCHIVES, GENERATIONS, PACKAGES, Generation
from rsnotify_mirror.dumping.package_writer import XML, ZIP

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
                f"{directory} holds files, but no dumps: give an empty directory or a new one"
            )
        self._generations.mkdir(exist_ok=True)
        self.packages.mkdir(exist_ok=True)
        return lock

    def __enter__(self) -> Self:
        self.sweep(self.kept)  # what a killed run left
        return self

    def __exit__(self, error: object, *_: object) -> None:
        try:
            if error is not None:
                self.sweep(self._read())  # it may have been published already
        finally:
            os.close(self._lock)

    def _read(self) -> list[Generation]:
        """Those that are published, oldest first; one that was made and never became so is not."""
        with suppress(FileNotFoundError):
            newest = os.readlink(self.directory / CURRENT).rpartition("/")[2]
            names = sorted(os.listdir(self._generations))
            return [self._record(name) for name in names if name[0] != "." and name <= newest]
        return []

    def _record(self, name: str) -> Generation:
        path = self._generations / name / RECORD
        try:
            return msgspec.json.decode(path.read_bytes(), type=Generation)
        except (OSError, msgspec.MsgspecError) as error:
            raise InvalidSettings(f"cannot read {path}: {error}; remove its folder") from None

    def publish(self, generation: Generation, documents: Mapping[str, bytes]) -> None:
        """Let all readers see it, at once."""
        folder = self._generations / f".{generation.name}"
        folder.mkdir()
        record = {RECORD: msgspec.json.format(msgspec.json.encode(generation), indent=0)}
        for name, content in {**documents, **record}.items():
            (folder / name).write_bytes(content)
            _sync(folder / name)
        _sync(folder)
        os.rename(folder, self._generations / generation.name)
        _sync(self.packages)
        _sync(self._generations)
        for name in documents.keys() & {*PUBLISHED}:
            if not (self.directory / name).is_symlink():
                (self.directory / name).symlink_to(f"{CURRENT}/{name}")
        pointer = self.directory / NEXT
        pointer.unlink(missing_ok=True)
        pointer.symlink_to(f"{GENERATIONS}/{generation.name}")
        os.rename(pointer, self.directory / CURRENT)
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
        for name in PUBLISHED:
            if not (self.directory / name).exists():  # a link to what `current` does not have
                (self.directory / name).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """A file, or the names in a folder."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


# --- the copy in an object store -----------------------------------------------------------------

SCHEMES = ("s3://",)
TYPES = {ZIP: "application/zip", XML: "application/xml"}


class Bucket:
    """One prefix of a bucket; the environment says how it is reached, by `AWS_…`."""

    def __init__(self, url: str) -> None:
        try:
            import obstore  # noqa: PLC0415 - an extra
            from obstore.store import from_url  # noqa: PLC0415
        except ModuleNotFoundError:
            advice = "in a clone of rsnotify, pip install '.[s3]'"
            raise InvalidSettings(f"{url} needs the package obstore: {advice}") from None
        self._url = url
        self._obstore: Any = obstore
        try:
            self._store: Any = from_url(url)
        except Exception as error:  # its errors have no other name in common
            raise InvalidSettings(f"{url}: {error}") from None

    def publish(self, folder: Path, progress: Callable[[int, int], None] = lambda *_: None) -> int:
        """Let the bucket have what the folder has; how many files were sent. `progress` is called
        with the bytes that were sent, and those that are to be."""
        try:
            return self._publish(folder, progress)
        except Exception as error:
            raise TryAgain(f"{self._url}: {str(error).partition(chr(10))[0]}") from None

    def _publish(self, folder: Path, progress: Callable[[int, int], None]) -> int:
        listed = self._obstore.list(self._store)
        there = {each["path"]: each["size"] for some in listed for each in some}
        files = {str(path.relative_to(folder)): path for path in _files(folder)}
        new = [name for name, path in files.items() if there.get(name) != path.stat().st_size]
        documents = [name for name in reversed(PUBLISHED) if (folder / name).exists()]
        sizes = {name: (folder / name).stat().st_size for name in (*new, *documents)}
        for number, name in enumerate(sizes):
            self._put(folder / name, name)
            progress(sum([*sizes.values()][: number + 1]), sum(sizes.values()))
        withdrawn = [name for name in PUBLISHED if name in there and name not in documents]
        unnamed = [name for name in there if name not in files and "/" in name]
        for some in filter(None, (withdrawn, unnamed)):
            self._obstore.delete(self._store, some)
        return len(new)

    def _put(self, path: Path, name: str) -> None:
        kind = {"Content-Type": TYPES[path.suffix]}
        with path.open("rb") as file:
            self._obstore.put(self._store, name, file, attributes=kind)


def _files(folder: Path) -> Iterator[Path]:
    """Packages, their manifests, and the documents of generations: what never changes."""
    for kind in TYPES:
        yield from folder.glob(f"packages/*{kind}")
    yield from folder.glob(f"generations/*/*{XML}")
