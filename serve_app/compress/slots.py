"""Which statement takes the place of which: the same kind of value on the same subject, or a withdrawal. Pure.

A fold over the clauses in order. A later clause ends the earlier ones that it fits well enough: both name a value of
one kind and unit, they share words that few clauses have, the later one sounds like a change, and the assistant takes
it for one. A clause looks at the few open ones that share a kind of value or a word with it, so the fold is linear.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import fsum
from typing import NamedTuple

from serve_app.compress.fits import weights_of
from serve_app.compress.matching import like, match
from serve_app.compress.scene import CHANGES, Scene
from serve_app.compress.signs import signs
from serve_app.compress.statements import Clause
from serve_app.compress.verdicts import Judged
from serve_app.core import Turn

NEVER = -100.0
"""Fit where too little speaks for it."""

FITS_FROM = 0.0
"""Fit from which a clause ends the one that it fits best."""

FITS_TOO_FROM = 1.7
"""Fit from which it ends others beside that one."""

DOUBT_FROM = FITS_FROM - 1.0
"""Fit from which it is in doubt whether a clause still holds: it stays an entry and is worth less."""
DOUBT_WORTH = -5.0

SUBJECT_MIN = 1.5
"""Weight of the words that two statements share where they name nothing else in common."""

NAMED_MIN = 0.6
"""Weight of the words by which a turn names what an earlier one was about."""

CANDIDATES_MAX = 24
"""Open clauses that are looked at for a kind of value or a word, the newest."""

_SURE_SIGNS = frozenset(("replacement", "replacement_near", "withdrawal", "withdrawal_near", "changed", "removed"))
_CONSEQUENCES = frozenset(("follows", "concluded", "changed", "after"))
_OWN_MATTERS = frozenset(("lasting", "soft"))
_SURE_WORDS = frozenset(("replacement", "withdrawal", "changed", "removed", "chosen"))


class Fold(NamedTuple):
    """What the conversation, read to its end, ended."""

    ended: dict[int, int]
    """Number of a clause -> number of the turn that replaced or withdrew it."""
    promoted: frozenset[int]
    """Clauses that replaced another and bind for that alone."""
    doubted: frozenset[int]
    """Clauses that still hold, it seems, and that something came close to ending."""


def fold(turns: Sequence[Turn], clauses: Sequence[Clause], judged: Judged) -> Fold:
    """Goes through the clauses in order; each ends what it replaces, and is open to be replaced itself."""
    scene = Scene(turns, clauses, judged)
    ended: dict[int, int] = {}
    promoted: set[int] = set()
    doubted: set[int] = set()
    open_clauses = _Open()
    for number, clause in enumerate(clauses):
        if not scene.counts(number):
            continue
        fits = fitting(scene, number, open_clauses) if scene.may_replace(number) else []
        doubted.update(old for fit, old in fits[:1] if fit >= DOUBT_FROM)
        for old in _ended(scene, number, fits):
            promoted.add(number)
            for gone in scene.falls_with(old):
                ended.setdefault(gone, clause.turn)
                open_clauses.close(gone)
        open_clauses.add(number, _names(scene, number))
    says = (one for one in promoted if one not in ended and scene.says_something(one))
    return Fold(ended, frozenset(says), frozenset(doubted - ended.keys()))


class _Open:
    """The clauses that may still be replaced, by what a later one finds them by. Looks at no more than the newest."""

    def __init__(self) -> None:
        self._numbers: set[int] = set()
        self._by_name: dict[str, list[int]] = {}

    def add(self, number: int, names: Iterable[str]) -> None:
        self._numbers.add(number)
        for name in names:
            self._by_name.setdefault(name, []).append(number)

    def close(self, number: int) -> None:
        self._numbers.discard(number)

    def found_by(self, names: Iterable[str], others: Iterable[int]) -> list[int]:
        """The open ones among those with such a name, CANDIDATES_MAX for each, and among the others."""
        found = {number for name in names for number in self._by_name.get(name, ())[-CANDIDATES_MAX:]}
        return sorted(self._numbers & found.union(others))


def _names(scene: Scene, number: int) -> Iterator[str]:
    yield from scene.clauses[number].words
    yield from {f"={value.kind}" for value in scene.values[number]}


def fitting(scene: Scene, number: int, open_clauses: _Open) -> list[tuple[float, int]]:
    """The earlier clauses that this one may end, with how well it fits them, the best first."""
    new = scene.clauses[number]
    change = scene.change(number)
    names = {f"={kind}" for value in scene.values[number] for kind in like(value.kind)}
    if _SURE_SIGNS & change.keys():
        names |= new.words | scene.near(number)
    elif CHANGES & new.signals or ("briefly" in change and _draws(change)):
        names |= new.words
    before = scene.before(new.turn)
    found = open_clauses.found_by(names, [place for turn in (*before, new.turn) for place in scene.clauses_of(turn)])
    earlier = [
        old for old in found if _before(scene, number, old) and not scene.accepts(number, scene.clauses[old].turn)
    ]
    matches = {old: match(scene.values[number], scene.values[old]) for old in earlier}
    alone = sum("kind" in signs for signs in matches.values()) == 1
    weights = weights_of(new.folded)
    sure = bool(_SURE_SIGNS & change.keys()) or "chooses" in new.signals
    beside = before if _draws(change) else ()
    to_last = bool(beside) or "removed" in change or "changed" in change
    told = {"elsewhere": 1.0} if to_last and _told_earlier(scene, new, open_clauses) else {}
    scored = [
        (fit(signs(scene, number, old, {**matches[old], **told}, alone), weights), old)
        for old in earlier
        if sure or matches[old] or scene.clauses[old].turn in beside or new.words & scene.clauses[old].words
    ]
    scored.sort(reverse=True)
    return scored


def _told_earlier(scene: Scene, new: Clause, open_clauses: _Open) -> bool:
    """Whether its turn names what stands open since before the last exchanges: it is about that then."""
    words, before = scene.turn_words(new.turn), scene.before(new.turn)
    earlier = (scene.clauses[old] for old in open_clauses.found_by(words, ()))
    return any(old.turn not in (*before, new.turn) and scene.weight(words & old.words) >= NAMED_MIN for old in earlier)


def _ended(scene: Scene, number: int, fits: Sequence[tuple[float, int]]) -> list[int]:
    """The one that it fits best, and others that it fits surely and shares words with."""
    best = [old for fit, old in fits[:1] if fit >= FITS_FROM]
    words = scene.clauses[number].words
    return best + [old for fit, old in fits[1:] if fit >= FITS_TOO_FROM and words & scene.clauses[old].words]


def _before(scene: Scene, number: int, old: int) -> bool:
    """Whether it was said in an earlier turn, or quoted in an earlier sentence of this one."""
    new, before = scene.clauses[number], scene.clauses[old]
    return before.turn < new.turn or (before.sentence < new.sentence and "reminder" in before.signals)


def fit(signs: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """How well a clause fits one that it may end; NEVER where too little speaks for it."""
    if not _plausible(signs):
        return NEVER
    told = [weights[sign] * signs[sign] for sign in signs if sign in weights]
    return round(weights["start"] + fsum(told), 4)


def _plausible(signs: Mapping[str, float]) -> bool:
    """Whether enough speaks for it at all: of two statements with nothing in common none ends the other."""
    if "adds" in signs and not _SURE_WORDS & signs.keys():
        return False
    if {"other_subject", "quiet"} <= signs.keys() and not {"follows", "after", "reasoned"} & signs.keys():
        return False
    if {"other_unit", "quiet", "new_lone"} <= signs.keys():
        return False  # a bare statement about something else
    if "code" in signs and "own" not in signs:
        return False
    if "stranger" in signs:
        goes_on = (
            _goes_on(signs)
            and "elsewhere" not in signs
            and ("old_exact" not in signs or ("next_then" in signs and "exact" not in signs))
        )
        points = "points" in signs and ("elsewhere" not in signs or "withdrawal" in signs)
        return points or {"chosen", "recent"} <= signs.keys() or goes_on
    if "no_value" in signs:
        on_subject = signs.get("own", 0.0) >= SUBJECT_MIN and "briefly" in signs and _draws(signs)
        return bool((_SURE_SIGNS | {"flips", "chosen", "frame"}) & signs.keys()) or _goes_on(signs) or on_subject
    if "no_word" not in signs or "unit" in signs:
        return True
    if "far_size" in signs:
        return False
    if {"alone", "taken_both", "briefly"} <= signs.keys() and {"follows", "concluded", "after"} & signs.keys():
        return True
    return bool(_SURE_WORDS & signs.keys()) or ("calm" not in signs and bool({"repeated", "told"} & signs.keys()))


def _goes_on(signs: Mapping[str, float]) -> bool:
    """Whether it comes right after the other and draws a consequence."""
    return "next" in signs and _draws(signs) and bool({"briefly", "concluded", "changed"} & signs.keys())


def _draws(signs: Mapping[str, float]) -> bool:
    """Whether a clause follows from something: `forty mile winds. Oven dishes, please.`"""
    return not _OWN_MATTERS & signs.keys() and bool(_CONSEQUENCES & signs.keys())
