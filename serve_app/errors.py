"""The error tree. No HTTP codes here: `api/problems.py` maps each `code` to a status, once.

MemstrataError
├── InvalidRequest          what was asked for cannot be right
│   ├── QueryExceedsBudget      the query alone is larger than the token budget
│   ├── SystemExceedsBudget     the caller's system text alone is larger than the token budget
│   ├── InvalidReceipt          a receipt that this service never gave out for this user
│   └── NotSupported            a documented field whose feature is not built yet
├── Unauthorized            no key, or a key that is not known
├── Forbidden               a known key that may not do this
├── NotFound                a thing that is not there, or not the caller's
├── Conflict                what is there is in a state, or another's hands, in which this cannot be done
│   ├── Claimed                 another job works on this migration
│   ├── FencedOff               another job has taken this migration over
│   ├── MigrationChanged        the migration has changed since it was read
│   └── MigrationRunning        another migration of this kind has not ended
├── Overloaded              a bound is reached; try again after `retry_after_s`
├── RateLimited             this key or tenant asks too much at once; others are served
├── QuotaExceeded           this user or tenant holds as much as it may
├── DeadlinePassed          the caller's deadline came before an answer that may not be a part of it
├── EncoderUnavailable      the encoder cannot be loaded
├── ExpanderFailed          the model that reads queries gave nothing of use; rules read them then
├── SummariserFailed        a model that summarises gave nothing of use; the next backend does it then
├── RerankerUnavailable     the reranker cannot be loaded, or has failed
├── DeviceLost              a GPU is in trouble; what it held is answered from the host's memory
├── HotShardUnavailable     a hot shard gives nothing; who asks uses its own vectors
├── HotFull                 a hot index has no room for a user's vectors; they are held elsewhere
├── RankerUnusable          a ranker file that is damaged, or asks for what this release does not know
└── StorageTrouble          the store cannot take or give what was asked for
    ├── NameTaken               a segment of this number exists (another writer was first)
    ├── Fenced                  a newer writer owns the shard; this one has stopped
    ├── StorageFull             no room left
    ├── StoreUnavailable        the store does not answer, or an fsync failed
    │   ├── StoreLate               it did not within the time that there was
    │   └── StoreLeftAlone          it did not again and again, and is not asked for a while
    ├── ReadOnlyReplica         this service only reads the store; its writer is another one
    ├── ShardElsewhere          another process writes this shard, or is about to
    ├── LogDamaged              a hole in the log: the shard takes no writes until it is repaired
    └── ReceiptNotReached       the write named by a receipt is not visible here yet
"""

from __future__ import annotations

__all__ = [
    "Claimed",
    "Conflict",
    "DeadlinePassed",
    "DeviceLost",
    "EncoderUnavailable",
    "ExpanderFailed",
    "Fenced",
    "FencedOff",
    "Forbidden",
    "HotFull",
    "HotShardUnavailable",
    "InvalidReceipt",
    "InvalidRequest",
    "LogDamaged",
    "MemstrataError",
    "MigrationChanged",
    "MigrationRunning",
    "NameTaken",
    "NotFound",
    "NotSupported",
    "Overloaded",
    "QueryExceedsBudget",
    "QuotaExceeded",
    "RankerUnusable",
    "RateLimited",
    "ReadOnlyReplica",
    "ReceiptNotReached",
    "RerankerUnavailable",
    "ShardElsewhere",
    "StorageFull",
    "StorageTrouble",
    "StoreLate",
    "StoreLeftAlone",
    "StoreUnavailable",
    "SummariserFailed",
    "SystemExceedsBudget",
    "Unauthorized",
]


class MemstrataError(Exception):
    """Root of everything this project raises on purpose. `code` is stable and documented."""

    code = "internal_error"
    retry_after_s: float | None = None


class InvalidRequest(MemstrataError):
    code = "invalid_request"


class QueryExceedsBudget(InvalidRequest):
    code = "query_exceeds_budget"


class SystemExceedsBudget(InvalidRequest):
    code = "system_exceeds_budget"


class InvalidReceipt(InvalidRequest):
    code = "invalid_receipt"


class NotSupported(InvalidRequest):
    code = "not_supported"


class Unauthorized(MemstrataError):
    code = "unauthorized"


class Forbidden(MemstrataError):
    code = "forbidden"


class NotFound(MemstrataError):
    code = "not_found"


class Conflict(MemstrataError):
    code = "conflict"


class Claimed(Conflict):
    code = "migration_claimed"


class FencedOff(Conflict):
    code = "migration_fenced"


class MigrationRunning(Conflict):
    code = "migration_running"


class MigrationChanged(Conflict):
    code = "migration_changed"


class Overloaded(MemstrataError):
    code = "overloaded"
    retry_after_s = 1.0


class RateLimited(MemstrataError):
    code = "rate_limited"

    def __init__(self, detail: str, retry_after_s: float) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class QuotaExceeded(MemstrataError):
    code = "quota_exceeded"
    retry_after_s = 60.0


class DeadlinePassed(MemstrataError):
    code = "deadline_passed"
    retry_after_s = 1.0


class EncoderUnavailable(MemstrataError):
    code = "encoder_unavailable"


class ExpanderFailed(MemstrataError):
    """Never shown as an error: its text becomes a reason of degradation."""

    code = "expander_failed"


class SummariserFailed(MemstrataError):
    """Never shown as an error: the next backend summarises instead."""

    code = "summariser_failed"


class RerankerUnavailable(MemstrataError):
    code = "reranker_unavailable"


class DeviceLost(MemstrataError):
    """Never shown as an error: its text becomes a reason of degradation."""

    code = "device_lost"


class HotShardUnavailable(MemstrataError):
    """Never shown as an error: who meets it uses its own vectors."""

    code = "hot_shard_unavailable"


class HotFull(MemstrataError):
    """Never shown as an error: who meets it has the vectors on the CPU."""

    code = "hot_full"


class RankerUnusable(MemstrataError):
    code = "ranker_unusable"


class StorageTrouble(MemstrataError):
    code = "store_unavailable"
    retry_after_s = 1.0

    said = ""
    """What an answer that goes on without the store says of it, where that is not its code."""

    @property
    def reason(self) -> str:
        return self.said or self.code


class NameTaken(StorageTrouble):
    code = "name_taken"


class Fenced(StorageTrouble):
    code = "writer_fenced"


class StorageFull(StorageTrouble):
    code = "storage_full"
    retry_after_s = 5.0


class StoreUnavailable(StorageTrouble):
    code = "store_unavailable"


class StoreLate(StoreUnavailable):
    said = "deadline"


class StoreLeftAlone(StoreUnavailable):
    said = "left_alone"


class ReadOnlyReplica(StorageTrouble):
    code = "read_only_replica"
    retry_after_s = 60.0


class ShardElsewhere(StorageTrouble):
    code = "shard_elsewhere"


class LogDamaged(StorageTrouble):
    code = "log_damaged"
    retry_after_s = 60.0


class ReceiptNotReached(StorageTrouble):
    code = "receipt_not_reached"
