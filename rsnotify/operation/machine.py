"""What the system says of this process: where it runs, and what it takes."""

import os
import resource
from contextlib import suppress
from pathlib import Path
from socket import gethostname

_STATM = Path("/proc/self/statm")
FILES = Path("/proc/self/fd")  # its size is their number since Linux 6.2: to list them takes long


class Machine:
    """The real one. The hub is given it, like its clock: a simulated world has others."""

    def host_name(self) -> str:
        return gethostname()

    def process_id(self) -> int:
        return os.getpid()

    def cpu_seconds(self) -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    def resident_bytes(self) -> int:
        """Memory, as Linux counts it; 0 where nothing says so."""
        with suppress(OSError):
            return int(_STATM.read_text().split()[1]) * resource.getpagesize()
        return 0

    def open_files_limit(self) -> int:
        """How many may be open; 0 without a limit."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return 0 if limit == resource.RLIM_INFINITY else limit

    def open_files(self) -> int:
        """0 where nothing says so."""
        with suppress(OSError):
            return FILES.stat().st_size
        return 0
