"""Threads share a bounded number of malloc arenas."""

from __future__ import annotations

import subprocess
import sys

import pytest

from serve_app.allocator import ARENAS

PROGRAM = """
import ctypes, sys, threading
from serve_app.allocator import bound_arenas
if "bound" in sys.argv:
    assert bound_arenas()
started = threading.Barrier(9)
def work():
    held = [bytes(700 + n) for n in range(2000)]
    started.wait()
    started.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
started.wait()
ctypes.CDLL(None).malloc_stats()
started.wait()
"""


def arenas(*words: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, timeout=30, check=True
    )
    return done.stderr.count("Arena ")


@pytest.mark.skipif(sys.platform != "linux", reason="arenas are glibc's")
def test_arenas_are_bounded() -> None:
    assert arenas("bound") <= ARENAS < arenas()
