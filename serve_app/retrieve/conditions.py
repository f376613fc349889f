"""Conditions on values inside a turn's `data`: a path, an operator, a value. Pure, exact, strict about types.

Numbers compare by value, whatever their size and however they are written; "3" is no number to `eq`, and true is none
to anybody. A key that is not there meets no condition, not even `ne`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

import msgspec

from serve_app import paths
from serve_app.core import Turn
from serve_app.errors import InvalidRequest
from serve_app.kept import Entry, Kept
from serve_app.paths import EACH, Place, Steps
from serve_app.retrieve.members import Members
from serve_app.retrieve.work import CHARACTERS_A_VALUE, Work

Op = Literal[
    "eq",
    "ne",
    "in",
    "gt",
    "gte",
    "lt",
    "lte",
    "num_eq",
    "contains",
    "startswith",
    "is_null",
    "exists",
    "before",
    "after",
]

CONDITIONS_MAX: Final = 32
VALUES_MAX: Final = 1_000
"""That one `in` chooses from."""

MATCHED_PATHS_MAX: Final = 1_000
"""Of one result."""

PARSED_A_GENERATION: Final = 4_096
PARSED_CHARACTERS_MAX: Final = 2_048
"""Turns whose data stay parsed, twice at most, and how long they may be: as many as one user has in memory. Of usual
results some tens of megabytes in all; longer ones are parsed each time."""

_DECIMAL: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]+)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DIGITS_MAX: Final = 4_096
"""A longer text is not taken for a number."""

Number = int | Decimal
Test = Callable[[Any], bool]
Looks = Callable[[Any], int]


class Prepared(NamedTuple):
    """What an operator makes of the value it is given, once; `looks` where a test may look into what it is shown."""

    test: Test
    looks: Looks | None = None


class Condition(msgspec.Struct, frozen=True):
    """`wanted` is what the caller gave; `test` says of a value whether it meets the condition."""

    path: str
    op: Op
    wanted: Any
    steps: Steps
    test: Test
    looks: Looks | None = None

    def holds(self, data: Any, work: Work) -> bool:
        return any(map(self.test, self._named(data, work)))

    def matches(self, data: Any, work: Work) -> Iterator[Place]:
        """In the order of the document, no more than are told: the first of all are among the first of each."""
        self._named(data, work)
        return islice(paths.places(data, self.steps, self.test), MATCHED_PATHS_MAX)

    def _named(self, data: Any, work: Work) -> list[Any]:
        named = paths.values(data, self.steps, work.spend)
        if self.looks is not None:
            work.spend(sum(map(self.looks, named)))
        return named


def condition(path: str, op: Op, wanted: Any) -> Condition:
    """Raises InvalidRequest where the path cannot be read, or the operator cannot use the value."""
    return Condition(path, op, wanted, paths.steps_of(path), *_TESTS[op](op, exactly(wanted)))


def cheapest_first(conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    """All must hold, so that the first that does not spares the others: one value before many."""
    return tuple(sorted(conditions, key=lambda one: (one.steps.count(EACH), one.looks is not None, one.op in _READING)))


def hold(conditions: Sequence[Condition], turn: Turn, work: Work) -> bool:
    """Whether all of them hold for the data of this turn. Raises what `Work.spend` raises."""
    if turn.data is None:
        return False
    data, texts = _data_of(turn, work), len(turn.data) // CHARACTERS_A_VALUE
    for one in conditions:
        work.spend(1 + texts)
        if not one.holds(data, work):
            return False
    return True


def matched_paths(conditions: Sequence[Condition], turn: Turn, work: Work) -> tuple[str, ...]:
    """Where the data meet any of them, in the order of the document. Raises what `Work.spend` raises."""
    if turn.data is None:
        return ()
    data = _data_of(turn, work)
    work.spend(len(conditions) * (1 + len(turn.data) // CHARACTERS_A_VALUE))
    found = {place.position: place.path for one in conditions for place in one.matches(data, work)}
    return tuple(found[position] for position in sorted(found)[:MATCHED_PATHS_MAX])


# ---- the values of a turn


class _Parsed(Entry[Turn]):
    __slots__ = ("value",)

    def __init__(self, turn: Turn, gone: Any) -> None:
        super().__init__(turn, gone)
        self.value = paths.parsed(turn.data or b"null")


_kept: Final[Kept[Turn, _Parsed]] = Kept(_Parsed, PARSED_A_GENERATION)


def _data_of(turn: Turn, work: Work) -> Any:
    data = turn.data or b"null"
    work.spend(len(data) // CHARACTERS_A_VALUE)
    return paths.parsed(data) if len(data) > PARSED_CHARACTERS_MAX else _kept.of(turn).value


# ---- comparisons


def exactly(value: Any) -> Any:
    """The value with its fractions as decimals: 0.1 is what was written, not the double nearest to it."""
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, list):
        return [exactly(one) for one in value]
    if isinstance(value, dict):
        return {key: exactly(one) for key, one in value.items()}
    return value


def number(value: Any) -> Number | None:
    """A number, or a text that is a plain decimal; None for all else."""
    if isinstance(value, int | Decimal):
        return None if isinstance(value, bool) else value
    if isinstance(value, str) and len(value) <= _DIGITS_MAX and _DECIMAL.fullmatch(value.strip()):
        return _read_decimal(value.strip())
    return None


def _read_decimal(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except ArithmeticError:  # an exponent of more digits than there are
        return None


def instant(value: Any) -> datetime | None:
    """A moment that is written in ISO 8601 with its offset; None for all else."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment


# ---- operators


def _equal(op: Op, wanted: Any) -> Prepared:
    members = Members([wanted])
    return Prepared(members.has, members.looks if members.deep else None)


def _unequal(op: Op, wanted: Any) -> Prepared:
    has, looks = _equal(op, wanted)
    return Prepared(lambda value: not has(value), looks)


def _one_of(op: Op, wanted: Any) -> Prepared:
    if not isinstance(wanted, list) or len(wanted) > VALUES_MAX:
        raise InvalidRequest(f"filters.data: {op} takes a list of at most {VALUES_MAX} values")
    members = Members(wanted)
    return Prepared(members.has, members.looks if members.deep else None)


_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "num_eq": operator.eq,
    "before": operator.lt,
    "after": operator.gt,
}


def _compared(op: Op, wanted: Any) -> Prepared:
    limit, order = number(wanted), _ORDERS[op]
    if limit is None:
        raise InvalidRequest(f"filters.data: {op} takes a number, or a text that is a plain decimal")

    def test(value: Any) -> bool:
        read = value if type(value) is int else number(value)
        return read is not None and order(read, limit)

    return Prepared(test)


def _timed(op: Op, wanted: Any) -> Prepared:
    limit, order = instant(wanted), _ORDERS[op]
    if limit is None:
        raise InvalidRequest(f"filters.data: {op} takes a time with its offset, like 2024-05-06T07:08:09+02:00")
    return Prepared(lambda value: (read := instant(value)) is not None and order(read, limit))


def _containing(op: Op, wanted: Any) -> Prepared:
    members = Members([wanted])

    def test(value: Any) -> bool:
        if isinstance(value, list):
            return any(map(members.has, value))
        return isinstance(value, str) and isinstance(wanted, str) and wanted in value

    def looks(value: Any) -> int:
        if not isinstance(value, list):
            return 0
        return len(value) + (sum(map(members.looks, value)) if members.deep else 0)

    return Prepared(test, looks)


def _starting(op: Op, wanted: Any) -> Prepared:
    if not isinstance(wanted, str):
        raise InvalidRequest(f"filters.data: {op} takes a text")
    return Prepared(lambda value: isinstance(value, str) and value.startswith(wanted))


def _nothing_wanted(op: Op, wanted: Any) -> None:
    if wanted is not None and wanted is not True:
        raise InvalidRequest(f"filters.data: {op} takes no value")


def _null(op: Op, wanted: Any) -> Prepared:
    _nothing_wanted(op, wanted)
    return Prepared(lambda value: value is None)


def _there(op: Op, wanted: Any) -> Prepared:
    _nothing_wanted(op, wanted)
    return Prepared(lambda value: True)


_READING: Final = frozenset(("gt", "gte", "lt", "lte", "num_eq", "before", "after"))
"""They may have to read a text first."""

_TESTS: Final[dict[str, Callable[[Op, Any], Prepared]]] = {
    "eq": _equal,
    "ne": _unequal,
    "in": _one_of,
    "contains": _containing,
    "startswith": _starting,
    "is_null": _null,
    "exists": _there,
    "before": _timed,
    "after": _timed,
    **dict.fromkeys(("gt", "gte", "lt", "lte", "num_eq"), _compared),
}
