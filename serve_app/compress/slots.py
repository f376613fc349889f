"""Which statement takes the place of which: the same kind of value on the same subject, or a withdrawal. Pure.

A fold over the clauses in order. A later clause ends the earlier ones that it fits well enough: both name a value of
one kind and unit, they share words that few clauses have, the later one sounds like a change, and the assistant takes
it for one. A clause looks at the few open ones that share a kind of value or a word with it, so the fold is linear.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from serve_app.compress.fits import weights_of
from serve_app.compress.matching import like, match
from serve_app.compress.scene import CHANGES, Scene
from serve_app.compress.statements import Clause
from serve_app.compress.verdicts import Judged
from serve_app.compress.worths import EXACT
from serve_app.core import Turn

NEVER = -100.0
"""Fit where too little speaks for it."""

FITS_FROM = 0.0
"""Fit from which a clause ends the one that it fits best."""

FITS_TOO_FROM = 1.7
"""Fit from which it ends others beside that one."""

FLIP_WEIGHT_MIN = 0.6
"""Weight of the words that a yes and a no on one matter share."""

QUIET_OWN_MIN = 1.5
"""Weight of the words that a clause shares with one that it replaces without sounding like a change."""

FRAME_WORDS_MAX = 4
"""Content words of a clause that tells what to do and where, and no more."""

POINTS_WORDS_MAX = 0
"""Content words of a withdrawal that names nothing itself: it means what was said last."""

DOUBT_FROM = FITS_FROM - 1.0
"""Fit from which it is in doubt whether a clause still holds: it stays an entry and is worth less."""
DOUBT_WORTH = -2.5

OWN_MAX, WORTH_MAX = 2.5, 6.0

CANDIDATES_MAX = 24
"""Open clauses that are looked at for a kind of value or a word, the newest."""

_CHANGE_SIGNS = frozenset(
    (
        "change",
        "replacement",
        "change_near",
        "replacement_near",
        "told",
        "withdrawal",
        "changed",
        "removed",
        "flips",
        "chosen",
    )
)
_SURE_SIGNS = frozenset(("replacement", "replacement_near", "withdrawal", "withdrawal_near", "changed", "removed"))
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
    change, near = scene.change(number), scene.near(number)
    names = {f"={kind}" for value in scene.values[number] for kind in like(value.kind)}
    if _SURE_SIGNS & change.keys():
        names |= new.words | near
    elif CHANGES & new.signals:
        names |= new.words
    found = open_clauses.found_by(names, [*scene.clauses_of(scene.last_taken(new.turn)), *scene.clauses_of(new.turn)])
    earlier = [
        old for old in found if _before(scene, number, old) and not scene.accepts(number, scene.clauses[old].turn)
    ]
    matches = {old: match(scene.values[number], scene.values[old]) for old in earlier}
    alone = sum("kind" in signs for signs in matches.values()) == 1
    weights = weights_of(new.folded)
    sure = bool(_SURE_SIGNS & change.keys()) or "chooses" in new.signals
    scored = [
        (fit(signs(scene, number, old, matches[old], change, near, alone), weights), old)
        for old in earlier
        if sure or matches[old] or scene.is_next(number, old) or scene.clauses[old].turn == scene.last_taken(new.turn) or not new.words.isdisjoint(scene.clauses[old].words)
    ]
    scored.sort(reverse=True)
    return scored


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
    return round(weights["start"] + sum(weights.get(sign, 0.0) * signs[sign] for sign in sorted(signs)), 4)


def signs(
    scene: Scene,
    number: int,
    old: int,
    values: Mapping[str, float],
    change: Mapping[str, float],
    near: frozenset[str],
    alone: bool,
) -> dict[str, float]:
    """What speaks for and against that a clause ends an earlier one."""
    new, before = scene.clauses[number], scene.clauses[old]
    own = new.words & before.words
    found = {
        **values,
        **change,
        "worth": max(-WORTH_MAX, min(WORTH_MAX, scene.judged.worths[number])),
        "old_worth": max(-WORTH_MAX, min(WORTH_MAX, scene.judged.worths[old])),
    }
    if own:
        found["own"] = min(OWN_MAX, scene.weight(_whole(own)))
    echo = (scene.told(number) & scene.told(old)) - own
    if echo:
        found["echo"] = min(OWN_MAX, scene.weight(_whole(echo)))
    if {value.amount for value in before.values} & {value.amount for value in new.values}:
        found["names_old"] = 1.0
    if scene.repeated(old):
        found["old_repeated"] = 1.0
    if before.turn in (scene.last_taken(new.turn), new.turn):
        found["recent"] = 1.0
    if _one_frame(new, before, own):
        found["frame"] = 1.0
    if "adds" in new.signals:
        found["adds"] = 1.0
    if "chooses" in new.signals and scene.taken[number] and scene.is_answer(old):
        found["chosen"] = 1.0
    if _flips(scene, number, old, own):
        found["flips"] = 1.0
    if {"lasting", "implicit"} & before.signals:
        found["old_lasting"] = 1.0
    if "reminder" in before.signals:
        found["old_reminder"] = 1.0
    if scene.is_reasoned(number):
        found["reasoned"] = 1.0
    if {"lasting", "implicit"} & new.signals:
        found["lasting"] = 1.0
    if scene.judged.verdicts[number] == "soft":
        found["soft"] = 1.0
    if scene.judged.verdicts[old] == "active":
        found["old_active"] = 1.0
    if scene.is_lone(number):
        found["new_lone"] = 1.0
    if any(any(map(str.isdigit, value.amount)) for value in scene.values[old]):
        found["old_exact"] = 1.0
    if scene.denies(old):
        found["old_denies"] = 1.0
    if scene.is_next(number, old) or "recent" in found:
        found["next"] = 1.0
    if scene.is_lone(old):
        found["lone"] = 1.0
    if scene.follows(number):
        found["follows"] = 1.0
    if scene.is_after(number):
        found["after"] = 1.0
    heard = scene.judged.heard[new.turn]
    if heard.concluded:
        found["concluded"] = 1.0
    if heard.briefly and (heard.words & new.words or "repeated" in found):
        found["briefly"] = 1.0
    found |= _subject(new, before)
    points = heard.removed or (heard.changed and len(new.words) <= POINTS_WORDS_MAX)
    return found | _together(found, bool(own or near & before.words), alone, points)


def _subject(new: Clause, before: Clause) -> dict[str, float]:
    """Whether both say something of one thing, of two, or of two of a kind: `the main job`, `the cleanup job`."""
    if not new.about:
        return {}
    if not new.about & (before.words | before.about):
        return {"other_subject": 1.0}
    siblings = new.about & before.about and new.about - before.words and before.about - new.words
    return {"other_subject": 1.0} if siblings else {"same_subject": 1.0}


def _together(found: Mapping[str, float], on_subject: bool, alone: bool, points: bool) -> dict[str, float]:
    """What signs say only together."""
    matches = "kind" in found or "like_kind" in found
    marks = {
        "no_value": not matches,
        "no_word": not on_subject,
        "stranger": not matches and not on_subject,
        "alone": alone and "kind" in found,
        "taken_both": matches and {"repeated", "old_repeated"} <= found.keys(),
        "calm": matches and not _CHANGE_SIGNS & found.keys(),
        "quiet": not _CHANGE_SIGNS & found.keys(),
        "points": points and "recent" in found and bool({"withdrawal", "withdrawal_near", "removed"} & found.keys()),
        "subject_changed": not matches and "own" in found and bool(_CHANGE_SIGNS & found.keys()),
        "next_then": {"next", "concluded"} <= found.keys(),
        "next_lone": {"next", "lone", "briefly"} <= found.keys(),
        "next_value": matches and {"next", "repeated"} <= found.keys(),
        "denied": "flips" in found and bool({"changed", "withdrawal"} & found.keys()),
    }
    return {sign: 1.0 for sign, holds in marks.items() if holds}


def _one_frame(new: Clause, before: Clause, own: frozenset[str]) -> bool:
    """Whether both tell to do one thing, with something in common or with no more than where: `fly from Leeds`."""
    if not new.frame[0] or new.frame[0] != before.frame[0]:
        return False
    named = {word for word in own if not word.startswith(new.frame[0][:4])}
    return bool(named) or (bool(new.frame[1]) and new.frame == before.frame and len(new.words) <= FRAME_WORDS_MAX)


def _flips(scene: Scene, number: int, old: int, own: frozenset[str]) -> bool:
    """Whether one says no to what the other says yes to."""
    if not own or scene.denies(number) == scene.denies(old):
        return False
    if scene.denies(old) and not CHANGES & scene.clauses[number].signals:
        return False
    return scene.weight(frozenset(word for word in own if len(word) > 1)) >= FLIP_WEIGHT_MIN


def _plausible(signs: Mapping[str, float]) -> bool:
    """Whether enough speaks for it at all: of two statements with nothing in common none ends the other."""
    if "adds" in signs and not _SURE_WORDS & signs.keys():
        return False
    if {"other_subject", "quiet"} <= signs.keys() and not {"follows", "after", "reasoned"} & signs.keys():
        return False
    if "code" in signs and "own" not in signs:
        return False
    goes_on = "lasting" not in signs and "soft" not in signs and "next" in signs and bool({"follows", "concluded", "changed", "after"} & signs.keys())
    if "stranger" in signs:
        return "points" in signs or {"chosen", "recent"} <= signs.keys() or (goes_on and "old_exact" not in signs)
    if "no_value" in signs:
        return bool((_SURE_SIGNS | {"flips", "chosen", "frame"}) & signs.keys()) or goes_on
    if "no_word" not in signs or "unit" in signs:
        return True
    if "far_size" in signs:
        return False
    if {"alone", "taken_both"} <= signs.keys() and {"follows", "concluded", "after"} & signs.keys():
        return True
    return bool(_SURE_WORDS & signs.keys()) or ("calm" not in signs and bool({"repeated", "told"} & signs.keys()))


def _whole(words: frozenset[str]) -> frozenset[str]:
    """Without the characters that stand in longer ones of them."""
    longer = "".join(word for word in words if len(word) > 1)
    return frozenset(word for word in words if len(word) > 1 or word not in longer)
