"""The gate of a compressor: the same conversations are summed up by the one in force and by the new one.

What counts is what binds: how much of it still stands in the summaries, of packaged dialogues and of the store's own
sessions. Beside that a summary must be no longer than it may be, and the same each time; how long it takes, how much it
costs and which golden turns a context still shows by it is told. Promises that nothing but numbers is left.
"""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec
import numpy as np

from serve_app.compress.compressor import Compressed, Compressor
from serve_app.compress.retention import SHARE, held_out, kept_in, turns_of
from serve_app.context.inputs import ContextInputs
from serve_app.context.layout import DEFAULT_LAYOUT
from serve_app.context.window import build_context
from serve_app.core import NEVER, Turn
from serve_app.drift import distance
from serve_app.errors import SummariserFailed
from serve_app.memory.apart import CompressorApart
from serve_app.memory.compressors import Compressors
from serve_app.memory.making import summary_of
from serve_app.migrate.in_force import named
from serve_app.migrate.record import Gate, Migration, State, Terms
from serve_app.migrate.report import NO_FIGURE, Table
from serve_app.migrate.sessions import Sampling, Session
from serve_app.observe.costs import HOUR_S, MILLION, PriceOptions
from serve_app.ports import Tokenizer
from serve_app.routing import drawn
from serve_app.stores.golden_file import GoldenFiles
from serve_app.write.commit import ShardWriter

TARGET_TOKENS: Final = 600
"""What a summary of a session of the store may take at most."""

CONTEXT_TOKENS: Final = 1_000
"""Of the contexts in which golden turns are looked for."""

BOUND_MIN: Final = 20
"""So many things must bind in the store's own sessions, and so many golden queries be asked, to say something."""

DRIFT_MAX: Final = 0.0
"""Of two summaries of one conversation by one compressor, with nothing remembered."""

DEGRADED_MORE: Final = 0.05
"""So many more of the new one's summaries may lack the help of its models, of all that were made."""

REST_SHARE: Final = 1.0
REST_S_MAX: Final = 2.0
"""After each conversation it rests as long as that took, so that requests have the machine."""

DEADLINE_S: Final = 60.0
DIGITS: Final = 4

Verdict = Literal["passed", "failed", "undecided"]


class Side(msgspec.Struct, frozen=True):
    """One compressor over all conversations. Shares are 0 to 1."""

    name: str
    retention: float
    """Of what must be kept of the packaged dialogues."""
    standing: float | None
    """Of what binds in the store's own sessions; None where nothing does."""
    shown: float | None
    """Of golden queries: a turn that answers stands in a context that has the summary and nothing retrieved."""
    drift: float
    """The most that two summaries of one conversation differ, 0 to 1."""
    over_target: int
    degraded: int
    """Summaries that its models did not help with."""
    tokens_p50: float
    tokens_p95: float
    ms_p50: float
    ms_p95: float
    cost: float
    """Of a thousand summaries like these, by `[prices]`; seconds where there are none."""


class CompressorFigures(msgspec.Struct, frozen=True):
    """All of one gate: numbers, no text and no user."""

    base: Side
    target: Side
    apart: float
    """How far the summaries of the two lie from each other, 0 to 1, in the mean."""
    dialogues: int
    sessions: int
    bound: int
    """Things that bind in the packaged dialogues, and in the sessions."""
    bound_own: int
    golden: int
    seconds: float


@dataclass
class _Tally:
    """What one compressor has done so far."""

    compressor: Compressor | CompressorApart
    kept: int = 0
    standing: int = 0
    shown: int = 0
    over: int = 0
    degraded: int = 0
    read: int = 0
    drift: float = 0.0
    tokens: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


class CompressorGates:
    """Blocking: called on a thread that may take minutes. See `switching.Gates`."""

    def __init__(
        self,
        compressors: Compressors,
        sampling: Sampling,
        tokenizer: Tokenizer,
        clock: Callable[[], int],
        prices: PriceOptions = PriceOptions(),  # noqa: B008 - frozen
        rest_share: float = REST_SHARE,
    ) -> None:
        self._compressors = compressors
        self._sampling = sampling
        self._tokenizer = tokenizer
        self._clock = clock
        self._prices = prices
        self._rest_share = rest_share

    def of(self, migration: Migration, state: State, stopped: Callable[[], bool] = lambda: False) -> Gate | None:
        """What both make of the same; None where it was stopped. In `canary` the sessions are of the share's users."""
        share = migration.terms.canary_share

        def among(owner: str) -> bool:
            return state != "canary" or drawn(migration.id, owner) < share

        try:
            made = self._compared(migration, self._sampling.sessions(migration.id, among), stopped)
        except SummariserFailed as error:
            return Gate(state, "undecided", self._clock(), (f"a summary could not be made: {error}",))
        if made is None:
            return None
        verdict, reasons = decided(made, migration.terms)
        figures = msgspec.to_builtins(made) | {"tables": [msgspec.to_builtins(told_as_table(made))]}
        return Gate(state, verdict, self._clock(), reasons, figures)

    def _compared(
        self, migration: Migration, sessions: Iterator[Session], stopped: Callable[[], bool]
    ) -> CompressorFigures | None:
        began = time.monotonic()
        base, target = (self._tally(migration, options) for options in (migration.was, migration.options))
        apart: list[float] = []
        bound = own = asked = count = 0
        for dialogue in held_out():
            if stopped():
                return None
            turns = turns_of(dialogue)
            with_rest = time.monotonic()
            texts = [self._made(one, turns, self._target(turns)).text for one in (base, target)]
            for one, text in zip((base, target), texts, strict=True):
                one.kept += kept_in(text, dialogue).kept
            bound += len(dialogue.must_keep)
            apart.append(distance(*texts))
            self._rest(with_rest)
        for session in sessions:
            if stopped():
                return None
            with_rest = time.monotonic()
            apart.append(self._of_session(session, base, target))
            count, own, asked = count + 1, own + len(session.binding), asked + len(session.questions)
            self._rest(with_rest)
        return CompressorFigures(
            base=self._side(base, migration.was_names, bound, own, asked),
            target=self._side(target, migration.names, bound, own, asked),
            apart=round(float(np.mean(apart)), DIGITS),
            dialogues=len(held_out()),
            sessions=count,
            bound=bound,
            bound_own=own,
            golden=asked,
            seconds=round(time.monotonic() - began, 3),
        )

    def _tally(self, migration: Migration, options: Mapping[str, object]) -> _Tally:
        return _Tally(self._compressors.named(named("compressor", options)).making)

    def _of_session(self, session: Session, base: _Tally, target: _Tally) -> float:
        texts = []
        for one in (base, target):
            made = self._made(one, session.turns, self._target(session.turns))
            folded = _folded(made.text)
            one.standing += sum(_folded(text) in folded for text in session.binding)
            summary = summary_of(made, session.turns[0].session, one.compressor.version, session.now, NEVER)
            for question in session.questions:
                inputs = ContextInputs(
                    session=summary.session,
                    query=question.text,
                    budget_tokens=CONTEXT_TOKENS,
                    now=session.now,
                    turns=tuple(session.turns),
                    summary=summary if made.text else None,
                    format="text",
                )
                shown = _folded(build_context(inputs, DEFAULT_LAYOUT, self._tokenizer).text or "")
                gold = (turn for turn in session.turns if turn.seq in question.gold)
                one.shown += any(_folded(turn.text) in shown for turn in gold)
            texts.append(made.text)
        return distance(*texts)

    def _made(self, one: _Tally, turns: Sequence[Turn], target: int) -> Compressed:
        """Twice, with nothing remembered: the first counts. Raises SummariserFailed."""
        began = time.monotonic()
        made = one.compressor.afresh().compress(turns, target, self._tokenizer, DEADLINE_S)
        one.seconds.append(time.monotonic() - began)
        again = one.compressor.afresh().compress(turns, target, self._tokenizer, DEADLINE_S)
        if not made.reasons and not again.reasons:
            one.drift = max(one.drift, distance(made.text, again.text))
        one.degraded += bool(made.reasons)
        one.over += self._tokenizer.count(made.text) > target
        one.tokens.append(made.tokens)
        one.read += sum(self._tokenizer.count(turn.text) for turn in turns)
        return made

    def _target(self, turns: Sequence[Turn]) -> int:
        return max(1, min(TARGET_TOKENS, round(SHARE * sum(self._tokenizer.count(turn.text) for turn in turns))))

    def _rest(self, began: float) -> None:
        time.sleep(min(REST_S_MAX, self._rest_share * (time.monotonic() - began)))

    def _side(self, one: _Tally, names: Sequence[str], bound: int, own: int, asked: int) -> Side:
        tokens, ms = np.quantile(one.tokens, [0.5, 0.95]), 1e3 * np.quantile(one.seconds, [0.5, 0.95])
        return Side(
            name="+".join(names),
            retention=round(one.kept / bound, DIGITS),
            standing=round(one.standing / own, DIGITS) if own else None,
            shown=round(one.shown / asked, DIGITS) if asked else None,
            drift=round(one.drift, DIGITS),
            over_target=one.over,
            degraded=one.degraded,
            tokens_p50=round(float(tokens[0]), 1),
            tokens_p95=round(float(tokens[1]), 1),
            ms_p50=round(float(ms[0]), 3),
            ms_p95=round(float(ms[1]), 3),
            cost=round(self._cost(one), DIGITS),
        )

    def _cost(self, one: _Tally) -> float:
        """Of a thousand."""
        seconds, tokens, count = sum(one.seconds), one.read + sum(one.tokens), len(one.seconds)
        if self._prices.free:
            return 1_000 * seconds / count
        by_time = self._prices.per_hour.get("compress", 0.0) * seconds / HOUR_S
        return 1_000 * (by_time + self._prices.per_million_tokens.get("compress", 0.0) * tokens / MILLION) / count


def decided(made: CompressorFigures, terms: Terms) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict by the terms, and why, worst first. Pure."""
    base, target = made.base, made.target
    failures = [
        *_lost("what must be kept of packaged dialogues", base.retention, target.retention, terms.loss, made.bound),
        *_lost("what binds in sessions of the store", base.standing, target.standing, terms.loss, made.bound_own),
        *_lost("golden turns in contexts", base.shown, target.shown, terms.tenant_loss, made.golden),
    ]
    if target.over_target:
        failures.append(f"{target.over_target} summaries are longer than they may be")
    if target.drift > DRIFT_MAX:
        failures.append(f"two summaries of one conversation differ by {target.drift:.3f}")
    if failures:
        return "failed", tuple(failures)
    made_in_all = made.dialogues + made.sessions
    if target.degraded - base.degraded > DEGRADED_MORE * made_in_all:
        return "undecided", (f"{target.degraded} of {made_in_all} summaries were made without its models",)
    return "passed", (_told("what must be kept of packaged dialogues", base.retention, target.retention, made.bound),)


def told_as_table(made: CompressorFigures) -> Table:
    """For the report. Pure."""
    shown = (
        (f"Kept of what must be, {made.dialogues} dialogues ({made.bound})", "retention"),
        (f"Standing of what binds, {made.sessions} sessions ({made.bound_own})", "standing"),
        (f"Golden turns in contexts ({made.golden})", "shown"),
        ("Most that two summaries of one conversation differ", "drift"),
        ("Longer than they may be", "over_target"),
        ("Made without models that were asked", "degraded"),
        ("Tokens, p50", "tokens_p50"),
        ("Tokens, p95", "tokens_p95"),
        ("Milliseconds, p50", "ms_p50"),
        ("Milliseconds, p95", "ms_p95"),
        ("Cost of a thousand, by [prices], else seconds", "cost"),
    )
    rows = tuple((title, *(_cell(getattr(side, name)) for side in (made.base, made.target))) for title, name in shown)
    note = f"base: {made.base.name}; target: {made.target.name}; the two differ by {made.apart:.3f} in the mean"
    return Table("Summaries", ("", "base", "target"), rows, note)


def _cell(value: float | None) -> str:
    return NO_FIGURE if value is None else f"{value:g}"


def _lost(what: str, base: float | None, target: float | None, loss: float, of: int) -> list[str]:
    if base is None or target is None or of < BOUND_MIN or target >= base - loss:
        return []
    return [f"{_told(what, base, target, of)}: more than the {loss:.3f} allowed is lost"]


def _told(what: str, base: float, target: float, of: int) -> str:
    return f"{what}: {target:.3f} against {base:.3f} (of {of})"


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def open_compressor_gates(
    compressors: Compressors,
    writers: Sequence[ShardWriter],
    golden: GoldenFiles,
    tokenizer: Tokenizer,
    clock: Callable[[], int],
    prices: PriceOptions,
) -> CompressorGates:
    """Those of a service."""
    return CompressorGates(compressors, Sampling(writers, golden, clock), tokenizer, clock, prices)
