"""Bodies and parameters of the HTTP API: shapes, limits, and nothing else. `/openapi.json` is made from these.

Unknown fields are refused everywhere. Limits are named here, beside the fields that they bound.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from serve_app.api.ids import ID_CHARACTERS_MAX, ID_PATTERN
from serve_app.entities.values import NAME_CHARACTERS_MAX
from serve_app.layouts import QueryType
from serve_app.paths import PATH_CHARACTERS_MAX
from serve_app.policies import TTL_SECONDS_MAX, ClassName, PrivacyLevel
from serve_app.retrieve.conditions import CONDITIONS_MAX, Op

TURNS_A_CALL_MAX = 1_000
CONTENT_BYTES_MAX = 1 << 20
BODY_BYTES_MAX = 8 << 20
RESULTS_MAX = 1_000
QUERY_CHARACTERS_MAX = 16_384
BUDGET_TOKENS_MAX = 2_000_000
DEADLINE_MS_MAX = 60_000
PAGE_TURNS_MAX = 1_000
PAGE_USERS_DEFAULT, PAGE_USERS_MAX = 100, 1_000
EMBEDDING_INPUTS_MAX = 2_048
RERANK_DOCUMENTS_MAX = 1_000
RERANK_CHARACTERS_MAX = 250_000
COMPRESS_CHARACTERS_MAX = 2 << 20
FIELD_TTLS_MAX = 100
ENTITIES_MAX = 32
PAGE_ENTITIES_DEFAULT, PAGE_ENTITIES_MAX = 100, 1_000
RESCANNED_TENANTS_MAX = 1_000
GOLD_TURNS_MAX = 100
NOTE_CHARACTERS_MAX = 4_096
PAGE_GOLDEN_DEFAULT, PAGE_GOLDEN_MAX = 100, 1_000

LOCALE_PATTERN = r"^[A-Za-z]{1,8}(?:[-_][A-Za-z0-9]{1,8})*(?:\.[A-Za-z0-9-]{1,16})?$"

Id = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=ID_CHARACTERS_MAX,
        pattern=ID_PATTERN,
        description="1-256 characters, no control characters",
    ),
]
Time = Annotated[str, Meta(max_length=64, description="RFC 3339 with offset")]
Ttl = Annotated[int, Meta(ge=1, le=TTL_SECONDS_MAX)]
Path = Annotated[
    str, Meta(min_length=1, max_length=PATH_CHARACTERS_MAX, description="$, .key, ['any key'], [n], [*]; $. may lack")
]
Deadline = Annotated[int, Meta(ge=1, le=DEADLINE_MS_MAX)]
Name = Annotated[str, Meta(min_length=1, max_length=ID_CHARACTERS_MAX)]
Role = Literal["user", "assistant", "system", "tool"]
ReceiptText = Annotated[str, Meta(max_length=64, description="a receipt as a write answered it")]
MomentText = Annotated[str, Meta(max_length=96, description="a time, a receipt, or what a context answered as `as_of`")]


EntityName = Annotated[str, Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """Base of everything that comes in."""


class ToolCallIn(Body):
    id: Id
    name: Name
    arguments: Any = None


class TurnIn(Body):
    role: Role
    content: str | None = None
    id: Id | None = None
    speaker: Name | None = None
    created_at: Time | None = None
    tool_calls: Annotated[list[ToolCallIn], Meta(max_length=128)] | None = None
    tool_call_id: Id | None = None
    tool_name: Name | None = None
    data: Any | UnsetType = UNSET
    ttl_seconds: Ttl | None = None
    field_ttl: (
        Annotated[
            dict[Path, Ttl | ClassName],
            Meta(max_length=FIELD_TTLS_MAX, description="seconds, or an entity class of the policy `ttl`"),
        ]
        | None
    ) = None
    metadata: dict[str, Any] | None = None


class AppendTurnsIn(Body):
    user_id: Id
    turns: Annotated[list[TurnIn], Meta(min_length=1, max_length=TURNS_A_CALL_MAX)]
    wait: Literal["durable", "indexed"] = "durable"
    deadline_ms: Deadline | None = None


class EditTurnIn(Body):
    content: str | None = None
    metadata: dict[str, Any] | None = None


class FactIn(Body):
    value: Annotated[str, Meta(min_length=1, max_length=16_384)]
    ttl_seconds: Ttl | None = None
    expires_at: Time | UnsetType | None = UNSET
    """In place of `ttl_seconds`: as an export gives it; null for never, whatever the class says."""
    entity_class: Name | None = None


class ConditionIn(Body):
    path: Path
    op: Op
    value: Any = None


class FiltersIn(Body, rename={"from_": "from"}):
    roles: Annotated[list[Role], Meta(min_length=1, max_length=4)] | None = None
    kinds: Annotated[list[Literal["turn", "fact", "summary"]], Meta(min_length=1, max_length=3)] | None = None
    from_: Time | None = None
    to: Time | None = None
    tool_name: Name | None = None
    metadata: dict[str, Any] | None = None
    entities: (
        Annotated[
            list[EntityName],
            Meta(min_length=1, max_length=ENTITIES_MAX, description="names of entities; a turn names all of them"),
        ]
        | None
    ) = None
    data: Annotated[list[ConditionIn], Meta(max_length=CONDITIONS_MAX)] | None = None


class SearchIn(Body):
    user_id: Id
    query: Annotated[str, Meta(max_length=QUERY_CHARACTERS_MAX)] = ""
    k: Annotated[int, Meta(ge=1, le=RESULTS_MAX)] = 10
    session_id: Id | None = None
    mode: Literal["hybrid", "dense", "lexical"] = "hybrid"
    rerank: bool = True
    filters: FiltersIn | None = None
    history: Annotated[list[TurnIn], Meta(max_length=TURNS_A_CALL_MAX)] | None = None
    tiers: Annotated[list[Literal["hot", "warm", "cold"]], Meta(min_length=1, max_length=3)] | None = None
    now: Time | None = None
    tz: Name | None = None
    min_receipt: ReceiptText | None = None
    deadline_ms: Deadline | None = None
    explain: bool = False


class ExpandIn(Body):
    query: Annotated[str, Meta(min_length=1, max_length=QUERY_CHARACTERS_MAX)]
    now: Time
    tz: Annotated[Name, Meta(description="IANA time zone; default: the offset of now")] | None = None
    locale: (
        Annotated[str, Meta(max_length=64, pattern=LOCALE_PATTERN, description="like en-GB or zh-Hant-HK")] | None
    ) = None
    history: Annotated[list[TurnIn], Meta(max_length=TURNS_A_CALL_MAX)] | None = None


class ContextIn(Body):
    user_id: Id
    query: Annotated[str, Meta(min_length=1)]
    budget_tokens: Annotated[int, Meta(ge=0, le=BUDGET_TOKENS_MAX)]
    session_id: Id | None = None
    history: Annotated[list[TurnIn], Meta(max_length=TURNS_A_CALL_MAX)] | None = None
    system: str | None = None
    facts: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=1_000)] | None = None
    layout: Annotated[Name, Meta(description="the name of a layout; else rules choose one")] | None = None
    model: Annotated[Name, Meta(description="the model that will read it, as layouts name it")] | None = None
    query_type: QueryType | None = None
    user_tier: Annotated[Name, Meta(description="what layouts call this kind of user")] | None = None
    scope: Literal["user", "session"] = "user"
    format: Literal["openai", "anthropic", "text"] = "openai"
    tokenizer: Name | None = None
    now: Time | None = None
    as_of: MomentText | Annotated[int, Meta(ge=0)] | None = None
    min_receipt: ReceiptText | None = None
    deadline_ms: Deadline | None = None
    explain: bool = False


class CompressIn(Body):
    turns: Annotated[list[TurnIn], Meta(min_length=1, max_length=TURNS_A_CALL_MAX)]
    target_tokens: Annotated[int, Meta(ge=1, le=BUDGET_TOKENS_MAX)]
    now: Time | None = None
    tokenizer: Name | None = None


class GoldIn(Body):
    session_id: Id
    turn_id: Id


class GoldenIn(Body):
    """`query` and `user_id`, or `search_id` in place of `query` and `as_of`."""

    gold: Annotated[list[GoldIn], Meta(min_length=1, max_length=GOLD_TURNS_MAX)]
    query: Annotated[str, Meta(min_length=1, max_length=QUERY_CHARACTERS_MAX)] | None = None
    user_id: Id | None = None
    as_of: MomentText | Annotated[int, Meta(ge=0)] | None = None
    note: Annotated[str, Meta(max_length=NOTE_CHARACTERS_MAX)] | None = None
    search_id: Annotated[str, Meta(max_length=64, description="as a search answered it")] | None = None


class EmbeddingsIn(Body):
    input: (
        Annotated[str, Meta(min_length=1)]
        | Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1, max_length=EMBEDDING_INPUTS_MAX)]
    )
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None


class DocumentIn(Body):
    text: str


class RerankIn(Body):
    """As Cohere and Jina have it."""

    query: Annotated[str, Meta(min_length=1, max_length=QUERY_CHARACTERS_MAX)]
    documents: Annotated[list[str | DocumentIn], Meta(min_length=1, max_length=RERANK_DOCUMENTS_MAX)]
    model: str | None = None
    top_n: Annotated[int, Meta(ge=1)] | None = None
    return_documents: bool = False


class RedactIn(Body):
    text: str
    policy: PrivacyLevel = "strict"


class KeyIn(Body):
    role: Literal["app", "admin", "operator"]
    tenant: Id | None = None
    user_id: Id | None = None
    rate_per_s: Annotated[float, Meta(gt=0, le=1e6, description="requests a second at most")] | None = None


class ClaimIn(Body):
    worker: Annotated[str, Meta(min_length=1, max_length=256, description="which job this is: host and process, say")]


class MaintenanceIn(Body):
    action: Literal["fold", "compact", "expire", "demote", "rescan"]
    shard: Annotated[int, Meta(ge=0)] | None = None
    tenants: Annotated[list[Name], Meta(min_length=1, max_length=RESCANNED_TENANTS_MAX)] | None = None
    """With `rescan`: whose turns and facts are looked through anew, whatever was done before."""


class BackupIn(Body):
    kind: Literal["full", "incremental"] = "incremental"
    uri: Annotated[str, Meta(min_length=1, max_length=2_048)] | None = None


Section = Annotated[dict[str, Any], Meta(max_length=64, description="a section of the settings, as the file has it")]


class MigrationIn(Body):
    kind: Literal["embedding", "reranker", "compressor"] = "embedding"
    encoder: Section | None = None
    replaces: Name | None = None
    """The version in whose place the new encoder's comes; else the primary one."""
    reranker: Section | None = None
    compressor: Section | None = None
    terms: Annotated[
        dict[str, Any], Meta(max_length=64, description="of the policy `migration`, those that differ")
    ] = {}
    runner: Literal["service", "none"] = "service"
    """Who starts the job that embeds what is stored."""
