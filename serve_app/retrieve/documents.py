"""How well each of some texts answers a query, where nothing but the texts is known. Pure.

By late interaction: each token of the query counts as much as its word is rare among the texts. Where the encoder
gives no tokens, and for a text that has none, by the vectors of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from serve_app.ports import EncodedQuery, Encodings, Tokens
from serve_app.retrieve.fuse import SCORE_STEPS
from serve_app.retrieve.late import late_scores, token_weights
from serve_app.stores.bm25 import Links
from serve_app.stores.lexical import NO_TURN, LexicalIndex
from serve_app.stores.terms import index_terms

Scores = NDArray[np.float64]


def relevance(query: str, encoded: EncodedQuery, texts: Sequence[str], encodings: Encodings) -> Scores:
    """Shape (len(texts),), 0 to 1, rounded to 1e-4. `encodings`: of the texts, by the query's version."""
    scores = (encodings.vectors @ encoded.vector).astype(np.float64)
    if encodings.tokens is not None:
        late = _late(query, encoded, texts, encodings.tokens)
        scores = np.where(np.isnan(late), scores, late)
    return np.rint(np.clip(scores, 0.0, 1.0) * SCORE_STEPS) / SCORE_STEPS


def _late(query: str, encoded: EncodedQuery, texts: Sequence[str], tokens: Sequence[Tokens]) -> Scores:
    """NaN where there is nothing to compare."""
    n = len(texts)
    if encoded.tokens is None or encoded.spans is None:
        return np.full(n, np.nan)
    words, alone = LexicalIndex(), np.full(n, NO_TURN, np.intp)
    for text in texts:
        words.append(index_terms(text), NO_TURN)
    weights = token_weights(encoded.spans, query, words)
    offsets = np.cumsum([0, *(len(one) for one in tokens)])
    at = np.arange(n, dtype=np.int32)
    return late_scores(
        encoded.tokens, weights, at, np.concatenate(tokens), offsets, Links(alone, alone)
    ).weighted.astype(np.float64)
