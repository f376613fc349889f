"""`python -m benchmarks.gpu` has every part, and says so where there is no GPU. No test knows a time."""

from __future__ import annotations

import json

import pytest

from benchmarks import gpu
from serve_app import measuring_gpu
from serve_app.stores.device import gpu_count


def test_a_hot_index_is_measured_with_each_hit_checked(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["hot", "--cpu", "--rows", "1000", "--clients", "1,3", "--seconds", "0.1", "--snapshot"]
    assert measuring_gpu.main(words) == 0
    measured = json.loads(capsys.readouterr().out)
    assert (measured["rows"], measured["owners"], measured["wrong_owner"], measured["inexact"]) == (1000, 2, 0, 0)
    assert [one["clients"] for one in measured["clients"]] == [1, 3]
    assert all(one["searches_per_s"] > 0 for one in measured["clients"])
    assert measured["snapshot"]["bytes"] > 1000 * 384 * 2
    assert measured["figures"]["rows"] == 1000


@pytest.mark.slow
def test_quick_has_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    status = gpu.main(["--cpu", "--quick"])
    measured = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert measured["failed"] == {}
    assert status == 0
    assert set(measured) >= {part.name for part in gpu.QUICK.parts} | {"machine", "search over HTTP"}
    served = measured["search over HTTP"]
    assert [one["clients"] for one in served["clients"]] == [1, 2]
    assert served["device_lost"] is False
    assert all(row["tokens_per_s"] > 0 for row in measured["encoder large"]["batches"])


@pytest.mark.skipif(gpu_count() > 0, reason="there is a GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main([]) == 1
    assert "no GPU that torch and FAISS both see" in capsys.readouterr().err


def test_the_parts_fit_into_the_time_there_is() -> None:
    assert sum(part.limit_s for part in gpu.FULL.parts) <= gpu.BUDGET_S
    assert gpu.MACHINE_S + gpu.BUDGET_S + 60 <= 8 * 60
