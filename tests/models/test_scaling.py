"""How many replicas: as a function of what waits, and against a recorded load on replicas that start late."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.models.scaling import Aim, Load, Peaks, Reported, decided, needed, target, total

TRACE = json.loads((Path(__file__).parent / "loads" / "tokens_per_s.json").read_text())["tokens_per_s"]
PACE = 6000.0
START_S = 8
LATE_S = 2
"""A decision sees the load as it was so long ago, the mean of `SEEN_S` seconds."""
SEEN_S = 4

tokens = st.floats(0, 1e7)
aims = st.builds(Aim, st.integers(0, 4), st.integers(4, 40), st.floats(0.05, 30), st.floats(0.1, 1), st.floats(1, 600))
loads = st.builds(Load, tokens, tokens, st.floats(0, 1e6))


@given(loads, aims, tokens, tokens)
def test_more_load_never_needs_fewer_and_bounds_hold(load: Load, aim: Aim, more: float, coming: float) -> None:
    least = needed(load, aim)
    assert aim.replicas_min <= least <= aim.replicas_max
    assert needed(load._replace(waiting_tokens=load.waiting_tokens + more), aim) >= least
    assert needed(load._replace(came_tokens_s=load.came_tokens_s + coming), aim) >= least
    if load.replica_tokens_s:
        assert needed(load._replace(replica_tokens_s=load.replica_tokens_s * 2), aim) <= least


@given(st.lists(st.tuples(st.floats(0, 30), loads), min_size=1, max_size=60), aims)
def test_up_at_once_down_only_after_the_quiet_time(steps: list[tuple[float, Load]], aim: Aim) -> None:
    """Whatever happens; and what is kept in mind is bounded by the number of replicas."""
    peaks: Peaks = ((0.0, aim.replicas_min),)
    now, needs = 0.0, [(0.0, aim.replicas_min)]
    for seconds, load in steps:
        now += seconds
        peaks = decided(peaks, load, aim, now)
        needs.append((now, needed(load, aim)))
        assert target(peaks, aim) == max(need for at, need in needs if at == now or now - at < aim.quiet_s)
        assert len(peaks) <= aim.replicas_max - aim.replicas_min + 1


def test_a_load_that_comes_and_goes_faster_than_the_quiet_time_starts_and_ends_nothing() -> None:
    aim = Aim(1, 8, quiet_s=60)
    peaks: Peaks = ((0.0, 1),)
    targets = []
    for second in range(600):
        load = Load(0.0, 20_000.0 if second // 20 % 2 == 0 else 0.0, PACE)
        peaks = decided(peaks, load, aim, float(second))
        targets.append(target(peaks, aim))
    assert set(targets) == {5}


def test_bounds_that_change_count_at_once() -> None:
    peaks = decided(((0.0, 1),), Load(1e6, 0.0, PACE), Aim(1, 8), 1.0)
    assert target(peaks, Aim(1, 8)) == 8
    assert target(peaks, Aim(1, 3)) == 3


def test_replicas_that_have_computed_nothing_say_nothing_of_the_pace() -> None:
    assert total([Reported(10, 1, 0), Reported(20, 2, 3000), Reported(0, 3, 5000)]) == Load(30, 6, 4000)
    assert total([]) == Load(0, 0, 0)
    assert needed(total([Reported(50_000, 0, 0)]), Aim(1, 20)) > 1


class Outcome(NamedTuple):
    late_share: float
    """Of the seconds, those at whose end more waits than the replicas there do within the delay."""
    replica_s: int
    changes: int


def replayed(aim: Aim) -> Outcome:
    """The recorded load, second by second, on replicas of `PACE` that need `START_S` to come up."""
    peaks: Peaks = ((0.0, aim.replicas_min),)
    wanted, starting, running = aim.replicas_min, deque[int](), aim.replicas_min
    waiting, late, replica_s, changes = 0.0, 0, 0, 0
    seen: deque[tuple[float, float]] = deque(maxlen=LATE_S + SEEN_S)
    for second, came in enumerate(TRACE):
        while starting and starting[0] <= second:
            starting.popleft()
            running += 1
        waiting = max(0.0, waiting + came - running * PACE)
        late += waiting > running * PACE * aim.delay_s
        replica_s += running + len(starting)
        seen.append((waiting, came))
        known = list(seen)[:SEEN_S]
        load = Load(sum(one for one, _ in known) / len(known), sum(one for _, one in known) / len(known), PACE)
        peaks = decided(peaks, load, aim, float(second))
        changes += target(peaks, aim) != wanted
        wanted = target(peaks, aim)
        while running + len(starting) > wanted:
            if starting:
                starting.pop()
            else:
                running -= 1
        starting.extend([second + START_S] * (wanted - running - len(starting)))
    return Outcome(late / len(TRACE), replica_s, changes)


@pytest.mark.parametrize("quiet_s", [30.0, 60.0])
def test_a_recorded_load_is_served_in_time_by_few_replicas(quiet_s: float) -> None:
    """Late only while replicas start, at less than a third of what all of them would cost."""
    scaled, one, all_of_them = replayed(Aim(1, 12, quiet_s=quiet_s)), replayed(Aim(1, 1)), replayed(Aim(12, 12))
    assert one.late_share > 0.8, "one replica is too few, or this shows nothing"
    assert scaled.late_share < 0.04
    assert scaled.replica_s < 0.32 * all_of_them.replica_s
    assert scaled.changes < 40
