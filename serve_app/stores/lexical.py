"""Incremental BM25 over one user's turns, in memory.

Owns the postings of one user: which term stands how often in which turn. A turn is known by its
ordinal (0, 1, 2, ... in the order of appending, never given twice) and is linked to the turns
before and after it in its session. Promises: what `append` took is found by the next `scores`;
what `remove` took out leaves no trace; `scores(..., limit)` is what it would have been when only
`limit` turns had been appended, save for turns removed or replaced since. The postings of a term are
sorted by ordinal.

Not locked: the owner lets one thread change it while no other reads.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from serve_app.stores.bm25 import (
    IMPACT_CELLS_A_TURN,
    Floats,
    Frame,
    Impact,
    Impacts,
    Links,
    Matches,
    add,
    norms_of,
    own_impacts,
    sparse,
    window_impacts,
)

QUERY_TERMS_MAX: Final = 128
"""Distinct terms that a query is scored by: of a longer one the rarest in this user's turns."""

NO_TURN: Final = -1

_COUNT_BITS: Final = 8
_COUNT_MAX: Final = (1 << _COUNT_BITS) - 1
"""Occurrences stored per posting. Beyond a few dozen BM25 has long levelled off."""

ORDINALS_MAX: Final = 1 << (32 - _COUNT_BITS)
"""Turns that one index can ever take; a posting packs ordinal and count into 32 bits."""

_TERM_BYTES: Final = 200
_POSTING_BYTES: Final = 5
_TURN_BYTES: Final = 12
"""For the estimate in `bytes`: a term with its string, dict entry and array; a posting with spare room; a turn."""


class LexicalIndex:
    """Terms of one user's turns: append, replace, remove, score."""

    def __init__(self) -> None:
        self._postings: dict[str, int | array[int]] = {}  # most terms stand in one turn only: a bare int
        self._lengths = array("I")
        self._previous = array("i")
        self._following = array("i")
        self._removed: set[int] = set()
        self._posting_count = 0
        self._frame: Frame | None = None  # of all turns; made by the first query after a change

    @property
    def size(self) -> int:
        """Ordinals given so far, removed ones included: the length of what `scores` gives."""
        return len(self._lengths)

    @property
    def bytes(self) -> int:
        """About how much memory this takes, right within a factor of two."""
        return _TERM_BYTES * len(self._postings) + _POSTING_BYTES * self._posting_count + _TURN_BYTES * self.size

    def append(self, terms: Sequence[str], previous: int) -> int:
        """Take the next turn, which follows `previous` in its session (-1: it opens one); gives its ordinal.

        Raises ValueError if `previous` is no turn that is there, or already has a follower.
        """
        ordinal = self.size
        if ordinal >= ORDINALS_MAX:
            raise ValueError(f"a lexical index takes at most {ORDINALS_MAX} turns")
        self._frame = None
        if previous != NO_TURN:
            self._link(previous, ordinal)
        self._lengths.append(len(terms))
        self._previous.append(previous)
        self._following.append(NO_TURN)
        counted = Counter(terms)
        self._post_newest(counted, ordinal << _COUNT_BITS)
        self._posting_count += len(counted)
        return ordinal

    def replace(self, ordinal: int, held: Sequence[str], terms: Sequence[str]) -> None:
        """Give a turn other terms than those that it `held`; it keeps its neighbours. Costs what the two differ in.

        Raises ValueError if the turn is not there.
        """
        if not 0 <= ordinal < self.size or ordinal in self._removed:
            raise ValueError(f"turn {ordinal} is not there to be replaced")
        self._frame = None
        before, after = Counter(held), Counter(terms)
        for term in before.keys() | after.keys():
            if before[term] != after[term]:
                self._unpost(term, ordinal)
                if after[term]:
                    self._post(term, ordinal << _COUNT_BITS | min(after[term], _COUNT_MAX))
        self._lengths[ordinal] = len(terms)

    def since(self, first: int) -> LexicalIndex:
        """The turns from ordinal `first` on as an index of their own, numbered from 0. Walks all terms once."""
        kept = LexicalIndex()
        kept._lengths = self._lengths[first:]
        kept._previous = array("i", (max(one - first, NO_TURN) for one in self._previous[first:]))
        kept._following = array("i", (max(one - first, NO_TURN) for one in self._following[first:]))
        kept._removed = {ordinal - first for ordinal in self._removed if ordinal >= first}
        shift = first << _COUNT_BITS
        for term, held in self._postings.items():
            postings = (held,) if isinstance(held, int) else held
            left = array("I", (posting - shift for posting in postings[bisect_left(postings, shift) :]))
            if left:
                kept._postings[term] = left if len(left) > 1 else left[0]
                kept._posting_count += len(left)
        return kept

    def remove(self, *ordinals: int) -> None:
        """Take turns out: postings, length, and their place between their neighbours. Gone ones are no error.

        Walks all terms of the user once, so give all that go in one call.
        """
        going = {ordinal for ordinal in ordinals if 0 <= ordinal < self.size} - self._removed
        for ordinal in going:
            self._unlink(ordinal)
            self._lengths[ordinal] = 0
        self._removed |= going
        if going:
            self._frame = None
            self._withdraw(going)

    def scores(self, terms: Iterable[str], limit: int | None = None) -> tuple[Floats, Floats]:
        """BM25 of each turn's own terms, and of those of the window (turn before, turn, turn after).

        Shape (limit or size,) each, by ordinal. A turn holds at least one of the terms exactly where
        its own score is above 0. Costs what the postings of the terms cost, and little for each turn.
        """
        n = self.size if limit is None else min(limit, self.size)
        own, window = np.zeros(n, np.float32), np.zeros(n, np.float32)
        wanted = self._rarest(Counter(terms), n)
        for term, impact in self._impacts(wanted, n):
            times = np.float32(wanted[term])
            add(own, impact.own_at, times * impact.own)
            add(window, impact.window_at, times * impact.window)
        return own, window

    def _rarest(self, terms: Counter[str], n: int) -> dict[str, int]:
        """How often the query has each term that some turn holds: of too many terms the rarest of the first n turns."""
        held = {term: turns for term in terms if (turns := self._held(term, n))}
        chosen = list(held)
        if len(held) > QUERY_TERMS_MAX:
            chosen = sorted(held, key=lambda term: (held[term], term))[:QUERY_TERMS_MAX]
        return {term: terms[term] for term in chosen}

    def _held(self, term: str, n: int) -> int:
        """By how many of the first n turns."""
        held = self._postings.get(term)
        if held is None or isinstance(held, int):
            return int(held is not None and held >> _COUNT_BITS < n)
        return bisect_left(held, n << _COUNT_BITS)

    def _impacts(self, terms: Iterable[str], n: int) -> list[tuple[str, Impact]]:
        """Of terms that some turn holds. The same bits whether they were kept or not, whatever else is looked for."""
        frame = self._framed(n)
        kept = {term: frame.impacts.get(term) for term in terms}
        lacking = [term for term, impact in kept.items() if impact is None]
        made = dict(zip(lacking, self._made_impacts(lacking, frame, n), strict=True)) if lacking else {}
        for term, impact in made.items():
            frame.impacts.put(term, impact)
        return [(term, impact or made[term]) for term, impact in kept.items()]

    def _made_impacts(self, terms: Sequence[str], frame: Frame, n: int) -> list[Impact]:
        found = self._matches(terms, n)
        added, windows = own_impacts(found, frame), window_impacts(found, frame, n)
        ends = found.held.cumsum().tolist()
        return [
            Impact(added[start:end].copy(), found.ordinals[start:end].copy(), *sparse(window))
            for start, end, window in zip([0, *ends[:-1]], ends, windows, strict=True)
        ]

    def coverage(self, terms: Iterable[str], limit: int | None = None) -> Floats:
        """Share of the distinct `terms` that each turn holds, 0 to 1, by ordinal."""
        n = self.size if limit is None else min(limit, self.size)
        wanted = dict.fromkeys(terms, 1)
        if not wanted:
            return np.zeros(n, np.float32)
        holders = np.bincount(self._matches(list(wanted), n).ordinals, minlength=n)
        return np.asarray(holders / len(wanted), np.float32)

    def holders(self, term: str, first: int = 0) -> tuple[NDArray[np.int64], Floats]:
        """The turns from ordinal `first` on that hold a term, and how often each does."""
        held = self._postings.get(term)
        if held is None:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        packed = array("I", (held,)) if isinstance(held, int) else held
        flat = np.array(packed[bisect_left(packed, first << _COUNT_BITS) :], np.uint32)
        return (flat >> _COUNT_BITS).astype(np.int64), (flat & _COUNT_MAX).astype(np.float32)

    def shape(self, first: int = 0) -> tuple[Floats, NDArray[np.int64]]:
        """From ordinal `first` on the length of each turn in terms, and the ordinal before it in its session."""
        return np.array(self._lengths[first:], np.float32), np.array(self._previous[first:], np.int64)

    def rarities(self, terms: Sequence[str], limit: int | None = None) -> Floats:
        """How rare each term is among the turns: about log(turns / turns that hold it), above 0. Shape (terms,)."""
        n = self.size if limit is None else min(limit, self.size)
        held = np.array([len(self._before(term, n)) for term in terms], np.float64)
        return np.asarray(np.log1p((self._alive(n) - held + 0.5) / (held + 0.5)), np.float32)

    def links(self, limit: int | None = None) -> Links:
        """Neighbours of each turn, as far as only `limit` turns are there. Not to be changed."""
        return self._framed(self.size if limit is None else min(limit, self.size)).links

    def _post_newest(self, counted: Counter[str], place: int) -> None:
        """Every append comes through here, once a term: a posting behind all others needs no search for its place."""
        postings = self._postings
        for term, count in counted.items():
            posting = place | (count if count < _COUNT_MAX else _COUNT_MAX)
            held = postings.get(term)
            if held is None:
                postings[term] = posting
            elif isinstance(held, int):
                postings[term] = array("I", (held, posting))
            else:
                held.append(posting)

    def _post(self, term: str, posting: int) -> None:
        held = self._postings.get(term)
        if held is None:
            self._postings[term] = posting
        elif isinstance(held, int):
            self._postings[term] = array("I", sorted((held, posting)))
        else:
            insort(held, posting, lo=len(held) if held[-1] < posting else 0)
        self._posting_count += 1

    def _unpost(self, term: str, ordinal: int) -> None:
        held = self._postings.get(term)
        if held is None:
            return
        if isinstance(held, int):
            if held >> _COUNT_BITS == ordinal:
                del self._postings[term]
                self._posting_count -= 1
            return
        place = bisect_left(held, ordinal << _COUNT_BITS)
        if place < len(held) and held[place] >> _COUNT_BITS == ordinal:
            del held[place]
            self._posting_count -= 1
            if len(held) == 1:
                self._postings[term] = held[0]

    def _link(self, previous: int, ordinal: int) -> None:
        if not 0 <= previous < ordinal or previous in self._removed:
            raise ValueError(f"turn {previous} is not there to be followed")
        if self._following[previous] != NO_TURN:
            raise ValueError(f"turn {previous} is already followed by {self._following[previous]}")
        self._following[previous] = ordinal

    def _unlink(self, ordinal: int) -> None:
        before, after = self._previous[ordinal], self._following[ordinal]
        if before != NO_TURN:
            self._following[before] = after
        if after != NO_TURN:
            self._previous[after] = before
        self._previous[ordinal] = self._following[ordinal] = NO_TURN

    def _withdraw(self, going: set[int]) -> None:
        for term, held in list(self._postings.items()):
            postings = (held,) if isinstance(held, int) else held
            kept = [posting for posting in postings if posting >> _COUNT_BITS not in going]
            self._posting_count -= len(postings) - len(kept)
            if not kept:
                del self._postings[term]
            elif len(kept) < len(postings):
                self._postings[term] = array("I", kept) if len(kept) > 1 else kept[0]

    def _matches(self, terms: Sequence[str], n: int) -> Matches:
        """Where the terms stand among the first n turns."""
        packed, held = array("I"), []
        for term in terms:
            postings = self._before(term, n)
            packed.extend(postings)
            held.append(len(postings))
        flat = np.frombuffer(packed, np.uint32)
        return Matches(
            held=np.array(held, np.int64),
            rows=np.repeat(np.arange(len(held)), held),
            ordinals=(flat >> _COUNT_BITS).astype(np.int64),
            counts=(flat & _COUNT_MAX).astype(np.float32),
        )

    def _before(self, term: str, n: int) -> array[int]:
        """Postings of the turns before ordinal `n`."""
        held = self._postings.get(term)
        if held is None:
            return array("I")
        if isinstance(held, int):
            return array("I", (held,) if held >> _COUNT_BITS < n else ())
        return held if n == self.size else held[: bisect_left(held, n << _COUNT_BITS)]

    def _framed(self, n: int) -> Frame:
        """Of all turns it is kept until the next change; of fewer it is made for this query."""
        if n != self.size:
            return self._made_frame(n)
        if self._frame is None:
            self._frame = self._made_frame(n)
        return self._frame

    def _made_frame(self, n: int) -> Frame:
        previous, following = np.array(self._previous[:n], np.intp), np.array(self._following[:n], np.intp)
        links = Links(previous, np.where(following < n, following, NO_TURN))
        alive = self._alive(n)
        lengths = np.array(self._lengths[:n], np.float32)
        before, after = (np.where(one < 0, n, one) for one in links)
        padded = np.append(lengths, np.float32(0))
        around = lengths + padded[before] + padded[after]
        return Frame(
            links,
            before,
            after,
            alive,
            norms_of(lengths, alive),
            norms_of(around, alive),
            Impacts(n * IMPACT_CELLS_A_TURN),
        )

    def _alive(self, n: int) -> int:
        gone = len(self._removed) if n == self.size else sum(ordinal < n for ordinal in self._removed)
        return n - gone
