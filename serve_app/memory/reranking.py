"""Which rerankers a service has: read from its settings, opened once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from serve_app.models.rerank import ModelOptions
from serve_app.ports import Reranker
from serve_app.retrieve.ranker import open_ranker, shipped
from serve_app.retrieve.rerankers import LateInteraction, LearnedRanker
from serve_app.retrieve.second import Kind, RerankMeter, SecondStage

SHIPPED, NONE = "shipped", "none"


class RerankOptions(ModelOptions, frozen=True, forbid_unknown_fields=True):
    """The second stage. `late`: late interaction, where the encoder gives token vectors. `ranker`: "shipped", "none" or
    a file that `memstrata train-ranker` wrote. `model`: a cross-encoder, by folder or hub id, which then has the last
    word. Each has `deadline_ms`.
    """

    late: bool = True
    ranker: str = SHIPPED
    deadline_ms: Annotated[int, Meta(ge=1, le=60_000)] = 250


def second_stage(options: RerankOptions, model: Reranker | None, meter: RerankMeter) -> SecondStage:
    """Raises RankerUnusable where the ranker's file is not one."""
    rerankers: dict[Kind, Reranker] = {}
    if options.late:
        rerankers["late"] = LateInteraction()
    if options.ranker != NONE:
        rerankers["ranker"] = LearnedRanker(
            shipped() if options.ranker == SHIPPED else open_ranker(Path(options.ranker).expanduser())
        )
    if model is not None:
        rerankers["model"] = model
    return SecondStage(rerankers, meter, options.deadline_ms / 1e3, options.late)
