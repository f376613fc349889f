"""Services and jobs that are up in a moment: forked from one process that has loaded everything once.

`python nursery.py SOCKET` is that process. Whoever connects says in one line of JSON what to run, and is told the
number of the process and then how it ended; where the connection ends first, the process is killed. `python nursery.py
SOCKET job …` is a job that lives and dies with the one that is forked for it; it loads nothing.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

LOOK_S = 0.01
LINE_BYTES_MAX = 1 << 16
UP_S = 180
KILLED = 137
PR_SET_PDEATHSIG = 1


class Forked:
    """A process of the nursery, as `subprocess.Popen` is one."""

    def __init__(self, address: Path, asked: dict[str, object]) -> None:
        self._status: int | None = None
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(str(address))
        self._connection.sendall(json.dumps(asked).encode() + b"\n")
        self._said = self._connection.makefile("rb")
        self.pid = int(self._said.readline())

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float) -> int:
        status = self._ended(timeout)
        if status is None:
            raise subprocess.TimeoutExpired("forked", timeout)
        return status

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _ended(self, timeout: float) -> int | None:
        if self._status is None and select.select([self._connection], [], [], timeout)[0]:
            self._status = int(self._said.readline() or KILLED)
            self._connection.close()
        return self._status


class Nursery:
    """The process that the others are forked from. Ends with `close`."""

    def __init__(self, folder: Path) -> None:
        self.address = folder / "nursery"
        self._process = subprocess.Popen([sys.executable, __file__, str(self.address)])
        end = time.monotonic() + UP_S
        while not self.address.exists():
            assert self._process.poll() is None, "the nursery does not start"
            assert time.monotonic() < end, "the nursery is not up in time"
            time.sleep(0.05)

    def service(self, words: list[str], log: Path, own: dict[str, str]) -> Forked:
        return Forked(self.address, {"run": "service", "words": words, "log": str(log), "own": own})

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def job_words(address: str) -> tuple[str, ...]:
    """What a service runs as its job."""
    return (sys.executable, "-S", "-E", __file__, address, "job")


# ---- the process itself


def _serve(address: str) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.faults import migrating_service, plain_backfill

    runs = {"service": migrating_service.main, "job": plain_backfill.main}
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"{address}.new")
    listening.listen(64)
    os.rename(f"{address}.new", address)
    children: dict[int, socket.socket] = {}  # by process
    while True:
        ready, _, _ = select.select([listening, *children.values()], [], [], LOOK_S)
        for number in [number for number, connection in children.items() if connection in ready]:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        if listening in ready:
            connection, _ = listening.accept()
            asked = json.loads(connection.makefile("rb").readline(LINE_BYTES_MAX))
            number = os.fork()
            if number == 0:
                for other in (listening, connection, *children.values()):
                    other.close()
                _become(asked, runs[asked["run"]])
            children[number] = connection
            connection.sendall(f"{number}\n".encode())
        for number in list(children):
            found, status = os.waitpid(number, os.WNOHANG)
            if found:
                ended = children.pop(number)
                with suppress(OSError):
                    ended.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
                ended.close()


def _become(asked: dict[str, object], run: object) -> None:
    status = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        log = os.open(str(asked["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        own = asked["own"]
        assert isinstance(own, dict)
        os.environ.update(own)
        status = int(run(*asked["words"]))  # type: ignore[operator, misc]
    except BaseException:  # noqa: BLE001 - nothing of the nursery may go on here
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _stand_in(address: str, words: list[str]) -> int:
    one = Forked(Path(address), {"run": "job", "words": [words], "log": f"/proc/{os.getpid()}/fd/1", "own": {}})
    while True:
        with suppress(subprocess.TimeoutExpired):
            return one.wait(60) % 256


if __name__ == "__main__":
    if sys.argv[2:3] == ["job"]:
        sys.exit(_stand_in(sys.argv[1], sys.argv[3:]))
    _serve(sys.argv[1])
