"""The gate over a whole service that holds two versions: what it lets through, what it stops, and whom it asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.migrate.two_versions import fill, migration, two_versions


@pytest.mark.parametrize("broken", [False, True])
def test_a_working_version_passes_and_a_broken_one_fails(tmp_path: Path, broken: bool) -> None:
    running = two_versions(tmp_path, broken=broken)
    fill(running, "ann")
    gate = running.service.gates.of(migration(), "verify")
    print(gate)
    assert gate.verdict == ("failed" if broken else "passed")
    running.stop()
