"""Which rerankers a service has: read from its settings, opened once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from serve_app.core import EmbeddingVersion
from serve_app.models.hub import local_path
from serve_app.models.multilingual import MULTILINGUAL
from serve_app.models.rerank import ModelOptions
from serve_app.models.weights import PACKAGED
from serve_app.ports import Reranker
from serve_app.retrieve.ranker import Ranker, open_ranker, shipped
from serve_app.retrieve.rerankers import LateInteraction, LearnedRanker
from serve_app.retrieve.second import Kind, RerankMeter, SecondStage

AUTO, SHIPPED, NONE = "auto", "shipped", "none"

TRAINED_FOR = frozenset({PACKAGED, MULTILINGUAL})
"""Models whose vectors the shipped ranker was trained on; what another one's numbers mean it does not know."""


class RerankOptions(ModelOptions, frozen=True, forbid_unknown_fields=True):
    """The second stage. `late`: late interaction, where the encoder gives token vectors. `ranker`: "auto" (the shipped
    one, where the encoders are those that it was trained for), "shipped", "none", or a file that
    `memstrata train-ranker` wrote. `model`: a cross-encoder, by folder or hub id, which then has the last word.
    Each has `deadline_ms`.
    """

    late: bool = True
    ranker: str = AUTO
    deadline_ms: Annotated[int, Meta(ge=1, le=60_000)] = 250


def second_stage(
    options: RerankOptions,
    versions: Sequence[EmbeddingVersion],
    model: Reranker | None,
    meter: RerankMeter | None,
    rest_s: float,
) -> SecondStage:
    """`versions` are the active ones, `rest_s` is of a model that fails again and again.

    Raises RankerUnusable where the ranker's file is not one.
    """
    rerankers: dict[Kind, Reranker] = {}
    if options.late:
        rerankers["late"] = LateInteraction()
    if (ranker := _ranker(options.ranker, versions)) is not None:
        rerankers["ranker"] = LearnedRanker(ranker)
    if model is not None:
        rerankers["model"] = model
    return SecondStage(rerankers, meter, options.deadline_ms / 1e3, options.late, rest_s)


def _ranker(wanted: str, versions: Sequence[EmbeddingVersion]) -> Ranker | None:
    if wanted == AUTO:
        wanted = SHIPPED if all(version.model in TRAINED_FOR for version in versions) else NONE
    if wanted == NONE:
        return None
    return shipped() if wanted == SHIPPED else open_ranker(local_path(wanted) or Path(wanted))
