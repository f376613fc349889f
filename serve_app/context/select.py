"""Chooses what stands in a context: shares first, then what is left over goes to recent, retrieved and summary.

Pure. Costs here are plans, counted piece by piece; `window` measures the rendered page and asks again
with fewer tokens where joining the pieces cost more.

    facts      own share, and what the system text leaves of its share: so this choice, and with it the
               beginning that prompt caches hold, depends on neither turns nor query
    summary    whole, or the best of its lines, or not at all
    recent     newest first, no gap: ends at the first exchange that does not fit
    retrieved  best first, whatever fits
"""

from __future__ import annotations

from collections.abc import Callable, Container

import msgspec

from serve_app.context import draft, quote
from serve_app.context.candidates import Candidates, Dropped, FactLine, Facts, Found, Reason, summary_id
from serve_app.context.exchanges import Exchange, TurnKey, key_of
from serve_app.context.layout import Layout, shrunk
from serve_app.context.shorten import shortened, summary_tokens, without_quotes
from serve_app.context.tokens import MESSAGE_OVERHEAD_TOKENS
from serve_app.core import Summary
from serve_app.ports import Tokenizer

Cost = Callable[[Exchange], int]


class Room(msgspec.Struct, frozen=True):
    """Tokens to plan with: the request's budget, what is left of it beside system and query, and what those take."""

    budget: int
    free: int
    system: int
    recent_overhead: int = 0
    """What the format adds to each message of the conversation beyond the planned cost."""


class Selection(msgspec.Struct, frozen=True):
    """What is shown, in reading order, and what is not."""

    facts: tuple[FactLine, ...] = ()
    summary: Summary | None = None
    recent: tuple[Exchange, ...] = ()
    retrieved: tuple[Exchange, ...] = ()
    dropped: tuple[Dropped, ...] = ()


def select(candidates: Candidates, room: Room, layout: Layout, tokenizer: Tokenizer, session: str) -> Selection:
    """The best selection that is planned to fit `room.free`."""
    budgets = layout.budgets(room.budget)
    facts, facts_tokens = _choose_facts(
        candidates.facts, min(room.free, budgets["facts"] + max(0, budgets["system"] - room.system)), tokenizer
    )
    shares = shrunk({zone: budgets[zone] for zone in ("summary", "retrieved", "recent")}, room.free - facts_tokens)
    left = room.free - facts_tokens - sum(shares.values())

    at_least = summary_tokens(shortened(candidates.summary, shares["summary"], tokenizer), tokenizer)
    left += shares["summary"] - at_least

    recent = _RecentWalk(candidates.recent, _recent_cost(session, room.recent_overhead, tokenizer))
    found = _FoundWalk(candidates.found, tokenizer)
    left += shares["recent"] - recent.extend(shares["recent"])
    left += shares["retrieved"] - found.extend(shares["retrieved"], recent.taken)
    left = _lend_to_recent(recent, found, left)
    left -= found.extend(left, recent.taken)

    left += at_least  # what the summary need not say, because its turns stand here themselves, goes to retrieved
    new = without_quotes(candidates.summary, _standing(recent, found, session))
    left -= found.extend(left - summary_tokens(shortened(new, left, tokenizer), tokenizer), recent.taken)
    new = without_quotes(candidates.summary, _standing(recent, found, session))
    shown = shortened(new, left, tokenizer)
    dropped = [
        *_dropped_facts(candidates.facts, facts),
        *_dropped_summary(candidates.summary, new, shown),
        *found.dropped(recent.taken, room.free),
        *recent.dropped(found.taken, shown, session),
    ]
    return Selection(facts, shown, recent.in_order(), found.in_order(), tuple(dropped))


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

    def __init__(self, newest_first: tuple[Exchange, ...], cost: Cost) -> None:
        self._exchanges = newest_first
        self._cost = cost
        self._next = 0
        self._used = 0
        self._oversize: set[TurnKey] = set()
        self.taken: dict[TurnKey, Exchange] = {}

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
                self.taken[key_of(exchange[0])] = exchange
            elif borrowing and cost > self._used + tokens:
                self._oversize.add(key_of(exchange[0]))
            else:
                break
            self._next += 1
        self._used += spent
        return spent

    def in_order(self) -> tuple[Exchange, ...]:
        return tuple(sorted(self.taken.values(), key=lambda exchange: exchange[0].seq))

    def dropped(self, elsewhere: Container[TurnKey], summary: Summary | None, session: str) -> list[Dropped]:
        """Turns that stand neither here, nor elsewhere, nor in the span of the summary; oldest first."""
        first, last = (summary.first_seq, summary.last_seq) if summary else (0, -1)
        dropped = []
        for exchange in reversed(self._exchanges):
            key = key_of(exchange[0])
            if key in self.taken or key in elsewhere:
                continue
            reason: Reason = "too_large" if key in self._oversize else "budget"
            dropped += [
                Dropped("recent", turn.id, reason)
                for turn in exchange
                if not (first <= turn.seq <= last and turn.session == session)
            ]
        return dropped


class _FoundWalk:
    """Goes through what was found, best first, taking whatever fits. The block's frame is paid with the first."""

    def __init__(self, found: Found, tokenizer: Tokenizer) -> None:
        self._found = found
        self._tokenizer = tokenizer
        self._costs: dict[TurnKey, int] = {}
        self._frame = _frame_tokens(draft.RETRIEVED_TITLE, found.mark, tokenizer)
        self.taken: dict[TurnKey, Exchange] = {}

    def extend(self, tokens: int, shown: Container[TurnKey]) -> int:
        """Take what fits into `tokens` more and is not shown already; gives what that costs."""
        spent = 0
        for exchange in self._found.exchanges:
            key = key_of(exchange[0])
            if key in shown or key in self.taken:
                continue
            cost = self._cost(exchange) + (0 if self.taken else self._frame)
            if spent + cost <= tokens:
                spent += cost
                self.taken[key] = exchange
        return spent

    def release(self, shown: Container[TurnKey]) -> int:
        """Give up what is shown elsewhere; gives the tokens that this sets free."""
        moved = [key for key in self.taken if key in shown]
        freed = sum(self._cost(self.taken.pop(key)) for key in moved)
        return freed + (self._frame if moved and not self.taken else 0)

    def in_order(self) -> tuple[Exchange, ...]:
        return tuple(sorted(self.taken.values(), key=lambda exchange: (exchange[0].created_at, exchange[0].seq)))

    def dropped(self, shown: Container[TurnKey], largest: int) -> list[Dropped]:
        """Turns found and shown nowhere, best first; more than `largest` tokens could never be shown."""
        dropped = []
        for exchange in self._found.exchanges:
            key = key_of(exchange[0])
            if key not in shown and key not in self.taken:
                reason: Reason = "too_large" if self._cost(exchange) + self._frame > largest else "budget"
                dropped += [Dropped("retrieved", turn.id, reason) for turn in exchange]
        return dropped

    def _cost(self, exchange: Exchange) -> int:
        key = key_of(exchange[0])
        if key not in self._costs:
            records = (self._found.records[key_of(turn)] for turn in exchange)
            self._costs[key] = sum(_record_tokens(record, self._found.mark, self._tokenizer) for record in records)
        return self._costs[key]


def _recent_cost(session: str, overhead: int, tokenizer: Tokenizer) -> Cost:
    def cost(exchange: Exchange) -> int:
        pieces = draft.conversation(exchange, session)
        return sum(overhead + draft.piece_tokens(piece, tokenizer) for piece in pieces)

    return cost


def _choose_facts(facts: Facts, tokens: int, tokenizer: Tokenizer) -> tuple[tuple[FactLine, ...], int]:
    """Facts that fit, preferred ones first; given in reading order, stored before sent along. And what they cost."""
    spent = _frame_tokens(draft.FACTS_TITLE, facts.mark, tokenizer)
    chosen: list[FactLine] = []
    for line in facts.lines:
        cost = _record_tokens(line.record, facts.mark, tokenizer)
        if spent + cost <= tokens:
            spent += cost
            chosen.append(line)
    return tuple(sorted(chosen, key=lambda line: not line.stored)), spent if chosen else 0


def _dropped_facts(facts: Facts, chosen: tuple[FactLine, ...]) -> list[Dropped]:
    shown = {(line.stored, line.id) for line in chosen}
    return [Dropped("facts", line.id, "budget") for line in facts.lines if (line.stored, line.id) not in shown]


def _standing(recent: _RecentWalk, found: _FoundWalk, session: str) -> set[int]:
    """Seqs of the session's turns that are shown themselves."""
    exchanges = (*recent.in_order(), *found.in_order())
    return {turn.seq for exchange in exchanges for turn in exchange if turn.session == session}


def _dropped_summary(summary: Summary | None, new: Summary | None, shown: Summary | None) -> list[Dropped]:
    """`new` is what of the summary does not stand in the context anyway."""
    if summary is None or shown is not None:
        return []
    return [Dropped("summary", summary_id(summary), "budget" if new else "shown")]


def _record_tokens(record: quote.Record, mark: str, tokenizer: Tokenizer) -> int:
    """A line of a block; the text is counted apart, since its count is likely to be remembered."""
    return tokenizer.count(quote.lead(record, mark)) + tokenizer.count(record.text) + 1


def _frame_tokens(title: str, mark: str, tokenizer: Tokenizer) -> int:
    first, last = quote.frame(title, mark)
    return MESSAGE_OVERHEAD_TOKENS + tokenizer.count(first) + tokenizer.count(last)
