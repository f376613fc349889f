"""What a query names: by the rules that read turns, and by looking each of its words up among what the turns name.

So `paris trip` finds Paris, which no rule sees in it. Speakers are left out: that a query names one is told by an arm
of its own, and the one who is named may be the wrong one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from serve_app.core import Turn
from serve_app.entities import words
from serve_app.entities.recognise import in_text, named_of
from serve_app.entities.values import key_of
from serve_app.stores.terms import unspaced_runs
from serve_app.stores.terms import words as spelt_words

QUERY_CHARACTERS_MAX: Final = 2_000
"""Of a longer query the beginning is read for names."""

WORDS_LOOKED_UP: Final = 48
WORDS_A_NAME: Final = 4
SIGNS_LOOKED_UP: Final = 48
SIGNS_A_NAME: Final = 6
"""Runs of so many words, or signs of a script without blanks, are looked up, from among so many."""

ENTITIES_A_QUERY_MAX: Final = 16

TURNS_A_MENTION: Final = 20
TURNS_FEW: Final = 3
"""An entity that more turns name than one in so many, and than these few, does not help to tell them apart."""

QUERIES_REMEMBERED: Final = 2_048


class _Read(NamedTuple):
    """The keys that the rules see in a query, and those that may be looked up."""

    named: tuple[str, ...]
    possible: tuple[str, ...]


class Index(Protocol):
    """Which turns of a user name which entity."""

    def known(self, keys: Iterable[str], n: int) -> Set[str]:
        """Those of these that any of the first n turns names, as far as it can be told."""
        ...

    def ordinals(self, key: str, n: int) -> Sequence[int] | NDArray[np.int64]: ...


class Known(Protocol):
    """What the names in a query are looked up in: the columns of a block, or all turns of a large user."""

    @property
    def entities(self) -> Index: ...

    def speaker_keys_until(self, n: int) -> frozenset[str]:
        """Of those who speak in the first n turns, by the name of an entity."""
        ...


def named_in(query: str, columns: Known, n: int) -> tuple[str, ...]:
    """The keys of the entities that the query names: what rules see first, then what the first n turns name of what is
    looked up.
    """
    read = _read_once(query) if len(query) <= QUERY_CHARACTERS_MAX else _read(query[:QUERY_CHARACTERS_MAX])
    known, speakers = columns.entities.known(read.possible, n), columns.speaker_keys_until(n)
    found = dict.fromkeys(key for key in read.named if key not in speakers)
    found |= dict.fromkeys(key for key in read.possible if key in known and key not in speakers)
    return tuple(found)[:ENTITIES_A_QUERY_MAX]


def entity_match(keys: Sequence[str], columns: Known, n: int) -> NDArray[np.float32] | None:
    """Share of these that each of the first n turns names, 0 to 1; None where no turn names any.

    What many turns name tells none of them from the others, and is named by none here.
    """
    named = [ordinals for key in keys if len(ordinals := columns.entities.ordinals(key, n))]
    rare = [ordinals for ordinals in named if len(ordinals) <= max(TURNS_FEW, n // TURNS_A_MENTION)]
    if not rare:
        return None
    found = np.zeros(n, np.float32)
    for ordinals in rare:
        found[ordinals] += 1
    return found / np.float32(len(keys))


def entity_match_of(keys: Sequence[str], turns: Sequence[Turn]) -> NDArray[np.float32] | None:
    """The same of turns that are in no index."""
    if not keys:
        return None
    return np.array([len(named_of(turn, keys)) / len(keys) for turn in turns], np.float32)


def _read(query: str) -> _Read:
    named = dict.fromkeys(one.key for one in in_text(query))
    return _Read(tuple(named), tuple(dict.fromkeys(_looked_up(query))))


_read_once: Final = lru_cache(maxsize=QUERIES_REMEMBERED)(_read)


def _looked_up(query: str) -> Iterator[str]:
    """Longer runs first. A single word that is common in talk names nothing."""
    spelt = spelt_words(query)[:WORDS_LOOKED_UP]
    keys = [key_of(word) for word in spelt]  # that of several words is theirs in a row
    for length in range(WORDS_A_NAME, 0, -1):
        for at in range(len(spelt) - length + 1):
            if length > 1 or _may_name(spelt[at]):
                yield "".join(keys[at : at + length])
    signs = SIGNS_LOOKED_UP
    for run in unspaced_runs(query):
        cut = run[:signs]
        signs -= len(cut)
        for length in range(SIGNS_A_NAME, 1, -1):
            yield from (key_of(cut[at : at + length]) for at in range(len(cut) - length + 1))


def _may_name(word: str) -> bool:
    lowered = word.lower()
    return len(word) > 2 and lowered not in words.COMMON and lowered not in words.NEVER
