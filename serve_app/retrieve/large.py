"""The first stage of a large user: the archive ranks all turns, and the content of the best is read.

What the second stage is given is what it is given of a small user, neighbours and tokens included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from serve_app.core import Tier, Turn
from serve_app.errors import StorageTrouble
from serve_app.ports import EncodedQuery, Tokens
from serve_app.retrieve.archived import Chosen, ranked
from serve_app.retrieve.found import found_of
from serve_app.retrieve.fuse import Ranking
from serve_app.retrieve.hot import read_words
from serve_app.retrieve.late import around, token_weights
from serve_app.retrieve.naming import named_in
from serve_app.retrieve.question import Question
from serve_app.retrieve.shortlist import RERANKED_MAX, Clues, Ranked, TokenClues, head
from serve_app.retrieve.warm import Older, ReadTokens
from serve_app.stores.archive import Archive
from serve_app.stores.block import Block
from serve_app.stores.field import Field


def large_turns(
    block: Block,
    question: Question,
    encoded: EncodedQuery | None,
    archive: Archive,
    older: Older,
    read_tokens: ReadTokens,
) -> Ranked | None:
    """The best of all turns; None where the archive has no say, or lacks turns or vectors, or where content cannot
    be read.

    Filters look at the content of every turn: they are answered without it.
    """
    if "warm" not in question.tiers or question.filters.narrow or not question.query.strip() or block.complete:
        return None
    with block.lock:
        whole = encoded is None or archive.whole(encoded.version)
        field = archive.field(block) if whole else None
        if field is None:
            return None
        entities = named_in(question.query, field, field.size)
        chosen = ranked(block, field, question, encoded, *read_words(question.query), entities)
    try:
        found = _with_content(block, question, encoded, field, chosen, older, read_tokens)
    except StorageTrouble:  # the way without the archive says so
        return None
    return found._replace(entities=entities)


def _with_content(
    block: Block,
    question: Question,
    encoded: EncodedQuery | None,
    field: Field,
    chosen: Chosen,
    older: Older,
    read_tokens: ReadTokens,
) -> Ranked:
    most = max(question.k, RERANKED_MAX) if question.rerank else question.k
    turns: dict[int, Turn] = {}
    kept: list[int] = []
    places = chosen.ranking.ordinals.tolist()
    for start in range(0, len(places), most):
        piece = places[start : start + most]
        turns |= _read(block, chosen, piece, older)
        kept += [at for at, place in enumerate(piece, start) if place in turns and question.admits(turns[place])]
        if len(kept) >= most:
            break
    ordinals, scores, parts = chosen.ranking
    first = kept[:most]
    ranking = Ranking(ordinals[first], scores[first], parts[first])
    best = [turns[place].at(question.now) for place in ranking.ordinals.tolist()]
    with block.lock:
        tiers: list[Tier] = ["hot" if turn.seq in block.turns else "warm" for turn in best]
    clues = None
    if question.rerank:
        clues = _clues(block, question, encoded, field, chosen._replace(ranking=ranking), turns, older, read_tokens)
    return Ranked(found_of(best, ranking, tiers), clues)


def _read(block: Block, chosen: Chosen, places: Sequence[int], older: Older) -> dict[int, Turn]:
    """The turns at these places that are still there, from memory or from the table."""
    seqs = dict(zip(chosen.seqs[places].tolist(), places, strict=True))
    with block.lock:
        held = {seq: block.turns[seq] for seq in seqs if seq in block.turns}
    if len(held) < len(seqs):
        held |= {turn.seq: turn for turn in older(block.key, [seq for seq in seqs if seq not in held])}
    return {seqs[seq]: turn for seq, turn in held.items() if block.holds(turn)}


def _clues(
    block: Block,
    question: Question,
    encoded: EncodedQuery | None,
    field: Field,
    chosen: Chosen,
    turns: Mapping[int, Turn],
    older: Older,
    read_tokens: ReadTokens,
) -> Clues:
    clues = Clues(chosen.evidence, head(chosen.ranking), version=None if encoded is None else encoded.version)
    if not len(clues.ranking.ordinals):
        return clues
    near = around(clues.ranking.ordinals, clues.links)
    beside = _read(block, chosen, [place for place in near.tolist() if place not in turns], older)
    known = {**turns, **beside}
    shown = {place: known[place].at(question.now) for place in near.tolist() if place in known}
    clues = clues._replace(turns={place: turn for place, turn in shown.items() if not turn.expired(question.now)})
    if not question.late or encoded is None or encoded.tokens is None or encoded.spans is None:
        return clues
    with block.lock:
        weights = token_weights(encoded.spans, question.query, field)
    flat, offsets = _tokens(block, encoded, chosen.seqs[near].tolist(), question.as_of, read_tokens)
    return clues._replace(tokens=TokenClues(encoded.tokens, weights, near, flat, offsets))


def _tokens(
    block: Block, encoded: EncodedQuery, seqs: Sequence[int], as_of: int | None, read_tokens: ReadTokens
) -> tuple[Tokens, NDArray[np.int64]]:
    """Of these turns one after another, and where those of each begin."""
    with block.lock:
        hot, ends = block.tokens(encoded.version, seqs, as_of)
        elsewhere = [seq for seq in seqs if seq not in block.turns]
    warm = read_tokens(elsewhere)
    of_each = [
        warm.get(seq, hot[start:end])
        for seq, start, end in zip(seqs, ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    ]
    return np.concatenate([*of_each, hot[:0]]), np.cumsum([0, *map(len, of_each)])
