"""Runs the job that fills in the vectors of a migration, as a child of the service: started, watched, started again.

Promises that at most one runs, that it ends with the service however that ends, and that its key, which may do all, is
in a file of mode 0600 while it runs and in force no longer. See `switching.Runner`.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from serve_app.errors import NotFound
from serve_app.migrate.record import Migration
from serve_app.stores.durable import make_folders, write_private

_log = logging.getLogger(__name__)

FOLDER: Final = "migrations"
KEY_FILE: Final = "job.key"

JOB: Final = (sys.executable, "-m", "jobs.reembed")
TENANT: Final = "default"

LOG_BYTES_MAX: Final = 16 << 20
"""A log that is longer when a job starts begins anew."""

DONE, FAILED, WRONG, NOT_NOW = 0, 1, 2, 3
"""What the job's exit status says: all filled in; try again; never try again; another one has it."""


class RunnerBounds(msgspec.Struct, frozen=True):
    """Times in seconds."""

    tries: int = 8
    """In a row that get nowhere."""
    again_s: float = 5.0
    """After a first failure; twice as long after each further one."""
    again_s_max: float = 300.0
    elsewhere_s: float = 30.0
    """After the job has found that another one works on it."""
    stop_s: float = 10.0
    """What it has to end in order; then it is killed."""


class Keys(Protocol):
    """Where keys are made; see `api.auth.KeyFile`."""

    def create(self, *, tenant: str, role: Literal["operator"]) -> tuple[str, str]: ...

    def revoke(self, key_id: str, tenant: str | None) -> None: ...


class JobPlace(NamedTuple):
    """How a job on this machine reaches the service, which file of settings it has, and how it is run.

    It inherits the environment: on the Ray engine it works on the service's Ray.
    """

    url: str
    config: Path | None = None
    job: Sequence[str] = JOB
    bounds: RunnerBounds = RunnerBounds()


class JobRunner:
    """Called by one thread."""

    def __init__(
        self,
        folder: Path,
        place: JobPlace,
        keys: Keys,
        done: Callable[[Migration], int] = lambda _: 0,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`folder` is the data folder of the service; `done` grows as a job gets on, within bounds.

        A key that a killed service has left is revoked.
        """
        self._data = folder.absolute()
        self._folder = self._data / FOLDER
        self._place = place
        self._keys = keys
        self._done = done
        self._clock = clock
        self._done_before = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._failures = 0
        self._not_before = 0.0
        self._why = ""
        self._forget_key()

    def tend(self, migration: Migration) -> str:
        if self._child is not None:
            status = self._child.poll()
            if status is None:
                return ""
            self._ended(status, migration)
        if self._failures >= self._place.bounds.tries or self._clock() < self._not_before:
            return self._why
        self._start(migration)
        return ""

    def stop(self) -> None:
        """The tries are counted anew after it."""
        child, self._child = self._child, None
        if child is not None:
            _end(child, self._place.bounds.stop_s)
            self._forget_key()
        self._failures, self._not_before, self._why = 0, 0.0, ""

    def _start(self, migration: Migration) -> None:
        make_folders(self._folder)
        self._done_before = self._done(migration)
        key_file = self._folder / KEY_FILE
        _, key = self._keys.create(tenant=TENANT, role="operator")
        write_private(key_file, f"{key}\n".encode())
        asked = ["--url", self._place.url, "--data", str(self._data), "--migration", migration.id]
        asked += ["--key-file", str(key_file)]
        asked += [] if self._place.config is None else ["--config", str(self._place.config.absolute())]
        tied = [sys.executable, "-m", "serve_app.migrate.tied", str(os.getpid())]
        with open(self._log_of(migration), "ab", opener=_private) as log:
            self._child = subprocess.Popen(
                [*tied, *self._place.job, *asked],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        _log.info("migration %s: its job runs as process %d", migration.id, self._child.pid)

    def _ended(self, status: int, migration: Migration) -> None:
        """It has ended by itself: when to try again, and what is said of it until then."""
        assert self._child is not None
        _kill_group(self._child.pid)  # what it has started and left
        self._child = None
        self._forget_key()
        told = f"see {self._log_of(migration)}"
        if status == NOT_NOW:
            self._not_before = self._clock() + self._place.bounds.elsewhere_s
            self._why = f"another job works on it; {told}"
            return
        if self._done(migration) > self._done_before:
            self._failures = 0
        self._failures = self._place.bounds.tries if status == WRONG else self._failures + 1
        wait = min(self._place.bounds.again_s * 2 ** (self._failures - 1), self._place.bounds.again_s_max)
        self._not_before = self._clock() + wait
        ended = "has ended, and something is missing" if status == DONE else f"failed with status {status}"
        if self._failures >= self._place.bounds.tries:
            self._why = f"the job {ended}, {self._failures} times; pause and resume to try again; {told}"
        else:
            self._why = f"the job {ended}; it is tried again; {told}"
        _log.warning("migration %s: %s", migration.id, self._why)

    def _log_of(self, migration: Migration) -> Path:
        path = self._folder / f"{migration.id}.log"
        with suppress(FileNotFoundError):
            if path.stat().st_size > LOG_BYTES_MAX:
                path.unlink()
        return path

    def _forget_key(self) -> None:
        """Whatever key lies in the file is revoked, whoever has put it there."""
        path = self._folder / KEY_FILE
        with suppress(FileNotFoundError):
            key_id = path.read_text().split("_")[1:2]
            for one in key_id:
                with suppress(NotFound):
                    self._keys.revoke(one, None)
            path.unlink()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _end(child: subprocess.Popen[bytes], seconds: float) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        child.wait(seconds)
    _kill_group(child.pid)
    child.wait()


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
