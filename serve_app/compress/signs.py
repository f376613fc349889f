"""What speaks for and against that a later statement ends an earlier one, by name; weights are learnt. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from serve_app.compress.scene import CHANGES, Scene
from serve_app.compress.statements import Clause

FLIP_WEIGHT_MIN = 0.6
"""Weight of the words that a yes and a no on one matter share."""

FRAME_WORDS_MAX = 4
"""Content words of a clause that tells what to do and where, and no more."""

POINTS_WORDS_MAX = 0
"""Content words of a withdrawal that names nothing itself: it means what was said last."""

OWN_MAX = 2.5

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


def signs(scene: Scene, number: int, old: int, values: Mapping[str, float], alone: bool) -> dict[str, float]:
    """What speaks for and against that a clause ends an earlier one, with how their values match."""
    new, before = scene.clauses[number], scene.clauses[old]
    own = new.words & before.words
    found = {**values, **scene.change(number), **scene.standing(old), **_shared(scene, number, old, own)}
    heard = scene.judged.heard[new.turn]
    contrast = bool(own and new.words - before.words and before.words - new.words)
    points = heard.removed or (heard.changed and len(new.words) <= POINTS_WORDS_MAX)
    return found | _together(found, bool(own or scene.near(number) & before.words), alone, points, contrast)


def _shared(scene: Scene, number: int, old: int, own: frozenset[str]) -> dict[str, float]:
    """What the two have in common, and how near they stand."""
    new, before = scene.clauses[number], scene.clauses[old]
    subject = _subject(new, before) if new.about else ""
    echo = (scene.told(number) & scene.told(old)) - own
    last_taken, last = scene.before(new.turn)
    recent = before.turn in (last_taken, new.turn)
    marks = {
        "own": _weight(scene, own),
        "echo": _weight(scene, echo),
        "names_old": any(value.amount == other.amount for value in before.values for other in new.values),
        "recent": recent,
        "next": recent or before.turn == last,
        "frame": _one_frame(new, before, own),
        "chosen": "chooses" in new.signals and scene.taken[number] and scene.is_answer(old),
        "flips": _flips(scene, number, old, own),
        "same_subject": subject == "same",
        "other_subject": subject == "other",
    }
    return {sign: float(holds) for sign, holds in marks.items() if holds}


def _weight(scene: Scene, words: frozenset[str]) -> float:
    return min(OWN_MAX, scene.weight(_whole(words))) if words else 0.0


def _subject(new: Clause, before: Clause) -> str:
    """Whether both say something of one thing, of two, or of two of a kind: `the main job`, `the cleanup job`."""
    if not new.about & (before.words | before.about):
        return "other"
    siblings = new.about & before.about and new.about - before.words and before.about - new.words
    return "other" if siblings else "same"


def _together(
    found: Mapping[str, float], on_subject: bool, alone: bool, points: bool, contrast: bool
) -> dict[str, float]:
    """What signs say only together."""
    matches = "kind" in found or "like_kind" in found
    marks = {
        "no_value": not matches,
        "no_word": not on_subject,
        "stranger": not matches and not on_subject,
        "alone": alone and "kind" in found,
        "taken_both": matches and {"repeated", "old_repeated"} <= found.keys(),
        "bare_contrast": contrast and not _CHANGE_SIGNS & found.keys() and not {"follows", "after"} & found.keys(),
        "calm": matches and not _CHANGE_SIGNS & found.keys(),
        "quiet": not _CHANGE_SIGNS & found.keys(),
        "points": points and "recent" in found and bool({"withdrawal", "withdrawal_near", "removed"} & found.keys()),
        "subject_changed": not matches and "own" in found and bool(_CHANGE_SIGNS & found.keys()),
        "next_then": {"next", "concluded"} <= found.keys(),
        "next_lone": {"next", "lone", "briefly"} <= found.keys(),
        "next_value": matches and {"next", "repeated"} <= found.keys(),
        "moved": "kind" in found and "replacement" in found and bool({"changed", "repeated"} & found.keys()),
        "reversed": "flips" in found and not contrast and bool({"replacement", "withdrawal", "change"} & found.keys()),
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


def _whole(words: frozenset[str]) -> frozenset[str]:
    """Without the characters that stand in longer ones of them."""
    short = [word for word in words if len(word) == 1]
    longer = "".join(word for word in words if len(word) > 1) if short else ""
    return words - {word for word in short if word in longer}
