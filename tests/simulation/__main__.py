"""Run histories: `python -m tests.simulation [SCENARIO…] [--seed N] [--seconds S]`."""

import sys

from tests.simulation import virtual  # noqa: F401  before anything of the hub
from tests.simulation.run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
