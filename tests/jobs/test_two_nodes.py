"""A node that is killed in the middle of a backfill costs what it had in hand, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.reading import UNIT_SEQS
from tests.jobs.apart import ROOT

TURNS = 6_000
IN_HAND_UNITS = 16
"""On two encoders and the reader of the node that dies, and what Ray had given to them."""


@pytest.mark.slow
@pytest.mark.ray
def test_a_node_that_dies_costs_its_units(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)}
    words = [sys.executable, "-m", "tests.jobs.two_nodes", str(tmp_path), str(TURNS)]
    ran = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    found = json.loads(next(line for line in reversed(ran.stdout.splitlines()) if line.startswith('{"status"')))
    assert found["status"] == 0, ran.stderr[-2_000:]
    assert found["killed_at"][0] < TURNS
    assert found["turns"] == TURNS
    assert found["sent"] - TURNS <= IN_HAND_UNITS * UNIT_SEQS
