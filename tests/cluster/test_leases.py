"""Shares of shards: equal, with as few moves as can be, and never at two living writers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from serve_app.cluster.leases import NOBODY, Writer, assigned, held_by
from serve_app.cluster.messages import Leases

NAMES = [f"writer-{number}" for number in range(6)]
SHARDS = st.integers(1, 24)


@st.composite
def states(draw: st.DrawFn) -> tuple[Leases, dict[str, Writer], int]:
    """Any leases, any writers, and shards that are open anywhere."""
    shards = draw(SHARDS)
    said = draw(st.lists(st.sampled_from([NOBODY, *NAMES]), max_size=shards))
    numbers = st.frozensets(st.integers(0, shards - 1))
    alive = draw(st.dictionaries(st.sampled_from(NAMES), st.builds(Writer, numbers, st.booleans())))
    return Leases(draw(st.integers(0, 9)), tuple(said)), alive, shards


def obeyed(leases: Leases, alive: Mapping[str, Writer]) -> dict[str, Writer]:
    """The writers after they have heard of these leases, opened and closed."""
    return {name: Writer(held_by(leases, name), writer.leaving) for name, writer in alive.items()}


def sizes(leases: Leases, alive: Mapping[str, Writer]) -> list[int]:
    counts = Counter(leases.writers)
    return [counts[name] for name, writer in alive.items() if not writer.leaving]


def settled(leases: Leases, alive: Mapping[str, Writer], shards: int) -> tuple[Leases, dict[str, Writer]]:
    now = dict(alive)
    for _ in range(4):
        leases = assigned(leases, now, shards)
        now = obeyed(leases, now)
    return leases, now


@given(states())
def test_no_shard_is_given_to_one_while_another_that_lives_may_have_it_open(
    state: tuple[Leases, dict[str, Writer], int],
) -> None:
    leases, alive, shards = state
    wanted = assigned(leases, alive, shards)
    before = (*leases.writers, *[NOBODY] * shards)
    for shard, name in enumerate(wanted.writers):
        if name in (NOBODY, before[shard]):
            continue
        assert name in alive
        assert before[shard] not in alive
        assert not any(shard in writer.holds for other, writer in alive.items() if other != name)


@given(states())
def test_it_comes_to_rest_with_equal_shares_and_nothing_at_those_who_leave(
    state: tuple[Leases, dict[str, Writer], int],
) -> None:
    leases, alive, shards = state
    done, now = settled(leases, alive, shards)
    assert assigned(done, now, shards) is done
    assert len(done.writers) == shards
    shares = sizes(done, alive)
    assert not any(held_by(done, name) for name, writer in alive.items() if writer.leaving)
    if shares:
        assert sum(shares) == shards
        assert max(shares) - min(shares) <= 1


@given(states())
def test_as_few_shards_move_as_can_be(state: tuple[Leases, dict[str, Writer], int]) -> None:
    leases, alive, shards = state
    takers = [name for name, writer in alive.items() if not writer.leaving]
    if not takers:
        return
    done, _ = settled(leases, alive, shards)
    before = (*leases.writers, *[NOBODY] * shards)
    kept = sum(before[shard] == name for shard, name in enumerate(done.writers))
    owned = sorted((len(held_by(leases, name)) for name in takers), reverse=True)
    least, more = divmod(shards, len(takers))
    assert kept == sum(min(count, least + (rank < more)) for rank, count in enumerate(owned))


@given(states())
def test_the_same_state_gives_the_same_leases_in_whatever_order_it_is_told(
    state: tuple[Leases, dict[str, Writer], int],
) -> None:
    leases, alive, shards = state
    turned = dict(reversed(list(alive.items())))
    assert assigned(leases, alive, shards) == assigned(leases, turned, shards)


@given(states())
def test_a_change_counts_the_revision_up_and_only_a_change_does(state: tuple[Leases, dict[str, Writer], int]) -> None:
    leases, alive, shards = state
    wanted = assigned(leases, alive, shards)
    assert (wanted is leases) == (wanted.writers == leases.writers)
    assert wanted.revision == leases.revision + (wanted is not leases)


def test_the_dead_keep_their_shards_while_there_is_nobody_else() -> None:
    leases = Leases(3, ("writer-0", "writer-0"))
    assert assigned(leases, {}, 2) is leases


def test_one_more_writer_takes_from_those_that_have_most() -> None:
    leases = Leases(1, ("a", "a", "a", "b", "b"))
    alive = {"a": Writer(frozenset({0, 1, 2})), "b": Writer(frozenset({3, 4})), "c": Writer()}
    first = assigned(leases, alive, 5)
    assert first.writers == ("a", "a", NOBODY, "b", "b")
    closed = {**alive, "a": Writer(frozenset({0, 1}))}
    assert assigned(first, alive, 5) is first
    assert assigned(first, closed, 5).writers == ("a", "a", "c", "b", "b")
