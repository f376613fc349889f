"""Physical removal of what has expired: turns, fields of their data, facts, summaries; and facts' values beyond bounds.

Readers never see any of it; this is about the bytes. What is due is found by a column of the table and in the tail of
the log, without reading a body. It is removed as an edit or an erasure removes it, by records, so that indexes,
vectors, summaries, replicas and replay follow; the next purge takes it out of the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager

import msgspec

from serve_app.core import Turn
from serve_app.errors import Overloaded, StorageTrouble
from serve_app.records import FactGone, FactPut, Record, SummaryGone, SummaryPut, TurnGone, TurnPut
from serve_app.stores import where
from serve_app.stores.block import FACT_VERSIONS_MAX, SUMMARY_VERSIONS_MAX, Block
from serve_app.stores.parts import grouped, parts
from serve_app.stores.rows import COLD, Due
from serve_app.stores.where import every
from serve_app.write.commit import Draft, Operation, Outcome, ShardWriter
from serve_app.write.shard import Shard

DUE_A_PART = 2_000
"""What one part removes; as many records as make a fold due, and the next part waits for that."""

TURNS_AN_OPERATION = 100
"""Turns whose content the writer may have to read from the table in one go."""


class Expirer:
    """A `Duty` of the housekeeper. `clock` gives the time that decides what has expired."""

    name = "expire"

    def __init__(self, clock: Callable[[], int], every_s: float, part: int = DUE_A_PART) -> None:
        self.every_s = every_s
        self._part = part
        self._clock = clock
        self._folded_after: dict[int, int] = {}  # shard -> seq that the next part waits to see folded
        self._after: dict[int, int] = {}  # shard -> seq of the last row of the table that this round has dealt with
        self._failed: dict[int, Exception] = {}  # shard -> what this round could not deal with, the first of it
        self._trimmed: dict[int, int] = {}  # shard -> version of the table that was within bounds

    def tend(self, number: int, writer: ShardWriter) -> bool:
        """A part. A round passes over all that is due once: what cannot be dealt with is met again in the next one.

        Cold turns wait for a cold store that does not answer. Raises at the end what else went wrong.
        """
        shard = writer.shard
        if shard.folded_seq < self._folded_after.get(number, 0):
            return True  # the table still lists what the last part has removed
        folded_seq, now = shard.folded_seq, self._clock()
        stored = self._due_in_table(shard, now, self._after.get(number, -1))
        due = [*stored, *_due_in_tail(shard.tail(), now)]
        try:
            self._remove(number, writer, due[: self._part], folded_seq)
        except Overloaded:
            return True  # callers' writes go first
        self._after[number] = stored[-1].seq if len(stored) == self._part else -1
        self._trim(number, shard)
        if len(due) > self._part or len(stored) == self._part:
            return True
        if failed := self._failed.pop(number, None):
            raise failed
        return False

    def _due_in_table(self, shard: Shard, now: int, after: int) -> list[Due]:
        found = shard.table.due(now, self._part, after)
        if any(one.tier == COLD for one in found) and not shard.cold.answers():
            return shard.table.due(now, self._part, after, cold=False)
        return found

    def _remove(self, number: int, writer: ShardWriter, due: Sequence[Due], folded_seq: int) -> None:
        asked: list[tuple[Expire, Future[Outcome]]] = []
        for one in _operations(due, folded_seq):
            with self._noting(number, one):
                if not writer.shard.settled(one.owner, folded_seq):
                    writer.shard.block(one.owner)  # loaded here, so that the writer does not wait for it
                asked.append((one, writer.submit(one)))
        for one, future in asked:
            with self._noting(number, one):
                removed, receipt = future.result()
                if removed:
                    self._folded_after[number] = max(receipt.seq, self._folded_after.get(number, 0))

    @contextmanager
    def _noting(self, number: int, one: Expire) -> Iterator[None]:
        """What fails is kept for the end of the round; a cold store that has just gone shows its own trouble."""
        try:
            yield
        except Overloaded:
            raise
        except Exception as error:  # noqa: BLE001 - one owner's defect must not keep what is another's
            if not (one.cold and isinstance(error, StorageTrouble)):
                self._failed.setdefault(number, error)

    def _trim(self, number: int, shard: Shard) -> None:
        """What of facts and summaries memory no longer keeps leaves the table; no reader and no replay can tell."""
        with shard.merging:
            if self._trimmed.get(number) == shard.table.version():
                return
            for (owner, key), seqs in shard.table.versions_of_facts().items():
                if len(seqs) > FACT_VERSIONS_MAX:
                    older = where.before(seqs[-FACT_VERSIONS_MAX])
                    shard.table.delete(every(where.owned(owner), where.of_kind("fact"), where.of_id(key), older))
            for (owner, session), seqs in shard.table.versions_of_summaries().items():
                if len(seqs) > SUMMARY_VERSIONS_MAX:
                    older = where.before(seqs[-SUMMARY_VERSIONS_MAX])
                    whose = every(where.owned(owner), where.of_kind("summary"), where.of_session(session))
                    shard.table.delete(every(whose, older))
            self._trimmed[number] = shard.table.version()


def _due_in_tail(tail: Iterable[Record], now: int) -> Iterator[Due]:
    """What the table does not hold yet. It may have been changed or erased since: the operation looks again."""
    for record in tail:
        match record:
            case TurnPut(owner=owner, turn=turn):
                if (first := turn.first_expiry) is not None and first <= now:
                    yield Due(owner, "turn", turn.seq, turn.session, turn.id)
            case FactPut(owner=owner, fact=fact):
                if fact.expired(now):
                    yield Due(owner, "fact", fact.seq, "", fact.key)
            case SummaryPut(owner=owner, summary=summary):
                if summary.expires_at <= now and not summary.binding:
                    yield Due(owner, "summary", summary.seq, summary.session, "")
            case _:
                pass


def _operations(due: Iterable[Due], folded_seq: int) -> Iterator[Expire]:
    """One for each owner as a rule: after the first, a user has to be loaded for the next one.

    Cold turns have one of their own: no other waits for the cold store.
    """
    for (owner, cold), those in grouped(((one.owner, one.tier == COLD), one) for one in due).items():
        turns = list(dict.fromkeys(one.seq for one in those if one.kind == "turn"))
        statements = [one for one in those if one.kind != "turn"]
        yield Expire(owner, turns[:TURNS_AN_OPERATION], statements, folded_seq, cold=cold)
        for part in parts(turns[TURNS_AN_OPERATION:], TURNS_AN_OPERATION):
            yield Expire(owner, part, (), folded_seq, cold=cold)


class Expire(Operation):
    """Remove what of an owner's has expired: turns, of others the fields, values of facts, summaries.

    `folded_seq`: up to where the log was folded when these were found; `cold`: the turns were cold then. Gives how
    many records that took.
    """

    def __init__(
        self, owner: str, turns: Sequence[int], statements: Sequence[Due], folded_seq: int, *, cold: bool = False
    ) -> None:
        self.owner, self.turns, self.statements = owner, turns, statements
        self.folded_seq, self.cold = folded_seq, cold
        self.weight = len(turns) + len(statements)

    def prepare(self, draft: Draft) -> int:
        """Users who are not in memory are not loaded for this, unless something of theirs is not folded yet."""
        length, shard = len(draft.records), draft.shard
        block = None if shard.settled(self.owner, self.folded_seq) else shard.block(self.owner)
        self._expire_turns(draft, block)
        self._expire_statements(draft, block)
        return len(draft.records) - length

    def _expire_turns(self, draft: Draft, block: Block | None) -> None:
        for turn in self._stored(draft.shard, block):
            if turn.expired(draft.now):
                draft.add(TurnGone(draft.seq(), self.owner, turn.session, turn.id, turn.seq))
            elif (left := turn.at(draft.now)) is not turn:
                draft.add(TurnPut(self.owner, msgspec.structs.replace(left, rev=draft.seq())))

    def _stored(self, shard: Shard, block: Block | None) -> list[Turn]:
        """Those that are still there."""
        if block is None:
            return (shard.cold_reads.read if self.cold else shard.reads.turns)(self.owner, self.turns)
        turns = shard.turns(self.owner, self.turns)
        return [turn for turn in turns if block.find(turn.session, turn.id) == turn.seq]

    def _expire_statements(self, draft: Draft, block: Block | None) -> None:
        """With those before them: an older one comes not back."""
        for (kind, name), through in self._last().items():
            if block is not None and not _has(block, kind, name, through):
                continue
            if kind == "fact":
                draft.add(FactGone(draft.seq(), self.owner, name, through))
            else:
                draft.add(SummaryGone(draft.seq(), self.owner, name, through))

    def _last(self) -> dict[tuple[str, str], int]:
        """The newest seq that is due of each fact and of each session's summaries."""
        last: dict[tuple[str, str], int] = {}
        for one in self.statements:
            name = (one.kind, one.id if one.kind == "fact" else one.session)
            last[name] = max(one.seq, last.get(name, 0))
        return last


def _has(block: Block, kind: str, name: str, through: int) -> bool:
    versions = block.facts.get(name, ()) if kind == "fact" else block.summaries.get(name, ())
    return any(one.seq <= through for one in versions)
