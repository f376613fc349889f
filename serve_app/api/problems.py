"""The only map from errors to HTTP: each stable code, its status, and the RFC 9457 body."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from serve_app.errors import MemstrataError

STATUS_OF_CODE = {
    "invalid_json": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "body_timeout": 408,
    "conflict": 409,
    "migration_claimed": 409,
    "migration_fenced": 409,
    "migration_changed": 409,
    "migration_running": 409,
    "body_too_large": 413,
    "invalid_request": 422,
    "invalid_receipt": 422,
    "query_exceeds_budget": 422,
    "system_exceeds_budget": 422,
    "not_supported": 422,
    "overloaded": 429,
    "rate_limited": 429,
    "quota_exceeded": 429,
    "internal_error": 500,
    "store_unavailable": 503,
    "writer_fenced": 503,
    "read_only_replica": 503,
    "shard_elsewhere": 503,
    "log_damaged": 503,
    "receipt_not_reached": 503,
    "not_ready": 503,
    "encoder_unavailable": 503,
    "reranker_unavailable": 503,
    "ranker_unusable": 503,
    "deadline_passed": 503,
    "storage_full": 507,
}
"""Every code that this service answers with. Documented in docs/errors.md and in /openapi.json."""

TITLES = {
    "invalid_json": "The body is no JSON object",
    "unauthorized": "A valid API key is needed",
    "forbidden": "This key may not do that",
    "not_found": "There is no such thing",
    "method_not_allowed": "This route has no such method",
    "body_timeout": "The body did not come in time",
    "conflict": "Its state does not allow that",
    "migration_claimed": "Another job works on this migration",
    "migration_fenced": "Another job has taken this migration over",
    "migration_changed": "The migration has changed meanwhile",
    "migration_running": "A migration of this kind is running",
    "body_too_large": "The body is too large",
    "invalid_request": "The request is not valid",
    "invalid_receipt": "The receipt was not given out for this user",
    "query_exceeds_budget": "The query does not fit the token budget",
    "system_exceeds_budget": "The system text does not fit the token budget",
    "not_supported": "This version does not support that field",
    "overloaded": "Too much at once",
    "rate_limited": "This key or tenant asks too much at once",
    "quota_exceeded": "This user or tenant holds as much as it may",
    "internal_error": "The service failed",
    "store_unavailable": "The store does not answer",
    "writer_fenced": "Another writer owns this shard",
    "read_only_replica": "This service only reads; write to the store's writer",
    "shard_elsewhere": "The shard is being handed over to another process",
    "log_damaged": "The log of this shard is damaged; it takes no writes",
    "receipt_not_reached": "The write named by the receipt is not visible yet",
    "not_ready": "The service is starting",
    "encoder_unavailable": "The encoder cannot be loaded",
    "reranker_unavailable": "The reranker cannot be loaded, or failed",
    "ranker_unusable": "The learned ranker cannot be used",
    "deadline_passed": "The deadline passed before there was an answer",
    "storage_full": "The store is full",
}


class Problem(msgspec.Struct, frozen=True):
    """The body of every error answer."""

    type: str
    title: str
    status: int
    code: str
    detail: str


DETAIL_CHARACTERS_MAX = 500


def problem(code: str, detail: str) -> Problem:
    """What came in is never echoed at length."""
    status = STATUS_OF_CODE[code]
    return Problem(f"urn:memstrata:error:{code}", TITLES[code], status, code, detail[:DETAIL_CHARACTERS_MAX])


class HttpError(MemstrataError):
    """An error that only HTTP knows: broken JSON, an unknown route or method, a body over a bound."""

    def __init__(self, code: str, detail: str, allowed: Sequence[str] = ()) -> None:
        super().__init__(detail)
        self.code = code
        self.allowed = allowed  # the methods that the route has, for the header Allow
