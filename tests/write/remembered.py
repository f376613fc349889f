"""What one owner's memory should hold, in plain Python: the oracle that blocks and tables are compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from serve_app.core import ROWS_PER_TURN_MAX, Fact, Summary, Turn
from serve_app.stores.block import FACT_VERSIONS_MAX, SUMMARY_VERSIONS_MAX
from serve_app.stores.packing import turn_text
from serve_app.stores.terms import index_terms

S = TypeVar("S", Fact, Summary)


def _unexpired(versions: list[S], now: int) -> list[S]:
    expired = [place for place, one in enumerate(versions) if one.expires_at is not None and one.expires_at <= now]
    return versions[expired[-1] + 1 :] if expired else versions


class Made(NamedTuple):
    """The vectors of one turn: the seq of the record that brought them, and how many each version made, of how many
    tokens.
    """

    came: int
    shape: dict[str, tuple[int, int]]
    tokens: dict[str, bytes]

    @property
    def parts(self) -> int:
        return max(parts for parts, _ in self.shape.values())


@dataclass
class Remembered:
    turns: dict[int, Turn] = field(default_factory=dict)
    facts: dict[str, list[Fact]] = field(default_factory=dict)
    summaries: dict[str, list[Summary]] = field(default_factory=dict)
    vectors: dict[int, Made] = field(default_factory=dict)
    tiers: dict[int, int] = field(default_factory=dict)
    changed_seq: int = 0

    def find(self, session: str, turn_id: str) -> Turn | None:
        return next((turn for turn in self.turns.values() if (turn.session, turn.id) == (session, turn_id)), None)

    def of_session(self, session: str) -> list[Turn]:
        return [turn for turn in self.turns.values() if turn.session == session]

    def holding(self, term: str) -> set[int]:
        return {seq for seq, turn in self.turns.items() if term in index_terms(turn_text(turn))}

    def hot(self) -> list[int]:
        return [seq for seq in self.turns if seq not in self.tiers]

    def cold(self) -> set[int]:
        return {seq for seq, tier in self.tiers.items() if tier == 2}

    def vector_rows(self) -> set[tuple[str, int]]:
        """(version, row) of each vector."""
        rows = set()
        for seq, made in self.vectors.items():
            for version, (parts, _) in made.shape.items():
                rows |= {(version, seq * ROWS_PER_TURN_MAX + part) for part in range(parts)}
        return rows

    def made_by(self, version: str) -> dict[int, bytes]:
        """By seq of the turns that this version made vectors of, those of their tokens."""
        return {seq: made.tokens[version] for seq, made in self.vectors.items() if version in made.tokens}

    def move(self, seqs: list[int], tier: int) -> None:
        self.tiers |= dict.fromkeys(seqs, tier)
        for seq in seqs if tier == 2 else []:
            self.vectors.pop(seq, None)

    def edit(self, turn: Turn) -> None:
        self.turns[turn.seq] = turn
        self.vectors.pop(turn.seq, None)
        if turn.seq in self.tiers:
            self.tiers[turn.seq] = 1
        self.summaries.pop(turn.session, None)
        self.changed_seq = turn.rev

    def delete_turn(self, turn: Turn, seq: int) -> None:
        del self.turns[turn.seq]
        self.tiers.pop(turn.seq, None)
        self.vectors.pop(turn.seq, None)
        self.summaries.pop(turn.session, None)
        self.changed_seq = seq

    def delete_session(self, session: str, seq: int) -> None:
        for turn in self.of_session(session):
            self.delete_turn(turn, seq)

    def put_fact(self, fact: Fact) -> None:
        self.facts[fact.key] = [*self.facts.get(fact.key, []), fact][-FACT_VERSIONS_MAX:]

    def delete_fact(self, key: str, seq: int) -> None:
        del self.facts[key]
        self.changed_seq = seq

    def expire_statements(self, now: int) -> None:
        """The newest value that has expired goes with all before it."""
        self.facts = {key: left for key, held in self.facts.items() if (left := _unexpired(held, now))}
        self.summaries = {name: left for name, held in self.summaries.items() if (left := _unexpired(held, now))}

    def put_summary(self, summary: Summary) -> None:
        held = self.summaries.get(summary.session, [])
        self.summaries[summary.session] = [*held, summary][-SUMMARY_VERSIONS_MAX:]

    def wants_vectors(self, turn: Turn) -> bool:
        held = self.turns.get(turn.seq)
        return (
            held is not None and held.rev == turn.rev and turn.seq not in self.vectors and turn.seq not in self.cold()
        )
