"""What speaks for a turn beside likeness: a code, a speaker, a day, a time, an entity that the query names.

One place for every first stage. What differs is where the turns lie: in a block, in an archive, in a gathered list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from serve_app.retrieve.expand import NO_DATE, NamedDate
from serve_app.retrieve.fuse import Floats, FusionWeights, date_match, moment_match
from serve_app.retrieve.question import Question
from serve_app.stores.terms import QueryTerms


class Turns(Protocol):
    """The turns that are judged; of each one number, in their order."""

    def seqs(self) -> NDArray[np.int64]:
        """Ascending."""
        ...

    def days(self) -> NDArray[np.int32]: ...

    def times(self) -> NDArray[np.int64]: ...

    def coverage(self, codes: Sequence[str]) -> Floats:
        """The share of these terms that each holds."""
        ...

    def speakers(self, terms: set[str]) -> Floats | None:
        """1 where one of these is a term of the speaker's name; None where it is of nobody's."""
        ...

    def naming(self, keys: Sequence[str]) -> Floats | None:
        """The share of these entities that each names; None where none names any."""
        ...


class Boosts(NamedTuple):
    """Arms of `fuse.Evidence`, by its names."""

    code: Floats | None
    speaker: Floats | None
    date: Floats | None
    echo: Floats | None
    moment: Floats | None
    entity: Floats | None


def boosts_of(turns: Turns, question: Question, terms: QueryTerms, named: NamedDate, entities: Sequence[str]) -> Boosts:
    return Boosts(
        code=turns.coverage(terms.codes) if terms.codes else None,
        speaker=turns.speakers(set(terms.said)),
        date=None if named == NO_DATE else date_match(named, turns.days()),
        echo=_echo(turns.seqs(), question.drawn_from) if question.drawn_from else None,
        moment=None if question.window is None else moment_match(question.window, turns.times()),
        entity=turns.naming(entities) if entities else None,
    )


def boosted(weights: FusionWeights, boosts: Boosts) -> Iterator[tuple[Floats, float]]:
    """Those that there are, with what each counts."""
    counts = (weights.code, weights.speaker, weights.date, weights.echo, weights.window, weights.entity)
    yield from ((arm, weight) for arm, weight in zip(boosts, counts, strict=True) if arm is not None)


def _echo(seqs: NDArray[np.int64], drawn_from: frozenset[int]) -> Floats:
    return np.isin(seqs, np.fromiter(drawn_from, np.int64, len(drawn_from))).astype(np.float32)
