"""Jobs run in a process of their own, whose one Ray serves all of them: a process has one private Ray in its life."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
CPUS = 2
END_S = 60


class Ran(NamedTuple):
    status: int
    out: str
    said: str
    """On standard error."""

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return found


class JobsApart:
    """Starts the process; `run` runs one job after the other in it."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        words = [sys.executable, "-m", "tests.jobs.apart"]
        self._process = subprocess.Popen(
            words, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, module: str, *arguments: object) -> Ran:
        """`python -m MODULE ARGUMENTS`, on the Ray that is there."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([module, *map(str, arguments)]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process of the jobs has ended"
        return Ran(*json.loads(answer))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(END_S)


def _serve() -> None:
    from jobs.session import ray_session

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what else is printed is not taken for an answer
    with ray_session(cpus=CPUS):
        for line in sys.stdin:
            answers.write(json.dumps(_ran(json.loads(line))) + "\n")
            answers.flush()


def _ran(asked: Sequence[str]) -> tuple[int, str, str]:
    """`main` of the module, where Ray runs already."""
    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        try:
            status = importlib.import_module(asked[0]).main(asked[1:], session=lambda address: contextlib.nullcontext())
        except SystemExit as ended:
            status = int(ended.code or 0)
    return status, out.getvalue(), said.getvalue()


if __name__ == "__main__":
    _serve()
