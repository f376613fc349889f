"""Whether a search mixed vector spaces: each names one version, and its dense scores are products in that one.

What a hit's turn and the query come to under the named version is asked of `/v1/embeddings`, and held against what the
search has said of the hit. A score of another version, or of vectors of two, is another number.
"""

from __future__ import annotations

import threading
from calendar import month_name
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np

from benchmarks.migration_load import Faults, Once
from serve_app.client.data_sets import Case
from serve_app.client.http import Json

OFF_MAX = 0.02
"""Between a score and the product made anew: float16, and rounding of batches; two encoders differ by far more."""

HITS_A_CHECK = 3
CHECK_EVERY = 8
"""Of so many searches of the data one is made anew."""

SHORT_CHARACTERS = 600
"""Longer turns have several vectors, of which the best counts: they are left out."""


class Seen(NamedTuple):
    """What has been looked at: searches by version, scores that were made anew, and how far the worst was off."""

    versions: dict[str, int]
    checked: int
    off_max: float


class Spaces:
    """Hears of each search of the data. Safe for many threads."""

    def __init__(self, once: Once, faults: Faults) -> None:
        self._once, self._faults = once, faults
        self._lock = threading.Lock()
        self._versions: Counter[str] = Counter()
        self._checked, self._off_max, self._searches = 0, 0.0, 0
        self.allowed: frozenset[str] | None = None
        """Names of the versions that there may be; None: any."""

    def __call__(self, case: Case, answer: Json) -> None:
        version = (answer.get("explain") or {}).get("version")
        with self._lock:
            self._searches += 1
            self._versions[str(version)] += 1
            check = self._searches % CHECK_EVERY == 0
        if version is None:
            if not answer["degradation"]["reasons"]:
                self._faults.note("mixed", "a search of all arms names no version")
        elif self.allowed is not None and version not in self.allowed:
            self._faults.note("mixed", f"a search names {version}, which is neither old nor new")
        elif check:
            self._check(version, case, answer)

    @property
    def seen(self) -> Seen:
        return Seen(dict(self._versions), self._checked, round(self._off_max, 5))

    def _check(self, version: str, case: Case, answer: Json) -> None:
        hits = [one for one in answer["results"] if len(one["content"]) < SHORT_CHARACTERS and _dense(one) is not None]
        hits = hits[:HITS_A_CHECK]
        if not hits:
            return
        queries = list(dict.fromkeys([answer["query"]["rewritten"] or case.body["query"], case.body["query"]]))
        forms = [text for hit in hits for text in (_contextual(hit), hit["content"])]
        made = self._vectors(version, [*queries, *forms])
        if made is None:
            return  # retired meanwhile
        asked, turns = made[: len(queries)], made[len(queries) :].reshape(len(hits), 2, -1)
        for hit, own in zip(hits, turns, strict=True):
            off = float(np.abs(own @ asked.T - _dense(hit)).min())
            with self._lock:
                self._checked += 1
                self._off_max = max(self._off_max, off)
            if off > OFF_MAX:
                self._faults.note("mixed", f"a dense score is {off:.3f} away from the product under {version}")

    def _vectors(self, version: str, texts: Sequence[str]) -> np.ndarray | None:
        with self._lock:  # one client, and few calls
            answer = self._once.ask("embed", "POST", "/v1/embeddings", {"model": version, "input": list(texts)})
        return None if answer is None else np.array([one["embedding"] for one in answer["data"]], np.float32)


def _dense(hit: Json) -> float | None:
    value: float | None = (hit.get("explain") or {}).get("features", {}).get("dense")
    return value


def _contextual(hit: Json) -> str:
    """As an encoder reads a turn that is written out with who said it, and when."""
    on = datetime.fromisoformat(hit["created_at"])
    return f"{hit['speaker'] or hit['role']} ({on.day} {month_name[on.month]} {on.year}): {hit['content']}"
