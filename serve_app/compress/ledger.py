"""The constraint ledger: what of a conversation binds, said by whom, still in force or replaced since. Pure, no model.

A ledger is a fold over the turns in order: a later turn may replace or withdraw what an earlier one said, and nothing
else changes an entry. Entries are literal spans of their turns. Hypothetical statements and those about people who
take no part are no constraints.
"""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.compress.salience import worth
from serve_app.compress.sentences import sentences
from serve_app.core import Constraint, Turn

LEDGER_VERSION = "ledger-1"
"""Changes with anything here that changes a ledger."""

BINDS_FROM = 4.0


def ledger(turns: Sequence[Turn]) -> tuple[Constraint, ...]:
    """The entries of these turns (oldest first), in the order of their turns."""
    return tuple(
        Constraint(text, turn.id, turn.seq)
        for turn in turns
        if turn.lasting
        for text in sentences(turn.text)
        if worth(text, turn.role) >= BINDS_FROM
    )
