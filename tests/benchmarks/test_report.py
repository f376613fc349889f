"""What a row says of its slices: ratios, bars, and when it is no measurement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.load import GENERATOR_CPU_MAX, SEND_LAG_MS_MAX, Slice
from benchmarks.report import Figure, Row, compared, key_of

EVERY = report.rows_of(peers=True, infinity=True)


def slices(*rates: float) -> list[Slice]:
    return [Slice(rate, p50_ms=1.0, p99_ms=2.0, errors=0, generator_cpu=0.1) for rate in rates]


def test_the_ratio_is_that_of_the_middle_round() -> None:
    """A slow moment that falls on both sides of one round changes neither ratio nor verdict."""
    figure = compared(slices(50, 5, 60), [slices(100, 10, 100)])
    assert (figure.measured, figure.against, figure.ratio) == (50, 100, 0.5)
    assert not figure.void


def test_the_best_rival_of_each_round_counts() -> None:
    assert compared(slices(50, 50, 50), [slices(100, 60, 100), slices(90, 80)]).ratio == 0.5


def test_nothing_to_compare_with_is_no_ratio() -> None:
    figure = compared(slices(1, 2, 3), [])
    assert (figure.measured, figure.ratio, figure.missing) == (2, None, report.NOT_MEASURED)


@pytest.mark.parametrize("ours", [True, False], ids=["of the service", "of the rival"])
def test_an_error_makes_the_row_void(ours: bool) -> None:
    whole, broken = slices(10, 10), [*slices(10), replace(slices(10)[0], errors=3)]
    figure = compared(broken, [whole]) if ours else compared(whole, [broken])
    assert figure.void == ("3 errors",)


def test_no_answer_at_all_is_void() -> None:
    assert compared(slices(0), [slices(10)]).void == ("no answers",)
    assert compared(slices(10), [slices(0)]).void == ("no answers",)


def test_a_generator_that_was_the_limit_is_void_or_bounds_the_ratio() -> None:
    """The no-op could have answered more: the ratio is then no more than an upper bound, and that is said."""
    held_back = [replace(slices(100)[0], generator_cpu=GENERATOR_CPU_MAX + 0.1)]
    assert compared(slices(10), [held_back]).void
    assert compared(held_back, [slices(200)], upper_bound=True).void
    bounded = compared(slices(10), [held_back], upper_bound=True)
    assert not bounded.void
    assert "upper bound" in bounded.note


def test_an_open_loop_that_sent_late_is_void() -> None:
    late = replace(slices(10)[0], send_lag_p99_ms=SEND_LAG_MS_MAX + 1.3)
    assert late.faults == ["sent 6.3 ms late (limit 5)"]


def test_bars_hold_the_ratio_or_the_figure_itself() -> None:
    ratio = Row("x", "/s", "y", {"local": 0.5})
    assert ratio.met("local", Figure(1, 2, 0.5)) is True
    assert ratio.met("local", Figure(1, 2.1, 0.48)) is False
    assert ratio.met("ray", Figure(1, 2, 0.5)) is None
    assert ratio.met("local", Figure(1)) is None
    most = Row("x", "s", "", {"local": 8}, report.MOST)
    assert [most.met("local", Figure(value)) for value in (8, 8.1)] == [True, False]


def test_the_table_has_every_row_and_its_verdict() -> None:
    figures = {report.SEARCH_1: Figure(40, 100, 0.4), report.START: Figure(5.0), report.LENGTH: Figure(void=("x",))}
    rates = {key_of(report.SEARCH_1): {"float32": 100}}
    ceilings = {"formats": ["float32", "bfloat16"], "emulated": ["bfloat16"], "rates": rates}
    measured = {
        "data": "d",
        "turns": 1,
        "users": 1,
        "seconds": 1.0,
        "load": "wrk",
        "ceilings": ceilings,
        "machine": {"cores": 2, "processor": "p"},
        "judged": True,
        "left_behind": ["users b-* are left"],
        "engines": {name: {"rows": report.shown(name, of, EVERY)} for name, of in (("local", figures), ("ray", {}))},
    }
    lines = report.table(measured).splitlines()
    assert max(map(len, lines)) <= 100
    of_row = {key: next(line for line in lines if line.startswith(key)) for key in map(key_of, EVERY)}
    assert "✗" in of_row[key_of(report.SEARCH_1)]
    assert "✗" not in of_row[key_of(report.START)]
    assert "!" in of_row[key_of(report.LENGTH)]
    assert report.missed(measured) == [f"local: {key_of(report.SEARCH_1)}"]
    assert report.faults(measured) == [f"local: {key_of(report.LENGTH)}: x"]
    assert any("bfloat16 emulated" in line for line in lines)
    assert "users b-* are left" in lines


def test_rows_of_peers_are_there_only_where_peers_are() -> None:
    alone = report.rows_of(peers=False, infinity=False)
    assert not {report.CHROMA, report.ADD_1, report.EMBED_TURNS} & set(alone)
    assert set(report.rows_of(peers=True, infinity=False)) - set(alone) == set(report.OF_PEERS)
    assert set(report.shown("local", {report.ADD_1: Figure(1.0)}, alone)) == set(map(key_of, alone))


@pytest.mark.parametrize("row", EVERY, ids=key_of)
def test_the_page_tells_every_row_and_its_bars(row: Row) -> None:
    page = (Path(__file__).parents[2] / "docs/performance.md").read_text().splitlines()
    line = next(line for line in page if f"`{key_of(row)}`" in line)
    keys, _, bars = (cell.strip().split("<br>") for cell in line.strip("|").split("|"))
    stated = bars[keys.index(f"`{key_of(row)}`")]
    assert stated == ", ".join(f"{row.bound} {row.bars[engine]:,}" for engine in ("local", "ray"))


def test_a_busy_machine_is_no_failure() -> None:
    late = replace(slices(10)[0], send_lag_p99_ms=SEND_LAG_MS_MAX + 1, generator_cpu=GENERATOR_CPU_MAX + 0.1)
    assert len(late.all_faults) == 2
    figures = {report.OPEN_MIX: Figure(1, void=tuple(late.all_faults)), report.CACHED: Figure(1, void=("3 errors",))}
    measured = {"engines": {"local": {"rows": report.shown("local", figures, EVERY)}}}
    assert len(report.faults(measured)) == 2
    assert report.failures(measured) == [f"local: {key_of(report.CACHED)}: 3 errors"]
