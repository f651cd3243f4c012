"""What only Linux has is not needed to import anything: macOS, for one, does not have it."""

import subprocess
import sys

import pytest

WITHOUT_LINUX = r"""
import asyncio, fcntl, importlib, multiprocessing, os, pkgutil, re, resource, select, signal
import socket, sys
import aiohttp, gunicorn.app.base, redis.asyncio, rich.console, starlette.requests, typer, urllib3
import uvicorn.server, uvloop, websockets.server

# These import nothing of theirs yet.
import rsnotify, rsnotify_bridge, rsnotify_client, rsnotify_mirror

ONLY_ON_LINUX = {
    fcntl: "F_(ADD_SEALS|GET_SEALS|SEAL_|OFD_|.ETPIPE_SZ|NOTIFY|.ETSIG|.ETLEASE)|DN_",
    os: "copy_file_range|eventfd|EFD_|fork|register_at_fork|getrandom|GRND_|memfd|MFD_|pidfd"
    "|pipe2|posix_fa|POSIX_FADV|prlimit|sched_[gs]et|setns|splice|SPLICE|unshare|timerfd|TFD_"
    "|O_(DIRECT|LARGEFILE|NOATIME|PATH|RSYNC|TMPFILE)$|P_PIDFD|[gls][a-z]*xattr|XATTR",
    resource: "prlimit|RLIMIT_(MSGQUEUE|NICE|OFILE|RT|SIGPENDING)|RUSAGE_THREAD",
    select: "epoll|EPOLL",
    signal: "SIG(CLD|POLL|PWR|RTM|STKFLT)|sig(timedwait|waitinfo)|pidfd",
    socket: "AF_(ALG|CAN|NETLINK|PACKET|QIPC|RDS|TIPC|VSOCK)|ALG_|CAN|IPX|IP_(BIND|TRANSP)|NETLINK"
    "|MSG_(CMSG|CONFIRM|ERRQ|FAST|MORE)|PACKET_|SOCK_(CLOEXEC|NONBLOCK)|TIPC|VM"
    "|SO_(BINDTO|DOMAIN|INCOMING|MARK|PASS|PEER|PRIORITY|PROTOCOL)|UDPLITE|SOL_(ALG|CAN|TIPC|UDPL)"
    "|TCP_(CORK|DEFER|INFO|KEEPIDLE|LINGER2|MD5|QUICK|SYNCNT|THIN|USER_TIMEOUT|WINDOW|CONGESTION)",
}
for module, names in ONLY_ON_LINUX.items():
    taken = [name for name in dir(module) if re.match(names, name)]
    for name in taken:
        delattr(module, name)
    assert taken or sys.platform != "linux", module


def no_proc(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith("/proc"):
        raise FileNotFoundError(arguments[0])


sys.addaudithook(no_proc)
for package in (rsnotify, rsnotify_bridge, rsnotify_client, rsnotify_mirror):
    for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not each.name.endswith("__main__"):
            importlib.import_module(each.name)
            print(each.name)
"""


@pytest.mark.evidence
def test_everything_can_be_imported_without_what_only_linux_has():
    command = [sys.executable, "-W", "error::SyntaxWarning", "-c", WITHOUT_LINUX]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    names = set(ended.stdout.split())
    assert {"rsnotify.process.composition", "rsnotify_client.integrations.django"} <= names
