"""What a tenant's administrator may decide at run time: named policies, each one frozen value with its defaults.

`privacy`, `ttl`, `lifecycle`, `golden` and `summary` belong to a tenant; `backup` and `migration` to the service, and
only an operator sets them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal, Protocol, TypeVar

import msgspec
from msgspec import Meta

HOUR_S = 3_600
DAY_S = 24 * HOUR_S
TTL_SECONDS_MAX = 10 * 366 * DAY_S
ENTITY_CLASSES_MAX = 100

CLASS_OF_ENTITIES: Mapping[str, str] = MappingProxyType({"order": "orders", "person": "identity", "email": "identity"})
"""The entity class of this policy that what is recognised as an entity belongs to, where no class has its very name."""

PrivacyLevel = Literal["off", "secrets", "strict"]
PRIVACY_LEVELS: tuple[PrivacyLevel, ...] = ("off", "secrets", "strict")
"""From the loosest to the tightest: each covers all that those before it cover."""

Life = Annotated[int, Meta(ge=1, le=TTL_SECONDS_MAX)]
ClassName = Annotated[str, Meta(min_length=1, max_length=256)]


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all policies."""


class PrivacyPolicy(Policy, frozen=True):
    """What is redacted before anything is stored or sent to a model."""

    level: PrivacyLevel = "secrets"


class TtlPolicy(Policy, frozen=True):
    """How long, in seconds, a fact or a field of an entity class holds where it has no time to live of its own."""

    entity_classes: Annotated[dict[ClassName, Life], Meta(max_length=ENTITY_CLASSES_MAX)] = msgspec.field(
        default_factory=lambda: {"orders": DAY_S, "preferences": 30 * DAY_S, "identity": 90 * DAY_S}
    )

    def class_of(self, name: str) -> str | None:
        """The class with a time to live that a name stands for: its own, or that of a class of recognised entities."""
        return next((one for one in (name, CLASS_OF_ENTITIES.get(name, "")) if one in self.entity_classes), None)

    def life_of(self, name: str) -> int | None:
        """The seconds of that class."""
        found = self.class_of(name)
        return None if found is None else self.entity_classes[found]


class LifecyclePolicy(Policy, frozen=True):
    """When a topic leaves a tier, in seconds since the later of its newest turn's arrival and its last hit.

    None: never.
    """

    warm_after_s: Life | None = 7 * DAY_S
    cold_after_s: Life | None = 30 * DAY_S


class GoldenPolicy(Policy, frozen=True):
    """Whether searches are kept in memory for a while, so that feedback can name one. Queries are personal data."""

    log_searches: bool = False


class SummaryPolicy(Policy, frozen=True):
    """When summaries of sessions are made anew, how long they may be and how long they hold.

    None: what the service is configured with.
    """

    every_turns: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    target_tokens: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    ttl_s: Annotated[int, Meta(ge=60, le=7 * DAY_S)] | None = None
    max_age_s: Annotated[int, Meta(ge=1, le=DAY_S)] | None = None


class BackupPolicy(Policy, frozen=True):
    """When the service backs itself up, and how long a backup stays, in seconds. Off without a `uri`."""

    uri: str = ""
    full_every_s: Life = DAY_S
    incremental_every_s: Life = HOUR_S
    keep_s: Life = 7 * DAY_S


Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Wait = Annotated[int, Meta(ge=0, le=366 * DAY_S)]


class Terms(Policy, frozen=True):
    """Policy `migration`: on what terms a migration that begins goes on by itself, and when it turns back."""

    auto: bool = True
    """Each state follows the one before as soon as that is done; else an operator calls `:advance`."""
    canary_share: Share = 0.05
    """Of the users who are served by the new one in `canary`."""
    canary_s: Wait = HOUR_S
    canary_reads: Annotated[int, Meta(ge=0, le=1_000_000)] = 200
    """Searches of all users that are answered by both, before the gate of `canary` is asked."""
    shadow_share: Share = 0.1
    """Of the searches that are answered by both in `canary`, besides those of its users."""
    soak_s: Wait = 7 * DAY_S
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


OF_TENANT: dict[str, type[Policy]] = {
    "privacy": PrivacyPolicy,
    "ttl": TtlPolicy,
    "lifecycle": LifecyclePolicy,
    "golden": GoldenPolicy,
    "summary": SummaryPolicy,
}
OF_SERVICE: dict[str, type[Policy]] = {"backup": BackupPolicy, "migration": Terms}

P = TypeVar("P", bound=Policy)


def looser(one: PrivacyLevel, other: PrivacyLevel) -> PrivacyLevel:
    return min(one, other, key=PRIVACY_LEVELS.index)


class Policies(Protocol):
    """Where the policies in force are looked up. Cheap: asked with each request. Raises StoreUnavailable."""

    def of(self, tenant: str, kind: type[P]) -> P:
        """The tenant's policy of this kind, or its defaults."""
        ...

    def of_service(self, kind: type[P]) -> P: ...
