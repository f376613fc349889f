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
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec

from serve_app.context import draft
from serve_app.context.candidates import Candidates, Dropped, gather
from serve_app.context.costs import Costs, costs_by
from serve_app.context.draft import Piece
from serve_app.context.exchanges import TurnKey, key_of
from serve_app.context.inputs import ContextInputs, Format
from serve_app.context.layout import Layout, Zone
from serve_app.context.render import CachePrefix, Page, render
from serve_app.context.select import Room, Selection, select
from serve_app.core import Degradation, Summary, Tier
from serve_app.errors import QueryExceedsBudget, SystemExceedsBudget
from serve_app.ports import Tokenizer

REPACK_ROUNDS_MAX = 4
"""Times that the selection is made smaller because joined pieces cost more than their sum; then nothing is added."""

RECENT_OVERHEAD_TOKENS: dict[Format, int] = {"openai": 0, "anthropic": 0, "text": 5}
"""What each message of the conversation costs beyond a chat message: in text, its line has a mark and a role."""


_STATE = attrgetter("session", "id", "seq", "rev")
_KEY_OF_HIT = attrgetter("turn.session", "turn.id")


class ZoneUse(msgspec.Struct, frozen=True, gc=False):
    """Tokens that a zone takes, and its share of the budget before borrowing."""

    tokens: int
    budget: int


class Retrieved(msgspec.Struct, frozen=True, gc=False):
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

    `written` is `messages` as JSON: they are the largest part of an answer, and encoded once.
    `cache_prefix` is the beginning that stays the same while turns and queries change.
    """

    context_id: str
    messages: tuple[dict[str, Any], ...]
    written: msgspec.Raw
    system: str | None
    text: str | None
    zones: dict[Zone, ZoneUse]
    total_tokens: int
    budget_tokens: int
    dropped: tuple[Dropped, ...]
    retrieved: tuple[Retrieved, ...]
    summary: Summary | None
    degradation: Degradation
    cache_prefix: CachePrefix

    @property
    def stable_prefix_tokens(self) -> int:
        return self.cache_prefix.tokens


def build_context(inputs: ContextInputs, layout: Layout, tokenizer: Tokenizer) -> Context:
    """Choose what is shown, write it, measure it.

    Raises QueryExceedsBudget where the query does not fit (alone, or beside the system text),
    SystemExceedsBudget where the system text alone does not.
    """
    costs = costs_by(tokenizer)
    ends = _ends(inputs, tokenizer)
    bare = _bare_page(inputs, ends, tokenizer)
    candidates = gather(inputs, costs)
    selection, page = _fill(inputs, candidates, ends, bare, layout, costs)
    budgets = layout.budgets(inputs.budget_tokens)
    written = msgspec.json.encode(page.messages)
    return Context(
        context_id=_context_id(inputs, layout, tokenizer, selection, page, written),
        messages=page.messages,
        written=msgspec.Raw(written),
        system=page.system,
        text=page.text,
        zones={zone: ZoneUse(tokens, budgets[zone]) for zone, tokens in page.zones.items()},
        total_tokens=page.tokens,
        budget_tokens=inputs.budget_tokens,
        dropped=(*candidates.dropped, *selection.dropped),
        retrieved=_retrieved(inputs, selection),
        summary=selection.summary,
        degradation=inputs.degradation,
        cache_prefix=page.prefix,
    )


class _Ends(msgspec.Struct, frozen=True):
    """What stands first and last whatever is chosen."""

    system: tuple[Piece, ...]
    query: Piece


def _ends(inputs: ContextInputs, tokenizer: Tokenizer) -> _Ends:
    """A system text of white space alone is none: providers refuse it."""
    system = (Piece("system", "system", inputs.system),) if inputs.system and not inputs.system.isspace() else ()
    return _Ends(system, Piece("query", "user", inputs.query, tokens=tokenizer.count(inputs.query)))


def _bare_page(inputs: ContextInputs, ends: _Ends, tokenizer: Tokenizer) -> Page:
    """System text and query alone: the least that can be answered."""
    page = render([*ends.system, ends.query], inputs.format, tokenizer)
    if page.tokens <= inputs.budget_tokens:
        return page
    if page.zones["query"] <= inputs.budget_tokens < page.zones["system"]:
        raise SystemExceedsBudget(f"the system text takes {page.zones['system']} of {inputs.budget_tokens} tokens")
    raise QueryExceedsBudget(
        f"query and system text take {page.zones['query']} + {page.zones['system']} of {inputs.budget_tokens} tokens"
    )


def _fill(
    inputs: ContextInputs, candidates: Candidates, ends: _Ends, bare: Page, layout: Layout, costs: Costs
) -> tuple[Selection, Page]:
    """Select and render until the measured page fits; the last try leaves nothing to choose from but room for it."""
    free = inputs.budget_tokens - bare.tokens
    for rounds_left in reversed(range(REPACK_ROUNDS_MAX + 1)):
        room = Room(inputs.budget_tokens, free, bare.zones["system"], RECENT_OVERHEAD_TOKENS[inputs.format])
        selection = select(candidates, room, layout, costs, inputs.session)
        page = render(_pieces(candidates, selection, ends, costs), inputs.format, costs.tokenizer)
        excess = page.tokens - inputs.budget_tokens
        if excess <= 0:
            break
        free = max(0, free - excess) if rounds_left > 1 else 0
    return selection, page


def _pieces(candidates: Candidates, selection: Selection, ends: _Ends, costs: Costs) -> list[Piece]:
    """The selection in reading order: stable beginning first, query last."""
    pieces = [*ends.system]
    if selection.facts:
        pieces.append(draft.facts_piece([line.record for line in selection.facts], candidates.facts.mark))
    if selection.summary_piece:
        pieces.append(selection.summary_piece)
    if selection.retrieved:
        found = candidates.found
        pieces.append(draft.retrieved_piece(selection.quoted, found.mark, found.frame, costs))
    return [*pieces, *selection.said, ends.query]


def _retrieved(inputs: ContextInputs, selection: Selection) -> tuple[Retrieved, ...]:
    """The hits that are shown, best first."""
    zone_of: dict[TurnKey, Zone] = dict.fromkeys(map(key_of, chain.from_iterable(selection.recent)), "recent")
    zone_of |= dict.fromkeys(map(key_of, chain.from_iterable(selection.retrieved)), "retrieved")
    # Each turn once: where it is found twice, the better counts.
    zones = [zone_of.pop(key, None) for key in map(_KEY_OF_HIT, inputs.hits)]
    return tuple(
        [
            Retrieved(hit.turn.id, hit.turn.session, hit.turn.seq, hit.turn.created_at, hit.score, hit.tier, zone)
            for hit, zone in zip(inputs.hits, zones, strict=True)
            if zone
        ]
    )


def _context_id(
    inputs: ContextInputs, layout: Layout, tokenizer: Tokenizer, selection: Selection, page: Page, written: bytes
) -> str:
    """Digest of what a model reads and of what that was computed from.

    How the moment was named (`as_of`, or none), scores, and what was left out are no part of it: the
    same words from the same state are the same context.
    """
    shown = (*selection.retrieved, *selection.recent)
    request = (inputs.session, inputs.query, inputs.budget_tokens, inputs.now, inputs.system, inputs.notes)
    source = (
        list(map(_STATE, chain.from_iterable(shown))),
        (selection.summary.version, selection.summary.input_hash) if selection.summary else None,
        sorted([(fact.key, fact.seq) for fact in inputs.facts if not fact.expired(inputs.now)]),
        sorted([(one.seq, one.text) for one in inputs.standing]),
    )
    how = (inputs.format, layout.name, sorted(layout.shares.items()), tokenizer.name, inputs.versions)
    rest = (page.system, page.text, request, source, how, inputs.degradation.level)
    return hashlib.blake2b(written + msgspec.json.encode(rest), digest_size=16).hexdigest()
