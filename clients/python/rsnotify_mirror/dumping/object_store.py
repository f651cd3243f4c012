"""The folder of dumps, copied into an object store: `s3://bucket/prefix`.

Rules that hold here: packages and documents of a generation come first, then the documents that
Destinations know, each replaced at once; what nothing names any more is removed last. So whatever
is killed when, what is named is there, and the next run completes it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rsnotify.errors import InvalidSettings, TryAgain
from rsnotify_mirror.dumping.generations import PUBLISHED
from rsnotify_mirror.dumping.package_writer import XML, ZIP

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
            raise InvalidSettings([f"{url} needs the package obstore: {advice}"]) from None
        self._url = url
        self._obstore: Any = obstore
        try:
            self._store: Any = from_url(url)
        except Exception as error:  # its errors have no other name in common
            raise InvalidSettings([f"{url}: {error}"]) from None

    def publish(self, folder: Path) -> int:
        """Let the bucket have what the folder has; how many files were sent."""
        try:
            return self._publish(folder)
        except Exception as error:
            raise TryAgain(f"{self._url}: {str(error).partition(chr(10))[0]}") from None

    def _publish(self, folder: Path) -> int:
        there = {each["path"]: each["size"] for some in self._listed() for each in some}
        files = {str(path.relative_to(folder)): path for path in _files(folder)}
        new = [name for name, path in files.items() if there.get(name) != path.stat().st_size]
        documents = [name for name in reversed(PUBLISHED) if (folder / name).exists()]
        for name in (*new, *documents):
            self._put(folder / name, name)
        unnamed = [name for name in there if name not in files and "/" in name]
        if unnamed:
            self._obstore.delete(self._store, unnamed)
        return len(new)

    def _listed(self) -> Any:
        return self._obstore.list(self._store)

    def _put(self, path: Path, name: str) -> None:
        kind = {"Content-Type": TYPES[path.suffix]}
        with path.open("rb") as file:
            self._obstore.put(self._store, name, file, attributes=kind)


def _files(folder: Path) -> Iterator[Path]:
    """Packages, their manifests, and the documents of generations: what never changes."""
    for kind in TYPES:
        yield from folder.glob(f"packages/*{kind}")
    yield from folder.glob(f"generations/*/*{XML}")
