"""`make fuzz`: each target for FUZZ_SECONDS, guided by coverage where atheris is installed.

Without it, mutations of the corpus, other ones each time. What fails is shown and kept as a file,
which `python -m tests.evidence.fuzz TARGET --input FILE` reads again; in the corpus, `make test`
does so.
"""

import argparse
import contextlib
import io
import logging
import random
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from importlib.util import find_spec
from pathlib import Path

from tests.evidence.fuzz.mutations import MOST_BYTES, mutations

CORPUS = Path(__file__).with_name("corpus")
INPUT_SECONDS = 5  # of processor time, for an input of some KiB
MEMORY_BYTES = 2 * 1024**3  # of a target's process
AT_ONCE = 500
GUIDED = "atheris"
CLIENTS = ("rsnotify_bridge", "rsnotify_client", "rsnotify_mirror")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.evidence.fuzz")
    parser.add_argument("target", nargs="?")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--input", type=Path)
    asked = parser.parse_args()
    if asked.target is None:
        return _each(asked.seconds)
    for package in CLIENTS:
        logging.getLogger(package).setLevel(logging.ERROR)
    if asked.input is not None:
        return _once(asked.target, asked.input.read_bytes())
    seed = int(time.time()) if asked.seed is None else asked.seed
    return _guided(asked.target, asked.seconds, seed) or 0


def _each(seconds: float) -> int:
    """Each target in a process of its own: one that dies, or eats too much, ends only itself."""
    failed = [name for name in sorted(p.name for p in CORPUS.iterdir()) if _ends(name, seconds)]
    print(f"fuzz: {', '.join(failed)} failed" if failed else "fuzz: all targets held")
    return bool(failed)


def _ends(name: str, seconds: float) -> int:
    command = (sys.executable, "-m", "tests.evidence.fuzz", name, "--seconds", str(seconds))
    print(f"fuzz: {name} for {seconds:g} s", flush=True)
    return subprocess.run(command, check=False).returncode


def _guided(name: str, seconds: float, seed: int) -> int:
    if find_spec(GUIDED) is None:
        print(f"{GUIDED} is not installed: mutations alone, seed {seed}")
        return _mutated(name, seconds, seed)
    import atheris

    with atheris.instrument_imports(include=["rsnotify", *CLIENTS]):
        from tests.evidence.fuzz.targets import TARGETS

    target = TARGETS[name]
    kept = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
    words = kept / "words"
    escaped = ("".join(f"\\x{byte:02x}" for byte in word) for word in target.words)
    words.write_text("".join(f'"{each}"\n' for each in escaped))
    found = kept / "found"
    found.mkdir()
    options = (
        f"-max_total_time={seconds:.0f}",
        f"-max_len={MOST_BYTES}",
        f"-timeout={INPUT_SECONDS}",
        f"-rss_limit_mb={MEMORY_BYTES // 1024**2}",
        f"-seed={seed % 2**31}",
        f"-dict={words}",
        f"-artifact_prefix={kept}/",
        "-print_final_stats=1",
        "-verbosity=0",
    )

    def read(data: bytes) -> None:
        with contextlib.redirect_stderr(io.StringIO()):
            target.read(data)

    atheris.Setup([sys.argv[0], *options, str(found), str(CORPUS / name)], read)
    atheris.Fuzz()
    return 0


def _mutated(name: str, seconds: float, seed: int) -> int:
    from tests.evidence.fuzz.targets import TARGETS

    resource.setrlimit(resource.RLIMIT_AS, (4 * MEMORY_BYTES, 4 * MEMORY_BYTES))
    target, chance = TARGETS[name], random.Random(seed)
    corpus = [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
    ends, count = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        for data in mutations(corpus, target.words, AT_ONCE, chance):
            count += 1
            if _once(name, data):
                return 1
    print(f"{name}: {count} inputs held")
    return 0


def _once(name: str, data: bytes) -> int:
    from tests.evidence.fuzz.targets import TARGETS

    began = time.process_time()
    try:
        TARGETS[name].read(data)
        took = time.process_time() - began
        if took <= INPUT_SECONDS:
            return 0
        print(f"{name}: it took {took:.1f} s")
    except Exception:
        traceback.print_exc()
    kept = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-")) / "input"
    kept.write_bytes(data)
    print(f"{name}: try it again with: python -m tests.evidence.fuzz {name} --input {kept}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
