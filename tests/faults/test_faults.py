"""Each part of a service in turn fails, or hangs, under load: every request is answered in time, says what it lacks,
and lacks nothing any more soon after the part is back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.faults.load import DEADLINE_MS, RECOVERY_S, USERS, Answer, Faulty, How, Part, percentile, shown

KINDS: Final = ("context", "search", "cold search")
HEALTHY_S, FAULT_S, LONG_FAULT_S = 0.2, 0.6, 20.0
REST_S = 0.5

NOISE, NOISE_FACTOR = 0.1, 3.0
"""Share of answers that a busy machine may make smaller still, or spare the fault; and so often the share of those that
it made smaller just before, when nothing was wrong.
"""

SLACK_MS: Final = 500
"""What it may add to the slowest ones, beside what the slowest took just before."""

BREAKERS: Final = {"embedder": "encoder-hash_64", "reranker": "reranker", "warm": "warm-0", "cold": "cold-0"}
LOG: Final = "log-0"
"""Of what is written; nothing here breaks that."""

CASES = [(part, how) for part in ("embedder", "reranker", "warm", "cold") for how in ("hung", "killed")]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    one = Faulty(tmp_path_factory.mktemp("faulty"), REST_S)
    yield one
    one.stop()


def expected(part: Part, answer: Answer) -> tuple[str, set[str]]:
    """The level of an answer while this part is lost, and the stages that it names."""
    user = answer.user.split("-")[0]
    if part == "embedder":
        return "full", {"dense"}
    if part == "reranker":
        return "full", {"rerank"}
    if part == "cold":
        return "full", {"cold"} if answer.kind == "cold search" else set()
    if user == "away":
        return "system_only" if answer.kind == "context" else "full", {"store"}
    if user == "large":
        return "full", {"recent", "warm"} if answer.kind == "context" else {"warm"}
    return "full", set()


def is_right(part: Part, answer: Answer) -> bool:
    """Of this level, and names these stages. What a busy machine makes late besides says so, and is no fault of it."""
    level, stages = expected(part, answer)
    named = dict(reason.split(": ", 1) for reason in answer.reasons)
    return (
        answer.level == level
        and stages <= set(named)
        and all(named[one] == "deadline" for one in named.keys() - stages)
    )


@pytest.mark.parametrize(("part", "how"), CASES)
def test_a_part_that_is_lost_costs_what_it_gives_and_nothing_else(faulty: Faulty, part: Part, how: How) -> None:
    healthy = faulty.under_load(HEALTHY_S, KINDS, USERS)
    noise = NOISE + NOISE_FACTOR * sum(one.reasons != () for one in healthy) / len(healthy)
    faulty.settle()
    before = sum(faulty.metric("memstrata_degraded_total").values())
    faulty.faults[part].put(how)
    try:
        answers = faulty.under_load(FAULT_S, KINDS, USERS)
        written = faulty.running.call("PUT", "/v1/users/here/facts/boat", json={"value": f"{part} {how}"})
        told = faulty.told()
    finally:
        faulty.faults[part].mend()
    recovery_s = faulty.recovered_after_s(KINDS)
    told_then = faulty.told()
    assert {one.status for one in answers} == {200}
    assert sum(not is_right(part, one) for one in answers) <= noise * len(answers), shown(answers)
    assert percentile([one.ms for one in answers], 0.99) <= DEADLINE_MS + SLACK_MS + max(one.ms for one in healthy)
    assert written.status_code == 200, "the log and what is in memory need none of them"
    assert any(one.startswith(BREAKERS[part]) for one in told)
    assert sum(faulty.metric("memstrata_degraded_total").values()) > before
    assert recovery_s < RECOVERY_S
    assert told_then == []


def test_states_of_breakers_and_reasons_have_few_labels(faulty: Faulty) -> None:
    labels = faulty.metric("memstrata_breaker_state")
    assert {label.split('"')[1] for label in labels} == {*BREAKERS.values(), LOG}
    assert all(state == 0 for state in labels.values())
    assert len(faulty.metric("memstrata_degraded_total")) < 40
    opened = faulty.metric("memstrata_breaker_opened_total")
    assert all((count >= 1) == (LOG not in label) for label, count in opened.items())


@pytest.mark.slow
@pytest.mark.parametrize(("part", "how"), CASES)
def test_figures_of_a_long_fault(tmp_path_factory: pytest.TempPathFactory, part: Part, how: How) -> None:
    """What docs/degradation.md shows, one row a case; run with `-s` to see it."""
    faulty = Faulty(tmp_path_factory.mktemp("long"), 2.0)
    try:
        whole = faulty.under_load(LONG_FAULT_S / 4, KINDS, USERS)
        faulty.settle()
        faulty.faults[part].put(how)
        answers = faulty.under_load(LONG_FAULT_S, KINDS, USERS)
        faulty.faults[part].mend()
        recovery_s = faulty.recovered_after_s(KINDS)
    finally:
        faulty.stop()
    ms, before = [one.ms for one in answers], [one.ms for one in whole]
    failed = sum(one.status != 200 for one in answers)
    print(
        f"\n| {part} {how} | {len(answers)} | {failed} | {percentile(before, 0.5):.0f}, "
        f"{percentile(before, 0.99):.0f} | {percentile(ms, 0.5):.0f}, {percentile(ms, 0.99):.0f}, {max(ms):.0f} | "
        f"{recovery_s:.1f} |"
    )
    assert failed == 0
    assert percentile(ms, 0.99) <= DEADLINE_MS
    assert recovery_s < RECOVERY_S
