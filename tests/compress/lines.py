"""Conversations written as lines, such as `u: No pork, please.`, and what the ledger says of them."""

from __future__ import annotations

from typing import Final

from serve_app.compress.ledger import ledger, read
from serve_app.compress.statements import Verdict
from serve_app.core import Role, Turn

ROLES: Final[dict[str, Role]] = {"u": "user", "a": "assistant", "t": "tool"}


def said(*lines: str) -> list[Turn]:
    """Turns t0, t1 and so on, with seqs from 10."""
    parts = [line.partition(": ") for line in lines]
    return [Turn(f"t{n}", "s", ROLES[role], text, n + 10, n, n) for n, (role, _, text) in enumerate(parts)]


def active(*lines: str) -> list[str]:
    return [entry.text for entry in ledger(said(*lines)) if entry.status == "active"]


def superseded(*lines: str) -> list[tuple[str, int | None]]:
    """Texts, and the seqs of the turns that ended them."""
    return [(entry.text, entry.ended_by) for entry in ledger(said(*lines)) if entry.status == "superseded"]


def verdicts(*lines: str) -> set[Verdict]:
    return {one.verdict for one in read(said(*lines)).statements}
