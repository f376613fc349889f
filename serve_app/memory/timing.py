"""One clock for the stages of a request: what `timings_ms` of an answer says."""

from __future__ import annotations

import time


class Stages:
    """Milliseconds by stage. `mark` ends the stage that runs since the last mark."""

    def __init__(self, started: float | None = None) -> None:
        """`started`: when the request came in, by the same clock (`perf_counter`); else it is now."""
        self._started = self._marked = time.perf_counter() if started is None else started
        self.ms: dict[str, float] = {}

    def mark(self, stage: str) -> None:
        now = time.perf_counter()
        self.ms[stage] = 1e3 * (now - self._marked)
        self._marked = now

    def mark_two(self, stage: str, part: str, part_s: float) -> None:
        """End a stage of whose end `part_s` seconds were another one; nothing is said of a part that did not run."""
        self.mark(stage)
        if part_s > 0:
            self.ms[part] = min(1e3 * part_s, self.ms[stage])
            self.ms[stage] -= self.ms[part]

    def branch(self) -> Stages:
        """The clock for work that may be given up while it goes on: `join` takes its stages over, if it is not."""
        branch = Stages(self._started)
        branch._marked = self._marked
        return branch

    def join(self, branch: Stages) -> None:
        self.ms |= branch.ms
        self._marked = branch._marked

    def finish(self) -> dict[str, float]:
        """The stages and their total, to the microsecond."""
        self.ms["total"] = 1e3 * (time.perf_counter() - self._started)
        return {stage: round(ms, 3) for stage, ms in self.ms.items()}
