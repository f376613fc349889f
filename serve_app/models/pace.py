"""How large a batch may be so that it takes about so long: learned from those before. Plain data, no clock.

Devices differ by a factor of a thousand: one bound in tokens would let a query wait for half a second on
a slow core, and leave a GPU idle.
"""

from __future__ import annotations

__all__ = ["BATCH_S", "Pace"]

BATCH_S = 0.08
"""Of one batch: a query that comes meanwhile waits for it. A pass costs some milliseconds however small it is, so
much shorter batches cost throughput."""

TOKENS_MIN = 512
"""Of a batch, by estimate, however slow the device seems: with 384 a busy machine, which looks like a slow one, lost
another tenth of its throughput."""

TELLING_TOKENS = 64
"""Smaller batches say little about the pace; the first of all also loads the weights."""

SHORTEST_S = 1e-6
"""Of a batch, whatever the clock says."""

NEWEST_WEIGHS = 0.25
"""Of the newest batch in the average."""


class Pace:
    def __init__(self, tokens_max: int) -> None:
        self._tokens_max = tokens_max
        self._token_s = BATCH_S / TOKENS_MIN
        self._seen_s: float | None = None

    @property
    def batch_tokens(self) -> int:
        return min(round(BATCH_S / self._token_s), self._tokens_max)

    @property
    def tokens_s(self) -> float:
        """Tokens a second, as the newest batches were computed; 0 before the first telling one."""
        return 0.0 if self._seen_s is None else 1 / self._seen_s

    def learn(self, tokens: int, seconds: float) -> None:
        """A batch of so many tokens took so long."""
        if tokens >= TELLING_TOKENS:
            newest = max(seconds, SHORTEST_S) / tokens
            self._seen_s = newest if self._seen_s is None else self._seen_s + NEWEST_WEIGHS * (newest - self._seen_s)
            average = self._token_s + NEWEST_WEIGHS * (seconds / tokens - self._token_s)
            self._token_s = min(max(average, BATCH_S / self._tokens_max), BATCH_S / TOKENS_MIN)
