"""A served small service as a test sees it: a process group, its descendants, an address."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

PROGRAM = Path(__file__).with_name("echo_service.py")
READY_S = 120
MARK = "ECHO_SERVICE_MARK"
ROOT = PROGRAM.parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())


class Served:
    """Starts in `__init__`; `ready` waits for the first answer."""

    def __init__(
        self, folder: Path, engine: str, proxy: str | None = None, program: Path = PROGRAM, **environment: str
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.port = free_port()
        self.marker = folder / "marker"
        self.log = folder / "log"
        self.temp = folder / "t"
        self.temp.mkdir()
        words = [sys.executable, str(program), engine, str(self.port), str(self.marker), *([proxy] if proxy else [])]
        self._mark = f"{self.port}-{os.getpid()}"
        own = {"TMPDIR": str(self.temp), "HOME": str(folder), "PYTHONPATH": str(ROOT), MARK: self._mark, **environment}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, env=os.environ | own, start_new_session=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ready(self) -> "Served":
        assert wait_until(self.answers, READY_S), self.log.read_text()
        return self

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return httpx.get(self.url, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def processes(self, title: bytes = b"") -> list[int]:
        """What this service started and that lives, by its mark in the environment; with a title, what begins so."""
        found = []
        for folder in Path("/proc").iterdir():
            try:
                ours = folder.name.isdigit() and f"{MARK}={self._mark}".encode() in (folder / "environ").read_bytes()
                if ours and (folder / "cmdline").read_bytes().startswith(title):
                    found.append(int(folder.name))
            except OSError:
                pass
        return found

    def end(self) -> None:
        """Whatever happened before: leave nothing behind."""
        for number in self.processes():
            os.kill(number, signal.SIGKILL)
        self.process.wait(10)
