"""What a query asks for, in words that stand alone: resolved from what was said last, with the time that it names.

Rules read every query. A context goes by them alone: what they find is a pure function of the query, its moment and
the state of its session. A search's query is read by a model, too, where one is configured, with what the tenant's
policy covers taken out of it, and the model's words count; without an answer in time those of the rules do. A window
that rules are certain of stays: dates are what models reckon worst.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from serve_app.core import SECOND_US, TimeWindow, Turn
from serve_app.errors import ExpanderFailed, StorageTrouble
from serve_app.memory.reading import last_said, living, seq_asked
from serve_app.memory.requests import Asked, ContextRequest, SearchRequest
from serve_app.policies import Policies, PrivacyPolicy
from serve_app.ports import AskedQuery, Expander
from serve_app.privacy.redact import redact
from serve_app.retrieve.expand import continues, is_elliptic, keywords, rewritten
from serve_app.retrieve.when import asked_at, read_window
from serve_app.stores.block import Block
from serve_app.write.shard import Shard

HISTORY_TURNS = 4
"""Last turns of a session that an elliptic query may be resolved from."""

SAID_CHARACTERS_MAX = 8_192
"""Of each of them, so much is read."""

QUERY_READ_CHARACTERS = 16_384
"""The query of a context may be as long as its budget; what it is about stands at its beginning."""

ELLIPTIC_CHARACTERS_MAX = 1_024
"""A longer query of a context stands for itself: to find that out by its terms would hold up the event loop."""

CLOCKS_APART_US = 60 * SECOND_US
"""A turn that is later than the query by more than this was not said before it, and lends a context's query no word."""

RULES_VERSION = "expand-rules-1"
"""Names these rules where contexts say what they were made by. Another number where they find something else."""


class Understood(msgspec.Struct, frozen=True):
    """A query in words that stand alone. `drawn_from`: seqs of stored turns that the rewrite took words from.

    `said`: texts of the turns that it followed, oldest first.
    """

    query: str
    keywords: list[str]
    window: TimeWindow | None
    drawn_from: frozenset[int] = frozenset()
    said: tuple[str, ...] = ()


def stands_alone(request: SearchRequest) -> bool:
    """Whether there is nothing that the query could be resolved from."""
    return not request.history and request.filters.session is None


def resolved(shard: Shard, owner: str, request: SearchRequest, instant: int, expiry: int) -> Understood:
    """The query as it is understood after what was said. Loads the block if it is not here: raises StorageTrouble."""
    if request.history:
        return by_rules(request.query, living(request.history, expiry), request.asked, instant)
    said = living(_last_turns(shard.block(owner), request.filters.session), expiry)
    return by_rules(request.query, said, request.asked, instant, stored=True)


def by_rules(query: str, said: Sequence[Turn], asked: Asked, instant: int, *, stored: bool = False) -> Understood:
    """Without looking at anything else.

    `stored`: the turns are the session's last, not sent with the query: it may well be about something older.
    """
    if not query.strip():
        return Understood(query, [], None)
    last, texts = said[-HISTORY_TURNS:], _texts(said)
    window = read_window(query, instant, asked.offset_minutes, asked.tz, asked.locale)
    alone = query if stored and not continues(query) else rewritten(query, texts)
    drawn_from = frozenset(turn.seq for turn in last) if stored and alone != query else frozenset()
    return Understood(alone, keywords(query), window, drawn_from, texts)


class Resolved(msgspec.Struct, frozen=True):
    """What a context retrieves by: the query as rules understand it, and when.

    `seq`: the state that it was resolved in, which the rest of the context has to be of, too; None: it looked at none.
    `reasons`: why it may be less than what was said would give. `loaded`: whether memory was read from a table for it.
    """

    query: str
    window: TimeWindow | None = None
    drawn_from: frozenset[int] = frozenset()
    seq: int | None = None
    reasons: tuple[str, ...] = ()
    loaded: bool = False


def goes_on(request: ContextRequest) -> bool:
    """Whether a context's query is resolved from turns: those sent along, or the last ones of its session."""
    query = request.query
    if len(query) > ELLIPTIC_CHARACTERS_MAX:
        return False
    if request.history is None:
        return request.session is not None and continues(query) and is_elliptic(query)
    return bool(request.history) and is_elliptic(query)


def as_it_came(request: ContextRequest, now: int) -> Resolved:
    """The query as it came, with the time that it names."""
    query, asked = request.query[:QUERY_READ_CHARACTERS], request.asked
    return Resolved(query, read_window(query, now, asked.offset_minutes, asked.tz, asked.locale))


def resolved_as_of(shard: Shard, owner: str, request: ContextRequest, now: int, expiry: int) -> Resolved:
    """The query of a context after what was said up to the state that is asked for. Never raises for a store."""
    found = as_it_came(request, now)
    if request.history is not None:
        texts = _texts(living(request.history, expiry))
        return msgspec.structs.replace(found, query=rewritten(found.query, texts))
    loaded = not shard.holds(owner)
    block, lacking = shard.block_or_tail(owner)
    try:
        as_of = seq_asked(shard, block, request.as_of)
        said = last_said(shard, block, request.session, as_of, now + CLOCKS_APART_US, HISTORY_TURNS, expiry)
    except StorageTrouble as error:
        return msgspec.structs.replace(found, reasons=(*lacking, f"store: {error.reason}"), loaded=loaded)
    query = rewritten(found.query, _texts(said.turns))
    return Resolved(
        query=query,
        window=found.window,
        drawn_from=frozenset(turn.seq for turn in said.turns) if query != found.query else frozenset(),
        seq=said.seq,
        reasons=(*lacking, *said.reasons),
        loaded=loaded,
    )


def _texts(said: Sequence[Turn]) -> tuple[str, ...]:
    return tuple(turn.text[:SAID_CHARACTERS_MAX] for turn in said[-HISTORY_TURNS:])


def _last_turns(block: Block, session: str | None) -> Sequence[Turn]:
    """What was said last in the session."""
    with block.lock:
        index = None if session is None else block.sessions.get(session)
        seqs = index.seqs[-HISTORY_TURNS:] if index else []
        return [block.turns[seq] for seq in seqs if seq in block.turns]


class Understanding:
    """Rules, and the model that reads queries where there is one. On the event loop."""

    def __init__(self, policies: Policies, expander: Expander | None = None) -> None:
        self._policies = policies
        self._expander = expander

    async def refined(
        self, tenant: str, query: str, found: Understood, asked: Asked, instant: int, deadline_s: float | None = None
    ) -> tuple[Understood, tuple[str, ...]]:
        """What rules found, or better; and why it is not better."""
        if self._expander is None or not query.strip():
            return found, ()
        try:
            sent = self._sent(tenant, query, found.said, asked_at(instant, asked.offset_minutes, asked.tz))
            read = await self._expander.expand(sent, deadline_s)
        except (ExpanderFailed, StorageTrouble) as error:
            reason = str(error) if isinstance(error, ExpanderFailed) else error.code
            return found, (f"expand: {reason}",)
        except OverflowError:  # asked at the ends of time, where no zone has a clock
            return found, ("expand: no such time",)
        certain = found.window is not None and found.window.certain
        return (
            Understood(
                query=read.rewritten,
                keywords=list(read.keywords) or found.keywords,
                window=found.window if certain else read.window or found.window,
                drawn_from=found.drawn_from,
                said=found.said,
            ),
            (),
        )

    def _sent(self, tenant: str, query: str, said: Sequence[str], now: datetime) -> AskedQuery:
        """Without what the tenant's policy covers. Raises StoreUnavailable where nobody knows what that is."""
        level = self._policies.of(tenant, PrivacyPolicy).level
        clean = tuple(redact(text, level).text for text in said)
        return AskedQuery(redact(query, level).text, clean, now)
