"""Chooses what stands in a context: shares first, then what is left over goes to recent, retrieved and summary; to
retrieved before recent where the best that was found does not stand in recent anyway.

Pure. Costs here are plans, counted piece by piece; `window` measures the rendered page and asks again
with fewer tokens where joining the pieces cost more.

    facts      own share, and what the system text leaves of its share: so this choice, and with it the
               beginning that prompt caches hold, depends on neither turns nor query
    summary    whole, or the best of its lines, or not at all
    recent     newest first, no gap: ends at the first exchange that does not fit
    retrieved  best first, whatever fits
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import chain

import msgspec

from serve_app.context import draft
from serve_app.context.candidates import Candidates, Dropped, FactLine, Facts, Found, summary_id
from serve_app.context.costs import Costs, Line
from serve_app.context.draft import Piece
from serve_app.context.exchanges import Exchange
from serve_app.context.layout import Layout, shrunk
from serve_app.context.shorten import Excerpt, Excerpts
from serve_app.context.tokens import MESSAGE_OVERHEAD_TOKENS
from serve_app.core import Summary


class Room(msgspec.Struct, frozen=True):
    """Tokens to plan with: the request's budget, what is left of it beside system and query, and what those take."""

    budget: int
    free: int
    system: int
    recent_overhead: int = 0
    """What the format adds to each message of the conversation beyond the planned cost."""


class Selection(msgspec.Struct, frozen=True):
    """What is shown, in reading order, and what is not; of summary and recent the pieces, of retrieved the lines."""

    facts: tuple[FactLine, ...] = ()
    summary: Summary | None = None
    summary_piece: Piece | None = None
    recent: tuple[Exchange, ...] = ()
    said: tuple[Piece, ...] = ()
    retrieved: tuple[Exchange, ...] = ()
    quoted: tuple[Line, ...] = ()
    dropped: tuple[Dropped, ...] = ()


def select(candidates: Candidates, room: Room, layout: Layout, costs: Costs, session: str) -> Selection:
    """The best selection that is planned to fit `room.free`."""
    budgets = layout.budgets(room.budget)
    facts, facts_tokens = _choose_facts(
        candidates.facts, min(room.free, budgets["facts"] + max(0, budgets["system"] - room.system)), costs
    )
    shares = shrunk({zone: budgets[zone] for zone in ("summary", "retrieved", "recent")}, room.free - facts_tokens)
    left = room.free - facts_tokens - sum(shares.values())

    summary = Excerpts(candidates.summary, costs) if candidates.summary else None
    at_least = summary.least(shares["summary"]) if summary else 0
    left += shares["summary"] - at_least

    recent = _RecentWalk(candidates.recent, session, room.recent_overhead, costs)
    found = _FoundWalk(candidates.found)
    left += shares["recent"] - recent.extend(shares["recent"])
    left += shares["retrieved"] - found.extend(shares["retrieved"], recent.taken)
    if found.answers_elsewhere(recent.taken):
        left -= found.extend(left, recent.taken)
    left = _lend_to_recent(recent, found, left)
    left -= found.extend(left, recent.taken)

    left += at_least  # what the summary need not say, because its turns stand here themselves, goes to retrieved
    new, excerpt = _rest_of(summary, recent, found, left, session)
    if spent := found.extend(left - (excerpt.tokens if excerpt else 0), recent.taken):
        left -= spent
        new, excerpt = _rest_of(summary, recent, found, left, session)
    shown = summary.summary(excerpt) if summary and excerpt else None
    recents, retrieved = recent.in_order(), found.in_order()
    dropped = (
        *_dropped_facts(candidates.facts, facts),
        *_dropped_summary(candidates.summary, new, shown),
        *found.dropped(recent.taken, room.free),
        *recent.dropped(found.taken, shown, session),
    )
    return Selection(
        facts=facts,
        summary=shown,
        summary_piece=excerpt.piece if excerpt else None,
        recent=recents,
        said=recent.said(recents),
        retrieved=retrieved,
        quoted=found.lines(retrieved),
        dropped=dropped,
    )


def _rest_of(
    summary: Excerpts | None, recent: _RecentWalk, found: _FoundWalk, tokens: int, session: str
) -> tuple[Excerpt | None, Excerpt | None]:
    """What of the summary does not stand in the context anyway, and what of that fits."""
    if summary is None:
        return None, None
    standing = chain.from_iterable((*recent.taken.values(), *found.taken.values()))
    new = summary.without({turn.seq for turn in standing if turn.session == session})
    return new, summary.within(new, tokens)


def _lend_to_recent(recent: _RecentWalk, found: _FoundWalk, left: int) -> int:
    """Let recent grow into what is left over; a retrieved turn that it reaches moves there. Gives what is left then."""
    while True:
        left -= recent.extend(left, borrowing=True)
        refund = found.release(recent.taken)
        if refund == 0:
            return left
        left += refund


class _RecentWalk:
    """Goes back from the newest exchange, taking each, and rests at the first that does not fit."""

    def __init__(self, newest_first: Sequence[Exchange], session: str, overhead: int, costs: Costs) -> None:
        self._exchanges = newest_first
        self._session = session
        self._overhead = overhead
        self._costs = costs
        self._next = 0
        self._used = 0
        self._oversize: set[int] = set()
        self._pieces: dict[int, tuple[Piece, ...]] = {}
        self.taken: dict[int, Exchange] = {}
        """By the identity of the exchange."""

    def extend(self, tokens: int, borrowing: bool = False) -> int:
        """Take what fits into `tokens` more; gives what that costs.

        With nothing left to borrow after `tokens`, an exchange that recent could not show even alone is
        passed over, so that one huge turn does not hide the whole conversation.
        """
        spent = 0
        while self._next < len(self._exchanges):
            exchange = self._exchanges[self._next]
            cost = self._cost(exchange)
            if spent + cost <= tokens:
                spent += cost
                self.taken[id(exchange)] = exchange
            elif borrowing and cost > self._used + tokens:
                self._oversize.add(id(exchange))
            else:
                break
            self._next += 1
        self._used += spent
        return spent

    def in_order(self) -> tuple[Exchange, ...]:
        return tuple(sorted(self.taken.values(), key=lambda exchange: exchange[0].seq))

    def said(self, exchanges: Iterable[Exchange]) -> tuple[Piece, ...]:
        """Those, of the taken, as messages."""
        return tuple([piece for exchange in exchanges for piece in self._pieces[id(exchange)]])

    def dropped(self, elsewhere: Container[int], summary: Summary | None, session: str) -> list[Dropped]:
        """Turns that stand neither here, nor elsewhere, nor in the span of the summary; oldest first."""
        first, last = (summary.first_seq, summary.last_seq) if summary else (0, -1)
        return [
            Dropped("recent", turn.id, "too_large" if id(exchange) in self._oversize else "budget")
            for exchange in reversed(self._exchanges)
            if id(exchange) not in self.taken and id(exchange) not in elsewhere
            for turn in exchange
            if not (first <= turn.seq <= last and turn.session == session)
        ]

    def _cost(self, exchange: Exchange) -> int:
        pieces = self._pieces.get(id(exchange))
        if pieces is None:
            pieces = self._pieces[id(exchange)] = draft.conversation(exchange, self._session, self._costs)
        if len(pieces) == 1 and pieces[0].tokens is not None:
            return self._overhead + MESSAGE_OVERHEAD_TOKENS + pieces[0].tokens
        return sum([self._overhead + draft.piece_tokens(piece, self._costs.tokenizer) for piece in pieces])


class _FoundWalk:
    """Goes through what was found, best first, taking whatever fits. The block's frame is paid with the first."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self._frame = found.frame.message
        lead = found.frame.lead
        self._costs = {
            key: lines[0].planned + lead if len(lines) == 1 else sum([line.planned + lead for line in lines])
            for key, lines in found.lines.items()
        }
        self.taken: dict[int, Exchange] = {}
        """By the identity of the exchange."""

    def answers_elsewhere(self, shown: Container[int]) -> bool:
        """Whether the best that was found is not shown already: then what is asked for was not said just now."""
        best = next(iter(self._costs), None)
        return best is not None and best not in shown

    def extend(self, tokens: int, shown: Container[int]) -> int:
        """Take what fits into `tokens` more and is not shown already; gives what that costs."""
        spent, room = 0, tokens if self.taken else tokens - self._frame
        for key, cost in self._costs.items():
            if cost <= room and key not in shown and key not in self.taken:
                spent += cost if self.taken else cost + self._frame
                room -= cost
                self.taken[key] = self._found.exchanges[key]
        return spent

    def release(self, shown: Container[int]) -> int:
        """Give up what is shown elsewhere; gives the tokens that this sets free."""
        moved = [key for key in self.taken if key in shown]
        for key in moved:
            del self.taken[key]
        return sum([self._costs[key] for key in moved]) + (self._frame if moved and not self.taken else 0)

    def in_order(self) -> tuple[Exchange, ...]:
        return tuple(sorted(self.taken.values(), key=lambda exchange: (exchange[0].created_at, exchange[0].seq)))

    def lines(self, exchanges: Iterable[Exchange]) -> tuple[Line, ...]:
        return tuple(chain.from_iterable([self._found.lines[id(exchange)] for exchange in exchanges]))

    def dropped(self, shown: Container[int], largest: int) -> list[Dropped]:
        """Turns found and shown nowhere, best first; more than `largest` tokens could never be shown."""
        largest -= self._frame
        return [
            Dropped("retrieved", turn.id, "too_large" if self._costs[key] > largest else "budget")
            for key, exchange in self._found.exchanges.items()
            if key not in shown and key not in self.taken
            for turn in exchange
        ]


def _choose_facts(facts: Facts, tokens: int, costs: Costs) -> tuple[tuple[FactLine, ...], int]:
    """Facts that fit, preferred ones first; given in reading order, stored before sent along. And what they cost."""
    if not facts.lines:
        return (), 0
    frame = costs.frame(draft.FACTS_TITLE, facts.mark)
    spent = frame.message
    chosen: list[FactLine] = []
    for line in facts.lines:
        cost = frame.lead + line.planned
        if spent + cost <= tokens:
            spent += cost
            chosen.append(line)
    return tuple(sorted(chosen, key=lambda line: (line.binding, not line.stored))), spent if chosen else 0


def _dropped_facts(facts: Facts, chosen: tuple[FactLine, ...]) -> list[Dropped]:
    shown = set(map(id, chosen))
    return [Dropped("facts", line.id, "budget") for line in facts.lines if id(line) not in shown]


def _dropped_summary(summary: Summary | None, new: Excerpt | None, shown: Summary | None) -> list[Dropped]:
    """`new` is what of the summary does not stand in the context anyway."""
    if summary is None or shown is not None:
        return []
    return [Dropped("summary", summary_id(summary), "budget" if new else "shown")]
