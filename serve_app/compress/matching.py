"""Whether two values can be values of one thing: the same kind, a unit in common, amounts not far apart. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.compress.statements import Value

SIZES_NEAR = 4.0
"""Amounts within this ratio are values of one thing more likely."""
SIZES_FAR = 12.0

_LIKE = {
    "number": frozenset(("version", "money", "count", "size", "duration", "percent", "time", "often")),
    "count": frozenset(("number", "often")),
    "often": frozenset(("number", "count")),
    "money": frozenset(("number",)),
    "size": frozenset(("number",)),
    "duration": frozenset(("number",)),
    "percent": frozenset(("number",)),
    "time": frozenset(("number",)),
    "version": frozenset(("number",)),
    "day": frozenset(("date",)),
    "date": frozenset(("day",)),
}
"""Kinds that one value may be told in: `three times` and `one retry`, `45 minutes` and `make it 60`."""

_ONE_KIND = ({"money", "number"}, {"count", "number"}, {"version", "number"})
"""A sum or a count said again is said without its currency or noun."""

_WAYS = frozenset(("wide", "long", "high", "deep", "tall", "thick", "across"))
"""A width is never replaced by a length."""

_SECONDS = {"s": 1, "min": 60, "h": 3_600, "day": 86_400, "week": 604_800}
"""What two hours have in common with 75 minutes."""

_PER = frozenset(("a", "per", "al", "por"))


def like(kind: str) -> frozenset[str]:
    """The kinds that a value of this one can be matched with, itself included."""
    return _LIKE.get(kind, frozenset()) | {kind}


def match(new: Sequence[Value], old: Sequence[Value]) -> dict[str, float]:
    """Signs of how the best pair of two lists matches; none where the later list says nothing new."""
    if not new or not old or all(any(same(one, other) for other in old) for one in new):
        return {}
    pairs = [_pair(one, other) for one in new for other in old]
    return max(pairs, key=lambda signs: (len(signs) - 2 * ("other_unit" in signs), sorted(signs)))


def same(new: Value, old: Value) -> bool:
    """Whether two amounts are one: also `the 24th` and `24 October`."""
    if new.amount == old.amount:
        return True
    if " " not in new.amount and " " not in old.amount:
        return False
    one, other = set(new.amount.split()), set(old.amount.split())
    return one <= other or other <= one


def _pair(new: Value, old: Value) -> dict[str, float]:
    if old.kind not in like(new.kind) or same(new, old):
        return {}
    if new.kind != old.kind and {new.kind, old.kind} not in _ONE_KIND:
        return {"like_kind": 1.0} | _size(new, old)
    ways = frozenset(new.unit.split()) & _WAYS, frozenset(old.unit.split()) & _WAYS
    if all(ways) and not ways[0] & ways[1]:
        return {}
    one, other = frozenset(new.unit.split()) - _PER, frozenset(old.unit.split()) - _PER
    if one & other:
        mixed = {"other_unit": 1.0} if one - other and other - one else {}
        return {"kind": 1.0, "bare" if new.kind == "money" else "unit": 1.0} | mixed | _size(new, old)
    if new.kind == old.kind == "duration" and not {new.unit, old.unit} - _SECONDS.keys():
        return {"kind": 1.0} | _size(_seconds(new), _seconds(old))
    if new.kind == old.kind and new.unit and old.unit:
        return {}
    if new.kind == "code":
        return {"kind": 1.0, "code": 1.0}
    return {"kind": 1.0} | ({} if new.unit or old.unit else {"bare": 1.0}) | _size(new, old)


def _size(new: Value, old: Value) -> dict[str, float]:
    if "code" in (new.kind, old.kind):
        return {}
    one, other = _figure(new.amount), _figure(old.amount)
    if one <= 0 or other <= 0:
        return {}
    ratio = max(one / other, other / one)
    return {"near_size": 1.0} if ratio <= SIZES_NEAR else {"far_size": 1.0} if ratio > SIZES_FAR else {}


def _seconds(value: Value) -> Value:
    return Value(value.kind, "s", f"{_figure(value.amount) * _SECONDS[value.unit]:g}")


def _figure(amount: str) -> float:
    return float(amount) if amount.replace(".", "", 1).isdecimal() else 0.0
