"""What a read takes from an owner's block, at one moment: pages, facts, and the inputs of a context.

Plain functions, called from a bounded pool. Each takes the block's lock once, for a copy of what it
needs, so that a read sees one state. What has expired by the later of `now` and the clock is left out.
"""

from __future__ import annotations

import bisect
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import islice
from typing import NamedTuple

import msgspec

from serve_app.context.exchanges import announced
from serve_app.context.inputs import Standing
from serve_app.core import Fact, Owner, Summary, Turn
from serve_app.errors import StorageTrouble
from serve_app.memory.due import near_end
from serve_app.memory.requests import AsOf
from serve_app.memory.standing import standing
from serve_app.records import TurnPut, TurnsMoved
from serve_app.retrieve.warm import Unfolded
from serve_app.stores.block import Block, SessionIndex
from serve_app.write.shard import Shard

WINDOW_TURNS_MAX = 500
"""Newest turns of a session that a context chooses its recent window from."""

OLDER_LISTED_MAX = 1_000
"""Turns older than those that a context lists as left out."""

PARTNER_REACH = 8
"""Turns of a session, on either side, among which the rest of a tool exchange is looked for outside memory."""


PAGE_TURNS_FIRST, PAGE_TURNS_MAX = 32, 128
PAGE_CHARACTERS = 1 << 20
"""How much is read at once of all of an owner's turns: about so much text, and never more than so many turns."""

FIRST_SURROGATE, AFTER_SURROGATES = 0xD800, 0xE000
"""No text holds what lies between them."""


class SessionPage(msgspec.Struct, frozen=True):
    turns: list[Turn]
    next_after_seq: int | None


class SessionLine(msgspec.Struct, frozen=True):
    """One session in the list of a user's sessions."""

    session: str
    turns: int
    last_at: int


class Older(NamedTuple):
    """Turns of the session outside its window, oldest first. A cold one is in no summary made since it went cold."""

    ids: Sequence[str] = ()
    seqs: Sequence[int] = ()
    cold: frozenset[int] = frozenset()
    """Seqs."""

    def beyond(self, first_seq: int, last_seq: int) -> Iterator[tuple[str, int]]:
        """Ids and seqs of those that lie outside this span or are cold."""
        inside = slice(bisect.bisect_left(self.seqs, first_seq), bisect.bisect_right(self.seqs, last_seq))
        yield from zip(self.ids[: inside.start], self.seqs[: inside.start], strict=True)
        if self.cold:
            both = zip(self.ids[inside], self.seqs[inside], strict=True)
            yield from ((turn_id, seq) for turn_id, seq in both if seq in self.cold)
        yield from zip(self.ids[inside.stop :], self.seqs[inside.stop :], strict=True)


class Memories(msgspec.Struct, frozen=True):
    """The state of an owner that a context is built from, as of `seq`."""

    seq: int
    turns: tuple[Turn, ...]
    older: Older
    facts: tuple[Fact, ...]
    standing: tuple[Standing, ...]
    summary: Summary | None
    changed_since: bool
    """Something was edited or erased after `seq`: a context as of then may differ from what it was."""
    forgotten_since: bool
    """So it may where facts or summaries of then are not kept any more."""
    summary_due: bool
    """The session has no summary, or one near its end, in its newest state."""
    reasons: tuple[str, ...] = ()
    """Why some turns may lack."""


def page(shard: Shard, owner: str, session: str, after_seq: int, limit: int, now: int) -> SessionPage:
    """Turns after `after_seq`, oldest first. Its cost does not depend on the session's length."""
    block = shard.block(owner)
    with block.lock:
        index = block.sessions.get(session)
        start = bisect.bisect_right(index.seqs, after_seq) if index else 0
        seqs = index.seqs[start : start + limit] if index else []
        more = index is not None and start + limit < len(index.seqs)
    return SessionPage(living(shard.turns(owner, seqs), now), seqs[-1] if more else None)


def living(turns: Iterable[Turn], now: int) -> list[Turn]:
    """Those that have not expired, without their fields that have. Of most turns nothing ever expires."""
    return [
        turn.at(now) if turn.fields_expire else turn
        for turn in turns
        if turn.expires_at is None or not turn.expired(now)
    ]


def sessions(block: Block, now: int) -> list[SessionLine]:
    """Each session with its turns, but for resident ones that have expired; a session of such alone is none."""
    with block.lock:
        expired = {seq for seq, expires_at in block.expiring.items() if expires_at <= now}
        gone = Counter(block.turns[seq].session for seq in expired)
        return [
            SessionLine(name, len(index.seqs) - gone[name], _last_at(index, expired))
            for name, index in block.sessions.items()
            if len(index.seqs) > gone[name]
        ]


def _last_at(index: SessionIndex, expired: Set[int]) -> int:
    """When the newest turn that is left was written."""
    newest = zip(reversed(index.seqs), reversed(index.times), strict=True)
    return next((at for seq, at in newest if seq not in expired), index.last_at)


def seqs(shard: Shard, owner: str) -> list[int]:
    """Of all the owner's turns, oldest first."""
    block = shard.block(owner)
    with block.lock:
        return sorted(seq for index in block.sessions.values() for seq in index.seqs)


def turns(shard: Shard, owner: str, seqs: Sequence[int], now: int) -> list[Turn]:
    """Those with these seqs that are still there."""
    return living(shard.turns(owner, seqs), now)


def next_page(size: int, turns: Sequence[Turn]) -> int:
    """How many turns to read next, after so many that were these: about as much text each time."""
    characters = sum(turn.characters for turn in turns)
    return max(1, min(PAGE_TURNS_MAX, size * PAGE_CHARACTERS // max(1, characters)))


def summaries(block: Block, now: int, compressor: str = "") -> list[Summary]:
    """The newest of each session, by this version of the compressor if it can be had, where it holds."""
    with block.lock:
        newest = [block.summary_at(session, None, compressor) for session in sorted(block.summaries)]
    return [one for one in newest if one is not None and one.expires_at > now]


def range_of(tenant: str, prefix: str, after: str | None) -> tuple[str, str]:
    """The owner keys, from the first to before the second, of the tenant's users who begin so and come after one."""
    start = Owner(tenant, prefix).key
    if after is not None:
        start = max(start, Owner(tenant, after).key + "\0")  # no id holds NUL: nothing lies between the two
    return start, _past(Owner(tenant, prefix).key)


def _past(start: str) -> str:
    """The smallest text that is greater than all that begin with `start`."""
    kept = start.rstrip(chr(sys.maxunicode))
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(AFTER_SURROGATES if following == FIRST_SURROGATE else following)


def one_turn(shard: Shard, owner: str, session: str, turn_id: str, now: int) -> Turn | None:
    seq = shard.block(owner).find(session, turn_id)
    turn = None if seq is None else next(iter(shard.turns(owner, [seq])), None)
    return None if turn is None or turn.expired(now) else turn.at(now)


def unfolded(shard: Shard, owner: str) -> Unfolded:
    """What of the owner's turns the table does not know yet."""
    records = shard.tail_records_of(owner)
    turns = {one.turn.seq: one.turn for one in records if isinstance(one, TurnPut)}
    return Unfolded(turns, [seq for one in records if isinstance(one, TurnsMoved) for seq in one.turn_seqs])


def facts(block: Block, as_of: int | None, now: int) -> tuple[Fact, ...]:
    """The facts that hold, by key."""
    with block.lock:
        current = [block.fact_at(key, as_of) for key in sorted(block.facts)]
    return tuple(fact for fact in current if fact is not None and not fact.expired(now))


def seq_at(shard: Shard, block: Block, instant: int) -> int:
    """The seq of this owner's state at a time: all before the first turn, fact or summary that came after it."""
    with block.lock:
        newest = block.applied_seq
        seqs = sorted(seq for index in block.sessions.values() for seq in index.seqs)
        later = [fact.seq for versions in block.facts.values() for fact in versions if fact.written_at > instant]
        later += [one.seq for made in block.summaries.values() for one in made if one.created_at > instant]
    arrived = bisect.bisect_right(seqs, instant, key=lambda seq: _arrived_at(shard, block, seq))
    return min([newest, *(seq - 1 for seq in later + seqs[arrived : arrived + 1])])


def written_at(shard: Shard, owner: str, seq: int) -> int | None:
    """When the newest of the owner's turns, facts and summaries up to `seq` came. Raises StorageTrouble."""
    block = shard.block(owner)
    with block.lock:
        places = [(index, bisect.bisect_right(index.seqs, seq)) for index in block.sessions.values()]
        newest = max((index.seqs[place - 1] for index, place in places if place), default=None)
        times = [fact.written_at for versions in block.facts.values() for fact in versions if fact.seq <= seq]
        times += [one.created_at for made in block.summaries.values() for one in made if one.seq <= seq]
    if newest is not None:
        times.append(_arrived_at(shard, block, newest))
    return max(times, default=None)


def seq_asked(shard: Shard, block: Block, as_of: AsOf) -> int | None:
    """The seq of the state that is asked for; None: the newest. Raises StorageTrouble."""
    return as_of.seq if as_of.time is None else seq_at(shard, block, as_of.time)


def _arrived_at(shard: Shard, block: Block, seq: int) -> int:
    if block.moved.is_cold(seq):
        return shard.reads.arrived_at(block.key, seq)
    resident = block.turns.get(seq)
    found = [resident] if resident else shard.turns(block.key, [seq])
    return found[0].arrived_at if found else 0


def memories(
    shard: Shard,
    block: Block,
    session: str | None,
    as_of: int | None,
    now: int,
    whole_user: bool = True,
    notes: Sequence[str] = (),
    *,
    compressor: str = "",
) -> Memories:
    """What a context of this session is built from; `whole_user`: with what binds in other sessions, too.

    `compressor`: the version whose summaries come first.
    """
    with block.lock:
        seq = block.applied_seq if as_of is None else min(as_of, block.applied_seq)
        index = block.sessions.get(session) if session is not None else None
        window = _newest(block, index, seq, WINDOW_TURNS_MAX)
        resident = [block.turns[one] for one in window if one in block.turns]
        older = _outside_window(index, block, window, seq) if index else Older()
        summary = block.summary_at(session, seq, compressor) if session is not None else None
        changed, forgotten = block.changed_seq > seq, block.forgot(session, seq)
        fits = summary is not None and compressor in ("", summary.version) and not near_end(summary, now)
        due = seq == block.applied_seq and index is not None and not fits
        told = facts(block, seq, now)
        binding = standing(block, session, whole_user, seq, told, notes, compressor)
    newest, reasons = (resident, ()) if len(resident) == len(window) else _with_older(shard, block, window, resident)
    turns = tuple(living(newest, now))
    expired = summary is not None and summary.expires_at <= now
    return Memories(seq, turns, older, told, binding, None if expired else summary, changed, forgotten, due, reasons)


class LastSaid(msgspec.Struct, frozen=True):
    """The last turns of a session as of `seq`, oldest first, and why some may lack."""

    seq: int
    turns: tuple[Turn, ...]
    reasons: tuple[str, ...] = ()


def last_said(
    shard: Shard, block: Block, session: str | None, as_of: int | None, until: int, turns_max: int, now: int
) -> LastSaid:
    """Of the newest so many turns that were made by `until` (by their own time), those that have not expired."""
    with block.lock:
        seq = block.applied_seq if as_of is None else min(as_of, block.applied_seq)
        index = block.sessions.get(session) if session is not None else None
        window = _made_by(index, _newest(block, index, seq, WINDOW_TURNS_MAX), until, turns_max) if index else []
        resident = [block.turns[one] for one in window if one in block.turns]
    newest, reasons = (resident, ()) if len(resident) == len(window) else _with_older(shard, block, window, resident)
    return LastSaid(seq, tuple(living(newest, now)), reasons)


def _made_by(index: SessionIndex, seqs: Sequence[int], until: int, turns_max: int) -> list[int]:
    made = (one for one in reversed(seqs) if index.times[bisect.bisect_left(index.seqs, one)] <= until)
    return list(islice(made, turns_max))[::-1]


def _newest(block: Block, index: SessionIndex | None, seq: int, turns_max: int) -> list[int]:
    """Seqs of a session's newest turns up to `seq` that are not cold."""
    seqs = index.seqs[: bisect.bisect_right(index.seqs, seq)] if index else []
    return block.moved.without_cold(seqs)[-turns_max:]


def expired_between(block: Block, session: str | None, seq: int, start: int, end: int, compressor: str = "") -> bool:
    """Whether a turn in memory, a field of one, a fact or the session's summary, all as of `seq`, expired after `start`
    and up to `end`.
    """
    with block.lock:
        turns = [one for one in block.turns.values() if not one.lasting and one.seq <= seq]
        ends = [field.at for turn in turns for field in turn.fields_expire]
        ends += [turn.expires_at for turn in turns if turn.expires_at is not None]
        told = (block.fact_at(key, seq) for key in block.facts)
        ends += [fact.expires_at for fact in told if fact is not None and fact.expires_at is not None]
        summary = None if session is None else block.summary_at(session, seq, compressor)
        ends += [] if summary is None else [summary.expires_at]
    return any(start < at <= end for at in ends)


def _with_older(
    shard: Shard, block: Block, window: Sequence[int], resident: Sequence[Turn]
) -> tuple[Sequence[Turn], tuple[str, ...]]:
    """The turns of a window that reaches beyond memory; those in memory alone where the table does not answer."""
    try:
        return shard.turns(block.key, window), ()
    except StorageTrouble as error:
        return resident, (f"recent: {error.reason}",)


def _outside_window(index: SessionIndex, block: Block, window: Sequence[int], seq: int) -> Older:
    """The newest turns up to `seq` that come before the window or are cold."""
    first = window[0] if window else seq + 1
    if not block.moved.cold:
        end = bisect.bisect_left(index.seqs, first)
        start = max(0, end - OLDER_LISTED_MAX)
        return Older(list(islice(index.ids, start, end)), index.seqs[start:end])
    is_cold = block.moved.is_cold
    outside = (pair for pair in reversed(index.ids.items()) if pair[1] < first or (pair[1] <= seq and is_cold(pair[1])))
    listed = list(islice(outside, OLDER_LISTED_MAX))[::-1]
    seqs = [one for _, one in listed]
    return Older([turn_id for turn_id, _ in listed], seqs, frozenset(filter(is_cold, seqs)))


class Partners(msgspec.Struct, frozen=True):
    """Turns that complete tool exchanges, and why some may lack."""

    turns: tuple[Turn, ...] = ()
    reasons: tuple[str, ...] = ()


def partners(shard: Shard, block: Block, turns: Sequence[Turn], as_of: int, now: int) -> Partners:
    """The other halves of the tool calls and results among `turns`, from the same sessions.

    In memory they are found at any distance, elsewhere within `PARTNER_REACH`.
    """
    wanted = {call for turn in turns for call in _calls(turn)}
    if not wanted:
        return Partners()
    names = {session for session, _ in wanted}
    with block.lock:
        near = [turn for turn in block.turns.values() if turn.session in names and turn.seq <= as_of]
        seqs = _beside(block, [turn for turn in turns if _calls(turn)], as_of)
    reasons: tuple[str, ...] = ()
    try:
        near = [*(shard.turns(block.key, seqs) if seqs else ()), *near]
    except StorageTrouble as error:  # what memory holds is given all the same
        reasons = (f"tool exchanges: {error.reason}",)
    return Partners(tuple(living([turn for turn in near if _calls(turn) & wanted], now)), reasons)


def _beside(block: Block, turns: Sequence[Turn], as_of: int) -> list[int]:
    """Seqs of the neighbours of `turns` that are neither in memory nor among them."""
    found: set[int] = set()
    for turn in turns:
        index = block.sessions.get(turn.session)
        if index is not None:
            place = bisect.bisect_left(index.seqs, turn.seq)
            found.update(index.seqs[max(0, place - PARTNER_REACH) : place + PARTNER_REACH + 1])
    given = {turn.seq for turn in turns}
    return sorted(seq for seq in found if seq <= as_of and seq not in given and not _at_hand_or_cold(block, seq))


def _at_hand_or_cold(block: Block, seq: int) -> bool:
    return seq in block.turns or block.moved.is_cold(seq)


def _calls(turn: Turn) -> set[tuple[str, str]]:
    own = {turn.tool_call_id} if turn.tool_call_id else set()
    return {(turn.session, call) for call in own | {call.id for call in announced(turn)}}
