"""`memstrata bench large-user` runs from one end to the other on a tiny store, and finds all that there is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import large_user
from benchmarks.large_user import ASKED, PHASES, Options


@pytest.mark.slow
def test_every_phase_tells_its_figures(tmp_path: Path) -> None:
    told = large_user.measure(Options(turns=120, queries=4, appends=5, data=tmp_path))
    assert {*told} >= {*PHASES}
    assert json.loads((tmp_path / large_user.RESULT).read_text()) == told
    assert all(told["exact"][kind]["recall"] == 1.0 for kind in ASKED)
    shown = large_user.table(told)
    assert "first answer" in shown
    assert all(f"exact   {kind}" in shown for kind in ASKED)
