"""Keeps the summaries of sessions up to date, in the background and never on a request's path.

A session is due when enough turns came since its last summary. The queue holds each session once;
a summary that was overtaken by an edit or an erasure is thrown away and made again later.
"""

from __future__ import annotations

import bisect
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from serve_app.compress.compressor import Compressor
from serve_app.core import SECOND_US, Summary, Turn
from serve_app.errors import InvalidRequest, Overloaded, StorageTrouble
from serve_app.memory.reading import living
from serve_app.ports import Tokenizer
from serve_app.records import Record, TurnGone, TurnPut
from serve_app.write.commit import ShardWriter
from serve_app.write.derived import PutSummary
from serve_app.write.shard import Shard

_log = logging.getLogger(__name__)

RESTS_PER_WORK = 9
"""Time that the thread rests for the time it worked: under a steady stream of turns it takes a tenth of a core."""

QUEUE_MAX = 10_000
"""Sessions that may wait; beyond it a session waits for its next turn to be noticed again."""


Positive = Annotated[int, Meta(ge=1)]


class SummaryOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When summaries are made anew, how long they may be and how long they hold."""

    every_turns: Positive = 5
    target_tokens: Positive = 600
    turns_max: Positive = 2_000
    ttl_s: Positive = 4 * 3600
    settle_s: Annotated[float, Meta(gt=0, le=60)] = 0.5


class Refresher:
    def __init__(
        self, compressor: Compressor, tokenizer: Tokenizer, options: SummaryOptions, clock: Callable[[], int]
    ) -> None:
        self._compressor = compressor
        self._tokenizer = tokenizer
        self._options = options
        self._clock = clock
        self._writers: Sequence[ShardWriter] = ()
        self._due: dict[tuple[int, str, str], None] = {}
        self._wake = threading.Condition()
        self._closed = False
        self.made = 0
        self.discarded = 0
        self._thread = threading.Thread(target=self._run, name="refresher", daemon=True)

    def start(self, writers: Sequence[ShardWriter]) -> None:
        self._writers = writers
        self._thread.start()

    def committed(self, shard: Shard, records: Sequence[Record]) -> None:
        """The writer calls this with each batch that became durable."""
        touched = {(one.owner, one.turn.session) for one in records if isinstance(one, TurnPut)}
        touched |= {(one.owner, one.session) for one in records if isinstance(one, TurnGone)}
        for owner, session in touched:
            self.ask(shard, owner, session)

    def ask(self, shard: Shard, owner: str, session: str) -> None:
        """See soon whether this session's summary is due."""
        with self._wake:
            if len(self._due) < QUEUE_MAX:
                self._due[shard.number, owner, session] = None

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    @property
    def waiting(self) -> int:
        return len(self._due)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def refresh(self, shard: Shard, owner: str, session: str, least_turns: int = 1) -> Summary | None:
        """Make and store a summary now; None where there is too little new, or it was overtaken.

        Raises StorageTrouble, Overloaded.
        """
        source = self._source(shard, owner, session, least_turns)
        if source is None:
            return None
        turns, read_at = source
        summary = self._summary(session, turns)
        if not summary.text:
            return None  # nothing in these turns may be quoted
        operation = PutSummary(owner, summary, read_at)
        try:
            stored, _ = self._writers[shard.number].submit(operation).result()
        except InvalidRequest:  # overtaken
            self.discarded += 1
            return None
        self.made += 1
        return stored if isinstance(stored, Summary) else None

    def _run(self) -> None:
        pause = self._options.settle_s
        while self._waited(pause):
            with self._wake:
                due, self._due = list(self._due), {}
            started = time.monotonic()
            for number, owner, session in due:
                if not self._closed:
                    self._refresh_if_due(self._writers[number].shard, owner, session)
            due.clear()  # while this rests, it remembers nobody
            owner = session = ""
            pause = max(self._options.settle_s, (time.monotonic() - started) * RESTS_PER_WORK)

    def _waited(self, seconds: float) -> bool:
        """False once the refresher is to end."""
        with self._wake:
            self._wake.wait_for(lambda: self._closed, seconds)
        return not self._closed

    def _refresh_if_due(self, shard: Shard, owner: str, session: str) -> None:
        try:
            self.refresh(shard, owner, session, self._options.every_turns)
        except (StorageTrouble, Overloaded) as error:
            self.discarded += 1
            _log.warning("a summary is late, its session's next turn will ask again: %s", error)

    def _source(self, shard: Shard, owner: str, session: str, least_turns: int) -> tuple[list[Turn], int] | None:
        """The session's newest living turns and the seq of this state, if enough are new or the summary has expired.

        The turns are read after the lock is given back, since they may lie in the table; what is edited
        or erased meanwhile makes the summary overtaken.
        """
        now, block = self._clock(), shard.block(owner)
        with block.lock:
            index = block.sessions.get(session)
            if index is None:
                return None
            latest = block.summary_at(session, None)
            expired = latest is not None and latest.expires_at <= now
            if len(index.seqs) - bisect.bisect_right(index.seqs, index.summarised_seq) < least_turns and not expired:
                return None
            seqs = block.moved.without_cold(index.seqs)[-self._options.turns_max :]
            read_at = block.applied_seq
        turns = living(shard.turns(owner, seqs), now)
        if not turns and block.changed_seq > read_at:  # all of it was erased under our hands
            self.discarded += 1
        return (turns, read_at) if turns else None

    def _summary(self, session: str, turns: Sequence[Turn]) -> Summary:
        made = self._compressor.compress(turns, self._options.target_tokens, self._tokenizer)
        now = self._clock()
        return Summary(
            session=session,
            text=made.text,
            first_seq=made.first_seq,
            last_seq=made.last_seq,
            tokens=made.tokens,
            version=self._compressor.version,
            input_hash=made.input_hash,
            seq=0,
            created_at=now,
            expires_at=now + self._options.ttl_s * SECOND_US,
            ranks=made.ranks,
            line_seqs=made.line_seqs,
            constraints=made.constraints,
            topics=made.topics,
        )
