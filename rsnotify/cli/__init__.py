"""The command line: the hub's own commands, and the frame of all.

A module is a command or a few alike, with options and what they do. Those of the clients lie with
them, in `commands` of their packages. All share the frame: `root` has the table of commands and
says what an error becomes, `options` what several have, `target` which hub is spoken to, `output`
how things are shown, `watched` what runs for long and is watched. To add a command, write its
module and a line in `root.COMMANDS`; its docstring is its help.

Rules that hold here: results go to stdout, everything else to stderr; exit status 1 means that the
hub or a document said no, 2 that the command or a setting is wrong (a refused token and an unknown
set are such). A module is imported when its command is called: a client's command neither waits for
the server's packages nor needs them.
"""

from rsnotify.cli.root import app, main

__all__ = ["app", "main"]
