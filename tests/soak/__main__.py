"""`python -m tests.soak [NAME]...`: the proofs that take minutes, all of them or those named."""

import importlib
import sys
from pathlib import Path

NAMES = sorted(
    path.stem for path in Path(__file__).parent.glob("*.py") if "\ndef main()" in path.read_text()
)

if __name__ == "__main__":
    for name in sys.argv[1:] or NAMES:
        print(f"## {name}\n", flush=True)
        importlib.import_module(f"tests.soak.{name}").main()
        print(flush=True)
