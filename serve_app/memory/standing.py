"""What binds a user for good: lasting entries of the ledgers of all sessions, or of one.

An entry stands as long as its turn does: an edit or an erasure takes the summaries of the session along, and a turn
that went cold is shown no more. It does not end with the time to live of the summary's text. Pure, as of one seq.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence

from serve_app.compress.ledger import ledger
from serve_app.context.inputs import Standing
from serve_app.core import Constraint, Fact, Summary, Turn
from serve_app.stores.block import Block, SessionIndex

STANDING_MAX = 16
"""Entries that a context shows, the newest."""

CONSIDERED_MAX = 32
"""Entries, the newest, among which a later one may have ended an earlier one."""

SESSIONS_MAX = 200
"""Sessions whose ledgers are looked at, the ones summed up last."""


def standing(
    block: Block,
    session: str | None,
    whole_user: bool,
    seq: int,
    facts: Sequence[Fact],
    notes: Sequence[str],
    compressor: str = "",
) -> tuple[Standing, ...]:
    """Newest first, each text once, none that a fact or a note says anyway or that a later session has ended.

    `compressor`: the version whose summaries say what binds, where there are some by it.

    The block's lock is held.
    """
    if not block.binding:
        return ()
    names = block.binding if whole_user else block.binding & {session}
    made = (block.summary_at(name, seq, compressor) for name in names)
    newest = [summary for summary in made if summary is not None and summary.binding]
    newest.sort(key=lambda one: one.seq, reverse=True)
    entries = [one for summary in newest[:SESSIONS_MAX] for one in _of(block, summary)]
    entries.sort(key=lambda one: (-one.seq, one.text))
    return tuple(_each_once(_unended(block, entries[:CONSIDERED_MAX]), [*(fact.value for fact in facts), *notes]))


def _unended(block: Block, newest_first: Sequence[Standing]) -> list[Standing]:
    """Those that no entry of a later session has replaced or withdrawn. Worked out once for the same entries."""
    if len({one.session for one in newest_first}) < 2:
        return list(newest_first)
    key = tuple(newest_first)
    if block.unended is None or block.unended[0] != key:
        block.unended = key, _outlasting(newest_first)
    return block.unended[1]


def _outlasting(newest_first: Sequence[Standing]) -> list[Standing]:
    """The entries are read as one conversation, by the same ledger that each of them comes from."""
    turns = [_as_said(one, number) for number, one in enumerate(reversed(newest_first))]
    read = ledger(turns)
    ended = {entry.seq for entry in read if entry.status == "superseded" and entry.ended_by is not None}
    still = {entry.seq for entry in read if entry.status == "active" and entry.lasting}
    return [one for turn, one in zip(reversed(turns), newest_first, strict=True) if turn.seq not in ended - still]


def _as_said(one: Standing, number: int) -> Turn:
    return Turn(f"{number}", one.session, "user", one.text, number, one.said_at, one.said_at, rev=number)


def standing_of_sent(
    summary: Summary, turns: Sequence[Turn], told: Sequence[Standing], facts: Sequence[Fact], notes: Sequence[str]
) -> tuple[Standing, ...]:
    """Of a conversation that was sent along, newest first, before what is stored of the user (`told`)."""
    times = {turn.seq: turn.created_at for turn in turns}
    entries = [
        Standing(one.text, summary.session, one.turn_id, one.seq, times[one.seq])
        for one in reversed(summary.constraints)
        if one.lasting and one.status == "active"
    ]
    return tuple(_each_once([*entries, *told], [*(fact.value for fact in facts), *notes]))


def _of(block: Block, summary: Summary) -> Iterator[Standing]:
    index = block.sessions[summary.session]
    for one in summary.constraints:
        there = index.ids.get(one.turn_id) == one.seq and not block.moved.is_cold(one.seq)
        if there and one.lasting and one.status == "active":
            yield _standing(one, summary.session, index)


def _standing(one: Constraint, session: str, index: SessionIndex) -> Standing:
    said_at = index.times[bisect.bisect_left(index.seqs, one.seq)]
    return Standing(one.text, session, one.turn_id, one.seq, said_at)


def _each_once(entries: Iterable[Standing], told: Sequence[str]) -> Iterator[Standing]:
    known = [_folded(text) for text in told]
    shown: set[str] = set()
    for entry in entries:
        text = _folded(entry.text)
        if text in shown or any(text in fact for fact in known):
            continue
        shown.add(text)
        yield entry
        if len(shown) == STANDING_MAX:
            return


def _folded(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .。!！")
