"""MaxSim over compressed tokens: against the definition, whatever else is looked at."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from serve_app.ports import TOKEN_DIMENSION
from serve_app.retrieve.late import QUERY_TOKENS_MAX, Late, around, late_scores, token_weights
from serve_app.stores.bm25 import Links
from serve_app.stores.lexical import LexicalIndex
from serve_app.stores.terms import index_terms


def tokens(rng: np.random.Generator, count: int) -> NDArray[np.int8]:
    drawn = rng.normal(size=(count, TOKEN_DIMENSION))
    unit = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return np.rint(unit * 127).astype(np.int8)


def links_of(turns: int) -> Links:
    """One session."""
    return Links(np.arange(-1, turns - 1), np.append(np.arange(1, turns), -1))


def scored(query: NDArray[np.int8], weights: NDArray[np.float32], held: dict[int, NDArray[np.int8]], n: int) -> Late:
    at = np.array(sorted(held), np.int32)
    offsets = np.cumsum([0, *(len(held[place]) for place in at.tolist())])
    flat = np.concatenate([held[place] for place in at.tolist()] or [query[:0]])
    return late_scores(query, weights, at, flat, offsets, links_of(n))


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 6), min_size=1, max_size=9), st.integers(1, 7))
def test_each_score_is_what_its_definition_says(seed: int, sizes: list[int], asked: int) -> None:
    rng = np.random.default_rng(seed)
    query, weights = tokens(rng, asked), rng.uniform(0.1, 5, asked).astype(np.float32)
    held = {place: tokens(rng, size) for place, size in enumerate(sizes)}
    late = scored(query, weights, held, len(sizes) + 1)
    assert np.isnan(late.plain[len(sizes)]), "a turn that was not looked at"
    for place, size in enumerate(sizes):
        if not size:
            assert np.isnan([column[place] for column in late]).all()
            continue
        products = {one: query.astype(float) @ that.T.astype(float) / 127**2 for one, that in held.items() if len(that)}
        cosines = products[place]
        best = cosines.max(axis=1)
        near = [products[one].max(axis=1) for one in (place - 1, place, place + 1) if one in products]
        window = np.max(near, axis=0)
        share = weights / weights.sum()
        wanted = (best.mean(), share @ best, share @ window, best[np.argmax(weights)], cosines.max(axis=0).mean())
        np.testing.assert_allclose([column[place] for column in late], wanted, atol=1e-4)


def test_a_score_does_not_depend_on_what_else_is_looked_at() -> None:
    rng = np.random.default_rng(3)
    query, weights = tokens(rng, 5), np.ones(5, np.float32)
    held = {place: tokens(rng, 4) for place in (0, 5, 9)}
    alone = scored(query, weights, {5: held[5]}, 12)
    np.testing.assert_allclose(alone.weighted[5], scored(query, weights, held, 12).weighted[5], atol=1e-6)


def test_nothing_to_look_for_gives_no_scores() -> None:
    rng = np.random.default_rng(4)
    held = {0: tokens(rng, 3)}
    assert np.isnan(scored(tokens(rng, 2), np.zeros(2, np.float32), held, 2)).all()
    assert np.isnan(scored(tokens(rng, 2), np.ones(2, np.float32), {}, 2)).all()


def test_of_a_long_query_the_rarest_words_count() -> None:
    rng = np.random.default_rng(5)
    query = tokens(rng, QUERY_TOKENS_MAX + 40)
    weights = np.ones(len(query), np.float32)
    weights[:40] = 0.5
    held = {0: tokens(rng, 6)}
    rarest = scored(query[40:], weights[40:], held, 1)
    np.testing.assert_allclose(scored(query, weights, held, 1).weighted, rarest.weighted, atol=1e-5)


def test_the_candidates_and_their_neighbours_are_looked_at_once_each() -> None:
    assert around(np.array([4, 0, 3], np.int32), links_of(6)).tolist() == [0, 1, 2, 3, 4, 5]
    assert around(np.array([], np.int32), links_of(6)).tolist() == []


def index_of(*texts: str) -> LexicalIndex:
    index = LexicalIndex()
    for text in texts:
        index.append(index_terms(text), -1)
    return index


def spans(*ranges: tuple[int, int]) -> NDArray[np.int32]:
    return np.array(ranges, np.int32)


def test_a_token_counts_as_much_as_its_word_is_rare() -> None:
    index = index_of("the hotel", "the Larkspur hotel", "the hotel again")
    query = "the Larkspur hotel?"
    cut = spans((0, 0), (0, 3), (4, 8), (8, 12), (13, 18), (18, 19), (0, 0))  # [CLS] the Lark ##spur hotel ? [SEP]
    weights = token_weights(cut, query, index)
    assert weights[2] == weights[3] > weights[4]
    assert weights[4] > 0
    assert weights[0] == weights[5] == weights[6] == 0
    np.testing.assert_allclose(weights[2], index.rarities(index_terms("Larkspur"))[0])


def test_a_piece_of_several_characters_counts_as_its_rarest_one() -> None:
    index = index_of("我的狗", "我的猫", "我的鱼")
    weights = token_weights(spans((0, 1), (1, 3)), "我的狗", index)
    np.testing.assert_allclose(weights, index.rarities(["我", "狗"]))


def test_the_past_has_its_own_rarities() -> None:
    index = index_of("a hat", "a red hat", "a hat", "a hat")
    word = spans((0, 3))
    assert token_weights(word, "hat", index, 1) != token_weights(word, "hat", index)
    assert len(token_weights(spans(), "", index)) == 0
