"""What is done after each change of a copy that is in its place: a command, or a function."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from rsnotify.errors import InvalidSettings, TryAgain
from rsnotify_mirror.report import Event

Hook = Callable[[Event, bytes | None], Awaitable[None]]
"""Called after each change that is in its place; what it raises makes the change be tried again."""


NAMES = ("path", "loc")
# {{name}}, or {name}; ${name} is left to a shell
_NAMED = re.compile(r"\{\{(\w+)\}\}|(?<!\$)\{([A-Za-z_]\w*)\}")
# Programs that run a text which they are given after an option: its letter and its long form.
_RUN_TEXT = (
    (r"(?:[abcz]|ba|da|fi|k|mk|pdk|rba|tc|ya)?sh|su|runuser|flock|script", "c", "--command"),
    (r"(?:python|pypy)[\d.]*", "c", "--command"),
    (r"(?:perl|ruby|lua|node|deno|bun|Rscript)[\d.]*", "eEp", "--eval"),
    (r"php[\d.]*", "r", "--run"),
)
_JOIN_WORDS = ("ssh", "eval", "watch", "parallel")  # they hand all their words to a shell


def command_hook(command: str, root: Path) -> Hook:
    """Run a command after each change, without a shell; `{path}` and `{loc}` are filled in.

    A Source chooses what they are. So they are refused inside a text that a shell would run.
    The same is in its environment: RSNOTIFY_EVENT, RSNOTIFY_LOC, RSNOTIFY_PATH.
    """
    words = _words(command)

    async def hook(event: Event, _: bytes | None) -> None:
        path = str(root / event.path) if event.path else ""
        values = {"path": path, "loc": event.loc or ""}
        filled = [_filled(word, values) for word in words]
        environment = os.environ | {
            "RSNOTIFY_EVENT": event.event,
            "RSNOTIFY_LOC": values["loc"],
            "RSNOTIFY_PATH": path,
        }
        try:
            process = await asyncio.create_subprocess_exec(*filled, env=environment)
        except OSError as error:
            raise TryAgain(f"--exec {filled[0]}: {error.strerror}", retry_after_seconds=0) from None
        if status := await process.wait():
            raise TryAgain(f"--exec {filled[0]} ended with {status}", retry_after_seconds=0)

    return hook


def _words(command: str) -> list[str]:
    """The words of a command that can be run."""
    import shlex  # noqa: PLC0415 - seldom needed
    import shutil  # noqa: PLC0415

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InvalidSettings([f"--exec: {error}"]) from None
    if not words:
        raise InvalidSettings(["--exec: name a command"])
    for name in (found[2] for word in words for found in _NAMED.finditer(word)):
        if name not in (None, *NAMES):
            raise InvalidSettings(
                [
                    f"--exec: {{{name}}} is unknown; there are {{path}} and {{loc}}. "
                    f"Write {{{{{name}}}}} if the program is to get {{{name}}} itself"
                ]
            )
    if (found := _run_as_text(words)) is not None:
        program, name = found
        raise InvalidSettings(
            [
                f"--exec: {{{name}}} is part of what {program} runs, and a Source decides what it "
                f'is. Write "$RSNOTIFY_{name.upper()}" there (an environment variable, in quotes)'
            ]
        )
    if not _NAMED.search(words[0]) and shutil.which(words[0]) is None:
        raise InvalidSettings([f"--exec {words[0]}: there is no such program that may be run"])
    return words


def _run_as_text(words: list[str]) -> tuple[str, str] | None:
    """A program that would run what is filled in, and the name that stands there."""
    for at, word in enumerate(words):
        program = word.rpartition("/")[2]
        texts = words[at + 1 :] if program in _JOIN_WORDS else _texts(program, words[at + 1 :])
        for found in (found for text in texts for found in _NAMED.finditer(text)):
            if found[2] is not None:
                return program, found[2]
    return None


def _texts(program: str, words: list[str]) -> list[str]:
    """The words that a program runs as a text: the option for it, and the first that is none."""
    for pattern, letters, long_form in _RUN_TEXT:
        if re.fullmatch(pattern, program):
            return _after_option(words, letters, long_form)
    return []


def _after_option(words: list[str], letters: str, long_form: str) -> list[str]:
    texts = list[str]()
    for word in words:
        is_short = word.startswith("-") and not word.startswith("--")
        if word.startswith(long_form) or (is_short and any(letter in word for letter in letters)):
            texts.append(word)
        elif texts and not word.startswith(("-", "+")):
            return [*texts, word]
    return texts


def _filled(word: str, values: Mapping[str, str]) -> str:
    """With the values of the names; what stands in two pairs of braces keeps one."""
    return _NAMED.sub(lambda found: values[found[2]] if found[2] else f"{{{found[1]}}}", word)
