"""Makes the summary of one session and stores it: once for each state of its turns, whoever asks and how often.

What is stored states its span, so turns that come meanwhile lie after it. What is edited or erased meanwhile makes it
overtaken: it is thrown away and made again.
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple, Protocol

import msgspec

from serve_app.compress.compressor import Compressed, input_hash
from serve_app.core import SECOND_US, Summary, Turn
from serve_app.errors import InvalidRequest
from serve_app.memory.agenda import Key
from serve_app.memory.due import SummaryOptions, near_end
from serve_app.memory.reading import living
from serve_app.ports import Tokenizer
from serve_app.stores.block import Block
from serve_app.write.commit import ShardWriter
from serve_app.write.derived import PutSummary

ATTEMPTS_MAX = 3
"""Times that a summary is made when it is overtaken by edits; then it waits for the next time that it is due."""

Result = Literal["made", "renewed", "degraded", "overtaken", "empty"]


class SummaryMeter(Protocol):
    """What summaries tell of themselves; see `observe/summaries.py`."""

    def summarised(self, backend: str, result: Result, seconds: float, read_tokens: int, tokens: int) -> None:
        """One was made, from about so many tokens to so many."""
        ...

    def drifted(self, distance: float) -> None:
        """One was made a second time, with nothing remembered: how far the two lie from each other, 0 to 1."""
        ...

    def retained(self, share: float) -> None:
        """So much of what must be kept of the held-out dialogues stands in their summaries."""
        ...


class Compresses(Protocol):
    """`compress.compressor.Compressor`, in this process or apart."""

    @property
    def version(self) -> str: ...

    @property
    def backend(self) -> str: ...

    def forget(self) -> None: ...

    def compress(
        self, turns: Sequence[Turn], target_tokens: int, tokenizer: Tokenizer, deadline_s: float | None = None
    ) -> Compressed: ...


class Chooses(Protocol):
    """Which compressor makes whose summaries; see `memory/compressors.py`."""

    def of(self, owner: str) -> Compresses: ...

    def forget(self) -> None: ...


class Unmetered:
    def summarised(self, backend: str, result: Result, seconds: float, read_tokens: int, tokens: int) -> None: ...

    def drifted(self, distance: float) -> None: ...

    def retained(self, share: float) -> None: ...


UNMETERED = Unmetered()

BYTES_A_TOKEN = 4
"""About: what a summary was made from is not counted for its figure's sake."""


class SessionState(NamedTuple):
    """A session as it is at `read_at`: what came since its last summary, and all that a new one is made from."""

    turns: int
    new: list[Turn]
    """Of those turns the ones in memory, oldest first."""
    latest: Summary | None
    seqs: list[int]
    read_at: int


class SummaryMaker:
    """Safe for threads."""

    def __init__(
        self,
        compressors: Chooses,
        tokenizer: Tokenizer,
        clock: Callable[[], int],
        meter: SummaryMeter = UNMETERED,
        made: Callable[[Summary, Sequence[Turn]], None] = lambda summary, turns: None,
    ) -> None:
        """`made` is told of each summary and what it was made from."""
        self._compressors = compressors
        self._tokenizer = tokenizer
        self._clock = clock
        self._meter = meter
        self._tell = made
        self._lock = threading.Lock()
        self._making: dict[Key, threading.Event] = {}
        self.made = 0
        self.discarded = 0

    def state(self, block: Block, session: str, options: SummaryOptions, version: str) -> SessionState | None:
        """None where there is no such session. `version`: of the compressor that makes the owner's summaries now."""
        with block.lock:
            index = block.sessions.get(session)
            if index is None:
                return None
            seqs = block.moved.without_cold(index.seqs)
            newest, latest = block.summary_at(session, None), block.summary_at(session, None, version)
            reached = index.summarised_seq
            if latest is not None and latest is not newest:  # what another compressor has made says nothing of this one
                reached = min(reached, latest.last_seq)
            since = bisect.bisect_right(seqs, reached)
            first_new = seqs[since : since + options.every_turns]
            new = [block.turns[seq] for seq in first_new if seq in block.turns]
            return SessionState(len(seqs) - since, new, latest, seqs[-options.turns_max :], block.applied_seq)

    def make(self, writer: ShardWriter, key: Key, options: SummaryOptions) -> Summary | None:
        """The newest summary of the session as it is now: the one there is where nothing has changed since.

        None where there is nothing to sum up, or where it was overtaken again and again. Whoever asks for a session
        that another thread is busy with waits for that. Raises StorageTrouble, Overloaded.
        """
        with self._alone(key):
            for _ in range(ATTEMPTS_MAX):
                try:
                    return self._made(writer, key, options)
                except InvalidRequest:  # overtaken
                    self.discarded += 1
        return None

    @contextmanager
    def _alone(self, key: Key) -> Iterator[None]:
        while True:
            with self._lock:
                busy = self._making.get(key)
                if busy is None:
                    mine = self._making[key] = threading.Event()
                    break
            busy.wait()
        try:
            yield
        finally:
            with self._lock:
                del self._making[key]
            mine.set()

    def _made(self, writer: ShardWriter, key: Key, options: SummaryOptions) -> Summary | None:
        """Raises InvalidRequest where it was overtaken.

        The turns are read after the block's lock is given back, since they may lie in the table.
        """
        shard, now = writer.shard, self._clock()
        block = shard.block(key.owner)
        compressor = self._compressors.of(key.owner)
        state = self.state(block, key.session, options, compressor.version)
        if state is None:
            return None
        turns = living(shard.turns(key.owner, state.seqs), now)
        if not turns:
            if block.changed_seq > state.read_at:  # all of it was erased under our hands
                self.discarded += 1
            return None
        latest = state.latest
        if latest is not None and _stands(latest, turns, compressor.version, options):
            return self._renewed(writer, key, latest, state.read_at, options, compressor.backend)
        summary = self._summed(compressor, key.session, turns, options)
        if shard.block(key.owner).changed_seq > state.read_at:  # what was read may have been erased before it was asked
            self._compressors.forget()
        if not summary.text:  # nothing in these turns may be quoted: they are not looked at again for that
            with block.lock:
                if key.session in block.sessions:
                    block.sessions[key.session].summarised_seq = turns[-1].seq
            return None
        stored = self._stored(writer, key, summary, state.read_at)
        self.made += 1
        self._tell(stored, turns)
        return stored

    def _renewed(
        self, writer: ShardWriter, key: Key, latest: Summary, read_at: int, options: SummaryOptions, backend: str
    ) -> Summary:
        """The same text holds for longer, and nothing is computed for it."""
        now = self._clock()
        if not near_end(latest, now):
            return latest
        self._meter.summarised(backend, "renewed", 0.0, 0, latest.tokens)
        renewed = msgspec.structs.replace(latest, created_at=now, expires_at=now + options.ttl_s * SECOND_US)
        return self._stored(writer, key, renewed, read_at)

    def _stored(self, writer: ShardWriter, key: Key, summary: Summary, read_at: int) -> Summary:
        stored, _ = writer.submit(PutSummary(key.owner, summary, read_at)).result()
        assert isinstance(stored, Summary)
        return stored

    def _summed(self, compressor: Compresses, session: str, turns: Sequence[Turn], options: SummaryOptions) -> Summary:
        started = time.perf_counter()
        made = compressor.compress(turns, options.target_tokens, self._tokenizer, options.deadline_s)
        seconds, now = time.perf_counter() - started, self._clock()
        told(self._meter, compressor.backend, turns, made, seconds)
        expires_at = now + options.ttl_s * SECOND_US
        return summary_of(made, session, compressor.version, now, expires_at, options.target_tokens)


def _stands(latest: Summary, turns: Sequence[Turn], version: str, options: SummaryOptions) -> bool:
    """Whether a new one would be the same. Of one that ends with another turn that is known without a digest."""
    if latest.last_seq != turns[-1].seq:
        return False
    return latest.same_input(input_hash(turns), version, options.target_tokens)


def told(meter: SummaryMeter, backend: str, turns: Sequence[Turn], made: Compressed, seconds: float) -> None:
    """Tell the meter what was made of these turns, and in what time."""
    result: Result = "degraded" if made.reasons else "made" if made.text else "empty"
    meter.summarised(backend, result, seconds, sum(len(turn.text) for turn in turns) // BYTES_A_TOKEN, made.tokens)


def summary_of(
    made: Compressed, session: str, version: str, created_at: int, expires_at: int, target_tokens: int = 0
) -> Summary:
    """As it is stored or shown; `seq` is for whoever stores it."""
    return Summary(
        session=session,
        version=version,
        seq=0,
        created_at=created_at,
        expires_at=expires_at,
        target_tokens=target_tokens,
        **made._asdict(),
    )
