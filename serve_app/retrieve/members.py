"""Values to choose from, prepared once: one look tells whether a value is the same as any of them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from serve_app.errors import InvalidRequest
from serve_app.paths import same

ALIKE_MAX: Final = 16
"""Different values of one hash: more are no accident, and each would be compared with every value of the data."""


class Members:
    """Of the same kind of equality as `paths.same`: 3 is 3.0, true is not 1, null is itself."""

    __slots__ = ("_bools", "_containers", "_scalars")

    def __init__(self, values: Sequence[Any]) -> None:
        self._bools = {value for value in values if isinstance(value, bool)}
        self._scalars = _hashed([value for value in values if not isinstance(value, bool | list | dict)])
        self._containers: dict[tuple[type, int], list[Any]] = defaultdict(list)
        for value in values:
            if isinstance(value, list | dict):
                self._containers[type(value), len(value)].append(value)

    def has(self, value: Any) -> bool:
        kind = type(value)
        if kind is bool:
            return value in self._bools
        if kind is list or kind is dict:
            return any(same(value, one) for one in self._alike(value))
        return value in self._scalars

    @property
    def deep(self) -> bool:
        """Whether there is an array or an object to compare with."""
        return bool(self._containers)

    def looks(self, value: Any) -> int:
        """How many values `has` may look at inside this one."""
        alike = len(self._alike(value)) if isinstance(value, list | dict) else 0
        return alike * _inside(value) if alike else 0

    def _alike(self, value: Any) -> Sequence[Any]:
        return self._containers.get((type(value), len(value)), ())


def _hashed(values: Sequence[Any]) -> frozenset[Any]:
    buckets: dict[int, list[Any]] = defaultdict(list)
    for value in values:
        bucket = buckets[hash(value)]
        if value not in bucket:
            bucket.append(value)
        if len(bucket) > ALIKE_MAX:
            raise InvalidRequest("filters.data: these numbers are too alike to choose from; ask for fewer at once")
    return frozenset(value for bucket in buckets.values() for value in bucket)


def _inside(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_inside, value.values()))
    if isinstance(value, list):
        return len(value) + sum(map(_inside, value))
    return 0
