"""Which statement takes the place of which: same kind of value and the same subject, or a withdrawal. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from serve_app.compress.statements import Clause, Verdict
from serve_app.core import Turn


def ended(turns: Sequence[Turn], clauses: Sequence[Clause], verdicts: Sequence[Verdict]) -> Mapping[int, int]:
    """Number of a clause -> number of the turn that replaced or withdrew it."""
    return {}
