"""The way of a replica's output to the terminal: a named pipe that the session reads and every replica writes.

Ray's own path (a file a worker, a monitor process, the driver) loses the end of what a dying process says and
decorates each line; here a crash dump arrives as it was written.
"""

from __future__ import annotations

import codecs
import os
import sys
import threading
from pathlib import Path

READ_BYTES = 64 * 1024
STDOUT, STDERR = 1, 2


class Console:
    """Reads the pipe at `path` and copies it to this process's standard error, from `__init__` to `close`."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path, mode=0o600)
        # Open for both directions: reads never see an end while replicas come and go, and `close` can wake the thread.
        self._pipe = os.open(path, os.O_RDWR)
        self._closing = False
        self._thread = threading.Thread(target=self._copy, name="console", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Copy what is still in the pipe, then end."""
        self._closing = True
        os.write(self._pipe, b"\0")
        self._thread.join()
        os.close(self._pipe)

    def _copy(self) -> None:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        while True:
            data = os.read(self._pipe, READ_BYTES)
            sys.stderr.write(decode(data.replace(b"\0", b"")))
            sys.stderr.flush()
            if self._closing and data.endswith(b"\0"):
                return


def write_to_console(path: Path) -> None:
    """From now on this process's standard output and error go into the pipe at `path`."""
    pipe = os.open(path, os.O_WRONLY)
    os.dup2(pipe, STDOUT)
    os.dup2(pipe, STDERR)
    os.close(pipe)
