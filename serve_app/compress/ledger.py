"""The constraint ledger: what of a conversation binds, said by whom, still in force or replaced since. Pure, no model.

A ledger is a fold over the turns in order: a later turn may replace or withdraw what an earlier one said, and nothing
else changes an entry. Entries are literal spans of their turns. Hypothetical statements and those about people who
take no part are no constraints.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from serve_app.compress.slots import DOUBT_WORTH, Fold, fold
from serve_app.compress.statements import Clause, Statement, Verdict, clauses
from serve_app.compress.verdicts import Judged, judged
from serve_app.core import Constraint, Turn

LEDGER_VERSION = "ledger-4"
"""Changes with anything here that changes a ledger."""

ENTRIES_MAX = 200
"""Of more, the ones most worth keeping."""

ENTRY_CHARS_MAX = 240
"""A longer run of clauses is more than one entry."""

_LOOSE = " \t\n,;:，、；："
"""Ends of clauses that mean nothing on their own."""

_BRACKETS = "{}[]"
"""Of data a member is quoted, not what stands around it."""

_ENTRY: tuple[Verdict, ...] = ("active", "superseded")


class Reading(NamedTuple):
    """What a conversation says: all its statements in order, and the ledger of those that bind."""

    statements: tuple[Statement, ...]
    entries: tuple[Constraint, ...]


def ledger(turns: Sequence[Turn]) -> tuple[Constraint, ...]:
    """The entries of these turns (oldest first), in the order of their turns."""
    return read(turns).entries


def read(turns: Sequence[Turn]) -> Reading:
    """Every statement of these turns (oldest first) with its verdict, and the ledger.

    Turns of which anything expires have statements, which count in the fold, and no entries.
    """
    parts = clauses(turns)
    verdicts = judged(turns, parts)
    statements = tuple(_statements(turns, parts, verdicts, fold(turns, parts, verdicts)))
    return Reading(statements, entries_of(turns, statements))


def _statements(turns: Sequence[Turn], parts: Sequence[Clause], judged: Judged, folded: Fold) -> Iterator[Statement]:
    """Neighbours of one sentence that are judged alike as one."""
    run: Statement | None = None
    for number in range(len(parts)):
        one = _statement(turns, parts, judged, folded, number)
        joined = _joined(turns, run, one)
        if joined is None and run is not None:
            yield run
        run = joined or one
    if run is not None:
        yield run


def _statement(turns: Sequence[Turn], parts: Sequence[Clause], judged: Judged, folded: Fold, number: int) -> Statement:
    part, end = parts[number], folded.ended.get(number)
    verdict: Verdict = "active" if number in folded.promoted else judged.verdicts[number]
    verdict = verdict if end is None else "superseded"
    text = turns[part.turn].text[part.start : part.end]
    return Statement(
        part.turn,
        part.start,
        part.end,
        text,
        part.sentence,
        verdict,
        judged.worths[number] + (DOUBT_WORTH if number in folded.doubted else 0.0),
        end,
        "lasting" in part.signals,
        number in folded.doubted,
    )


def _joined(turns: Sequence[Turn], run: Statement | None, one: Statement) -> Statement | None:
    if run is None or run.sentence != one.sentence or one.end - run.start > ENTRY_CHARS_MAX:
        return None
    if (run.verdict, run.ended_by) != (one.verdict, one.ended_by):
        return None
    text = turns[run.turn].text[run.start : one.end]
    worth = max(run.worth, one.worth)
    return Statement(
        run.turn,
        run.start,
        one.end,
        text,
        run.sentence,
        run.verdict,
        worth,
        run.ended_by,
        run.lasting or one.lasting,
        run.doubted and one.doubted,
    )


def entries_of(turns: Sequence[Turn], statements: Sequence[Statement]) -> tuple[Constraint, ...]:
    """The statements that bind, as entries; of too many the most worth keeping, the newest of equals."""
    binding = [one for one in statements if one.verdict in _ENTRY and turns[one.turn].lasting]
    kept = sorted(binding, key=lambda one: (-one.worth, -one.turn, one.start))[:ENTRIES_MAX]
    return tuple(_entry(turns, one) for one in sorted(kept, key=lambda one: (one.turn, one.start)))


def _entry(turns: Sequence[Turn], one: Statement) -> Constraint:
    turn = turns[one.turn]
    by = None if one.ended_by is None else turns[one.ended_by].seq
    lasting = one.lasting and by is None and turn.role == "user"
    text = one.text.strip(_LOOSE + _BRACKETS if turn.role == "tool" else _LOOSE)
    return Constraint(text, turn.id, turn.seq, "active" if by is None else "superseded", by, lasting)
