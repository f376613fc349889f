"""What a check has found: a fault breaks a promise of the store, a leftover only takes room until maintenance."""

from __future__ import annotations

from typing import Literal

import msgspec

FINDINGS_MAX = 1_000
"""That are listed; more are counted."""


class Finding(msgspec.Struct, frozen=True):
    severity: Literal["fault", "leftover"]
    kind: str
    shard: int
    what: str


class Report:
    """Collects findings, and counts what was looked at."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.faults = 0
        self.leftovers = 0
        self.counts = dict.fromkeys(("shards", "segments", "files", "rows", "owners", "turns", "facts", "summaries"), 0)

    @property
    def sound(self) -> bool:
        return self.faults == 0

    def fault(self, kind: str, shard: int, what: str) -> None:
        self.faults += 1
        self._keep(Finding("fault", kind, shard, what))

    def leftover(self, kind: str, shard: int, what: str) -> None:
        self.leftovers += 1
        self._keep(Finding("leftover", kind, shard, what))

    def seen(self, what: str, count: int = 1) -> None:
        self.counts[what] += count

    def add(self, part: Report) -> None:
        """What was found in another part of the store."""
        self.faults += part.faults
        self.leftovers += part.leftovers
        for what, count in part.counts.items():
            self.counts[what] += count
        for finding in part.findings:
            self._keep(finding)

    def _keep(self, finding: Finding) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)
