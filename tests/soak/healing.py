"""Every order of nine steps, where `make test` goes through those of seven."""

from tests.fault.test_healing_model import FIRST, STEPS, check, worlds


def main() -> None:
    for name, first in FIRST.items():
        found = worlds(first, STEPS + 2)
        for world, path in found:
            check(world, path)
        print(f"{name}: {len(found):,} states keep the promises")
