"""`rsnotify` itself: which commands there are, and what an error becomes."""

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperGroup

from rsnotify import __version__
from rsnotify.cli.terminal import LogLines, for_terminal
from rsnotify.errors import InvalidSettings, Rejected, TryAgain

UsageError: Any = typer.BadParameter.__base__  # Typer names its subclass only

COMMANDS = {
    "serve": ("rsnotify.cli.serve", "Run the hub until SIGTERM or Ctrl-C."),
    "status": ("rsnotify.cli.administer", "Show the hub at a glance: its sets, readers and Redis."),
    "top": ("rsnotify.cli.top", "Watch the hub at a glance: the sets that changed last first."),
    "health": ("rsnotify.cli.health", "Exit with 0 if the hub can be sent requests, else with 1."),
    "publish": ("rsnotify_client.commands.publish", "Publish changes to a set."),
    "relay": (
        "rsnotify_client.commands.relay",
        "Publish the outbox table of an application's database.",
    ),
    "demo": ("rsnotify.cli.demo", "Run a Source to try things with."),
    "resources": (
        "rsnotify_client.commands.resources",
        "Load the whole state of a set, ask about it.",
    ),
    "subscribe": (
        "rsnotify_client.commands.subscribe",
        "Follow a set's channel and print each change as a line.",
    ),
    "bridge": (
        "rsnotify_bridge.commands",
        "Publish the changes of a Source that somebody else runs.",
    ),
    "mirror": ("rsnotify_mirror.commands.mirror", "Copy a Source and keep the copy in step."),
    "dump": (
        "rsnotify_mirror.commands.dump",
        "Make ZIPs of a copy: Resource Dumps and Change Dumps.",
    ),
    "audit": (
        "rsnotify_mirror.commands.audit",
        "Compare a copy with its Source: by length, digest and time.",
    ),
    "versions": (
        "rsnotify_mirror.commands.versions",
        "List what a mirror has kept of a resource, or write the copy as it was.",
    ),
    "validate": (
        "rsnotify_mirror.commands.validate",
        "Validate ResourceSync documents, or a whole Source.",
    ),
    "sets": ("rsnotify.cli.administer", "List, add, edit and remove sets; take snapshots."),
    "subscriptions": ("rsnotify.cli.administer", "Manage WebSub subscriptions."),
    "tokens": ("rsnotify.cli.administer", "Make, list and revoke tokens."),
    "backup": ("rsnotify.cli.serve", "Write all journals to a file, while the hub runs."),
    "restore": ("rsnotify.cli.serve", "Make the data directory of a new hub from such a file."),
}
"""For each command the module that has it, and its line in `rsnotify --help`."""


ROLES = {
    "A Source publishes": ("publish", "resources", "relay", "demo"),
    "A Destination follows and copies": ("subscribe", "mirror", "audit", "versions", "dump"),
    "Others that have no hub": ("bridge", "validate"),
    "A hub is run": ("serve", "status", "top", "health", "backup", "restore"),
    "A hub is administered": ("sets", "tokens", "subscriptions"),
}
"""For each part that somebody plays, the commands that belong to it."""


class _Commands(Mapping[str, Any]):
    """The commands, each loaded when it is called: none waits for what only others need."""

    def __getitem__(self, name: str) -> Any:
        module = import_module(COMMANDS[name][0])
        root = typer.Typer(rich_markup_mode=None)  # markup would take 0.4 s of every `--help`
        root.add_typer(module.commands)
        return _with_plain_arguments(typer.main.get_group(root).commands[name])

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _plain(text: str) -> str:
    """What a number may be, as people say it; it stands at the end, after what somebody wrote.

    >>> _plain("[default: 10; 0<=x<=100]"), _plain("0 is not in the range 1<=x<=256")
    ('[default: 10; 0 to 100]', '0 is not in the range 1 to 256')
    >>> _plain("0.0 is not in the range x>=0.1"), _plain("'x>=1' is not a valid int range")
    ('0.0 is not at least 0.1', "'x>=1' is not a whole number")
    """
    text = re.sub(r"valid int(eger)?( range)?$", "whole number", text)
    text = re.sub(r"valid float( range)?$", "number", text)
    text = re.sub(r"([\d.]+)<=x<=([\d.]+)(?=]?$)", r"\1 to \2", text)
    return re.sub(r"(in the range |\b)x>=([\d.]+)(?=]?$)", r"at least \2", text)


def _plain_row(row: tuple[str, str] | None) -> tuple[str, str] | None:
    """A line of a help text, with a word for a value instead of a type of Python.

    >>> _plain_row(("--jobs <int range>", "At once.")), _plain_row(("--data <path>", "[x>=1]"))
    (('--jobs N', 'At once.'), ('--data PATH', '[at least 1]'))
    >>> _plain_row(("--timeout SECONDS", "Patience. [60]  [x>=0.1]"))
    ('--timeout SECONDS', 'Patience. [60; at least 0.1]')
    """
    if row is None:
        return None
    words = {"path": "PATH", "int": "N", "float": "N"}
    shown = re.sub(r"<(\w+)[^>]*>", lambda found: words.get(found[1], "TEXT"), row[0])
    text = re.sub(r"]\s+\[(?=[^]]*]$)", "; ", row[1].replace("[default: ", "["))
    return shown, _plain(text)


def _with_plain_arguments(command: Any) -> Any:
    """In its help each argument stands as its `metavar` says, and no value as a type of Python."""
    for each in getattr(command, "commands", {}).values():
        _with_plain_arguments(each)
    for argument in command.params:
        if getattr(argument, "hidden", False):
            argument.get_usage_pieces = lambda ctx: []  # noqa: ARG005
        elif argument.param_type_name == "argument":
            shown, text = argument.metavar, argument.help
            argument.get_usage_pieces = lambda ctx, shown=shown: [shown]  # noqa: ARG005
            argument.get_help_record = lambda ctx, row=(shown, text): row  # noqa: ARG005
        else:
            of_typer = argument.get_help_record
            argument.get_help_record = lambda ctx, row=of_typer: _plain_row(row(ctx))
    return command


class _Root(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return [*COMMANDS]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        width = max(map(len, COMMANDS))
        for role, names in ROLES.items():
            with formatter.section(role):
                formatter.write_dl([(f"{each:{width}}", COMMANDS[each][1]) for each in names])


app = typer.Typer(
    cls=_Root,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="A push-notification hub for ResourceSync (ANSI/NISO Z39.99).",
)


def main() -> None:
    """Run the command line; every error on purpose becomes one message and an exit status.

    A reader of stdout that has gone away is no error to speak of: Typer ends quietly by itself.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(LogLines("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    words = sys.argv[1:]
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if "_RSNOTIFY_COMPLETE" in os.environ:  # the shell asks, in the middle of a line
        logging.disable()
    elif words[:1] != ["serve"] and any(each.startswith("RSNOTIFY_") for each in os.environ):
        from rsnotify.process.settings import misspelt  # the hub refuses what is misspelt

        _say("warning", *misspelt(os.environ))
    try:
        _check_client_names(words)
        sys.exit(app(words, standalone_mode=False))
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(error.format_message(), err=True)
        else:
            _complain(_with_advice(error))
        sys.exit(2)
    except typer.Abort:
        sys.exit(1)
    except (Rejected, TryAgain) as error:
        _complain(error.detail, *(fault["message"] for fault in getattr(error, "faults", ())[1:]))
        sys.exit(getattr(error, "exit_status", 1))
    except InvalidSettings as error:
        _complain(*error.problems)
        sys.exit(error.exit_status)
    except UnicodeEncodeError as error:
        _complain(f"{str(error.object)[:200]!r} is not UTF-8: write it so")
        sys.exit(2)
    except OSError as error:  # of this machine: a full disk, no more files
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left is not written at the end
        _complain(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        sys.exit(1)


def _check_client_names(words: list[str]) -> None:
    """A misspelt certificate is an error of every command that may need it."""
    is_of_hub = words[:1] == ["serve"]  # which refuses all that is misspelt
    if is_of_hub or "--help" in words or "_RSNOTIFY_COMPLETE" in os.environ:
        return
    if any(each.startswith("RSNOTIFY_CLIENT_") for each in os.environ):
        from rsnotify_client.network import check_names

        check_names(os.environ)


@contextmanager
def wrong_use(*errors: type[Exception], at: str = "") -> Iterator[None]:
    """Such an error within means that the command was used wrong; `at` says where, or what for."""
    try:
        yield
    except errors as error:
        said = getattr(error, "strerror", None) or getattr(error, "detail", None) or str(error)
        raise InvalidSettings(f"{at}: {said}" if at else said) from None


RENAMED = {
    "rsnotify check": "rsnotify serve --check",
    "rsnotify outbox": "rsnotify relay --status",
    "rsnotify snapshot": "rsnotify sets snapshot",
    "rsnotify resources compare": "rsnotify resources load --dry-run",
    "rsnotify resources load --tell": "--publish",
    "rsnotify resources load --no-tell": "--no-publish",
    "rsnotify subscribe --from": "--position",
    "rsnotify dump --publish": "--announce SET",
    "rsnotify sets edit --describedby": "--address describedby=URL",
    "rsnotify sets edit --topic": "--address topic=URL",
    "rsnotify sets edit --framework-topic": "--address framework_topic=URL",
    "rsnotify sets edit --resource-list": "--address resourcelist=URL",
    "rsnotify sets edit --resource-dump": "--address resourcedump=URL",
    "rsnotify sets edit --change-list": "--address changelist=URL",
    "rsnotify sets edit --change-dump": "--address changedump=URL",
    "rsnotify sets edit --resource-list-archive": "--address resourcelist_archive=URL",
    "rsnotify sets edit --resource-dump-archive": "--address resourcedump_archive=URL",
    "rsnotify sets edit --change-list-archive": "--address changelist_archive=URL",
    "rsnotify sets edit --change-dump-archive": "--address changedump_archive=URL",
    "rsnotify sets edit --change-notification": "--address change_notification=URL",
    "rsnotify sets edit --framework-notification": "--address framework_notification=URL",
    "rsnotify sets edit --channel-hub": "--address channel_hub=URL",
}
"""What a command, or an option of one, was called, and what it is called."""


def _with_advice(error: Any) -> str:
    """A wrong use of the command line, in words; and where to read how it is used."""
    given = [each for each in sys.argv[1:2] if each in COMMANDS]
    path = error.ctx.command_path if error.ctx else " ".join(["rsnotify", *given])
    if "tok" in (name := getattr(error, "option_name", "")):
        variable = "RSNOTIFY_SOURCE_TOKEN" if "source" in name else "RSNOTIFY_TOKEN"
        return f"a token is not given on the command line, where others see it: set {variable}"
    if (renamed := RENAMED.get(f"{path} {name}")) is not None:
        return f"{name} is called {renamed}"
    message = _plain(error.format_message().rstrip(".").removeprefix("Invalid value: "))
    if hasattr(error, "possibilities"):  # Typer names near ones, the first of the alphabet first
        known = [*(error.possibilities or ()), *_old_options(path)]
        near = [RENAMED.get(f"{path} {each}", each) for each in get_close_matches(name, known, n=1)]
        message = f"no such option: {name}"
        if name == "--yes" and not isinstance(error.ctx.command, TyperGroup):
            message += "; this command asks nothing, so leave it out"
        elif having := _neighbours_with(name, error.ctx):
            message += f"; it belongs to `{'` and `'.join(having)}`"
        elif near:
            message += f"; did you mean {near[0]}?"
    if (unknown := _NO_COMMAND.match(message)) is not None:
        if (renamed := RENAMED.get(f"{path} {unknown[1]}")) is not None:
            return f"`{path} {unknown[1]}` is called `{renamed}`"
        if within := _groups_with(unknown[1], error.ctx):
            message = f"no such command '{unknown[1]}'; did you mean `{'` or `'.join(within)}`?"
        elif not message.endswith("?"):
            commands = error.ctx.command.list_commands(error.ctx)
            message += f": the commands are {', '.join(commands)}"
    see = " See" if message.endswith("?") else "; see"
    return f"{message[:1].lower()}{message[1:]}{see} {path} --help"


def _neighbours_with(option: str, context: Any) -> list[str]:
    """The other commands of the same group that have this option: `sets edit` beside `sets add`."""
    group = context.parent
    if group is None or group.parent is None:
        return []
    return [
        f"{group.command_path} {name}"
        for name, command in group.command.commands.items()
        if any(option in (*each.opts, *each.secondary_opts) for each in command.params)
    ]


def _groups_with(name: str, context: Any) -> list[str]:
    """The commands of groups that are called so: `resources load` for `load`."""
    if context.parent is not None:
        return []
    groups = context.command.commands.items()
    return [
        f"{context.command_path} {group} {name}"
        for group, command in groups
        if name in getattr(command, "commands", {})
    ]


def _old_options(path: str) -> Iterator[str]:
    """What options of this command were called: whoever misspells one means what it is now."""
    for old in RENAMED:
        command, _, option = old.rpartition(" ")
        if command == path and option.startswith("--"):
            yield option


_NO_COMMAND = re.compile("No such command '(.+?)'")


def _complain(*problems: str) -> None:
    _say("error", *problems)


def _say(kind: str, *problems: str) -> None:
    if not problems:
        return
    if "--json" in sys.argv:
        from rsnotify.cli.output import print_json

        print_json({f"{kind}s": problems}, err=True)
        return
    head = typer.style(f"{kind}:", fg="red", bold=True)
    for problem in problems:
        typer.echo(f"{head} {for_terminal(problem)}", err=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rsnotify {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        Option(
            "--version", "-V", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass
