"""What the memory is asked and what it answers: frozen values, free of HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from serve_app.context.inputs import Format
from serve_app.context.window import Context
from serve_app.core import Degradation, Mode, Receipt, Tier, TimeWindow, Turn
from serve_app.layouts import QueryType
from serve_app.retrieve.filters import Filters
from serve_app.retrieve.found import Explained, Found
from serve_app.retrieve.statements import Result
from serve_app.write.operations import ItemResult


def _text_of(history: Sequence[Turn]) -> int:
    return sum(turn.characters for turn in history)


class Appended(msgspec.Struct, frozen=True):
    """`indexed` is None where nobody asked to wait for the vectors."""

    receipt: Receipt
    results: list[ItemResult]
    indexed: bool | None = None


class Asked(msgspec.Struct, frozen=True):
    """When and where a query was asked, which decides what "yesterday" is: an IANA zone, or the offset of `now`."""

    offset_minutes: int = 0
    tz: str | None = None
    locale: str | None = None


class ExpandRequest(msgspec.Struct, frozen=True):
    query: str
    now: int
    asked: Asked = Asked()
    history: tuple[Turn, ...] = ()


class SearchRequest(msgspec.Struct, frozen=True):
    query: str
    k: int
    mode: Mode
    now: int | None = None
    filters: Filters = Filters()
    tiers: frozenset[Tier] = frozenset({"hot", "warm"})
    history: tuple[Turn, ...] = ()
    asked: Asked = Asked()
    min_receipt: Receipt | None = None
    deadline_s: float | None = None
    rerank: bool = True
    explain: bool = False

    @property
    def characters(self) -> int:
        """How much text it brings."""
        return len(self.query) + _text_of(self.history)

    @property
    def reranked(self) -> bool:
        """Whether a second stage judges what the first one found. The modes that look at one side alone are given as
        they are, and so is what is mixed with facts or summaries, which it knows nothing of.
        """
        return self.rerank and self.mode == "hybrid" and self.filters.kinds == {"turn"} and self.query.strip() != ""


class SearchAnswer(msgspec.Struct, frozen=True):
    found: list[Result]
    rewritten: str
    keywords: list[str]
    window: TimeWindow | None
    degradation: Degradation
    receipt: Receipt
    explained: Explained | None = None
    drawn_from: frozenset[int] = frozenset()
    """Seqs of the turns that `rewritten` took words from."""


class AsOf(msgspec.Struct, frozen=True):
    """A state of the past, by its seq (with the shard where a receipt names it) or by a time in microseconds.

    `revision`: of the tenant's layouts; None: the one that was in force then. `epoch`: the number of what served then
    (`routing.Epoch`); None: what had begun before that seq or time.
    """

    seq: int | None = None
    shard: int | None = None
    time: int | None = None
    revision: int | None = None
    epoch: int | None = None


class LayoutWish(msgspec.Struct, frozen=True):
    """A layout by its name, and what the rules of layouts look at. `query_type` is found by rules where it is None."""

    name: str | None = None
    model: str | None = None
    user_tier: str | None = None
    query_type: QueryType | None = None


class ContextRequest(msgspec.Struct, frozen=True):
    """`session` and `history` exclude each other."""

    query: str
    budget_tokens: int
    session: str | None = None
    history: tuple[Turn, ...] | None = None
    system: str | None = None
    notes: tuple[str, ...] = ()
    layout: LayoutWish = LayoutWish()
    whole_user: bool = True
    format: Format = "openai"
    tokenizer: str | None = None
    now: int | None = None
    asked: Asked = Asked()
    as_of: AsOf = AsOf()
    min_receipt: Receipt | None = None
    deadline_s: float | None = None
    explain: bool = False

    @property
    def characters(self) -> int:
        """How much text it brings."""
        return len(self.query) + len(self.system or "") + sum(map(len, self.notes)) + _text_of(self.history or ())


class ContextAnswer(msgspec.Struct, frozen=True):
    """`found` are the candidates of the retrieved zone, with what each arm said of them.

    `revision` is that of the tenant's layouts that `layout` is from; `query_type` was looked at, or is None. `epoch` is
    the number of what served, where there may be several.
    """

    context: Context
    found: tuple[Found, ...]
    as_of: Receipt
    now: int
    tokenizer: str
    layout: str
    revision: int = 0
    query_type: QueryType | None = None
    explained: Explained | None = None
    epoch: int | None = None


class ShardStats(msgspec.Struct, frozen=True):
    """One shard as `/v1/admin/stats` and `/readyz` tell of it."""

    shard: int
    seq: int
    folded_seq: int
    epoch: int
    pending_vectors: int
    segments: int
    log_bytes: int
    tail_records: int
    table_fragments: int | None
    table_versions: int | None
    owners_in_memory: int
    turns_in_memory: int
    turns_archived: int
    """Turns of large users that their searches find without the tables."""
    queue: int
    damage: list[str]
    pending_vectors_target: int = 0
    """Turns whose vectors of the version that a migration brings are still to come, of those written since it began."""
    tail_bytes: int = 0
    """Of the vectors in the tail."""
    behind_s: float | None = None
    """Of a replica: how old what is read may be."""


class Trouble(msgspec.Struct, frozen=True):
    """One thing that is not as it should be."""

    what: str
    detail: str
    shard: int | None = None


Json = dict[str, Any]
