"""What may be shown at all, before any budget: nothing expired, nothing that the level leaves out, each turn once.

Pure. What is refused here is listed with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Literal

import msgspec

from serve_app.context.costs import Costs, Frame, Line
from serve_app.context.draft import RETRIEVED_TITLE, fact_record, line_of, note_record, standing_record
from serve_app.context.exchanges import Exchange, TurnKey, any_linked, key_of, linked, partition
from serve_app.context.inputs import LEVEL_ZONES, ContextInputs
from serve_app.context.layout import Zone
from serve_app.context.quote import Record, mark_of
from serve_app.core import Fact, Summary, Turn

Reason = Literal["budget", "too_large", "expired", "level", "beyond_window", "cold", "shown"]


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """Something that was given and is not shown: the zone it would have stood in, its id, and why."""

    zone: Zone
    id: str
    reason: Reason


class FactLine(msgspec.Struct, frozen=True):
    """A fact as it is quoted; `stored`, or sent along by the caller. `planned` is its line without the mark."""

    id: str
    stored: bool
    record: Record
    planned: int
    binding: bool = False
    """What a turn said, in place of a fact: these come last, behind those that are sent along."""


class Facts(msgspec.Struct, frozen=True):
    """Lines of one block, preferred ones first, and the mark that none of them contains."""

    lines: tuple[FactLine, ...]
    mark: str


class Found(msgspec.Struct, frozen=True):
    """What retrieval found: exchanges and their lines as quotes, by identity, best first; a mark that no line has."""

    exchanges: dict[int, Exchange]
    lines: dict[int, tuple[Line, ...]]
    mark: str
    frame: Frame


class Candidates(msgspec.Struct, frozen=True):
    """`recent` is newest first, by the last turn of each exchange. An exchange in both is the same object in both."""

    facts: Facts
    summary: Summary | None
    recent: list[Exchange]
    found: Found
    dropped: tuple[Dropped, ...]


def gather(inputs: ContextInputs, costs: Costs) -> Candidates:
    """Sift the inputs. Where a turn is given twice, the one among `turns` counts."""
    zones = LEVEL_ZONES[inputs.degradation.level]
    dropped: list[Dropped] = []
    facts = _live_facts(inputs, costs, dropped)
    summary = _live_summary(inputs, zones, dropped)
    turns = _live_turns("recent", inputs.turns, inputs.now, zones, dropped)
    hits = _live_turns("retrieved", [hit.turn for hit in inputs.hits], inputs.now, zones, dropped)
    partners = {key_of(turn): turn for turn in inputs.partners if not turn.expired(inputs.now)}
    exchange_of = _exchanges({**partners, **hits, **turns})
    recent = list(_each_once([exchange_of[key] for key in turns]).values())
    recent.sort(key=lambda exchange: exchange[-1].seq, reverse=True)
    found = _found(_each_once([exchange_of[key] for key in hits]), inputs.session, costs)
    return Candidates(facts, summary, recent, found, tuple(dropped))


def _exchanges(turns: dict[TurnKey, Turn]) -> dict[TurnKey, Exchange]:
    """The exchange of each turn. Most are alone, and need not be looked for among the others."""
    alone: dict[TurnKey, Exchange] = dict(zip(turns, zip(turns.values(), strict=True), strict=True))
    if not any_linked(turns.values()):
        return alone
    together = partition(sorted(filter(linked, turns.values()), key=attrgetter("seq")))
    return alone | {key_of(turn): exchange for exchange in together for turn in exchange}


def _each_once(exchanges: list[Exchange]) -> dict[int, Exchange]:
    return dict(zip(map(id, exchanges), exchanges, strict=True))


def _found(best_first: dict[int, Exchange], session: str, costs: Costs) -> Found:
    """An exchange stands where the best of its turns stood."""
    lines = {
        key: (line_of(exchange[0], session, costs),)
        if len(exchange) == 1
        else tuple([line_of(turn, session, costs) for turn in exchange])
        for key, exchange in best_first.items()
    }
    mark = mark_of(chain.from_iterable(lines.values()))
    return Found(best_first, lines, mark, costs.frame(RETRIEVED_TITLE, mark))


def _live_facts(inputs: ContextInputs, costs: Costs, dropped: list[Dropped]) -> Facts:
    """What the caller sends along is preferred to what is stored."""
    notes = map(note_record, inputs.notes)
    lines = [FactLine(f"facts[{place}]", False, note, costs.planned(note)) for place, note in enumerate(notes)]
    for fact in sorted(inputs.facts, key=attrgetter("key")):
        if fact.expired(inputs.now):
            dropped.append(Dropped("facts", fact.key, "expired"))
        else:
            lines.append(_fact_line(fact, costs))
    for one in inputs.standing:
        record = standing_record(one)
        lines.append(FactLine(one.turn_id, True, record, costs.planned(record), binding=True))
    return Facts(tuple(lines), mark_of([line.record for line in lines]))


def _fact_line(fact: Fact, costs: Costs) -> FactLine:
    kept = costs.facts.of(fact)
    if kept.source is None:
        record = fact_record(fact)
        kept.planned, kept.source = costs.planned(record), record.source  # the source last: others look at it first
    return FactLine(fact.key, True, Record(kept.source, fact.value), kept.planned)


def _live_summary(inputs: ContextInputs, zones: frozenset[Zone], dropped: list[Dropped]) -> Summary | None:
    summary = inputs.summary
    if summary is None:
        return None
    if "summary" not in zones:
        dropped.append(Dropped("summary", summary_id(summary), "level"))
        return None
    if summary.expires_at <= inputs.now:
        dropped.append(Dropped("summary", summary_id(summary), "expired"))
        return None
    return summary


def summary_id(summary: Summary) -> str:
    """Summaries have no id of their own; the span that they cover names them."""
    return f"summary {summary.first_seq}..{summary.last_seq}"


def _live_turns(
    zone: Zone, turns: Sequence[Turn], now: int, zones: frozenset[Zone], dropped: list[Dropped]
) -> dict[TurnKey, Turn]:
    """By key; of equal keys the first counts."""
    expired = {id(turn) for turn in turns if turn.expires_at is not None and turn.expired(now)}
    if zone not in zones:
        dropped += [Dropped(zone, turn.id, "expired" if id(turn) in expired else "level") for turn in turns]
        return {}
    if expired:
        dropped += [Dropped(zone, turn.id, "expired") for turn in turns if id(turn) in expired]
        turns = [turn for turn in turns if id(turn) not in expired]
    live = dict(zip(map(key_of, turns), turns, strict=True))
    if len(live) < len(turns):
        for turn in reversed(turns):
            live[key_of(turn)] = turn
    return live
