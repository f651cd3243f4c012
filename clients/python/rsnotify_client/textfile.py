"""Numbers for Prometheus in a file, for the textfile collector of its node exporter."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rsnotify.errors import InvalidSettings

Table = Mapping[str, tuple[str, str]]
"""The type and the help of each metric."""

Labels = tuple[tuple[str, str], ...]
"""The names and values of the labels that a number has."""


def exposition(table: Table, values: Mapping[Labels, Sequence[float]]) -> str:
    """The text of these metrics; `values` are those of each label, in the order of the table.

    >>> print(exposition({"n": ("gauge", "Such things")}, {(("of", "a"),): [2]}), end="")
    # HELP n Such things
    # TYPE n gauge
    n{of="a"} 2
    """
    lines = []
    for (name, (kind, words)), *numbers in zip(table.items(), *values.values(), strict=True):
        lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
        shown = zip(values, numbers, strict=True)
        lines += [f"{name}{_braced(labels)} {number:.15g}" for labels, number in shown]
    return "\n".join(lines) + "\n"


def _braced(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def check(path: Path) -> None:
    """Raise `InvalidSettings` unless the file can be written; it stays as it is."""
    with _new(path) as new:
        new.touch()


def write(path: Path, text: str) -> None:
    """Write the file whole or not at all: a collector never reads half of it."""
    with _new(path) as new:
        new.write_text(text)
        new.replace(path)


@contextmanager
def _new(path: Path) -> Iterator[Path]:
    """A file beside it, to take its place."""
    try:
        if path.exists() and not path.is_file():  # such as /dev/stdout, which root could replace
            raise ValueError("it is no file")
        new = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            yield new
        finally:
            with suppress(OSError):
                new.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise InvalidSettings(f"--metrics {path}: {getattr(error, 'strerror', error)}") from None
