"""The command line: a short function for each command, which hands over to `rsnotify/commands`.

To add a command, write a function in the module of its group; its docstring is the help.

Rules that hold here: results go to stdout, everything else to stderr; exit status 1 means that the
hub or a document said no, 2 that the command or a setting is wrong (a refused token and an unknown
set are such). Each command imports what it
needs when it runs: a client's command neither waits for the server's packages nor needs them.
"""

from rsnotify.cli.root import app, main

__all__ = ["app", "main"]
