"""Programs that a benchmark starts and ends: a service on either engine, the ceiling, the peers.

Every program carries a mark in its environment, which its descendants inherit: by it they are found, weighed and, in
the end, killed if need be, by number and whatever happened before. Where there is no /proc the group of the program
stands in for them. On Linux they also end when the benchmark itself is killed: the kernel sends them SIGTERM.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import httpx

from benchmarks.load import Target
from serve_app.errors import MemstrataError

READY_S = 300.0
READY_POLL_S = 0.1
STOP_S = 40.0
"""After a signal; Ray takes some seconds."""

KILLED_S, KILL_POLL_S = 10.0, 0.02
LOG_CHARACTERS = 2_000
IDLE_S = 1.0
"""From ready to the weighing of what is idle."""

PORT_MAX = 1 << 16
MARK = "MEMSTRATA_BENCH_MARK"
PROC = Path("/proc")
LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1


class ProgramFailed(MemstrataError):
    code = "program_failed"


def _end_with_parent() -> None:
    """In the child, before it becomes the program. The setting survives exec (prctl(2))."""
    LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))


class Program:
    """A context manager: starts on entering, ended with all of its descendants on leaving."""

    def __init__(self, name: str, words: Sequence[str], log: Path, **environment: str) -> None:
        self.name, self._words, self._log = name, words, log
        self._mark = secrets.token_hex(8)
        self._environment = {MARK: self._mark, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Program:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self._environment,
                start_new_session=True,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process is not None
        try:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            pass  # killed below
        finally:
            self._kill()

    def wait_ready(self, url: str) -> None:
        """Until `url` answers 200. Raises ProgramFailed with the end of the log."""
        assert self._process is not None
        end = time.monotonic() + READY_S
        while not _answers(url):
            if self._process.poll() is not None or time.monotonic() > end:
                raise ProgramFailed(f"{self.name} did not become ready: {self._last_words()}")
            time.sleep(READY_POLL_S)

    def wait_done(self, seconds: float) -> None:
        """Until it has ended by itself, well. Raises ProgramFailed."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        if self._process.returncode != 0:
            raise ProgramFailed(f"{self.name} failed: {self._last_words()}")

    def memory_bytes(self) -> int | None:
        """Proportional set size of the whole tree; None where the system does not tell."""
        weighed = [_pss_bytes(process) for process in self._processes()]
        return sum(weighed) or None

    def written_bytes(self) -> int:
        """What the tree has sent to storage so far, as the system counts it; 0 where it does not tell."""
        return sum(map(_written_bytes, self._processes()))

    def cpu_seconds(self) -> float:
        """What the tree has computed so far; 0 where the system does not tell."""
        return sum(map(_cpu_seconds, self._processes()))

    def kill(self) -> None:
        """SIGKILL, to everything at once."""
        self._kill()

    def _processes(self) -> Iterator[Path]:
        """Everything alive that carries the mark."""
        wanted = f"{MARK}={self._mark}".encode()
        for process in PROC.glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if wanted in (process / "environ").read_bytes().split(b"\0"):
                    yield process

    def _kill(self) -> None:
        assert self._process is not None
        end = time.monotonic() + KILLED_S
        while (left := list(self._processes())) and time.monotonic() < end:
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process.name), signal.SIGKILL)
            time.sleep(KILL_POLL_S)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(KILLED_S)

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace").strip()[-LOG_CHARACTERS:]


class Service(Program):
    """`memstrata serve` on a store of its own. `start_s` and `idle_bytes` are taken when it is ready."""

    def __init__(self, engine: str, folder: Path, port: int, config: Path | None = None) -> None:
        self._data, self._port = folder / f"data-{engine}", port
        words = [sys.executable, "-m", "serve_app.cli", "serve", "--engine", engine]
        words += ["--data", str(self._data), "--port", str(port), *(["--config", str(config)] if config else [])]
        super().__init__(f"the service on the {engine} engine", words, folder / f"{engine}.log")
        self.start_s = 0.0
        self.idle_bytes: int | None = None

    def __enter__(self) -> Service:
        started = time.perf_counter()
        super().__enter__()
        try:
            self.wait_ready(f"{self.url}/readyz")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.start_s = time.perf_counter() - started
        time.sleep(IDLE_S)
        self.idle_bytes = self.memory_bytes()
        return self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def data(self) -> Path:
        return self._data

    @property
    def target(self) -> Target:
        return Target(self.url, (self._data / "admin.key").read_text().strip())


class Ports:
    """Free ports of loopback: any, or from `first` upwards. None is given twice."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._taken: set[int] = set()

    def take(self) -> int:
        for number in range(self._first, PORT_MAX) if self._first else itertools.repeat(0):
            if number not in self._taken and (port := _free_port(number)) not in {None, *self._taken}:
                assert port is not None
                self._taken.add(port)
                return port
        raise ProgramFailed(f"no port from {self._first} upwards is free")


def _free_port(number: int) -> int | None:
    """`number`, or any where it is 0."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", number))
        except OSError:
            return None
        return int(probe.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _pss_bytes(process: Path) -> int:
    with contextlib.suppress(OSError):
        for line in (process / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def _written_bytes(process: Path) -> int:
    with contextlib.suppress(OSError):
        for line in (process / "io").read_text().splitlines():
            if line.startswith("write_bytes:"):
                return int(line.split()[1])
    return 0


def _cpu_seconds(process: Path) -> float:
    """Fields 14 and 15 of proc(5)'s stat; the second, a name, may hold blanks."""
    with contextlib.suppress(OSError):
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def quiet(**more: str) -> Mapping[str, str]:
    """The environment of a rival: no telemetry, no downloads, one thread of mathematics."""
    words = "HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 DO_NOT_TRACK=1"
    return dict(word.split("=", 1) for word in words.split()) | more
