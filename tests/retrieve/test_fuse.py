"""The ranking: every arm can win, filters lose nothing, ties and missing vectors are settled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from serve_app.core import Mode, TimeWindow
from serve_app.retrieve.expand import NamedDate
from serve_app.retrieve.fuse import (
    ARMS,
    SCORE_STEPS,
    Evidence,
    Floats,
    FusionWeights,
    date_match,
    dense_window,
    moment_match,
    rank,
    speaker_match,
)
from serve_app.stores.lexical import LexicalIndex
from serve_app.stores.terms import code_terms, index_terms, query_terms

WEIGHTS = FusionWeights()
MODES: tuple[Mode, ...] = ("hybrid", "dense", "lexical")


def floats(*values: float) -> Floats:
    return np.array(values, np.float32)


def evidence(own: Floats, dense: Floats | None = None, **rest: object) -> Evidence:
    """Turns of one session, in order; the window score is the own one unless given."""
    n = len(own)
    order = np.arange(n, dtype=np.int32)
    following = np.where(order + 1 < n, order + 1, -1).astype(np.int32)
    given = {"window": own, "previous": order - 1, "following": following, "eligible": np.ones(n, np.bool_)}
    return Evidence(own=own, dense=dense, **(given | rest))  # type: ignore[arg-type]


def search(texts: list[str], query: str, dense: Floats | None) -> list[int]:
    index = LexicalIndex()
    for at, text in enumerate(texts):
        index.append(index_terms(text), at - 1)
    own, window = index.scores(query_terms(query))
    code = index.coverage(code_terms(query))
    return [int(at) for at in rank(evidence(own, dense, window=window, code=code), "hybrid", 5, WEIGHTS).ordinals]


@pytest.mark.parametrize("place", [0, 10, 20])
@pytest.mark.parametrize("query", ["ZX-81Q", "Where does it say ZX-81Q?"])
def test_a_rare_code_is_first_among_its_look_alikes(place: int, query: str) -> None:
    """Also where the vectors find every look-alike the better match, those beside the turn most of all."""
    texts = [f"The invoice ZX-{number}Q was paid in March." for number in range(10, 30)]
    texts.insert(place, "The broken part carries ZX-81Q on its back.")
    dense = np.linspace(0.5, 0.6, 21).astype(np.float32)
    dense[[max(place - 1, 0), min(place + 1, 20)]] = 0.9
    dense[place] = 0.1
    assert search(texts, query, dense)[0] == place


def test_what_only_the_vectors_find_can_win() -> None:
    dense = floats(0.1, 0.1, 0.9, 0.1)
    assert rank(evidence(floats(0, 0, 0, 0), dense), "hybrid", 4, WEIGHTS).ordinals[0] == 2


def test_what_only_the_words_find_can_win() -> None:
    dense = floats(0.2, 0.21, 0.2, 0.19)
    own = floats(0, 0, 0, 7)
    assert rank(evidence(own, dense), "hybrid", 4, WEIGHTS).ordinals[0] == 3


def test_lexical_mode_gives_only_turns_that_hold_a_term() -> None:
    found = rank(evidence(floats(0, 2, 0), window=floats(3, 2, 1)), "lexical", 3, WEIGHTS)
    assert found.ordinals.tolist() == [1]


def test_dense_mode_gives_only_turns_with_a_vector() -> None:
    found = rank(evidence(floats(9, 0, 0), floats(np.nan, 0.4, 0.5)), "dense", 3, WEIGHTS)
    assert found.ordinals.tolist() == [2, 1]
    assert not len(rank(evidence(floats(9, 0, 0)), "dense", 3, WEIGHTS).ordinals)


def test_a_turn_without_a_vector_is_judged_by_its_words() -> None:
    own, dense = floats(0.1, 0, 5, 0), floats(0.9, 0.3, np.nan, np.nan)
    found = rank(evidence(own, dense), "hybrid", 4, WEIGHTS)
    assert found.ordinals[0] == 2
    assert found.scores[0] == 1.0
    assert found.ordinals.tolist()[-1] == 3


def test_equal_scores_fall_to_the_newer_turn() -> None:
    dense = floats(0.5, 0.5 + 1e-7, 0.5 - 1e-7, 0.1)
    found = rank(
        evidence(floats(1, 1, 1, 0), dense, previous=np.full(4, -1), following=np.full(4, -1)), "hybrid", 3, WEIGHTS
    )
    assert found.ordinals.tolist() == [2, 1, 0]


@given(st.permutations([0.5, 0.5 + 1e-6, 0.5 - 1e-6]))
def test_the_last_bits_of_like_vectors_decide_nothing(dense: list[float]) -> None:
    found = rank(evidence(floats(0, 0, 0), floats(*dense)), "hybrid", 3, WEIGHTS)
    assert found.ordinals.tolist() == [2, 1, 0]


def test_boosts_need_a_cause_and_count_their_weight() -> None:
    own = floats(1, 1)
    plain = rank(evidence(own), "hybrid", 2, WEIGHTS)
    named = rank(evidence(own, speaker=floats(1, 0), date=floats(0.5, 0)), "hybrid", 2, WEIGHTS)
    assert plain.ordinals.tolist() == [1, 0]
    assert named.ordinals.tolist() == [0, 1]
    assert named.scores[0] - plain.scores[1] == pytest.approx(WEIGHTS.speaker + WEIGHTS.date / 2, abs=1e-4)


def test_weights_that_leave_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="dense mode"):
        rank(evidence(floats(1)), "dense", 1, FusionWeights(dense=0, dense_window=0))


@st.composite
def any_evidence(draw: st.DrawFn) -> Evidence:
    n = draw(st.integers(1, 12))
    scores = st.floats(0, 20, width=32)
    cosines = st.one_of(st.floats(-1, 1, width=32), st.just(float("nan")))
    own = draw(arrays.arrays(np.float32, n, elements=scores))
    return evidence(
        own,
        draw(st.one_of(st.none(), arrays.arrays(np.float32, n, elements=cosines))),
        window=draw(arrays.arrays(np.float32, n, elements=scores)),
        eligible=draw(arrays.arrays(np.bool_, n)),
        speaker=draw(arrays.arrays(np.float32, n, elements=st.sampled_from([0.0, 1.0]))),
    )


@given(any_evidence(), st.sampled_from(MODES), st.integers(1, 15))
def test_a_filter_and_k_only_leave_turns_out(evidence: Evidence, mode: Mode, k: int) -> None:
    n = len(evidence.own)
    everything = rank(evidence._replace(eligible=np.ones(n, np.bool_)), mode, n, WEIGHTS)
    found = rank(evidence, mode, k, WEIGHTS)
    expected = [at for at in everything.ordinals if evidence.eligible[at]][:k]
    assert found.ordinals.tolist() == expected


@given(any_evidence(), st.sampled_from(MODES))
def test_scores_fall_and_are_the_sum_of_their_parts(evidence: Evidence, mode: Mode) -> None:
    found = rank(evidence, mode, 12, WEIGHTS)
    assert found.parts.shape == (len(found.ordinals), len(ARMS))
    assert np.isfinite(found.parts).all()
    assert (np.diff(found.scores) <= 0).all()
    rounded = (len(ARMS) + 1) / 2 / SCORE_STEPS  # each part, and the sum, to the nearest step
    np.testing.assert_allclose(found.parts.sum(axis=1), found.scores, rtol=0, atol=rounded + 1e-9)
    if mode == "hybrid":
        assert len(found.ordinals) == evidence.eligible.sum(), "a filter's matches are complete"


def test_dense_window_is_the_score_of_the_weighted_mean() -> None:
    rng = np.random.default_rng(7)
    vectors, query = rng.normal(size=(3, 8)), rng.normal(size=8)
    scores = (vectors @ query).astype(np.float32)
    window = dense_window(scores, np.array([-1, 0, 1]), np.array([1, 2, -1]))
    assert window[1] == pytest.approx(query @ (vectors[0] / 4 + vectors[1] / 2 + vectors[2] / 4), rel=1e-5)
    assert window[0] == pytest.approx(query @ (vectors[0] * 2 / 3 + vectors[1] / 3), rel=1e-5)
    assert np.isnan(dense_window(floats(np.nan), np.array([-1]), np.array([-1]))).all()


def test_speaker_and_date_of_a_query() -> None:
    names = [frozenset(query_terms("Ken Smith")), frozenset(query_terms("李梅"))]
    of = np.array([0, 1, -1], np.int32)
    for query, expected in (("What did Ken's dog do?", [1, 0, 0]), ("李梅说了什么", [0, 1, 0])):
        matched = speaker_match(frozenset(index_terms(query)), names, of)
        assert matched is not None
        assert matched.tolist() == expected
    assert speaker_match(frozenset(index_terms("Who was it?")), names, of) is None
    assert speaker_match(frozenset(), [], np.array([-1, -1])) is None
    days = np.array([20230508, 20230601, 20240508], np.int32)
    dated = date_match(NamedDate(2023, 5, None), days)
    assert dated is not None
    assert dated.tolist() == [1.0, 0.5, 0.5]
    assert date_match(NamedDate(), days) is None


def test_a_window_lifts_what_lies_in_it_and_half_as_much_where_it_is_vague() -> None:
    times = np.array([0, 10, 20], np.int64) * 1_000_000
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    window = TimeWindow(epoch + timedelta(seconds=10), epoch + timedelta(seconds=20))
    inside = moment_match(window, times)
    assert inside is not None
    assert inside.tolist() == [0, 1, 0]
    vague = moment_match(TimeWindow(None, window.end, certain=False), times)
    assert vague is not None
    assert vague.tolist() == [0.5, 0.5, 0]
    assert moment_match(None, times) is None
