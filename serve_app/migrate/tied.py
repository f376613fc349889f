"""A program in this process's place that is nicer to others, and that ends with the process that started this one.

    python -m serve_app.migrate.tied PARENT program arguments …

Run as a module of its own, since nothing may happen between fork and exec of a process with many threads. Linux kills
the program when the thread that started it ends; elsewhere nothing does.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
NICENESS = 10


def main(arguments: list[str]) -> None:
    parent, *command = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != int(parent):  # it has ended before it could be heard of
            sys.exit(1)
    os.nice(NICENESS)
    os.execv(command[0], command)  # noqa: S606 - what Control asks for, and nobody else


if __name__ == "__main__":
    main(sys.argv[1:])
