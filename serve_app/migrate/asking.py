"""One query of one owner under given versions, as a search would answer it, and nothing is left behind by it.

For who compares versions, on a thread of its own: no hit is noted, no metric of users moves, no search is kept. It is
understood by rules, hybrid, reranked; its vector is computed by itself, and it has more time than a search: what is
compared is what is found and not how busy the service was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as NotInTime
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol

from serve_app.core import Mode, Owner
from serve_app.errors import MemstrataError
from serve_app.memory import reading
from serve_app.memory.encoding import Encoders
from serve_app.memory.expansion import by_rules
from serve_app.memory.requests import Asked
from serve_app.memory.searching import found_in
from serve_app.memory.serving import Served
from serve_app.memory.timing import Stages
from serve_app.migrate.sampling import Historical
from serve_app.ports import EncodedQuery
from serve_app.retrieve.found import Found
from serve_app.retrieve.question import Question
from serve_app.retrieve.shortlist import RERANKED_MAX
from serve_app.stores.guard import patient_until
from serve_app.write.golden import living
from serve_app.write.shard import Shard

ENCODE_WAIT_S: Final = 10.0
STORES_WAIT_S: Final = 10.0
RERANK_WAIT_S: Final = 5.0
"""What one search may wait for: long, since nobody waits for it."""

OPINIONS: Final = ("late_weighted", "dense")
"""The features that say what a version thinks of a turn, by its tokens or else by its vector."""


class Answered(NamedTuple):
    """The texts that were found by seq, best first; what lacked, and how long it took."""

    texts: dict[int, str]
    opinions: Mapping[int, float]
    """What the version thinks of those that it looked at closely, by seq."""
    reasons: tuple[str, ...]
    seconds: float
    candidates: int
    """Turns that there were to choose from."""

    @property
    def seqs(self) -> tuple[int, ...]:
        return tuple(self.texts)


class Then(NamedTuple):
    """What a query is asked of: the state `until` a seq, at an instant; which of its gold turns are still there."""

    until: int | None
    instant: int
    gold: frozenset[int] = frozenset()


class Shards(Protocol):
    def __call__(self, owner: Owner) -> Shard: ...


def background(served: Served) -> Served:
    """The same, of whose second stage nothing is counted or remembered, and which has time."""
    return served._replace(second=served.second.apart(RERANK_WAIT_S))


class Asking:
    """Blocking; safe for threads."""

    def __init__(self, shard: Shards, encoders: Encoders, clock: Callable[[], int]) -> None:
        self._shard = shard
        self._encoders = encoders
        self._clock = clock

    def then(self, query: Historical) -> Then | None:
        """The state that the query is asked of; None where what it came from or asked for has gone.

        Raises StorageTrouble.
        """
        shard, owner, clock = self._shard(query.owner), query.owner.key, self._clock()
        with _patience():
            block = shard.block(owner)
            if len(shard.held(owner, sorted(query.drawn_from))) < len(query.drawn_from):
                return None
            golden = query.golden
            if golden is not None and (golden := living(golden, block, clock)) is None:
                return None
            until = reading.seq_asked(shard, block, query.as_of)
            instant = query.as_of.time
            if instant is None and until is not None:
                instant = reading.written_at(shard, owner, until)
        gold = frozenset(one.seq for one in golden.gold) if golden is not None else frozenset()
        return Then(until, instant or clock, gold)

    def ask(self, query: Historical, then: Then, served: Served, k: int, mode: Mode = "hybrid") -> Answered:
        """The best `k`. Whatever lacks is a reason, as in a search."""
        began = time.monotonic()
        encoded, reasons = self._encoded(query.text, served)
        question = self._question(query.text, then, served, encoded, mode)
        with _patience():
            asked = (query.owner.key, question, encoded, served.second, Stages())
            _, answer = found_in(self._shard(query.owner), *asked)
        there = [one for one in answer.found if then.until is None or one.turn.seq <= then.until]
        explained = answer.explained
        return Answered(
            {one.turn.seq: one.turn.text for one in there[:k]},
            _opinions(answer.found),
            (*reasons, *answer.reasons),
            time.monotonic() - began,
            explained.candidates if explained is not None else len(there),
        )

    def _question(self, text: str, then: Then, served: Served, encoded: EncodedQuery | None, mode: Mode) -> Question:
        """Later turns are left out of the answer, not of the search: vectors under a new version came today."""
        understood = by_rules(text, (), Asked(), then.instant)
        return Question(
            query=understood.query,
            mode="lexical" if encoded is None and mode == "hybrid" else mode,
            k=RERANKED_MAX,
            now=max(then.instant, self._clock()),
            window=understood.window,
            rerank=mode == "hybrid" and encoded is not None,
            late=served.second.late,
            asked_at=then.instant,
            explain=True,
        )

    def _encoded(self, text: str, served: Served) -> tuple[EncodedQuery | None, tuple[str, ...]]:
        version = served.routing.of_query(text)
        until = time.monotonic() + ENCODE_WAIT_S
        try:
            return self._encoders.query(version, text, solo=True, deadline=until).result(ENCODE_WAIT_S), ()
        except (NotInTime, TimeoutError):
            return None, ("dense: deadline",)
        except MemstrataError as error:
            return None, (f"dense: {error.code}",)
        except Exception:  # noqa: BLE001 - whatever a model throws: the answer lacks its vector, and says so
            return None, ("dense: encoder_failed",)


def _patience() -> AbstractContextManager[None]:
    return patient_until(time.monotonic() + STORES_WAIT_S, probes=False)


def _opinions(found: Sequence[Found]) -> dict[int, float]:
    """By tokens where the version has any, else by vectors."""
    features = {one.turn.seq: one.why.features for one in found if one.why is not None}
    for name in OPINIONS:
        known = {seq: value for seq, of_turn in features.items() if (value := of_turn.get(name)) is not None}
        if known:
            return known
    return {}
