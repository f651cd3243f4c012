"""`python -m tests.evidence.soak [NAME]...`: the proofs that take minutes; this is `make soak`."""

import importlib
import sys
import time
from pathlib import Path

NAMES = sorted(
    path.stem for path in Path(__file__).parent.glob("*.py") if "\ndef main()" in path.read_text()
)

if __name__ == "__main__":
    for name in sys.argv[1:] or NAMES:
        began = time.monotonic()
        importlib.import_module(f"tests.evidence.soak.{name}").main()
        print(f"{name}: proven in {time.monotonic() - began:.0f} s", flush=True)
