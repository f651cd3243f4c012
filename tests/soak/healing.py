"""Every order of nine steps, where `make test` goes through those of six."""

from tests.fault.test_healing_model import FIRST, check, worlds

STEPS = 9


def main() -> None:
    for name, first in FIRST.items():
        found = worlds(first, STEPS)
        for world, path in found:
            check(world, path)
        print(f"{name}: {len(found):,} states keep the promises")
