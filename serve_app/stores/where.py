"""Conditions on the rows of the tables: expressions over a fixed set of columns, never strings."""

from __future__ import annotations

from collections.abc import Sequence

from lancedb.expr import Expr, col, lit

Where = Expr


def owned(owner: str) -> Where:
    return col("owner") == lit(owner)


def of_either(owner: str, other: str) -> Where:
    return col("owner").isin([owner, other])


def before(seq: int) -> Where:
    return col("seq") < lit(seq)


def of_session(session: str) -> Where:
    return col("session") == lit(session)


def of_kind(kind: str) -> Where:
    return col("kind") == lit(kind)


def of_id(identifier: str) -> Where:
    return col("id") == lit(identifier)


def of_seq(seq: int) -> Where:
    return col("seq") == lit(seq)


def of_seqs(seqs: Sequence[int]) -> Where:
    return col("seq").isin(list(seqs))


def either(one: Where, other: Where) -> Where:
    return one.or_(other)


def every(*conditions: Where) -> Where:
    whole = conditions[0]
    for condition in conditions[1:]:
        whole = whole.and_(condition)
    return whole
