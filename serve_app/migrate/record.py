"""What is kept of a migration: its state, what it goes to, how far it is, and what its gates have said.

Frozen values, stored as JSON by `migration_file.py`. `FOLLOWS` says which state follows which.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from serve_app.core import EmbeddingVersion
from serve_app.policies import Terms
from serve_app.routing import Epoch, Routing

__all__ = ["ENDED", "FOLLOWS", "Gate", "Kind", "Migration", "Migrations", "State", "Step", "Terms", "next_state"]

Kind = Literal["embedding", "reranker", "compressor"]

Wish = Literal["", "advance", "rollback"]

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
    wish: Wish = ""
    """What an operator has asked for and Control has not done yet."""
    steps: tuple[Step, ...] = ()
    trouble: str = ""
    """Why it does not go on at the moment."""
    gates: tuple[Gate, ...] = ()
    runner: Literal["service", "none"] = "service"
    """Who starts the job of `backfill`: the service, or somebody else."""
    options: dict[str, Any] = {}
    """Of the new encoder, reranker or compressor, as its section of the settings has them."""
    was: dict[str, Any] = {}
    """The same of the reranker or compressor that it comes in the place of."""
    names: tuple[str, ...] = ()
    was_names: tuple[str, ...] = ()
    """What answers and summaries call the new reranker or compressor, and the one before."""
    version: EmbeddingVersion | None = None
    """The new encoder's."""
    replaces: str = ""
    """Name of the version in whose place the new one comes."""
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
    """The file: the migrations, oldest first, of which at most one of each kind is not ended; and what they left."""

    migrations: tuple[Migration, ...] = ()
    made: int = 0
    """Migrations that there have ever been, those that are forgotten included."""
    epochs: tuple[Epoch, ...] = ()
    """What served whom since when; empty where no migration has ever changed it."""
    encoders: dict[str, dict[str, Any]] = {}
    """By name of a version that a migration brought and that the store holds: the options of its encoder."""

    def running(self, kind: Kind) -> Migration | None:
        return next((one for one in self.migrations if one.kind == kind and not one.ended), None)


def next_state(migration: Migration) -> State:
    """The one that follows. Raises ValueError for one that has ended or goes back."""
    order = FOLLOWS[migration.kind]
    return order[order.index(migration.state) + 1]
