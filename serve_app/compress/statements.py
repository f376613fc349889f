"""Turns as statements: clauses with what they say, read by the cue tables of their language. Pure, linear in text."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from serve_app.compress.cues import DATA, NOTHING, Cues, cues_for, fold
from serve_app.core import Turn
from serve_app.kept import Entry, Kept

CLAUSE_CHARS_MAX = 400
"""A longer run without a border is cut: one endless line must not be all or nothing."""

CLAUSES_A_TURN_MAX = 1_000
"""Of a longer turn the middle is not read for cues: it is plain."""

TURNS_KEPT_MAX = 20_000
"""Turns whose clauses are kept in memory, about 2 kB each."""

VALUES_MAX = 16
"""Values read of one clause."""

PRONOUN = "*"
"""Stands for the person named last."""

Verdict = Literal["active", "superseded", "hypothetical", "third_person", "soft", "question", "small_talk", "plain"]
"""`active` and `superseded` are constraints and what cannot be guessed again; `plain` is anything else that is said."""

SENTENCE_END = re.compile(
    r"[。！？!?…](?![。！？!?…])[”』」）)\"']*"
    r"|(?<=[^\W\d]\w)\.[\"')]*(?=\s)(?<!\b[DM]r\.)(?<!\bM[rs]s\.)(?<!\bSt\.)(?<!\bno\.)(?<!\bNo\.)(?<!\bvs\.)(?<!\bSra\.)(?<!\bSr\.)"
    r"|(?<=[\w)%\"'])\.[\"')]*(?=\s+[A-ZÁÉÍÓÚÑ¿¡])(?<!\b[A-Z]\.)(?<!\b[DM]r\.)(?<!\bM[rs]s\.)(?<!\bSt\.)(?<!\bSra\.)(?<!\bSr\.)"
    r"|[\r\n]+"
)
"""After a CJK stop; after a full stop that follows a word, or anything before a capital; at a line's end."""

_JSON_END = re.compile(r"(?<=[\]}0-9\"el]),(?=\s*[\"{\[])|[\r\n]+")
"""Between members of an object or array."""


SIGNALS = tuple(
    field.name
    for field in msgspec.structs.fields(Cues)
    if field.type == re.Pattern[str] and field.name not in ("clause_end", "figures", "frame", "subject")
)
"""What the cues may say of a clause: the names of their patterns."""

_SIGNALS_OF_USER = tuple(
    name
    for name in SIGNALS
    if name not in ("acknowledged", "changed", "dismissed", "removed", "concludes", "confirm_request")
)

_SAYS = re.compile(r"[^\W_]")

_OF_FIGURES = frozenset(("money", "percent", "size", "duration", "code", "count", "number"))


class Value(NamedTuple):
    """Something that a later statement can replace: 45 of a unit, of a kind."""

    kind: str
    unit: str
    amount: str


class Clause(msgspec.Struct, frozen=True):
    """A part of a sentence, `text[start:end]` of the turn with this number, and what the cues say of it."""

    turn: int
    sentence: int
    """Counted through the conversation."""
    start: int
    end: int
    folded: str
    signals: frozenset[str]
    values: tuple[Value, ...]
    words: frozenset[str]
    who: str
    """Whom it speaks of, where that is somebody else; `PRONOUN` for the one named last."""
    frame: tuple[str, str] = ("", "")
    """The verb of what it tells to do, and the word that its object follows."""
    about: frozenset[str] = frozenset()
    """The content words of its subject, or of the object of what it tells to do."""


class Statement(msgspec.Struct, frozen=True):
    """A verbatim run of clauses of one sentence that are judged alike."""

    turn: int
    """Number of the turn, from 0."""
    start: int
    end: int
    text: str
    """The turn's text from `start` to `end`."""
    sentence: int
    """Counted through the conversation: statements with the same one stood in one sentence."""
    verdict: Verdict
    worth: float
    """To compare statements of one conversation with; higher is kept first."""
    ended_by: int | None = None
    """Number of the turn that replaced or withdrew it."""
    lasting: bool = False
    """It says of itself that it binds beyond this conversation: an allergy, a name, `never`, `from now on`."""

    doubted: bool = False
    """Something later came close to ending it."""

    @property
    def kept(self) -> bool:
        """Whether a summary may say it."""
        return self.verdict not in ("superseded", "hypothetical", "third_person")


def clauses(turns: Sequence[Turn]) -> list[Clause]:
    """All clauses of all turns, in order. Each turn is read by itself, and once."""
    found: list[Clause] = []
    sentence = 0
    for number, turn in enumerate(turns):
        parts = _TURNS.of(turn).clauses
        found += (msgspec.structs.replace(part, turn=number, sentence=sentence + part.sentence) for part in parts)
        sentence += 1 + (parts[-1].sentence if parts else 0)
    return found


def _clauses_of(turn: Turn) -> tuple[Clause, ...]:
    """The clauses of one turn, as if it were the only one."""
    text = turn.text
    data = turn.role == "tool"
    tables = (DATA, *cues_for(text)) if data else cues_for(text)
    spans = [
        (sentence, start, end)
        for sentence, (begin, stop) in enumerate(_sentences(text, data))
        for start, end in _clauses(text, begin, stop, tables[:1] if data else tables)
    ]
    passed = range(CLAUSES_A_TURN_MAX // 2, len(spans) - CLAUSES_A_TURN_MAX // 2)
    names = SIGNALS if turn.role != "user" else _SIGNALS_OF_USER
    return tuple(
        _clause(sentence, text, start, end, () if place in passed else tables, names)
        for place, (sentence, start, end) in enumerate(spans)
    )


class _Read(Entry[Turn]):
    """The clauses of a turn, for as long as it lives."""

    __slots__ = ("clauses",)

    def __init__(self, turn: Turn, gone: Callable[[weakref.ref[Turn]], None]) -> None:
        super().__init__(turn, gone)
        self.clauses = _clauses_of(turn)


_TURNS: Kept[Turn, _Read] = Kept(_Read, TURNS_KEPT_MAX // 2)


def _clause(sentence: int, text: str, start: int, end: int, tables: Sequence[Cues], names: Sequence[str]) -> Clause:
    folded = fold(text[start:end])
    if not _SAYS.search(folded):
        return Clause(0, sentence, start, end, folded, frozenset(), (), frozenset(), "")
    signals = frozenset(name for name in names for cues in tables if getattr(cues, name).search(folded))
    values = tuple(dict.fromkeys(values_of(folded, tables)))[:VALUES_MAX]
    words: frozenset[str] = frozenset().union(*(cues.words(folded) for cues in tables))
    who, frame, about = _who(folded, tables, signals), _frame(folded, tables), _about(folded, tables)
    return Clause(0, sentence, start, end, folded, signals, values, words, who, frame, about)


def _who(folded: str, tables: Sequence[Cues], signals: frozenset[str]) -> str:
    for found in (cues.person.search(folded) for cues in tables):
        if found is not None:
            return found["who"] or (PRONOUN if found["pronoun"] else "")
    plain = [cues for cues in tables if cues.person is NOTHING] if "third_person" in signals else []
    others = (cues.third_person.search(folded) for cues in plain)
    return next((found.groupdict().get("who") or found[0] for found in others if found), "")


def _frame(folded: str, tables: Sequence[Cues]) -> tuple[str, str]:
    found = next((found for cues in tables if (found := cues.frame.search(folded))), None)
    return (found["verb"], found["where"] or "") if found else ("", "")


def _about(folded: str, tables: Sequence[Cues]) -> frozenset[str]:
    for cues in tables:
        found = cues.subject.search(folded)
        if found is not None:
            return cues.words(found["about"] or found["object"])
    return frozenset()


def values_of(folded: str, tables: Sequence[Cues]) -> Iterator[Value]:
    """The values of folded text; of overlapping ones the first in the order of the tables, bare numbers last."""
    taken: list[tuple[int, int]] = []
    for bare in (False, True):
        for cues in tables:
            figures = cues.figures.search(folded) is not None
            for kind, pattern in cues.values:
                if (kind == "number") != bare or (not figures and kind in _OF_FIGURES):
                    continue
                yield from _found(folded, cues, kind, pattern, taken)


def _found(
    folded: str, cues: Cues, kind: str, pattern: re.Pattern[str], taken: list[tuple[int, int]]
) -> Iterator[Value]:
    for found in pattern.finditer(folded):
        if any(start < found.end() and found.start() < end for start, end in taken):
            continue
        taken.append(found.span())
        groups = found.groupdict()
        unit = (groups.get("unit") or "").strip()
        amount = cues.number(groups.get("n") or found[0])
        named = cues.units.get(unit) or " ".join(cues.units.get(word, word) for word in unit.split())
        named = f"{named} {groups.get('dim') or ''}".strip()
        yield Value(kind or found.lastgroup or "", named, amount)


def _sentences(text: str, data: bool) -> Iterator[tuple[int, int]]:
    return _parts(text, 0, len(text), _JSON_END if data and text.lstrip()[:1] in ("{", "[") else SENTENCE_END)


def _clauses(text: str, start: int, end: int, tables: Sequence[Cues]) -> Iterator[tuple[int, int]]:
    borders = sorted({found.end() for cues in tables for found in cues.clause_end.finditer(text, start, end)} | {end})
    for border in borders:
        yield from _trimmed(text, start, border)
        start = border


def _parts(text: str, start: int, end: int, border: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    for found in border.finditer(text, start, end):
        yield from _trimmed(text, start, found.end())
        start = found.end()
    yield from _trimmed(text, start, end)


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The span without white space around it, nothing where nothing is left; in parts where it is too long."""
    part = text[start:end]
    start += len(part) - len(part.lstrip())
    end = start + len(part.strip())
    while end - start > CLAUSE_CHARS_MAX:
        gap = text.rfind(" ", start + CLAUSE_CHARS_MAX // 2, start + CLAUSE_CHARS_MAX)
        cut = gap if gap > 0 else start + CLAUSE_CHARS_MAX
        yield start, cut
        start = cut + 1 if gap > 0 else cut
    if start < end:
        yield start, end
