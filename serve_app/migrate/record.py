"""What is kept of a migration: its state, what it goes to, how far it is, and what its gates have said.

Frozen values, stored as JSON by `stores/migration_file.py`. `States` says which state follows which.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from serve_app.core import EmbeddingVersion
from serve_app.policies import DAY_S, HOUR_S
from serve_app.routing import Routing

Kind = Literal["embedding", "reranker", "compressor"]

State = Literal[
    "prepare",
    "dual_write",
    "backfill",
    "verify",
    "canary",
    "cutover",
    "soak",
    "retire",
    "done",
    "rolling_back",
    "rolled_back",
]

ENDED: frozenset[State] = frozenset({"done", "rolled_back"})

FOLLOWS: Mapping[Kind, tuple[State, ...]] = MappingProxyType(
    {
        "embedding": (
            "prepare",
            "dual_write",
            "backfill",
            "verify",
            "canary",
            "cutover",
            "soak",
            "retire",
            "done",
        ),
        "reranker": ("prepare", "verify", "canary", "cutover", "soak", "retire", "done"),
        "compressor": ("prepare", "verify", "canary", "cutover", "soak", "retire", "done"),
    }
)
"""The states of each kind in their order. From each before `retire` there is a way back: `rolling_back`."""

Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Seconds = Annotated[int, Meta(ge=0, le=366 * DAY_S)]


class Terms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """On what terms a migration goes on by itself, and when it turns back."""

    auto: bool = True
    """Each state follows the one before as soon as that is done; else an operator calls `:advance`."""
    canary_share: Share = 0.05
    """Of the users who are served by the new one in `canary`."""
    canary_s: Seconds = HOUR_S
    canary_reads: Annotated[int, Meta(ge=0, le=1_000_000)] = 200
    """Searches of all users that are answered by both, before the gate of `canary` is asked."""
    shadow_share: Share = 0.1
    """Of the searches that are answered by both in `canary`, besides those of its users."""
    soak_s: Seconds = 7 * DAY_S
    queries: Annotated[int, Meta(ge=1, le=100_000)] = 1_000
    """At most so many historical queries are asked in a gate."""
    queries_min: Annotated[int, Meta(ge=0, le=100_000)] = 20
    """With fewer that can be judged a gate says nothing, and the migration waits for `:advance`."""
    k: Annotated[int, Meta(ge=1, le=100)] = 10
    loss: Share = 0.01
    """Of recall@k that the new one may lose over all."""
    tenant_loss: Share = 0.05
    """The same of one tenant with enough queries to say so."""
    dead_share: Share = 0.001
    """Of the rows that may have failed for good."""


class Gate(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one gate has said. `verdict`: passed, failed, or that too little was asked to say."""

    state: State
    verdict: Literal["passed", "failed", "undecided"]
    at: int
    reasons: tuple[str, ...] = ()
    figures: dict[str, Any] = {}
    """The report's JSON, without what names anybody."""


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """That a state was entered, when, and why."""

    state: State
    at: int
    why: str = ""


class Migration(msgspec.Struct, frozen=True, omit_defaults=True):
    """One migration. `revision` grows with each change: a change is to the revision that was read, or refused."""

    id: str
    kind: Kind
    state: State
    begun_at: int
    terms: Terms
    revision: int = 0
    paused: bool = False
    wish: Literal["", "advance", "rollback"] = ""
    """What an operator has asked for and Control has not done yet."""
    steps: tuple[Step, ...] = ()
    trouble: str = ""
    """Why it does not go on at the moment."""
    gates: tuple[Gate, ...] = ()
    options: dict[str, Any] = {}
    """Of the new encoder, reranker or compressor, as its section of the settings has them."""
    version: EmbeddingVersion | None = None
    """The new one; known from `prepare` on."""
    base: Routing | None = None
    target: Routing | None = None
    dual_from: tuple[int, ...] = ()
    """Of each shard the seq after which all that is written gets vectors of both; what came before is backfilled."""
    fence: int = 0
    """Of the job that may write; one with an older fence is refused."""

    @property
    def ended(self) -> bool:
        return self.state in ENDED


class Migrations(msgspec.Struct, frozen=True, omit_defaults=True):
    """The file: all migrations, oldest first. At most one of each kind is not ended."""

    migrations: tuple[Migration, ...] = ()

    def running(self, kind: Kind) -> Migration | None:
        return next((one for one in self.migrations if one.kind == kind and not one.ended), None)


def next_state(migration: Migration) -> State:
    """The one that follows. Raises ValueError for one that has ended or goes back."""
    order = FOLLOWS[migration.kind]
    return order[order.index(migration.state) + 1]
