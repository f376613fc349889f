"""Ties the life of a process to its parent's, so that a killed service leaves no process and no port behind.

Linux tells a process when its parent dies (PR_SET_PDEATHSIG, prctl(2)); the setting survives exec. Elsewhere
nothing is tied, and a killed service may leave processes to end by hand.
"""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

PR_SET_PDEATHSIG = 1


STOP_S_MAX = 20
"""After a first signal the child has this long to end; then it is killed."""

SAME_SIGNAL_S = 1.0
"""Signals this close together are one wish: a shell or make passes on what the whole group was sent already."""


def die_with_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process the signal `by` as soon as its parent is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, by)


def tied_program(program: Path, at: Path) -> Path:
    """A launcher at `at` that runs `program` in its own place, tied to whoever started it.

    For programs that Ray starts for us: HAProxy would outlive the process that manages it, and keep the port.
    """
    at.write_text(
        f"#!{sys.executable} -IS\n"
        "import ctypes, os, sys\n"
        f"ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG}, {int(signal.SIGKILL)})\n"
        f"os.execv({str(program)!r}, [{str(program)!r}, *sys.argv[1:]])\n"
    )
    at.chmod(stat.S_IRWXU)
    return at


def run_apart(work: Callable[[], int]) -> int:
    """Run `work` in a child with a process group of its own and give its exit status.

    Ctrl-C in a terminal and `kill -TERM -group` reach every process of a group at once, and Ray's processes, hit
    beside the one that ought to stop them in order, would leave it talking to the dead. So only this process is
    hit: it passes the first signal on as SIGTERM and kills the child at the second, or when that takes too long.
    Killed itself, it leaves a child that ends in order.
    """
    child = os.fork()
    if child == 0:
        os.setsid()
        die_with_parent(signal.SIGTERM)
        os._exit(_status_of(work))
    first: list[float] = []

    def pass_on(_number: int, _frame: object) -> None:
        now = time.monotonic()
        if not first:
            first.append(now)
            signal.alarm(STOP_S_MAX)
            os.kill(child, signal.SIGTERM)
        elif now - first[0] > SAME_SIGNAL_S:
            os.kill(child, signal.SIGKILL)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, pass_on)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _status_of(work: Callable[[], int]) -> int:
    try:
        status = work()
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status
