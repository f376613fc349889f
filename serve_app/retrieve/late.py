"""Late interaction: how well each turn answers the query's tokens one by one, instead of one vector against one.

Pure functions on arrays. Each token of the query is worth the best product that it has with any token of the
turn (MaxSim, Khattab and Zaharia 2020). `weighted` counts the tokens of rare words more: the weight is the rarity,
among the owner's own turns, of the *word* that a token lies in, so that no token ids need to be kept.
Vectors of two versions never meet: the caller gives tokens of the query's version, or none for a turn without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from serve_app.ports import Spans, Tokens
from serve_app.stores.bm25 import Links
from serve_app.stores.terms import index_terms, placed_words

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Places = NDArray[np.intp]

TOKEN_LENGTH: Final = 127.0
"""Length of a token vector as it is stored: products over its square are cosines."""

QUERY_TOKENS_MAX: Final = 128
"""Of a longer query the tokens of the rarest words count: the work grows with each."""


class Late(NamedTuple):
    """Scores by ordinal, shape (n,) each, about 0 to 1; NaN where a turn was not looked at or has no tokens."""

    plain: Floats
    """All tokens of the query's words count the same."""
    weighted: Floats
    """Each counts as much as its word is rare."""
    window: Floats
    """The same, where the turns before and after may answer a token, too."""
    least: Floats
    """How well the token is answered that counts most."""
    reverse: Floats
    """How well the query answers the turn's tokens: high where the turn speaks of nothing else."""


class Rarities(Protocol):
    def rarities(self, terms: Sequence[str], limit: int | None = None) -> Floats:
        """As `LexicalIndex.rarities`."""
        ...


def token_weights(spans: Spans, query: str, lexical: Rarities, limit: int | None = None) -> Floats:
    """What each token of the query counts, shape (t,): the rarity of the rarest word it touches; 0 for what is none."""
    placed = np.array(placed_words(query), np.int32).reshape(-1, 2)
    terms = [index_terms(query[start:end]) or [query[start:end]] for start, end in placed.tolist()]
    if not terms:
        return np.zeros(len(spans), np.float32)
    sizes = [len(of_word) for of_word in terms]
    rarities = lexical.rarities([term for of_word in terms for term in of_word], limit)
    worth = np.maximum.reduceat(rarities, np.cumsum([0, *sizes[:-1]]))
    touches = (placed[:, 0] < spans[:, 1:]) & (placed[:, 1] > spans[:, :1])
    return np.asarray(np.where(touches, worth, np.float32(0)).max(axis=1), np.float32)


def around(ordinals: Ints, links: Links) -> Ints:
    """The candidates and the turns before and after them, each once, ascending: those whose scores are looked at."""
    near: NDArray[np.intp] = np.concatenate((ordinals, links.previous[ordinals], links.following[ordinals]))
    return np.unique(near[near >= 0]).astype(np.int32)


def late_scores(
    query: Tokens, weights: Floats, at: Ints, tokens: Tokens, offsets: NDArray[np.int64], links: Links
) -> Late:
    """The scores of the turns with the ordinals `at` among all those that `links` knows.

    `query` (t, d), `weights` (t,); the tokens of turn `at[i]` are `tokens[offsets[i] : offsets[i + 1]]`, perhaps none.
    """
    n = len(links.previous)
    late = Late(*np.full((len(Late._fields), n), np.nan, np.float32))
    asked = _counted(weights)
    held = np.flatnonzero(offsets[1:] > offsets[:-1])
    if not len(asked) or not len(held):
        return late
    products = (query[asked].astype(np.float32) / TOKEN_LENGTH**2) @ tokens.astype(np.float32).T
    starts, at = offsets[held], at[held]
    best = np.maximum.reduceat(products, starts, axis=1)  # an empty turn lies between two others: nothing of either
    share = weights[asked] / weights[asked].sum()
    late.plain[at] = best.mean(axis=0, dtype=np.float32)
    late.weighted[at] = share @ best
    late.window[at] = share @ _of_windows(best, at, links)
    late.least[at] = best[np.argmax(share)]
    late.reverse[at] = np.add.reduceat(products.max(axis=0), starts) / (offsets[held + 1] - starts)
    return late


def _of_windows(best: Floats, at: Ints, links: Links) -> Floats:
    """For each turn the best of it and its neighbours, as far as these were looked at, too. Shape of `best`."""
    column = np.full(len(links.previous) + 1, len(at), np.intp)  # the last place stands for an absent neighbour
    column[at] = np.arange(len(at))
    padded = np.concatenate((best, np.full((len(best), 1), -1, np.float32)), axis=1)
    return np.maximum(np.maximum(best, padded[:, column[links.previous[at]]]), padded[:, column[links.following[at]]])


def _counted(weights: Floats) -> Places:
    """The tokens of the query that are looked for."""
    counted = np.flatnonzero(weights)
    if len(counted) > QUERY_TOKENS_MAX:
        counted = np.sort(counted[np.argsort(-weights[counted], kind="stable")[:QUERY_TOKENS_MAX]])
    return counted
