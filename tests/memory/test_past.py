"""A context as of earlier says where it may not be what it was: what made room for newer things, what has expired."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from serve_app.core import Constraint, Summary
from serve_app.memory.assembly import Assembled, Moment, Retrieval, assemble
from serve_app.memory.expansion import Resolved
from serve_app.memory.requests import AsOf, ContextRequest
from serve_app.stores.block import FACT_VERSIONS_MAX, SUMMARY_VERSIONS_MAX
from serve_app.write.derived import PutSummary
from serve_app.write.facts import PutFact
from tests.write.shards import ANN, OneShard

NOW = 1_700_000_000_000_000
ENDS, LATER = NOW + 10**9, NOW + 10**13
FORGOTTEN = "as_of: facts or summaries of then are not kept any more"
EXPIRED = "as_of: something has expired since"


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[OneShard]:
    shard = OneShard(tmp_path / "store")
    yield shard
    shard.close()


def summed(shard: OneShard, session: str, seq: int, *, lasting: bool = False, ends: int = LATER) -> None:
    """Of the session's only turn, with it as an entry."""
    entries = (Constraint("no fish", "t", seq, lasting=lasting),)
    made = Summary(session, "text", seq, seq, 1, "v", "h", 0, NOW, ends, constraints=entries)
    shard.do(PutSummary(ANN, made, shard.shard.applied_seq))


def asked(shard: OneShard, seq: int | None, clock: int = NOW) -> Assembled:
    """For session `s`, at NOW."""
    request = ContextRequest("And now?", 2_000, "s", as_of=AsOf(seq))
    return assemble(shard.shard, ANN, request, Retrieval(Resolved("And now?", None), None), (), Moment(NOW, clock, ()))


def reasons(shard: OneShard, seq: int | None, clock: int = NOW) -> tuple[str, ...]:
    return asked(shard, seq, clock).inputs.degradation.reasons


def test_a_fact_that_made_room_for_newer_values_is_named(shard: OneShard) -> None:
    shard.do(PutFact(ANN, "diet", "first", None, None))
    first = shard.shard.applied_seq
    for number in range(1, FACT_VERSIONS_MAX):
        shard.do(PutFact(ANN, "diet", f"value {number}", None, None))
    assert (asked(shard, first).inputs.facts[0].value, reasons(shard, first)) == ("first", ())
    shard.do(PutFact(ANN, "diet", "one too many", None, None))
    assert reasons(shard, first) == (FORGOTTEN,)
    assert reasons(shard, None) == reasons(shard, shard.shard.applied_seq) == ()
    shard.fold()
    shard.housekeeper().perform("expire", 0)
    shard.restart()
    assert reasons(shard, first) == (FORGOTTEN,)


@pytest.mark.parametrize(("session", "lasting", "named"), [("s", False, True), ("o", True, True), ("o", False, False)])
def test_a_summary_that_made_room_is_named_where_a_context_depends_on_it(
    shard: OneShard, session: str, lasting: bool, named: bool
) -> None:
    seq = shard.say_as(ANN, session, "t", "no fish").seq
    assert seq is not None
    for _ in range(SUMMARY_VERSIONS_MAX):
        summed(shard, session, seq, lasting=lasting)
    first = shard.shard.applied_seq - SUMMARY_VERSIONS_MAX + 1
    assert (reasons(shard, first), len(asked(shard, first).inputs.standing)) == ((), lasting)
    summed(shard, session, seq, lasting=lasting)
    assert reasons(shard, first) == ((FORGOTTEN,) if named else ())
    assert reasons(shard, first + 1) == ()


@pytest.mark.parametrize("lasting", [False, True])
def test_a_summary_that_has_expired_since_is_named(shard: OneShard, lasting: bool) -> None:
    seq = shard.say_as(ANN, "s", "t", "no fish").seq
    assert seq is not None
    before = shard.shard.applied_seq
    summed(shard, "s", seq, lasting=lasting, ends=ENDS)
    then = shard.shard.applied_seq
    assert asked(shard, then).inputs.summary is not None
    gone = asked(shard, then, clock=ENDS)
    assert (gone.inputs.summary, gone.inputs.degradation.reasons) == (None, (EXPIRED,))
    assert len(gone.inputs.standing) == lasting
    assert reasons(shard, before, clock=ENDS) == reasons(shard, None, clock=ENDS) == ()
