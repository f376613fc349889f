"""The way in: what a tenant's policy covers is taken out of all that is written, before a writer sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

import msgspec

from serve_app.policies import Policies, PrivacyLevel, PrivacyPolicy
from serve_app.privacy.values import redact_named
from serve_app.write.operations import NewTurn
from serve_app.write.redaction import redacted_turn

AT_ONCE_CHARACTERS_MAX = 8 << 10
"""So much text takes a millisecond or two at most; more is redacted in the pool."""


class Clean(NamedTuple):
    """Turns as they may be stored, and the level that they were redacted to."""

    turns: Sequence[NewTurn]
    level: PrivacyLevel


class Redacting:
    """Every write passes it. Raises StoreUnavailable where the policies cannot be read."""

    def __init__(self, policies: Policies, pool: Executor) -> None:
        self._policies = policies
        self._pool = pool

    async def turns(self, tenant: str, turns: Sequence[NewTurn]) -> Clean:
        level = self._level(tenant)
        if level == "off":
            return Clean(turns, level)
        if sum(map(characters, turns)) > AT_ONCE_CHARACTERS_MAX:
            clean = await asyncio.get_running_loop().run_in_executor(self._pool, _redacted, turns, level)
            if self._level(tenant) == level:
                return Clean(clean, level)
            return await self.turns(tenant, turns)  # the policy was set meanwhile: a rescan might not find these
        return Clean(_redacted(turns, level), level)

    async def edit(
        self, tenant: str, content: str | None, metadata: dict[str, Any] | None
    ) -> tuple[str | None, dict[str, Any] | None]:
        """The parts of an edit; what it leaves alone is None and stays None."""
        edited = NewTurn("user", content or "", metadata=metadata)
        clean = (await self.turns(tenant, [edited])).turns[0]
        return None if content is None else clean.content, clean.metadata

    def fact(self, tenant: str, key: str, value: str) -> str:
        """A fact's value; its key says what it is."""
        return redact_named(value, self._level(tenant), key)

    def _level(self, tenant: str) -> PrivacyLevel:
        return self._policies.of(tenant, PrivacyPolicy).level


def _redacted(turns: Sequence[NewTurn], level: PrivacyLevel) -> list[NewTurn]:
    return [redacted_turn(turn, level) for turn in turns]


def characters(turn: NewTurn) -> int:
    """About what there is to read."""
    count = len(turn.content) + len(turn.data or b"")
    if turn.metadata or turn.tool_calls:
        count += len(msgspec.json.encode([turn.metadata, turn.tool_calls]))
    return count
