"""What a benchmark started is gone when it ends, grandchildren that ignore signals included."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.programs import Ports, Program, ProgramFailed

STUBBORN = """
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if len(sys.argv) == 2:
    child = subprocess.Popen([sys.executable, *sys.orig_argv[1:3], sys.argv[1], "child"], start_new_session=True)
    pathlib.Path(sys.argv[1]).write_text(str(child.pid))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
time.sleep(600)
"""
WAIT_S = 20


def alive(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc")
def test_descendants_end_with_the_program(tmp_path: Path) -> None:
    told = tmp_path / "child"
    with Program("it", [sys.executable, "-c", STUBBORN, str(told)], tmp_path / "log") as it:
        end = time.monotonic() + WAIT_S
        while not (told.exists() and told.read_text()) and time.monotonic() < end:
            time.sleep(0.02)
        child = int(told.read_text())
        assert alive(child)
        memory = it.memory_bytes()
    assert memory is not None
    assert memory > 1 << 20
    assert not alive(child)


STARTER = """
import pathlib, sys, time
from benchmarks.programs import Program
with Program("it", [sys.executable, "-c", "import time; time.sleep(600)"], pathlib.Path(sys.argv[1])) as it:
    print(it._process.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_programs_end_with_a_killed_benchmark(tmp_path: Path) -> None:
    words = [sys.executable, "-c", STARTER, str(tmp_path / "log")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as bench:
        assert bench.stdout is not None
        program = int(bench.stdout.readline())
        assert alive(program)
        bench.kill()
    end = time.monotonic() + WAIT_S
    while alive(program) and time.monotonic() < end:
        time.sleep(0.02)
    assert not alive(program)


def test_a_program_that_ends_early_says_why(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "raise SystemExit('no room')"]
    with Program("it", words, tmp_path / "log") as it, pytest.raises(ProgramFailed, match="no room"):
        it.wait_ready("http://127.0.0.1:9/healthz")


def test_a_program_that_fails_is_not_done(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "raise SystemExit(3)"]
    with Program("it", words, tmp_path / "log") as it, pytest.raises(ProgramFailed):
        it.wait_done(WAIT_S)


def test_ports_are_free_and_differ() -> None:
    ports = Ports(0)
    assert len({ports.take() for _ in range(20)}) == 20
    ordered = Ports(ports.take())
    first, second = ordered.take(), ordered.take()
    assert second > first
