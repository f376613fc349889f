"""Keeps the summaries of sessions up to date, in the background and never on a request's path.

A session is looked at soon after something was written to it, when its oldest new turn has waited for long, and when
somebody reads it without a summary or with one that nears its end; see `due` for what then decides, and `making` for
what is made. Which sessions are due is nowhere stored: after a start they are found again in the tail of the log, by
the duty of `sweep` in the tables, and when they are read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from serve_app.core import SECOND_US, Owner, Summary, Turn
from serve_app.errors import Overloaded, StorageTrouble, SummariserFailed
from serve_app.memory.agenda import Agenda, Asked, Key
from serve_app.memory.due import DEGRADED_RETRY_S, SummaryOptions, age_due_at, why_due
from serve_app.memory.making import UNMETERED, Chooses, SummaryMaker, SummaryMeter
from serve_app.policies import Policies, SummaryPolicy
from serve_app.ports import Tokenizer
from serve_app.records import Record, SummaryPut, TurnGone, TurnPut, ends_a_text
from serve_app.write.commit import ShardWriter
from serve_app.write.shard import Shard

_log = logging.getLogger(__name__)

RESTS_PER_WORK = 9
"""Time that the threads rest for the time they computed: under a steady stream of turns they take a tenth of a core."""

READ_SETTLE_S = 2.0
"""A session that is read again and again is looked at once in so long."""

LATE_S = 30.0
"""After so long a session whose summary could not be stored is looked at again."""

CLOSE_S = 1.0
"""How long `close` waits for a thread that a model keeps; it ends with the process, and what it makes is dropped."""


class Refresher:
    """`compressors` says which one makes whose summaries. `policies` of tenants win over `options`; without them the
    options hold for all.

    `made` is told of each summary and what it was made from; `computed_s` tells what the calling thread has computed.
    """

    def __init__(
        self,
        compressors: Chooses,
        tokenizer: Tokenizer,
        options: SummaryOptions,
        clock: Callable[[], int],
        policies: Policies | None = None,
        meter: SummaryMeter = UNMETERED,
        made: Callable[[Summary, Sequence[Turn]], None] = lambda summary, turns: None,
        computed_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._compressors = compressors
        self._computed_s = computed_s
        self._options = options
        self._tokenizer = tokenizer
        self._clock = clock
        self._policies = policies
        self._maker = SummaryMaker(compressors, tokenizer, clock, meter, made)
        self._writers: Sequence[ShardWriter] = ()
        self._agenda = Agenda()
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name=f"refresher-{number}", daemon=True)
            for number in range(options.workers)
        ]
        self.forgotten: set[int] = set()
        """Shards of which a session was refused for want of room: they are swept again."""

    def start(self, writers: Sequence[ShardWriter]) -> None:
        self._writers = writers
        for writer in writers:
            for owner, session in unsummarised(writer.shard.tail()):
                self.ask(writer.shard, owner, session)
        for thread in self._threads:
            thread.start()

    def committed(self, shard: Shard, records: Sequence[Record]) -> None:
        """The writer calls this with each batch that became durable."""
        touched = {(one.owner, one.turn.session) for one in records if isinstance(one, TurnPut)}
        touched |= {(one.owner, one.session) for one in records if isinstance(one, TurnGone)}
        if any(map(ends_a_text, records)):
            self._compressors.forget()
        for owner, session in touched:
            self.ask(shard, owner, session)

    def ask(self, shard: Shard, owner: str, session: str) -> None:
        """See soon whether this session's summary is due."""
        self._ask(Key(shard.number, owner, session), self._options.settle_s)

    def read(self, shard: Shard, owner: str, session: str) -> None:
        """Somebody reads this session, and its summary is missing or near its end."""
        self._ask(Key(shard.number, owner, session), max(READ_SETTLE_S, self._options.settle_s), read=True)

    def _ask(self, key: Key, in_s: float, *, read: bool = False) -> None:
        """In a replica nobody looks, and nothing is kept."""
        if self._writers and not self._agenda.ask(key, in_s, read=read):
            self.forgotten.add(key.shard)

    def end(self) -> None:
        """Begin nothing any more, and wait for nobody."""
        self._closed.set()
        self._agenda.close()

    def close(self) -> None:
        """Soon, even while a model works: nothing that is acknowledged depends on it."""
        self.end()
        deadline = time.monotonic() + CLOSE_S
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    @property
    def waiting(self) -> int:
        """Sessions whose time to be looked at has come."""
        return self._agenda.ripe

    @property
    def alive(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    @property
    def made(self) -> int:
        return self._maker.made

    @property
    def discarded(self) -> int:
        """Summaries that were overtaken, or could not be stored."""
        return self._maker.discarded

    def refresh(self, shard: Shard, owner: str, session: str) -> Summary | None:
        """The summary of the session as it is now, made and stored if there is none yet; None where there is nothing
        to sum up, or where it was overtaken again and again.

        Raises StorageTrouble; Overloaded also where what sums up gives no answer in time.
        """
        key = Key(shard.number, owner, session)
        try:
            return self._maker.make(self._writers[shard.number], key, self._under(owner))
        except SummariserFailed as error:
            raise Overloaded(f"no summary could be made: {error}") from error

    def _under(self, owner: str) -> SummaryOptions:
        if self._policies is None:
            return self._options
        return self._options.under(self._policies.of(Owner.from_key(owner).tenant, SummaryPolicy))

    def _run(self) -> None:
        while (asked := self._agenda.next()) is not None:
            before = self._computed_s()
            self._attend(asked)
            del asked  # while this rests, it remembers nobody
            self._closed.wait((self._computed_s() - before) * RESTS_PER_WORK * len(self._threads))

    def _attend(self, asked: Asked) -> None:
        try:
            self._look(asked)
        except (StorageTrouble, Overloaded, SummariserFailed) as error:
            self._maker.discarded += 1
            self._ask(asked.key, LATE_S, read=asked.read)
            if not self._closed.is_set():
                _log.warning("a summary is late and will be tried again: %s", error)

    def _look(self, asked: Asked) -> None:
        """Make the summary if it is due; else come again when the oldest new turn will have waited for long."""
        key, now = asked.key, self._clock()
        writer, options = self._writers[key.shard], self._under(key.owner)
        version = self._compressors.of(key.owner).version
        state = self._maker.state(writer.shard.block(key.owner), key.session, options, version)
        if state is None:
            return
        if why_due(state.turns, state.new, state.latest, now, asked.read, options, self._tokenizer, version):
            summary = self._maker.make(writer, key, options)
            if summary is not None and summary.reasons:
                self._ask(key, DEGRADED_RETRY_S)
        elif state.new:
            self._ask(key, (age_due_at(state.new, options) - now) / SECOND_US)


def unsummarised(records: Iterable[Record]) -> list[tuple[str, str]]:
    """Owners and sessions of which these records, in order, hold turns beyond their last summary."""
    newest: dict[tuple[str, str], int] = {}
    for record in records:
        match record:
            case TurnPut(owner=owner, turn=turn):
                newest[owner, turn.session] = turn.rev
            case TurnGone(seq=seq, owner=owner, session=session):
                newest[owner, session] = seq
            case SummaryPut(owner=owner, summary=summary):
                if newest.get((owner, summary.session), 0) <= summary.last_seq:
                    newest.pop((owner, summary.session), None)
            case _:
                pass
    return list(newest)
