"""Run histories: `python -m tests.simulation --help` names what can be chosen."""

import sys

from tests.simulation import known, virtual  # noqa: F401  before anything of the hub

if __name__ == "__main__":
    if "--fault" in sys.argv:
        known.plant(sys.argv[sys.argv.index("--fault") + 1])
    from tests.simulation.run import main

    sys.exit(main(sys.argv[1:]))
