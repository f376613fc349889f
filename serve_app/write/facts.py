"""Asked of a writer: facts by key."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from serve_app.core import SECOND_US, Fact
from serve_app.errors import NotFound
from serve_app.records import FactGone, FactPut
from serve_app.write.commit import Draft, Operation


class PutFact(Operation):
    """It ends at `expires_at` if that is set (None: never), else `life_s` after it was written."""

    def __init__(
        self,
        owner: str,
        key: str,
        value: str,
        entity_class: str | None,
        life_s: int | None,
        expires_at: int | UnsetType | None = UNSET,
    ) -> None:
        self.owner, self.key, self.value = owner, key, value
        self.entity_class, self.life_s, self.expires_at = entity_class, life_s, expires_at

    def prepare(self, draft: Draft) -> Fact:
        expires_at = None if self.life_s is None else draft.now + self.life_s * SECOND_US
        if self.expires_at is not UNSET:
            expires_at = self.expires_at
        fact = Fact(self.key, self.value, draft.seq(), draft.now, self.entity_class, expires_at)
        draft.add(FactPut(self.owner, fact))
        return fact


class DeleteFact(Operation):
    def __init__(self, owner: str, key: str) -> None:
        self.owner, self.key = owner, key

    def prepare(self, draft: Draft) -> int:
        """How many were there to be deleted: one that has expired goes, too, and does not count."""
        fact = draft.shard.block(self.owner).fact_at(self.key, None)
        if fact is None:
            raise NotFound("no such fact")
        draft.add(FactGone(draft.seq(), self.owner, self.key))
        return int(not fact.expired(draft.now))
