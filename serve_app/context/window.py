"""The window manager: what a model is shown for one query under one token budget.

`build_context` is pure: the same inputs, layout and tokenizer give the same bytes and the same
`context_id`, in any process. It promises, for every input:

* the tokens of the page, measured after it is written, never exceed the budget, and are the sum of the zones;
* the query stands last and whole, or the request is refused;
* a tool call and its results stand together or not at all;
* every turn given is shown, or lies in the span of the summary that is shown, or is in `dropped`; none stands twice;
* system text and facts come first, and do not change while turns and queries do.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec

from serve_app.context import draft
from serve_app.context.candidates import Candidates, Dropped, gather
from serve_app.context.draft import Piece
from serve_app.context.exchanges import Exchange, TurnKey, key_of
from serve_app.context.inputs import ContextInputs, Format
from serve_app.context.layout import Layout, Zone
from serve_app.context.render import Page, render
from serve_app.context.select import Room, Selection, select
from serve_app.core import Degradation, Summary, Tier
from serve_app.errors import QueryExceedsBudget, SystemExceedsBudget
from serve_app.ports import Tokenizer

REPACK_ROUNDS_MAX = 4
"""Times that the selection is made smaller because joined pieces cost more than their sum; then nothing is added."""

RECENT_OVERHEAD_TOKENS: dict[Format, int] = {"openai": 0, "anthropic": 0, "text": 5}
"""What each message of the conversation costs beyond a chat message: in text, its line has a mark and a role."""


class ZoneUse(msgspec.Struct, frozen=True):
    """Tokens that a zone takes, and its share of the budget before borrowing."""

    tokens: int
    budget: int


class Retrieved(msgspec.Struct, frozen=True):
    """A found turn that is shown, and the zone where it stands."""

    id: str
    session_id: str
    seq: int
    created_at: int
    score: float
    tier: Tier
    zone: Zone


class Context(msgspec.Struct, frozen=True):
    """A finished context. `messages` (and `system` for anthropic), or `text`; `summary` only if it is shown.

    `stable_prefix_tokens` counts the beginning that stays the same while turns and queries change.
    """

    context_id: str
    messages: tuple[dict[str, Any], ...]
    system: str | None
    text: str | None
    zones: dict[Zone, ZoneUse]
    total_tokens: int
    budget_tokens: int
    dropped: tuple[Dropped, ...]
    retrieved: tuple[Retrieved, ...]
    summary: Summary | None
    degradation: Degradation
    stable_prefix_tokens: int


def build_context(inputs: ContextInputs, layout: Layout, tokenizer: Tokenizer) -> Context:
    """Choose what is shown, write it, measure it.

    Raises QueryExceedsBudget where the query does not fit (alone, or beside the system text),
    SystemExceedsBudget where the system text alone does not.
    """
    bare = _bare_page(inputs, tokenizer)
    candidates = gather(inputs)
    selection, page = _fill(inputs, candidates, bare, layout, tokenizer)
    budgets = layout.budgets(inputs.budget_tokens)
    return Context(
        context_id=_context_id(inputs, layout, tokenizer, selection, page),
        messages=page.messages,
        system=page.system,
        text=page.text,
        zones={zone: ZoneUse(tokens, budgets[zone]) for zone, tokens in page.zones.items()},
        total_tokens=page.tokens,
        budget_tokens=inputs.budget_tokens,
        dropped=(*candidates.dropped, *selection.dropped),
        retrieved=_retrieved(inputs, selection),
        summary=selection.summary,
        degradation=inputs.degradation,
        stable_prefix_tokens=page.zones["system"] + page.zones["facts"],
    )


def _bare_page(inputs: ContextInputs, tokenizer: Tokenizer) -> Page:
    """System text and query alone: the least that can be answered."""
    page = render(_pieces(inputs, None, Selection()), inputs.format, tokenizer)
    if page.tokens <= inputs.budget_tokens:
        return page
    if page.zones["query"] <= inputs.budget_tokens < page.zones["system"]:
        raise SystemExceedsBudget(f"the system text takes {page.zones['system']} of {inputs.budget_tokens} tokens")
    raise QueryExceedsBudget(
        f"query and system text take {page.zones['query']} + {page.zones['system']} of {inputs.budget_tokens} tokens"
    )


def _fill(
    inputs: ContextInputs, candidates: Candidates, bare: Page, layout: Layout, tokenizer: Tokenizer
) -> tuple[Selection, Page]:
    """Select and render until the measured page fits; the last try leaves nothing to choose from but room for it."""
    free = inputs.budget_tokens - bare.tokens
    for rounds_left in reversed(range(REPACK_ROUNDS_MAX + 1)):
        room = Room(inputs.budget_tokens, free, bare.zones["system"], RECENT_OVERHEAD_TOKENS[inputs.format])
        selection = select(candidates, room, layout, tokenizer, inputs.session)
        page = render(_pieces(inputs, candidates, selection), inputs.format, tokenizer)
        excess = page.tokens - inputs.budget_tokens
        if excess <= 0:
            break
        free = max(0, free - excess) if rounds_left > 1 else 0
    return selection, page


def _pieces(inputs: ContextInputs, candidates: Candidates | None, selection: Selection) -> list[Piece]:
    """The selection in reading order: stable beginning first, query last."""
    pieces: list[Piece] = []
    if inputs.system:
        pieces.append(Piece("system", "system", inputs.system))
    if candidates and selection.facts:
        records = [line.record for line in selection.facts]
        pieces.append(draft.facts_piece(records, candidates.facts.mark))
    if selection.summary:
        pieces.append(draft.summary_piece(selection.summary))
    if candidates and selection.retrieved:
        found = [candidates.found.records[key_of(turn)] for exchange in selection.retrieved for turn in exchange]
        pieces.append(draft.retrieved_piece(found, candidates.found.mark))
    for exchange in selection.recent:
        pieces.extend(draft.conversation(exchange, inputs.session))
    pieces.append(Piece("query", "user", inputs.query))
    return pieces


def _retrieved(inputs: ContextInputs, selection: Selection) -> tuple[Retrieved, ...]:
    """The hits that are shown, best first."""
    zone_of: dict[TurnKey, Zone] = {}
    places: tuple[tuple[Zone, tuple[Exchange, ...]], ...] = (
        ("recent", selection.recent),
        ("retrieved", selection.retrieved),
    )
    for zone, exchanges in places:
        zone_of |= {key_of(turn): zone for exchange in exchanges for turn in exchange}
    shown = {key_of(hit.turn): hit for hit in reversed(inputs.hits) if key_of(hit.turn) in zone_of}
    return tuple(
        Retrieved(
            id=hit.turn.id,
            session_id=hit.turn.session,
            seq=hit.turn.seq,
            created_at=hit.turn.created_at,
            score=hit.score,
            tier=hit.tier,
            zone=zone_of[key],
        )
        for key, hit in reversed(shown.items())
    )


def _context_id(inputs: ContextInputs, layout: Layout, tokenizer: Tokenizer, selection: Selection, page: Page) -> str:
    """Digest of what a model reads and of what that was computed from.

    How the moment was named (`as_of`, or none), scores, and what was left out are no part of it: the
    same words from the same state are the same context.
    """
    shown = [turn for exchange in (*selection.retrieved, *selection.recent) for turn in exchange]
    written = [page.messages, page.system, page.text]
    request = [inputs.session, inputs.query, inputs.budget_tokens, inputs.now, inputs.system, inputs.notes]
    source = [
        [(turn.session, turn.id, turn.seq, turn.rev) for turn in shown],
        (selection.summary.version, selection.summary.input_hash) if selection.summary else None,
        sorted((fact.key, fact.seq) for fact in inputs.facts if not fact.expired(inputs.now)),
    ]
    how = [inputs.format, layout.name, sorted(layout.shares.items()), tokenizer.name, inputs.versions]
    everything = json.dumps([written, request, source, how, inputs.degradation.level])
    return hashlib.blake2b(everything.encode(), digest_size=16).hexdigest()
