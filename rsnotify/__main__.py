"""`python -m rsnotify`: the command line."""

from rsnotify.cli import main

main()
