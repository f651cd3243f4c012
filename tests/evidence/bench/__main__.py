"""`python -m tests.evidence.bench [NAME]...`: run the benchmarks, all of them or those named."""

import importlib
import os
import platform
import sys
from pathlib import Path

NAMES = (
    "appends",
    "bridge",
    "caches",
    "channels",
    "dumps",
    "floods",
    "kept",
    "loads",
    "mirror",
    "path",
    "publisher",
    "pull",
    "replicas",
    "sets",
    "strangers",
    "trips",
    "websub",
    "writes",
)
"""`history` is measured by itself: it takes long, and as many changes as one says."""


def machine() -> str:
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return f"{os.cpu_count()} cores of {cpu}, Python {platform.python_version()}"


if __name__ == "__main__":
    print(f"Machine: {machine()}\n", flush=True)
    for name in sys.argv[1:] or NAMES:
        print(f"## {name}\n", flush=True)
        importlib.import_module(f"tests.evidence.bench.{name}").main()
        print(flush=True)
