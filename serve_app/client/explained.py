"""Searches that explain themselves: every hit with its place in the first stage, what each reranker said of it, and the
features that a ranker is trained on. The one way in which measurements and training read `explain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from serve_app.client.data_sets import Case, Place
from serve_app.client.http import Client, Json
from serve_app.errors import MemstrataError

SHORTLIST = 100
"""Hits that the second stage looks at."""

TRIES = 4
"""A second stage that is late on a busy machine is asked again."""


class NotExplained(MemstrataError):
    """The service's second stage is off, or did not come to an end."""

    code = "not_explained"


class Hit(NamedTuple):
    place: Place
    seq: int
    first_rank: int
    by: dict[str, float]
    """What each reranker said, by its kind."""
    features: tuple[float, ...]
    """In the order of `Explained.names`; NaN where something is not known."""


class Explained(NamedTuple):
    """The hits of one case, in the order of the first stage."""

    case: Case
    names: tuple[str, ...]
    hits: list[Hit]

    @property
    def gold(self) -> list[bool]:
        return [hit.place in self.case.gold for hit in self.hits]

    def ranked(self, scores: Sequence[float]) -> list[Place]:
        """By these scores of the hits, and of equal ones the newer turn first."""
        pairs = zip(scores, self.hits, strict=True)
        ordered = sorted(pairs, key=lambda pair: (pair[0], pair[1].seq), reverse=True)
        return [hit.place for _, hit in ordered]


def explained(client: Client, case: Case) -> Explained:
    """Raises NotExplained where a hit lacks its features: figures without them would be others'."""
    for tried in range(1, TRIES + 1):
        answer = client.search(case.body | {"k": SHORTLIST, "explain": True})
        if tried == TRIES or not answer["degradation"]["reasons"]:
            break
    results = [one for one in answer["results"] if case.as_of_seq is None or one["seq"] <= case.as_of_seq]
    whys = [one.get("explain") for one in results]
    if not all(whys):
        raise NotExplained(f"no features for {case.id}: {_why_not(answer)}")
    names = tuple(whys[0]["features"]) if whys else ()
    hits = [_hit(one, why, names) for one, why in zip(results, whys, strict=True)]
    return Explained(case, names, sorted(hits, key=lambda hit: hit.first_rank))


def _hit(result: Json, why: Json, names: Sequence[str]) -> Hit:
    features = tuple(float("nan") if why["features"][name] is None else why["features"][name] for name in names)
    place = (result["session_id"], result["id"])
    return Hit(place, result["seq"], why["first_rank"], why["rerankers"], features)


def _why_not(answer: Json) -> str:
    reasons = answer.get("degradation", {}).get("reasons") or ["the service has no second stage"]
    return "; ".join(reasons)
