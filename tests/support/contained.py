"""Commands as containers and units run them: as another user, who may write in one place or none.

What a test calls lies anywhere, also where only root may look: so the user may read everything, and
no right but that one is left. It is a mount namespace of root's that makes all else read-only.
"""

import ctypes
import ctypes.util
import errno
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from socket import AF_INET6

import pytest

from tests.support.needs import need

SCRIPT = """
user=$1 writable=$2; shift 2
mount --make-rprivate /
if [ -n "$writable" ]; then mount --bind "$writable" "$writable"; fi
cut -d ' ' -f 2 /proc/self/mounts | grep -v -e ^/proc -e ^/sys -e ^/dev |
while read -r each; do
  [ "$each" = "$writable" ] || mount -o remount,bind,ro "$each" 2>/dev/null
done
exec setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs \
  --bounding-set -all,+dac_read_search --inh-caps -all,+dac_read_search \
  --ambient-caps -all,+dac_read_search "$@"
"""

ALLOW, KILL = 0x7FFF0000, 0x80000000  # of libseccomp
REFUSE = 0x00050000 | errno.EAFNOSUPPORT
GREATER = 6


def contained(user: int, writable: Path | None = None) -> list[str]:
    """What begins the words of such a command; the place where it may write is made its own."""
    unshare = need("unshare")
    need("setpriv")
    if subprocess.run([unshare, "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("not root, so no mount namespace")
    if writable is not None:
        writable.mkdir(parents=True, exist_ok=True)
        os.chown(writable, user, user)
    return [unshare, "--mount", "sh", "-c", SCRIPT, "sh", str(user), str(writable or "")]


def filtered(group: str) -> list[str]:
    """What begins the words of a command that may make the system calls of a group alone, and no
    sockets but of files and of IP; systemd says what is in the group."""
    if ctypes.util.find_library("seccomp") is None:
        pytest.skip("no libseccomp")
    return [sys.executable, "-m", "tests.support.contained", ",".join(sorted(calls_of(group)))]


def calls_of(group: str) -> set[str]:
    words = [need("systemd-analyze"), "syscall-filter", group]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    names = {line.strip() for line in said.splitlines()[1:] if not line.strip().startswith("#")}
    others = {name for name in names if name.startswith("@")}
    return (names - others - {""}).union(*map(calls_of, others))


class Argument(ctypes.Structure):
    """`struct scmp_arg_cmp`."""

    _fields_ = (
        ("number", ctypes.c_uint),
        ("comparison", ctypes.c_int),
        ("value", ctypes.c_uint64),
        ("other", ctypes.c_uint64),
    )


def main(calls: Sequence[str], words: Sequence[str]) -> None:
    """Become the command; another system call ends it by SIGSYS."""
    seccomp = ctypes.CDLL(ctypes.util.find_library("seccomp"))
    seccomp.seccomp_init.restype = ctypes.c_void_p
    seccomp.seccomp_init.argtypes = [ctypes.c_uint32]
    rule = seccomp.seccomp_rule_add_array
    rule.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p]
    seccomp.seccomp_load.argtypes = [ctypes.c_void_p]
    numbers = {seccomp.seccomp_syscall_resolve_name(name.encode()) for name in calls}
    socket = seccomp.seccomp_syscall_resolve_name(b"socket")
    families = seccomp.seccomp_init(ALLOW)
    beyond = Argument(0, GREATER, AF_INET6, 0)
    assert rule(families, REFUSE, socket, 1, ctypes.byref(beyond)) == 0
    only = seccomp.seccomp_init(KILL)
    for number in numbers:
        if number >= 0:  # else this machine has none of that name
            assert rule(only, ALLOW, number, 0, None) == 0
    assert seccomp.seccomp_load(families) == 0
    assert seccomp.seccomp_load(only) == 0
    os.execv(words[0], [*words])


if __name__ == "__main__":
    main(sys.argv[1].split(","), sys.argv[2:])
