"""The job as a child: started once, watched, started again with pauses, ended with its key, and with the service."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serve_app.api.auth import KeyFile
from serve_app.migrate.record import Migration, Terms
from serve_app.migrate.runner import FOLDER, KEY_FILE, JobPlace, JobRunner, RunnerBounds
from serve_app.stores.documents_disk import DiskDocuments

MIGRATION = Migration("m1", "embedding", "backfill", 0, terms=Terms())
BOUNDS = RunnerBounds(tries=3, again_s=4, elsewhere_s=30, stop_s=5)
WAIT_S = 20.0


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Jobs:
    """A job that notes its arguments, its niceness and its pid, and then does as it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.keys = KeyFile(DiskDocuments(folder))
        self.keys.ensure_first()

    done = 0

    def runner(self, then: str) -> JobRunner:
        noted = "import os, sys; open(sys.argv[1], 'a').write(f'{os.getpid()} {os.nice(0)} {sys.argv[2:]}\\n')"
        job = (sys.executable, "-c", f"{noted}; {then}", str(self.folder / "noted"))
        place = JobPlace("http://127.0.0.1:1", Path("settings.toml"), job, BOUNDS)
        return JobRunner(self.folder, place, self.keys, lambda _: self.done, clock=self.clock)

    @property
    def noted(self) -> list[str]:
        path = self.folder / "noted"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def key_file(self) -> Path:
        return self.folder / FOLDER / KEY_FILE


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path)


@pytest.fixture
def sleeping(jobs: Jobs) -> Iterator[JobRunner]:
    runner = jobs.runner("import time; time.sleep(600)")
    yield runner
    runner.stop()


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_one_job_runs_nicely_with_a_key_of_its_own(jobs: Jobs, sleeping: JobRunner) -> None:
    assert [sleeping.tend(MIGRATION) for _ in range(3)] == ["", "", ""]
    until(lambda: bool(jobs.noted))
    sleeping.tend(MIGRATION)
    assert len(jobs.noted) == 1
    pid, nice, arguments = jobs.noted[0].split(" ", 2)
    assert int(nice) == 10 + os.nice(0)
    asked = ["--url", "http://127.0.0.1:1", "--data", str(jobs.folder), "--migration", "m1", "--key-file"]
    assert arguments == str([*asked, str(jobs.key_file), "--config", str(Path("settings.toml").absolute())])
    assert jobs.key_file.stat().st_mode & 0o777 == 0o600
    key = jobs.key_file.read_text().strip()
    assert jobs.keys.principal(f"Bearer {key}".encode()).role == "operator"
    sleeping.stop()
    assert (alive(int(pid)), jobs.key_file.exists(), len(jobs.keys.records(None))) == (False, False, 1)


def test_a_job_that_fails_is_started_again_after_pauses_and_then_left(jobs: Jobs) -> None:
    runner = jobs.runner("print('because'); sys.exit(1)")
    for started, wait in ((1, 4), (2, 8), (3, 16)):
        runner.tend(MIGRATION)
        until(lambda: bool(runner.tend(MIGRATION)))
        assert len(jobs.noted) == started
        jobs.clock.now += wait - 0.1
        assert "failed with status 1" in runner.tend(MIGRATION)
        assert len(jobs.noted) == started
        jobs.clock.now += 0.2
    assert "3 times; pause and resume" in runner.tend(MIGRATION)
    assert (jobs.folder / FOLDER / "m1.log").read_text() == "because\n" * 3
    runner.stop()
    assert runner.tend(MIGRATION) == ""
    until(lambda: len(jobs.noted) == 4)
    runner.stop()


def test_a_job_that_gets_on_is_started_again_however_often_it_ends(jobs: Jobs) -> None:
    runner = jobs.runner("os.kill(os.getpid(), 9)")
    for started in range(1, 2 * BOUNDS.tries):
        assert runner.tend(MIGRATION) == ""
        jobs.done += 1
        until(lambda: bool(runner.tend(MIGRATION)))
        assert len(jobs.noted) == started
        assert "failed with status -9; it is tried again" in runner.tend(MIGRATION)
        jobs.clock.now += BOUNDS.again_s
    runner.stop()


@pytest.mark.parametrize(
    ("status", "word", "again"), [(0, "missing", True), (2, "status 2", False), (3, "another job", True)]
)
def test_what_its_status_says_is_heeded(jobs: Jobs, status: int, word: str, again: bool) -> None:
    runner = jobs.runner(f"sys.exit({status})")
    runner.tend(MIGRATION)
    until(lambda: bool(runner.tend(MIGRATION)))
    assert word in runner.tend(MIGRATION)
    assert not jobs.key_file.exists()
    jobs.clock.now += 60
    assert (runner.tend(MIGRATION) == "") == again
    runner.stop()


def test_a_job_that_does_not_heed_a_signal_is_killed(jobs: Jobs, tmp_path: Path) -> None:
    deaf = (sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)")
    runner = JobRunner(tmp_path, JobPlace("http://127.0.0.1:1", job=deaf, bounds=RunnerBounds(stop_s=0.2)), jobs.keys)
    runner.tend(MIGRATION)
    time.sleep(0.3)
    runner.stop()


def test_a_key_that_a_killed_service_has_left_is_revoked(jobs: Jobs, sleeping: JobRunner) -> None:
    sleeping.tend(MIGRATION)
    left = jobs.key_file.read_text()
    sleeping.stop()
    key_id, key = jobs.keys.create(tenant="default", role="operator")
    jobs.key_file.write_text(key)
    assert left != key
    jobs.runner("pass")
    assert (jobs.key_file.exists(), [one.key_id for one in jobs.keys.records(None)].count(key_id)) == (False, 0)


def test_a_job_ends_with_a_service_that_is_killed(tmp_path: Path) -> None:
    service = f"""
import sys, time
from pathlib import Path
from tests.migrate.test_runner import Jobs, MIGRATION
jobs = Jobs(Path({str(tmp_path)!r}))
jobs.runner("import time; time.sleep(600)").tend(MIGRATION)
while not jobs.noted:
    time.sleep(0.01)
print(jobs.noted[0].split()[0], flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", service], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert alive(child)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    until(lambda: not alive(child))
